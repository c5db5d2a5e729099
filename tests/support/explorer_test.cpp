// SPDX-License-Identifier: Apache-2.0
#if !defined(__SANITIZE_THREAD__)
#include "support/explorer.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace reprise::test {
namespace {

/// A program written down as its tasks and what must hold at the end.
template <class State>
class Program final : public Scenario {
public:
  using Body = void (*)(State&);

  Program(std::vector<Body> bodies, Body at_end) : bodies_(std::move(bodies)), check_(at_end) {}

  std::vector<Task> tasks() override {
    std::vector<Task> tasks;
    for (const Body body : bodies_) tasks.push_back({[this, body] { body(state_); }});
    return tasks;
  }
  void check() override { check_(state_); }

private:
  std::vector<Body> bodies_;
  Body check_;
  State state_;
};

template <class State>
MakeScenario program(std::vector<void (*)(State&)> bodies, void (*check)(State&)) {
  return [=] { return std::make_unique<Program<State>>(bodies, check); };
}

struct Counter {
  Stepped<int> value{0};
};

void add_in_two_steps(Counter& c) {
  const int seen = c.value.load();
  c.value.store(seen + 1);
}
void add_at_once(Counter& c) {
  c.value.fetch_add(1);
}
void is_two(Counter& c) {
  require(c.value.now() == 2, "an addition was lost");
}

struct Sleeper {
  Stepped<int> item{0};
  Stepped<int> asleep{0};
  bool token = false;
};

void put_then_look(Sleeper& s) {
  s.item.store(1);
  if (s.asleep.load() == 1) {
    s.token = true;
    changed();
  }
}
void look_then_sleep(Sleeper& s) {  // wrong: the item may come between the look and the sleep
  if (s.item.load() == 1) return;
  s.asleep.store(1);
  block_until([&s] { return s.token; });
}
void sleep_then_look(Sleeper& s) {
  s.asleep.store(1);
  if (s.item.load() == 1) return;
  block_until([&s] { return s.token; });
}
void nothing(Sleeper&) {}

}  // namespace

TEST_CASE("the explorer finds a lost update with one preemption and none without",
          "[support][explorer]") {
  const auto make = program<Counter>({add_in_two_steps, add_in_two_steps}, is_two);
  const Exploration none = explore_all(make, 0);
  CHECK(none.failure == "");
  CHECK(none.complete);

  const Exploration found = explore_all(make, 1);
  CHECK(found.failure == "an addition was lost");
  CHECK(replay(make, found.schedule).failure == found.failure);

  const Exploration right = explore_all(program<Counter>({add_at_once, add_at_once}, is_two), 3);
  CHECK(right.failure == "");
  CHECK(right.complete);
}

TEST_CASE("the explorer runs every order of independent steps once", "[support][explorer]") {
  struct Two {
    Stepped<int> a{0};
    Stepped<int> b{0};
  };
  const auto make = program<Two>({[](Two& t) {
                                    t.a.store(1);
                                    t.a.store(2);
                                  },
                                  [](Two& t) {
                                    t.b.store(1);
                                    t.b.store(2);
                                  }},
                                 [](Two&) {});
  // A task is what lies before, between and behind its stores: 6! / (3! 3!) orders.
  CHECK(explore_all(make, 6).schedules == 20);
  CHECK(explore_all(make, 0).schedules == 2);
}

TEST_CASE("the explorer finds a sleeper that nobody will wake", "[support][explorer]") {
  const Exploration found =
      explore_all(program<Sleeper>({look_then_sleep, put_then_look}, nothing), 2);
  CHECK(found.failure == "no task can go on");

  // Two words, stored and looked at crosswise: right where nothing is reordered, which is all that
  // the explorer knows. On a processor with store buffers this needs a fence.
  const Exploration blind =
      explore_all(program<Sleeper>({sleep_then_look, put_then_look}, nothing), 3);
  CHECK(blind.failure == "");
  CHECK(blind.complete);
}

TEST_CASE("random priorities find a lost update and a seed finds it again", "[support][explorer]") {
  const auto make = program<Counter>({add_in_two_steps, add_in_two_steps}, is_two);
  const Exploration first = explore_random(make, 7, 1000, 2);
  CHECK(first.failure == "an addition was lost");
  const Exploration again = explore_random(make, 7, 1000, 2);
  CHECK(again.schedule == first.schedule);
  CHECK(again.schedules == first.schedules);
}

TEST_CASE("a number that a task chooses is explored in full", "[support][explorer]") {
  static unsigned seen = 0;
  seen = 0;
  const Exploration all = explore_all(
      program<Counter>({[](Counter&) { seen |= 1U << choose(3); }}, [](Counter&) {}), 0);
  CHECK(all.complete);
  CHECK(all.schedules == 3);
  CHECK(seen == 7U);
}

}  // namespace reprise::test

#endif

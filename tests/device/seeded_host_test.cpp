// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/seeded_host.hpp>

#include <catch2/catch.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

using namespace reprise;
using Order = SeededOptions::Order;

namespace {

/// Writes its letter down for each of `steps` steps, then ends.
class Writer final : public Loop {
public:
  Writer(std::string& log, char letter, int steps) : log_(log), letter_(letter), left_(steps) {}
  bool step() noexcept override {
    if (left_ == 0) return false;
    --left_;
    log_ += letter_;
    return true;
  }
  Rest rest() noexcept override { return Rest::done(); }
  void pause() noexcept override {}

private:
  std::string& log_;
  char letter_;
  int left_;
};

/// Does one piece of work for each give(), sleeps otherwise as `mode` says.
class Sleeper final : public Loop {
public:
  bool step() noexcept override {
    role = this_thread_role();
    if (work == 0) return false;
    --work;
    ++served;
    return true;
  }
  Rest rest() noexcept override {
    ++rests;
    return next;
  }
  void pause() noexcept override {}
  void overslept() noexcept override {
    ++oversleeps;
    next = Rest::sleep();
  }

  Rest next = Rest::sleep();
  int work = 0;
  int served = 0;
  int rests = 0;
  int oversleeps = 0;
  ThreadRole role = ThreadRole::user;
};

std::unique_ptr<LoopHandle> start(SeededHost& host, Loop& loop,
                                  ThreadRole role = ThreadRole::worker) {
  auto handle = host.start(loop, {"loop", role, 0});
  REQUIRE(handle);
  return std::move(handle).value();
}

std::string interleave(const SeededOptions& options, std::string* schedule = nullptr) {
  std::string log;
  SeededHost host(options);
  Writer a(log, 'a', 3);
  Writer b(log, 'b', 3);
  Writer c(log, 'c', 3);
  const auto ha = start(host, a);
  const auto hb = start(host, b);
  const auto hc = start(host, c);
  while (host.run_one()) {
  }
  CHECK(log.size() == 9);
  if (schedule) *schedule = host.schedule();
  CHECK_FALSE(host.has_diverged());
  return log;
}

}  // namespace

TEST_CASE("a seed fixes the interleaving and other seeds find others", "[device][seeded][D6]") {
  const Order order = GENERATE(Order::uniform, Order::priorities);
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const SeededOptions options{.seed = seed, .order = order, .expected_turns = 15};
    const std::string log = interleave(options);
    CHECK(interleave(options) == log);
    seen.insert(log);
  }
  CHECK(seen.size() > 50);
}

TEST_CASE("round robin gives each runnable loop its turn", "[device][seeded][D6]") {
  CHECK(interleave({.order = Order::round_robin}) == "bcabcabca");
}

TEST_CASE("a schedule brings its interleaving back whatever the seed", "[device][seeded][D6]") {
  std::string schedule;
  const std::string log = interleave({.seed = 77}, &schedule);
  CAPTURE(schedule);
  CHECK(interleave({.seed = 1, .schedule = schedule}) == log);
  CHECK(interleave({.seed = 2, .order = Order::round_robin, .schedule = schedule}) == log);
}

TEST_CASE("a schedule of other code is told from one that fits", "[device][seeded]") {
  std::string log;
  SeededHost host(SeededOptions{.schedule = "0*2 7 0"});
  Writer a(log, 'a', 4);
  const auto handle = start(host, a);
  while (host.run_one()) {
  }
  CHECK(host.has_diverged());
  CHECK(log == "aaaa");
}

TEST_CASE("nothing runnable is told by false", "[device][seeded]") {
  SeededHost host(1);
  CHECK_FALSE(host.run_one());
  Sleeper loop;
  const auto handle = start(host, loop);
  CHECK(host.run_one());
  CHECK(host.run_one());
  CHECK(loop.rests == 1);
  CHECK_FALSE(host.run_one());
  loop.work = 1;
  handle->wake();
  CHECK(host.run_one());
  CHECK(loop.served == 1);
  CHECK(loop.oversleeps == 0);
}

TEST_CASE("a wake between step and rest or before it ends the sleep", "[device][seeded]") {
  SeededHost host(1);
  Sleeper loop;
  const auto handle = start(host, loop);
  CHECK(host.run_one());  // step finds nothing
  loop.work = 1;
  handle->wake();
  handle->wake();
  CHECK(host.run_one());  // rest says sleep
  CHECK(host.run_one());  // the token ends it
  CHECK(loop.served == 1);
  CHECK(host.run_one());
  CHECK(host.run_one());
  CHECK(loop.rests == 2);
  CHECK_FALSE(host.run_one());  // one token, one sleep
}

TEST_CASE("the clock jumps to the next deadline when nothing can run", "[device][seeded]") {
  SeededHost host(1);
  Sleeper early;
  Sleeper late;
  const auto begin = host.now_ns();
  early.next = Rest::sleep_until(begin + 1'000'000);
  late.next = Rest::sleep_until(begin + 5'000'000);
  const auto he = start(host, early);
  const auto hl = start(host, late);
  host.run_until_idle();
  CHECK(early.rests == 1);
  CHECK(late.rests == 1);
  CHECK(host.now_ns() < begin + 1'000'000);
  CHECK(host.run_one(begin + 500'000));
  CHECK(host.now_ns() == begin + 500'000);
  CHECK_FALSE(host.run_one(begin + 500'000));
  CHECK(host.run_one());
  CHECK(host.now_ns() == begin + 1'000'000);
  host.run_until_idle();
  CHECK(early.oversleeps == 1);
  CHECK(late.oversleeps == 0);
  // A wake in time is no oversleeping.
  hl->wake();
  late.next = Rest::sleep();
  host.run_until_idle();
  CHECK(late.oversleeps == 0);
  CHECK_FALSE(host.run_one());
}

TEST_CASE("a loop sees its role and the caller keeps its own", "[device][seeded]") {
  SeededHost host(1);
  Sleeper loop;
  const auto handle = start(host, loop, ThreadRole::courier);
  CHECK(host.run_one());
  CHECK(loop.role == ThreadRole::courier);
  CHECK(this_thread_role() == ThreadRole::user);
}

TEST_CASE("join drives the loops until the one is done", "[device][seeded]") {
  std::string log;
  SeededHost host(3);
  Writer a(log, 'a', 5);
  Sleeper b;
  const auto ha = start(host, a);
  const auto hb = start(host, b);
  CHECK(ha->join(Host::never_ns));
  CHECK(log == "aaaaa");
  const auto begin = host.now_ns();
  CHECK_FALSE(hb->join(begin + 1'000));
  CHECK(host.now_ns() >= begin + 1'000);
  CHECK_FALSE(hb->join(Host::never_ns));
}

TEST_CASE("a start can be refused on request", "[device][seeded]") {
  SeededHost host(1);
  Sleeper loop;
  host.refuse_start(2);
  CHECK(host.start(loop, {}));
  const auto refused = host.start(loop, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::refused);
  CHECK(host.start(loop, {}));
}

TEST_CASE("a turn may drive the host and never runs itself within itself", "[device][seeded]") {
  class Nesting final : public Loop {
  public:
    explicit Nesting(SeededHost& host) : host_(host) {}
    bool step() noexcept override {
      if (depth_ > 0 || ++steps_ > 3) return false;
      ++depth_;
      while (host_.run_one()) {
      }
      --depth_;
      return true;
    }
    Rest rest() noexcept override { return Rest::done(); }
    void pause() noexcept override {}
    SeededHost& host_;
    int depth_ = 0;
    int steps_ = 0;
  };
  SeededHost host(1);
  Nesting outer(host);
  Sleeper inner;
  inner.work = 2;
  const auto ho = start(host, outer);
  const auto hi = start(host, inner);
  while (host.run_one()) {
  }
  CHECK(outer.steps_ == 4);
  CHECK(inner.served == 2);
}

TEST_CASE("a leader that only waits for others does not starve them", "[device][seeded]") {
  class Impatient final : public Loop {
  public:
    explicit Impatient(std::string& log) : log_(log) {}
    bool step() noexcept override { return false; }
    Rest rest() noexcept override { return log_.size() < 3 ? Rest::again() : Rest::done(); }
    void pause() noexcept override {}
    std::string& log_;
  };
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::string log;
    SeededHost host(SeededOptions{.seed = seed, .order = Order::priorities});
    Impatient waits(log);
    Writer writes(log, 'w', 3);
    const auto hi = start(host, waits);
    const auto hw = start(host, writes);
    int turns = 0;
    while (host.run_one()) REQUIRE(++turns < 100);
    CHECK(log == "www");
  }
}

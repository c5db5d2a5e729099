// SPDX-License-Identifier: Apache-2.0
// The words by which streams and workers find each other, under every interleaving of a few small
// programs, and with bugs planted in the programs around them.
#if !defined(__SANITIZE_THREAD__)

#include <reprise/device/cpu/inbox.hpp>
#include <reprise/device/cpu/progress.hpp>
#include <reprise/device/cpu/ready_word.hpp>

#include <support/explorer.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace reprise::test {
namespace {

using detail::PositionWaiter;
using Ready = detail::ReadyWord<Stepped>;
using Progress = detail::Progress<Stepped, SteppedMutex>;

struct Item {
  void* next = nullptr;
  unsigned number = 0;
};
using Inbox = detail::Inbox<Item, Stepped>;

/// Bugs that the exploration must find.
enum class Plant { none, no_wake, no_chained_wake, silent_hand_over };

struct Shape {
  unsigned workers = 2;
  unsigned streams = 2;
  unsigned items = 2;     // Per stream.
  bool kick_once = true;  // All streams in one publication, after everything was pushed.
  bool helper = false;    // Runs one item of stream 0 and hands the rest over.
};

/// A device thread that pushes, workers as they are, perhaps a helper.
class StreamsProgram final : public Scenario {
public:
  StreamsProgram(const Shape& shape, Plant plant)
      : shape_(shape), plant_(plant), ready_(shape.workers), streams_(shape.streams),
        tokens_(shape.workers) {
    for (auto& stream : streams_) {
      stream = std::make_unique<Stream>();
      stream->items.resize(shape.items);
    }
  }

  std::vector<Task> tasks() override {
    std::vector<Task> tasks;
    tasks.push_back({[this] { push_all(); }});
    for (unsigned w = 0; w < shape_.workers; ++w) tasks.push_back({[this, w] { work(w); }, true});
    if (shape_.helper) tasks.push_back({[this] { help(); }});
    return tasks;
  }

  void check() override {
    for (const auto& stream : streams_) {
      require(!stream->inside, "somebody is still inside a stream");
      require(stream->ran == shape_.items, "an item was left lying");
      require(!stream->inbox.is_waiting(), "a stream waits and everybody sleeps");
    }
    // Nobody works any more, so all sleep, and whoever was moved off the list was woken.
    for (unsigned left = shape_.workers; left != 0; --left) {
      const unsigned worker = ready_.publish(1, true);
      require(worker != Ready::nobody, "a worker is asleep and nobody can wake it");
      (void)ready_.take(0, true);
    }
  }

private:
  struct Stream {
    Inbox inbox;
    std::vector<Item> items;
    unsigned ran = 0;
    bool inside = false;
  };

  void push_all() {
    std::uint32_t bits = 0;
    for (unsigned i = 0; i < shape_.items; ++i) {
      for (unsigned s = 0; s < shape_.streams; ++s) {
        Stream& stream = *streams_[s];
        stream.items[i].number = i;
        if (stream.inbox.push(stream.items[i])) bits |= 1u << s;
        if (!shape_.kick_once) publish(std::exchange(bits, 0));
      }
    }
    publish(bits);
  }

  void publish(std::uint32_t bits) {
    if (bits != 0) wake(ready_.publish(bits, plant_ != Plant::no_wake));
  }
  void wake(std::uint32_t worker) {
    if (worker != Ready::nobody) tokens_[worker].exchange(1);
  }

  void run_one(Stream& stream, Item& item) {
    require(!stream.inside, "two run one stream");
    stream.inside = true;
    switch_point();
    require(item.number == stream.ran, "an item came out of turn");
    ++stream.ran;
    stream.inside = false;
    stream.inbox.drop_first();
  }

  void work(unsigned me) {
    bool searching = false;
    for (;;) {
      const std::uint64_t before = changes();
      const auto taken = ready_.take(0, searching);
      if (taken.stream != Ready::nobody) {
        searching = false;
        if (plant_ != Plant::no_chained_wake) wake(taken.wake);
        Stream& stream = *streams_[taken.stream];
        if (!stream.inbox.claim()) continue;
        while (Item* item = stream.inbox.first()) run_one(stream, *item);
      } else if (!searching) {
        searching = ready_.search();
      } else if (ready_.park(me)) {
        block_until([this, me] { return tokens_[me].now() != 0; });
        tokens_[me].exchange(0);
      } else {
        wait_for_change(before);
      }
    }
  }

  void help() {
    Stream& stream = *streams_[0];
    if (!stream.inbox.claim()) return;
    Item* const item = stream.inbox.first();
    if (!item) return;
    run_one(stream, *item);
    if (stream.inbox.hand_over() && plant_ != Plant::silent_hand_over) publish(1);
  }

  const Shape shape_;
  const Plant plant_;
  Ready ready_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stepped<int>> tokens_;
};

MakeScenario streams(const Shape& shape, Plant plant = Plant::none) {
  return [=] { return std::make_unique<StreamsProgram>(shape, plant); };
}

/// One stream advances, others wait for positions of it or arm them.
class ProgressProgram final : public Scenario {
public:
  explicit ProgressProgram(bool plant) : plant_(plant) {}

  std::vector<Task> tasks() override {
    return {{[this] {
              for (unsigned i = 0; i < 2; ++i) {
                auto passed = progress_.advance();
                if (passed.notify && !plant_) told_ += 1;
                for (PositionWaiter* waiter = passed.released; waiter; waiter = waiter->next) {
                  require(progress_.position() >= waiter->position, "released too early");
                  ++released_[waiter - waiters_.data()];
                }
              }
            }},
            {[this] { wait(0, 1); }},
            {[this] { wait(1, 2); }},
            {[this] { armed_ = progress_.arm(2); }}};
  }

  void check() override {
    for (unsigned i = 0; i < 2; ++i) {
      require(released_[i] == (waits_[i] ? 1u : 0u), "a waiter was not released once");
    }
    require((told_ != 0) == armed_, "an armed position was not told");
    require(!progress_.arm(2), "arming what was reached");
  }

private:
  void wait(unsigned i, StreamPosition position) {
    waiters_[i].position = position;
    waits_[i] = progress_.wait(waiters_[i]);
    if (!waits_[i]) require(progress_.position() >= position, "no wait but not reached");
  }

  const bool plant_;
  Progress progress_;
  std::array<PositionWaiter, 2> waiters_;
  std::array<unsigned, 2> released_{};
  std::array<bool, 2> waits_{};
  bool armed_ = false;
  unsigned told_ = 0;
};

/// Under a sanitizer a step costs ten times as much: one preemption less.
#if defined(__SANITIZE_ADDRESS__)
constexpr unsigned slower = 1;
#else
constexpr unsigned slower = 0;
#endif

void expect_clean(const MakeScenario& make, unsigned preemptions) {
  const Exploration found = explore_all(make, preemptions - slower, 2'000'000);
  INFO(found.failure << " at " << found.schedule);
  CHECK(found.failure.empty());
  CHECK(found.complete);
  CHECK(found.schedules > 20);
}

void expect_found(const MakeScenario& make, unsigned preemptions) {
  const Exploration found = explore_all(make, preemptions, 2'000'000);
  INFO(found.schedules << " schedules");
  CHECK_FALSE(found.failure.empty());
}

}  // namespace

TEST_CASE("no item is lost or run twice however workers and the device thread interleave",
          "[device][cpu][sim][I3][I34]") {
  SECTION("two streams in one kick") {
    expect_clean(streams({}), 2);
  }
  SECTION("a kick for each item") {
    expect_clean(streams({.kick_once = false}), 2);
  }
  SECTION("one worker and a helper") {
    expect_clean(streams({.workers = 1, .streams = 1, .items = 2, .helper = true}), 3);
  }
  SECTION("two workers and a helper") {
    expect_clean(streams({.streams = 1, .kick_once = false, .helper = true}), 2);
  }
}

TEST_CASE("the exploration of streams and workers finds planted bugs", "[device][cpu][sim]") {
  expect_found(streams({.workers = 1, .streams = 1}, Plant::no_wake), 2);
  expect_found(streams({}, Plant::no_chained_wake), 2);
  expect_found(
      streams({.workers = 1, .streams = 1, .items = 2, .helper = true}, Plant::silent_hand_over),
      2);
}

TEST_CASE("a waiter is released once and not early however it meets the advance",
          "[device][cpu][sim][I5]") {
  expect_clean([] { return std::make_unique<ProgressProgram>(false); }, 2);
  expect_found([] { return std::make_unique<ProgressProgram>(true); }, 1);
}

TEST_CASE("nobody is woken while somebody looks already", "[device][cpu][D3]") {
  detail::ReadyWord<> ready(3);
  const auto sleep = [&](std::uint32_t worker) { return ready.search() && ready.park(worker); };
  REQUIRE(sleep(0));
  REQUIRE(sleep(1));
  REQUIRE(ready.search());
  CHECK(ready.publish(0b11, true) == ready.nobody);
  // Who looks takes one and wakes one for the other.
  const auto first = ready.take(0, true);
  CHECK(first.stream == 1);
  CHECK(first.wake == 1);
  const auto second = ready.take(0, true);
  CHECK(second.stream == 0);
  CHECK(second.wake == ready.nobody);
  CHECK(ready.publish(0b100, false) == ready.nobody);
  CHECK_FALSE(ready.search());
  CHECK(ready.is_crowded() == false);
  CHECK(ready.publish(0b1000, true) == 0);
}

TEST_CASE("ready streams are taken in turn", "[device][cpu]") {
  detail::ReadyWord<> ready(1);
  ready.publish(1u << 30 | 0b1011, true);
  std::vector<std::uint32_t> order;
  for (std::uint32_t last = 1; order.size() < 4; order.push_back(last)) {
    last = ready.take(last, false).stream;
  }
  CHECK(order == std::vector<std::uint32_t>{3, 30, 0, 1});
  CHECK(ready.take(1, false).stream == ready.nobody);
}

}  // namespace reprise::test

#endif

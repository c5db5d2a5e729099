// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/channel.hpp>

#include "support/channel_notes.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace reprise::test {
namespace {

std::uint64_t seed() {
  const char* const text = std::getenv("REPRISE_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 4711;
}

}  // namespace

TEST_CASE("a command runs in the slot it was built in and is destroyed there once",
          "[runtime][channel]") {
  struct alignas(16) Wide {
    void operator()(void* context) noexcept { *static_cast<const void**>(context) = this; }
    std::array<std::byte, 112> bytes{};
  };
  static_assert(ChannelCommand<Wide>);
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  REQUIRE(channel.try_submit(Wide{}, true) == Admission::in_slot);
  const Channel::Item* const front = channel.front();
  REQUIRE(front != nullptr);
  const void* const built = front->payload;
  const void* ran = nullptr;
  CHECK(channel.consume([&](const ChannelItem& item) noexcept { item.run(&ran); }));
  CHECK(ran == built);
  CHECK(reinterpret_cast<std::uintptr_t>(built) % 16 == 0);

  Log log;
  CHECK(channel.try_submit(Note(log, 1), true) == Admission::in_slot);
  CHECK(log.alive == 1);
  CHECK(serve_one(channel));
  CHECK(log.alive == 0);
  CHECK(log.served == std::vector<int>{1});
}

TEST_CASE("the front of a channel shows the command without consuming it", "[runtime][channel]") {
  Wakes wakes;
  Channel channel({.capacity = 4, .first_ticket = 9}, wakes);
  Log log;
  CHECK(channel.front() == nullptr);
  channel.try_submit(Note(log, 5), true);
  for (int look = 0; look < 2; ++look) {
    const Channel::Item* const front = channel.front();
    REQUIRE(front != nullptr);
    CHECK(front->ticket == 9);
    CHECK(static_cast<Note*>(front->payload)->number == 5);
    CHECK(channel.head() == 9);
  }
  Late<Note> late;
  channel.submit(Note(log, 6), late, false);
  serve_all(channel);
  CHECK(log.served == std::vector<int>{5, 6});
  CHECK(channel.front() == nullptr);
  CHECK(channel.tickets_taken() == 11);
}

namespace {

struct WithOps {
  static const ItemOps ops;
};

const ItemOps WithOps::ops{
    .run = [](void*, void* context) noexcept { ++*static_cast<int*>(context); },
    .destroy = nullptr,
};

}  // namespace

TEST_CASE("a command type that brings its own table is found by it", "[runtime][channel]") {
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  channel.try_submit(WithOps{}, true);
  REQUIRE(channel.front() != nullptr);
  CHECK(channel.front()->ops == &WithOps::ops);
  int runs = 0;
  channel.consume([&](const ChannelItem& item) noexcept { item.run(&runs); });
  CHECK(runs == 1);
}

TEST_CASE("an attempt on a full ring or without credit has no effect",
          "[runtime][channel][I9][I10]") {
  Wakes wakes;
  Channel channel({.capacity = 4}, wakes);
  Log log;
  for (int i = 0; i < 4; ++i) CHECK(channel.try_submit(Note(log, i), true) == Admission::in_slot);
  Note note(log, 4);
  CHECK(channel.try_submit(std::move(note), true) == Admission::would_block);
  CHECK(note.number == 4);
  CHECK(channel.tickets_taken() == 4);
  CHECK(serve_one(channel));
  CHECK(channel.try_submit(std::move(note), false) == Admission::would_block);
  CHECK(note.number == 4);
  CHECK(channel.try_submit(std::move(note), true) == Admission::in_slot);
  CHECK(note.number == -1);
  channel.close();
  Note refused(log, 5);
  CHECK(channel.try_submit(std::move(refused), true) == Admission::closed);
  CHECK(channel.try_submit(std::move(refused), false) == Admission::closed);
  CHECK(refused.number == 5);
  serve_all(channel);
  CHECK(log.served == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("each kind of arrival wakes a parked consumer once and no other arrival does",
          "[runtime][channel][D3][I11]") {
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  Log log;
  Node node;
  Late<Note> late;
  int expected = 0;
  const auto park = [&] { REQUIRE(channel.try_park() == Channel::Idle::parked); };

  channel.try_submit(Note(log, 0), true);
  CHECK(wakes.count == expected);  // nobody sleeps
  serve_all(channel);

  park();
  channel.try_submit(Note(log, 1), true);
  CHECK(wakes.count == ++expected);
  channel.try_submit(Note(log, 2), true);
  CHECK(channel.try_submit(Note(log, 3), true) == Admission::would_block);
  CHECK(wakes.count == expected);
  serve_all(channel);

  park();
  CHECK(channel.submit(Note(log, 4), late, false) == Admission::late);
  CHECK(wakes.count == ++expected);
  serve_all(channel);

  park();
  CHECK(channel.post(node));
  CHECK(wakes.count == ++expected);
  CHECK(channel.try_park() == Channel::Idle::busy);
  serve_all(channel);

  park();
  CHECK(channel.try_submit(Note(log, 5), false) == Admission::would_block);
  CHECK(wakes.count == expected);  // no effect
  channel.close();
  CHECK(wakes.count == ++expected);
  channel.close();
  CHECK(wakes.count == expected);
  CHECK(channel.try_park() == Channel::Idle::stopped);
}

TEST_CASE("a park that ends from within takes no token with it", "[runtime][channel][I11]") {
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  Log log;
  REQUIRE(channel.try_park() == Channel::Idle::parked);
  CHECK(channel.unpark());
  channel.try_submit(Note(log, 0), true);
  CHECK(wakes.count == 0);
  serve_all(channel);
  REQUIRE(channel.try_park() == Channel::Idle::parked);
  channel.try_submit(Note(log, 1), true);
  CHECK_FALSE(channel.unpark());
  CHECK(wakes.count == 1);
}

TEST_CASE("a close lets through what was ticketed or posted before and refuses the rest",
          "[runtime][channel][I12]") {
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  Log log;
  Node before;
  Node after;
  Node too_late;
  Late<Note> late;
  Late<Note> unused;
  channel.try_submit(Note(log, 0), true);
  channel.submit(Note(log, 1), late, false);
  channel.post(before);
  CHECK_FALSE(channel.is_closed());
  channel.close();
  CHECK(channel.is_closed());
  CHECK(channel.submit(Note(log, 2), unused, true) == Admission::closed);
  CHECK_FALSE(unused.holds_command());
  CHECK(channel.post(after));  // the control lane goes on
  CHECK(channel.try_park() == Channel::Idle::busy);
  serve_all(channel);
  CHECK(log.served == std::vector<int>{0, 1});
  CHECK(channel.try_park() == Channel::Idle::stopped);
  CHECK(before.served == 1);
  CHECK(after.served == 1);

  CHECK_FALSE(channel.post(too_late));
  CHECK(too_late.served == 0);
  CHECK(too_late.closed == 1);
}

TEST_CASE("what is posted after the end goes to the channel's own answer if it has one",
          "[runtime][channel]") {
  struct Answer {
    static void closed(ControlNode& node, void* context) noexcept {
      static_cast<std::vector<ControlNode*>*>(context)->push_back(&node);
    }
  };
  std::vector<ControlNode*> answered;
  Wakes wakes;
  Node posted;
  Node left_behind;
  {
    Channel stopped({.closed_item = Answer::closed, .closed_context = &answered}, wakes);
    stopped.close();
    REQUIRE(stopped.try_park() == Channel::Idle::stopped);
    CHECK_FALSE(stopped.post(posted));
    CHECK(answered == std::vector<ControlNode*>{&posted});
    Channel abandoned({.closed_item = Answer::closed, .closed_context = &answered}, wakes);
    CHECK(abandoned.post(left_behind));
  }
  CHECK(answered == std::vector<ControlNode*>{&posted, &left_behind});
}

TEST_CASE("a channel that is destroyed unserved destroys what lies in its slots unrun",
          "[runtime][channel][I8]") {
  Log log;
  Late<Note> late;
  {
    Wakes wakes;
    Channel channel({.capacity = 4}, wakes);
    for (int i = 0; i < 3; ++i) channel.try_submit(Note(log, i), true);
    serve_one(channel);
    channel.submit(Note(log, 3), late, false);
    channel.try_submit(Note(log, 4), true);
    channel.drain_control([](ControlNode&) {});
  }
  CHECK(log.served == std::vector<int>{0});
  CHECK(log.alive == 1);
  late.clear();
  CHECK(log.alive == 0);
}

TEST_CASE("a command that may not be taken yet stays where it is", "[runtime][channel]") {
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  Log log;
  Late<Note> late;
  CHECK(channel.try_submit(Note(log, 0), true) == Admission::in_slot);
  CHECK(channel.submit(Note(log, 1), late, false) == Admission::late);
  channel.drain_control([](ControlNode&) {});
  const auto run = [](const ChannelItem& item) noexcept { item.run(nullptr); };
  for (int number = 0; number < 2; ++number) {
    for (int attempt = 0; attempt < 2; ++attempt)
      CHECK_FALSE(channel.consume_if(
          [&](const ChannelItem& item) noexcept {
            CHECK(item.ticket == std::uint64_t(number));
            CHECK(static_cast<Note*>(item.payload)->number == number);
            return false;
          },
          run));
    CHECK(log.served.size() == std::size_t(number));
    CHECK(channel.consume_if([](const ChannelItem&) noexcept { return true; }, run));
  }
  CHECK(log.served == std::vector<int>{0, 1});
  CHECK_FALSE(channel.consume_if([](const ChannelItem&) noexcept { return true; }, run));
}

TEST_CASE("a drain with a limit keeps the rest announced", "[runtime][channel]") {
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  std::deque<Node> nodes(50);
  for (Node& node : nodes) channel.post(node);
  int context = 0;
  std::size_t served = 0;
  int drains = 0;
  while (served < nodes.size()) {
    CHECK(channel.try_park() == Channel::Idle::busy);
    served += channel.drain_control([&](ControlNode& n) { n.run(n, &context); }, 20);
    REQUIRE(++drains <= 4);
  }
  channel.drain_control([](ControlNode&) {}, 20);
  CHECK(channel.try_park() == Channel::Idle::parked);
  for (const Node& node : nodes) CHECK(node.served == 1);
}

TEST_CASE("tickets go on across the wrap of sixty bits", "[runtime][channel][I12]") {
  for (std::uint64_t before = 1; before <= 6; ++before) {
    CAPTURE(before);
    Wakes wakes;
    const std::uint64_t first = TicketPosition::ticket_mask + 1 - before;
    Channel channel({.capacity = 4, .first_ticket = first}, wakes);
    Log log;
    std::deque<Late<Note>> late(12);
    for (int i = 0; i < 12; ++i) {
      const Admission admission = channel.submit(Note(log, i), late[std::size_t(i)], i != 1);
      CHECK(admission == (i < 4 && i != 1 ? Admission::in_slot : Admission::late));
    }
    CHECK(channel.tickets_taken() == ((first + 12) & TicketPosition::ticket_mask));
    std::vector<std::uint64_t> tickets;
    channel.drain_control([](ControlNode&) {});
    while (channel.consume([&](const ChannelItem& item) noexcept {
      tickets.push_back(item.ticket);
      item.run(nullptr);
    })) {
    }
    REQUIRE(tickets.size() == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      CHECK(tickets[i] == ((first + i) & TicketPosition::ticket_mask));
      CHECK(log.served[i] == int(i));
    }
    channel.close();
    CHECK(channel.try_park() == Channel::Idle::stopped);
  }
}

namespace {

/// Counts what is loaded, to see how long a pause lasts without a clock.
template <class T>
class Counting : public std::atomic<T> {
public:
  using std::atomic<T>::atomic;
  T load(std::memory_order order) const noexcept {
    ++loads;
    return std::atomic<T>::load(order);
  }
  static inline int loads = 0;
};

struct CountingTraits : ChannelTraits {
  template <class T>
  using Atomic = Counting<T>;
};

}  // namespace

TEST_CASE("a pause ends when the bell rings and has ended before if it has rung",
          "[runtime][channel]") {
  Wakes wakes;
  BasicChannel<CountingTraits> channel({.capacity = 2}, wakes);
  const auto looks_of_a_pause = [&] {
    const int before = Counting<std::uint32_t>::loads;
    channel.pause();
    return Counting<std::uint32_t>::loads - before;
  };
  CHECK(looks_of_a_pause() == 64);
  channel.ring_bell();
  channel.ring_bell();
  CHECK(looks_of_a_pause() == 1);
  CHECK(looks_of_a_pause() == 64);
}

TEST_CASE("lingering ends with the command that comes and else lasts as long as a pause",
          "[runtime][channel]") {
  Wakes wakes;
  BasicChannel<CountingTraits> channel({.capacity = 2}, wakes);
  const auto looks = [&](bool found) {
    const int before = Counting<std::uint64_t>::loads;
    CHECK(channel.linger() == found);
    return Counting<std::uint64_t>::loads - before;
  };
  CHECK(looks(false) == 64);
  Log log;
  channel.try_submit(Note(log, 1), true);
  CHECK(looks(true) == 1);
  CHECK(serve_one(channel));
  CHECK(looks(false) == 64);
}

namespace {

/// A channel beside the plain account of what must be in it.
class Doubled {
public:
  Doubled(std::size_t capacity, std::uint64_t first_ticket)
      : capacity_(capacity),
        channel_({.capacity = capacity, .first_ticket = first_ticket}, wakes_) {}

  void submit(bool credit) {
    const bool fits = credit && waiting_ < capacity_;
    const Admission expected = closed_ ? Admission::closed
                               : fits  ? Admission::in_slot
                                       : Admission::late;
    late_.emplace_back();
    REQUIRE(channel_.submit(Note(log_, sent_), late_.back(), credit) == expected);
    account(expected);
  }

  void attempt(bool credit) {
    const bool fits = credit && waiting_ < capacity_;
    const Admission expected = closed_ ? Admission::closed
                               : fits  ? Admission::in_slot
                                       : Admission::would_block;
    REQUIRE(channel_.try_submit(Note(log_, sent_), credit) == expected);
    account(expected);
  }

  void drain() {
    channel_.drain_control([](ControlNode&) {});
    late_unseen_ = false;
  }

  void close() {
    channel_.close();
    closed_ = true;
  }

  void serve() {
    if (late_unseen_) return;  // a late command is found once the lane was drained
    REQUIRE((channel_.front() != nullptr) == (waiting_ != 0));
    REQUIRE(serve_one(channel_) == (waiting_ != 0));
    if (waiting_ != 0) --waiting_;
  }

  void finish() {
    serve_all(channel_);
    REQUIRE(log_.served.size() == std::size_t(sent_));
    for (int i = 0; i < sent_; ++i) REQUIRE(log_.served[std::size_t(i)] == i);
    late_.clear();
    REQUIRE(log_.alive == 0);
  }

private:
  void account(Admission admission) {
    if (admission == Admission::closed || admission == Admission::would_block) return;
    ++sent_;
    ++waiting_;
    late_unseen_ = late_unseen_ || admission == Admission::late;
  }

  const std::size_t capacity_;
  Wakes wakes_;
  Log log_;
  std::deque<Late<Note>> late_;
  Channel channel_;
  std::size_t waiting_ = 0;
  bool late_unseen_ = false;
  bool closed_ = false;
  int sent_ = 0;
};

}  // namespace

TEST_CASE("a channel does what a queue of numbers does whatever the order of calls",
          "[runtime][channel][I9][I10][I12]") {
  CAPTURE(seed());
  std::mt19937_64 random(seed());
  for (int run = 0; run < 200; ++run) {
    CAPTURE(run);
    Doubled channel(std::size_t{2} << random() % 3, random());
    for (int step = 0; step < 200; ++step) {
      const bool credit = random() % 4 != 0;
      switch (random() % 6) {
        case 0: channel.submit(credit); break;
        case 1: channel.attempt(credit); break;
        case 2: channel.drain(); break;
        case 3:
          if (random() % 100 == 0) channel.close();
          break;
        default: channel.serve();
      }
    }
    channel.finish();
  }
}

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
// Submissions that find no room, and producers that are slow between ticket and command.
#include <reprise/runtime/channel.hpp>

#include "support/channel_notes.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace reprise::test {

TEST_CASE("submissions that find the ring full are served in the order of their tickets",
          "[runtime][channel][D1][I9][I10]") {
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  Log log;
  std::deque<Late<Note>> late(20);
  for (int i = 0; i < 20; ++i) {
    const Admission admission = channel.submit(Note(log, i), late[std::size_t(i)], true);
    CHECK(admission == (i < 2 ? Admission::in_slot : Admission::late));
    CHECK(late[std::size_t(i)].holds_command() == (i >= 2));
  }
  serve_all(channel);
  std::vector<int> in_order(20);
  for (int i = 0; i < 20; ++i) in_order[std::size_t(i)] = i;
  CHECK(log.served == in_order);
  CHECK(log.alive == 18);  // late ones belong to their callers
  late.clear();
  CHECK(log.alive == 0);
  // And the ring is as it was.
  CHECK(channel.try_submit(Note(log, 20), true) == Admission::in_slot);
  CHECK(channel.try_submit(Note(log, 21), true) == Admission::in_slot);
  CHECK(channel.try_submit(Note(log, 22), true) == Admission::would_block);
}

TEST_CASE("a submission without credit is late though its slot is free",
          "[runtime][channel][I10]") {
  Wakes wakes;
  Channel channel({.capacity = 4}, wakes);
  Log log;
  Late<Note> late;
  Late<Note> unused;
  CHECK(channel.submit(Note(log, 0), late, false) == Admission::late);
  CHECK(channel.submit(Note(log, 1), unused, true) == Admission::in_slot);
  CHECK_FALSE(serve_one(channel));  // 0 has not been looked for yet, and 1 does not overtake it
  serve_all(channel);
  CHECK(log.served == std::vector<int>{0, 1});
  CHECK(channel.try_submit(Note(log, 2), true) == Admission::in_slot);
}

TEST_CASE("a late command may end its own life as its last act", "[runtime][channel]") {
  struct Suicide {
    void operator()(void*) noexcept { owner->reset(); }
    std::optional<Late<Suicide>>* owner;
  };
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  std::optional<Late<Suicide>> late;
  for (int round = 0; round < 4; ++round) {
    late.emplace();
    CHECK(channel.submit(Suicide{&late}, *late, false) == Admission::late);
    serve_all(channel);
    CHECK_FALSE(late.has_value());
  }
  CHECK(channel.head() == 4);
}

namespace {

/// A queue that must not be asked.
struct NoQueue {
  bool enqueue(ControlNode*) {
    ++asked;
    return false;
  }
  std::size_t try_dequeue_bulk(ControlNode**, std::size_t) { return 0; }
  static inline int asked = 0;
};

struct NoQueueTraits : ChannelTraits {
  using Queue = NoQueue;
};

}  // namespace

TEST_CASE("a late submission does not go through the queue that may allocate",
          "[runtime][channel]") {
  Wakes wakes;
  BasicChannel<NoQueueTraits> channel({.capacity = 2}, wakes);
  Log log;
  NoQueue::asked = 0;
  std::deque<Late<Note>> late(5);
  for (int i = 0; i < 5; ++i) channel.submit(Note(log, i), late[std::size_t(i)], false);
  CHECK(NoQueue::asked == 0);
  serve_all(channel);
  CHECK(log.served == std::vector<int>{0, 1, 2, 3, 4});

  // What the queue refuses is spilled, announced, and wakes a parked consumer.
  Node node;
  REQUIRE(channel.try_park() == Channel::Word::Idle::parked);
  CHECK(channel.post(node));
  CHECK(NoQueue::asked == 1);
  CHECK(wakes.count == 1);
  serve_all(channel);
  CHECK(node.served == 1);
}

TEST_CASE("a producer between its ticket and its command shows as unpublished",
          "[runtime][channel]") {
  struct Slow {
    Slow(Channel& c, int& s) noexcept : channel(&c), seen(&s) {}
    Slow(Slow&& from) noexcept : channel(from.channel), seen(from.seen) {
      if (channel->has_unpublished() && channel->front() == nullptr &&
          channel->try_park() == Channel::Idle::busy)
        ++*seen;
    }
    void operator()(void*) noexcept {}
    Channel* channel;
    int* seen;
  };
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  int seen = 0;
  CHECK_FALSE(channel.has_unpublished());
  channel.try_submit(Slow(channel, seen), true);
  CHECK(seen == 1);
  CHECK(channel.front() != nullptr);
  serve_all(channel);
  CHECK_FALSE(channel.has_unpublished());
}

TEST_CASE("nothing overtakes a producer that is between its ticket and its command",
          "[runtime][channel][D1]") {
  // Its move constructor runs there, and sends what a faster thread could have sent.
  struct Overtaken {
    Overtaken(Channel& c, Log& l, std::deque<Late<Note>>& n) noexcept
        : channel(&c), log(&l), late(&n) {}
    Overtaken(Overtaken&& from) noexcept : channel(from.channel), log(from.log), late(from.late) {
      for (int i = 1; i <= 4; ++i) channel->submit(Note(*log, i), late->emplace_back(), true);
      channel->drain_control([](ControlNode&) {});
      if (channel->front() != nullptr || serve_one(*channel)) log->served.push_back(-1);
    }
    void operator()(void*) noexcept { log->served.push_back(0); }
    Channel* channel;
    Log* log;
    std::deque<Late<Note>>* late;
  };
  Wakes wakes;
  Channel channel({.capacity = 2}, wakes);
  Log log;
  std::deque<Late<Note>> late;
  channel.try_submit(Overtaken(channel, log, late), true);
  serve_all(channel);
  CHECK(log.served == std::vector<int>{0, 1, 2, 3, 4});
}

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/channel_word.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace reprise {
namespace {

using Word = ChannelWord<>;

Word::State take(Word& word) {
  Word::State seen = word.peek();
  while (!word.try_take(seen)) {
  }
  return seen;
}

std::uint64_t head_of(const Word& word) {
  return word.peek().position();
}

}  // namespace

TEST_CASE("each ticket is taken once and in order", "[runtime][channel]") {
  Word word(41);
  for (std::uint64_t i = 41; i < 50; ++i) CHECK(TicketPosition::ticket(take(word).bits) == i);
  CHECK(head_of(word) == TicketPosition::of(50));
}

TEST_CASE("a ticket is refused to whoever saw an old word", "[runtime][channel]") {
  Word word;
  Word::State seen = word.peek();
  take(word);
  CHECK_FALSE(word.try_take(seen));
  CHECK(seen.position() == TicketPosition::of(1));
  CHECK(word.try_take(seen));
}

TEST_CASE("tickets wrap at sixty bits and leave the flags alone", "[runtime][channel][I12]") {
  Word word(TicketPosition::ticket_mask - 1);
  word.post_control();
  CHECK(TicketPosition::ticket(take(word).bits) == TicketPosition::ticket_mask - 1);
  CHECK(TicketPosition::ticket(take(word).bits) == TicketPosition::ticket_mask);
  CHECK(TicketPosition::ticket(take(word).bits) == 0);
  const Word::State state = word.peek();
  CHECK(state.has_control());
  CHECK_FALSE(state.is_parked());
  CHECK_FALSE(state.is_closed());
  CHECK_FALSE(state.is_stopped());
}

TEST_CASE("the consumer parks only with no ticket beyond its head and nothing posted",
          "[runtime][channel][I11]") {
  Word word;
  const std::uint64_t head = head_of(word);
  take(word);
  CHECK(word.try_park(head) == Word::Idle::busy);
  CHECK(word.try_park(head_of(word)) == Word::Idle::parked);
  CHECK(word.unpark());
  word.post_control();
  CHECK(word.try_park(head_of(word)) == Word::Idle::busy);
  CHECK(word.look());
  CHECK(word.try_park(head_of(word)) == Word::Idle::parked);
}

TEST_CASE("whatever arrives at a parked consumer clears the flag and owes one token",
          "[runtime][channel][I11]") {
  Word word;
  const auto park = [&] { REQUIRE(word.try_park(head_of(word)) == Word::Idle::parked); };

  park();
  CHECK(take(word).is_parked());
  CHECK_FALSE(take(word).is_parked());
  CHECK_FALSE(word.unpark());

  park();
  CHECK(word.post_control().is_parked());
  CHECK_FALSE(word.post_control().is_parked());
  CHECK_FALSE(word.unpark());
  CHECK(word.look());

  park();
  CHECK(word.close().is_parked());
  CHECK_FALSE(word.close().is_parked());
  CHECK_FALSE(word.unpark());
}

TEST_CASE("a look takes the announcement and only what is posted later is announced again",
          "[runtime][channel]") {
  Word word;
  CHECK_FALSE(word.look());
  word.post_control();
  word.post_control();
  CHECK(word.look());
  CHECK_FALSE(word.look());
  word.look_again();
  CHECK(word.look());
  CHECK_FALSE(word.look());
}

TEST_CASE("a closed channel stops once everything ticketed and posted was served",
          "[runtime][channel][I12]") {
  Word word;
  const std::uint64_t head = head_of(word);
  take(word);
  word.post_control();
  word.close();
  CHECK(word.peek().is_closed());
  CHECK(word.try_park(head) == Word::Idle::busy);
  CHECK(word.try_park(head_of(word)) == Word::Idle::busy);
  CHECK(word.look());
  CHECK(word.try_park(head) == Word::Idle::busy);
  CHECK_FALSE(word.is_stopped());
  CHECK(word.try_park(head_of(word)) == Word::Idle::stopped);
  CHECK(word.is_stopped());
  CHECK(word.post_control().is_stopped());
  CHECK(word.try_park(head_of(word)) == Word::Idle::stopped);
}

TEST_CASE("a consumer that may not leave yet parks though closed and is woken by what is posted",
          "[runtime][channel][I11]") {
  Word word;
  word.close();
  CHECK(word.try_park(head_of(word), false) == Word::Idle::parked);
  CHECK_FALSE(word.close().is_stopped());
  CHECK_FALSE(word.unpark());  // a second close clears the flag as the first one does
  CHECK(word.try_park(head_of(word), false) == Word::Idle::parked);
  const Word::State before = word.post_control();
  CHECK(before.is_parked());
  CHECK_FALSE(before.is_stopped());
  CHECK(word.try_park(head_of(word), true) == Word::Idle::busy);
  CHECK(word.look());
  CHECK(word.try_park(head_of(word), true) == Word::Idle::stopped);
}

TEST_CASE("of many threads that meet a parked consumer exactly one owes the token",
          "[runtime][channel][threads][I11]") {
  constexpr int rounds = 2000;
  constexpr unsigned posters = 3;
  Word word;
  std::atomic<int> round{0};
  std::atomic<unsigned> owed{0};
  std::atomic<unsigned> ready{0};
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < posters; ++p)
    threads.emplace_back([&, p] {
      for (int r = 1; r <= rounds; ++r) {
        while (round.load() != r) std::this_thread::yield();
        const Word::State before = p % 2 == 0 ? take(word) : word.post_control();
        if (before.is_parked()) owed.fetch_add(1);
        ready.fetch_add(1);
      }
    });
  unsigned wrong = 0;
  for (int r = 1; r <= rounds; ++r) {
    word.look();
    if (word.try_park(head_of(word)) != Word::Idle::parked) ++wrong;
    owed.store(0);
    ready.store(0);
    round.store(r);
    while (ready.load() != posters) std::this_thread::yield();
    if (owed.load() != 1) ++wrong;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace reprise

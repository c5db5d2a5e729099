// SPDX-License-Identifier: Apache-2.0
// The channel between real threads, with a consumer that parks.
#include <reprise/runtime/channel.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace reprise {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int slower = 20;
#else
constexpr int slower = 1;
#endif

/// A consumer as the actor is one: drains, serves, spins a little, parks.
class Consumer final : public WakeTarget {
public:
  explicit Consumer(int looks = 3) : looks_(looks) {}

  void wake() noexcept override {
    const std::lock_guard lock(mutex_);
    ++tokens_;
    most_tokens_ = std::max(most_tokens_, tokens_);
    token_.notify_one();
  }

  /// Serves until the channel stops.
  void run(Channel& channel, void* context) {
    int idle = 0;
    for (;;) {
      bool any = channel.drain_control([&](ControlNode& n) { n.run(n, context); }) != 0;
      while (channel.consume([&](const ChannelItem& item) noexcept { item.run(context); }))
        any = true;
      if (any) {
        idle = 0;
      } else if (channel.has_unpublished() || ++idle < looks_) {
        std::this_thread::yield();
      } else {
        const Channel::Idle answer = channel.try_park();
        if (answer == Channel::Idle::stopped) return;
        if (answer == Channel::Idle::parked) wait();
        idle = 0;
      }
    }
  }

  int parks() const { return parks_; }
  int most_tokens() const { return most_tokens_; }
  int tokens_left() const { return tokens_; }

private:
  void wait() {
    ++parks_;
    std::unique_lock lock(mutex_);
    token_.wait(lock, [this] { return tokens_ != 0; });
    --tokens_;
  }

  const int looks_;   // at an empty channel, before it parks
  std::mutex mutex_;  // guards the two counts of tokens
  std::condition_variable token_;
  int tokens_ = 0;
  int most_tokens_ = 0;
  int parks_ = 0;
};

/// The consumer's account of what came.
struct Account {
  std::uint64_t next = 0;  // of the numbers that all senders share
  std::uint64_t out_of_order = 0;
  std::vector<std::uint64_t> of_sender = std::vector<std::uint64_t>(8);
  std::uint64_t served = 0;
};

/// Carries a number that everybody counts up together.
struct Numbered {
  void operator()(void* context) noexcept {
    auto& account = *static_cast<Account*>(context);
    if (number != account.next) ++account.out_of_order;
    account.next = number + 1;
    served->fetch_add(1, std::memory_order_release);  // partner: the sender
  }

  std::uint64_t number;
  std::atomic<std::uint64_t>* served;
};

/// Carries its sender's own count.
struct FromSender {
  void operator()(void* context) noexcept {
    auto& account = *static_cast<Account*>(context);
    if (account.of_sender[sender] != number) ++account.out_of_order;
    account.of_sender[sender] = number + 1;
    ++account.served;
    if (open != nullptr) open->fetch_sub(1, std::memory_order_release);  // partner: the sender
  }

  std::uint64_t sender;
  std::uint64_t number;
  std::atomic<int>* open;
};

struct CountingNode : ControlNode {
  CountingNode() noexcept
      : ControlNode([](ControlNode& node, void* context) noexcept {
          auto& self = static_cast<CountingNode&>(node);
          (context != nullptr ? self.served : self.closed).fetch_add(1);
        }) {}
  std::atomic<int> served{0};
  std::atomic<int> closed{0};
};

/// `senders` threads take turns: each submits the next number and hands over, not waiting for it to
/// be served. Answers the account.
Account hand_over(std::size_t capacity, unsigned senders, std::uint64_t count) {
  Account account;
  Consumer consumer;
  Channel channel({.capacity = capacity}, consumer);
  std::atomic<std::uint64_t> turn{0};
  std::vector<std::thread> threads;
  for (unsigned s = 0; s < senders; ++s)
    threads.emplace_back([&, s] {
      std::atomic<std::uint64_t> served{0};
      std::uint64_t sent = 0;
      const auto wait_for_all = [&] {
        while (served.load(std::memory_order_acquire) != sent) std::this_thread::yield();
      };
      Late<Numbered> late;
      for (std::uint64_t number = s; number < count; number += senders, ++sent) {
        // Its last late command has to be served before it can leave another one.
        if (late.holds_command()) {
          wait_for_all();
          late.clear();
        }
        // Acquire and release hand the turn, and nothing else, from thread to thread.
        while (turn.load(std::memory_order_acquire) != number) std::this_thread::yield();
        channel.submit(Numbered{number, &served}, late, true);
        turn.store(number + 1, std::memory_order_release);
      }
      wait_for_all();
    });
  std::thread device([&] { consumer.run(channel, &account); });
  for (std::thread& thread : threads) thread.join();
  channel.close();
  device.join();
  return account;
}

}  // namespace

TEST_CASE("a million submissions of threads that hand over to each other keep their order",
          "[runtime][channel][threads][D1]") {
  const std::uint64_t count = 1'000'000 / slower;
  const Account account = hand_over(1024, 2, count);
  CHECK(account.next == count);
  CHECK(account.out_of_order == 0);
}

TEST_CASE("threads that hand over to each other on a full ring keep their order",
          "[runtime][channel][threads][D1][I10]") {
  const std::uint64_t count = 200'000 / slower;
  const Account account = hand_over(2, 4, count);
  CHECK(account.next == count);
  CHECK(account.out_of_order == 0);
}

TEST_CASE("a close between real threads loses nothing that was let in and lets nothing in later",
          "[runtime][channel][threads][I11][I12]") {
  constexpr unsigned senders = 3;
  for (int round = 0; round < 60; ++round) {
    Account account;
    Consumer consumer;
    Channel channel({.capacity = round % 2 == 0 ? std::size_t{2} : std::size_t{64}}, consumer);
    std::atomic<unsigned> ready{0};
    std::vector<std::uint64_t> let_in(senders);
    std::vector<char> reopened(senders);
    std::vector<std::thread> threads;
    for (unsigned s = 0; s < senders; ++s)
      threads.emplace_back([&, s] {
        std::deque<Late<FromSender>> late;
        std::atomic<int> open{0};
        ready.fetch_add(1);
        for (std::uint64_t number = 0;; ++number) {
          while (open.load(std::memory_order_relaxed) > 100) std::this_thread::yield();
          if (late.empty() || late.back().holds_command()) late.emplace_back();
          open.fetch_add(1);
          const Admission admission =
              channel.submit(FromSender{s, number, &open}, late.back(), number % 5 != 0);
          if (admission == Admission::closed) {
            open.fetch_sub(1);
            let_in[s] = number;
            break;
          }
        }
        Late<FromSender> again;
        reopened[s] = channel.submit(FromSender{s, 0, nullptr}, again, true) != Admission::closed;
        // What was let in is served though its sender waits for nothing but that.
        while (open.load(std::memory_order_acquire) != 0) std::this_thread::yield();
      });
    std::thread device([&] { consumer.run(channel, &account); });
    while (ready.load() != senders) std::this_thread::yield();
    while (channel.tickets_taken() < std::uint64_t(round)) std::this_thread::yield();
    channel.close();
    for (std::thread& thread : threads) thread.join();
    device.join();
    std::uint64_t all = 0;
    for (unsigned s = 0; s < senders; ++s) {
      CHECK(account.of_sender[s] == let_in[s]);
      CHECK(reopened[s] == 0);
      all += let_in[s];
    }
    CHECK(account.served == all);
    CHECK(account.out_of_order == 0);
    CHECK(channel.tickets_taken() == all);
    CHECK(consumer.most_tokens() <= 1);
    CHECK(consumer.tokens_left() == 0);
  }
}

TEST_CASE("control nodes posted around the end are served by the consumer or answered closed",
          "[runtime][channel][threads][I12]") {
  for (int round = 0; round < 100; ++round) {
    int context = 0;
    Consumer consumer;
    Channel channel({.capacity = 2}, consumer);
    std::deque<CountingNode> nodes(60);
    std::vector<std::thread> threads;
    std::atomic<unsigned> ready{0};
    for (unsigned p = 0; p < 3; ++p)
      threads.emplace_back([&, p] {
        ready.fetch_add(1);
        for (std::size_t i = p; i < nodes.size(); i += 3) channel.post(nodes[i]);
      });
    std::thread device([&] { consumer.run(channel, &context); });
    while (ready.load() < 3) std::this_thread::yield();
    channel.close();
    for (std::thread& thread : threads) thread.join();
    device.join();
    for (const CountingNode& node : nodes) CHECK(node.served + node.closed == 1);
  }
}

TEST_CASE("what threads sent before they ended is served after they have ended",
          "[runtime][channel][threads][I13]") {
  Account account;
  Consumer consumer;
  Channel channel({.capacity = 64}, consumer);
  std::deque<Late<FromSender>> late(4 * 40);
  std::deque<CountingNode> nodes(4 * 40);
  for (unsigned s = 0; s < 4; ++s)
    std::thread([&, s] {
      for (std::uint64_t i = 0; i < 40; ++i) {
        channel.submit(FromSender{s, i, nullptr}, late[s * 40 + i], true);
        channel.post(nodes[s * 40 + i]);
      }
    }).join();
  channel.close();
  std::thread device([&] { consumer.run(channel, &account); });
  device.join();
  CHECK(account.served == 160);
  CHECK(account.out_of_order == 0);
  for (const CountingNode& node : nodes) CHECK(node.served == 1);
}

TEST_CASE("a consumer that sleeps between single submissions is woken for every one",
          "[runtime][channel][threads][D3][I11]") {
  struct Answer {
    void operator()(void*) noexcept { served->store(true, std::memory_order_release); }
    std::atomic<bool>* served;
  };
  Consumer consumer(1);
  Channel channel({.capacity = 2}, consumer);
  std::thread device([&] { consumer.run(channel, nullptr); });
  const int count = 20'000 / slower;
  std::vector<std::thread> callers;
  for (int c = 0; c < 2; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < count; ++i) {
        std::atomic<bool> served{false};
        Late<Answer> late;
        channel.submit(Answer{&served}, late, i % 3 != 0);
        while (!served.load(std::memory_order_acquire)) std::this_thread::yield();
      }
    });
  for (std::thread& caller : callers) caller.join();
  channel.close();
  device.join();
  CHECK(channel.tickets_taken() == std::uint64_t(2 * count));
  CHECK(consumer.parks() > 0);
  CHECK(consumer.most_tokens() <= 1);
}

}  // namespace reprise

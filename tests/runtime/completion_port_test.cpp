// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/completion_port.hpp>

#include <support/async_operations.hpp>
#include <support/gate.hpp>
#include <support/seed.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace reprise;
using namespace reprise::test;
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

/// Starts `count` operations whose replies the test answers.
std::vector<Reply*> start_pending(AsyncFixture& fixture, asio::any_io_executor executor,
                                  Ledger& ledger, int count) {
  std::vector<Reply*> replies(count);
  for (Reply*& reply : replies) {
    async_pending<void>(fixture, reply,
                        asio::bind_executor(executor, [entry = Entry(ledger)](error_code) mutable {
                          entry.invoked();
                        }));
  }
  return replies;
}

/// Has the device do all it was asked so far.
void settle(AsyncFixture& fixture) {
  std::promise<void> done;
  fixture.on_device([&] { done.set_value(); });
  done.get_future().get();
}

}  // namespace

TEST_CASE("a stopped context keeps its operations until it runs again", "[runtime][threads][I1]") {
  AsyncFixture fixture;
  asio::io_context context;
  Ledger ledger;
  const auto replies = start_pending(fixture, context.get_executor(), ledger, 3);
  context.stop();
  context.run();
  fixture.answer(replies[0]);
  fixture.answer(replies[1]);
  settle(fixture);
  context.run();
  CHECK(ledger.invoked == 0);
  context.restart();
  fixture.answer(replies[2]);
  context.run();
  CHECK(ledger.invoked == 3);
  CHECK(ledger.dropped == 0);
}

TEST_CASE("a context destroyed with operations pending destroys their handlers uninvoked",
          "[runtime][threads][I1][I8]") {
  AsyncFixture fixture;
  Ledger ledger;
  std::vector<Reply*> pending;
  {
    asio::io_context context;
    const auto strand = asio::make_strand(context);
    pending = start_pending(fixture, context.get_executor(), ledger, 5);
    const auto finished = start_pending(fixture, context.get_executor(), ledger, 5);
    const auto in_strand = start_pending(fixture, strand, ledger, 5);
    for (Reply* reply : finished) fixture.answer(reply);
    for (Reply* reply : in_strand) fixture.answer(reply);
    settle(fixture);
    // Two of them get as far as their executor; of the rest some are posted, some listed.
    context.run_one();
    context.run_one();
    CHECK(ledger.dropped == 0);
  }
  const int invoked = ledger.invoked;
  CHECK(invoked <= 2);
  CHECK(ledger.dropped == 15 - invoked);
  // The device's ends live on until it has answered.
  for (Reply* reply : pending) fixture.answer(reply);
  settle(fixture);
  CHECK(ledger.invoked + ledger.dropped == 15);
  CHECK(ledger.on_device == 0);
}

TEST_CASE("a thread pool destroyed with operations pending destroys their handlers uninvoked",
          "[runtime][threads][I1][I8]") {
  AsyncFixture fixture;
  Ledger ledger;
  std::vector<Reply*> replies;
  {
    asio::thread_pool pool(2);
    replies = start_pending(fixture, pool.get_executor(), ledger, 10);
    fixture.answer(replies[0]);
    settle(fixture);
    pool.stop();
    for (int i = 1; i < 5; ++i) fixture.answer(replies[i]);
    settle(fixture);
  }
  CHECK(ledger.invoked <= 1);
  CHECK(ledger.invoked + ledger.dropped == 10);
  for (int i = 5; i < 10; ++i) fixture.answer(replies[i]);
  settle(fixture);
  CHECK(ledger.invoked + ledger.dropped == 10);
  CHECK(ledger.on_device == 0);
}

TEST_CASE("an operation started while its context goes down is destroyed uninvoked",
          "[runtime][threads][I1][I8]") {
  AsyncFixture fixture;
  Ledger ledger;
  int begun = 0;
  {
    asio::io_context context;
    const auto executor = context.get_executor();
    struct AtEnd {
      std::function<void()> function;
      explicit AtEnd(std::function<void()> f) : function(std::move(f)) {}
      AtEnd(AtEnd&& other) noexcept : function(std::exchange(other.function, nullptr)) {}
      ~AtEnd() {
        if (function) function();
      }
    };
    const auto start_another = [&, executor] {
      detail::initiate<int>(
          fixture.context(),
          asio::bind_executor(executor, [entry = Entry(ledger)](error_code, int) {}), nullptr,
          [&](ValueReply<int>* reply) noexcept {
            ++begun;
            fixture.answer_with(reply, 1);
          });
    };
    Reply* reply = nullptr;
    async_pending<void>(fixture, reply,
                        asio::bind_executor(executor, [&, at_end = AtEnd(start_another),
                                                       entry = Entry(ledger)](error_code) {}));
    fixture.on_device([reply] { reply->complete(nullptr); });
    settle(fixture);
    // This one dies after the port has shut down, together with what else was posted.
    asio::post(executor, [at_end = AtEnd(start_another), entry = Entry(ledger)] {});
  }
  settle(fixture);
  CHECK(ledger.dropped == 4);
  CHECK(begun == 0);
}

TEST_CASE("a context may go down at any moment of the device's answers",
          "[runtime][threads][I1][I8]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  AsyncFixture fixture;
  Ledger ledger;
  constexpr int rounds = 150;
  constexpr int each = 8;
  for (int round = 0; round < rounds; ++round) {
    auto context = std::make_unique<asio::io_context>();
    const auto replies = start_pending(fixture, context->get_executor(), ledger, each);
    for (Reply* reply : replies) fixture.answer(reply);
    for (std::uint64_t n = random() % 8; n > 0; --n) context->poll_one();
    if (random() % 2) std::this_thread::yield();
    context.reset();
    settle(fixture);
    REQUIRE(ledger.invoked + ledger.dropped == (round + 1) * each);
  }
  CHECK(ledger.on_device == 0);
}

TEST_CASE("a handler that throws leaves run and the others are still run",
          "[runtime][threads][I1][N12]") {
  AsyncFixture fixture;
  asio::io_context context;
  int calls = 0;
  for (int i = 0; i < 6; ++i) {
    async_value(fixture, int(i), asio::bind_executor(context, [&](error_code, int value) {
                  ++calls;
                  if (value % 2 == 0) throw std::runtime_error("mine");
                }));
  }
  settle(fixture);
  int thrown = 0;
  for (;;) {
    try {
      context.run();
      break;
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  CHECK(calls == 6);
  CHECK(thrown == 3);
  fixture.close();
  CHECK(fixture.courier().exceptions() == 0);
}

TEST_CASE("handlers of one context run at once on its threads", "[runtime][threads]") {
  // Both wait for each other, so one thread alone would never get past the first.
  AsyncFixture fixture;
  asio::thread_pool pool(2);
  Gate gate;
  Reply* replies[2] = {};
  for (Reply*& reply : replies) {
    async_pending<void>(fixture, reply,
                        asio::bind_executor(pool, [&](error_code) { gate.pass(2); }));
  }
  fixture.on_device([&] {
    for (Reply* reply : replies) reply->complete(nullptr);
  });
  pool.join();
  CHECK(gate.arrivals() == 2);
}

TEST_CASE("many devices and contexts and initiators lose no handler",
          "[runtime][threads][I1][I13]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  Ledger ledger;
  std::atomic<int> made{0};
  {
    AsyncFixture first;
    AsyncFixture second;
    asio::io_context context;
    asio::thread_pool pool(2);
    auto work = asio::make_work_guard(context);
    std::thread runner([&] { context.run(); });
    std::vector<std::thread> initiators;
    for (int t = 0; t < 3; ++t) {
      initiators.emplace_back([&, t] {
        std::mt19937_64 random(seed + t);
        const auto strand = asio::make_strand(pool);
        for (int i = 0; i < 300; ++i) {
          AsyncFixture& fixture = random() % 2 ? first : second;
          ++made;
          auto handler = [entry = Entry(ledger)](error_code, int) mutable { entry.invoked(); };
          switch (random() % 4) {
            case 0:
              async_value(fixture, i, asio::bind_executor(context, std::move(handler)));
              break;
            case 1: async_value(fixture, i, asio::bind_executor(pool, std::move(handler))); break;
            case 2: async_value(fixture, i, asio::bind_executor(strand, std::move(handler))); break;
            case 3: async_value(fixture, i, std::move(handler)); break;
          }
        }
      });
    }
    for (auto& initiator : initiators) initiator.join();
    work.reset();
    runner.join();
    pool.join();
    first.close();
    second.close();
  }
  CHECK(ledger.invoked == made);
  CHECK(ledger.dropped == 0);
  CHECK(ledger.on_device == 0);
}

TEST_CASE("a context that goes down waits until the device has let go of it",
          "[runtime][threads]") {
  auto* const queue = new detail::PortQueue(nullptr);
  REQUIRE(queue->enter());
  std::atomic<bool> down{false};
  std::thread context([&] {
    queue->shut_down();
    down = true;
  });
  // Closed to others it has begun, and has seen that one is inside.
  while (queue->enter()) {
    queue->leave();
    std::this_thread::yield();
  }
  CHECK_FALSE(down);
  queue->leave();
  context.join();
  CHECK(down);
  queue->drop_reference();
}

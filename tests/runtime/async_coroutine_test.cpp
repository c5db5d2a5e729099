// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async_operation.hpp>

#include <support/async_operations.hpp>
#include <support/host_memory.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>

#ifdef BOOST_ASIO_HAS_CO_AWAIT

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/multiple_exceptions.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <variant>

using namespace reprise;
using namespace reprise::test;
namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;
using boost::system::error_code;

namespace {

FailurePtr lost() {
  return make_failure(Errc::device_lost, "read", "", "gone");
}

void rethrow(std::exception_ptr thrown) {
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace

TEST_CASE("a coroutine awaits values and failures on its own executor",
          "[runtime][threads][I1][I2]") {
  AsyncFixture fixture;
  asio::io_context context;
  bool done = false;
  asio::co_spawn(
      context,
      [&]() -> awaitable<void> {
        CHECK(co_await async_value<std::string>(fixture, "x", use_awaitable) == "x");
        CHECK(*co_await async_value(fixture, std::make_unique<int>(3), use_awaitable) == 3);
        CHECK(context.get_executor().running_in_this_thread());
        FailurePtr failure;
        try {
          co_await async_end(fixture, lost(), use_awaitable, &failure);
          FAIL("it did not throw");
        } catch (const boost::system::system_error& error) {
          CHECK(error.code() == Errc::device_lost);
          REQUIRE(failure);
          CHECK(failure->message == "gone");
        }
        const auto [code, value] =
            co_await async_end<int>(fixture, lost(), asio::as_tuple(use_awaitable));
        CHECK(code == Errc::device_lost);
        CHECK(value == 0);
        CHECK(co_await async_value(fixture, 8, asio::deferred) == 8);
        co_await async_early(fixture, nullptr, use_awaitable);
        done = true;
      },
      rethrow);
  context.run();
  CHECK(done);
}

TEST_CASE("a coroutine in a strand of a pool stays in it", "[runtime][threads]") {
  AsyncFixture fixture;
  asio::thread_pool pool(2);
  const auto strand = asio::make_strand(pool);
  int inside = 0;
  asio::co_spawn(
      strand,
      [&]() -> awaitable<void> {
        for (int i = 0; i < 50; ++i) {
          co_await async_value(fixture, int(i), use_awaitable);
          inside += strand.running_in_this_thread();
        }
      },
      asio::detached);
  pool.join();
  CHECK(inside == 50);
}

TEST_CASE("and-ed operations all answer and or-ed ones end with the first",
          "[runtime][threads][N11]") {
  using namespace asio::experimental::awaitable_operators;
  AsyncFixture fixture;
  asio::io_context context;
  Reply* left_behind = nullptr;
  Reply* outwaited = nullptr;
  Reply* cancelled = nullptr;
  bool done = false;
  asio::co_spawn(
      context,
      [&]() -> awaitable<void> {
        const auto [a, b] = co_await (async_value(fixture, 1, use_awaitable) &&
                                      async_value<std::string>(fixture, "b", use_awaitable));
        CHECK(a == 1);
        CHECK(b == "b");

        const auto first = co_await (async_pending<void>(fixture, left_behind, use_awaitable) ||
                                     async_value(fixture, 7, use_awaitable));
        CHECK(first.index() == 1);
        CHECK(std::get<1>(first) == 7);

        asio::steady_timer timer(context, std::chrono::milliseconds(1));
        const auto late = co_await (async_pending<void>(fixture, outwaited, use_awaitable) ||
                                    timer.async_wait(use_awaitable));
        CHECK(late.index() == 1);

        std::exception_ptr first_thrown;
        try {
          co_await (async_end(fixture, lost(), use_awaitable) &&
                    async_pending<void>(fixture, cancelled, use_awaitable));
        } catch (const asio::multiple_exceptions& both) {
          first_thrown = both.first_exception();
        }
        REQUIRE(first_thrown);
        CHECK_THROWS_AS(std::rethrow_exception(first_thrown), boost::system::system_error);
        done = true;
      },
      rethrow);
  context.run();
  CHECK(done);
  for (Reply* reply : {left_behind, outwaited, cancelled}) fixture.answer(reply);
}

TEST_CASE("a context destroyed under a waiting coroutine destroys its frame",
          "[runtime][threads][I1][I8]") {
  AsyncFixture fixture;
  Reply* reply = nullptr;
  bool went_on = false;
  auto held = std::make_shared<int>(1);
  {
    asio::io_context context;
    asio::co_spawn(
        context,
        [&, copy = held]() -> awaitable<void> {
          co_await async_pending<void>(fixture, reply, use_awaitable);
          went_on = true;
        },
        asio::detached);
    context.poll();
    CHECK(held.use_count() > 1);
  }
  CHECK(held.use_count() == 1);
  CHECK_FALSE(went_on);
  fixture.answer(reply);
}

TEST_CASE("an awaited operation allocates nothing in steady state on either thread",
          "[runtime][threads]") {
  const bool in_strand = GENERATE(false, true);
  constexpr int warm_up = 1'000;
  // The device answers through a job of its own, so that only the operations are measured.
  struct Answer : detail::Job {
    ValueReply<int>* reply = nullptr;
    int answered = 0;
    std::uint64_t allocations = 0;
  } answer;
  answer.run = [](detail::Job& job) {
    auto& self = static_cast<Answer&>(job);
    const std::uint64_t before = host_allocations();
    self.reply->start();
    self.reply->value = 1;
    self.reply->complete(nullptr);
    if (++self.answered > warm_up) self.allocations += host_allocations() - before;
  };
  answer.destroy = [](detail::Job&) noexcept {};
  detail::JobLoop device;
  REQUIRE(device.start(real_host(), {"t-device", ThreadRole::device, 0}));
  {
    AsyncFixture fixture;
    asio::io_context context;
    const auto async_one = [&](auto&& token) {
      return detail::initiate<int>(fixture.context(), std::forward<decltype(token)>(token), nullptr,
                                   [&](ValueReply<int>* reply) noexcept {
                                     answer.reply = reply;
                                     device.post(answer);
                                   });
    };
    std::uint64_t here = 0;
    int sum = 0;
    const auto measure = [&]() -> awaitable<void> {
      for (int i = 0; i < 11'000; ++i) {
        if (i == warm_up) here = host_allocations();
        sum += co_await async_one(use_awaitable);
      }
      here = host_allocations() - here;
    };
    if (in_strand) {
      asio::co_spawn(asio::make_strand(context), measure, rethrow);
    } else {
      asio::co_spawn(context, measure, rethrow);
    }
    context.run();
    CHECK(sum == 11'000);
    // A thread that was preempted between two steps may leave a block more in circulation.
    CHECK(here < 10);
  }
  CHECK(device.close(real_host().now_ns() + 60'000'000'000));
  CHECK(answer.allocations < 10);
}

#endif

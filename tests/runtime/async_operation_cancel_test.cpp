// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async_operation.hpp>

#include <support/async_operations.hpp>
#include <support/seed.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using namespace reprise;
using namespace reprise::test;
namespace asio = boost::asio;
using asio::cancellation_type;
using boost::system::error_code;

namespace {

/// One pending operation on a context, with its signal and what its handler saw.
struct Cancellable {
  explicit Cancellable(AsyncFixture& fixture, asio::io_context& context) : device(fixture) {
    async_pending<int>(fixture, reply,
                       asio::bind_cancellation_slot(
                           signal.slot(), asio::bind_executor(context,
                                                              [this](error_code c, int v) {
                                                                code = c;
                                                                value = v;
                                                                ++calls;
                                                              })),
                       &failure);
  }

  /// Has the device take the command up, and waits for it. True: it goes ahead.
  bool start() {
    std::promise<bool> started;
    device.on_device([&] { started.set_value(reply->start()); });
    return started.get_future().get();
  }
  /// Has the device answer, and waits until it has.
  void complete(int result, FailurePtr record = nullptr) {
    std::promise<void> done;
    device.on_device([&] {
      reply->value = result;
      reply->complete(record);
      done.set_value();
    });
    done.get_future().get();
  }

  AsyncFixture& device;
  asio::cancellation_signal signal;
  ValueReply<int>* reply = nullptr;
  error_code code;
  int value = -1;
  int calls = 0;
  FailurePtr failure;
};

FailurePtr aborted() {
  return make_failure(Errc::operation_aborted, "read", "", "");
}

}  // namespace

TEST_CASE("a queued operation is cancelled by any kind and never begins",
          "[runtime][threads][I1][N11]") {
  const cancellation_type kind = GENERATE(cancellation_type::total, cancellation_type::partial,
                                          cancellation_type::terminal, cancellation_type::all);
  AsyncFixture fixture;
  asio::io_context context;
  Cancellable one(fixture, context);
  one.signal.emit(kind);
  CHECK(one.calls == 0);  // not inside emit()
  // The handler need not wait for the device to come across the command.
  context.run();
  CHECK(one.calls == 1);
  CHECK(one.code == asio::error::operation_aborted);
  CHECK(one.code == Errc::operation_aborted);
  CHECK(one.value == 0);
  REQUIRE(one.failure);
  CHECK(one.failure->code == Errc::operation_aborted);
  CHECK_FALSE(one.start());
  one.complete(5, aborted());
  context.restart();
  context.run();
  CHECK(one.calls == 1);
}

TEST_CASE("an operation under way is not cancelled by total", "[runtime][threads][I1][N11]") {
  AsyncFixture fixture;
  asio::io_context context;
  Cancellable one(fixture, context);
  CHECK(one.start());
  one.signal.emit(cancellation_type::total);
  context.poll();
  CHECK(one.calls == 0);
  one.complete(6);
  context.run();
  CHECK(one.calls == 1);
  CHECK_FALSE(one.code);
  CHECK(one.value == 6);
}

TEST_CASE("the wait for an operation under way is ended by partial and terminal",
          "[runtime][threads][I1][N11]") {
  const cancellation_type kind = GENERATE(cancellation_type::partial, cancellation_type::terminal);
  AsyncFixture fixture;
  asio::io_context context;
  Cancellable one(fixture, context);
  CHECK(one.start());
  one.signal.emit(kind);
  one.signal.emit(kind);
  context.run();
  CHECK(one.calls == 1);
  CHECK(one.code == asio::error::operation_aborted);
  // The work runs on and its answer finds nobody.
  one.complete(7);
  context.restart();
  context.run();
  CHECK(one.calls == 1);
}

TEST_CASE("a cancel that comes after the answer changes nothing", "[runtime][threads][I1]") {
  AsyncFixture fixture;
  asio::io_context context;
  Cancellable one(fixture, context);
  CHECK(one.start());
  one.complete(8);
  one.signal.emit(cancellation_type::all);
  context.run();
  CHECK(one.calls == 1);
  CHECK_FALSE(one.code);
  CHECK(one.value == 8);
  // The slot was left: a late signal reaches nothing.
  one.signal.emit(cancellation_type::all);
  context.restart();
  context.run();
  CHECK(one.calls == 1);

  // The same for an operation that ended before it began.
  Cancellable early(fixture, context);
  early.complete(0, make_failure(Errc::closed, "read", "", ""));
  early.signal.emit(cancellation_type::total);
  context.restart();
  context.run();
  CHECK(early.calls == 1);
  CHECK(early.code == Errc::closed);
}

TEST_CASE("a handler without an executor can be cancelled too", "[runtime][threads][I1]") {
  AsyncFixture fixture;
  asio::cancellation_signal signal;
  Reply* reply = nullptr;
  std::promise<error_code> done;
  async_pending<void>(
      fixture, reply,
      asio::bind_cancellation_slot(signal.slot(), [&](error_code code) { done.set_value(code); }));
  signal.emit(cancellation_type::total);
  CHECK(done.get_future().get() == Errc::operation_aborted);
  fixture.answer(reply);
}

TEST_CASE("the result of an abandoned operation dies on the courier",
          "[runtime][threads][I8][I2]") {
  struct Result {
    std::promise<ThreadRole>* died = nullptr;
    Result() = default;
    Result(Result&& other) noexcept : died(std::exchange(other.died, nullptr)) {}
    ~Result() {
      if (died) died->set_value(this_thread_role());
    }
  };
  AsyncFixture fixture;
  asio::io_context context;
  asio::cancellation_signal signal;
  ValueReply<Result>* reply = nullptr;
  async_pending<Result>(
      fixture, reply,
      asio::bind_cancellation_slot(signal.slot(),
                                   asio::bind_executor(context, [](error_code, Result) {})));
  std::promise<bool> started;
  fixture.on_device([&] { started.set_value(reply->start()); });
  CHECK(started.get_future().get());
  signal.emit(cancellation_type::terminal);
  context.run();
  std::promise<ThreadRole> promise;
  auto died = promise.get_future();
  fixture.on_device([&] {
    reply->value.died = &promise;
    reply->complete(nullptr);
  });
  CHECK(died.get() == ThreadRole::courier);
}

TEST_CASE("a group that wants the first answer cancels the others", "[runtime][threads][N11]") {
  AsyncFixture fixture;
  asio::io_context context;
  Reply* reply = nullptr;
  bool done = false;
  asio::experimental::make_parallel_group(async_pending<void>(fixture, reply, asio::deferred),
                                          async_value(fixture, 3, asio::deferred))
      .async_wait(asio::experimental::wait_for_one(),
                  asio::bind_executor(context, [&](std::array<std::size_t, 2> order, error_code a,
                                                   error_code b, int value) {
                    CHECK(order[0] == 1);
                    CHECK(a == asio::error::operation_aborted);
                    CHECK_FALSE(b);
                    CHECK(value == 3);
                    done = true;
                  }));
  context.run();
  CHECK(done);
  fixture.answer(reply);
}

TEST_CASE("a timer composed with an operation ends the wait for it", "[runtime][threads][N11]") {
  AsyncFixture fixture;
  asio::io_context context;
  asio::steady_timer timer(context, std::chrono::milliseconds(1));
  Reply* reply = nullptr;
  error_code operation;
  asio::experimental::make_parallel_group(async_pending<void>(fixture, reply, asio::deferred),
                                          timer.async_wait(asio::deferred))
      .async_wait(
          asio::experimental::wait_for_one(),
          asio::bind_executor(context, [&](std::array<std::size_t, 2>, error_code a, error_code b) {
            operation = a;
            CHECK_FALSE(b);
          }));
  context.run();
  CHECK(operation == asio::error::operation_aborted);
  fixture.answer(reply);
}

TEST_CASE("cancel and answer race and each handler has one outcome",
          "[runtime][threads][I1][I8][N11]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int count = 600;
  Ledger ledger;
  std::atomic<int> values{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> wrong{0};
  {
    AsyncFixture fixture;
    asio::thread_pool pool(2);
    struct One {
      asio::strand<asio::thread_pool::executor_type> strand;
      asio::cancellation_signal signal;
      ValueReply<int>* reply = nullptr;
      explicit One(asio::thread_pool& owner) : strand(asio::make_strand(owner)) {}
    };
    std::vector<std::unique_ptr<One>> all;
    for (int i = 0; i < count; ++i) {
      all.push_back(std::make_unique<One>(pool));
      One& one = *all.back();
      async_pending<int>(
          fixture, one.reply,
          asio::bind_cancellation_slot(
              one.signal.slot(),
              asio::bind_executor(
                  one.strand, [&, i, entry = Entry(ledger)](error_code code, int value) mutable {
                    entry.invoked();
                    if (!code) {
                      ++values;
                      wrong += value != i;
                    } else {
                      ++cancelled;
                      wrong += code != asio::error::operation_aborted;
                    }
                  })));
      const auto kind = random() % 2 ? cancellation_type::total : cancellation_type::terminal;
      const bool device_first = random() % 2;
      if (device_first) fixture.answer_with(one.reply, int(i));
      asio::post(one.strand, [&one, kind] { one.signal.emit(kind); });
      if (!device_first) fixture.answer_with(one.reply, int(i));
    }
    pool.join();
    fixture.close();
  }
  CHECK(wrong == 0);
  CHECK(values + cancelled == count);
  CHECK(ledger.invoked == count);
  CHECK(ledger.dropped == 0);
  CHECK(ledger.on_device == 0);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/future.hpp>

#include <reprise/device/seeded_host.hpp>
#include <support/async_fixture.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <future>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using detail::make_future;
using test::AsyncFixture;

namespace {

FailurePtr lost() {
  return make_failure(Errc::device_lost, "read", "", "gone");
}

/// A future of `value` that the device answers by itself.
template <class T>
Future<T> answered(AsyncFixture& fixture, T value) {
  return make_future<T>(fixture.context(), [&](ValueReply<T>* reply) noexcept {
    fixture.answer_with(reply, std::move(value));
  });
}

/// A future whose reply the test answers.
template <class T>
Future<T> pending(AsyncFixture& fixture, ValueReply<T>*& out) {
  return make_future<T>(fixture.context(), [&](ValueReply<T>* reply) noexcept { out = reply; });
}

/// Moves only, and notes on which kind of thread it died with something in it.
class Tracked {
public:
  Tracked() = default;
  Tracked(int value, std::atomic<int>& deaths, std::atomic<ThreadRole>& where)
      : value_(value), deaths_(&deaths), where_(&where) {}
  Tracked(Tracked&& other) noexcept
      : value_(other.value_), deaths_(std::exchange(other.deaths_, nullptr)), where_(other.where_) {
  }
  Tracked& operator=(Tracked&& other) noexcept {
    std::swap(value_, other.value_);
    std::swap(deaths_, other.deaths_);
    std::swap(where_, other.where_);
    return *this;
  }
  ~Tracked() {
    if (!deaths_) return;
    *where_ = this_thread_role();
    ++*deaths_;
  }
  int value() const { return value_; }

private:
  int value_ = 0;
  std::atomic<int>* deaths_ = nullptr;
  std::atomic<ThreadRole>* where_ = nullptr;
};

}  // namespace

TEST_CASE("a future gives its value once", "[runtime][threads][I1]") {
  AsyncFixture fixture;
  Future<std::string> future = answered<std::string>(fixture, "ready");
  REQUIRE(future.valid());
  future.wait();
  CHECK(future.ready());
  CHECK(future.get() == "ready");
  CHECK_FALSE(future.valid());
  CHECK_FALSE(future.ready());
  try {
    (void)future.get();
    FAIL("a second get() answered");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::empty_handle);
  }
  CHECK_THROWS_AS(Future<void>().wait(), Failure);
}

TEST_CASE("a future of a failed operation throws its record", "[runtime][threads]") {
  AsyncFixture fixture;
  const FailurePtr record = lost();
  Future<void> future = make_future<void>(
      fixture.context(), [&](Reply* reply) noexcept { fixture.answer(reply, record); });
  try {
    future.get();
    FAIL("it did not throw");
  } catch (const Failure& failure) {
    CHECK(failure.shared_record() == record);
  }
}

TEST_CASE("an operation may be answered before the future exists", "[runtime]") {
  AsyncFixture fixture;
  Future<int> future = make_future<int>(fixture.context(), [](ValueReply<int>* reply) noexcept {
    reply->value = 3;
    reply->complete(nullptr);
  });
  CHECK(future.ready());
  CHECK(future.get() == 3);
}

TEST_CASE("a future is not ready before its answer and waiting may be given up", "[runtime]") {
  SeededHost host(11);
  AsyncFixture fixture(host);
  ValueReply<int>* reply = nullptr;
  Future<int> future = pending(fixture, reply);
  CHECK_FALSE(future.ready());
  const std::uint64_t before = host.now_ns();
  CHECK_FALSE(future.wait_for(std::chrono::milliseconds(5)));
  CHECK(host.now_ns() >= before + 5'000'000);
  CHECK_FALSE(future.wait_for(std::chrono::seconds(-1)));
  fixture.answer_with(reply, 8);
  CHECK(future.wait_for(std::chrono::hours(1)));
  CHECK(future.wait_for(std::chrono::seconds(0)));
  CHECK(future.get() == 8);
}

TEST_CASE("a thread that waits for a future wakes", "[runtime][threads][I1]") {
  AsyncFixture fixture;
  for (int i = 0; i < 200; ++i) {
    ValueReply<int>* reply = nullptr;
    Future<int> future = pending(fixture, reply);
    std::thread answerer([&] { fixture.answer_with(reply, int(i)); });
    CHECK(future.wait_for(std::chrono::hours(1)));
    CHECK(future.get() == i);
    answerer.join();
  }
}

TEST_CASE("a future dropped early lets the operation end and dies off the device thread",
          "[runtime][threads][I8][I2]") {
  std::atomic<int> deaths{0};
  std::atomic<ThreadRole> where{ThreadRole::user};
  std::weak_ptr<void> watch;
  {
    AsyncFixture fixture;
    watch = fixture.watch();
    ValueReply<Tracked>* reply = nullptr;
    { Future<Tracked> future = pending(fixture, reply); }
    CHECK(deaths == 0);
    fixture.answer_with(reply, Tracked(1, deaths, where));
  }
  CHECK(deaths == 1);
  CHECK(where == ThreadRole::courier);
  CHECK(watch.expired());
}

TEST_CASE("a continuation runs on the courier and makes the next future",
          "[runtime][threads][I1][I2]") {
  AsyncFixture fixture;
  ThreadRole role = ThreadRole::user;
  Future<int> first = answered(fixture, 20);
  Future<std::string> last = first
                                 .then([&](int value) {
                                   role = this_thread_role();
                                   return value + 1;
                                 })
                                 .then([](Future<int> future) { return future.get() * 2; })
                                 .then([](int value) { return std::to_string(value); });
  CHECK_FALSE(first.valid());
  CHECK(last.get() == "42");
  CHECK(role == ThreadRole::courier);
}

TEST_CASE("a continuation never runs inside then even if the result is there", "[runtime][I2]") {
  SeededHost host(5);
  AsyncFixture fixture(host);
  Future<void> done =
      make_future<void>(fixture.context(), [](Reply* reply) noexcept { reply->complete(nullptr); });
  REQUIRE(done.ready());
  bool ran = false;
  Future<void> next = done.then([&] { ran = true; });
  CHECK_FALSE(ran);
  CHECK_FALSE(next.ready());
  next.get();
  CHECK(ran);
}

TEST_CASE("a failure passes by continuations that take the value", "[runtime][threads]") {
  AsyncFixture fixture;
  const FailurePtr record = lost();
  bool called = false;
  Future<int> future =
      make_future<void>(fixture.context(),
                        [&](Reply* reply) noexcept { fixture.answer(reply, record); })
          .then([&] {
            called = true;
            return 1;
          })
          .then([&](int value) { return value; });
  try {
    (void)future.get();
    FAIL("it did not throw");
  } catch (const Failure& failure) {
    CHECK(failure.shared_record() == record);
  }
  CHECK_FALSE(called);

  Future<Errc> seen = make_future<void>(fixture.context(), [&](Reply* reply) noexcept {
                        fixture.answer(reply, record);
                      }).then([](Future<void> failed) {
    try {
      failed.get();
    } catch (const Failure& failure) {
      return failure.errc();
    }
    return Errc::bad_format;
  });
  CHECK(seen.get() == Errc::device_lost);
}

TEST_CASE("what a continuation throws comes out of the next future", "[runtime][threads][N12]") {
  AsyncFixture fixture;
  Future<int> future =
      answered(fixture, 1).then([](int) -> int { throw std::out_of_range("mine"); });
  CHECK_THROWS_AS(future.get(), std::out_of_range);

  Future<int> refused = answered(fixture, 1).then([](int) -> int {
    throw Failure(Errc::size_mismatch, "mine", "by a continuation");
  });
  try {
    (void)refused.get();
    FAIL("it did not throw");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::size_mismatch);
  }
}

TEST_CASE("results and continuations that only move are moved and destroyed exactly once",
          "[runtime][threads][I8]") {
  std::atomic<int> deaths{0};
  std::atomic<ThreadRole> where{ThreadRole::user};
  {
    AsyncFixture fixture;
    Future<int> future = answered(fixture, Tracked(5, deaths, where))
                             .then([held = Tracked(6, deaths, where)](Tracked value) {
                               return value.value() + held.value();
                             });
    CHECK(future.get() == 11);
    CHECK(deaths == 2);
    CHECK(where == ThreadRole::courier);
  }
  CHECK(deaths == 2);
}

TEST_CASE("a future may be waited for in a handler but not where its answer is made",
          "[runtime][threads][N12]") {
  AsyncFixture fixture;
  ValueReply<int>* replies[4] = {};
  Future<int> futures[4];
  for (int i = 0; i < 4; ++i) futures[i] = pending(fixture, replies[i]);
  Future<int> continued = std::move(futures[3]).then([](int value) { return value; });

  const auto refused = [](Future<int>& future) {
    try {
      (void)future.get();
    } catch (const Failure& failure) {
      return failure.errc() == Errc::would_deadlock && future.valid();
    }
    return false;
  };
  std::promise<bool> device;
  fixture.on_device([&] { device.set_value(refused(futures[0])); });
  CHECK(device.get_future().get());

  std::promise<bool> courier;
  fixture.on_courier([&] { courier.set_value(refused(continued)); });
  CHECK(courier.get_future().get());

  // On courier and completer the operation's own future works, ready or not.
  std::promise<int> handler;
  fixture.on_courier([&] { handler.set_value(futures[1].get()); });
  fixture.answer_with(replies[1], 7);
  CHECK(handler.get_future().get() == 7);
  std::promise<int> completer;
  fixture.on_completer([&] { completer.set_value(futures[2].get()); });
  fixture.answer_with(replies[2], 8);
  CHECK(completer.get_future().get() == 8);

  // Once it is ready, nobody waits, so any thread may take it.
  fixture.answer_with(replies[0], 9);
  futures[0].wait();
  std::promise<int> ready;
  fixture.on_device([&] { ready.set_value(futures[0].get()); });
  CHECK(ready.get_future().get() == 9);
  fixture.answer_with(replies[3], 10);
  CHECK(continued.get() == 10);
}

TEST_CASE("futures outlive the runtime and their continuations then answer closed",
          "[runtime][threads][I8][I33]") {
  std::atomic<int> deaths{0};
  std::atomic<ThreadRole> where{ThreadRole::user};
  std::weak_ptr<void> watch;
  Future<int> value;
  Future<int> next;
  {
    AsyncFixture fixture;
    watch = fixture.watch();
    value = answered(fixture, 4);
    next = answered(fixture, 5);
  }
  CHECK_FALSE(watch.expired());
  CHECK(value.get() == 4);
  Future<int> continued =
      next.then([held = Tracked(1, deaths, where)](int number) { return number + held.value(); });
  REQUIRE(continued.ready());
  CHECK(deaths == 1);
  try {
    (void)continued.get();
    FAIL("it did not throw");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::closed);
  }
  CHECK(watch.expired());
}

TEST_CASE("futures answered and dropped and continued from many threads lose nothing",
          "[runtime][threads][I1][I8]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::atomic<int> deaths{0};
  std::atomic<ThreadRole> where{ThreadRole::user};
  std::atomic<int> made{0};
  std::atomic<int> wrong{0};
  std::weak_ptr<void> watch;
  {
    AsyncFixture fixture;
    watch = fixture.watch();
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(seed + t);
        for (int i = 0; i < 400; ++i) {
          ++made;
          Future<Tracked> future = answered(fixture, Tracked(i, deaths, where));
          switch (random() % 4) {
            case 0: break;
            case 1: wrong += future.get().value() != i; break;
            case 2: {
              auto next = future.then([](Tracked value) { return value.value(); });
              wrong += next.get() != i;
              break;
            }
            case 3: {
              ++made;
              (void)future.then([held = Tracked(i, deaths, where)](Tracked) {});
              break;
            }
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  CHECK(wrong == 0);
  CHECK(deaths == made);
  CHECK(watch.expired());
}

TEST_CASE("futures on any seeded schedule are answered once", "[runtime][I1]") {
  const std::uint64_t first = test::seed();
  for (std::uint64_t seed = first; seed < first + 200; ++seed) {
    CAPTURE(seed);
    SeededHost host(seed);
    AsyncFixture fixture(host);
    int calls = 0;
    Future<int> a = answered(fixture, 1).then([&](int value) {
      ++calls;
      return value + 1;
    });
    ValueReply<int>* reply = nullptr;
    Future<int> b = pending(fixture, reply).then([&](Future<int> value) {
      ++calls;
      return value.get() + 1;
    });
    fixture.answer_with(reply, 10);
    REQUIRE(a.get() + b.get() == 13);
    REQUIRE(calls == 2);
  }
}

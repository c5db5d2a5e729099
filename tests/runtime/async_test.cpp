// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async.hpp>

#include <support/async_operations.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/system/system_error.hpp>

#include <catch2/catch.hpp>

#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using namespace reprise::test;
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

FailurePtr lost() {
  return make_failure(Errc::device_lost, "read", "", "gone");
}

struct Usage {
  std::atomic<int> allocated{0};
  std::atomic<int> freed{0};
  int live_in_handler = -1;
};

template <class T>
class CountingAllocator {
public:
  using value_type = T;

  explicit CountingAllocator(Usage* usage) noexcept : usage_(usage) {}
  template <class U>
  CountingAllocator(const CountingAllocator<U>& other) noexcept : usage_(other.usage()) {}
  T* allocate(std::size_t n) {
    ++usage_->allocated;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    ++usage_->freed;
    std::allocator<T>().deallocate(memory, n);
  }
  Usage* usage() const noexcept { return usage_; }
  template <class U>
  bool operator==(const CountingAllocator<U>& other) const noexcept {
    return usage_ == other.usage();
  }

private:
  Usage* usage_;
};

}  // namespace

TEST_CASE("a completion's code can be compared with Errc and with Asio's own", "[runtime]") {
  CHECK_FALSE(to_asio_code(nullptr));
  const error_code closed = to_asio_code(make_failure(Errc::closed, "", "", ""));
  CHECK(closed);
  CHECK(closed == Errc::closed);
  CHECK(closed != Errc::device_lost);
  CHECK(Errc::closed == closed);
  CHECK(closed.message() == "closed");
  CHECK(std::string(closed.category().name()) == "reprise");

  const error_code aborted = to_asio_code(make_failure(Errc::operation_aborted, "", "", ""));
  CHECK(aborted == asio::error::operation_aborted);
  CHECK(aborted == Errc::operation_aborted);
  CHECK(aborted != Errc::closed);
  CHECK(error_code(asio::error::eof) != Errc::operation_aborted);

  const error_code memory = to_asio_code(make_failure(Errc::out_of_memory, "", "", ""));
  CHECK(memory == Errc::out_of_memory);
  CHECK(memory == boost::system::errc::not_enough_memory);
  CHECK(to_asio_code(make_failure(Errc::timed_out, "", "", "")) == boost::system::errc::timed_out);
  CHECK(closed != boost::system::errc::timed_out);

  const error_code standard = make_error_code(Errc::closed);
  CHECK(standard == Errc::closed);
  CHECK(standard != Errc::refused);
  CHECK(closed == boost::system::error_condition(Errc::closed));
}

TEST_CASE("a plain callback runs on the courier and never inside the initiating call",
          "[runtime][threads][I1][I2]") {
  AsyncFixture fixture;
  std::promise<std::pair<ThreadRole, std::string>> done;
  async_value<std::string>(fixture, "bytes", [&](error_code code, std::string value) {
    CHECK_FALSE(code);
    done.set_value({this_thread_role(), value});
  });
  CHECK(done.get_future().get() == std::make_pair(ThreadRole::courier, std::string("bytes")));

  std::promise<std::pair<ThreadRole, error_code>> early;
  const auto me = std::this_thread::get_id();
  async_early(fixture, lost(), [&](error_code code) {
    CHECK(std::this_thread::get_id() != me);
    early.set_value({this_thread_role(), code});
  });
  const auto [role, code] = early.get_future().get();
  CHECK(role == ThreadRole::courier);
  CHECK(code == Errc::device_lost);
}

TEST_CASE("a handler runs on the executor it is bound to and not inside the initiating call",
          "[runtime][threads][I1][I2]") {
  AsyncFixture fixture;
  asio::io_context context;
  int calls = 0;
  async_early(fixture, nullptr, asio::bind_executor(context, [&](error_code code) {
                CHECK_FALSE(code);
                CHECK(context.get_executor().running_in_this_thread());
                ++calls;
              }));
  async_value(fixture, 5, asio::bind_executor(context, [&](error_code code, int value) {
                CHECK_FALSE(code);
                CHECK(value == 5);
                CHECK(context.get_executor().running_in_this_thread());
                ++calls;
              }));
  CHECK(calls == 0);
  // Pending operations count as work: run() returns only after the last handler.
  context.run();
  CHECK(calls == 2);
}

TEST_CASE("strands and thread pools and erased executors run their handlers",
          "[runtime][threads][I1]") {
  AsyncFixture fixture;
  asio::io_context context;
  asio::thread_pool pool(2);
  const auto strand = asio::make_strand(context);
  const auto pool_strand = asio::make_strand(pool);
  const asio::any_io_executor erased(context.get_executor());
  const asio::any_io_executor erased_strand(strand);
  const asio::any_io_executor erased_pool(pool.get_executor());
  const auto strand_of_erased = asio::make_strand(erased);
  const asio::any_io_executor twice(strand_of_erased);
  const auto tracked = asio::prefer(erased, asio::execution::outstanding_work.tracked);
  std::atomic<int> right{0};

  async_value(fixture, 1, asio::bind_executor(strand, [&](error_code, int) {
                right += strand.running_in_this_thread();
              }));
  async_value(fixture, 1, asio::bind_executor(pool_strand, [&](error_code, int) {
                right += pool_strand.running_in_this_thread();
              }));
  async_value(fixture, 1, asio::bind_executor(pool, [&](error_code, int) {
                right += pool.get_executor().running_in_this_thread();
              }));
  async_value(fixture, 1, asio::bind_executor(erased_pool, [&](error_code, int) {
                right += pool.get_executor().running_in_this_thread();
              }));
  async_value(fixture, 1, asio::bind_executor(erased, [&](error_code, int) {
                right += context.get_executor().running_in_this_thread();
              }));
  async_value(fixture, 1, asio::bind_executor(tracked, [&](error_code, int) {
                right += context.get_executor().running_in_this_thread();
              }));
  async_value(fixture, 1, asio::bind_executor(erased_strand, [&](error_code, int) {
                right += strand.running_in_this_thread();
              }));
  async_value(fixture, 1, asio::bind_executor(twice, [&](error_code, int) {
                right += strand_of_erased.running_in_this_thread();
              }));
  async_value(
      fixture, 1,
      asio::bind_executor(asio::any_io_executor(asio::system_executor()), [&](error_code, int) {
        right += this_thread_role() == ThreadRole::courier;
      }));
  // `tracked` counts as work, so that run() would not return.
  while (right < 9) {
    if (context.poll() == 0) std::this_thread::yield();
  }
  pool.join();
  CHECK(right == 9);
}

TEST_CASE("use_future is fulfilled off the courier so that a handler may wait for it",
          "[runtime][threads][I1][N12]") {
  // Held until the completer has let go: the thread sanitizer does not see how the standard library
  // counts the owners of an exception.
  std::exception_ptr held;
  AsyncFixture fixture;
  CHECK(async_value(fixture, 4, asio::use_future).get() == 4);
  async_end(fixture, nullptr, asio::use_future).get();
  try {
    async_end<int>(fixture, lost(), asio::use_future).get();
    FAIL("it did not throw");
  } catch (const boost::system::system_error& error) {
    held = std::current_exception();
    CHECK(error.code() == Errc::device_lost);
  }
  ThreadRole role = ThreadRole::user;
  auto packaged = async_value(fixture, 2, asio::use_future([&](error_code, int value) {
                                role = this_thread_role();
                                return value * 2;
                              }));
  CHECK(packaged.get() == 4);
  CHECK(role == ThreadRole::completer);

  // In a handler on the courier, and in one of a context with one thread.
  std::promise<int> on_courier;
  async_value(fixture, 1, [&](error_code, int) {
    on_courier.set_value(async_value(fixture, 6, asio::use_future).get());
  });
  CHECK(on_courier.get_future().get() == 6);
  asio::io_context context(1);
  int seen = 0;
  asio::post(context, [&] { seen = async_value(fixture, 7, asio::use_future).get(); });
  context.run();
  CHECK(seen == 7);
}

TEST_CASE("deferred operations start when they are called and may outlive their makers",
          "[runtime][threads][I1]") {
  AsyncFixture fixture;
  asio::io_context context;
  std::unique_ptr<int> got;
  {
    auto operation = async_value(fixture, std::make_unique<int>(3), asio::deferred);
    context.poll();
    CHECK(context.stopped());  // nothing has begun
    context.restart();
    std::move(operation)(
        asio::bind_executor(context, [&](error_code code, std::unique_ptr<int> value) {
          CHECK_FALSE(code);
          got = std::move(value);
        }));
  }
  context.run();
  REQUIRE(got);
  CHECK(*got == 3);

  int sum = 0;
  async_value(fixture, 20, asio::deferred([&](error_code code, int value) {
                return asio::deferred.values(code, value + 1);
              }))(asio::bind_executor(context, [&](error_code, int value) { sum = value; }));
  context.restart();
  context.run();
  CHECK(sum == 21);
}

TEST_CASE("as_tuple and bind_allocator adapt as they do elsewhere", "[runtime][threads]") {
  AsyncFixture fixture;
  Usage usage;
  asio::io_context context;
  async_value(fixture, 9,
              asio::bind_allocator(CountingAllocator<void>(&usage),
                                   asio::bind_executor(context, [&](error_code, int) {
                                     usage.live_in_handler = usage.allocated - usage.freed;
                                   })));
  CHECK(usage.allocated == 1);
  context.run();
  CHECK(usage.live_in_handler == 0);
  CHECK(usage.allocated == usage.freed);

  bool called = false;
  async_end<int>(fixture, lost(),
                 asio::as_tuple(asio::bind_executor(context, [&](std::tuple<error_code, int> all) {
                   CHECK(std::get<0>(all) == Errc::device_lost);
                   called = true;
                 })));
  context.restart();
  context.run();
  CHECK(called);
}

TEST_CASE("the failure record is there before the handler runs", "[runtime][threads]") {
  AsyncFixture fixture;
  asio::io_context context;
  const FailurePtr record = lost();
  FailurePtr failure;
  FailurePtr seen;
  async_end(fixture, record, asio::bind_executor(context, [&](error_code) { seen = failure; }),
            &failure);
  context.run();
  CHECK(seen == record);

  failure = record;
  async_end(fixture, nullptr, asio::bind_executor(context, [&](error_code) { seen = failure; }),
            &failure);
  context.restart();
  context.run();
  CHECK(seen == nullptr);
}

TEST_CASE("handlers and results that only move are moved and each handler ends once",
          "[runtime][threads][I1][I8]") {
  Ledger ledger;
  int sum = 0;
  {
    AsyncFixture fixture;
    asio::io_context context;
    for (int i = 0; i < 100; ++i) {
      async_value(fixture, std::make_unique<int>(i),
                  asio::bind_executor(context, [&, entry = Entry(ledger)](
                                                   error_code, std::unique_ptr<int> value) mutable {
                    sum += *value;
                    entry.invoked();
                  }));
    }
    context.run();
  }
  CHECK(sum == 4950);
  CHECK(ledger.invoked == 100);
  CHECK(ledger.dropped == 0);
  CHECK(ledger.on_device == 0);
}

TEST_CASE("a parallel group waits for several operations at once", "[runtime][threads][I1]") {
  AsyncFixture fixture;
  asio::io_context context;
  bool done = false;
  asio::experimental::make_parallel_group(async_value(fixture, 1, asio::deferred),
                                          async_end(fixture, lost(), asio::deferred),
                                          async_value<std::string>(fixture, "x", asio::deferred))
      .async_wait(
          asio::experimental::wait_for_all(),
          asio::bind_executor(context, [&](std::array<std::size_t, 3>, error_code a, int value,
                                           error_code b, error_code c, std::string text) {
            CHECK_FALSE(a);
            CHECK(value == 1);
            CHECK(b == Errc::device_lost);
            CHECK_FALSE(c);
            CHECK(text == "x");
            done = true;
          }));
  context.run();
  CHECK(done);
}

TEST_CASE("a handler may start the next operation and drop the last handle",
          "[runtime][threads][N12]") {
  auto fixture = std::make_unique<AsyncFixture>();
  asio::io_context context;
  std::weak_ptr<void> watch = fixture->watch();
  int rounds = 0;
  struct Again {
    AsyncFixture& fixture;
    asio::io_context& context;
    int& rounds;
    void operator()(error_code code, int value) {
      CHECK_FALSE(code);
      rounds = value;
      if (value < 500) async_value(fixture, value + 1, asio::bind_executor(context, *this));
    }
  };
  async_value(*fixture, 1, asio::bind_executor(context, Again{*fixture, context, rounds}));
  context.run();
  CHECK(rounds == 500);

  // The answer is on its way when the runtime goes; the handler then holds its last pieces.
  bool called = false;
  async_early(*fixture, nullptr, asio::bind_executor(context, [&](error_code) { called = true; }));
  fixture.reset();
  CHECK_FALSE(watch.expired());
  context.restart();
  context.run();
  CHECK(called);
  CHECK(watch.expired());
}

TEST_CASE("operations started after the end of the runtime still answer",
          "[runtime][threads][I1][I12][I33]") {
  AsyncFixture fixture;
  fixture.close();
  const FailurePtr closed = make_failure(Errc::closed, "read", "", "the runtime was shut down");

  std::promise<error_code> plain;
  async_early(fixture, closed, [&](error_code code) { plain.set_value(code); });
  CHECK(plain.get_future().get() == Errc::closed);

  const auto code_of = asio::use_future([](error_code code) { return code; });
  CHECK(async_early(fixture, closed, code_of).get() == Errc::closed);

  asio::io_context context;
  error_code seen;
  async_early(fixture, closed, asio::bind_executor(context, [&](error_code code) { seen = code; }));
  context.run();
  CHECK(seen == Errc::closed);
}

TEST_CASE("what a handler throws on the courier is told and the next one runs",
          "[runtime][threads][N12]") {
  AsyncFixture fixture;
  std::promise<void> next;
  async_value(fixture, 1, [](error_code, int) { throw std::runtime_error("handler"); });
  async_value(fixture, 2, [&](error_code, int) { next.set_value(); });
  next.get_future().get();
  fixture.close();
  CHECK(fixture.courier().exceptions() == 1);
  CHECK(fixture.thrown() == std::vector<std::string>{"handler"});
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async.hpp>

#include <reprise/runtime/runtime.hpp>

#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <future>
#include <thread>
#include <vector>

using namespace reprise;
namespace asio = boost::asio;
using Floats = std::vector<float>;

TEST_CASE("a coroutine decodes a step at a time on one thread [I1] [I6]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto in = client.empty<float>(2);
  const auto out = client.empty<float>(2);
  const Graph step =
      client.capture([&](Client& c) { c.launch(test::add_one, grid_for(2), in, out); });
  asio::io_context context;
  Floats seen;
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        Floats values{1, 2};
        for (int i = 0; i < 10; ++i) {
          co_await client.async_write(in, std::span<const float>(values), asio::use_awaitable);
          co_await step.async_replay(asio::use_awaitable);
          values = co_await client.async_read(out, asio::use_awaitable);
          seen.push_back(values[0]);
        }
        co_await step.async_run(asio::use_awaitable);
        co_await client.async_flush(asio::use_awaitable);
        co_await client.async_synchronize(asio::use_awaitable);
      },
      asio::detached);
  context.run();
  REQUIRE(seen.size() == 10);
  CHECK(seen.back() == 11.0f);
}

TEST_CASE("every verb takes callbacks, futures, deferred and tuples [I1] [I2]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto in = client.create<float>({1, 2});
  const auto out = client.empty<float>(2);
  asio::io_context context;
  const auto here = std::this_thread::get_id();
  int handlers = 0;
  client.async_launch(test::add_one, grid_for(2), in, out,
                      asio::bind_executor(context, [&](boost::system::error_code code) {
                        CHECK_FALSE(code);
                        CHECK(std::this_thread::get_id() == here);
                        ++handlers;
                      }));
  client.async_launch(test::add_one, grid_for(2), in, out).get();
  CHECK(handlers == 0);  // Not before its context runs.
  CHECK(client.async_read(out, asio::use_future).get() == Floats{2, 3});
  client.async_copy(in, out, asio::use_future).get();
  auto later = client.async_read(in, asio::deferred);
  client.fill(in, 7.0f);
  CHECK(std::move(later)(asio::use_future).get() == Floats{7, 7});
  const Buffer& untyped = in;
  client.async_read(
      untyped, asio::bind_executor(context, [&](boost::system::error_code code, HostBytes bytes) {
        CHECK_FALSE(code);
        CHECK(bytes.size() == 8);
        ++handlers;
      }));
  int called = 0;
  client.async_host_call(
      {}, [&] { ++called; }, asio::bind_executor(context, [&](boost::system::error_code code) {
        CHECK_FALSE(code);
        ++handlers;
      }));
  client.async_fill(out, 9.0f, asio::use_future).get();
  context.run();
  CHECK(handlers == 3);
  client.synchronize();
  CHECK(called == 1);
  CHECK(client.read(out) == Floats{9, 9});
}

TEST_CASE("failures arrive as codes and as records before the handler [I29]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto in = client.create<float>({1});
  const auto out = client.empty<float>(1);
  client.launch(test::fail, 1, in, out);
  asio::io_context context;
  FailurePtr record;
  boost::system::error_code seen;
  client.async_read(out, CallOptions{.failure = &record},
                    asio::bind_executor(context, [&](boost::system::error_code code, Floats) {
                      seen = code;
                      REQUIRE(record);
                      CHECK(record->root().message == "boom");
                    }));
  context.run();
  CHECK(seen == Errc::kernel_failed);
  // Bad arguments and closed devices are delivered, never thrown by the call.
  const auto code_of =
      asio::use_future([](boost::system::error_code code, const Floats&) { return code; });
  CHECK(client.async_read(Array<float>{}, code_of).get() == Errc::empty_handle);
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        auto [code] =
            co_await client.async_copy(in, Array<float>{}, asio::as_tuple(asio::use_awaitable));
        CHECK(code == Errc::empty_handle);
      },
      asio::detached);
  context.restart();
  context.run();
  runtime.drain();
  CHECK(client.async_read(in, code_of).get() == Errc::closed);
}

TEST_CASE("handlers without an executor run on the courier thread [D4]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto x = client.create<float>({1});
  std::promise<ThreadRole> role;
  client.async_read(x,
                    [&](boost::system::error_code, Floats) { role.set_value(this_thread_role()); });
  CHECK(role.get_future().get() == ThreadRole::courier);
}

TEST_CASE("cancelling queued work leaves its bytes untouched and marked, once [I7] [I1]",
          "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, InOut<float>) { gate.pass(); }};
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  options.in_flight = 1;
  Client client = runtime.open("cpu:0", options).client();
  const auto busy = client.zeros<float>(1);
  const auto x = client.create<float>({5});
  client.launch(hold, 1, busy);
  gate.wait_for_arrivals();
  asio::io_context context;
  asio::cancellation_signal signal;
  std::vector<boost::system::error_code> codes;
  const auto note = [&](boost::system::error_code code) { codes.push_back(code); };
  client.async_launch(
      test::add_in_place, 1, x, 1.0f,
      asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(context, note)));
  signal.emit(asio::cancellation_type::total);
  context.run();
  REQUIRE(codes.size() == 1);
  CHECK(codes[0] == asio::error::operation_aborted);
  gate.open();
  auto failed = client.async_read(x);
  CHECK_THROWS_AS(failed.get(), Failure);
  client.restore({x});
  CHECK(client.read(x) == Floats{5});
  // Once it has started, a cancellation changes nothing.
  context.restart();
  client.async_launch(
      test::add_in_place, 1, x, 1.0f,
      asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(context, note)));
  client.synchronize();
  signal.emit(asio::cancellation_type::total);
  context.run();
  REQUIRE(codes.size() == 2);
  CHECK_FALSE(codes[1]);
  CHECK(client.read(x) == Floats{6});
}

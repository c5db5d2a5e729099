// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/closer.hpp>

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/async.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/seed.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

TEST_CASE("an asynchronous drain completes when everything is finished, again and again [D5] [I31]",
          "[runtime]") {
  std::atomic<int> ran{0};
  const Kernel count{"count", [&ran](const Block&) { ++ran; }};
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  Device other = runtime.open("cpu:1");
  Client client = device.client();
  for (int i = 0; i < 100; ++i) client.launch(count, 1);
  auto first = device.async_drain(10s);
  auto second = device.async_drain(10s);
  first.get();
  second.get();
  CHECK(ran == 100);
  device.async_abort(10s).get();
  CHECK(code_of([&] { client.launch(count, 1); }) == Errc::closed);
  other.client().launch(count, 1);
  runtime.async_drain(10s).get();
  CHECK(ran == 101);
  CHECK(code_of([&] { other.client().flush(); }) == Errc::closed);
  runtime.async_abort(10s).get();
  CHECK(code_of([] { (void)Device{}.async_drain(1s); }) == Errc::empty_handle);
}

TEST_CASE("an asynchronous abort gives up what has not started [D5] [I12]", "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, InOut<float>) { gate.pass(); }};
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  options.in_flight = 1;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  const auto x = client.zeros<float>(1);
  client.launch(hold, 1, x);
  gate.wait_for_arrivals();
  auto read = client.async_read(x);
  auto ended = device.async_abort(10s);
  while (code_of([&] { (void)client.try_record(); }) != Errc::closed) std::this_thread::yield();
  CHECK_FALSE(ended.ready());
  gate.open();
  ended.get();
  CHECK(code_of([&] { (void)read.get(); }) == Errc::operation_aborted);
}

TEST_CASE("a coroutine and a handler of the courier's may end a device [D5] [N12]", "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  Device other = runtime.open("cpu:1");
  asio::io_context context;
  const Floats values{1, 2};
  bool ended = false;
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        const auto x = co_await device.client().async_create<float>(values, asio::use_awaitable);
        co_await device.async_drain(10s, asio::use_awaitable);
        CHECK(x.size() == 2);
        ended = true;
      },
      asio::detached);
  context.run();
  CHECK(ended);
  std::promise<ThreadRole> role;
  other.client().async_flush([&](boost::system::error_code) {
    other.async_drain(10s, [&](boost::system::error_code code) {
      CHECK_FALSE(code);
      role.set_value(this_thread_role());
    });
  });
  CHECK(role.get_future().get() == ThreadRole::courier);
  CHECK(code_of([&] { other.client().flush(); }) == Errc::closed);
}

TEST_CASE("an asynchronous drain names a kernel that does not return [D5] [I32]", "[runtime]") {
  // Outlives the test: the stuck thread is left behind on purpose.
  static auto* const gate = new test::Gate;
  static const Kernel stuck{"endless", [](const Block&, InOut<float>) { gate->pass(); }};
  auto* const runtime = new Runtime;
  DeviceOptions options;
  options.workers = 1;
  options.help_while_waiting = false;
  Device device = runtime->open("cpu:0", options);
  Device other = runtime->open("cpu:1", options);
  Client client = device.client();
  client.launch(stuck, 1, client.zeros<float>(1));
  gate->wait_for_arrivals();
  FailurePtr record;
  const auto code_only = asio::use_future([](boost::system::error_code code) { return code; });
  const auto code = runtime->async_drain(1ms, CallOptions{.failure = &record}, code_only).get();
  CHECK(code == Errc::timed_out);
  REQUIRE(record);
  CHECK(record->message.find("endless") != std::string::npos);
  // The other device was closed all the same, and a device left behind answers.
  CHECK(code_of([&] { other.client().flush(); }) == Errc::closed);
  CHECK(code_of([&] { (void)device.async_memory_report().get(); }) == Errc::closed);
  CHECK(code_of([&] { (void)device.async_trim().get(); }) == Errc::closed);
  gate->open();
  delete runtime;
}

TEST_CASE("a device that outlives its runtime is drained at once [I33]", "[runtime]") {
  Device device;
  {
    Runtime runtime;
    device = runtime.open("cpu:0");
  }
  device.async_drain(1s).get();
  device.async_abort(1s).get();
  CHECK(code_of([&] { device.async_synchronize().get(); }) == Errc::closed);
  CHECK(code_of([&] { (void)device.async_memory_report().get(); }) == Errc::closed);
}

TEST_CASE("reports of a device answer asynchronously while its ring is full [I10]", "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, InOut<float>) { gate.pass(); }};
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  options.in_flight = 1;
  options.ring_capacity = 2;
  options.in_flight_per_stream = 4;
  options.help_while_waiting = false;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  const auto x = client.zeros<float>(1024);
  client.launch(hold, 1, x);
  gate.wait_for_arrivals();
  while (client.try_launch(test::add_in_place, 1, x, 1.0f)) {
  }
  CHECK(device.async_memory_report().get().pool.in_use >= 4096);
  CHECK(device.async_trim().get() == 0);
  auto all = device.async_synchronize();
  CHECK_FALSE(all.ready());
  gate.open();
  all.get();
  CHECK(device.async_memory_report(asio::use_future).get().pool.in_use >= 4096);
}

TEST_CASE("every schedule of two drains and their runtime ends [D5] [D6] [I34]", "[runtime][sim]") {
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::uint64_t seed = test::seed() + i;
    CAPTURE(seed);
    SeededHost host(seed);
    RuntimeOptions runtime_options;
    runtime_options.host = &host;
    std::optional<Runtime> runtime(std::in_place, runtime_options);
    DeviceOptions options;
    options.workers = static_cast<std::uint32_t>(i % 3);
    Device device = runtime->open("cpu:0", options);
    Client client = device.client();
    const auto x = client.zeros<float>(8);
    for (int k = 0; k < 5; ++k) client.launch(test::add_in_place, 1, x, 1.0f);
    auto read = client.async_read(x);
    auto drained = device.async_drain(1s);
    auto aborted = runtime->async_abort(1s);
    if (i % 2 == 0) device.drain();
    if (i % 4 == 1) drained.get();
    runtime.reset();
    if (drained.valid()) drained.get();
    aborted.get();
    Floats values(8, 5.0f);
    const Errc end = code_of([&] { values = read.get(); });
    CHECK((end == Errc{} || end == Errc::operation_aborted));
    CHECK(values == Floats(8, 5.0f));
  }
}

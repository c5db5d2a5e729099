// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async.hpp>

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/kernels.hpp"
#include "support/seed.hpp"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <optional>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Floats = std::vector<float>;
using boost::system::error_code;

namespace {

/// A device on a virtual clock, and handlers that note the outcome.
struct Rig {
  explicit Rig(std::uint64_t seed) : host(seed) {
    RuntimeOptions options;
    options.host = &host;
    runtime.emplace(options);
    DeviceOptions device_options;
    device_options.workers = 1;
    device_options.in_flight = 1;
    device = runtime->open("cpu:0", device_options);
  }

  CallOptions within(std::chrono::nanoseconds limit) {
    CallOptions options{.failure = &record};
    options.deadline =
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(host.now_ns()) + limit);
    return options;
  }
  auto note() {
    return asio::bind_executor(context, [this](error_code code, const auto&...) { seen = code; });
  }
  std::optional<error_code> outcome() {
    host.run_until_idle();
    context.restart();
    context.run();
    return std::exchange(seen, std::nullopt);
  }

  SeededHost host;
  asio::io_context context;
  std::optional<Runtime> runtime;
  Device device;
  std::optional<error_code> seen;
  FailurePtr record;
};

}  // namespace

TEST_CASE("a command whose turn comes after its deadline leaves its bytes untouched and marked "
          "[I7] [I20]",
          "[runtime]") {
  for (std::uint64_t i = 0; i < 10; ++i) {
    CAPTURE(test::seed() + i);
    Rig rig(test::seed() + i);
    Client client = rig.device.client();
    const auto x = client.create<float>({5});
    const auto y = client.empty<float>(1);
    client.synchronize();
    client.async_launch(test::add_in_place, 1, x, 1.0f, rig.within(1s), rig.note());
    rig.host.advance(2'000'000'000);  // Nothing runs meanwhile: the device has not come to it.
    auto code = rig.outcome();
    REQUIRE(code);
    CHECK(*code == asio::error::operation_aborted);
    REQUIRE(rig.record);
    CHECK(rig.record->root().code == Errc::timed_out);
    CHECK(rig.record->verb == "launch");
    CHECK(code_of([&] { (void)client.read(x); }) == Errc::operation_aborted);
    client.launch(test::add_one, 1, x, y);
    CHECK(code_of([&] { (void)client.read(y); }) == Errc::operation_aborted);
    client.restore({x});
    CHECK(client.read(x) == Floats{5});
    // In time it runs.
    client.async_launch(test::add_in_place, 1, x, 1.0f, rig.within(1s), rig.note());
    code = rig.outcome();
    REQUIRE(code);
    CHECK_FALSE(*code);
    CHECK_FALSE(rig.record);
    CHECK(client.read(x) == Floats{6});
  }
}

TEST_CASE("every asynchronous verb that posts or reads takes a deadline [I1] [I29]", "[runtime]") {
  Rig rig(test::seed());
  Client client = rig.device.client();
  const auto x = client.create<float>({5});
  const auto y = client.zeros<float>(1);
  const Graph graph = client.capture([&](Client& c) { c.fill(y, 2.0f); });
  const Event event = client.record();
  client.synchronize();
  const Floats values{1};
  const std::vector<std::size_t> counts{1, 2};
  const auto late = [&](auto&& start) {
    rig.record = nullptr;
    start(rig.within(1s));
    rig.host.advance(2'000'000'000);
    const auto code = rig.outcome();
    REQUIRE(code);
    CHECK(*code == asio::error::operation_aborted);
    REQUIRE(rig.record);
    CHECK(rig.record->root().code == Errc::timed_out);
    client.restore({x, y});
  };
  late([&](const CallOptions& o) { client.async_empty<float>(1, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_zeros<float>(1, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_create<float>(values, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_create_many<float>(counts, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_copy(y, x, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_fill(x, 1.0f, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_write(x, std::span(values), o, rig.note()); });
  late([&](const CallOptions& o) { client.async_write(x, HostBytes(4), o, rig.note()); });
  late([&](const CallOptions& o) {
    client.async_host_call(
        {}, [] {}, o, rig.note());
  });
  late([&](const CallOptions& o) { client.async_read(x, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_check({x}, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_restore({x}, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_flush(o, rig.note()); });
  late([&](const CallOptions& o) { client.async_synchronize(o, rig.note()); });
  late([&](const CallOptions& o) { client.async_record(o, rig.note()); });
  late([&](const CallOptions& o) { client.async_record({.timing = true}, o, rig.note()); });
  late([&](const CallOptions& o) { client.async_wait(event, o, rig.note()); });
  late([&](const CallOptions& o) { event.async_wait(o, rig.note()); });
  late([&](const CallOptions& o) { graph.async_replay(o, rig.note()); });
  late([&](const CallOptions& o) { graph.async_run(o, rig.note()); });
  late([&](const CallOptions& o) { client.async_capture([](Client&) {}, o, rig.note()); });
  late([&](const CallOptions& o) { rig.device.async_synchronize(o, rig.note()); });
  CHECK(client.read(x) == Floats{5});
  CHECK(client.read(y) == Floats{0});
  CHECK_FALSE(rig.device.any_recording());
}

TEST_CASE("a window with an operation that was given up does not seal [B108]", "[runtime]") {
  Rig rig(test::seed());
  Client client = rig.device.client();
  const auto x = client.create<float>({5});
  client.prepare_capture();
  client.start_capture();
  client.async_fill(x, 1.0f, rig.within(-1s), rig.note());
  CHECK(code_of([&] { (void)client.stop_capture(); }) == Errc::capture_doomed);
  CHECK(rig.outcome());
  client.restore({x});
  CHECK(client.read(x) == Floats{5});
}

TEST_CASE("an event whose record was given up says so and holds nobody up [I5]", "[runtime]") {
  Rig rig(test::seed());
  Client client = rig.device.client();
  client.flush();
  Event event;
  client.async_record(rig.within(1s), asio::bind_executor(rig.context, [&](error_code, Event made) {
                        event = std::move(made);
                      }));
  rig.host.advance(2'000'000'000);
  (void)rig.outcome();
  REQUIRE(event);
  CHECK(event.is_done());
  CHECK(code_of([&] { event.wait(); }) == Errc::operation_aborted);
  client.wait(event);
  client.synchronize();
}

TEST_CASE("a deadline that has passed before the call gives the command up [I7]", "[runtime]") {
  Rig rig(test::seed());
  Client client = rig.device.client();
  const auto x = client.create<float>({5});
  client.async_fill(x, 1.0f, rig.within(-5s), rig.note());
  const auto code = rig.outcome();
  REQUIRE(code);
  CHECK(*code == asio::error::operation_aborted);
  CallOptions before_time{.failure = &rig.record};
  before_time.deadline = std::chrono::steady_clock::time_point::min();
  client.async_fill(x, 1.0f, before_time, rig.note());
  const auto earlier = rig.outcome();
  REQUIRE(earlier);
  CHECK(*earlier == asio::error::operation_aborted);
  client.restore({x});
  CHECK(client.read(x) == Floats{5});
}

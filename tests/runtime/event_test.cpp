// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/event.hpp>

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/seed.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <optional>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using Floats = std::vector<float>;
using std::chrono::nanoseconds;

namespace {

DeviceOptions without_help() {
  DeviceOptions options;
  options.workers = 1;
  options.help_while_waiting = false;
  return options;
}

}  // namespace

TEST_CASE("an asynchronous wait for an event ends after the work before it, with its failure [I5]",
          "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, InOut<float>) { gate.pass(); }};
  Runtime runtime;
  Client client = runtime.open("cpu:0", without_help()).client();
  const auto x = client.zeros<float>(1);
  const auto y = client.empty<float>(1);
  client.launch(hold, 1, x);
  const Event event = client.record();
  auto passed = event.async_wait();
  gate.wait_for_arrivals();
  CHECK_FALSE(passed.ready());
  CHECK_FALSE(event.is_done());
  gate.open();
  passed.get();
  CHECK(event.is_done());
  client.launch(test::fail, 1, x, y);
  const Event failed = client.record();
  CHECK(code_of([&] { failed.async_wait().get(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { failed.wait(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { (void)Event{}.async_wait(); }) == Errc::empty_handle);
}

TEST_CASE("an event of a window is no point in time [B102]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto x = client.zeros<float>(1);
  Event event;
  const Graph graph = client.capture([&](Client& inside) {
    inside.fill(x, 1.0f);
    event = inside.record({.timing = true});
    inside.wait(event);
    inside.fill(x, 2.0f);
    CHECK(code_of([&] { event.wait(); }) == Errc::capture_refused);
  });
  CHECK(graph.node_count() == 2);
  CHECK(code_of([&] { event.async_wait().get(); }) == Errc::capture_refused);
  CHECK(code_of([&] { (void)elapsed(event, event); }) == Errc::capture_refused);
}

TEST_CASE("the time between two events is that in which the device passed them", "[runtime][sim]") {
  for (std::uint64_t i = 0; i < 30; ++i) {
    const std::uint64_t seed = test::seed() + i;
    CAPTURE(seed);
    SeededHost host(SeededOptions{.seed = seed, .turn_ns = 1});
    const Kernel work{"work", [&host](const Block&, InOut<float>) { host.advance(1'000'000); }};
    RuntimeOptions runtime_options;
    runtime_options.host = &host;
    Runtime runtime(runtime_options);
    DeviceOptions options;
    options.workers = static_cast<std::uint32_t>(i % 3);
    Client client = runtime.open("cpu:0", options).client();
    const auto x = client.zeros<float>(1);
    const Event before = client.record({.timing = true});
    client.launch(work, 1, x);
    client.launch(work, 1, x);
    const Event after = client.record({.timing = true});
    const nanoseconds took = elapsed(before, after);
    CHECK(took >= nanoseconds(2'000'000));
    CHECK(took < nanoseconds(3'000'000));
    CHECK(elapsed(after, before) == -took);
    CHECK(elapsed(after, after) == nanoseconds(0));
    CHECK(async_elapsed(before, after).get() == took);
  }
}

TEST_CASE("a timed event leaves failures to those they belong to [I5]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto x = client.zeros<float>(1);
  const auto y = client.empty<float>(1);
  const Event start = client.record({.timing = true});
  client.launch(test::fail, 1, x, y);
  const Event timed = client.record({.timing = true});
  const Event again = client.record({.timing = true});
  const Event plain = client.record();
  CHECK(code_of([&] { timed.wait(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { again.wait(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { plain.wait(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { (void)elapsed(start, timed); }) == Errc::kernel_failed);
  start.wait();
  CHECK(start.is_done());
  // Nor does it hide a failure that is known by then from events behind it.
  Device device = runtime.open("cpu:0");
  client.launch(test::fail, 1, x, y);
  device.synchronize();
  CHECK(code_of([&] { client.record({.timing = true}).wait(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { client.record().wait(); }) == Errc::kernel_failed);
}

TEST_CASE("the time between events is refused for those without one [B269]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  Client other = runtime.open("cpu:1").client();
  const Event timed = client.record({.timing = true});
  const Event plain = client.record();
  CHECK(code_of([&] { (void)elapsed(plain, timed); }) == Errc::invalid_argument);
  CHECK(code_of([&] { (void)async_elapsed(timed, plain).get(); }) == Errc::invalid_argument);
  CHECK(code_of([&] { (void)elapsed(timed, Event{}); }) == Errc::empty_handle);
  CHECK(code_of([&] { (void)async_elapsed(Event{}, timed).get(); }) == Errc::empty_handle);
  const Event foreign = other.record({.timing = true});
  CHECK(code_of([&] { (void)elapsed(timed, foreign); }) == Errc::wrong_device);
  CHECK(code_of([&] { client.async_wait(foreign).get(); }) == Errc::wrong_device);
  CHECK(code_of([&] { (void)client.try_wait(foreign); }) == Errc::wrong_device);
  runtime.drain();
  CHECK(code_of([&] { (void)elapsed(timed, timed); }) == Errc::closed);
}

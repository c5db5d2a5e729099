// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace reprise;
using test::code_of;
using Floats = std::vector<float>;

namespace {

struct Bench {
  Bench() : device(runtime.open("cpu:0")), client(device.client()) {}
  Runtime runtime;
  Device device;
  Client client;
};

/// What doomed a window that does not seal.
FailurePtr doom_of(const Client& client) {
  try {
    (void)client.stop_capture();
  } catch (const Failure& failure) {
    return failure.errc() == Errc::capture_doomed ? failure.record().cause : nullptr;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a client forked in a window records with it until it is joined [I24]", "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({1});
  const auto a = bench.client.zeros<float>(1);
  const auto b = bench.client.zeros<float>(1);
  const auto y = bench.client.zeros<float>(1);
  Client kept;
  const Graph graph = bench.client.capture([&](Client& client) {
    Client side = client.fork();
    side.flush();
    CHECK(side.is_capturing());
    client.launch(test::add_one, 1, x, a);
    std::thread([&] { side.launch(test::add_one, 1, x, b); }).join();
    client.join(side);
    client.flush();
    CHECK_FALSE(side.is_capturing());
    client.launch(test::add, 1, a, b, y);
    kept = side;
  });
  CHECK(graph.node_count() == 3);
  CHECK(bench.client.read(y) == Floats{0});
  graph.run();
  CHECK(bench.client.read(y) == Floats{4});
  // Joined, it executes.
  kept.fill(y, 9.0f);
  CHECK(kept.read(y) == Floats{9});
}

TEST_CASE("a fork of a forked client is in the window as well, and any of them may join it",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.zeros<float>(1);
  const Graph graph = bench.client.capture([&](Client& client) {
    const Client side = client.fork();
    const Client inner = side.fork();
    inner.fill(x, 1.0f);
    side.join(inner);
    side.launch(test::add_in_place, 1, x, 1.0f);
    client.join(side);
    client.launch(test::add_in_place, 1, x, 1.0f);
  });
  graph.run();
  CHECK(bench.client.read(x) == Floats{3});
}

TEST_CASE("a window that a forked client has not come back to is doomed, and says which one [I25]",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  Client owner = bench.client.fork();
  owner.prepare_capture();
  owner.start_capture();
  Client side = owner.fork();
  side.fill(x, 1.0f);
  std::string told;
  SECTION("it is there still") {
    const FailurePtr doom = doom_of(owner);
    REQUIRE(doom);
    CHECK(doom->code == Errc::capture_order);
    told = doom->message;
    CHECK(told.find("not joined before its end") != std::string::npos);
    CHECK_FALSE(side.is_capturing());
  }
  SECTION("it was dropped") {
    const StreamId dropped = side.stream();
    side = {};
    owner.launch(test::add_in_place, 1, x, 1.0f);
    const FailurePtr doom = doom_of(owner);
    REQUIRE(doom);
    CHECK(doom->code == Errc::capture_order);
    told = doom->message;
    CHECK(told.find("stream " + std::to_string(dropped)) != std::string::npos);
    CHECK(told.find("dropped before it was joined") != std::string::npos);
  }
  CHECK(told.find("window of stream " + std::to_string(owner.stream())) != std::string::npos);
  CHECK_FALSE(bench.device.any_recording());
  // What it would have written is marked, and nothing has run.
  CHECK(code_of([&] { (void)bench.client.read(x); }) == Errc::capture_doomed);
  bench.client.restore({x});
  CHECK(bench.client.read(x) == Floats{5});
}

TEST_CASE("a forked client neither opens nor ends a window [I24]", "[runtime]") {
  Bench bench;
  Client owner = bench.client.fork();
  owner.prepare_capture();
  owner.start_capture();
  const Client side = owner.fork();
  CHECK(code_of([&] { side.prepare_capture(); }) == Errc::capture_order);
  CHECK(code_of([&] { side.start_capture(); }) == Errc::capture_order);
  CHECK(code_of([&] { (void)side.stop_capture(); }) == Errc::capture_order);
  CHECK(code_of([&] { side.abort_capture(); }) == Errc::capture_order);
  CHECK(code_of([&] { side.synchronize(); }) == Errc::capture_refused);
  owner.join(side);
  CHECK(owner.stop_capture().node_count() == 0);
}

TEST_CASE("an aborted window lets its forked clients go, and leaves no marks [I24]", "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  Client owner = bench.client.fork();
  owner.prepare_capture();
  owner.start_capture();
  const Client side = owner.fork();
  side.fill(x, 1.0f);
  owner.abort_capture();
  CHECK_FALSE(side.is_capturing());
  CHECK(side.read(x) == Floats{5});
}

TEST_CASE("joining a stream that is not of the window dooms it, and so does no one else's",
          "[runtime]") {
  Bench bench;
  Client owner = bench.client.fork();
  owner.prepare_capture();
  owner.start_capture();
  const Client side = owner.fork();
  const Client stranger = bench.device.client();
  stranger.join(side);  // Refused, and nobody's window suffers.
  stranger.flush();
  owner.join(owner);  // Nothing.
  owner.join(stranger);
  owner.join(side);
  const FailurePtr doom = doom_of(owner);
  REQUIRE(doom);
  CHECK(doom->code == Errc::capture_refused);
  CHECK(doom->message.find("stream " + std::to_string(stranger.stream())) != std::string::npos);
}

TEST_CASE("an event of one stream of a window is waited for by another one", "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  const Graph graph = bench.client.capture([&](Client& client) {
    const Client side = client.fork();
    side.fill(x, 1.0f);
    client.wait(side.record());
    client.launch(test::add_in_place, 1, x, 1.0f);
    client.join(side);
  });
  graph.run();
  CHECK(bench.client.read(x) == Floats{2});
}

TEST_CASE("outside of windows a join waits for what the other stream was given", "[runtime]") {
  Bench bench;
  test::Gate gate;
  std::atomic<bool> done{false};
  const Client other = bench.device.client();
  other.host_call({}, [&] {
    gate.pass();
    done = true;
  });
  const auto form = GENERATE(0, 1, 2);
  if (form == 0) bench.client.join(other);
  if (form == 1) CHECK(bench.client.try_join(other));
  if (form == 2) bench.client.async_join(other).get();
  bool seen = false;
  bench.client.host_call({}, [&] { seen = done.load(); });
  gate.open();
  bench.client.synchronize();
  CHECK(seen);
}

TEST_CASE("a join with an empty client or one of another device is refused at once", "[runtime]") {
  Bench bench;
  Device other = bench.runtime.open("cpu:1");
  CHECK(code_of([&] { bench.client.join(Client{}); }) == Errc::empty_handle);
  CHECK(code_of([&] { Client{}.join(bench.client); }) == Errc::empty_handle);
  CHECK(code_of([&] { bench.client.join(other.client()); }) == Errc::wrong_device);
}

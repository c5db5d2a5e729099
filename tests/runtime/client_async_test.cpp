// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/client_async.hpp>

#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using Floats = std::vector<float>;

namespace {

/// A device whose only place for work is taken until the gate opens.
struct Busy {
  explicit Busy(std::uint32_t credit = 256) {
    DeviceOptions options;
    options.workers = 1;
    options.in_flight = 1;
    options.in_flight_per_stream = credit;
    options.help_while_waiting = false;
    device = runtime.open("cpu:0", options);
    Client other = device.client();
    other.launch(hold, 1, other.zeros<float>(1));
    gate.wait_for_arrivals();
  }
  ~Busy() { gate.open(); }

  test::Gate gate;
  const Kernel<void(InOut<float>)> hold{"hold",
                                        [this](const Block&, InOut<float>) { gate.pass(); }};
  Runtime runtime;
  Device device;
};

}  // namespace

TEST_CASE("memory asked for asynchronously comes with its bytes when it was found [B264]",
          "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto empty = client.async_empty<float>(3).get();
  CHECK(empty.size() == 3);
  CHECK(code_of([&] { (void)client.read(empty); }) == Errc::unwritten);
  CHECK(client.read(client.async_zeros<float>(2).get()) == Floats{0, 0});
  Floats values{1, 2, 3};
  auto created = client.async_create<float>(values);
  values.assign(3, -1.0f);  // The bytes were taken before the call returned.
  CHECK(client.read(created.get()) == Floats{1, 2, 3});
  const Floats large(1 << 20, 5.0f);
  CHECK(client.read(client.async_create<float>(large).get()) == large);
  const std::array<std::size_t, 3> counts{2, 0, 4};
  const auto many = client.async_create_many<float>(counts).get();
  REQUIRE(many.size() == 3);
  client.fill(many[2], 7.0f);
  client.fill(many[0], 8.0f);
  CHECK(client.read(many[2]) == Floats(4, 7.0f));
  CHECK(client.read(many[0]) == Floats(2, 8.0f));
  CHECK(client.async_zeros<float>(0).get().empty());
}

TEST_CASE("memory that cannot be had fails the asynchronous request and no other [B120] [I29]",
          "[runtime]") {
  Runtime runtime;
  DeviceOptions options;
  options.memory_limit_bytes = 16 << 20;
  Client client = runtime.open("cpu:0", options).client();
  const std::size_t too_many = 16 << 20;
  for (auto* future : {new Future(client.async_empty<float>(too_many)),
                       new Future(client.async_zeros<float>(too_many)),
                       new Future(client.async_create<float>(Floats(too_many)))}) {
    CHECK(code_of([&] { (void)future->get(); }) == Errc::never_fits);
    delete future;
  }
  const auto overflowing = std::numeric_limits<std::size_t>::max() / 2;
  CHECK(code_of([&] { (void)client.async_empty<float>(overflowing).get(); }) == Errc::never_fits);
  const std::array<std::size_t, 3> counts{overflowing - 1, overflowing - 1, overflowing - 1};
  CHECK(code_of([&] { (void)client.async_create_many<char>(counts).get(); }) == Errc::never_fits);
  CHECK(code_of([&] { (void)client.create_many<char>(counts); }) == Errc::never_fits);
  // A failed request is the failure of the buffer in the plain forms.
  CHECK(code_of([&] { (void)client.read(client.zeros<float>(too_many)); }) == Errc::never_fits);
  CHECK(client.read(client.zeros<float>(1)) == Floats{0});
}

TEST_CASE("try_ forms post or answer that they would have to wait, and leave nothing behind [I10]",
          "[runtime]") {
  Busy busy(1);
  Client client = busy.device.client();
  const auto before = client.try_create<float>(Floats{3});  // Takes the only credit.
  REQUIRE(before);
  CHECK_FALSE(client.try_empty<float>(1));
  CHECK_FALSE(client.try_zeros<float>(1));
  CHECK_FALSE(client.try_create<float>(Floats{1}));
  CHECK_FALSE(client.try_create_many<float>(std::array<std::size_t, 1>{1}));
  CHECK_FALSE(client.try_record());
  CHECK_FALSE(client.try_record({.timing = true}));
  CHECK_FALSE(client.try_wait(busy.device.client().record()));
  CHECK_FALSE(client.try_write(*before, Floats{9}));
  busy.gate.open();
  CHECK(client.read(*before) == Floats{3});
  const auto empty = client.try_empty<float>(1);
  REQUIRE(empty);
  CHECK(code_of([&] { (void)client.read(*empty); }) == Errc::unwritten);
  const auto zeros = client.try_zeros<float>(2);
  REQUIRE(zeros);
  CHECK(client.read(*zeros) == Floats{0, 0});
  client.flush();
  REQUIRE(client.try_write(*zeros, Floats{1, 2}));
  CHECK(client.read(*zeros) == Floats{1, 2});
  client.flush();
  const auto many = client.try_create_many<float>(std::array<std::size_t, 2>{1, 2});
  REQUIRE(many);
  CHECK(many->at(1).size() == 2);
  client.flush();
  const auto event = client.try_record();
  REQUIRE(event);
  event->wait();
  client.flush();
  CHECK(client.try_wait(*event));
  busy.device.drain();
  CHECK(code_of([&] { (void)client.try_zeros<float>(1); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.try_record(); }) == Errc::closed);
}

TEST_CASE("check and restore answer asynchronously [B158]", "[runtime]") {
  Busy busy;
  Client client = busy.device.client();
  const auto x = client.create<float>({1});
  const auto y = client.empty<float>(1);
  auto later = client.async_check({x});
  CHECK_FALSE(later.ready());  // Its turn comes behind the create.
  busy.gate.open();
  CHECK(later.get() != Health::failed);
  client.launch(test::fail, 1, x, y);
  client.synchronize();
  CHECK(client.async_check({x}).get() == Health::clean);
  CHECK(client.async_check({x, y}).get() == Health::failed);
  client.async_restore({y}).get();  // Work that ran has torn its bytes: not to be taken back.
  CHECK(client.async_check({y}).get() == Health::failed);
  client.launch(test::add_one, 1, y, x);  // Skipped: never started.
  CHECK(client.async_check({x}).get() == Health::failed);
  client.async_restore({x}).get();
  CHECK(client.read(x) == Floats{1});
  CHECK(code_of([&] { (void)client.async_check({Buffer{}}).get(); }) == Errc::empty_handle);
  CHECK(code_of([&] { client.async_restore({Buffer{}}).get(); }) == Errc::empty_handle);
}

TEST_CASE("a write may take memory over asynchronously [B265]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto x = client.empty<float>(1);
  HostBytes bytes(sizeof(float));
  const float value = 4;
  std::memcpy(bytes.data(), &value, sizeof value);
  client.async_write(x, std::move(bytes)).get();
  CHECK(client.read(x) == Floats{4});
  CHECK(code_of([&] { client.async_write(x, HostBytes(3)).get(); }) == Errc::size_mismatch);
}

TEST_CASE("a capture goes through its asynchronous verbs [B101] [B109]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto x = client.zeros<float>(1);
  CHECK(code_of([&] { client.async_start_capture().get(); }) == Errc::capture_order);
  CHECK(code_of([&] { (void)client.async_stop_capture().get(); }) == Errc::capture_order);
  client.async_prepare_capture({.growth = true, .name = "step"}).get();
  CHECK(client.is_capturing());
  CHECK(code_of([&] { client.async_prepare_capture().get(); }) == Errc::capture_order);
  client.async_start_capture().get();
  const auto y = client.async_zeros<float>(1).get();
  const auto event = client.async_record().get();
  client.async_wait(event).get();
  client.async_launch(test::add_in_place, 1, x, 1.0f).get();
  CHECK(code_of([&] { (void)client.async_read(x).get(); }) == Errc::capture_refused);
  CHECK(code_of([&] { client.async_synchronize().get(); }) == Errc::capture_refused);
  const Graph graph = client.async_stop_capture().get();
  CHECK_FALSE(client.is_capturing());
  CHECK(graph.name() == "step");
  CHECK(graph.node_count() == 2);
  CHECK(client.read(x) == Floats{0});
  graph.run();
  graph.run();
  CHECK(client.read(x) == Floats{2});
  CHECK(client.read(y) == Floats{0});
  client.async_prepare_capture().get();
  client.async_start_capture().get();
  client.fill(x, 5.0f);
  client.async_abort_capture().get();
  CHECK_FALSE(client.is_capturing());
  CHECK(client.read(x) == Floats{2});
}

TEST_CASE("an asynchronous capture records in the call and ends with the graph [I24] [B94]",
          "[runtime]") {
  Busy busy;
  Client client = busy.device.client();
  const auto x = client.zeros<float>(1);
  bool called = false;
  auto sealed = client.async_capture(
      [&](Client& inside) {
        called = true;
        CHECK(inside.is_capturing());
        const auto one = inside.zeros<float>(1);
        inside.launch(test::add, 1, x, one, one);
        inside.launch(test::add_in_place, 1, x, 1.0f);
      },
      CaptureOptions{.name = "scoped"});
  CHECK(called);
  CHECK_FALSE(client.is_capturing());
  CHECK_FALSE(sealed.ready());
  busy.gate.open();
  const Graph graph = sealed.get();
  CHECK(graph.name() == "scoped");
  CHECK(graph.node_count() == 3);
  CHECK(client.read(x) == Floats{0});
  graph.run();
  CHECK(client.read(x) == Floats{1});
  CHECK(client.async_capture([](Client&) {}).get().node_count() == 0);
}

TEST_CASE("what a recording function throws ends an asynchronous capture and its window [N7]",
          "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  Client client = device.client();
  const auto x = client.create<float>({3});
  auto ended = client.async_capture([&](Client& inside) {
    inside.fill(x, 4.0f);
    throw std::runtime_error("halfway");
  });
  try {
    (void)ended.get();
    FAIL("a capture whose function threw has sealed");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::capture_doomed);
    REQUIRE(failure.record().exception);
    CHECK_THROWS_AS(std::rethrow_exception(failure.record().exception), std::runtime_error);
  }
  CHECK_FALSE(device.any_recording());
  CHECK(code_of([&] { (void)client.read(x); }) == Errc::capture_doomed);
  client.restore({x});
  CHECK(client.read(x) == Floats{3});
  try {
    (void)client.async_capture([&](Client& inside) { inside.fill(Array<float>{}, 1.0f); }).get();
    FAIL("a capture whose function threw has sealed");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::capture_doomed);
    CHECK(failure.record().root().code == Errc::empty_handle);
  }
  // An operation that could not be recorded dooms it, and says why.
  try {
    (void)client.async_capture([&](Client& inside) { inside.wait(client.record()); }).get();
    FAIL("a window with a refused operation has sealed");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::capture_doomed);
    CHECK(failure.record().root().code == Errc::capture_refused);
  }
  device.drain();
  bool called = false;
  CHECK(code_of([&] { (void)client.async_capture([&](Client&) { called = true; }).get(); }) ==
        Errc::closed);
  CHECK_FALSE(called);
}

TEST_CASE("asynchronous verbs of a closed device answer closed [I12] [I33]", "[runtime]") {
  Client client;
  Array<float> x;
  {
    Runtime runtime;
    client = runtime.open("cpu:0").client();
    x = client.zeros<float>(1);
    client.synchronize();
  }
  CHECK(code_of([&] { (void)client.async_empty<float>(1).get(); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.async_zeros<float>(1).get(); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.async_create<float>(Floats{1}).get(); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.async_check({x}).get(); }) == Errc::closed);
  CHECK(code_of([&] { client.async_restore({x}).get(); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.async_record().get(); }) == Errc::closed);
  CHECK(code_of([&] { client.async_prepare_capture().get(); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.async_stop_capture().get(); }) == Errc::closed);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using Floats = std::vector<float>;

namespace {

DeviceOptions one_worker() {
  DeviceOptions options;
  options.workers = 1;
  return options;
}

}  // namespace

TEST_CASE("drain finishes everything that was submitted and is idempotent [D5] [B5] [I31]",
          "[runtime]") {
  std::atomic<int> ran{0};
  const Kernel count{"count", [&ran](const Block&) { ++ran; }};
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  Client client = device.client();
  for (int i = 0; i < 100; ++i) client.launch(count, 1);
  device.drain();
  CHECK(ran == 100);
  device.drain();
  device.abort();
  runtime.drain();
  CHECK(code_of([&] { client.launch(count, 1); }) == Errc::closed);
  CHECK(ran == 100);
}

TEST_CASE("a device opened after its end is a fresh one [B6]", "[runtime]") {
  Runtime runtime;
  Device first = runtime.open("cpu:0");
  Client old = first.client();
  const auto x = old.create<float>({1});
  (void)old.read(x);
  CHECK(first.statistics().completed > 0);
  first.drain();
  Device second = runtime.open("cpu:0");
  CHECK(second.statistics().completed == 0);
  CHECK(second.client().read(second.client().create<float>({2})) == Floats{2});
  CHECK(code_of([&] { (void)old.read(x); }) == Errc::closed);
  CHECK(code_of([&] { (void)second.client().read(x); }) == Errc::wrong_device);
}

TEST_CASE("abort gives up what has not started and completes every future [I1] [I12] [I32]",
          "[runtime]") {
  test::Gate gate;
  std::atomic<int> ran{0};
  const Kernel hold{"hold", [&](const Block&, InOut<float>) {
                      gate.pass();
                      ++ran;
                    }};
  Runtime runtime;
  DeviceOptions options = one_worker();
  options.in_flight = 1;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  const auto x = client.zeros<float>(1);
  std::vector<Future<Floats>> reads;
  client.launch(hold, 1, x);
  gate.wait_for_arrivals();
  for (int i = 0; i < 20; ++i) client.launch(hold, 1, x);
  for (int i = 0; i < 20; ++i) reads.push_back(client.async_read(x));
  std::thread closer([&] { device.abort(); });
  // The close is a point in the order: once it shows, nothing more is taken.
  while (code_of([&] { (void)client.try_launch(test::add_in_place, 1, x, 1.0f); }) !=
         Errc::closed) {
    std::this_thread::yield();
  }
  gate.open();
  closer.join();
  int aborted = 0;
  for (auto& read : reads) {
    if (code_of([&] { (void)read.get(); }) == Errc::operation_aborted) ++aborted;
  }
  CHECK(aborted == 20);
  CHECK(ran == 1);
}

TEST_CASE("handles that outlive the runtime answer closed and are safe to drop [I33]",
          "[runtime]") {
  Client client;
  Device device;
  Array<float> x;
  Graph graph;
  Event event;
  Future<Floats> future;
  {
    Runtime runtime;
    device = runtime.open("cpu:0");
    client = device.client();
    x = client.create<float>({1});
    graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
    event = client.record();
    future = client.async_read(x);
    client.synchronize();
  }
  CHECK(future.get() == Floats{1});
  CHECK(code_of([&] { (void)client.read(x); }) == Errc::closed);
  CHECK(code_of([&] { client.write(x, Floats{2}); }) == Errc::closed);
  CHECK(code_of([&] { graph.replay(); }) == Errc::closed);
  CHECK(code_of([&] { graph.async_run().get(); }) == Errc::closed);
  CHECK(code_of([&] { event.wait(); }) == Errc::closed);
  CHECK(code_of([&] { (void)device.memory_report(); }) == Errc::closed);
  CHECK(code_of([&] { client.prepare_capture(); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.empty<float>(4); }) == Errc::closed);
  CHECK_FALSE(client.is_capturing());
  CHECK(graph.node_count() == 1);
}

TEST_CASE("a runtime ends with windows open, graphs alive and work in flight [I31] [I32]",
          "[runtime]") {
  for (int i = 0; i < 20; ++i) {
    Runtime runtime;
    Client client = runtime.open("cpu:0").client();
    Client recording = client.fork();
    const auto x = client.zeros<float>(64);
    recording.prepare_capture();
    recording.start_capture();
    recording.fill(x, 1.0f);
    Graph graph = client.capture([&](Client& c) { c.fill(x, 2.0f); });
    for (int k = 0; k < 10; ++k) {
      graph.replay();
      client.launch(test::add_in_place, 1, x, 1.0f);
    }
    CHECK(graph.statistics().replays == 10);
  }
}

TEST_CASE("submissions that race with a close are served or answered closed [I1] [I12] [D5]",
          "[runtime]") {
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> ran{0};
    const Kernel count{"count", [&ran](const Block&) { ++ran; }};
    Runtime runtime;
    DeviceOptions options;
    options.ring_capacity = 4;
    Device device = runtime.open("cpu:0", options);
    std::atomic<int> accepted{0};
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, client = device.client()] {
        ++started;
        for (int i = 0; i < 10'000; ++i) {
          if (code_of([&] { client.launch(count, 1); }) == Errc::closed) return;
          ++accepted;
        }
      });
    }
    while (started < 3) std::this_thread::yield();
    device.drain();
    for (auto& thread : threads) thread.join();
    CHECK(ran == accepted);
  }
}

TEST_CASE("a kernel that never returns makes the end answer timed_out by name [D5] [I32]",
          "[runtime]") {
  // Outlives the test: the stuck thread is left behind on purpose.
  static auto* const gate = new test::Gate;
  static const Kernel stuck{"stuck_kernel", [](const Block&, InOut<float>) { gate->pass(); }};
  auto* const runtime = new Runtime;
  Device device = runtime->open("cpu:0", one_worker());
  Client client = device.client();
  const auto x = client.zeros<float>(1);
  client.launch(stuck, 1, x);
  gate->wait_for_arrivals();
  auto pending = client.async_read(x);
  client.flush();
  try {
    device.drain(std::chrono::milliseconds(1));
    FAIL("the end of a device with a stuck kernel succeeded");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::timed_out);
    CHECK(failure.record().message.find("stuck_kernel") != std::string::npos);
  }
  CHECK(code_of([&] { (void)pending.get(); }) == Errc::timed_out);
  CHECK(code_of([&] { device.drain(); }) == Errc::timed_out);
  CHECK(code_of([&] { client.launch(stuck, 1, x); }) == Errc::closed);
  // Questions that go by the control lane are answered, too.
  CHECK(code_of([&] { (void)device.memory_report(); }) == Errc::closed);
  CHECK(code_of([&] { (void)device.trim(); }) == Errc::closed);
  gate->open();
  delete runtime;
}

TEST_CASE("a kernel that never returns on the device thread leaves nobody waiting [D5] [I31]",
          "[runtime]") {
  static auto* const gate = new test::Gate;
  static const Kernel stuck{"stuck_inside", [](const Block&, InOut<float>) { gate->pass(); }};
  auto* const runtime = new Runtime;
  DeviceOptions options;
  options.workers = 0;
  options.ring_capacity = 2;
  Device device = runtime->open("cpu:0", options);
  Client client = device.client();
  const auto x = client.zeros<float>(1);
  const Graph graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
  client.synchronize();
  client.launch(stuck, 1, x);
  gate->wait_for_arrivals();
  auto first = client.async_read(x);  // In the ring, which is full behind the next one.
  auto second = client.async_read(x);
  std::vector<std::thread> callers;
  std::atomic<int> answered{0};
  const auto call = [&](auto function) {
    callers.emplace_back([&, function] {
      const Errc code = code_of(function);
      if (code == Errc::timed_out || code == Errc::closed) ++answered;
    });
  };
  call([&] { graph.replay(); });
  call([&] { graph.run(); });
  call([&] { (void)client.read(x); });
  CHECK(code_of([&] { device.abort(std::chrono::milliseconds(1)); }) == Errc::timed_out);
  for (auto& caller : callers) caller.join();
  CHECK(answered == 3);
  CHECK(code_of([&] { (void)first.get(); }) == Errc::timed_out);
  CHECK(code_of([&] { (void)second.get(); }) == Errc::timed_out);
  CHECK(code_of([&] { (void)device.memory_report(); }) == Errc::closed);
  CHECK(code_of([&] { client.flush(); }) == Errc::closed);
  gate->open();
  delete runtime;
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <thread>
#include <vector>

using namespace reprise;
using Floats = std::vector<float>;

TEST_CASE("blocking replays that find no slot or no credit wait on their own stacks, in order "
          "[D1] [D2] [I27]",
          "[runtime][threads]") {
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  options.ring_capacity = 2;
  options.in_flight_per_stream = 1;
  options.in_flight = 2;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  const auto x = client.zeros<float>(4);
  const Graph graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) (i + t) % 3 == 0 ? graph.run() : graph.replay();
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(client.read(x) == Floats(4, 400.0f));
  CHECK(graph.statistics().replays == 400);
}

TEST_CASE("a blocking replay waits for room behind work that is held up, and is then answered "
          "[D2] [I6]",
          "[runtime][threads]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, InOut<float> x) {
                      gate.pass();
                      x[0] += 1;
                    }};
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  options.in_flight = 1;
  options.help_while_waiting = false;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  const auto x = client.zeros<float>(1);
  const Graph graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
  client.synchronize();
  client.launch(hold, 1, x);
  gate.wait_for_arrivals();
  std::thread caller([&] { graph.replay(); });
  // The one place in flight is taken: nothing more is accepted before the gate opens.
  CHECK(graph.statistics().replays == 0);
  gate.open();
  caller.join();
  CHECK(graph.statistics().replays == 1);
  CHECK(client.read(x) == Floats{2});
}

TEST_CASE("a blocking replay of a closed device answers so and gives its credit back",
          "[runtime]") {
  Runtime runtime;
  DeviceOptions options;
  options.in_flight_per_stream = 1;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  const auto x = client.zeros<float>(1);
  const Graph graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
  device.drain();
  for (int i = 0; i < 3; ++i) {
    try {
      graph.replay();
      FAIL("a closed device took a replay");
    } catch (const Failure& failure) {
      CHECK(failure.code() == Errc::closed);
    }
  }
}

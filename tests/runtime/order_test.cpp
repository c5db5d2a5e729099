// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/seed.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

using namespace reprise;
using Floats = std::vector<float>;

TEST_CASE("an input made on another thread is complete when it is used here [B54] [I4]",
          "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  Array<float> in;
  std::thread([&] { in = device.client().create<float>({10, 20, 30, 40}); }).join();
  Client client = device.client();
  const auto out = client.empty<float>(4);
  client.launch(test::add_one, grid_for(4), in, out);
  CHECK(client.read(out) == Floats{11, 21, 31, 41});
}

TEST_CASE("a hundred fills by one thread are each copied whole by another [B55] [I4] [D1]",
          "[runtime]") {
  Runtime runtime;
  DeviceOptions options;
  options.workers = 2;
  Device device = runtime.open("cpu:0", options);
  Client producer = device.client();
  Client consumer = device.client();
  const auto x = producer.empty<float>(256);
  for (int i = 0; i < 100; ++i) {
    std::thread([&] { producer.fill(x, static_cast<float>(i)); }).join();
    const auto y = consumer.empty<float>(256);
    consumer.copy(y, x);
    CHECK(consumer.read(y) == Floats(256, static_cast<float>(i)));
  }
}

TEST_CASE("disjoint slices never wait for each other", "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, Out<float> x) {
                      gate.pass();
                      x[0] = 1;
                    }};
  Runtime runtime;
  DeviceOptions options;
  options.workers = 2;
  Device device = runtime.open("cpu:0", options);
  Client one = device.client();
  Client two = device.client();
  const auto x = one.zeros<float>(2);
  one.synchronize();
  one.launch(hold, 1, x.slice(0, 1));
  gate.wait_for_arrivals();
  two.fill(x.slice(1, 1), 5.0f);
  CHECK(two.read(x.slice(1, 1)) == Floats{5});  // Hangs if it waited for the held kernel.
  gate.open();
  CHECK(two.read(x) == Floats{1, 5});
}

TEST_CASE("a kernel still running keeps its memory although every handle is gone [B50] [I16]",
          "[runtime]") {
  test::Gate gate;
  std::atomic<float> seen{0};
  const Kernel slow{"slow", [&](const Block&, In<float> x) {
                      gate.pass();
                      seen = x[7];
                    }};
  Runtime runtime;
  DeviceOptions options;
  options.workers = 2;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  Client other = device.client();
  {
    const auto x = client.create<float>(Floats(8, 3.0f));
    client.launch(slow, 1, x);
  }
  gate.wait_for_arrivals();
  for (int i = 0; i < 32; ++i) other.fill(other.empty<float>(8), 9.0f);
  other.synchronize();
  // Nobody owns it any more, and nobody gets it.
  CHECK(device.memory_report().pool.in_use == 0);
  CHECK(device.memory_report().pool.waiting >= 32);
  gate.open();
  client.synchronize();
  CHECK(seen == 3.0f);
  (void)device.trim();
  CHECK(device.memory_report().pool.waiting == 0);
}

TEST_CASE("random work on many streams gives what one stream would [I3] [I4] [I6]", "[runtime]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 6; ++round) {
    Runtime runtime;
    DeviceOptions options;
    options.workers = static_cast<std::uint32_t>(round % 3);
    options.streams = 1 + static_cast<std::uint32_t>(draw(6));
    options.in_flight = 1 + static_cast<std::uint32_t>(draw(40));
    Device device = runtime.open("cpu:0", options);
    std::vector<Client> clients;
    for (int i = 0; i < 5; ++i) clients.push_back(device.client());
    constexpr std::size_t size = 32;
    std::vector<Array<float>> arrays;
    std::vector<Floats> expected(6, Floats(size, 0.0f));
    for (int i = 0; i < 6; ++i) arrays.push_back(clients[0].zeros<float>(size));
    for (int step = 0; step < 300; ++step) {
      const Client& client = clients[draw(clients.size())];
      const std::size_t a = draw(6);
      const std::size_t b = draw(6);
      const std::size_t at = draw(size);
      const std::size_t count = 1 + draw(size - at);
      const auto value = static_cast<float>(draw(100));
      switch (draw(4)) {
        case 0:
          client.fill(arrays[a].slice(at, count), value);
          std::fill_n(expected[a].begin() + static_cast<long>(at), count, value);
          break;
        case 1:
          client.launch(test::add_in_place, 1, arrays[a].slice(at, count), value);
          for (std::size_t i = at; i < at + count; ++i) expected[a][i] += value;
          break;
        case 2:
          if (a == b) break;
          client.copy(arrays[b].slice(at, count), arrays[a].slice(at, count));
          std::copy_n(expected[a].begin() + static_cast<long>(at), count,
                      expected[b].begin() + static_cast<long>(at));
          break;
        default: REQUIRE(client.read(arrays[a]) == expected[a]);
      }
    }
    for (std::size_t i = 0; i < 6; ++i) REQUIRE(clients[i % 5].read(arrays[i]) == expected[i]);
  }
}

TEST_CASE("replays of few and of many graphs over the same bytes are in order [I4] [I25]",
          "[runtime]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  using Number = std::uint64_t;
  const Kernel mix{"mix", [](const Block&, In<Number> in, InOut<Number> sum, Number k) {
                     for (Number& each : sum) each = 3 * each + in[0] + k;
                   }};
  constexpr std::size_t size = 16;
  Runtime runtime;
  DeviceOptions options;
  options.workers = 3;
  Device device = runtime.open("cpu:0", options);
  const Client client = device.client();
  const auto in = client.zeros<Number>(size);
  const auto sums = client.zeros<Number>(size);
  std::vector<Number> expected_in(size);
  std::vector<Number> expected(size);

  struct Recorded {
    std::size_t from, at, count;
    Number k;
    Graph graph;
  };
  const auto capture = [&] {
    Recorded made{draw(size), draw(size), 0, draw(1000), {}};
    made.count = 1 + draw(size - made.at);
    made.graph = client.capture([&](Client& c) {
      c.launch(mix, 1, in.slice(made.from, 1), sums.slice(made.at, made.count), made.k);
    });
    return made;
  };
  std::vector<Recorded> graphs;
  for (int i = 0; i < 100; ++i) graphs.push_back(capture());
  for (int step = 0; step < 4000; ++step) {
    // Stretches with two graphs, with as many as know each other, and with all of them.
    const std::size_t which = draw(std::array<std::size_t, 4>{2, 30, 45, 100}[step / 100 % 4]);
    const Number value = draw(1000);
    if (draw(10) == 0) {
      client.fill(in.slice(value % size, 1), value);
      expected_in[value % size] = value;
    } else if (draw(50) == 0) {
      graphs[which] = capture();
    } else {
      const Recorded& r = graphs[which];
      r.graph.replay();
      for (std::size_t i = r.at; i < r.at + r.count; ++i) {
        expected[i] = 3 * expected[i] + expected_in[r.from] + r.k;
      }
    }
    if (step % 100 == 99) REQUIRE(client.read(sums) == expected);
  }
}

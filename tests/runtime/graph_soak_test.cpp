// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace reprise;

namespace {

#ifdef __SANITIZE_THREAD__
constexpr int scale = 10;  // Of these there is nothing to learn from so many.
#else
constexpr int scale = 1;
#endif

/// What must not grow with the number of replays or graphs that there were.
struct Held {
  explicit Held(const Device& device) {
    device.synchronize();
    (void)device.trim();
    const MemoryReport report = device.memory_report();
    reserved = report.pool.reserved;
    in_use = report.pool.in_use;
    padding = report.pool.padding;
    waiting = report.pool.waiting;
    guarded = report.pool.guarded;
    blocks = report.pool.blocks;
    staged = report.staging.in_use;
    graphs = report.graphs.size();
  }
  friend bool operator==(const Held&, const Held&) = default;

  std::uint64_t reserved, in_use, padding, waiting, guarded, blocks, staged;
  std::size_t graphs;
};

}  // namespace

TEST_CASE("a hundred thousand replays hold what one holds [I15]", "[runtime]") {
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  Device device = runtime.open("cpu:0", options);
  const Client client = device.client();
  const auto x = client.zeros<float>(8);
  const Graph graph = client.capture([&](Client& c) {
    const auto temporary = c.empty<float>(8);
    c.launch(test::add_one, 1, x, temporary);
    c.copy(x, temporary);
  });
  graph.run();
  const Held one(device);
  for (int i = 1; i < 1'000; ++i) graph.replay();
  CHECK(Held(device) == one);
  constexpr int many = 100'000 / scale;
  for (int i = 1'000; i < many; ++i) graph.replay();
  CHECK(Held(device) == one);
  CHECK(client.read(x) == std::vector<float>(8, many));
}

TEST_CASE("ten thousand graphs that are dropped give back every byte [I15] [I18]", "[runtime]") {
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  Device device = runtime.open("cpu:0", options);
  const Client client = device.client();
  const auto x = client.zeros<float>(8);
  const Held before(device);
  constexpr std::size_t many = 10'000 / scale;
  std::vector<Graph> graphs;
  for (std::size_t i = 0; i < many; ++i) {
    graphs.push_back(client.capture([&](Client& c) {
      const auto temporary = c.empty<float>(64);
      c.fill(temporary, 1.0f);
      c.launch(test::add_in_place, 1, x, 1.0f);
    }));
  }
  for (std::size_t i = 0; i < graphs.size(); i += 100) graphs[i].replay();
  const Held alive(device);
  CHECK(alive.graphs == many);
  CHECK(alive.in_use == before.in_use + many * 256);
  CHECK(alive.guarded == alive.in_use);
  CHECK(client.read(x) == std::vector<float>(8, many / 100));
  // In no order that is theirs.
  for (std::size_t i = 0; i < graphs.size(); i += 3) graphs[i] = {};
  for (std::size_t i = graphs.size(); i > 0; --i) graphs[i - 1] = {};
  CHECK(Held(device) == before);
}

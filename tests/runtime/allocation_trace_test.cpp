// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/allocation_trace.hpp>

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/kernels.hpp"
#include "support/seed.hpp"

#include <catch2/catch.hpp>

#include <pool_replay/replay.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace reprise;

namespace {

std::vector<MemoryVerb> verbs_of(const std::vector<MemoryEvent>& events) {
  std::vector<MemoryVerb> verbs;
  for (const MemoryEvent& event : events) verbs.push_back(event.verb);
  return verbs;
}

}  // namespace

TEST_CASE("a trace tells in order what happens to the memory of a device", "[runtime]") {
  std::vector<MemoryEvent> events;
  std::vector<std::uint64_t> streams;
  {
    Runtime runtime;
    DeviceOptions options;
    options.workers = 0;
    options.memory_limit_bytes = 4 << 20;
    options.allocation_trace = [&](std::span<const MemoryEvent> some) {
      events.insert(events.end(), some.begin(), some.end());
    };
    Device device = runtime.open("cpu:0", options);
    Client first = device.client();
    Client second = device.client();
    streams = {first.stream(), second.stream()};
    {
      const auto x = first.zeros<float>(100);
      const auto y = second.zeros<float>(64);
      CHECK_THROWS_AS(first.read(first.zeros<float>(std::size_t{3} << 20)), Failure);
      first.synchronize();
      second.synchronize();
    }
    CHECK(device.memory_report().pool.in_use == 0);
    CHECK(device.trim() == 2 << 20);
    runtime.drain();
  }
  using enum MemoryVerb;
  REQUIRE(verbs_of(events) ==
          std::vector<MemoryVerb>{map, allocate, allocate, refuse, free, free, unmap, trim});
  CHECK(events[0] == MemoryEvent{events[0].time_ns, streams[0], map, 2 << 20, 0});
  CHECK(events[1] == MemoryEvent{events[1].time_ns, streams[0], allocate, 400, 0});
  CHECK(events[2] == MemoryEvent{events[2].time_ns, streams[1], allocate, 256, 512});
  CHECK(events[3] == MemoryEvent{events[3].time_ns, streams[0], refuse, 12 << 20, 0});
  // A block comes back under the name of the client that asked for it.
  std::sort(events.begin() + 4, events.begin() + 6,
            [](const auto& a, const auto& b) { return a.address < b.address; });
  CHECK(events[4] == MemoryEvent{events[4].time_ns, streams[0], free, 400, 0});
  CHECK(events[5] == MemoryEvent{events[5].time_ns, streams[1], free, 256, 512});
  CHECK(events[7].bytes == 2 << 20);
}

TEST_CASE("a trace of a random run, done again on a fresh pool, ends with the same memory",
          "[runtime][sim]") {
  const std::uint64_t base = test::seed();
  for (std::uint64_t round = 0; round < 12; ++round) {
    const std::uint64_t seed = base + round;
    CAPTURE(seed);
    SeededHost host({.seed = seed});
    RuntimeOptions runtime_options;
    runtime_options.host = &host;
    const auto text = std::make_shared<std::stringstream>();
    std::uint64_t in_use = 0;
    std::uint64_t refused = 0;
    std::uint64_t peak = 0;
    {
      Runtime runtime(runtime_options);
      DeviceOptions options;
      options.workers = static_cast<std::uint32_t>(round % 3);
      options.memory_limit_bytes = 8 << 20;
      options.allocation_trace = csv_sink(text);
      Device device = runtime.open("cpu:0", options);
      const Client clients[] = {device.client(), device.client()};
      std::mt19937_64 random(seed);
      std::vector<Array<float>> kept;
      for (int i = 0; i < 400; ++i) {
        const Client& client = clients[random() % 2];
        if (kept.empty() || random() % 5 < 3) {
          kept.push_back(client.zeros<float>(1 + random() % (random() % 4 == 0 ? 400'000 : 3000)));
        } else {
          const std::size_t at = random() % kept.size();
          client.fill(kept[at], 1.0f);
          client.synchronize();  // What is dropped waits for nothing.
          std::swap(kept[at], kept.back());
          kept.pop_back();
        }
        if (random() % 50 == 0) (void)device.trim();
      }
      device.synchronize();
      const PoolStats stats = device.memory_report().pool;
      in_use = stats.in_use;
      refused = stats.failed_requests;
      peak = stats.peak_reserved;
      // Buffers that live to the end come back to nobody.
      runtime.abort();
    }
    const pool_replay::Steps steps = pool_replay::steps_of(read_csv(*text));
    const pool_replay::ReplayResult result = pool_replay::replay_on_pool(steps, {.limit = 8 << 20});
    CHECK(result.in_use == in_use);
    CHECK(steps.live_at_end == in_use);
    CHECK(result.refused == refused);
    CHECK(result.peak_reserved == peak);
    CHECK(steps.peak_reserved == peak);
    CHECK(steps.blocks > 40);
    CHECK(steps.waited == 0);
    CHECK(result.same_address == steps.blocks);
  }
}

TEST_CASE("a sink that throws is counted and loses its events only", "[runtime]") {
  int calls = 0;
  {
    Runtime runtime;
    DeviceOptions options;
    options.allocation_trace = [&](std::span<const MemoryEvent>) {
      ++calls;
      throw std::runtime_error("the disk is full");
    };
    Device device = runtime.open("cpu:0", options);
    Client client = device.client();
    for (int i = 0; i < 1000; ++i) (void)client.zeros<float>(8);
    CHECK(client.read(client.create<float>({1, 2})) == std::vector<float>{1, 2});
    runtime.drain();
  }
  CHECK(calls > 3);
}

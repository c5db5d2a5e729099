// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/kernels.hpp"
#include "support/seed.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

using namespace reprise;
using Floats = std::vector<float>;

namespace {

struct Simulation {
  Simulation(std::uint64_t seed, std::uint32_t workers, std::uint32_t in_flight = 64)
      : host(SeededOptions{.seed = seed}) {
    RuntimeOptions options;
    options.host = &host;
    runtime.emplace(options);
    DeviceOptions device_options;
    device_options.workers = workers;
    device_options.ring_capacity = 4;
    device_options.in_flight = in_flight;
    device = runtime->open("cpu:0", device_options);
  }
  SeededHost host;
  std::optional<Runtime> runtime;
  Device device;
};

}  // namespace

TEST_CASE("every schedule of capture, refresh and replay gives one result [D6] [I34]",
          "[runtime][sim]") {
  const std::uint64_t base = test::seed();
  for (std::uint64_t i = 0; i < 150; ++i) {
    const std::uint64_t seed = base + i;
    CAPTURE(seed);
    Simulation sim(seed, static_cast<std::uint32_t>(i % 3), 1 + static_cast<std::uint32_t>(i % 7));
    Client client = sim.device.client();
    Client other = sim.device.client();
    const auto in = client.create<float>({1, 2});
    const auto out = client.empty<float>(2);
    const Graph graph = client.capture([&](Client& c) {
      const auto middle = c.empty<float>(2);
      c.launch(test::add_one, 1, in, middle);
      c.launch(test::mul_two, 1, middle, out);
    });
    for (int k = 0; k < 5; ++k) {
      const auto value = static_cast<float>(k);
      other.write(in, Floats{value, value});
      graph.replay();
      auto read = client.async_read(out);
      other.write(in, Floats{-1, -1});
      REQUIRE(read.get() == Floats(2, (value + 1) * 2));
    }
    sim.device.drain();
  }
}

TEST_CASE("every schedule with failing kernels gives what the sequential rule gives [I20] [I21] "
          "[I22] [B149]",
          "[runtime][sim]") {
  const std::uint64_t base = test::seed();
  for (std::uint64_t i = 0; i < 150; ++i) {
    const std::uint64_t seed = base + i;
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](std::uint64_t n) { return random() % n; };
    Simulation sim(seed, static_cast<std::uint32_t>(i % 3),
                   1 + static_cast<std::uint32_t>(draw(20)));
    std::vector<Client> clients;
    for (int k = 0; k < 3; ++k) clients.push_back(sim.device.client());
    // The model: a value per array, or none while its last writer failed or was skipped.
    std::vector<Array<float>> arrays;
    std::vector<std::optional<float>> model(4);
    for (int k = 0; k < 4; ++k) arrays.push_back(clients[0].empty<float>(1));
    for (int step = 0; step < 60; ++step) {
      const Client& client = clients[draw(3)];
      const std::size_t a = draw(4);
      const std::size_t b = draw(4);
      const auto value = static_cast<float>(draw(50));
      switch (draw(5)) {
        case 0:
          client.write(arrays[a], Floats{value});
          model[a] = value;
          break;
        case 1:
          client.launch(test::fail, 1, arrays[a], arrays[b]);
          model[b].reset();
          break;
        case 2:
        case 3:
          client.launch(test::add_one, 1, arrays[a], arrays[b]);
          model[b] = model[a] ? std::optional<float>(*model[a] + 1) : std::nullopt;
          break;
        default: {
          std::optional<float> seen;
          try {
            seen = client.read(arrays[a])[0];
          } catch (const Failure&) {
          }
          REQUIRE(seen == model[a]);
        }
      }
    }
  }
}

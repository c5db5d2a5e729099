// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/cross_copy.hpp>

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/seed.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

namespace {

/// Two devices of one runtime, of which one may be held up.
struct Pair {
  Pair() {
    DeviceOptions options;
    options.workers = 1;
    options.help_while_waiting = false;
    from = runtime.open("cpu:0", options);
    to = runtime.open("cpu:1", options);
  }
  ~Pair() { gate.open(); }

  test::Gate gate;
  const Kernel<void(InOut<float>, float)> add_late{
      "add_late", [this](const Block&, InOut<float> x, float amount) {
        gate.pass();
        x[0] += amount;
      }};
  Runtime runtime;
  Device from;
  Device to;
};

}  // namespace

TEST_CASE("a copy from another device takes the bytes as they are at the call [D1] [I4]",
          "[runtime]") {
  Pair pair;
  Client source = pair.from.client();
  Client client = pair.to.client();
  const auto x = source.create<float>({1, 2, 3, 4});
  const auto y = client.zeros<float>(4);
  client.copy(y.slice(1, 2), x.slice(2, 2));
  source.fill(x, -1.0f);
  client.launch(test::add_in_place, 1, y, 10.0f);
  CHECK(client.read(y) == Floats{10, 13, 14, 10});
  source.copy(x, y);
  client.fill(y, -1.0f);
  CHECK(source.read(x) == Floats{10, 13, 14, 10});
  Floats many(1 << 21);
  std::iota(many.begin(), many.end(), 0.0f);
  const auto large = client.empty<float>(many.size());
  CHECK(client.try_copy(large, source.create<float>(many)));
  CHECK(client.read(large) == many);
  client.async_copy(y, source.create<float>({5, 6, 7, 8})).get();
  CHECK(client.read(y) == Floats{5, 6, 7, 8});
  client.copy(client.empty<float>(0), source.empty<float>(0));
  client.synchronize();
}

TEST_CASE(
    "a copy waits for its source without holding up other streams or the device's thread [I3] "
    "[I34]",
    "[runtime]") {
  Pair pair;
  Client source = pair.from.client();
  Client client = pair.to.client();
  Client other = pair.to.client();
  const auto x = source.create<float>({1});
  const auto y = client.zeros<float>(1);
  const auto z = client.zeros<float>(1);
  client.synchronize();
  source.launch(pair.add_late, 1, x, 1.0f);
  pair.gate.wait_for_arrivals();
  client.copy(y, x);
  client.launch(test::add_in_place, 1, y, 10.0f);
  auto later = client.async_read(y);
  const Event event = client.record();
  other.launch(test::add_in_place, 1, z, 5.0f);
  CHECK(other.read(z) == Floats{5});
  CHECK(other.check({y}) == Health::pending);
  CHECK(pair.to.memory_report().pool.in_use > 0);
  CHECK_FALSE(later.ready());
  CHECK_FALSE(event.is_done());
  auto drained = pair.to.async_drain(60s);
  CHECK_FALSE(drained.ready());
  pair.gate.open();
  CHECK(later.get() == Floats{12});
  drained.get();
}

TEST_CASE("an abort of all devices frees copies from work that another device gives up [D5] [I12]",
          "[runtime]") {
  Pair pair;
  Client source = pair.to.client();  // The one that is closed last.
  Client client = pair.from.client();
  const auto x = source.create<float>({1});
  const auto y = client.zeros<float>(1);
  client.synchronize();
  source.launch(pair.add_late, 1, x, 1.0f);
  pair.gate.wait_for_arrivals();
  for (int i = 0; i < 1100; ++i) source.launch(pair.add_late, 1, x, 1.0f);  // More than in flight.
  client.copy(y, x);
  auto read = client.async_read(y);
  client.flush();
  auto ended = pair.runtime.async_abort(60s);
  CHECK_FALSE(ended.ready());
  pair.gate.open();
  ended.get();
  CHECK(code_of([&] { (void)read.get(); }) == Errc::operation_aborted);
}

TEST_CASE("threads that copy in circles between two devices all get done [I34]",
          "[runtime][threads]") {
  Pair pair;
  pair.gate.open();
  const Client setup[2] = {pair.from.client(), pair.to.client()};
  std::vector<Array<float>> arrays[2];
  for (int d = 0; d < 2; ++d) {
    for (int k = 0; k < 4; ++k) arrays[d].push_back(setup[d].create<float>(Floats(64, 1.0f)));
    setup[d].synchronize();
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(test::seed() + t);
      const Client clients[2] = {pair.from.client(), pair.to.client()};
      for (int i = 0; i < 200; ++i) {
        const std::size_t d = random() % 2;
        clients[d].copy(arrays[d][random() % 4], arrays[1 - d][random() % 4]);
        if (i % 20 == 0 && clients[d].read(arrays[d][t]) != Floats(64, 1.0f)) ++wrong;
      }
      for (const Client& client : clients) client.synchronize();
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a source that cannot be read leaves its failure on what was to be copied [I20] [I21]",
          "[runtime]") {
  Pair pair;
  Client source = pair.from.client();
  Client client = pair.to.client();
  const auto x = source.create<float>({1});
  const auto failed = source.empty<float>(1);
  const auto y = client.create<float>({9});
  const auto z = client.empty<float>(1);
  const auto expect = [&](Errc code) {
    try {
      (void)client.read(y);
      FAIL("bytes of a source that could not be read were delivered");
    } catch (const Failure& failure) {
      CHECK(failure.errc() == code);
      CHECK(failure.record().text().find("'cpu:0'") != std::string::npos);
    }
  };
  // The copy finds the failure there, or waits for it.
  source.launch(test::fail, 1, x, failed);
  source.synchronize();
  client.copy(y, failed);
  client.launch(test::add_one, 1, y, z);
  CHECK(code_of([&] { (void)client.read(z); }) == Errc::kernel_failed);
  expect(Errc::kernel_failed);
  client.fill(y, 3.0f);
  CHECK(client.read(y) == Floats{3});
  client.copy(y, source.empty<float>(1));
  expect(Errc::unwritten);
  const auto late = source.zeros<float>(1);
  source.launch(pair.add_late, 1, late, 1.0f);
  pair.gate.wait_for_arrivals();
  source.launch(test::fail, 1, late, failed);
  client.copy(y, failed);
  client.flush();
  pair.gate.open();
  expect(Errc::kernel_failed);
  client.copy(y, x);
  CHECK(client.read(y) == Floats{1});
  pair.from.drain();
  client.copy(y, x);
  expect(Errc::closed);
}

TEST_CASE("a copy between devices is refused where it cannot be [B269] [I26]", "[runtime]") {
  Pair pair;
  Runtime elsewhere;
  Client source = pair.from.client();
  Client client = pair.to.client();
  const auto x = source.create<float>({1, 2});
  const auto y = client.create<float>({3, 4});
  const auto foreign = elsewhere.open("cpu:0").client().zeros<float>(2);
  CHECK(code_of([&] { client.copy(y, foreign); }) == Errc::wrong_device);
  CHECK(code_of([&] { client.copy(x, y); }) == Errc::wrong_device);
  CHECK(code_of([&] { client.copy(y, x.slice(0, 1)); }) == Errc::size_mismatch);
  CHECK(code_of([&] { client.copy(y, Buffer{}); }) == Errc::empty_handle);
  try {
    (void)client.capture([&](Client& inside) { inside.copy(y, x); });
    FAIL("a copy from another device was recorded");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::capture_doomed);
    CHECK(failure.record().root().code == Errc::capture_refused);
  }
  client.restore({y});
  CHECK(client.read(y) == Floats{3, 4});
}

namespace {

/// Two devices on one virtual clock, and what their arrays must hold: a value each, or none while
/// its last writer failed.
struct Model {
  explicit Model(std::uint64_t seed) : host(seed), random(seed) {
    RuntimeOptions runtime_options;
    runtime_options.host = &host;
    runtime.emplace(runtime_options);
    for (std::size_t d = 0; d < 2; ++d) {
      DeviceOptions options;
      options.workers = static_cast<std::uint32_t>(draw(3));
      options.streams = 1 + static_cast<std::uint32_t>(draw(3));
      options.in_flight = 1 + static_cast<std::uint32_t>(draw(6));
      options.ring_capacity = 4;
      const Device device = runtime->open(d == 0 ? "cpu:0" : "cpu:1", options);
      for (int k = 0; k < 2; ++k) clients.push_back(device.client());
      for (int k = 0; k < 3; ++k) {
        arrays[d].push_back(clients[2 * d].zeros<float>(1));
        values[d].emplace_back(0.0f);
      }
    }
  }

  std::size_t draw(std::uint64_t n) { return random() % n; }

  SeededHost host;
  std::mt19937_64 random;
  std::optional<Runtime> runtime;
  std::vector<Client> clients;
  std::vector<Array<float>> arrays[2];
  std::vector<std::optional<float>> values[2];
};

}  // namespace

TEST_CASE("every schedule of copies between two devices gives what the calls say [D6] [B149] [I34]",
          "[runtime][sim]") {
  for (std::uint64_t i = 0; i < 150; ++i) {
    CAPTURE(test::seed() + i);
    Model model(test::seed() + i);
    for (int step = 0; step < 40; ++step) {
      const std::size_t d = model.draw(2);
      const std::size_t a = model.draw(3);
      const std::size_t b = model.draw(3);
      const Client& client = model.clients[2 * d + model.draw(2)];
      const Array<float>& array = model.arrays[d][a];
      std::optional<float>& value = model.values[d][a];
      switch (model.draw(6)) {
        case 0:
          value = static_cast<float>(model.draw(50));
          client.write(array, Floats{*value});
          break;
        case 1:
          client.launch(test::add_in_place, 1, array, 1.0f);
          if (value) *value += 1;
          break;
        case 2:
          if (a == b) break;
          client.launch(test::fail, 1, model.arrays[d][b], array);
          value.reset();
          break;
        case 3:
        case 4:
          client.copy(array, model.arrays[1 - d][b]);
          value = model.values[1 - d][b];
          break;
        default: {
          std::optional<float> seen;
          try {
            seen = client.read(array)[0];
          } catch (const Failure&) {
          }
          REQUIRE(seen == value);
        }
      }
    }
    model.runtime->drain();
  }
}

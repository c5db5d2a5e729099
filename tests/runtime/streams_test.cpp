// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>
#include <vector>

using namespace reprise;
using Floats = std::vector<float>;

namespace {

struct Bench {
  explicit Bench(std::uint32_t workers) {
    DeviceOptions options;
    options.workers = workers;
    options.streams = 4;
    options.help_while_waiting = false;
    device = runtime.open("cpu:0", options);
  }
  Runtime runtime;
  Device device;
};

/// Writes `x` once the gate is open.
auto held_write(test::Gate& gate) {
  return Kernel{"held_write", [&gate](const Block&, Out<float> x) {
                  gate.pass();
                  for (float& value : x) value = 7;
                }};
}

}  // namespace

TEST_CASE("a command waits for the streams that touched its bytes, once [B46] [B47] [B48] [B49]",
          "[runtime]") {
  test::Gate gate;
  Bench bench(3);
  const Client one = bench.device.client();
  const Client two = bench.device.client();
  const auto b1 = one.empty<float>(1);
  const auto b2 = two.empty<float>(1);
  const auto b3 = one.empty<float>(1);
  one.synchronize();
  two.synchronize();
  const auto held = held_write(gate);
  one.launch(held, 1, b1);
  two.launch(held, 1, b2);
  one.flush();
  const auto waits = [&] { return bench.device.statistics().waits_made; };
  const auto elided = [&] { return bench.device.statistics().waits_elided; };
  const std::uint64_t before = waits();
  one.launch(test::add_one, 1, b1, b3);  // All on its own stream: nothing to wait for.
  one.flush();
  CHECK(waits() == before);
  one.launch(test::add, 1, b1, b2, b3);  // Of two inputs, one is another stream's.
  one.flush();
  CHECK(waits() == before + 1);
  CHECK(elided() == 0);
  const auto b4 = one.empty<float>(1);
  one.launch(test::add_one, 1, b2, b4);  // What it has waited for it need not wait for again.
  one.flush();
  CHECK(waits() == before + 1);
  CHECK(elided() == 1);
  gate.open();
  CHECK(one.read(b3) == Floats{14});
  CHECK(two.read(b4) == Floats{8});
}

TEST_CASE("memory of another stream stays until its consumer is done, waited for or not [B51] "
          "[I16]",
          "[runtime]") {
  test::Gate gate;
  Bench bench(3);
  const Client one = bench.device.client();
  const Client two = bench.device.client();
  auto first = one.create<float>(Floats(16, 1.0f));
  auto second = one.create<float>(Floats(16, 2.0f));
  one.synchronize();
  const auto out = two.empty<float>(16);
  two.launch(test::add_one, 1, first, out);
  two.synchronize();  // Two has seen all that one did so far.
  const Kernel held_read{"held_read", [&gate](const Block&, In<float> in, Out<float> result) {
                           gate.pass();
                           for (std::size_t i = 0; i < in.size(); ++i) result[i] = in[i];
                         }};
  two.launch(held_read, 1, second, out);
  gate.wait_for_arrivals();
  first = {};
  second = {};
  // 64 bytes each; whatever is asked for now is carved elsewhere while the kernel reads.
  std::vector<Array<float>> others;
  for (int i = 0; i < 8; ++i) others.push_back(one.create<float>(Floats(16, 9.0f)));
  one.synchronize();
  gate.open();
  CHECK(two.read(out) == Floats(16, 2.0f));
}

TEST_CASE("a read from another stream waits for all of a long chain [B57]", "[runtime]") {
  Bench bench(2);
  const Client one = bench.device.client();
  const Client two = bench.device.client();
  const Kernel step{"step", [](const Block& block, InOut<float> x) {
                      for (const std::size_t i : block.range(x.size())) x[i] += 2 * float(i + 1);
                    }};
  constexpr std::size_t size = 4096;
  const auto x = one.create<float>(Floats(size, 5.0f));
  for (int i = 0; i < 300; ++i) one.launch(step, grid_for(size), x);
  const Floats got = two.read(x);
  CHECK(got[0] == 605.0f);
  CHECK(got[size - 1] == 5.0f + 300 * 2 * 4096.0f);
}

TEST_CASE("inputs that another thread's stream makes anew are each read whole [B56]", "[runtime]") {
  Bench bench(2);
  const Client maker = bench.device.client();
  const Client user = bench.device.client();
  const auto in = maker.zeros<float>(64);
  const auto scale = maker.zeros<float>(1);
  const auto out = user.empty<float>(64);
  const Kernel times{"times", [](const Block& block, In<float> x, In<float> by, Out<float> result) {
                       for (const std::size_t i : block.range(x.size())) result[i] = x[i] * by[0];
                     }};
  for (int i = 1; i <= 50; ++i) {
    maker.fill(in, float(i));
    maker.fill(scale, float(i + 1));
    user.launch(times, grid_for(64), in, scale, out);
    REQUIRE(user.read(out) == Floats(64, float(i * (i + 1))));
  }
}

TEST_CASE("what a failure leaves is the failure itself, and goes with the next write [B143] [B144]",
          "[runtime]") {
  Bench bench(1);
  const Client client = bench.device.client();
  const auto in = client.zeros<float>(4);
  const auto out = client.empty<float>(4);
  std::weak_ptr<const FailureRecord> record;
  {
    client.launch(test::fail, 1, in, out);
    client.synchronize();
    const FailurePtr failure = client.failure(out);
    REQUIRE(failure != nullptr);
    CHECK(failure->code == Errc::kernel_failed);
    const FailureRecord* root = failure.get();
    while (root->cause) root = root->cause.get();
    CHECK(root->message.find("boom") != std::string::npos);
    record = failure->cause ? failure->cause : failure;
  }
  CHECK_FALSE(record.expired());
  client.fill(out, 1.0f);
  CHECK(client.read(out) == Floats(4, 1.0f));
  CHECK(client.failure(out) == nullptr);
  // Its exception dies on the courier, so the record may be kept for that alone.
  CHECK(client.check({out}) == Health::clean);
}

TEST_CASE("a list of good and failed buffers is failed, and only the failed one does not read "
          "[B141] [B189]",
          "[runtime]") {
  Runtime runtime;
  DeviceOptions options;
  options.memory_limit_bytes = 16 << 20;
  Device device = runtime.open("cpu:0", options);
  const Client client = device.client();
  const auto good = client.zeros<float>(4);
  client.synchronize();
  {
    const auto huge = client.empty<std::uint8_t>(1 << 30);
    CHECK(client.check({huge, good}) == Health::failed);
    CHECK(client.check({good}) == Health::clean);
    CHECK(client.failure(good) == nullptr);
    const FailurePtr failure = client.failure(huge);
    REQUIRE(failure != nullptr);
    CHECK((failure->code == Errc::over_limit || failure->code == Errc::never_fits));
    CHECK_THROWS_AS(client.read(huge), Failure);
  }
  CHECK(client.read(good) == Floats(4, 0.0f));
  CHECK(device.memory_report().pool.in_use == 16);
}

TEST_CASE("a window is doomed by what fails in it, and keeps exactly what was recorded [B147] "
          "[B148]",
          "[runtime]") {
  Bench bench(1);
  const Client client = bench.device.client();
  const auto x = client.zeros<float>(4);
  const auto y = client.zeros<float>(4);
  const auto untouched = client.zeros<float>(4);
  client.synchronize();
  client.prepare_capture();
  client.start_capture();
  client.launch(test::add_one, 1, x, y);
  client.launch(Kernel{"no_grid", [](const Block&, InOut<float>) {}}, Grid{0}, untouched);
  const Graph graph = client.stop_capture();
  CHECK(graph.node_count() == 1);
  CHECK(graph.guarded_bytes() == 32);
  client.prepare_capture();
  client.start_capture();
  client.launch(test::add_one, 1, client.empty<float>(4), y);
  try {
    (void)client.stop_capture();
    FAIL("a window with an operation that failed has sealed");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::capture_doomed);
  }
  CHECK(client.check({x, untouched}) == Health::clean);
}

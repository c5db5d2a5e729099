// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

using namespace reprise;
using Bytes = std::vector<std::uint8_t>;

namespace {

constexpr std::size_t megabyte = std::size_t{1} << 20;

/// A device whose memory holds one large buffer and no second one.
struct Bench {
  explicit Bench(std::uint32_t workers = 2) {
    DeviceOptions options;
    options.workers = workers;
    options.streams = 4;
    options.help_while_waiting = false;
    options.memory_limit_bytes = 16 * megabyte;
    device = runtime.open("cpu:0", options);
  }
  static constexpr std::size_t large = 12 * megabyte;

  Runtime runtime;
  Device device;
};

}  // namespace

TEST_CASE("memory dropped under a running kernel goes to another stream with a wait on the device "
          "[I16] [B50]",
          "[runtime][threads]") {
  test::Gate gate;
  std::atomic<int> seen{-1};
  const Kernel slow{"slow", [&](const Block&, In<std::uint8_t> x) {
                      gate.pass();
                      seen = x[Bench::large - 1];
                    }};
  Bench bench;
  const Client client = bench.device.client();
  const Client other = bench.device.client();
  {
    const auto x = client.empty<std::uint8_t>(Bench::large);
    client.fill(x, 3);
    client.launch(slow, 1, x);
  }
  gate.wait_for_arrivals();
  CHECK(bench.device.memory_report().pool.waiting == Bench::large);
  CHECK(bench.device.memory_report().pool.in_use == 0);
  const auto y = other.empty<std::uint8_t>(Bench::large);  // There is no other place for it.
  other.fill(y, 9);
  other.flush();  // Accepted, though it cannot run yet.
  const MemoryReport report = bench.device.memory_report();
  CHECK(report.pool.waits_made == 1);
  CHECK(report.pool.waiting == 0);
  CHECK(report.pool.in_use == Bench::large);
  CHECK(seen == -1);
  gate.open();
  CHECK(other.read(y.slice(Bench::large - 1, 1)) == Bytes{9});
  CHECK(seen == 3);
}

TEST_CASE("a stream takes the memory that it dropped itself at once and without a wait [B50]",
          "[runtime][threads]") {
  test::Gate gate;
  const Kernel held{"held", [&](const Block&, Out<std::uint8_t> x) {
                      gate.pass();
                      for (std::uint8_t& byte : x) byte = 1;
                    }};
  Bench bench;
  const Client client = bench.device.client();
  client.launch(held, 1, client.empty<std::uint8_t>(Bench::large));
  gate.wait_for_arrivals();
  // A hundred times what there is, none of it finished.
  for (int i = 0; i < 100; ++i) {
    const auto x = client.empty<std::uint8_t>(Bench::large);
    client.fill(x.slice(0, 64), static_cast<std::uint8_t>(i));
  }
  const auto last = client.empty<std::uint8_t>(Bench::large);
  client.fill(last, 5);
  client.flush();
  CHECK(bench.device.memory_report().pool.reuses_same_stream == 101);
  CHECK(bench.device.memory_report().pool.waits_made == 0);
  gate.open();
  CHECK(client.read(last.slice(0, 2)) == Bytes{5, 5});
}

TEST_CASE("what failed on memory that has a new owner meanwhile is no failure of that owner's "
          "[I20] [I16]",
          "[runtime][threads]") {
  test::Gate gate;
  const Kernel fails{"fails", [&](const Block&, Out<std::uint8_t> x) {
                       gate.pass();
                       x[0] = 77;
                       throw std::runtime_error("asked to fail");
                     }};
  Bench bench;
  const Client client = bench.device.client();
  const Client other = bench.device.client();
  client.launch(fails, 1, client.empty<std::uint8_t>(Bench::large));
  gate.wait_for_arrivals();
  const auto written = other.empty<std::uint8_t>(Bench::large);
  other.fill(written.slice(0, 8), 2);
  other.flush();
  gate.open();
  CHECK(other.read(written.slice(0, 2)) == Bytes{2, 2});
  CHECK(other.check({written.slice(0, 8)}) == Health::clean);
  // What the new owner never wrote is not told as the old one's failure either.
  const FailurePtr rest = other.failure(written.slice(8, 8));
  REQUIRE(rest != nullptr);
  CHECK(rest->code == Errc::unwritten);
}

TEST_CASE("a graph made on memory that an old kernel still uses replays behind that kernel [I16] "
          "[I24]",
          "[runtime][threads]") {
  test::Gate gate;
  std::atomic<int> seen{-1};
  const Kernel slow{"slow", [&](const Block&, In<std::uint8_t> x) {
                      gate.pass();
                      seen = x[0];
                    }};
  Bench bench(3);
  const Client client = bench.device.client();
  {
    const auto x = client.empty<std::uint8_t>(Bench::large);
    client.fill(x, 3);
    client.launch(slow, 1, x);
  }
  gate.wait_for_arrivals();
  Array<std::uint8_t> y;
  const Graph graph = client.capture([&](Client& inside) {
    y = inside.empty<std::uint8_t>(Bench::large);
    inside.fill(y, 9);
  });
  graph.replay();
  CHECK(seen == -1);
  gate.open();
  CHECK(client.read(y.slice(0, 2)) == Bytes{9, 9});
  CHECK(seen == 3);
}

TEST_CASE("memory that was dropped before it is asked for is found, whoever dropped it [D1]",
          "[runtime][threads]") {
  Bench bench;
  const Client client = bench.device.client();
  const auto small = client.empty<std::uint8_t>(8);
  auto x = client.empty<std::uint8_t>(Bench::large);
  for (int i = 0; i < 100; ++i) {
    // The device has enough to do not to look for drops in between.
    for (int k = 0; k < 40; ++k) client.fill(small, 1);
    if (i % 2 == 0) {
      x = {};
    } else {
      std::thread([old = std::move(x)]() mutable { old = {}; }).join();
    }
    x = client.empty<std::uint8_t>(Bench::large);
    CHECK(client.failure(x)->code == Errc::unwritten);  // And not that there is no memory.
  }
}

TEST_CASE("a report knows of every drop before it, whoever dropped [D1]", "[runtime][threads]") {
  Bench bench;
  const Client client = bench.device.client();
  for (int i = 0; i < 200; ++i) {
    std::vector<std::thread> threads;
    for (int k = 0; k < 3; ++k) {
      threads.emplace_back([old = client.empty<std::uint8_t>(64)]() mutable { old = {}; });
    }
    client.flush();
    for (std::thread& thread : threads) thread.join();
    CHECK(bench.device.memory_report().pool.in_use == 0);
  }
}

TEST_CASE("foreign memory is handed back when the last kernel on it is done [I16]",
          "[runtime][threads]") {
  test::Gate gate;
  test::Gate released;
  const Kernel held{"held", [&](const Block&, Out<std::uint8_t> x) {
                      gate.pass();
                      x[0] = 1;
                    }};
  Bench bench;
  const Client client = bench.device.client();
  Bytes memory(64);
  {
    const Buffer lent =
        client.import_memory(memory.data(), memory.size(), [&](void*) { released.pass(1); });
    client.launch(held, 1, lent.as<std::uint8_t>());
  }
  gate.wait_for_arrivals();
  client.flush();
  (void)bench.device.memory_report();
  CHECK(released.arrivals() == 0);
  gate.open();
  released.wait_for_arrivals();
  CHECK(memory[0] == 1);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace reprise;
using Floats = std::vector<float>;

namespace {

const GraphMemory& named(const MemoryReport& report, const std::string& name) {
  const auto found = std::find_if(report.graphs.begin(), report.graphs.end(),
                                  [&](const GraphMemory& graph) { return graph.name == name; });
  REQUIRE(found != report.graphs.end());
  return *found;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a memory report says which graph guards which bytes and what for [I18]", "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  Client client = device.client();
  const auto shared = client.create<float>(Floats(100, 1));
  std::optional<Array<float>> y{client.zeros<float>(64)};
  const auto z = client.zeros<float>(32);
  std::optional<Graph> first = client.capture(
      [&](Client& c) { c.launch(test::add_one, 1, shared.slice(0, 64), *y); }, {.name = "first"});
  std::optional<Graph> second = client.capture(
      [&](Client& c) {
        c.launch(test::add_one, 1, shared.slice(32, 32), z);
        c.launch(test::add_in_place, 1, z, 1.0f);
        c.write(z.slice(0, 1), Floats{4});
      },
      {.name = "second"});
  const MemoryReport report = device.memory_report();
  CHECK(report.pool.guarded == 400 + 256 + 128);
  CHECK(report.guarded_by_graphs() == report.pool.guarded);
  const GraphMemory& one = named(report, "first");
  CHECK(one.guarded_bytes == 656);
  CHECK(one.shared_bytes == 400);
  CHECK(one.retained_bytes == 0);
  const std::uint64_t at_y = one.ranges.at(1).bytes.begin;
  CHECK(one.ranges == std::vector<GuardedRange>{{{0, 400}, Access::reads, 256, 1},
                                                {{at_y, at_y + 256}, Access::may_write, 256, 0}});
  const GraphMemory& two = named(report, "second");
  CHECK(two.guarded_bytes == 528);
  CHECK(two.retained_bytes == 4);
  CHECK(two.ranges.at(0) == GuardedRange{{0, 400}, Access::reads, 128, 1});
  CHECK(two.ranges.at(1).access == (Access::reads | Access::may_write));

  // What the first alone guarded goes with it and its buffer, which no command uses any more.
  client.synchronize();
  y.reset();
  first.reset();
  const MemoryReport after = device.memory_report();
  CHECK(after.pool.guarded == 528);
  CHECK(after.guarded_by_graphs() == 528);
  CHECK(named(after, "second").shared_bytes == 0);
  CHECK(after.pool.in_use == 400 + 128);
}

TEST_CASE("a picture of a device shows buffers, guards and failures and is the same twice",
          "[runtime]") {
  const auto draw = [] {
    Runtime runtime;
    DeviceOptions options;
    options.memory_limit_bytes = 64 << 20;
    Device device = runtime.open("cpu:0", options);
    Client client = device.client();
    const auto x = client.create<float>(Floats(100'000, 1));
    const auto y = client.empty<float>(100'000);
    const auto z = client.empty<float>(50'000);
    const Graph graph =
        client.capture([&](Client& c) { c.launch(test::add_one, 1, x, y); }, {.name = "<step>"});
    client.launch(test::fail, 1, x, y);
    client.launch(test::add_one, 1, y.slice(0, 50'000), z);
    client.synchronize();
    return device.memory_picture();
  };
  const std::string svg = draw();
  CHECK(svg == draw());
  CHECK(count(svg, "edge live") == 3);
  CHECK(count(svg, "pointer-events") == 1);  // Two guarded buffers, side by side.
  CHECK(count(svg, "class=\"ran\"") == 2);
  CHECK(count(svg, "class=\"held\"") == 2);
  CHECK(count(svg, "boom") == 2);
  CHECK(count(svg, "&lt;step&gt;") == 1);
}

TEST_CASE("reports of a closed device answer closed [I33]", "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  device.drain();
  for (const bool picture : {false, true}) {
    try {
      if (picture) {
        (void)device.memory_picture();
      } else {
        (void)device.memory_report();
      }
      FAIL("the device was closed");
    } catch (const Failure& failure) {
      CHECK(failure.errc() == Errc::closed);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async.hpp>
#include <reprise/runtime/graph_builder.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

using namespace reprise;
using Catch::Contains;
using reprise::test::code_of;
using test::add_one;
using Numbers = std::vector<std::uint32_t>;

namespace {

/// Each block of one thread counts itself.
const Kernel tick{"tick",
                  [](Block block, Update<std::uint32_t> blocks) { ++blocks[block.linear()]; }};

struct Bench {
  explicit Bench(std::uint32_t workers) {
    DeviceOptions options;
    options.workers = workers;
    device = runtime.open("cpu:0", options);
    client = device.client();
  }
  Runtime runtime;
  Device device;
  Client client;
};

/// What `blocks` blocks have left, of as many as `size` at most.
Numbers ticked(std::size_t size, std::size_t blocks, std::uint32_t times = 1) {
  Numbers expected(size);
  std::fill_n(expected.begin(), std::min(size, blocks), times);
  return expected;
}

}  // namespace

TEST_CASE("a launch runs as many blocks as the device says when its turn comes [I25]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 3u));
  const Client& client = bench.client;
  const auto form = GENERATE(0, 1, 2, 3);
  CAPTURE(form);
  const auto count = client.create<std::uint32_t>({7});
  const auto blocks = client.zeros<std::uint32_t>(60);
  const IndirectGrid grid{Grid(Dim3{4, 5, 3}, Dim3{1}), count};
  const Client other = client.fork();
  for (const std::uint32_t asked : {7u, 0u, 1u, 59u, 60u, 61u, ~0u}) {
    client.fill(blocks, 0u);
    other.write(count, Numbers{asked});
    if (form == 0) client.launch(tick, grid, blocks);
    if (form == 1) CHECK(client.try_launch(tick, grid, blocks));
    if (form == 2) client.async_launch(tick, grid, blocks).get();
    if (form == 3) {
      client.async_launch(tick, grid, blocks, [](boost::system::error_code) {});
    }
    other.write(count, Numbers{3});  // Behind the launch.
    CHECK(client.read(blocks) == ticked(60, asked));
  }
}

TEST_CASE("a replay runs as many blocks as its count says then, not as it said at capture [B105]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto count = client.create<std::uint32_t>({1});
  const auto x = client.zeros<std::uint32_t>(4);
  const Kernel mark{"mark",
                    [](Block block, Update<std::uint32_t> marks) { marks[block.index.x] = 7; }};
  const Graph graph = client.capture([&](Client& c) {
    c.launch(mark, IndirectGrid{Grid(4), count}, x);
  });
  graph.run();
  CHECK(client.read(x) == Numbers{7, 0, 0, 0});
  client.write(count, Numbers{3});
  graph.run();
  CHECK(client.read(x) == Numbers{7, 7, 7, 0});
}

TEST_CASE("an earlier kernel says how much of a later one runs, in a graph too [I24] [I25]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  // Keeps what is even and says how many blocks of 2 that needs.
  const Kernel keep_even{"keep_even", [](Block, In<std::uint32_t> in, Update<std::uint32_t> out,
                                         Out<std::uint32_t> count) {
                           std::size_t kept = 0;
                           for (const std::uint32_t each : in) {
                             if (each % 2 == 0) out[kept++] = each;
                           }
                           count[0] = static_cast<std::uint32_t>((kept + 1) / 2);
                         }};
  const Kernel halve{"halve", [](Block block, InOut<std::uint32_t> x) {
                       for (const std::size_t i : block.range(x.size())) x[i] /= 2;
                     }};
  const auto in = client.create<std::uint32_t>({8, 1, 6, 3, 4, 5});
  const auto count = client.empty<std::uint32_t>(1);
  const auto kept = client.zeros<std::uint32_t>(6);
  const auto any = client.zeros<std::uint32_t>(1);
  const Grid pairs = grid_for(6, 2);
  const auto submit = [&](const Client& c) {
    c.fill(kept, 9u);
    c.launch(keep_even, 1, in, kept, count);
    c.launch(halve, IndirectGrid{pairs, count}, kept);
    c.launch(tick, IndirectGrid{Grid(1), count}, any);
  };
  submit(client);
  CHECK(client.read(kept) == Numbers{4, 3, 2, 4, 9, 9});
  CHECK(client.read(count) == Numbers{2});
  CHECK(client.read(any) == Numbers{1});

  Graph recorded = client.capture([&](Client& c) { submit(c); });
  GraphBuilder builder;
  const auto scratch = builder.placeholder<std::uint32_t>("count", 1);
  builder.add_fill(kept, 9u);
  builder.add_kernel(keep_even, 1, in, kept, scratch);
  const GraphNode last = builder.add_kernel(halve, IndirectGrid{pairs, scratch}, kept);
  const GraphNode one = builder.add_kernel(tick, IndirectGrid{Grid(1), scratch}, any);
  CHECK(builder.spec().order().after[last.index] == Numbers{1});
  CHECK(builder.spec().order().after[one.index] == Numbers{1});
  CHECK_THAT(builder.to_dot(), Contains("kernel 'halve' up to 3x1x1 blocks"));
  CHECK(builder.instantiate().node_count() == 4);
  const Graph built = builder.instantiate(client, {{scratch, client.zeros<std::uint32_t>(1)}});
  for (const Graph& graph : {recorded, built}) {
    CHECK_THAT(graph.to_dot(), Contains("launch 'halve' up to 3x1x1 blocks"));
    client.fill(any, 0u);
    client.write(in, Numbers{8, 1, 6, 3, 4, 5});
    graph.run();
    CHECK(client.read(kept) == Numbers{4, 3, 2, 4, 9, 9});
    client.write(in, Numbers{1, 1, 1, 1, 1, 1});
    graph.run();
    CHECK(client.read(kept) == Numbers(6, 9));
    client.write(in, Numbers(6, 4));
    graph.run();
    CHECK(client.read(kept) == Numbers(6, 2));
    CHECK(client.read(any) == Numbers{2});
  }
}

TEST_CASE("the count of a launch may be a slot [I25]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const std::uint32_t most = GENERATE(1u, 9u);
  const auto count = client.create<std::uint32_t>({1});
  const auto other = client.create<std::uint32_t>({0});
  const auto blocks = client.zeros<std::uint32_t>(9);
  const Graph graph = client.capture([&](Client& c) {
    c.slot("count", count);
    c.fill(blocks, 0u);
    c.launch(tick, IndirectGrid{Grid(most), count}, blocks);
  });
  graph.run({{"count", other}});
  CHECK(client.read(blocks) == Numbers(9));
  client.write(other, Numbers{9});
  graph.run({{"count", other}});
  CHECK(client.read(blocks) == ticked(9, most));
  graph.run();
  CHECK(client.read(blocks) == ticked(9, 1));
}

TEST_CASE("blocks that may be left out write nothing for certain [I20] [I22]", "[runtime]") {
  Bench bench(GENERATE(0u, 1u));
  const Client& client = bench.client;
  const auto count = client.create<std::uint32_t>({2});
  const auto in = client.create<float>({1, 2});
  const auto out = client.empty<float>(2);
  const IndirectGrid grid{grid_for(2, 1), count};
  client.launch(add_one, grid, in, out);
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::unwritten);
  client.fill(out, 0.0f);
  client.launch(add_one, grid, in, out);
  CHECK(client.read(out) == std::vector<float>{2, 3});

  // The count is an input like others.
  client.launch(add_one, IndirectGrid{grid_for(2, 1), client.empty<std::uint32_t>(1)}, in, out);
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::unwritten);
  client.fill(out, 0.0f);

  // One block of three fails: the rest of what was to be written is suspect, too.
  const Kernel third_fails{"third_fails", [](Block block, Out<float> x) {
                             if (block.index.x == 2) throw std::runtime_error("the third");
                             x[block.index.x] = 5;
                           }};
  client.write(count, Numbers{2});
  client.launch(third_fails, IndirectGrid{Grid(3), count}, out);
  CHECK(client.read(out) == std::vector<float>{5, 5});
  client.write(count, Numbers{3});
  client.launch(third_fails, IndirectGrid{Grid(3), count}, out);
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::kernel_failed);
  CHECK(client.read(count) == Numbers{3});
}

TEST_CASE("a count that does not fit is told by the call [O4] [Xj]", "[runtime]") {
  Bench bench(1);
  const Client& client = bench.client;
  const auto two = client.zeros<std::uint32_t>(2);
  const auto blocks = client.zeros<std::uint32_t>(4);
  const auto launch = [&](const Array<std::uint32_t>& count) {
    return [&client, &blocks, count] { client.launch(tick, IndirectGrid{Grid(4), count}, blocks); };
  };
  CHECK(code_of(launch(two)) == Errc::size_mismatch);
  CHECK(code_of(launch(two.slice(0, 0))) == Errc::size_mismatch);
  CHECK(code_of(launch({})) == Errc::empty_handle);
  const Client other = bench.runtime.open("cpu:1").client();
  CHECK(code_of(launch(other.zeros<std::uint32_t>(1))) == Errc::wrong_device);
  CHECK(code_of([&] {
          client.async_launch(tick, IndirectGrid{Grid(4), two}, blocks).get();
        }) == Errc::size_mismatch);
  // An empty grid stays one, whatever the count says; a grid beyond the device fails its outputs.
  const auto one = client.create<std::uint32_t>({1});
  client.launch(tick, IndirectGrid{Grid(0), one}, blocks);
  CHECK(client.read(blocks) == Numbers(4));
  client.launch(tick, IndirectGrid{Grid(Dim3{1, 1, 0x20000}), one}, blocks);
  CHECK(code_of([&] { (void)client.read(blocks); }) == Errc::invalid_argument);

  GraphBuilder builder;
  const auto wide = builder.placeholder<std::uint32_t>("wide", 3);
  CHECK(code_of([&] {
          builder.add_kernel(tick, IndirectGrid{Grid(4), wide}, wide);
        }) == Errc::size_mismatch);
  CHECK(code_of([&] {
          GraphBuilder().add_kernel(tick, IndirectGrid{Grid(4), wide.slice(0, 1)}, blocks);
        }) == Errc::invalid_argument);
  CHECK(builder.node_count() == 0);
  builder.add_kernel(tick, IndirectGrid{Grid(4), wide.slice(1, 1)}, wide);
  CHECK(code_of([&] {
          (void)builder.instantiate(client, {{wide, other.zeros<std::uint32_t>(3)}});
        }) == Errc::wrong_device);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_builder.hpp>

#include <reprise/runtime/runtime.hpp>

#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using namespace reprise;
using Catch::Contains;
using test::add;
using test::add_in_place;
using test::add_one;
using test::fail_if;
using test::mul_two;
using Floats = std::vector<float>;

namespace {

/// What a call failed with; a record with code 0 if it did not.
template <class F>
FailureRecord failure_of(F&& f) {
  try {
    f();
  } catch (const Failure& failure) {
    return failure.record();
  }
  FailureRecord record;
  record.code = Errc{};
  return record;
}
template <class F>
Errc code_of(F&& f) {
  return failure_of(std::forward<F>(f)).code;
}

struct Bench {
  explicit Bench(std::uint32_t workers = 1) {
    DeviceOptions options;
    options.workers = workers;
    device = runtime.open("cpu:0", options);
    client = device.client();
  }
  Runtime runtime;
  Device device;
  Client client;
};

}  // namespace

TEST_CASE("without a device a graph by hand can be looked at and not be replayed [O6] [O9]",
          "[runtime]") {
  GraphBuilder builder({.name = "step"});
  const auto x = builder.placeholder<float>("x", 256);
  const auto y = builder.placeholder<float>("y", 256);
  const GraphNode fill = builder.add_fill(x, 1.5f);
  const GraphNode kernel = builder.add_kernel(add_one, grid_for(256), x, y);
  const GraphNode copy = builder.add_copy(x.slice(0, 128), y.slice(128, 128));
  const GraphNode host = builder.add_host({.reads = {x}}, [] {});
  const GraphNode end = builder.add_empty();
  builder.set_name(end, "end");
  builder.depend(end, {copy, host});
  builder.depend(end, {copy});
  CHECK(builder.node_count() == 5);
  CHECK(builder.edge_count() == 2);
  CHECK(builder.spec().order().order == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(fill == GraphNode{0});
  CHECK(kernel == GraphNode{1});
  CHECK_THAT(builder.to_dot(), Contains("digraph \"step\"") && Contains("end"));

  const Graph graph = builder.instantiate();
  CHECK(graph);
  CHECK_FALSE(graph.has_device());
  CHECK(graph.name() == "step");
  CHECK(graph.node_count() == 5);
  CHECK(graph.edge_count() == builder.spec().order().edge_count());
  CHECK(graph.guarded_bytes() == 0);
  CHECK_THAT(graph.to_dot(), Contains("add_one") && Contains("n0 -> n1"));
  std::ostringstream text;
  text << graph;
  CHECK_THAT(text.str(), Contains("5 nodes") && Contains("(end)"));
  const auto refused = failure_of([&] { graph.replay(); });
  CHECK(refused.code == Errc::not_initialized);
  CHECK(refused.node == "step");
  CHECK(code_of([&] { graph.run(); }) == Errc::not_initialized);
  CHECK(code_of([&] { (void)graph.try_replay(); }) == Errc::not_initialized);
  CHECK(graph.statistics().replays == 0);

  CHECK(GraphBuilder().instantiate().node_count() == 0);
  CHECK(code_of([] { GraphBuilder().instantiate().replay(); }) == Errc::not_initialized);
  CHECK(code_of([] { Graph().replay(); }) == Errc::empty_graph);
}

TEST_CASE("a graph by hand does on the device what its nodes say [O10] [O11] [Xk] [I24] [I25]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 2u));
  const Client& client = bench.client;
  const auto in = client.create<float>(Floats(1000, 1.0f));
  const auto out = client.create<float>(Floats(1000, -1.0f));
  int calls = 0;
  GraphBuilder builder({.name = "step"});
  const auto scratch = builder.placeholder<float>("scratch", 1000);
  builder.add_kernel(add_one, grid_for(1000), in, scratch);
  builder.add_kernel(mul_two, grid_for(1000), scratch, out);
  builder.add_kernel(add_in_place, grid_for(1000), out, 0.5);
  builder.add_host({.reads = {out}}, [&] { ++calls; });
  builder.add_fill(scratch.slice(0, 10), 7.0f);
  builder.add_copy(out.slice(0, 10), scratch.slice(0, 10));
  const auto memory = client.zeros<float>(1000);
  const Graph graph = builder.instantiate(client, {{scratch, memory}});
  CHECK(graph.has_device());
  CHECK(graph.name() == "step");
  CHECK(graph.node_count() == 6);
  CHECK(graph.guarded_bytes() == 12000);
  CHECK(client.read(out) == Floats(1000, -1.0f));
  CHECK(client.read(memory) == Floats(1000, 0.0f));
  CHECK(calls == 0);

  graph.run();
  Floats expected(1000, 4.5f);
  std::fill_n(expected.begin(), 10, 7.0f);
  CHECK(client.read(out) == expected);
  CHECK(calls == 1);
  client.fill(in, 3.0f);
  for (int i = 0; i < 8; ++i) graph.replay();
  graph.run();
  std::fill(expected.begin() + 10, expected.end(), 8.5f);
  CHECK(client.read(out) == expected);
  CHECK(calls == 10);
  CHECK(graph.statistics().replays == 10);

  // Once more on other memory: one builder, many graphs.
  const auto other = client.zeros<float>(1000);
  builder.instantiate(client, {{scratch, other}}).run();
  CHECK(client.read(other.slice(0, 11)) == Floats{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 4});
}

TEST_CASE("an empty builder makes a graph whose replay does nothing [O1] [O9]", "[runtime]") {
  Bench bench;
  const Graph graph = GraphBuilder().instantiate(bench.client);
  CHECK(graph.node_count() == 0);
  graph.run();
  graph.replay();
  CHECK(graph.statistics().refused == 0);
  CHECK(code_of([] { (void)GraphBuilder().instantiate(Client{}); }) == Errc::empty_handle);
}

TEST_CASE("given edges hold on the device, whatever was added first [O5] [Xa] [Xb]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const auto edges = GENERATE(SpecEdges::derived, SpecEdges::given);
  std::string trail;
  GraphBuilder builder({.edges = edges});
  const auto say = [&](char c) { return builder.add_host({}, [&trail, c] { trail += c; }); };
  const GraphNode a = say('a');
  const GraphNode b = say('b');
  const GraphNode c = say('c');
  const auto nothing = bench.client.empty<float>(0);
  const GraphNode copy = builder.add_copy(nothing, nothing);  // Leaves no node.
  const GraphNode join = builder.add_empty();
  builder.depend(a, copy);
  builder.depend(copy, join);
  builder.depend(join, {b, c});
  builder.depend(b, c);
  const Graph graph = builder.instantiate(bench.client);
  CHECK(graph.node_count() == 4);
  CHECK(graph.edge_count() == 3);
  graph.run();
  CHECK(trail == "cba");
}

TEST_CASE("what does not fit is told by name before anything is made [O4] [O6] [Xf] [Xj]",
          "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  GraphBuilder builder;
  const auto x = builder.placeholder<float>("x", 4);
  const auto y = client.create<float>({1, 2, 3, 4});
  const GraphNode node = builder.add_kernel(add_one, grid_for(4), x, y);
  const auto told = [&](std::initializer_list<PlaceholderBinding> bindings, Errc code,
                        const char* text) {
    const auto record = failure_of([&] { (void)builder.instantiate(client, bindings); });
    CHECK(record.code == code);
    CHECK_THAT(record.message, Contains(text));
  };
  told({}, Errc::invalid_argument, "placeholder 'x' is not bound");
  told({{x, client.zeros<float>(3)}}, Errc::size_mismatch, "12 bytes for placeholder 'x' of 16");
  told({{x, y}, {x, y}}, Errc::invalid_argument, "placeholder 'x' twice");
  told({{x, Array<float>{}}}, Errc::empty_handle, "'x'");
  GraphBuilder stranger;
  const auto z = stranger.placeholder<float>("z", 4);
  told({{x, y}, {z, y}}, Errc::invalid_argument, "another builder");
  const Client other = bench.runtime.open("cpu:1").client();
  told({{x, other.zeros<float>(4)}}, Errc::wrong_device, "'x' is of another device");

  CHECK(code_of([&] { builder.add_fill(z, 0.0f); }) == Errc::invalid_argument);
  CHECK(code_of([&] { builder.add_copy(x, Buffer{}); }) == Errc::empty_handle);
  CHECK(code_of([&] { builder.add_copy(x, y.slice(0, 2)); }) == Errc::size_mismatch);
  CHECK(code_of([&] { builder.add_host({}, nullptr); }) == Errc::invalid_argument);
  CHECK(code_of([&] { builder.add_child({}); }) == Errc::empty_graph);
  CHECK(code_of([&] { builder.depend(node, GraphNode{7}); }) == Errc::out_of_range);
  CHECK(code_of([&] { builder.depend(node, node); }) == Errc::invalid_argument);
  CHECK(code_of([&] { (void)x.slice(3, 2); }) == Errc::out_of_range);
  CHECK(builder.node_count() == 1);
  CHECK(builder.edge_count() == 0);

  const GraphNode empty = builder.add_empty();
  builder.depend(empty, node);
  builder.depend(node, empty);
  told({{x, client.zeros<float>(4)}}, Errc::invalid_argument,
       "a cycle: node 0 'add_one' -> node 1 'empty' -> node 0 'add_one'");
  CHECK(client.read(y) == Floats{1, 2, 3, 4});
}

TEST_CASE("a graph by hand that the device cannot run marks no bytes [Xj]", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto x = client.create<float>({1, 2});
  GraphBuilder grid;
  grid.add_fill(x, 0.0f);
  grid.set_name(grid.add_kernel(add_in_place, Grid(Dim3{1}, Dim3{0}), x, 1.0f), "no threads");
  const auto narrow = failure_of([&] { (void)grid.instantiate(client); });
  CHECK(narrow.code == Errc::invalid_argument);
  CHECK(narrow.node == "node 1 'no threads'");

  GraphBuilder paper;
  paper.add_fill(x, 0.0f);
  GraphBuilder child;
  child.add_child(paper.instantiate());
  CHECK(code_of([&] { (void)child.instantiate(client); }) != Errc{});

  // What only the device finds: memory that was never there.
  const auto huge = client.empty<float>(std::size_t{1} << 60);
  GraphBuilder memory;
  memory.add_fill(x, 0.0f);
  memory.add_fill(huge, 0.0f);
  CHECK(code_of([&] { (void)memory.instantiate(client); }) == Errc::never_fits);
  CHECK(client.read(x) == Floats{1, 2});
  CHECK(client.check({x}) == Health::clean);
}

TEST_CASE("a graph by hand keeps its memory, and its failures stay where bytes take them "
          "[B92] [B100] [B106] [B107] [N3]",
          "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto flag = client.create<std::int32_t>({1});
  const auto out = client.zeros<float>(2);
  const auto apart = client.zeros<float>(2);
  Graph graph;
  {
    GraphBuilder builder;
    const auto in = client.create<float>({1, 2});
    const auto mid = client.zeros<float>(2);
    builder.add_kernel(fail_if, grid_for(2), flag, in, mid);
    builder.add_kernel(mul_two, grid_for(2), mid, out);
    builder.add_kernel(add_in_place, grid_for(2), apart, 1.0f);
    graph = builder.instantiate(client);
  }
  for (int i = 0; i < 8; ++i) (void)client.create<float>({999, 999});
  (void)bench.device.trim();
  const auto failed = failure_of([&] { graph.run(); });
  CHECK(failed.code == Errc::kernel_failed);
  CHECK(failed.node == "fail_if");
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::kernel_failed);
  CHECK(client.read(apart) == Floats{1, 1});
  CHECK(graph.statistics().failed == 1);
  CHECK(graph.last_failure());
  client.write(flag, std::vector<std::int32_t>{0});
  graph.replay();
  graph = Graph{};  // With its replay in flight.
  CHECK(client.read(out) == Floats{4, 6});
  CHECK(client.read(apart) == Floats{2, 2});
}

TEST_CASE("a child in a graph by hand runs as one node in the order of its bytes [B97]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto x = client.zeros<float>(300);
  Graph child = client.capture([&](Client& c) { c.launch(add_in_place, grid_for(300), x, 1.0f); });
  GraphBuilder builder;
  builder.add_fill(x, 5.0f);
  builder.add_child(child);
  builder.add_kernel(add_in_place, grid_for(300), x, 10.0f);
  builder.add_child(child);
  child = Graph{};
  const Graph graph = builder.instantiate(client);
  CHECK(graph.node_count() == 4);
  CHECK(graph.edge_count() == 3);
  CHECK(builder.instantiate().edge_count() == 3);
  graph.run();
  CHECK(client.read(x) == Floats(300, 17.0f));
}

TEST_CASE("placeholders that share bytes are ordered as if they were one [Xc] [Xe]", "[runtime]") {
  Bench bench(2);
  const Client& client = bench.client;
  GraphBuilder builder;
  const auto a = builder.placeholder<float>("a", 64);
  const auto b = builder.placeholder<float>("b", 64);
  builder.add_kernel(add_in_place, grid_for(64), a, 1.0f);
  builder.add_kernel(add_in_place, grid_for(64), b, 1.0f);
  CHECK(builder.instantiate().edge_count() == 0);
  const auto memory = client.zeros<float>(96);
  const Graph apart =
      builder.instantiate(client, {{a, client.zeros<float>(64)}, {b, client.zeros<float>(64)}});
  CHECK(apart.edge_count() == 0);
  const Graph shared =
      builder.instantiate(client, {{a, memory.slice(0, 64)}, {b, memory.slice(32, 64)}});
  CHECK(shared.edge_count() == 1);
  shared.run();
  Floats expected(96, 1.0f);
  std::fill_n(expected.begin() + 32, 32, 2.0f);
  CHECK(client.read(memory) == expected);
}

TEST_CASE("ten thousand nodes with two edges each instantiate on a device [O35] [Xi]",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.zeros<float>(1);
  GraphBuilder builder;
  constexpr std::uint32_t count = 10'000;
  for (std::uint32_t i = 0; i < count; ++i) {
    const GraphNode node = builder.add_kernel(add_in_place, 1, x, 1.0f);
    if (i >= 1) builder.depend(node, GraphNode{i - 1});
    if (i >= 2) builder.depend(node, GraphNode{i - 2});
  }
  const Graph graph = builder.instantiate(bench.client);
  CHECK(graph.node_count() == count);
  graph.run();
  CHECK(bench.client.read(x) == Floats{10'000});
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_builder.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

using namespace reprise;
using Catch::Contains;
using reprise::test::code_of;
using test::add_in_place;
using test::add_one;
using test::fail_if;
using Floats = std::vector<float>;
using Numbers = std::vector<std::uint32_t>;

namespace {

const Kernel count_down{"count_down", [](Block, InOut<std::uint32_t> left) { --left[0]; }};
const Kernel set_to{"set_to",
                    [](Block, Out<std::uint32_t> to, std::uint32_t value) { to[0] = value; }};

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

template <class F>
FailurePtr failure_of(F&& f) {
  try {
    f();
  } catch (const Failure& failure) {
    return failure.shared_record();
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a body runs if and while a value on the device says so [I25]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto left = client.create<std::uint32_t>({0, 0});
  const auto x = client.zeros<float>(300);
  const Graph body = client.capture([&](Client& c) {
    c.launch(count_down, 1, left.slice(1, 1));
    c.launch(add_in_place, grid_for(300), x, 1.0f);
  });
  const Graph more =
      client.capture([&](Client& c) { c.launch(add_in_place, grid_for(300), x, 100.0f); });
  GraphBuilder builder;
  const auto wanted = builder.placeholder<std::uint32_t>("wanted", 1);
  const GraphNode loop = builder.add_while(left.slice(1, 1), body, 5);
  const GraphNode once = builder.add_if(wanted, more);
  builder.add_kernel(add_in_place, grid_for(300), x, 0.5f);
  CHECK(builder.spec().order().after[once.index] == Numbers{loop.index});
  CHECK_THAT(builder.to_dot(),
             Contains("child while true, at most 5 times") && Contains("child if true"));
  const Graph graph = builder.instantiate(client, {{wanted, left.slice(0, 1)}});
  CHECK(graph.node_count() == 3);
  CHECK_THAT(graph.to_dot(),
             Contains("replay while true, at most 5 times") && Contains("replay if true"));
  CHECK(client.read(x) == Floats(300, 0.0f));
  const auto run = [&](const Numbers& values) {
    client.write(left, values);
    client.fill(x, 0.0f);
    graph.run();
    return client.read(x)[299];
  };
  CHECK(run({0, 0}) == 0.5f);
  CHECK(run({0, 3}) == 3.5f);
  CHECK(client.read(left) == Numbers{0, 0});
  CHECK(run({7, 0}) == 100.5f);
  CHECK(run({1, 9}) == 105.5f);
  CHECK(client.read(left) == Numbers{1, 4});
}

TEST_CASE("a condition is read when its node's turn comes [I25] [O5]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto edges = GENERATE(SpecEdges::derived, SpecEdges::given);
  const auto wanted = client.create<std::uint32_t>({1});
  const auto x = client.zeros<float>(1);
  const Graph body = client.capture([&](Client& c) { c.launch(add_in_place, 1, x, 1.0f); });
  GraphBuilder builder({.edges = edges});
  const GraphNode before = builder.add_kernel(set_to, 1, wanted, 0);
  const GraphNode skips = builder.add_if(wanted, body);
  const GraphNode between = builder.add_kernel(set_to, 1, wanted, 1);
  const GraphNode runs = builder.add_if(wanted, body);
  const GraphNode behind = builder.add_kernel(set_to, 1, wanted, 0);
  if (edges == SpecEdges::given) {
    CHECK(code_of([&] { (void)builder.instantiate(client); }) == Errc::invalid_argument);
    builder.depend(skips, before);
    builder.depend(between, skips);
    builder.depend(runs, between);
    builder.depend(behind, runs);
  }
  const Graph graph = builder.instantiate(client);
  CHECK(graph.edge_count() == 4);
  graph.run();
  graph.run();
  CHECK(client.read(x) == Floats{2});

  // From outside, too: a replay that is asked for before the condition changes does not see it.
  GraphBuilder asking;
  asking.add_if(wanted, body);
  const Graph asked = asking.instantiate(client);
  const Client other = client.fork();
  for (std::uint32_t i = 0; i < 100; ++i) {
    other.write(wanted, Numbers{i % 2});
    asked.replay();
  }
  CHECK(client.read(x) == Floats{52});
}

TEST_CASE("conditions nest, also around calls of the host [I25]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto outer = client.create<std::uint32_t>({3});
  const auto inner = client.create<std::uint32_t>({0});
  const auto odd = client.create<std::uint32_t>({1});
  const auto x = client.zeros<float>(1);
  int calls = 0;
  const Kernel flip{"flip", [](Block, InOut<std::uint32_t> value) { value[0] ^= 1; }};
  const Graph step = client.capture([&](Client& c) {
    c.launch(count_down, 1, inner);
    c.launch(add_in_place, 1, x, 1.0f);
  });
  const Graph bonus = client.capture([&](Client& c) {
    c.launch(add_in_place, 1, x, 100.0f);
    c.host_call({}, [&] { ++calls; });
  });
  GraphBuilder rounds;
  rounds.add_kernel(set_to, 1, inner, 4);
  rounds.add_while(inner, step);
  rounds.add_if(odd, bonus);
  rounds.add_kernel(flip, 1, odd);
  rounds.add_kernel(count_down, 1, outer);
  const Graph round = rounds.instantiate(client);
  GraphBuilder builder;
  builder.add_while(outer, round);
  Graph graph = builder.instantiate(client);
  CHECK_THAT(graph.to_dot(), Contains("replay while true") && !Contains("at most"));
  graph.run();
  CHECK(client.read(x) == Floats{212});
  CHECK(calls == 2);
  // One level more, and the handles of what is inside are gone.
  GraphBuilder last;
  const auto yes = client.create<std::uint32_t>({1});
  last.add_kernel(set_to, 1, outer, 2);
  last.add_if(yes, graph);
  graph = last.instantiate(client);
  builder = GraphBuilder();
  graph.run();
  CHECK(client.read(x) == Floats{320});
  CHECK(calls == 3);
}

TEST_CASE("what a condition may leave out keeps its marks [I20] [I22]", "[runtime]") {
  Bench bench(GENERATE(0u, 1u));
  const Client& client = bench.client;
  const auto wanted = client.create<std::uint32_t>({1});
  const auto in = client.create<float>({1, 2});
  const auto out = client.empty<float>(2);
  const Graph body = client.capture([&](Client& c) { c.launch(add_one, grid_for(2), in, out); });
  GraphBuilder builder;
  builder.add_if(wanted, body);
  const Graph graph = builder.instantiate(client);
  graph.run();
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::unwritten);
  client.fill(out, 0.0f);
  graph.run();
  CHECK(client.read(out) == Floats{2, 3});
  // The inputs of the body are asked for although it will not run, and so is the condition.
  client.write(wanted, Numbers{0});
  const auto unwritten = client.empty<float>(2);
  client.copy(in, unwritten);
  CHECK(code_of([&] { graph.run(); }) == Errc::skipped);
  client.fill(in, 1.0f);
  client.fill(out, 7.0f);
  graph.run();
  CHECK(client.read(out) == Floats{7, 7});
  GraphBuilder unasked;
  unasked.add_while(client.empty<std::uint32_t>(1), body);
  CHECK(code_of([&] { unasked.instantiate(client).run(); }) == Errc::skipped);
}

TEST_CASE("a body that fails ends its loop and marks what it may have written [I20] [N3]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto left = client.create<std::uint32_t>({5});
  const auto flag = client.create<std::int32_t>({0});
  const auto in = client.create<float>({1, 2});
  const auto out = client.zeros<float>(2);
  const auto behind = client.zeros<float>(2);
  const auto apart = client.zeros<float>(2);
  const Kernel raise{"raise", [](Block, In<std::uint32_t> n, Out<std::int32_t> at_two) {
                       at_two[0] = n[0] == 2 ? 1 : 0;
                     }};
  const Graph body = client.capture([&](Client& c) {
    c.launch(count_down, 1, left);
    c.launch(raise, 1, left, flag);
    c.launch(fail_if, grid_for(2), flag, in, out);
  });
  GraphBuilder builder;
  builder.add_while(left, body);
  builder.add_kernel(add_one, grid_for(2), out, behind);
  builder.add_kernel(add_in_place, grid_for(2), apart, 1.0f);
  const Graph graph = builder.instantiate(client);
  const FailurePtr failure = failure_of([&] { graph.run(); });
  REQUIRE(failure);
  CHECK(failure->code == Errc::kernel_failed);
  CHECK(failure->node == "fail_if");
  CHECK_THAT(failure->message, Contains("asked to fail"));
  for (const auto& array : {out, behind}) {
    CHECK(code_of([&] { (void)client.read(array); }) == Errc::kernel_failed);
  }
  CHECK(code_of([&] { (void)client.read(left); }) == Errc::kernel_failed);
  CHECK(client.read(apart) == Floats{1, 1});
  CHECK(code_of([&] { graph.run(); }) == Errc::skipped);
  CHECK(client.read(in) == Floats{1, 2});
  CHECK(graph.statistics().failed == 1);

  // The loop ended with the run that failed: 5 was counted down to 2.
  client.write(left, Numbers{2});
  CHECK(code_of([&] { (void)client.read(flag); }) == Errc::kernel_failed);
  client.fill(out, 0.0f);
  client.write(flag, std::vector<std::int32_t>{0});
  graph.run();
  CHECK(client.read(left) == Numbers{0});
  CHECK(client.read(behind) == Floats{3, 4});
  CHECK(client.read(apart) == Floats{2, 2});
}

TEST_CASE("a condition that does not fit is told by name [O4] [Xf] [Xj]", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto two = client.create<std::uint32_t>({0, 0});
  const auto x = client.zeros<float>(1);
  const Graph body = client.capture([&](Client& c) { c.launch(add_in_place, 1, x, 1.0f); });
  GraphBuilder builder;
  const auto one = builder.placeholder<std::uint32_t>("one", 1);
  const auto record = failure_of([&] { builder.add_if(two, body); });
  CHECK(record->code == Errc::size_mismatch);
  CHECK(record->verb == "add_if");
  CHECK_THAT(record->message, Contains("a condition of 8 bytes instead of 4"));
  const auto never = failure_of([&] { builder.add_while(one, body, 0); });
  CHECK(never->code == Errc::invalid_argument);
  CHECK(never->verb == "add_while");
  CHECK_THAT(never->message, Contains("at most 0 times"));
  CHECK(code_of([&] { builder.add_if(two.slice(0, 0), body); }) == Errc::size_mismatch);
  CHECK(code_of([&] { builder.add_if(Array<std::uint32_t>{}, body); }) == Errc::empty_handle);
  CHECK(code_of([&] { builder.add_while(one, {}); }) == Errc::empty_graph);
  GraphBuilder stranger;
  CHECK(code_of([&] { stranger.add_if(one, body); }) == Errc::invalid_argument);
  CHECK(builder.node_count() == 0);

  // A device only comes in when the graph is made.
  const Client other = bench.runtime.open("cpu:1").client();
  builder.add_if(one, body);
  CHECK(code_of([&] {
          (void)builder.instantiate(client, {{one, other.zeros<std::uint32_t>(1)}});
        }) == Errc::wrong_device);
  CHECK(code_of([&] {
          (void)builder.instantiate(other, {{one, other.zeros<std::uint32_t>(1)}});
        }) == Errc::wrong_device);
  GraphBuilder paper;
  paper.add_if(two.slice(0, 1), GraphBuilder().instantiate());
  CHECK(code_of([&] { (void)paper.instantiate(client); }) == Errc::not_initialized);

  // A body without nodes leaves no node, so that nothing asks for ever.
  GraphBuilder nothing;
  nothing.add_while(client.create<std::uint32_t>({1}), GraphBuilder().instantiate(client));
  const Graph graph = nothing.instantiate(client);
  CHECK(graph.node_count() == 0);
  graph.run();
}

TEST_CASE("a loop without an end ends when the device is aborted [D5] [I31] [I32]", "[runtime]") {
  const auto workers = GENERATE(0u, 1u, 2u);
  const bool nested = GENERATE(false, true);
  Bench bench(workers);
  const Client& client = bench.client;
  const auto always = client.create<std::uint32_t>({1});
  const auto x = client.zeros<float>(1);
  // The third round is held, so that the loop is inside when the device is aborted.
  test::Gate gate;
  int rounds = 0;
  const Graph body = client.capture([&](Client& c) {
    c.host_call({}, [&] {
      if (++rounds == 3) gate.pass();
    });
    c.launch(add_in_place, 1, x, 1.0f);
  });
  GraphBuilder builder;
  builder.add_while(always, body);
  Graph graph = builder.instantiate(client);
  if (nested) {
    GraphBuilder around;
    around.add_while(always, graph);
    graph = around.instantiate(client);
  }
  client.synchronize();
  auto ran = graph.async_run();
  auto read = client.async_read(x);
  gate.wait_for_arrivals();
  auto aborted = bench.device.async_abort(std::chrono::minutes(1));
  // The close is a point in the order: once it shows, the loops have been told.
  while (code_of([&] { (void)client.try_launch(add_in_place, 1, x, 1.0f); }) != Errc::closed) {
  }
  gate.open();
  aborted.get();
  const FailurePtr failure = failure_of([&] { ran.get(); });
  REQUIRE(failure);
  CHECK(failure->code == Errc::operation_aborted);
  CHECK_THAT(failure->message, Contains("between two runs of a loop"));
  CHECK(code_of([&] { (void)read.get(); }) == Errc::operation_aborted);
  CHECK(rounds >= 3);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_change.hpp>

#include <reprise/runtime/graph_builder.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using Catch::Contains;
using reprise::test::code_of;
using test::add_in_place;
using test::add_one;
using test::fail_if;
using test::mul_two;
using Floats = std::vector<float>;

namespace {

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

std::string text_of(const GraphDiff& diff) {
  std::ostringstream out;
  out << diff;
  return out.str();
}

}  // namespace

TEST_CASE("replays before an update have the old scalars, those behind it the new ones [O35] [I27]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 2u));
  const Client& client = bench.client;
  const std::uint32_t blocks = GENERATE(1u, 3u);
  const auto x = client.zeros<float>(300);
  const Graph graph = client.capture(
      [&](Client& c) { c.launch(add_in_place, grid_for(300, 300 / blocks), x, 1.0f); });
  float expected = 0;
  for (int i = 0; i < 100; ++i) {
    const float amount = static_cast<float>(i % 7);
    graph.replay();
    expected += i == 0 ? 1.0f : static_cast<float>((i - 1) % 7);
    graph.update(0, add_in_place, x, amount);
  }
  CHECK(client.read(x) == Floats(300, expected));
  graph.run();
  CHECK(client.read(x) == Floats(300, expected + static_cast<float>(99 % 7)));
}

TEST_CASE("an update waits for its turn and not for the replays before it [O35]", "[runtime]") {
  Bench bench(1);
  const Client& client = bench.client;
  const auto x = client.zeros<float>(4);
  test::Gate gate;
  const Kernel held{"held", [&](Block, InOut<float> to, float amount) {
                      gate.pass();
                      to[0] += amount;
                    }};
  const Graph graph = client.capture([&](Client& c) { c.launch(held, 1, x, 1.0f); });
  graph.replay();
  gate.wait_for_arrivals();
  graph.update(0, held, x, 10.0f);
  graph.replay();
  graph.update(0, held, x, 100.0f);
  graph.replay();
  // What replays will have is told before it is in place.
  const Graph same = client.capture([&](Client& c) { c.launch(held, 1, x, 100.0f); });
  CHECK(graph.diff(same).is_same());
  gate.open();
  CHECK(client.read(x)[0] == 111.0f);
}

TEST_CASE("replays that race with updates have the scalars of one of them [I27] [O35]",
          "[runtime][threads]") {
  Bench bench(2);
  const Client& client = bench.client;
  const auto x = client.zeros<float>(1);
  const auto wrong = client.zeros<float>(1);
  const Kernel both{"both", [](Block, InOut<float> runs, InOut<float> torn, float a, float b) {
                      runs[0] += 1;
                      if (a != b) torn[0] += 1;
                    }};
  const Graph graph = client.capture([&](Client& c) { c.launch(both, 1, x, wrong, 0.0f, 0.0f); });
  std::thread updates([&] {
    for (int i = 0; i < 300; ++i) {
      const auto value = static_cast<float>(i);
      graph.update(0, both, x, wrong, value, value);
    }
  });
  for (int i = 0; i < 300; ++i) graph.replay();
  updates.join();
  graph.run();
  CHECK(client.read(x) == Floats{301});
  CHECK(client.read(wrong) == Floats{0});
}

TEST_CASE("an update reaches replays with bound slots too [O35]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const std::uint32_t blocks = GENERATE(1u, 4u);
  const auto x = client.zeros<float>(4);
  const auto other = client.zeros<float>(4);
  const auto fixed = client.zeros<float>(4);
  const Grid grid = grid_for(4, 4 / blocks);
  const Graph graph = client.capture([&](Client& c) {
    c.slot("x", x);
    c.launch(add_in_place, grid, x, 1.0f);
    c.launch(add_in_place, grid, fixed, 1.0f);
  });
  graph.run({{"x", other}});
  graph.update(0, add_in_place, x, 10.0f);
  graph.update(1, add_in_place, fixed, 5.0f);
  graph.replay({{"x", other}});
  graph.run();
  CHECK(client.read(other) == Floats(4, 11.0f));
  CHECK(client.read(x) == Floats(4, 10.0f));
  CHECK(client.read(fixed) == Floats(4, 11.0f));
}

TEST_CASE("an update that does not fit changes nothing and says why [O4] [O35] [Xf] [Xj]",
          "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto x = client.zeros<float>(8);
  const auto y = client.zeros<float>(8);
  const Graph graph = client.capture(
      [&](Client& c) {
        c.launch(add_in_place, grid_for(8), x, 1.0f);
        c.fill(y, 3.0f);
        c.launch(add_one, grid_for(8), x, y);
      },
      {.name = "step"});
  const auto told = [](auto&& call, Errc code, const char* node, const char* text) {
    const FailurePtr failure = failure_of(call);
    REQUIRE(failure);
    CHECK(failure->code == code);
    CHECK(failure->verb == "update");
    CHECK(failure->node == node);
    CHECK_THAT(failure->message, Contains(text));
  };
  told([&] { graph.update(3, add_in_place, x, 2.0f); }, Errc::out_of_range, "",
       "no node 3 among 3");
  told([&] { graph.update(1, add_in_place, x, 2.0f); }, Errc::invalid_argument, "node 1 'fill'",
       "no launch of 'add_in_place'");
  told([&] { graph.update(2, mul_two, x, y); }, Errc::invalid_argument, "node 2 'add_one'",
       "no launch of 'mul_two'");
  told([&] { graph.update(0, add_in_place, y, 2.0f); }, Errc::unsupported, "node 0 'add_in_place'",
       "other bytes");
  told([&] { graph.update(0, add_in_place, x.slice(0, 4), 2.0f); }, Errc::unsupported,
       "node 0 'add_in_place'", "other bytes");
  told([&] { graph.update(2, add_one, y, x); }, Errc::unsupported, "node 2 'add_one'",
       "argument 0 names other bytes");
  told([&] { graph.update(0, add_in_place, Array<float>{}, 2.0f); }, Errc::empty_handle,
       "node 0 'add_in_place'", "empty");
  CHECK(code_of([&] { Graph().update(0, add_in_place, x, 2.0f); }) == Errc::empty_graph);
  CHECK(code_of([&] { Graph().update(graph); }) == Errc::empty_graph);
  CHECK(code_of([&] { (void)graph.diff({}); }) == Errc::empty_graph);
  const Graph paper = GraphBuilder().instantiate();
  CHECK(code_of([&] { paper.update(0, add_in_place, x, 2.0f); }) == Errc::not_initialized);
  graph.run();
  CHECK(client.read(x) == Floats(8, 1.0f));
  CHECK(client.read(y) == Floats(8, 2.0f));
  bench.device.drain();
  CHECK(code_of([&] { graph.update(0, add_in_place, x, 2.0f); }) == Errc::closed);
}

namespace {

/// Makes graphs of the same five nodes that differ in what a test says.
struct Steps {
  struct What {
    float amount = 1.0f;
    std::uint32_t per_block = 8;
    float value = 3.0f;
    float written = 4.0f;
  };
  Graph make(const Array<float>& to, What what) const {
    return client.capture([&](Client& c) {
      c.launch(add_in_place, grid_for(8, what.per_block), x, what.amount);
      c.fill(to, what.value);
      c.launch(add_one, grid_for(8), x, to);
      c.write(z, Floats(8, what.written));
      c.copy(z, to);
    });
  }

  const Client& client;
  Array<float> x = client.zeros<float>(8);
  Array<float> y = client.zeros<float>(8);
  Array<float> z = client.zeros<float>(8);
};

}  // namespace

TEST_CASE("a graph is compared with another node by node [O35]", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const Steps steps{client};
  const auto& x = steps.x;
  const auto& y = steps.y;
  const auto& z = steps.z;
  const auto make = [&](const Array<float>& to, const Steps::What& what) {
    return steps.make(to, what);
  };
  const Graph graph = make(y, {});
  const auto answer = [&](const Graph& other, std::uint32_t node) {
    const GraphDiff diff = graph.diff(other);
    return std::string(to_string(diff.nodes.at(node).change)) + ": " + diff.nodes[node].why;
  };
  CHECK(graph.diff(graph).is_same());
  const Graph again = make(y, {});
  CHECK(graph.diff(again).is_same());
  CHECK(text_of(graph.diff(again)).empty());
  const Graph amount = make(y, {.amount = 2.0f});
  CHECK(answer(amount, 0) == "updated: argument 1 differs");
  CHECK(text_of(graph.diff(amount)) == "node 0 updated: argument 1 differs\n");
  CHECK(graph.diff(amount).can_update());
  CHECK_FALSE(graph.diff(amount).is_same());
  const Graph grid = make(y, {.per_block = 4});
  CHECK(answer(grid, 0) == "needs_instantiation: another grid");
  CHECK(answer(make(y, {.value = 0.0f}), 1) == "needs_instantiation: another fill");
  CHECK(answer(make(y, {.written = 0.0f}), 3) == "needs_instantiation: another write");
  const Graph moved = make(client.zeros<float>(8), {});
  CHECK(answer(moved, 1) == "needs_instantiation: names other bytes");
  CHECK(answer(moved, 2) == "needs_instantiation: argument 1 names other bytes");
  CHECK(answer(moved, 0) == "same: ");
  const Graph kernel = client.capture([&](Client& c) {
    c.launch(add_in_place, grid_for(8), x, 1.0f);
    c.fill(y, 3.0f);
    c.launch(mul_two, grid_for(8), x, y);
    c.copy(y, z);
  });
  CHECK(answer(kernel, 2) == "needs_instantiation: kernel 'mul_two' instead of 'add_one'");
  CHECK(answer(kernel, 3) == "refused: a copy instead of a write");
  CHECK(answer(kernel, 4) == "refused: the other has no such node");
  CHECK(kernel.diff(graph).nodes.at(4).why == "there is no such node");
  GraphBuilder builder;
  builder.add_kernel(add_in_place, grid_for(8), x, 1.0f);
  const GraphNode fill = builder.add_fill(y, 3.0f);
  builder.depend(fill, GraphNode{0});
  CHECK(answer(builder.instantiate(client), 1) == "refused: it follows other nodes");

  // What cannot be done in place is not done at all.
  for (const Graph& other : {grid, moved, kernel}) {
    CHECK_FALSE(graph.update(other).can_update());
  }
  graph.run();
  CHECK(client.read(x) == Floats(8, 1.0f));
  CHECK(graph.update(amount).can_update());
  graph.run();
  CHECK(client.read(x) == Floats(8, 3.0f));
  CHECK(graph.diff(amount).is_same());
  CHECK(graph.update(graph).is_same());
}

TEST_CASE("ten thousand nodes are the same as themselves and updated at once [O35] [Xi]",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.zeros<float>(1);
  constexpr std::uint32_t count = 10'000;
  const auto make = [&](float amount) {
    GraphBuilder builder;
    for (std::uint32_t i = 0; i < count; ++i) {
      const GraphNode node = builder.add_kernel(add_in_place, 1, x, amount);
      if (i >= 1) builder.depend(node, GraphNode{i - 1});
      if (i >= 2) builder.depend(node, GraphNode{i - 2});
    }
    return builder.instantiate(bench.client);
  };
  const Graph graph = make(1.0f);
  CHECK(graph.diff(graph).is_same());
  const GraphDiff diff = graph.update(make(2.0f));
  CHECK(diff.nodes.size() == count);
  CHECK(diff.can_update());
  graph.run();
  CHECK(bench.client.read(x) == Floats{20'000});
}

TEST_CASE("a graph is updated or is a node of another one, never both [O35] [I27]", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto x = client.zeros<float>(1);
  const auto one = client.create<std::uint32_t>({1});
  const auto make = [&] {
    return client.capture([&](Client& c) { c.launch(add_in_place, 1, x, 1.0f); });
  };
  const Graph child = make();
  const Graph asked = make();
  const Graph parent = client.capture([&](Client& c) { c.replay(child); });
  GraphBuilder builder;
  builder.add_if(one, asked);
  const Graph asking = builder.instantiate(client);
  for (const Graph& graph : {child, asked}) {
    const FailurePtr failure = failure_of([&] { graph.update(0, add_in_place, x, 2.0f); });
    REQUIRE(failure);
    CHECK(failure->code == Errc::unsupported);
    CHECK_THAT(failure->message, Contains("a node of another one"));
  }
  parent.run();
  asking.run();
  child.run();
  CHECK(client.read(x) == Floats{3});

  const Graph updated = make();
  updated.update(0, add_in_place, x, 10.0f);
  CHECK(code_of([&] { (void)client.capture([&](Client& c) { c.replay(updated); }); }) ==
        Errc::unsupported);
  client.fill(x, 3.0f);
  GraphBuilder late;
  late.add_child(updated);
  CHECK(code_of([&] { (void)late.instantiate(client); }) == Errc::unsupported);
  CHECK(client.read(x) == Floats{3});
  const Graph copy = updated.clone();
  const Graph above = client.capture([&](Client& c) { c.replay(copy); });
  above.run();
  CHECK(client.read(x) == Floats{13});
}

TEST_CASE("a clone does the same to other buffers [I25] [O35]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto in = client.create<float>(Floats(600, 1.0f));
  const auto all = client.zeros<float>(1200);
  const auto out = all.slice(0, 600);
  const auto count = client.create<std::uint32_t>({600});
  const auto host = client.zeros<float>(4);
  int calls = 0;
  const Graph graph = client.capture(
      [&](Client& c) {
        c.slot("in", in);
        c.launch(add_one, grid_for(600), in, out);
        c.launch(mul_two, grid_for(300), out.slice(0, 300), out.slice(300, 300));
        c.launch(add_in_place, IndirectGrid{grid_for(600, 1), count}, out, 0.5f);
        c.fill(out.slice(0, 2), 7.0f);
        c.copy(out.slice(2, 2), out.slice(0, 2));
        c.write(out.slice(4, 1), Floats{9});
        c.host_call({{host}, {}, {}}, [&] { ++calls; });
      },
      {.name = "step"});
  graph.update(2, add_in_place, out, 0.25f);
  const auto other = client.zeros<float>(1200);
  const auto fewer = client.create<std::uint32_t>({5});
  Graph clone = graph.clone({{out, other.slice(600, 600)}, {count, fewer}});
  CHECK(clone.name() == "step");
  CHECK(clone.node_count() == graph.node_count());
  CHECK(clone.edge_count() == graph.edge_count());
  CHECK(clone.slots().size() == 1);
  clone.run();
  CHECK(client.read(all) == Floats(1200, 0.0f));
  Floats expected(600, 2.0f);
  std::fill(expected.begin() + 300, expected.end(), 4.0f);
  for (int i = 0; i < 4; ++i) expected[std::size_t(i)] = 7;
  expected[4] = 9;
  CHECK(client.read(other.slice(600, 600)) == expected);
  CHECK(client.read(other.slice(0, 600)) == Floats(600, 0.0f));
  CHECK(calls == 1);
  graph.run();
  for (std::size_t i = 5; i < 600; ++i) expected[i] += 0.25f;
  CHECK(client.read(out) == expected);
  CHECK(calls == 2);

  // It stands on its own, slots and failures too.
  const auto flag = client.create<std::int32_t>({1});
  const Graph failing = client.capture([&](Client& c) { c.launch(fail_if, 1, flag, host, host); });
  clone = {};
  const auto spare = client.zeros<float>(600);
  const Graph last = graph.clone({{in, spare}, {out, other.slice(0, 600)}});
  last.run({{"in", client.create<float>(Floats(600, 9.0f))}});
  CHECK(client.read(other.slice(5, 1)) == Floats{10.25f});
  last.run();
  CHECK(client.read(other.slice(5, 1)) == Floats{1.25f});
}

TEST_CASE("a clone is ordered and marked by its own bytes [I20] [I27]", "[runtime]") {
  Bench bench(2);
  const Client& client = bench.client;
  const auto flag = client.create<std::int32_t>({0});
  const auto in = client.create<float>({1, 2});
  const auto out = client.zeros<float>(2);
  const auto other = client.zeros<float>(2);
  Graph clone;
  {
    const Graph graph =
        client.capture([&](Client& c) { c.launch(fail_if, grid_for(2), flag, in, out); });
    clone = graph.clone({{out, other}});
  }
  for (int i = 0; i < 50; ++i) {
    client.fill(in, static_cast<float>(i));
    clone.replay();
    client.fill(in, -1.0f);
    CHECK(client.read(other) == Floats(2, static_cast<float>(i) + 1));
  }
  client.write(flag, std::vector<std::int32_t>{1});
  CHECK(code_of([&] { clone.run(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { (void)client.read(other); }) == Errc::kernel_failed);
  CHECK(client.read(out) == Floats{0, 0});
}

TEST_CASE("a clone that does not fit is refused by name before anything is made [O4] [Xf] [Xj]",
          "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto x = client.zeros<float>(8);
  const auto y = client.zeros<float>(8);
  const auto z = client.zeros<float>(8);
  const auto w = client.zeros<float>(8);
  const Graph child = client.capture([&](Client& c) { c.fill(z, 1.0f); });
  const Graph graph = client.capture(
      [&](Client& c) {
        c.launch(add_one, grid_for(8), x, y);
        c.host_call({{w}, {}, {}}, [] {});
        c.replay(child);
      },
      {.name = "step"});
  const auto told = [&](std::initializer_list<BufferChange> changes, Errc code, const char* text) {
    const FailurePtr failure = failure_of([&] { (void)graph.clone(changes); });
    REQUIRE(failure);
    CHECK(failure->code == code);
    CHECK(failure->verb == "clone");
    CHECK(failure->node == "step");
    CHECK_THAT(failure->message, Contains(text));
  };
  const auto spare = client.zeros<float>(16);
  const auto good = spare.slice(0, 8);
  told({{x, spare}}, Errc::size_mismatch, "64 bytes for 32");
  told({{x, Buffer{}}}, Errc::empty_handle, "empty");
  told({{x, good}, {x.slice(4, 4), spare.slice(8, 4)}}, Errc::invalid_argument, "share bytes");
  told({{x.slice(0, 4), spare.slice(0, 4)}}, Errc::invalid_argument,
       "node 0 'add_one' names bytes inside and outside");
  told({{x, y}}, Errc::invalid_argument, "node 0 'add_one' would name bytes twice");
  told({{x, good}, {y, spare.slice(4, 8)}}, Errc::invalid_argument, "would name bytes twice");
  told({{w, good}}, Errc::unsupported, "node 1 'host_call' cannot be told");
  told({{z, good}}, Errc::unsupported, "node 2");
  const auto bytes = client.zeros<std::uint8_t>(64);
  told({{x, bytes.slice(2, 32)}}, Errc::misaligned, "node 0 'add_one' at byte 2");
  const Client stranger = bench.runtime.open("cpu:1").client();
  told({{x, stranger.zeros<float>(8)}}, Errc::wrong_device, "another device");
  CHECK(code_of([] { (void)Graph().clone(); }) == Errc::empty_graph);
  CHECK(code_of([] { (void)GraphBuilder().instantiate().clone(); }) == Errc::not_initialized);
  // What the graph does not name changes nothing.
  CHECK_NOTHROW((void)graph.clone({{spare.slice(0, 1), spare.slice(1, 1)}}));
  CHECK(client.check({x, y, z, w}) == Health::clean);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/graph_spec.hpp>

#include <reprise/capture/recording.hpp>

#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

using namespace reprise;
using Catch::Contains;
using Nodes = std::vector<std::uint32_t>;

namespace {

constexpr std::uint32_t none = SpecLife::never;

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

std::uint32_t empty_node(GraphSpec& spec, std::string name, std::uint64_t cost = 1) {
  SpecNode node;
  node.name = std::move(name);
  node.cost = cost;
  return spec.add_node(std::move(node));
}

Nodes empty_nodes(GraphSpec& spec, std::uint32_t count) {
  Nodes nodes;
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes.push_back(empty_node(spec, std::string(1, static_cast<char>('a' + i))));
  }
  return nodes;
}

SpecNode fill_node(std::uint32_t buffer, ByteRange range, std::uint64_t pattern = 0,
                   std::uint32_t pattern_bytes = 1) {
  SpecNode node;
  node.kind = SpecKind::fill;
  node.uses = {{buffer, range, Access::must_write}};
  node.pattern = pattern;
  node.pattern_bytes = pattern_bytes;
  return node;
}

SpecNode copy_node(std::uint32_t to, ByteRange into, std::uint32_t from, ByteRange out_of) {
  SpecNode node;
  node.kind = SpecKind::copy;
  node.uses = {{to, into, Access::must_write}, {from, out_of, Access::reads}};
  return node;
}

/// A node of kernel `k` on whole buffers.
template <class K>
SpecNode kernel_node(const GraphSpec& spec, const K& k, const Nodes& buffers, Grid grid = 1) {
  SpecNode node;
  node.kind = SpecKind::kernel;
  node.kernel = k.definition();
  node.grid = grid;
  node.arguments.resize(k.definition()->argument_bytes);
  std::size_t next = 0;
  for (const KernelParameter& parameter : k.definition()->parameters) {
    if (!parameter.is_buffer) continue;
    const std::uint32_t buffer = buffers.at(next++);
    node.uses.push_back({buffer, {0, spec.buffer(buffer).bytes}, parameter.access});
  }
  return node;
}

std::uint32_t floats(GraphSpec& spec, std::string name, std::uint64_t count = 256) {
  return spec.add_buffer({std::move(name), count * 4, 4});
}

/// a, then b and c, then d.
GraphSpec diamond(SpecEdges edges = SpecEdges::derived) {
  GraphSpec spec(edges);
  const Nodes n = empty_nodes(spec, 4);
  spec.depend(n[1], n[0]);
  spec.depend(n[2], n[0]);
  spec.depend(n[3], n[1]);
  spec.depend(n[3], n[2]);
  return spec;
}

GraphSpec chain(const std::vector<std::uint64_t>& costs) {
  GraphSpec spec;
  for (std::uint32_t i = 0; i < costs.size(); ++i) {
    empty_node(spec, "n" + std::to_string(i), costs[i]);
    if (i != 0) spec.depend(i, i - 1);
  }
  return spec;
}

}  // namespace

TEST_CASE("a new spec has no nodes and no edges, and its order is empty [O1] [O9] [O16]",
          "[capture]") {
  const GraphSpec spec;
  CHECK(spec.node_count() == 0);
  CHECK(spec.edge_count() == 0);
  CHECK(spec.buffer_count() == 0);
  const SpecOrder order = spec.order();
  CHECK(order.order.empty());
  CHECK(order.edge_count() == 0);
  CHECK(order.cost == 0);
  CHECK(order.critical_path.empty());
  CHECK(spec.seal()->node_count() == 0);
}

TEST_CASE("nodes and buffers are numbered as they are added and each counts once "
          "[O2] [O13] [O21] [Xh]",
          "[capture]") {
  GraphSpec spec;
  CHECK(spec.add_buffer({"in", 1024, 4}) == 0);
  CHECK(spec.add_buffer({"out", 2048, 4}) == 1);
  CHECK(spec.buffer(0).bytes == 1024);
  CHECK(spec.buffer(1).name == "out");
  CHECK(empty_node(spec, "a") == 0);
  CHECK(spec.seal()->node_count() == 1);
  CHECK(empty_node(spec, "b", 42) == 1);
  CHECK(empty_node(spec, "c") == 2);
  CHECK(spec.node(1).cost == 42);
  CHECK(spec.order().order.size() == 3);
}

TEST_CASE("a node keeps exactly the values that it was added with [O3] [O22]", "[capture]") {
  GraphSpec spec;
  const std::uint32_t a = spec.add_buffer({"a", 8192});
  const std::uint32_t b = spec.add_buffer({"b", 8192});
  const SpecNode& copy = spec.node(spec.add_node(copy_node(a, {0, 4096}, b, {4096, 8192})));
  CHECK(copy.kind == SpecKind::copy);
  CHECK(copy.uses[0].range == ByteRange{0, 4096});
  CHECK(copy.uses[1].range == ByteRange{4096, 8192});
  const SpecNode& fill = spec.node(spec.add_node(fill_node(a, {0, 8192}, 0xab)));
  CHECK(fill.pattern == 0xab);
  CHECK(fill.uses[0].range.size() == 8192);
  const std::uint32_t f = floats(spec, "f");
  const SpecNode& kernel = spec.node(spec.add_node(
      kernel_node(spec, test::add_one, {f, floats(spec, "g")}, Grid({4, 2, 1}, {32, 4, 2}, 1024))));
  CHECK(kernel.grid.blocks.count() * kernel.grid.threads.count() == 2048);
  CHECK(kernel.grid.shared_bytes == 1024);
  CHECK(spec.name_of(2) == "add_one");
  CHECK(spec.node(empty_node(spec, "join")).uses.empty());
}

TEST_CASE("a wrong edge is refused with its nodes named and nothing changes "
          "[O4] [O8] [O13] [O14] [Xf]",
          "[capture]") {
  GraphSpec spec;
  const Nodes n = empty_nodes(spec, 2);
  spec.depend(n[1], n[0]);
  spec.depend(n[1], n[0]);  // Twice is once.
  CHECK(spec.edge_count() == 1);
  CHECK(Nodes(spec.after(1).begin(), spec.after(1).end()) == Nodes{0});
  CHECK(spec.before(0) == Nodes{1});

  const auto unknown = failure_of([&] { spec.depend(5, 0); });
  CHECK(unknown.code == Errc::out_of_range);
  CHECK_THAT(unknown.message, Contains("no node 5 among 2"));
  CHECK(failure_of([&] { spec.depend(0, 7); }).code == Errc::out_of_range);
  CHECK(failure_of([&] { (void)spec.node(2); }).code == Errc::out_of_range);
  CHECK(failure_of([&] { (void)spec.buffer(0); }).code == Errc::out_of_range);
  const auto self = failure_of([&] { spec.depend(1, 1); });
  CHECK(self.code == Errc::invalid_argument);
  CHECK(self.node == "node 1 'b'");
  CHECK(spec.edge_count() == 1);
}

TEST_CASE("a cycle is found before anything is made of it and told node by node [O5] [O6] [O14]",
          "[capture]") {
  const auto edges = GENERATE(SpecEdges::derived, SpecEdges::given);
  GraphSpec spec(edges);
  const Nodes n = empty_nodes(spec, 5);
  spec.depend(n[1], n[0]);
  spec.depend(n[2], n[1]);
  spec.depend(n[3], n[2]);
  spec.depend(n[1], n[3]);
  spec.depend(n[4], n[3]);
  const auto cycle = failure_of([&] { (void)spec.order(); });
  CHECK(cycle.code == Errc::invalid_argument);
  CHECK(cycle.node == "node 1 'b'");
  CHECK(cycle.message == "a cycle: node 1 'b' -> node 2 'c' -> node 3 'd' -> node 1 'b'");
  CHECK(failure_of([&] { (void)spec.seal(); }).code == Errc::invalid_argument);
  CHECK(failure_of([&] { (void)spec.to_dot(); }).code == Errc::invalid_argument);
}

TEST_CASE("an order keeps every edge and else the order of adding [O5] [O16] [O21] [Xa]",
          "[capture]") {
  CHECK(chain({1, 1, 1}).order().order == Nodes{0, 1, 2});
  GraphSpec isolated;
  empty_nodes(isolated, 3);
  CHECK(isolated.order().order == Nodes{0, 1, 2});
  CHECK(diamond().order().order == Nodes{0, 1, 2, 3});

  GraphSpec backwards;
  empty_nodes(backwards, 4);
  backwards.depend(0, 3);
  backwards.depend(1, 0);
  CHECK(backwards.order().order == Nodes{2, 3, 0, 1});

  // a, x, c in a row and c right after a: x is never moved behind c.
  GraphSpec spec;
  empty_nodes(spec, 3);
  spec.depend(2, 0);
  spec.depend(1, 0);
  spec.depend(2, 1);
  CHECK(spec.order().order == Nodes{0, 1, 2});
}

TEST_CASE("paths and ends of a spec follow its edges [O15] [O18] [O21]", "[capture]") {
  const GraphSpec spec = diamond();
  CHECK(spec.edge_count() == 4);
  CHECK(spec.reaches(0, 3));
  CHECK(spec.reaches(1, 1));
  CHECK_FALSE(spec.reaches(3, 0));
  CHECK_FALSE(spec.reaches(1, 2));
  CHECK(spec.after(0).empty());
  CHECK(spec.before(0) == Nodes{1, 2});
  CHECK(spec.before(3).empty());
}

TEST_CASE("a text and a drawing name what is in a spec [O7] [O20]", "[capture]") {
  GraphSpec spec;
  const std::uint32_t in = floats(spec, "in");
  const std::uint32_t out = floats(spec, "out");
  spec.add_node(fill_node(in, {0, 1024}, 0xff));
  spec.add_node(kernel_node(spec, test::add_one, {in, out}, 4));
  spec.add_node(copy_node(in, {0, 512}, out, {512, 1024}));
  spec.depend(empty_node(spec, "the end"), 0);

  std::ostringstream text;
  text << spec;
  CHECK_THAT(text.str(), Contains("4 nodes") && Contains("1 given edges") &&
                             Contains("'add_one' 4x1x1 blocks of 256x1x1") &&
                             Contains("1024 bytes with 0xff") && Contains("copy 512 bytes") &&
                             Contains("empty (the end) after 0"));
  const std::string dot = spec.to_dot("step");
  CHECK_THAT(dot, Contains("digraph \"step\"") && Contains("add_one") && Contains("n0 -> n3;\n") &&
                      Contains("n0 -> n1 [style=dashed];") &&
                      Contains("n1 -> n2 [style=dashed];") && Contains("shape=parallelogram"));
  CHECK_THAT(spec.seal("step")->to_dot(), Contains("n0 -> n1") && Contains("add_one"));
}

TEST_CASE("each reader of a buffer comes after its writer, if edges are derived [O17] [O21] [Xb]",
          "[capture]") {
  GraphSpec spec;
  const std::uint32_t x = floats(spec, "x");
  const Nodes outs{floats(spec, "a"), floats(spec, "b"), floats(spec, "c")};
  spec.add_node(fill_node(x, {0, 1024}, 0));
  for (const std::uint32_t out : outs) spec.add_node(kernel_node(spec, test::add_one, {x, out}));
  empty_node(spec, "apart");
  spec.depend(4, 3);  // Shares no bytes, and is kept all the same.
  const SpecOrder order = spec.order();
  CHECK(order.after[0].empty());
  CHECK(order.after[1] == Nodes{0});
  CHECK(order.after[2] == Nodes{0});
  CHECK(order.after[3] == Nodes{0});
  CHECK(order.after[4] == Nodes{3});
  CHECK(order.widths() == Nodes{1, 3, 1});
}

TEST_CASE("in-place nodes form a chain, and what is read is not overwritten too early [Xe]",
          "[capture]") {
  GraphSpec spec;
  const std::uint32_t x = floats(spec, "x");
  const std::uint32_t y = floats(spec, "y");
  spec.add_node(kernel_node(spec, test::add_in_place, {x}));
  spec.add_node(kernel_node(spec, test::add_in_place, {x}));
  spec.add_node(kernel_node(spec, test::add_one, {x, y}));
  spec.add_node(fill_node(x, {0, 512}));
  spec.add_node(fill_node(x, {512, 1024}));
  spec.add_node(fill_node(x, {256, 768}));
  const SpecOrder order = spec.order();
  CHECK(order.after[1] == Nodes{0});
  CHECK(order.after[2] == Nodes{1});
  CHECK(order.after[3] == Nodes{2});
  CHECK(order.after[4] == Nodes{2});
  CHECK(order.after[5] == Nodes{3, 4});

  // A given edge decides which of two goes first, whatever the order of adding.
  spec.depend(0, 1);
  CHECK(spec.order().order == Nodes{1, 0, 2, 3, 4, 5});
}

TEST_CASE("with given edges alone an unordered conflict is an error that names both nodes [Xe]",
          "[capture]") {
  GraphSpec spec(SpecEdges::given);
  const std::uint32_t x = floats(spec, "x");
  const std::uint32_t y = floats(spec, "y");
  spec.add_node(fill_node(x, {0, 1024}));
  spec.add_node(kernel_node(spec, test::add_one, {x, y}));
  empty_node(spec, "between");
  spec.add_node(fill_node(x, {512, 1024}));

  const auto first = failure_of([&] { (void)spec.order(); });
  CHECK(first.code == Errc::invalid_argument);
  CHECK(first.node == "node 1 'add_one'");
  CHECK_THAT(first.message, Contains("node 0 'fill'") && Contains("[0, 1024) of buffer 'x'"));
  spec.depend(1, 0);
  const auto second = failure_of([&] { (void)spec.order(); });
  CHECK(second.node == "node 3 'fill'");
  spec.depend(2, 1);
  spec.depend(3, 2);
  const SpecOrder order = spec.order();
  CHECK(order.order == Nodes{0, 1, 2, 3});
  CHECK(order.after[3] == Nodes{2});

  // Disjoint bytes conflict with nothing, and readers not with each other.
  GraphSpec apart(SpecEdges::given);
  const std::uint32_t z = floats(apart, "z");
  apart.add_node(fill_node(z, {0, 512}));
  apart.add_node(fill_node(z, {512, 1024}));
  CHECK(apart.order().edge_count() == 0);
}

TEST_CASE("a node that cannot work is refused with its name and the value [O21] [Xf] [Xj]",
          "[capture]") {
  GraphSpec spec;
  const std::uint32_t x = floats(spec, "x");
  const auto refused = [&](SpecNode node, Errc code, const char* value) {
    node.name = "odd";
    const FailureRecord record = failure_of([&] { spec.add_node(std::move(node)); });
    CHECK(record.code == code);
    CHECK(record.node == "node 0 'odd'");
    CHECK_THAT(record.message, Contains(value));
  };
  refused(fill_node(9, {0, 4}), Errc::out_of_range, "no buffer 9 among 1");
  refused(fill_node(x, {0, 1025}), Errc::out_of_range, "[0, 1025) of buffer 'x' of 1024");
  refused(fill_node(x, {0, 9}, 1, 3), Errc::invalid_argument, "a pattern of 3 bytes");
  refused(fill_node(x, {0, 6}, 1, 4), Errc::misaligned, "6 bytes are no multiple of 4");
  refused(copy_node(x, {0, 8}, x, {8, 20}), Errc::size_mismatch, "12 bytes into 8");
  refused(copy_node(x, {0, 8}, x, {4, 12}), Errc::invalid_argument, "[4, 12)");
  SpecNode kernel = kernel_node(spec, test::add_in_place, {x});
  kernel.uses[0].range.end = 6;
  refused(kernel, Errc::misaligned, "6 bytes");
  kernel.uses.clear();
  refused(kernel, Errc::size_mismatch, "0 buffers instead of 1");
  kernel = kernel_node(spec, test::add_in_place, {x});
  kernel.has_count = true;
  refused(kernel, Errc::size_mismatch, "1 buffers instead of 2");
  kernel.uses.push_back({x, {0, 8}, Access::reads});
  refused(kernel, Errc::size_mismatch, "a count of 8 bytes");
  kernel.uses.back().range = {2, 6};
  refused(kernel, Errc::misaligned, "a count at byte 2");
  kernel = kernel_node(spec, test::add_in_place, {x});
  kernel.arguments.clear();
  refused(kernel, Errc::size_mismatch, "0 bytes of arguments");
  SpecNode node;
  node.kind = SpecKind::kernel;
  refused(node, Errc::empty_handle, "kernel");
  node.kind = SpecKind::host;
  refused(node, Errc::invalid_argument, "function");
  node.kind = SpecKind::child;
  refused(node, Errc::empty_graph, "graph");
  node.callee = std::make_shared<int>();
  node.repeat = GraphRepeat::while_true;
  refused(node, Errc::size_mismatch, "a condition of 0 bytes");
  node.uses = {{x, {2, 6}, Access::reads}};
  refused(node, Errc::misaligned, "a condition at byte 2");
  node.uses = {{x, {0, 4}, Access::reads}};
  node.at_most = 0;
  refused(node, Errc::invalid_argument, "at most 0 times");
  CHECK(spec.node_count() == 0);
  CHECK(failure_of([&] { spec.add_buffer({"y", 10, 4}); }).code == Errc::invalid_argument);
  CHECK(spec.buffer_count() == 1);
}

TEST_CASE("levels, starts and slack follow the longest and the costliest paths [O18] [O23]",
          "[capture]") {
  GraphSpec single;
  empty_node(single, "a");
  const SpecOrder alone = single.order();
  CHECK(alone.level == Nodes{0});
  CHECK(alone.start == std::vector<std::uint64_t>{0});
  CHECK(alone.slack == std::vector<std::uint64_t>{0});
  CHECK(alone.critical_path == Nodes{0});

  CHECK(chain({1, 1, 1, 1, 1}).order().level == Nodes{0, 1, 2, 3, 4});
  CHECK(chain({1, 1, 1, 1}).order().widths() == Nodes{1, 1, 1, 1});
  const SpecOrder costly = chain({1, 10, 1}).order();
  CHECK(costly.start == std::vector<std::uint64_t>{0, 1, 11});
  CHECK(costly.cost == 12);

  GraphSpec fork;
  empty_node(fork, "a");
  empty_node(fork, "cheap", 2);
  empty_node(fork, "dear", 20);
  empty_node(fork, "middling", 5);
  empty_node(fork, "join");
  for (const std::uint32_t middle : {1u, 2u, 3u}) {
    fork.depend(middle, 0);
    fork.depend(4, middle);
  }
  const SpecOrder order = fork.order();
  CHECK(order.widths() == Nodes{1, 3, 1});
  CHECK(order.slack == std::vector<std::uint64_t>{0, 18, 0, 15, 0});
  CHECK(order.cost == 22);
  CHECK(order.critical_path == Nodes{0, 2, 4});
  CHECK(order.by_slack() == Nodes{0, 2, 4, 3, 1});
}

TEST_CASE("a buffer is of use from its first write to its last use, rewrites included [O24] [Xd]",
          "[capture]") {
  GraphSpec spec;
  const std::uint32_t x = floats(spec, "x");
  const std::uint32_t y = floats(spec, "y");
  const std::uint32_t z = floats(spec, "z");
  spec.add_buffer({"unused", 4, 4});
  spec.add_node(fill_node(x, {0, 1024}));
  spec.add_node(kernel_node(spec, test::add_one, {x, y}));
  spec.add_node(kernel_node(spec, test::add_one, {y, z}));
  spec.add_node(fill_node(x, {0, 4}));
  const auto lives = spec.lives(spec.order());
  REQUIRE(lives.size() == 4);
  CHECK(lives[x].first_write == 0);
  CHECK(lives[x].last_use == 3);
  CHECK(lives[y].first_write == 1);
  CHECK(lives[y].last_use == 2);
  CHECK(lives[y].is_read);
  CHECK_FALSE(lives[z].is_read);
  CHECK(lives[3].first_write == none);
  CHECK(lives[3].last_use == none);
}

TEST_CASE("a node is dominated by the last one that all paths to it go through [O25]",
          "[capture]") {
  CHECK(dominators(chain({1, 1, 1, 1}).order()) == Nodes{none, 0, 1, 2});
  CHECK(dominators(diamond().order()) == Nodes{none, 0, 0, 0});
  GraphSpec spec = diamond();
  const std::uint32_t apart = empty_node(spec, "apart");
  const std::uint32_t both = empty_node(spec, "both");
  spec.depend(both, apart);
  CHECK(dominators(spec.order()) == Nodes{none, 0, 0, 0, none, apart});
  spec.depend(both, 3);
  CHECK(dominators(spec.order())[both] == none);
}

TEST_CASE("a spec seals into a recording in its order, without what does nothing [O6] [B104]",
          "[capture]") {
  GraphSpec spec;
  const std::uint32_t x = floats(spec, "x");
  const std::uint32_t y = floats(spec, "y");
  empty_node(spec, "start");
  spec.add_node(copy_node(x, {0, 0}, y, {0, 0}));
  spec.add_node(fill_node(x, {0, 1024}, 7));
  spec.add_node(kernel_node(spec, test::add_one, {x, y}, 0));
  empty_node(spec, "end");
  for (std::uint32_t i = 1; i < 5; ++i) spec.depend(i, i - 1);
  const auto recording = spec.seal("step");
  REQUIRE(recording->node_count() == 3);
  CHECK(recording->name() == "step");
  CHECK(recording->node(0).name == "start");
  CHECK(recording->node(1).verb == std::string("fill"));
  const auto fill_after = recording->node(1).after;
  CHECK(Nodes(fill_after.begin(), fill_after.end()) == Nodes{0});
  CHECK(recording->node(2).name == "end");
  const auto end_after = recording->node(2).after;
  CHECK(Nodes(end_after.begin(), end_after.end()) == Nodes{1});
  CHECK(recording->touched_bytes() == 1024);
}

TEST_CASE("ten thousand nodes with two edges each are ordered and sealed [O35] [Xi]", "[capture]") {
  GraphSpec spec(GENERATE(SpecEdges::derived, SpecEdges::given));
  constexpr std::uint32_t count = 10'000;
  for (std::uint32_t i = 0; i < count; ++i) {
    empty_node(spec, {});
    if (i >= 1) spec.depend(i, i - 1);
    if (i >= 2) spec.depend(i, i - 2);
  }
  CHECK(spec.edge_count() == 2 * count - 3);
  const SpecOrder order = spec.order();
  CHECK(std::is_sorted(order.order.begin(), order.order.end()));
  CHECK(order.level.back() == count - 1);
  CHECK(order.edge_count() <= 2 * count);
  CHECK(spec.seal()->node_count() == count);
}

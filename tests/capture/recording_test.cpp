// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/recording.hpp>

#include <capture/test_device.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace reprise;
using test::TestDevice;

namespace {

using Sealed = std::shared_ptr<const Recording>;

Sealed seal(Recorder& recorder, std::string_view name = {}, StreamId owner = 1) {
  auto sealed = Recording::seal(std::move(recorder), {name, owner});
  REQUIRE(sealed);
  return *sealed;
}

struct NodeSpec {
  Command command = command::Fill{0, 1, 0, 1};
  std::vector<Touch> touches{};
  std::string_view name{};
  NodeOrder order = NodeOrder::automatic;
};

std::uint32_t add(Recorder& recorder, NodeSpec spec) {
  RecordedNode node;
  node.command = spec.command;
  node.touches = spec.touches;
  node.name = spec.name;
  node.order = spec.order;
  auto added = recorder.add(std::move(node));
  REQUIRE(added);
  return *added;
}

std::vector<std::uint32_t> after(const Recording& recording, std::uint32_t node) {
  const auto edges = recording.node(node).after;
  return {edges.begin(), edges.end()};
}

const Kernel add_one{"add_one", [](const Block& block, In<float> in, Out<float> out) {
                       for (const auto i : block.range(in.size())) out[i] = in[i] + 1;
                     }};

std::uint64_t base_seed() {
  const char* text = std::getenv("REPRISE_SEED");
  return text ? std::strtoull(text, nullptr, 0) : 20240229;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ (a >> 29);
}

/// A recording at random, and what a slow reader of its nodes, byte by byte, makes of it.
struct RandomWindow {
  static constexpr std::uint64_t size = 24;

  struct Node {
    std::vector<Touch> touches;
    NodeOrder order = NodeOrder::bytes;
    bool host_call = false;
  };
  TestDevice device;
  std::vector<HoldRef> holds;
  std::vector<Node> nodes;
  std::mt19937_64 random;

  explicit RandomWindow(std::uint64_t seed) : random(seed) {
    for (std::uint64_t i = 0, n = 1 + below(3); i < n; ++i) holds.push_back(device.make(size));
    for (std::uint64_t i = 0, n = below(24); i < n; ++i) nodes.push_back(random_node());
  }
  std::uint64_t below(std::uint64_t n) { return random() % n; }

  Node random_node() {
    static constexpr Access all[] = {Access::reads, Access::may_write, Access::must_write,
                                     Access::reads | Access::must_write,
                                     Access::reads | Access::may_write};
    Node node;
    for (std::uint64_t i = 0, n = below(4); i < n; ++i) {
      const std::uint64_t begin = below(size);
      const std::uint64_t end = below(3) == 0 ? size : begin + below(size - begin + 1);
      node.touches.push_back({holds[below(holds.size())], {begin, end}, all[below(5)]});
    }
    const auto kind = below(12);
    if (kind == 0) node.order = NodeOrder::barrier;
    if (kind == 1) {
      node.order = NodeOrder::automatic;
      node.host_call = true;
    }
    return node;
  }
  Sealed record() const {
    Recorder recorder;
    for (const Node& node : nodes) {
      NodeSpec spec{command::Fill{0, 1, 0, 1}, node.touches, {}, node.order};
      if (node.host_call) spec.command = command::HostCall{};
      add(recorder, spec);
    }
    return seal(recorder);
  }

  bool is_barrier(const Node& node) const {
    const bool touches = std::any_of(node.touches.begin(), node.touches.end(),
                                     [](const Touch& touch) { return !touch.range.empty(); });
    return node.order == NodeOrder::barrier || (node.host_call && !touches);
  }
  /// Whether the second of two nodes must not overtake the first.
  bool conflict(const Node& a, const Node& b) const {
    if (is_barrier(a) || is_barrier(b) || (a.host_call && b.host_call)) return true;
    for (const Touch& x : a.touches) {
      for (const Touch& y : b.touches) {
        const bool writes = may_write(x.access) || may_write(y.access);
        if (writes && x.hold == y.hold && !x.range.intersect(y.range).empty()) return true;
      }
    }
    return false;
  }

  using Memory = std::vector<std::vector<std::uint64_t>>;
  std::size_t index_of(const HoldRef& hold) const {
    return static_cast<std::size_t>(std::find(holds.begin(), holds.end(), hold) - holds.begin());
  }
  /// Does what a node might do: what it writes depends on all it reads and on who it is.
  void run(std::uint32_t which, Memory& memory) const {
    std::uint64_t seen = which;
    for (const Touch& touch : nodes[which].touches) {
      if (!reads(touch.access)) continue;
      for (std::uint64_t b = touch.range.begin; b < touch.range.end; ++b) {
        seen = mix(seen, memory[index_of(touch.hold)][b]);
      }
    }
    for (const Touch& touch : nodes[which].touches) {
      for (std::uint64_t b = touch.range.begin; b < touch.range.end; ++b) {
        if (!may_write(touch.access)) continue;
        if (!must_write(touch.access) && (mix(which, b) & 1) != 0) continue;
        memory[index_of(touch.hold)][b] = mix(seen, b);
      }
    }
  }
  Memory fresh() const {
    Memory memory(holds.size(), std::vector<std::uint64_t>(size));
    std::uint64_t value = 1;
    for (auto& bytes : memory) {
      for (auto& byte : bytes) byte = mix(77, value++);
    }
    return memory;
  }
};

using Bytes = std::vector<std::vector<bool>>;

/// A merged list, byte by byte; checks on the way that it is disjoint, sorted and fused.
Bytes spread(const RandomWindow& window, std::span<const Touch> list, Access access) {
  Bytes bytes(window.holds.size(), std::vector<bool>(RandomWindow::size));
  std::set<const Hold*> done;
  for (std::size_t i = 0; i < list.size(); ++i) {
    CHECK(list[i].access == access);
    REQUIRE_FALSE(list[i].range.empty());
    if (i > 0 && list[i - 1].hold == list[i].hold) {
      REQUIRE(list[i - 1].range.end < list[i].range.begin);
    } else {
      REQUIRE(done.insert(list[i].hold.get()).second);
    }
    for (auto b = list[i].range.begin; b < list[i].range.end; ++b) {
      bytes[window.index_of(list[i].hold)][b] = true;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("merged sets are what a reader of single bytes finds", "[capture][random]") {
  for (std::uint64_t seed = base_seed(), end = seed + 400; seed < end; ++seed) {
    CAPTURE(seed);
    const RandomWindow window(seed);
    Bytes inputs(window.holds.size(), std::vector<bool>(RandomWindow::size));
    Bytes all_reads = inputs;
    Bytes may = inputs;
    Bytes must = inputs;
    std::set<const Hold*> touched;
    for (const auto& node : window.nodes) {
      for (const bool writing : {false, true}) {
        for (const Touch& touch : node.touches) {
          const auto hold = window.index_of(touch.hold);
          if (!touch.range.empty()) touched.insert(touch.hold.get());
          for (auto b = touch.range.begin; b < touch.range.end; ++b) {
            if (!writing && reads(touch.access)) {
              all_reads[hold][b] = true;
              if (!must[hold][b]) inputs[hold][b] = true;
            }
            if (writing && may_write(touch.access)) may[hold][b] = true;
            if (writing && must_write(touch.access)) must[hold][b] = true;
          }
        }
      }
    }
    const Sealed sealed = window.record();
    REQUIRE(spread(window, sealed->inputs(), Access::reads) == inputs);
    REQUIRE(spread(window, sealed->reads(), Access::reads) == all_reads);
    REQUIRE(spread(window, sealed->may_write(), Access::may_write) == may);
    REQUIRE(spread(window, sealed->must_write(), Access::must_write) == must);
    REQUIRE(sealed->holds().size() == touched.size());
    REQUIRE(sealed->guarded_bytes() == touched.size() * RandomWindow::size);
    std::uint64_t bytes = 0;
    for (std::size_t hold = 0; hold < may.size(); ++hold) {
      for (std::uint64_t b = 0; b < RandomWindow::size; ++b) {
        bytes += may[hold][b] || all_reads[hold][b];
      }
    }
    REQUIRE(sealed->touched_bytes() == bytes);
  }
}

TEST_CASE("nodes are ordered if and only if they must not overtake each other",
          "[capture][random]") {
  for (std::uint64_t seed = base_seed(), end = seed + 400; seed < end; ++seed) {
    CAPTURE(seed);
    const RandomWindow window(seed);
    const Sealed sealed = window.record();
    const auto count = static_cast<std::uint32_t>(window.nodes.size());
    REQUIRE(sealed->node_count() == count);
    // Nodes that a chain of conflicts, and that a chain of edges, puts before each node.
    std::vector<std::set<std::uint32_t>> asked(count);
    std::vector<std::set<std::uint32_t>> given(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t j = 0; j < i; ++j) {
        if (!window.conflict(window.nodes[j], window.nodes[i])) continue;
        asked[i].insert(j);
        asked[i].insert(asked[j].begin(), asked[j].end());
      }
      for (const auto j : sealed->node(i).after) {
        REQUIRE(j < i);
        given[i].insert(j);
        given[i].insert(given[j].begin(), given[j].end());
      }
      CAPTURE(i);
      REQUIRE(given[i] == asked[i]);
    }
  }
}

TEST_CASE("every order that the edges allow leaves the bytes of the recorded order",
          "[capture][random]") {
  for (std::uint64_t seed = base_seed(), end = seed + 200; seed < end; ++seed) {
    CAPTURE(seed);
    RandomWindow window(seed);
    const Sealed sealed = window.record();
    const std::uint32_t count = sealed->node_count();
    auto expected = window.fresh();
    for (std::uint32_t i = 0; i < count; ++i) window.run(i, expected);

    for (int attempt = 0; attempt < 4; ++attempt) {
      auto memory = window.fresh();
      std::vector<bool> done(count);
      for (std::uint32_t step = 0; step < count; ++step) {
        std::vector<std::uint32_t> ready;
        for (std::uint32_t i = 0; i < count; ++i) {
          const auto before = sealed->node(i).after;
          const bool free = std::all_of(before.begin(), before.end(),
                                        [&](auto earlier) { return done[earlier]; });
          if (!done[i] && free) ready.push_back(i);
        }
        REQUIRE_FALSE(ready.empty());
        const auto next = ready[window.below(ready.size())];
        window.run(next, memory);
        done[next] = true;
      }
      REQUIRE(memory == expected);
    }
  }
}

TEST_CASE("an empty recording is legal", "[capture]") {
  Recorder recorder;
  const Sealed sealed = seal(recorder, "nothing", 9);
  CHECK(sealed->node_count() == 0);
  CHECK(sealed->edge_count() == 0);
  CHECK(sealed->owner() == 9);
  CHECK(sealed->name() == "nothing");
  CHECK(sealed->guarded_bytes() == 0);
  CHECK(sealed->inputs().empty());
  CHECK(sealed->may_write().empty());
  CHECK(sealed->plan().nodes.size() == 0);
  CHECK(sealed->to_dot() == "digraph \"nothing\" {\n}\n");
  int calls = 0;
  sealed->walk_outcome({}, [&](auto...) { ++calls; });
  CHECK(calls == 0);
}

TEST_CASE("recordings have numbers of their own and none is 0", "[capture]") {
  std::set<std::uint64_t> ids;
  for (int i = 0; i < 50; ++i) {
    Recorder recorder;
    ids.insert(seal(recorder)->id());
  }
  CHECK(ids.size() == 50);
  CHECK(ids.count(0) == 0);
}

TEST_CASE("a recording holds what it touches and lets go once", "[capture][I26]") {
  TestDevice device;
  const auto bytes = std::make_shared<const int>(7);
  Recorder recorder;
  for (int i = 0; i < 200; ++i) {
    std::vector<Touch> touches{{device.make(8), {0, 8}, Access::must_write}};
    RecordedNode node;
    node.command = command::Write{touches[0].hold->device.address, nullptr, 8};
    node.touches = touches;
    node.retained = bytes;
    node.retained_bytes = 8;
    REQUIRE(recorder.add(std::move(node)));
  }
  Sealed sealed = seal(recorder);
  CHECK(recorder.node_count() == 0);
  CHECK(recorder.write_set()->empty());
  CHECK(sealed->retained_bytes() == 1600);
  CHECK(sealed->holds().size() == 200);
  // The recorder may go, or be used again, while the recording lives.
  add(recorder, {command::Marker{}, {{device.make(8), {0, 8}, Access::reads}}, {}});
  CHECK(device.live() == 201);
  recorder = Recorder{};
  CHECK(device.live() == 200);
  CHECK(bytes.use_count() == 201);
  Sealed copy = sealed;
  sealed.reset();
  CHECK(device.live() == 200);
  copy.reset();
  CHECK(device.live() == 0);
  CHECK(device.known() == 0);
  CHECK(bytes.use_count() == 1);
}

TEST_CASE("a plan names addresses and its nodes are those of the recording", "[capture]") {
  TestDevice device;
  const HoldRef in = device.make(64);
  const HoldRef out = device.make(64);
  Recorder recorder;
  const std::byte block[48]{std::byte{1}};
  const std::byte* arguments = recorder.copy_arguments(block);
  REQUIRE(arguments);
  add(recorder,
      {command::Fill{in->device.address, 64, 0xab, 1}, {{in, {0, 64}, Access::must_write}}});
  RecordedNode launch;
  std::vector<Touch> touches{{in, {16, 32}, Access::reads}, {out, {0, 16}, Access::must_write}};
  launch.command = command::Launch{add_one.definition().get(), Grid{2}, arguments};
  launch.kernel = add_one.definition();
  launch.touches = touches;
  launch.where = {"model.cpp", 12};
  REQUIRE(recorder.add(std::move(launch)));
  const Sealed sealed = seal(recorder, "step");

  const GraphPlan plan = sealed->plan();
  CHECK(plan.name == "step");
  REQUIRE(plan.nodes.size() == 2);
  const PlanNode first = plan.nodes.node(0);
  const PlanNode second = plan.nodes.node(1);
  CHECK(std::get<command::Fill>(first.command).to == in->device.address);
  CHECK(first.name == "fill");
  CHECK(second.name == "add_one");
  std::vector<NodeTouch> bytes;
  plan.nodes.add_touches(1, bytes);
  REQUIRE(bytes.size() == 2);
  CHECK(bytes[0].addresses == ByteRange{in->device.address + 16, in->device.address + 32});
  CHECK(bytes[0].access == Access::reads);
  CHECK(bytes[1].addresses == ByteRange{out->device.address, out->device.address + 16});
  CHECK(std::vector(second.after.begin(), second.after.end()) == std::vector<std::uint32_t>{0});
  CHECK(&sealed->plan().nodes == &plan.nodes);

  const NodeView node = sealed->node(1);
  CHECK(node.verb == "launch");
  REQUIRE(node.arguments.size() == add_one.definition()->argument_bytes);
  CHECK(std::equal(node.arguments.begin(), node.arguments.end(), block));
  CHECK(node.touches[1].hold == out);
  CHECK(node.where.line == 12);
  CHECK(sealed->guarded_bytes() == 128);
  CHECK(sealed->touched_bytes() == 80);
}

TEST_CASE("a name given to a node is copied and shown", "[capture]") {
  Recorder recorder;
  {
    std::string name = "a rather long name of a node that will not fit into a string itself";
    add(recorder, {command::Fill{0, 1, 0, 1}, {}, name});
    name.assign(name.size(), '?');
  }
  const Sealed sealed = seal(recorder);
  CHECK(sealed->node(0).name.substr(0, 18) == "a rather long name");
  CHECK(sealed->plan().nodes.node(0).name == sealed->node(0).name);
}

TEST_CASE("a recording draws itself with a graph and names and arrows", "[capture][O20]") {
  TestDevice device;
  const HoldRef hold = device.make(8);
  Recorder recorder;
  add(recorder, {command::Fill{0, 8, 0, 1}, {{hold, {0, 8}, Access::must_write}}, "say \"hi\""});
  RecordedNode launch;
  std::vector<Touch> touches{{hold, {0, 8}, Access::reads}};
  launch.command = command::Launch{add_one.definition().get(), Grid{2}, nullptr};
  launch.touches = touches;
  launch.where = {"model.cpp", 12};
  REQUIRE(recorder.add(std::move(launch)));
  add(recorder, {command::HostCall{}, {}, {}});
  const Sealed sealed = seal(recorder, "decode");

  const std::string dot = sealed->to_dot();
  CHECK(dot.find("digraph \"decode\" {") == 0);
  CHECK(dot.find("n0 [shape=parallelogram, label=\"0: say \\\"hi\\\"\\nfill") != std::string::npos);
  CHECK(dot.find("n1 [shape=box, label=\"1: add_one\\nlaunch 'add_one' 2x1x1 blocks") !=
        std::string::npos);
  CHECK(dot.find("tooltip=\"model.cpp:12\"") != std::string::npos);
  CHECK(dot.find("n2 [shape=ellipse") != std::string::npos);
  CHECK(dot.find("  n0 -> n1;\n") != std::string::npos);
  CHECK(dot.find("  n1 -> n2;\n") != std::string::npos);
  CHECK(dot.find("  n0 -> n2;\n") == std::string::npos);

  std::ostringstream text;
  text << *sealed;
  const std::string lines = text.str();
  CHECK(lines.find("'decode' of stream 1: 3 nodes, 2 edges, 8 bytes in 1 allocations\n") !=
        std::string::npos);
  CHECK(lines.find("  0 fill 8 bytes with 0x0 (say \"hi\")\n") != std::string::npos);
  CHECK(lines.find(" after 0 at model.cpp:12\n") != std::string::npos);
}

TEST_CASE("host calls keep their order and one that names no bytes waits for everything",
          "[capture]") {
  TestDevice device;
  const HoldRef a = device.make(8);
  const HoldRef b = device.make(8);
  Recorder recorder;
  const auto fill = add(recorder, {command::Fill{0, 8, 0, 1}, {{b, {0, 8}, Access::must_write}}});
  const auto first = add(recorder, {command::HostCall{}, {{a, {0, 4}, Access::reads}}});
  const auto second = add(recorder, {command::HostCall{}, {{a, {4, 8}, Access::reads}}});
  const auto free =
      add(recorder, {command::HostCall{}, {{a, {0, 8}, Access::reads}}, {}, NodeOrder::bytes});
  const auto all = add(recorder, {command::HostCall{}});
  const auto last = add(recorder, {command::HostCall{}, {{a, {4, 8}, Access::reads}}});
  const Sealed sealed = seal(recorder);
  using List = std::vector<std::uint32_t>;
  CHECK(after(*sealed, first).empty());
  CHECK(after(*sealed, second) == List{first});
  CHECK(after(*sealed, free).empty());
  CHECK(after(*sealed, all) == List{fill, second, free});
  CHECK(after(*sealed, last) == List{all});
}

TEST_CASE("outcomes of a run are told for every node in recorded order", "[capture]") {
  Recorder recorder;
  for (int i = 0; i < 6; ++i) add(recorder, {command::Fill{0, 1, 0, 1}});
  const Sealed sealed = seal(recorder);
  using Kind = NodeOutcome::Kind;
  const auto failure = make_failure(Errc::kernel_failed, "replay", "x", "");
  const NodeOutcome at1{1, Kind::failed, 0, failure};
  const NodeOutcome at3{3, Kind::skipped, 1, nullptr};
  const NodeOutcome at5{5, Kind::failed, 0, nullptr};
  const std::vector<std::vector<NodeOutcome>> reports{
      {at1, at3, at5}, {at5, at1, at3}, {at3, at5, at1}, {at1, at1, at3, at5}};
  for (const auto& outcomes : reports) {
    std::vector<NodeEnd> ends;
    sealed->walk_outcome(outcomes,
                         [&](std::uint32_t node, NodeEnd end, const NodeOutcome* outcome) {
                           CHECK(node == ends.size());
                           CHECK((outcome == nullptr) == (end == NodeEnd::ok));
                           if (outcome) CHECK(outcome->node == node);
                           if (node == 1) CHECK(outcome->failure == failure);
                           ends.push_back(end);
                         });
    CHECK(ends == std::vector{NodeEnd::ok, NodeEnd::failed, NodeEnd::ok, NodeEnd::skipped,
                              NodeEnd::ok, NodeEnd::failed});
  }
}

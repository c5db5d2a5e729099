// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/recorder.hpp>

#include <reprise/capture/hazards.hpp>
#include <reprise/capture/recording.hpp>

#include <capture/test_device.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using namespace reprise;
using detail::Hazards;
using test::TestDevice;

namespace {

constexpr auto in = Access::reads;
constexpr auto out = Access::must_write;
constexpr auto update = Access::may_write;

using After = std::vector<std::uint32_t>;

/// Adds nodes that touch slices of one allocation and tells the order found.
struct Ordered {
  TestDevice device;
  HoldRef hold = device.make(1024);
  Hazards hazards;

  std::uint32_t add(std::vector<std::pair<ByteRange, Access>> ranges, const After& after = {},
                    Hazards::Order order = Hazards::Order::bytes) {
    std::vector<Touch> touches;
    for (const auto& [range, access] : ranges) touches.push_back({hold, range, access});
    hazards.add(touches, after, order);
    return hazards.size() - 1;
  }
  After after(std::uint32_t node) const {
    const auto edges = hazards.after(node);
    return {edges.begin(), edges.end()};
  }
};

std::uint32_t add(Recorder& recorder, const HoldRef& hold, ByteRange range, Access access) {
  std::vector<Touch> touches{{hold, range, access}};
  RecordedNode node;
  node.command = command::Fill{hold->device.address, 8, 0, 1};
  node.touches = touches;
  auto added = recorder.add(std::move(node));
  REQUIRE(added);
  return *added;
}

const Kernel nothing{"nothing", [](const Block&, Update<int>) {}};

}  // namespace

TEST_CASE_METHOD(Ordered, "a reader follows the last writer of any of its bytes",
                 "[capture][O17]") {
  const auto a = add({{{0, 8}, out}});
  const auto b = add({{{8, 16}, out}});
  const auto c = add({{{4, 12}, in}});
  const auto d = add({{{0, 4}, in}});
  CHECK(after(a).empty());
  CHECK(after(b).empty());
  CHECK(after(c) == After{a, b});
  CHECK(after(d) == After{a});
}

TEST_CASE_METHOD(Ordered, "a writer follows the readers and the writers before it",
                 "[capture][Xe]") {
  const auto a = add({{{0, 8}, out}});
  const auto b = add({{{0, 8}, in}});
  const auto c = add({{{0, 4}, in}});
  const auto d = add({{{0, 8}, out}});
  const auto e = add({{{0, 8}, update}});
  CHECK(after(d) == After{b, c});  // And by them after a.
  CHECK(after(e) == After{d});
  CHECK(after(b) == After{a});
}

TEST_CASE_METHOD(Ordered, "nodes that work in place on one buffer form a chain", "[capture][Xe]") {
  const auto in_place = in | out;
  for (std::uint32_t i = 0; i < 5; ++i) {
    add({{{0, 64}, in_place}});
    CHECK(after(i) == (i == 0 ? After{} : After{i - 1}));
  }
}

TEST_CASE_METHOD(Ordered, "disjoint slices are not ordered", "[capture]") {
  for (std::uint64_t i = 0; i < 8; ++i) add({{{8 * i, 8 * i + 8}, in | out}});
  CHECK(hazards.edge_count() == 0);
  add({{{0, 64}, in}});
  CHECK(after(8).size() == 8);
}

TEST_CASE_METHOD(Ordered, "an edge that another edge implies is left out", "[capture]") {
  const auto a = add({{{0, 8}, out}});
  const auto b = add({{{0, 8}, in}, {{8, 16}, out}});
  const auto c = add({{{0, 8}, in}, {{8, 16}, in}, {{16, 24}, out}});
  const auto d = add({{{16, 24}, in}, {{8, 16}, in}});
  CHECK(after(b) == After{a});
  CHECK(after(c) == After{b});
  CHECK(after(d) == After{c});
}

TEST_CASE_METHOD(Ordered, "an order that was asked for holds whatever the bytes say", "[capture]") {
  const auto a = add({{{0, 8}, out}});
  const auto b = add({{{8, 16}, out}}, {a});
  const auto c = add({{{0, 8}, in}}, {b, b});
  CHECK(after(b) == After{a});
  CHECK(after(c) == After{b});
}

TEST_CASE_METHOD(Ordered, "a barrier parts what comes before from what comes behind", "[capture]") {
  const auto a = add({{{0, 8}, out}});
  const auto b = add({{{8, 16}, out}});
  const auto c = add({{{0, 8}, in}});
  const auto barrier = add({}, {}, Hazards::Order::barrier);
  const auto d = add({{{0, 16}, in}});
  const auto e = add({{{32, 40}, out}});
  const auto f = add({{{32, 40}, in}});
  const auto second = add({}, {}, Hazards::Order::barrier);
  const auto third = add({}, {}, Hazards::Order::barrier);
  CHECK(after(a).empty());
  CHECK(after(c) == After{a});
  CHECK(after(barrier) == After{b, c});
  CHECK(after(d) == After{barrier});
  CHECK(after(e) == After{barrier});
  CHECK(after(f) == After{e});
  CHECK(after(second) == After{d, f});
  CHECK(after(third) == After{second});
}

TEST_CASE_METHOD(Ordered, "many writers and many readers cost edges in proportion to the nodes",
                 "[capture][Xi]") {
  constexpr std::uint64_t count = 600;
  hold = device.make(count);
  for (std::uint64_t i = 0; i < count; ++i) add({{{i, i + 1}, out}});
  for (std::uint64_t i = 0; i < count; ++i) add({{{0, count}, in}});
  for (std::uint64_t i = 0; i < count; ++i) add({{{i, i + 1}, out}});
  // Every pair of neighbouring layers alone has count * count edges.
  CHECK(hazards.edge_count() < 2 * hazards.size());

  // And the order still holds: each layer comes behind all of the one before.
  std::vector<std::bitset<3 * count>> follows(hazards.size());
  for (std::uint32_t i = 0; i < hazards.size(); ++i) {
    for (const auto earlier : hazards.after(i)) {
      REQUIRE(earlier < i);
      follows[i] |= follows[earlier];
      follows[i].set(earlier);
    }
  }
  bool ordered = true;
  for (std::uint32_t i = count; i < 3 * count; ++i) {
    const std::uint32_t layer = i / count;
    for (std::uint32_t j = 0; j < count; ++j) {
      ordered = ordered && follows[i][(layer - 1) * count + j];
    }
  }
  CHECK(ordered);
}

TEST_CASE_METHOD(Ordered, "a whole write makes one segment again of what slices cut",
                 "[capture][Xi]") {
  for (int round = 0; round < 50; ++round) {
    for (std::uint64_t i = 0; i < 16; ++i) add({{{64 * i, 64 * i + 64}, in | out}});
    add({{{0, 1024}, in | out}});
    REQUIRE(hazards.segment_count() == 1);
  }
  // Each slice follows the whole before it, each whole the slices: no more, whatever came earlier.
  CHECK(hazards.edge_count() == 50 * 16 + 49 * 16);
  const auto sets = hazards.merged();
  REQUIRE(sets.must_write.size() == 1);
  CHECK(sets.must_write[0].range == ByteRange{0, 1024});
}

TEST_CASE_METHOD(Ordered, "inputs are the bytes read before the recording must have written them",
                 "[capture]") {
  add({{{0, 8}, in}});  // Nobody wrote: an input.
  add({{{8, 24}, out}});
  add({{{4, 16}, in}});  // 4..8 are an input, 8..16 are not.
  add({{{32, 40}, update}});
  add({{{32, 40}, in}});                   // An update need not have written them.
  add({{{48, 56}, in}, {{48, 56}, out}});  // In place: reads first.
  add({{{48, 56}, in}});
  const auto sets = hazards.merged();

  const auto ranges = [](const std::vector<Touch>& list) {
    std::vector<ByteRange> result;
    for (const Touch& touch : list) result.push_back(touch.range);
    return result;
  };
  CHECK(ranges(sets.inputs) == std::vector<ByteRange>{{0, 8}, {32, 40}, {48, 56}});
  CHECK(ranges(sets.reads) == std::vector<ByteRange>{{0, 16}, {32, 40}, {48, 56}});
  CHECK(ranges(sets.may_write) == std::vector<ByteRange>{{8, 24}, {32, 40}, {48, 56}});
  CHECK(ranges(sets.must_write) == std::vector<ByteRange>{{8, 24}, {48, 56}});
  CHECK(sets.touched_bytes == 24 + 8 + 8);
  CHECK(sets.holds.size() == 1);
}

TEST_CASE("a command that does nothing leaves no node", "[capture][B104]") {
  TestDevice device;
  const HoldRef hold = device.make(64);
  Recorder recorder;
  const auto leaves_none = [&](Command command) {
    std::vector<Touch> touches{{hold, {0, 64}, out}};
    RecordedNode node;
    node.command = command;
    node.touches = touches;
    auto added = recorder.add(std::move(node));
    return added && *added == Recorder::no_node;
  };
  const auto* kernel = nothing.definition().get();
  CHECK(leaves_none(command::Copy{1, 2, 0}));
  CHECK(leaves_none(command::Fill{1, 0, 0, 1}));
  CHECK(leaves_none(command::Write{1, nullptr, 0}));
  CHECK(leaves_none(command::Launch{kernel, Grid{0}, nullptr}));
  CHECK(leaves_none(command::Launch{kernel, Grid{Dim3{4, 0, 1}}, nullptr}));
  CHECK(recorder.node_count() == 0);
  CHECK(recorder.write_set()->empty());

  CHECK(add(recorder, hold, {0, 64}, out) == 0);
  CHECK_FALSE(leaves_none(command::Launch{kernel, Grid{1}, nullptr}));
  CHECK(recorder.node_count() == 2);
}

TEST_CASE("a read is refused and leaves the recorder as it was", "[capture]") {
  TestDevice device;
  const HoldRef hold = device.make(64);
  Recorder recorder;
  std::vector<Touch> touches{{hold, {0, 64}, in}};
  RecordedNode node;
  std::byte to[4];
  node.command = command::Read{to, 0, 4};
  node.touches = touches;
  auto added = recorder.add(std::move(node));
  REQUIRE_FALSE(added);
  CHECK(added.error().code == Errc::capture_refused);
  CHECK(recorder.node_count() == 0);
  CHECK(touches[0].hold == hold);
}

TEST_CASE("a node may only be asked to follow an earlier one", "[capture]") {
  Recorder recorder;
  const After itself{0};
  RecordedNode node;
  node.after = itself;
  auto added = recorder.add(std::move(node));
  REQUIRE_FALSE(added);
  CHECK(added.error().code == Errc::invalid_argument);
  CHECK(recorder.node_count() == 0);
}

TEST_CASE("an order that was asked for is kept with its nodes and goes with them", "[capture]") {
  TestDevice device;
  const HoldRef hold = device.make(64);
  Recorder recorder;
  const auto fill = [&](std::uint64_t at, const After& after) {
    std::vector<Touch> touches{{hold, {at, at + 1}, out}};
    RecordedNode node;
    node.command = command::Fill{hold->device.address + at, 1, 0, 1};
    node.touches = touches;
    node.after = after;
    REQUIRE(recorder.add(std::move(node)));
  };
  fill(0, {});
  fill(1, {0, Recorder::no_node});
  fill(2, {});
  REQUIRE(recorder.written_in_window(*hold, {0, 1}));  // The rest comes after a first look.
  fill(3, {Recorder::no_node});
  fill(4, {1, 2});
  const auto first = Recording::seal(std::move(recorder), {});
  REQUIRE(first);
  const auto edges = [](const Recording& recording) {
    std::vector<After> all;
    for (std::uint32_t i = 0; i < recording.node_count(); ++i) {
      const auto after = recording.node(i).after;
      all.emplace_back(after.begin(), after.end());
    }
    return all;
  };
  CHECK(edges(*first.value()) == std::vector<After>{{}, {0}, {}, {}, {1, 2}});

  for (std::uint64_t at = 0; at < 5; ++at) fill(at, {});
  const auto second = Recording::seal(std::move(recorder), {});
  REQUIRE(second);
  CHECK(second.value()->edge_count() == 0);
}

TEST_CASE("what a buffer of the window holds is known once nodes may have written it all",
          "[capture]") {
  TestDevice device;
  const HoldRef fresh = device.make(64);
  const HoldRef other = device.make(64);
  Recorder recorder;
  const auto written = [&](ByteRange range) { return *recorder.written_in_window(*fresh, range); };

  CHECK_FALSE(written({0, 64}));
  CHECK(written({8, 8}));
  add(recorder, other, {0, 64}, out);
  CHECK_FALSE(written({0, 64}));
  add(recorder, fresh, {0, 16}, out);
  add(recorder, fresh, {16, 32}, in);
  CHECK(written({0, 16}));
  CHECK(written({4, 12}));
  CHECK_FALSE(written({0, 17}));
  CHECK_FALSE(written({16, 32}));
  CHECK_FALSE(written({60, 64}));
  add(recorder, fresh, {16, 40}, update);
  CHECK(written({0, 40}));
  CHECK_FALSE(written({0, 41}));
  add(recorder, fresh, {48, 64}, out);
  CHECK_FALSE(written({0, 64}));
  add(recorder, fresh, {40, 48}, out);
  CHECK(written({0, 64}));
}

TEST_CASE("an unsealed recorder tells what its nodes may write", "[capture]") {
  TestDevice device;
  const HoldRef a = device.make(64);
  const HoldRef b = device.make(64);
  Recorder recorder;
  add(recorder, a, {0, 16}, out);
  add(recorder, b, {0, 64}, in);
  add(recorder, a, {16, 24}, update);
  add(recorder, a, {8, 12}, out);
  add(recorder, b, {32, 48}, in | out);

  const auto check = [&] {
    const auto writes = recorder.write_set();
    REQUIRE(writes);
    REQUIRE(writes.value().size() == 2);
    CHECK(writes.value()[0].hold == a);
    CHECK(writes.value()[0].range == ByteRange{0, 24});
    CHECK(writes.value()[0].access == Access::may_write);
    CHECK(writes.value()[1].hold == b);
    CHECK(writes.value()[1].range == ByteRange{32, 48});
  };
  check();
  check();
  std::uint64_t bytes = 0;
  recorder.each_write([&](const Touch& touch) { bytes += touch.range.size(); });
  CHECK(bytes == 16 + 8 + 4 + 16);
}

TEST_CASE("argument blocks and names stay where they are while thousands of nodes follow",
          "[capture]") {
  TestDevice device;
  const HoldRef hold = device.make(64);
  Recorder recorder;
  std::vector<std::byte*> blocks;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    std::vector<std::byte> block(i % 7 == 0 ? 5000 : i % 97);
    for (auto& byte : block) byte = static_cast<std::byte>(i);
    blocks.push_back(recorder.copy_arguments(block));
    REQUIRE(blocks.back());
    CHECK(reinterpret_cast<std::uintptr_t>(blocks.back()) % 16 == 0);
    REQUIRE(add(recorder, hold, {0, 64}, out) == i);
  }
  bool intact = true;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const std::size_t size = i % 7 == 0 ? 5000 : i % 97;
    for (std::size_t j = 0; j < size; ++j) {
      intact = intact && blocks[i][j] == static_cast<std::byte>(i);
    }
  }
  CHECK(intact);
}

TEST_CASE("a cleared recorder uses its memory again", "[capture]") {
  Recorder recorder;
  const std::vector<std::byte> small(1000, std::byte{1});
  const std::vector<std::byte> large(20'000, std::byte{2});
  const std::byte* first = recorder.copy_arguments({});
  CHECK(first != nullptr);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) REQUIRE(recorder.copy_arguments(small));
    recorder.clear();
    CHECK(recorder.copy_arguments(small) == first);
    // Larger than the chunk that comes next.
    const std::byte* block = recorder.copy_arguments(large);
    REQUIRE(block);
    CHECK(std::equal(large.begin(), large.end(), block));
    recorder.clear();
  }
}

TEST_CASE("a recorder holds what its nodes touch until it is cleared", "[capture][I26]") {
  TestDevice device;
  auto bytes = std::make_shared<const int>(7);
  std::weak_ptr<const int> watch = bytes;
  Recorder recorder;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 100; ++i) {
      std::vector<Touch> touches;
      for (int j = 0; j < i % 9; ++j) touches.push_back({device.make(8), {0, 8}, out});
      touches.push_back({{}, {4, 4}, out});  // Nothing is nobody's.
      RecordedNode node;
      node.touches = touches;
      node.retained = bytes;
      node.retained_bytes = 4;
      REQUIRE(recorder.add(std::move(node)));
    }
    CHECK(device.live() == 11 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
    CHECK(recorder.retained_bytes() == 400);
    REQUIRE(recorder.write_set());
    recorder.clear();
    CHECK(device.live() == 0);
    CHECK(device.known() == 0);
    CHECK(recorder.node_count() == 0);
    CHECK(recorder.retained_bytes() == 0);
    CHECK(recorder.write_set()->empty());
    CHECK(bytes.use_count() == 1);
  }
  add(recorder, device.make(8), {0, 8}, out);
  Recorder moved = std::move(recorder);
  CHECK(device.live() == 1);
  CHECK(moved.node_count() == 1);
  moved = Recorder{};
  CHECK(device.live() == 0);
}

TEST_CASE("a launch keeps its kernel even if it is only named by the command", "[capture]") {
  auto body = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = body;
  Recorder recorder;
  {
    const Kernel kernel{"kept", [body](const Block&, int) {}};
    RecordedNode node;
    node.command = command::Launch{kernel.definition().get(), Grid{1}, nullptr};
    REQUIRE(recorder.add(std::move(node)));
  }
  body.reset();
  CHECK_FALSE(watch.expired());
  recorder.clear();
  CHECK(watch.expired());
}

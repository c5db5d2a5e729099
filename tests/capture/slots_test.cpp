// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/slots.hpp>

#include <reprise/capture/recording.hpp>

#include <capture/test_device.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace reprise;
using detail::SlotTable;
using test::TestDevice;

namespace {

std::uint32_t add(Recorder& recorder, Command command, std::vector<Touch> touches) {
  RecordedNode node;
  node.command = command;
  node.touches = touches;
  auto added = recorder.add(std::move(node));
  REQUIRE(added);
  return *added;
}

std::uint64_t address(const HoldRef& hold, std::uint64_t offset) {
  return hold->device.address + offset;
}

SlotSpec slot(std::string name, const HoldRef& hold, ByteRange range) {
  return {std::move(name), hold, range, nullptr, 1};
}

std::shared_ptr<const Recording> seal(Recorder& recorder, const std::vector<SlotSpec>& slots) {
  auto sealed = Recording::seal(std::move(recorder), {"slots", 1, slots});
  REQUIRE(sealed);
  return *sealed;
}

const Kernel mix{"mix", [](const Block&, std::uint8_t, In<double>, Out<float>, InOut<float>) {}};

}  // namespace

namespace {

/// A fill outside of the slots, a copy, a launch and a write in them.
struct Window {
  Window() {
    add(recorder, command::Fill{address(b, 0), 8, 0, 4}, {{b, {0, 8}, Access::must_write}});
    add(recorder, command::Copy{address(a, 40), address(a, 16), 8},
        {{a, {40, 48}, Access::must_write}, {a, {16, 24}, Access::reads}});
    alignas(16) std::byte block[128] = {};
    const auto put = [&](std::uint32_t parameter, const HoldRef& hold, std::uint64_t offset,
                         std::size_t count) {
      const detail::BufferSlot argument{reinterpret_cast<void*>(address(hold, offset)), count};
      std::memcpy(block + mix.definition()->parameters[parameter].offset, &argument,
                  sizeof argument);
    };
    put(1, a, 16, 2);
    put(2, b, 16, 0);  // nothing
    put(3, a, 36, 1);
    const std::byte* const arguments =
        recorder.copy_arguments({block, mix.definition()->argument_bytes});
    add(recorder, command::Launch{mix.definition().get(), Grid{1}, arguments},
        {{a, {16, 32}, Access::reads}, {a, {36, 40}, Access::reads | Access::must_write}});
    static const std::byte bytes[4] = {};
    add(recorder, command::Write{address(a, 44), bytes, 4}, {{a, {44, 48}, Access::must_write}});
    recording = seal(
        recorder, {slot("low", a, {8, 32}), slot("high", a, {32, 48}), slot("none", b, {8, 16})});
  }

  TestDevice device;
  HoldRef a = device.make(256);
  HoldRef b = device.make(256);
  Recorder recorder;
  std::shared_ptr<const Recording> recording;
};

}  // namespace

TEST_CASE("a recording tells where its commands name addresses inside slots", "[capture]") {
  const Window window;
  const auto patches = window.recording->plan().patches;
  const auto& parameters = mix.definition()->parameters;
  const PlanPatch expected[] = {{1, 1, 0, 8},
                                {1, 0, 1, 8},
                                {2, 0, parameters[1].offset, 8},
                                {2, 1, parameters[3].offset, 4},
                                {3, 1, 0, 12}};
  REQUIRE(patches.size() == std::size(expected));
  for (std::size_t i = 0; i < patches.size(); ++i) {
    CAPTURE(i);
    CHECK(patches[i].node == expected[i].node);
    CHECK(patches[i].slot == expected[i].slot);
    CHECK(patches[i].at == expected[i].at);
    CHECK(patches[i].offset == expected[i].offset);
  }
}

TEST_CASE("a recording knows what its slots need and what lies outside of them", "[capture]") {
  const Window window;
  const HoldRef& a = window.a;
  const HoldRef& b = window.b;
  const SlotTable& table = window.recording->slots();
  CHECK(table.slots()[0].alignment == alignof(double));
  CHECK(table.slots()[1].alignment == alignof(float));
  CHECK(table.slots()[2].alignment == 1);
  CHECK((table.slots()[0].is_input && !may_write(table.slots()[0].access)));
  CHECK((table.slots()[1].is_input && may_write(table.slots()[1].access)));
  CHECK(table.find("high") == 1);
  CHECK(table.find("hig") == SlotTable::none);
  CHECK(table.slot_of(*a, {16, 32}) == 0);
  CHECK(table.slot_of(*a, {31, 33}) == SlotTable::none);
  CHECK(table.slot_of(*b, {16, 32}) == SlotTable::none);
  CHECK(table.overlaps_fixed(*b, {4, 10}));
  CHECK_FALSE(table.overlaps_fixed(*b, {8, 16}));
  CHECK_FALSE(table.overlaps_fixed(*b, {4, 4}));
  CHECK_FALSE(table.overlaps_fixed(*a, {0, 256}));
}

TEST_CASE("a recording whose node names both sides of a slot's border does not seal", "[capture]") {
  TestDevice device;
  const HoldRef a = device.make(64);
  Recorder recorder;
  add(recorder, command::Fill{address(a, 0), 16, 0, 1}, {{a, {0, 16}, Access::must_write}});
  for (const ByteRange range : {ByteRange{0, 8}, ByteRange{4, 8}, ByteRange{15, 20}}) {
    const std::vector<SlotSpec> slots{slot("x", a, range)};
    const auto sealed = Recording::seal(std::move(recorder), {"x", 1, slots});
    REQUIRE_FALSE(sealed);
    CHECK(sealed.error().code == Errc::slot_overlap);
    REQUIRE(recorder.node_count() == 1);  // as it was
  }
  CHECK(seal(recorder, {slot("x", a, {0, 16}), slot("y", a, {16, 20}), slot("z", a, {4, 4})})
            ->slots()
            .slots()
            .size() == 3);
}

TEST_CASE("host calls and graphs within the graph bar the slots they use", "[capture]") {
  TestDevice device;
  const HoldRef a = device.make(64);
  Recorder recorder;
  const std::vector<SlotSpec> slots{slot("x", a, {0, 8}), slot("y", a, {8, 16}),
                                    slot("z", a, {16, 24})};
  add(recorder, command::HostCall{}, {{a, {0, 4}, Access::reads}});
  add(recorder, command::RunGraph{}, {{a, {8, 12}, Access::must_write}});
  const auto recording = seal(recorder, slots);
  CHECK(recording->slots().slots()[0].is_opaque);
  CHECK(recording->slots().slots()[1].is_opaque);
  CHECK_FALSE(recording->slots().slots()[2].is_opaque);
}

TEST_CASE("byte sets cut at the ends of slots cover the same bytes", "[capture]") {
  std::mt19937_64 random(test::seed());
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    TestDevice device;
    const HoldRef holds[] = {device.make(32), device.make(32)};
    std::vector<SlotSpec> slots;
    std::vector<Touch> touches;
    std::vector<std::uint32_t> owner(64, SlotTable::none);  // of each byte
    std::vector<bool> touched(64);
    for (std::uint64_t h = 0; h < 2; ++h) {
      std::uint64_t at = 0;
      while (at < 32) {
        const std::uint64_t end = std::min<std::uint64_t>(32, at + 1 + random() % 9);
        if (random() % 2 == 0) {
          std::fill(&owner[h * 32 + at], &owner[h * 32] + end, slots.size());
          slots.push_back(slot(std::to_string(slots.size()), holds[h], {at, end}));
        }
        at = end;
      }
      for (at = random() % 8; at < 32;) {
        const std::uint64_t end = std::min<std::uint64_t>(32, at + 1 + random() % 16);
        touches.push_back({holds[h], {at, end}, Access::reads});
        std::fill(touched.begin() + std::ptrdiff_t(h * 32 + at),
                  touched.begin() + std::ptrdiff_t(h * 32 + end), true);
        at = end + 1 + random() % 8;
      }
    }
    Recorder recorder;
    const auto recording = seal(recorder, slots);
    std::vector<bool> seen(64);
    for (const detail::SlotTouch& part : recording->slots().split(touches)) {
      const std::size_t base = part.touch.hold == holds[0] ? 0 : 32;
      for (std::uint64_t i = part.touch.range.begin; i < part.touch.range.end; ++i) {
        REQUIRE_FALSE(seen[base + i]);
        seen[base + i] = true;
        REQUIRE(owner[base + i] == part.slot);
      }
      if (part.slot == SlotTable::none) continue;
      const auto& home = recording->slots().slots()[part.slot];
      const ByteRange moved = part.moved_to(1000, home);
      REQUIRE(moved.begin == 1000 + part.touch.range.begin - home.range.begin);
      REQUIRE(moved.size() == part.touch.range.size());
    }
    REQUIRE(seen == touched);
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/sealed_nodes.hpp>

#include <reprise/capture/recording.hpp>

#include <capture/test_device.hpp>
#include <support/host_memory.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace reprise;
using test::TestDevice;

namespace {

using Sealed = std::shared_ptr<const Recording>;

const Kernel chain{"chain", [](const Block&, In<int>, Out<int>, int) {}};
const Kernel other{"other", [](const Block&, Update<int>) {}};

/// What was recorded, kept without packing anything.
struct Told {
  Command command;
  std::vector<Touch> touches;
  std::string name;
  SourceLocation where;
  std::vector<std::byte> arguments;
};

bool same(const Dim3& a, const Dim3& b) {
  return a.x == b.x && a.y == b.y && a.z == b.z;
}

void check_command(const Command& now, const Command& then) {
  REQUIRE(now.index() == then.index());
  if (const auto* launch = std::get_if<command::Launch>(&then)) {
    const auto& kept = std::get<command::Launch>(now);
    CHECK(kept.kernel == launch->kernel);
    CHECK((same(kept.grid.blocks, launch->grid.blocks) &&
           same(kept.grid.threads, launch->grid.threads)));
    CHECK(kept.grid.shared_bytes == launch->grid.shared_bytes);
    CHECK(kept.count == launch->count);
    CHECK((kept.arguments == nullptr) == (launch->arguments == nullptr));
    CHECK(reinterpret_cast<std::uintptr_t>(kept.arguments) % 16 == 0);
  } else if (const auto* copy = std::get_if<command::Copy>(&then)) {
    const auto& kept = std::get<command::Copy>(now);
    CHECK((kept.to == copy->to && kept.from == copy->from && kept.bytes == copy->bytes));
  } else if (const auto* fill = std::get_if<command::Fill>(&then)) {
    const auto& kept = std::get<command::Fill>(now);
    CHECK((kept.to == fill->to && kept.bytes == fill->bytes && kept.pattern == fill->pattern &&
           kept.pattern_bytes == fill->pattern_bytes));
  } else if (const auto* write = std::get_if<command::Write>(&then)) {
    const auto& kept = std::get<command::Write>(now);
    CHECK((kept.to == write->to && kept.from == write->from && kept.bytes == write->bytes));
  } else if (const auto* host = std::get_if<command::HostCall>(&then)) {
    const auto& kept = std::get<command::HostCall>(now);
    CHECK((kept.call == host->call && kept.context == host->context));
  } else if (const auto* graph = std::get_if<command::RunGraph>(&then)) {
    const auto& kept = std::get<command::RunGraph>(now);
    CHECK((kept.program == graph->program && kept.repeat == graph->repeat));
    CHECK((kept.condition == graph->condition && kept.at_most == graph->at_most));
  }
}

void check_node(const Recording& recording, std::uint32_t index, const Told& told) {
  CAPTURE(index);
  const NodeView node = recording.node(index);
  check_command(node.command, told.command);
  CHECK(node.name == told.name);
  CHECK(node.where.line == told.where.line);
  CHECK(std::string(node.where.file) == (told.where.file != nullptr ? told.where.file : ""));
  CHECK(std::vector(node.arguments.begin(), node.arguments.end()) == told.arguments);
  REQUIRE(node.touches.size() == told.touches.size());
  std::vector<NodeTouch> bytes;
  recording.plan().nodes.add_touches(index, bytes);
  REQUIRE(bytes.size() == told.touches.size());
  std::size_t i = 0;
  for (const Touch& touch : node.touches) {
    const Touch& then = told.touches[i];
    CHECK((touch.hold == then.hold && touch.range == then.range && touch.access == then.access));
    const std::uint64_t base = then.hold->device.address;
    CHECK(bytes[i].addresses == ByteRange{base + then.range.begin, base + then.range.end});
    CHECK(bytes[i].access == then.access);
    ++i;
  }
}

/// Commands of all kinds at random, and what they were.
class Window {
public:
  explicit Window(std::uint64_t seed) : random_(seed) {
    for (int i = 0; i < 5; ++i) holds_.push_back(device_.make(64));
  }

  Recorder recorder;
  std::vector<Told> told;

  void add() {
    Told now;
    RecordedNode node;
    now.command = command_for(node, now);
    for (std::uint64_t n = draw(4); n != 0; --n) {
      constexpr Access modes[] = {Access::reads, Access::must_write, Access::may_write};
      const std::uint64_t begin = draw(64);
      now.touches.push_back(
          {holds_[draw(holds_.size())], {begin, begin + 1 + draw(64 - begin)}, modes[draw(3)]});
    }
    std::vector<Touch> touches = now.touches;
    node.touches = touches;
    if (draw(3) == 0) node.name = now.name = name();
    now.where = {files[draw(files.size())], std::uint32_t(draw(1000))};
    node.where = now.where;
    node.command = now.command;
    REQUIRE(recorder.add(std::move(node)));
    told.push_back(std::move(now));
  }

private:
  static constexpr std::array<const char*, 4> files{"one.cpp", "two.cpp", "", nullptr};

  std::uint64_t draw(std::uint64_t n) { return random_() % n; }

  std::string name() {
    std::string made(1 + draw(40), 'n');
    made[draw(made.size())] = '\0';
    return made;
  }

  Command command_for(RecordedNode& node, Told& now) {
    const std::uint64_t at = draw(1000);
    switch (draw(7)) {
      case 0: now.name = "copy"; return command::Copy{at, at + 9, 1 + draw(9)};
      case 1: now.name = "fill"; return command::Fill{at, 8, draw(9), 4};
      case 2: now.name = "write"; return command::Write{at, &byte_, 1};
      case 3: now.name = "host_call"; return command::HostCall{[](void*) {}, &byte_};
      case 4:
        now.name = verb_of(command::RunGraph{});
        return command::RunGraph{nullptr, nullptr, GraphRepeat::while_true, at, 7};
      case 5: now.name = verb_of(command::Marker{}); return command::Marker{};
      default: break;
    }
    const KernelRef& kernel = draw(2) == 0 ? chain.definition() : other.definition();
    now.name = kernel->name;
    const Grid grid({std::uint32_t(1 + draw(3)), 2, 1}, {32, std::uint32_t(1 + draw(3)), 1},
                    std::uint32_t(draw(99)));
    command::Launch launch{kernel.get(), grid, nullptr, 4 * draw(9)};
    if (draw(4) != 0) {
      for (std::uint32_t i = 0; i < kernel->argument_bytes; ++i) {
        now.arguments.push_back(std::byte(draw(256)));
      }
      launch.arguments = recorder.copy_arguments(now.arguments);
    }
    if (draw(2) == 0) node.kernel = kernel;
    return launch;
  }

  std::mt19937_64 random_;
  TestDevice device_;
  std::vector<HoldRef> holds_;
  std::byte byte_{};
};

}  // namespace

TEST_CASE("a recording tells its nodes just as they were recorded", "[capture]") {
  const std::uint64_t seed = test::seed();
  for (std::uint64_t round = 0; round < 40; ++round) {
    CAPTURE(seed, round);
    Window window(seed + round);
    for (std::uint64_t n = round * round / 4; n != 0; --n) window.add();
    auto sealed = Recording::seal(std::move(window.recorder), {"all kinds", 1});
    REQUIRE(sealed);
    const Recording& recording = **sealed;
    REQUIRE(recording.node_count() == window.told.size());
    // What comes next into the same memory changes nothing.
    for (int i = 0; i < 100; ++i) window.add();
    for (std::uint32_t i = 0; i < recording.node_count(); ++i) {
      check_node(recording, i, window.told[i]);
    }
  }
}

TEST_CASE("a recording holds each kernel that it launches, once", "[capture]") {
  const auto captured = std::make_shared<int>(1);
  Sealed sealed;
  {
    const Kernel kernel{"kernel", [captured](const Block&, Update<int>) {}};
    Recorder recorder;
    for (int i = 0; i < 100; ++i) {
      RecordedNode node;
      node.command = command::Launch{kernel.definition().get(), Grid{1}, nullptr};
      REQUIRE(recorder.add(std::move(node)));
    }
    sealed = *Recording::seal(std::move(recorder), {"kernels", 1});
  }
  CHECK(captured.use_count() == 2);
  CHECK(sealed->node(99).name == "kernel");
  sealed.reset();
  CHECK(captured.use_count() == 1);
}

TEST_CASE("without host memory nothing is sealed and nothing lost", "[capture][fault]") {
  Window window(test::seed());
  for (int i = 0; i < 50; ++i) window.add();
  for (std::uint64_t nth = 1;; ++nth) {
    CAPTURE(nth);
    std::optional<test::HostMemoryFault> fault(std::in_place, nth,
                                               test::HostMemoryFault::Flavour::once);
    const auto sealed = Recording::seal(std::move(window.recorder), {"seal", 1});
    const bool fired = fault->fired();
    fault.reset();
    if (fired) {
      REQUIRE_FALSE(sealed);
      CHECK(sealed.error().code == Errc::out_of_memory);
      REQUIRE(window.recorder.node_count() == 50);
      continue;
    }
    REQUIRE(sealed);
    CHECK(nth > 10);
    for (std::uint32_t i = 0; i < 50; ++i) check_node(**sealed, i, window.told[i]);
    return;
  }
}

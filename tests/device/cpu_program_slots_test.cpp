// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/program.hpp>

#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/hand_plan.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <stdexcept>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

using Ints = std::vector<int>;

const Kernel bump{"bump", [](Block block, In<int> in, Out<int> out, int by) {
                    for (std::size_t i : block.range(out.size())) out[i] = in[i] + by;
                  }};
const Kernel refuse{"refuse", [](Block, In<int> in, Out<int>) {
                      if (in[0] < 0) throw std::runtime_error("negative");
                    }};

std::uint64_t address(const Ints& ints) {
  return reinterpret_cast<std::uintptr_t>(ints.data());
}

/// Slot 0 is read, slot 1 is written; the middle is the plan's own.
struct Plan {
  explicit Plan(std::size_t size) : a(size, 1), middle(size, 0), b(size, 0), n(size) {
    const Grid grid = grid_for(n, 64);
    const std::uint64_t bytes = n * sizeof(int);
    launch(grid, first, {0, 0, 0, 0});
    launch(grid, second, {1, 1, std::uint32_t{sizeof(detail::BufferSlot)}, 0});
    nodes.add("fill", command::Fill{address(b), 4, 7, 4});
    patches.push_back({2, 1, 0, 0});
    nodes.add("copy", command::Copy{address(b) + bytes - 4, address(a), 4});
    patches.push_back({3, 1, 0, bytes - 4});
    patches.push_back({3, 0, 1, 0});
    nodes.add("write",
              command::Write{address(b) + 4, reinterpret_cast<const std::byte*>(&nine), 4});
    patches.push_back({4, 1, 0, 4});
  }
  void launch(Grid grid, const ArgumentBlock& arguments, PlanPatch patch) {
    nodes.add("bump", command::Launch{bump.definition().get(), grid, arguments.data()});
    patches.push_back(patch);
  }
  static Ints expected(std::size_t n, int value) {
    Ints all(n, value + 11);
    all[0] = 7;
    all[1] = 9;
    all[n - 1] = value;
    return all;
  }

  Ints a;
  Ints middle;
  Ints b;
  std::size_t n;
  int one = 1;
  int ten = 10;
  int nine = 9;
  ArgumentBlock first{bump, a, middle, one};
  ArgumentBlock second{bump, middle, b, ten};
  HandPlan nodes;
  std::vector<PlanPatch> patches;
};

TestWork& run(CpuRig& rig, GraphProgram& program, const std::uint64_t* slots) {
  TestWork& work = rig.work();
  work.command = command::RunGraph{&program, slots};
  rig.submit(0, work);
  return work;
}

}  // namespace

TEST_CASE("a run of a program finds slots where its own table says", "[device][cpu][program]") {
  const std::uint32_t workers = GENERATE(0u, 2u);
  const std::size_t n = GENERATE(std::size_t{48}, std::size_t{640});  // one block, ten blocks
  CpuRig rig(small_cpu(workers));
  Plan plan(n);
  auto lowered = rig->lower({plan.nodes, "plan", plan.patches});
  REQUIRE(lowered);
  GraphProgram& program = **lowered;
  // All of them in flight at once, each with a table of its own, and plain ones between.
  constexpr int runs = 12;
  std::deque<Ints> ins;
  std::deque<Ints> outs;
  std::deque<std::vector<std::uint64_t>> tables;
  std::vector<TestWork*> works;
  for (int i = 0; i < runs; ++i) {
    ins.emplace_back(n, 100 * i);
    outs.emplace_back(n, -1);
    tables.push_back({address(ins.back()), address(outs.back())});
    works.push_back(&run(rig, program, tables.back().data()));
    if (i % 3 == 0) works.push_back(&run(rig, program, nullptr));
  }
  for (TestWork* work : works) rig.wait(*work);
  for (int i = 0; i < runs; ++i) {
    CAPTURE(i);
    CHECK(outs[static_cast<std::size_t>(i)] == Plan::expected(n, 100 * i));
  }
  CHECK(plan.b == Plan::expected(n, 1));
  CHECK(plan.a == Ints(n, 1));
  CHECK(program.bytes() > plan.nodes.size() * 128);
}

TEST_CASE("a node that fails at bound bytes is told and spreads as recorded",
          "[device][cpu][program][N3]") {
  CpuRig rig(small_cpu(0));
  Ints a(4, 1);
  Ints b(4, 0);
  Ints c(4, 0);
  int one = 1;
  const ArgumentBlock refusing{refuse, a, b};
  const ArgumentBlock reading{bump, b, c, one};
  const auto range = [](const Ints& ints) { return ByteRange{address(ints), address(ints) + 16}; };
  HandPlan nodes;
  nodes.add("first", command::Launch{refuse.definition().get(), Grid{1}, refusing.data()},
            {{range(a), Access::reads}, {range(b), Access::must_write}});
  nodes.add("second", command::Launch{bump.definition().get(), Grid{1}, reading.data()},
            {{range(b), Access::reads}, {range(c), Access::must_write}});
  const std::vector<PlanPatch> patches{{0, 0, 0, 0}};
  auto lowered = rig->lower({nodes, "plan", patches});
  REQUIRE(lowered);
  const Ints bad(4, -1);
  const std::uint64_t table[] = {address(bad)};
  TestWork& failing = run(rig, **lowered, table);
  rig.notice.wait_for_failures(1);
  REQUIRE(failing.failure);
  CHECK(failing.failure->message == "negative");
  CHECK(failing.failure->node == "first");
  REQUIRE(failing.nodes.size() == 2);
  CHECK(failing.nodes[1].kind == NodeOutcome::Kind::skipped);
  CHECK(failing.nodes[1].because == 0);
  rig->resume(0);
  rig.wait(failing);
  CHECK(c == Ints(4, 0));
  TestWork& good = run(rig, **lowered, nullptr);
  rig.wait(good);
  CHECK(c == Ints(4, 1));
}

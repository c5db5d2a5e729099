// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/program.hpp>

#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/gate.hpp>
#include <support/hand_plan.hpp>
#include <support/host_memory.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

using Kind = NodeOutcome::Kind;

template <class T>
ByteRange range_of(std::span<T> span) {
  const auto begin = reinterpret_cast<std::uint64_t>(span.data());
  return {begin, begin + span.size_bytes()};
}

const Kernel add{"add", [](Block block, In<int> a, In<int> b, Out<int> out) {
                   for (std::size_t i : block.range(out.size())) out[i] = a[i] + b[i];
                 }};
const Kernel bump{"bump", [](Block block, InOut<int> x, int by) {
                    for (std::size_t i : block.range(x.size())) x[i] += by;
                  }};
const Kernel fails{"fails", [](Block, In<int>, Out<int>) { throw std::runtime_error("told to"); }};

/// A recording made by hand, kept as an actor keeps one.
class Plan {
public:
  template <class... A, class... V>
  void launch(std::string name, const Kernel<void(A...)>& kernel, Grid grid, V&&... values) {
    arguments_.emplace_back(kernel, values...);
    std::vector<NodeTouch> touches;
    (touch<A>(touches, values), ...);
    add(std::move(name), command::Launch{kernel.definition().get(), grid, arguments_.back().data()},
        std::move(touches));
  }
  void add(std::string name, Command command, std::vector<NodeTouch> touches = {}) {
    nodes_.add(std::move(name), command, std::move(touches));
  }
  GraphPlan view() { return {nodes_, "plan"}; }
  const HandPlan& nodes() const { return nodes_; }

private:
  template <class A, class V>
  static void touch(std::vector<NodeTouch>& touches, V& value) {
    if constexpr (BufferArgument<A>) {
      touches.push_back({range_of(std::span(value)), A::access});
    }
  }

  std::deque<ArgumentBlock> arguments_;
  HandPlan nodes_;
};

std::unique_ptr<GraphProgram> lower(CpuRig& rig, Plan& plan) {
  auto program = rig->lower(plan.view());
  REQUIRE(program);
  return std::move(program).value();
}

TestWork& run(CpuRig& rig, GraphProgram& program) {
  TestWork& work = rig.work();
  work.command = command::RunGraph{&program};
  rig.submit(0, work);
  return work;
}

/// The outcomes as text: "2 failed, 3 skipped for 2".
std::string text(const std::vector<NodeOutcome>& outcomes) {
  std::string all;
  for (const NodeOutcome& outcome : outcomes) {
    if (!all.empty()) all += ", ";
    all += std::to_string(outcome.node);
    all += outcome.kind == Kind::failed ? " failed"
                                        : " skipped for " + std::to_string(outcome.because);
    CHECK(bool(outcome.failure) == (outcome.kind == Kind::failed));
  }
  return all;
}

/// Runs a program that fails, and lets its stream go on.
TestWork& run_failing(CpuRig& rig, GraphProgram& program) {
  const std::size_t before = rig.notice.failures().size();
  TestWork& work = run(rig, program);
  rig.notice.wait_for_failures(before + 1);
  REQUIRE(work.failure);
  rig->resume(0);
  rig.wait(work);
  CHECK(work.successes == 0);
  return work;
}

struct Data {
  std::vector<int> a = std::vector<int>(64, 1);
  std::vector<int> b = std::vector<int>(64, 2);
  std::vector<int> c = std::vector<int>(64, 0);
  std::vector<int> d = std::vector<int>(64, 0);
  std::vector<int> e = std::vector<int>(64, 0);
};

}  // namespace

TEST_CASE("a program gives what its commands give one by one", "[device][cpu][program][I25]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 3u);
  CAPTURE(workers);
  CpuRig rig(small_cpu(workers));
  Data data;
  std::vector<int> host(64, 7);
  std::vector<int> out(64);
  int calls = 0;
  Plan plan;
  const auto bytes = 64 * sizeof(int);
  plan.add("write", command::Write{range_of(std::span(data.a)).begin,
                                   reinterpret_cast<std::byte*>(host.data()), bytes});
  plan.launch("one block", add, Grid{1}, data.a, data.b, data.c);
  plan.launch("four blocks", add, Grid{{4, 1, 1}, {16, 1, 1}}, data.c, data.c, data.d);
  plan.launch("none", bump, Grid{Dim3{0, 1, 1}}, data.d, 1'000);
  plan.launch("bump", bump, Grid{1}, data.d, 3);
  plan.add("copy", command::Copy{range_of(std::span(data.e)).begin,
                                 range_of(std::span(data.d)).begin, bytes});
  plan.add("fill", command::Fill{range_of(std::span(data.b)).begin, bytes, 5, 4});
  plan.add("read", command::Read{reinterpret_cast<std::byte*>(out.data()),
                                 range_of(std::span(data.e)).begin, bytes});
  plan.add("call", command::HostCall{[](void* n) { ++*static_cast<int*>(n); }, &calls});
  plan.add("marker", command::Marker{});

  // The first replay sees b = 2, later ones b = 5, as the eager commands do.
  Data eager;
  const auto step = [&] {
    eager.a.assign(64, 7);
    for (std::size_t i = 0; i < 64; ++i) eager.c[i] = eager.a[i] + eager.b[i];
    for (std::size_t i = 0; i < 64; ++i) eager.d[i] = 2 * eager.c[i] + 3;
    eager.e = eager.d;
    eager.b.assign(64, 5);
  };
  const auto program = lower(rig, plan);
  for (int replay = 1; replay <= 3; ++replay) {
    TestWork& work = run(rig, *program);
    rig.wait(work);
    step();
    CHECK(data.a == eager.a);
    CHECK(data.b == eager.b);
    CHECK(data.c == eager.c);
    CHECK(data.d == eager.d);
    CHECK(out == eager.e);
    CHECK(calls == replay);
    CHECK(work.successes == 1);
    CHECK(work.nodes.empty());
    CHECK_FALSE(work.failure);
  }
}

TEST_CASE("a program without nodes succeeds", "[device][cpu][program]") {
  CpuRig rig(small_cpu(1));
  Plan plan;
  const auto program = lower(rig, plan);
  TestWork& work = run(rig, *program);
  rig.wait(work);
  CHECK(work.successes == 1);
}

TEST_CASE("running a program takes no host memory", "[device][cpu][program]") {
  CpuRig rig(small_cpu(0));
  Data data;
  Plan plan;
  for (int i = 0; i < 20; ++i) plan.launch("add", add, Grid{2}, data.a, data.b, data.c);
  const auto program = lower(rig, plan);
  TestWork& work = rig.work();
  work.command = command::RunGraph{program.get()};
  const auto before = host_allocations();
  rig.submit(0, work);
  CHECK(host_allocations() == before);
  CHECK(work.successes == 1);
}

TEST_CASE("a program takes at most four lines per node", "[device][cpu][program]") {
  CpuRig rig(small_cpu(0));
  Data data;
  Plan plan;
  for (int i = 0; i < 1'000; ++i) plan.launch("add", add, Grid{4}, data.a, data.b, data.c);
  CHECK(lower(rig, plan)->bytes() <= 256u * 1'000);
}

TEST_CASE("arguments are read where the plan keeps them", "[device][cpu][program]") {
  CpuRig rig(small_cpu(0));
  std::vector<int> x(4, 0);
  ArgumentBlock arguments(bump, x, 1);
  HandPlan plan;
  plan.add("bump", command::Launch{bump.definition().get(), Grid{1}, arguments.data()});
  auto program = rig->lower({plan, "plan"});
  REQUIRE(program);
  run(rig, **program);
  arguments = ArgumentBlock(bump, x, 10);
  run(rig, **program);
  CHECK(x == std::vector<int>(4, 11));
}

TEST_CASE("lowering refuses a kernel without a body for the CPU", "[device][cpu][program]") {
  CpuRig rig(small_cpu(0));
  const KernelDefinition bodiless;
  Plan plan;
  plan.add("bodiless", command::Launch{&bodiless, Grid{1}, nullptr});
  const auto program = rig->lower(plan.view());
  REQUIRE_FALSE(program);
  CHECK(program.error().code == Errc::no_such_kernel);
}

TEST_CASE("lowering without host memory says so", "[device][cpu][program]") {
  CpuRig rig(small_cpu(0));
  Data data;
  Plan plan;
  plan.launch("one", add, Grid{1}, data.a, data.b, data.c);
  plan.launch("many", add, Grid{4}, data.a, data.b, data.c);
  for (std::uint64_t nth = 1;; ++nth) {
    std::optional<HostMemoryFault> fault(std::in_place, nth, HostMemoryFault::Flavour::once);
    const auto program = rig->lower(plan.view());
    const bool fired = fault->fired();
    fault.reset();
    if (!fired) break;
    CAPTURE(nth);
    REQUIRE_FALSE(program);
    CHECK(program.error().code == Errc::out_of_memory);
  }
}

TEST_CASE("the failed node and those that depend on its bytes are left out and no others",
          "[device][cpu][program][N3]") {
  const std::uint32_t workers = GENERATE(0u, 2u);
  CAPTURE(workers);
  CpuRig rig(small_cpu(workers));
  Data data;
  std::vector<int> f(64, 0);
  Plan plan;
  plan.launch("before", add, Grid{1}, data.a, data.b, data.c);
  plan.launch("the bad one", fails, Grid{1}, data.c, data.d);
  plan.launch("reads bad", add, Grid{1}, data.d, data.a, data.e);
  plan.launch("unrelated", add, Grid{1}, data.c, data.b, f);
  plan.launch("reads what was skipped", bump, Grid{4}, data.e, 1);
  plan.add("copies what was skipped",
           command::Copy{range_of(std::span(data.a)).begin, range_of(std::span(data.e)).begin,
                         64 * sizeof(int)},
           {{range_of(std::span(data.a)), Access::must_write},
            {range_of(std::span(data.e)), Access::reads}});
  plan.launch("unrelated again", bump, Grid{1}, f, 1);
  const auto program = lower(rig, plan);
  for (int replay = 0; replay < 2; ++replay) {
    TestWork& work = run_failing(rig, *program);
    CHECK(text(work.nodes) == "1 failed, 2 skipped for 1, 4 skipped for 1, 5 skipped for 1");
    CHECK(work.failure == work.nodes[0].failure);
    CHECK(work.failure->code == Errc::kernel_failed);
    CHECK(work.failure->verb == "replay");
    CHECK(work.failure->node == "the bad one");
    CHECK(work.failure->message == "told to");
    CHECK(data.c == std::vector<int>(64, 3));
    CHECK(data.e == std::vector<int>(64, 0));
    CHECK(data.a == std::vector<int>(64, 1));
    CHECK(f == std::vector<int>(64, 6));
  }
}

TEST_CASE("what must be written whole is good again and what may be written is not",
          "[device][cpu][program][N3]") {
  CpuRig rig(small_cpu(0));
  Data data;
  const Kernel touch{"touch", [](Block, Update<int>) {}};
  Plan plan;
  plan.launch("bad", fails, Grid{1}, data.a, data.c);
  plan.launch("may write", touch, Grid{1}, data.c);
  plan.launch("reads bad", add, Grid{1}, data.c, data.a, data.d);
  plan.launch("rewrites", add, Grid{1}, data.a, data.b, data.c);
  plan.launch("reads good", add, Grid{1}, data.c, data.a, data.e);
  const auto program = lower(rig, plan);
  TestWork& work = run_failing(rig, *program);
  CHECK(text(work.nodes) == "0 failed, 2 skipped for 0");
  CHECK(data.e == std::vector<int>(64, 4));
}

TEST_CASE("a partly rewritten range stays bad in the rest", "[device][cpu][program][N3]") {
  CpuRig rig(small_cpu(0));
  Data data;
  const std::span<int> c(data.c);
  Plan plan;
  plan.launch("bad", fails, Grid{1}, data.a, data.c);
  auto middle = c.subspan(16, 16);
  auto a = std::span(data.a).first(16);
  plan.launch("rewrites the middle", add, Grid{1}, a, a, middle);
  auto out = std::span(data.d).first(16);
  plan.launch("reads the middle", add, Grid{1}, middle, middle, out);
  auto low = c.subspan(12, 8);
  auto low_out = std::span(data.e).first(8);
  plan.launch("reads across its lower end", add, Grid{1}, low, low, low_out);
  auto high = c.subspan(31, 2);
  auto high_out = std::span(data.e).subspan(8, 2);
  plan.launch("reads across its upper end", add, Grid{1}, high, high, high_out);
  const auto program = lower(rig, plan);
  CHECK(text(run_failing(rig, *program).nodes) == "0 failed, 3 skipped for 0, 4 skipped for 0");
  CHECK(data.d[15] == 4);
}

TEST_CASE("two failures of one run keep their own dependants", "[device][cpu][program][N3]") {
  CpuRig rig(small_cpu(0));
  Data data;
  std::vector<int> f(64);
  Plan plan;
  plan.launch("bad one", fails, Grid{1}, data.a, data.c);
  plan.launch("bad two", fails, Grid{1}, data.b, data.d);
  plan.launch("reads one", add, Grid{1}, data.c, data.a, data.e);
  plan.launch("reads two", add, Grid{1}, data.d, data.a, f);
  const auto program = lower(rig, plan);
  TestWork& work = run_failing(rig, *program);
  CHECK(text(work.nodes) == "0 failed, 1 failed, 2 skipped for 0, 3 skipped for 1");
  CHECK(work.nodes[0].failure->id != work.nodes[1].failure->id);
  CHECK(work.failure->node == "bad one");
}

TEST_CASE("an indirect reader of the failed node names the node at the root",
          "[device][cpu][program][N3]") {
  CpuRig rig(small_cpu(0));
  Data data;
  Plan plan;
  plan.launch("fine", add, Grid{1}, data.a, data.a, data.b);
  plan.launch("bad", fails, Grid{1}, data.a, data.c);
  plan.launch("first", bump, Grid{1}, data.c, 1);
  plan.launch("second", add, Grid{1}, data.c, data.a, data.d);
  plan.launch("third", add, Grid{1}, data.d, data.a, data.e);
  const auto program = lower(rig, plan);
  CHECK(text(run_failing(rig, *program).nodes) ==
        "1 failed, 2 skipped for 1, 3 skipped for 1, 4 skipped for 1");
}

TEST_CASE("a program works again after it failed", "[device][cpu][program]") {
  CpuRig rig(small_cpu(1));
  Data data;
  bool broken = true;
  const Kernel sometimes{"sometimes", [&broken](Block, Out<int> out) {
                           if (broken) throw std::runtime_error("broken");
                           for (int& x : out) x = 9;
                         }};
  Plan plan;
  plan.launch("sometimes", sometimes, Grid{1}, data.c);
  plan.launch("after", add, Grid{1}, data.c, data.a, data.d);
  const auto program = lower(rig, plan);
  CHECK(text(run_failing(rig, *program).nodes) == "0 failed, 1 skipped for 0");
  broken = false;
  TestWork& work = run(rig, *program);
  rig.wait(work);
  CHECK(work.successes == 1);
  CHECK(data.d == std::vector<int>(64, 10));
}

TEST_CASE("a failing block fails its node", "[device][cpu][program][N3]") {
  CpuRig rig(small_cpu(1));
  Data data;
  const Kernel last{"last", [](Block block, Out<int>) {
                      if (block.index.x == 7) throw 7;
                    }};
  Plan plan;
  plan.launch("", last, Grid{8}, data.c);
  plan.launch("reads it", bump, Grid{8}, data.c, 1);
  const auto program = lower(rig, plan);
  TestWork& work = run_failing(rig, *program);
  CHECK(text(work.nodes) == "0 failed, 1 skipped for 0");
  CHECK(work.failure->node == "last");
  CHECK(work.failure->message.empty());
  CHECK_THROWS_AS(std::rethrow_exception(work.failure->exception), int);
}

TEST_CASE("nodes with several blocks are spread like launches", "[device][cpu][program][threads]") {
  WatchedHost host;
  host.leap(10'000'000);
  CpuRig rig(small_cpu(2), host);
  host.wait_for_sleepers(2);
  Gate meeting;
  const Kernel meet{"meet", [&meeting](Block block, Update<int> x) {
                      ++x[block.index.x];
                      if (block.index.x != 0) meeting.pass(2);
                    }};
  std::vector<int> x(48, 0);
  Plan plan;
  plan.launch("meet", meet, Grid{48}, x);
  plan.launch("bump", bump, Grid{1}, x, 1);
  const auto program = lower(rig, plan);
  rig.wait(run(rig, *program));
  CHECK(x == std::vector<int>(48, 2));
}

TEST_CASE("a graph within a graph runs as a node and fails as one", "[device][cpu][program][N3]") {
  CpuRig rig(small_cpu(0));
  Data data;
  Plan good;
  good.launch("inner", add, Grid{1}, data.a, data.b, data.c);
  const auto good_program = lower(rig, good);
  Plan bad;
  bad.launch("inner bad", fails, Grid{1}, data.a, data.d);
  const auto bad_program = lower(rig, bad);
  Plan outer;
  outer.add("good child", command::RunGraph{good_program.get()},
            {{range_of(std::span(data.c)), Access::must_write}});
  outer.add("bad child", command::RunGraph{bad_program.get()},
            {{range_of(std::span(data.d)), Access::must_write}});
  outer.launch("reads good", add, Grid{1}, data.c, data.a, data.e);
  outer.launch("reads bad", bump, Grid{1}, data.d, 1);
  const auto program = lower(rig, outer);
  TestWork& work = run_failing(rig, *program);
  CHECK(text(work.nodes) == "1 failed, 3 skipped for 1");
  CHECK(work.failure->node == "inner bad");
  CHECK(data.e == std::vector<int>(64, 4));
}

TEST_CASE("without memory to tell nodes apart a failure claims the whole run",
          "[device][cpu][program]") {
  bool ran_out = true;
  bool told_nothing = false;
  for (std::uint64_t nth = 1; ran_out; ++nth) {
    CAPTURE(nth);
    CpuRig rig(small_cpu(0));
    Data data;
    std::optional<HostMemoryFault> fault;
    const Kernel starves{"starves", [&fault, nth](Block, Out<int>) {
                           fault.emplace(nth, HostMemoryFault::Flavour::from_then_on);
                           throw 1;
                         }};
    Plan plan;
    plan.launch("starves", starves, Grid{1}, data.c);
    for (int i = 0; i < 5; ++i) plan.launch("reads it", bump, Grid{1}, data.c, 1);
    plan.launch("after", add, Grid{1}, data.a, data.b, data.d);
    const auto program = lower(rig, plan);
    TestWork& work = rig.work();
    work.command = command::RunGraph{program.get()};
    rig.enqueue(0, work);
    rig.notice.on_failed = [&](Work&) {
      ran_out = fault->fired();
      fault.reset();
    };
    rig->kick(Backend::no_stream);
    REQUIRE(work.failure);
    // All is told or nothing.
    if (work.nodes.empty()) {
      told_nothing = true;
    } else {
      CHECK(work.nodes.size() == 6);
      CHECK(data.d == std::vector<int>(64, 3));
    }
    CHECK(data.c == std::vector<int>(64, 0));
    rig->resume(0);
  }
  CHECK(told_nothing);
}

namespace {

constexpr std::size_t model_bytes = 32;

// Reads `in`, writes `out`; the last argument says whether it throws half way.
const Kernel mix{"mix",
                 [](Block, In<std::uint8_t> in, Out<std::uint8_t> out, int salt, int throws) {
                   auto sum = std::uint8_t(salt);
                   for (std::uint8_t x : in) sum = std::uint8_t(sum * 31 + x);
                   for (std::size_t i = 0; i < out.size(); ++i) {
                     if (throws && i == out.size() / 2) throw salt;
                     out[i] = std::uint8_t(sum + i);
                   }
                 }};

/// A random program and what it should do, byte by byte.
class Model {
public:
  explicit Model(std::uint64_t seed) : random_(seed) {
    for (int i = 0; i < 20; ++i) add_node();
  }

  Plan plan;
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(model_bytes, 1);
  std::vector<std::uint8_t> expected = memory;
  std::string outcomes;  // As outcomes_of() tells them.

private:
  std::pair<std::size_t, std::size_t> pick(std::size_t most) {
    const std::size_t begin = random_() % (model_bytes - most);
    return {begin, begin + 1 + random_() % most};
  }

  void add_node() {
    const auto [in0, in1] = pick(4);
    const auto [out0, out1] = pick(8);
    if (in0 < out1 && out0 < in1) return;
    const int salt = int(random_() % 100);
    const int throws = random_() % 8 == 0;
    const auto number = std::to_string(plan.nodes().size());
    auto in = std::span(memory).subspan(in0, in1 - in0);
    auto out = std::span(memory).subspan(out0, out1 - out0);
    plan.launch("mix", mix, Grid{1}, in, out, salt, throws);
    bool skipped = false;
    for (std::size_t i = in0; i < in1; ++i) skipped = skipped || tainted_[i];
    if (skipped) outcomes += number + " skipped ";
    if (!skipped && throws) outcomes += number + " failed ";
    if (!skipped) apply({in0, in1}, {out0, out1}, salt, throws);
    for (std::size_t i = out0; i < out1; ++i) tainted_[i] = skipped || throws;
  }

  void apply(ByteRange in, ByteRange out, int salt, bool throws) {
    auto sum = std::uint8_t(salt);
    for (std::size_t i = in.begin; i < in.end; ++i) sum = std::uint8_t(sum * 31 + expected[i]);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (throws && i == out.size() / 2) return;
      expected[out.begin + i] = std::uint8_t(sum + i);
    }
  }

  std::mt19937_64 random_;
  std::vector<bool> tainted_ = std::vector<bool>(model_bytes, false);
};

std::string outcomes_of(const Work& work) {
  std::string all;
  for (const NodeOutcome& outcome : work.nodes) {
    all += std::to_string(outcome.node);
    all += outcome.kind == Kind::failed ? " failed " : " skipped ";
  }
  return all;
}

}  // namespace

TEST_CASE("random programs with failures agree with a byte by byte model",
          "[device][cpu][program][N3]") {
  for (std::uint64_t round = 0; round < 300; ++round) {
    const std::uint64_t seed = test::seed() + round;
    CAPTURE(seed);
    Model model(seed);
    CpuRig rig(small_cpu(0));
    const auto program = lower(rig, model.plan);
    TestWork& work = run(rig, *program);
    CHECK(outcomes_of(work) == model.outcomes);
    CHECK(model.memory == model.expected);
    CHECK(bool(work.failure) == !model.outcomes.empty());
    if (work.failure) rig->resume(0);
  }
}

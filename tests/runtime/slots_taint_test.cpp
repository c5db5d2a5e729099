// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/slots.hpp>

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/kernels.hpp"
#include "support/seed.hpp"
#include "support/slot_step.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using test::add_one;
using test::Bench;
using test::mul_two;
using Floats = std::vector<float>;

namespace {

/// out = in + 1 unless *flag is set; state = state + in; last = state * 2. All but last are slots.
struct Step {
  explicit Step(const Client& client)
      : flag(client.create<std::int32_t>({0})), in(client.create<float>({1})),
        state(client.create<float>({0})), out(client.create<float>({0})),
        last(client.create<float>({0})) {
    graph = client.capture([&](Client& c) {
      c.slot("flag", flag);
      c.slot("in", in);
      c.slot("state", state);
      c.slot("out", out);
      c.launch(test::fail_if, 1, flag, in, out);
      c.launch(test::add, 1, in, state, state);
      c.launch(mul_two, 1, state, last);
    });
  }
  Array<std::int32_t> flag;
  Array<float> in;
  Array<float> state;
  Array<float> out;
  Array<float> last;
  Graph graph;
};

}  // namespace

TEST_CASE("a bound input that carries a failure skips the replay and marks what was bound [B107] "
          "[I20] [I21]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u));
  const Client& client = bench.client;
  Step step(client);
  const auto bad = client.empty<float>(1);  // nothing wrote it
  const auto out = client.create<float>({5});
  const auto state = client.create<float>({6});
  CHECK(code_of([&] {
          step.graph.replay({{"in", bad}, {"out", out}, {"state", state}});
        }) == Errc::skipped);
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::unwritten);
  CHECK(code_of([&] { (void)client.read(state); }) == Errc::unwritten);
  CHECK(code_of([&] { (void)client.read(step.last); }) == Errc::unwritten);
  CHECK(client.read(step.out) == Floats{0});
  CHECK(client.read(step.state) == Floats{0});
  CHECK(step.graph.statistics().refused == 1);
  // Success clears what it must write, bound or not, and nothing else.
  const auto fresh = client.empty<float>(1);
  step.graph.replay({{"out", fresh}});
  CHECK(client.read(fresh) == Floats{2});
  CHECK(client.read(step.state) == Floats{1});
  CHECK(client.read(step.last) == Floats{2});
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::unwritten);
  client.restore({out, state});
  CHECK(client.read(out) == Floats{5});
  CHECK(client.read(state) == Floats{6});
}

TEST_CASE("a node that fails in a bound replay takes along only bytes that were bound [N3] [I20]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  Step step(client);
  const auto raised = client.create<std::int32_t>({1});
  const auto out = client.create<float>({5});
  const auto state = client.create<float>({6});
  CHECK(code_of([&] {
          step.graph.run({{"flag", raised}, {"out", out}, {"state", state}});
        }) == Errc::kernel_failed);
  for (int i = 0; i < 2; ++i) {
    try {
      (void)client.read(out);
      FAIL("a failed output was read");
    } catch (const Failure& failure) {
      CHECK(failure.errc() == Errc::kernel_failed);
      CHECK(failure.record().root().message == "asked to fail");
    }
  }
  CHECK(client.read(state) == Floats{7});
  CHECK(client.read(step.last) == Floats{14});
  CHECK(client.read(step.out) == Floats{0});
  CHECK(client.read(step.state) == Floats{0});
  CHECK(step.graph.statistics().failed == 1);
  step.graph.run();
  CHECK(client.read(step.out) == Floats{2});
  CHECK(client.read(step.state) == Floats{1});
}

TEST_CASE("a refused replay is not locked out of a state it had bound [I28]", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Step step(client);
  const auto bad = client.empty<float>(1);
  const auto state = client.create<float>({6});
  for (int i = 0; i < 3; ++i) {
    CHECK(code_of([&] { step.graph.replay({{"in", bad}, {"state", state}}); }) == Errc::skipped);
    CHECK(code_of([&] { (void)client.read(state); }) == Errc::unwritten);
  }
  step.graph.replay({{"state", state}});
  CHECK(client.read(state) == Floats{7});
  // The same where the slot is what was recorded, in one replay or the other.
  CHECK(code_of([&] { step.graph.replay({{"in", bad}}); }) == Errc::skipped);
  const auto out = client.empty<float>(1);
  step.graph.replay({{"out", out}});
  CHECK(client.read(step.state) == Floats{1});
  CHECK(code_of([&] { step.graph.replay({{"in", bad}, {"out", out}}); }) == Errc::skipped);
  step.graph.replay();
  CHECK(client.read(step.state) == Floats{2});
}

TEST_CASE("what a refused replay should have written is no input for another part of the graph "
          "[I21] [I28]",
          "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Step step(client);
  const auto bad = client.empty<float>(1);
  const auto a = client.create<float>({5});
  const auto b = client.empty<float>(1);
  CHECK(code_of([&] { step.graph.replay({{"in", bad}, {"out", a}}); }) == Errc::skipped);
  // Its last writer did not run: the old bytes of `a` would be stale.
  CHECK(code_of([&] { step.graph.replay({{"in", a}, {"out", b}}); }) == Errc::skipped);
  CHECK(code_of([&] { step.graph.replay({{"state", a}, {"out", b}}); }) == Errc::skipped);
  // The same with the graph's own buffers in other parts.
  client.write(step.state, Floats{0});
  CHECK(code_of([&] { step.graph.replay({{"in", bad}}); }) == Errc::skipped);
  CHECK(code_of([&] { step.graph.replay({{"in", step.out}, {"out", step.in}}); }) == Errc::skipped);
  step.graph.replay({{"out", a}, {"in", client.create<float>({3})}});
  CHECK(client.read(a) == Floats{4});
}

TEST_CASE("a failure before a bound replay that was accepted reaches what was bound [I20] [I21]",
          "[runtime]") {
  Bench bench(2);
  const Client& client = bench.client;
  Step step(client);
  const auto x = client.create<float>({1});
  for (int i = 0; i < 20; ++i) {
    const auto out = client.create<float>({5});
    client.write(x, Floats{1});
    client.launch(test::fail, 1, x, x);
    try {
      step.graph.replay({{"in", x}, {"out", out}});
    } catch (const Failure& failure) {
      CHECK(failure.errc() == Errc::skipped);
    }
    CHECK(code_of([&] { (void)client.read(out); }) == Errc::kernel_failed);
    CHECK(client.read(step.out) == Floats{0});
  }
}

namespace {

/// What the rule says of one float: its value, and whether its last writer has failed. A claim that
/// one part of the graph left lets that part pass.
struct Cell {
  static constexpr int clean = -1;
  static constexpr int hard = -2;
  float value = 0;
  int claim = clean;  ///< Else the owner of the only claim on it.

  bool reads_for(int owner) const { return claim == clean || claim == owner; }
  void refused(int owner) { claim = claim == clean || claim == owner ? owner : hard; }
  void failed() { claim = hard; }
  void wrote(float now) { *this = {now, clean}; }
};

/// Random work on a Step and some arrays besides its own, beside a model of it.
class World {
public:
  World(const Device& device, std::uint64_t seed) : random_(seed), step_(device.client()) {
    for (int i = 0; i < 3; ++i) clients_.push_back(device.client());
    cells_ = {{1}, {0}, {0}};
    arrays_ = {step_.in, step_.state, step_.out};
    for (int i = 0; i < 3; ++i) {
      cells_.push_back({static_cast<float>(i)});
      arrays_.push_back(clients_[0].create<float>({static_cast<float>(i)}));
    }
    raised_ = clients_[0].create<std::int32_t>({1});
  }

  void go(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (draw(8)) {
        case 0: write(); break;
        case 1: read(draw(arrays_.size())); break;
        case 2: fail(); break;
        case 3: replay({0, 1, 2}, {}, false); break;
        default: bind(); break;
      }
    }
    for (std::size_t i = 0; i < arrays_.size(); ++i) read(i);
    check(step_.last, last_);
  }

private:
  std::size_t draw(std::size_t n) { return random_() % n; }
  const Client& client() { return clients_[draw(clients_.size())]; }

  void write() {
    const std::size_t i = draw(arrays_.size());
    const auto value = static_cast<float>(draw(100));
    client().write(arrays_[i], Floats{value});
    cells_[i].wrote(value);
  }
  void fail() {
    const std::size_t i = draw(arrays_.size());
    client().launch(test::fail, 1, arrays_[i], arrays_[i]);
    // Skipped instead if it reads a failure; either way the bytes are nobody's.
    cells_[i].failed();
  }
  void check(const Array<float>& array, const Cell& cell) {
    Floats got;
    const Errc code = code_of([&] { got = client().read(array); });
    if (cell.claim == Cell::clean) {
      REQUIRE(code == Errc{});
      REQUIRE(got == Floats{cell.value});
    } else {
      REQUIRE(code != Errc{});
    }
  }
  void read(std::size_t i) { check(arrays_[i], cells_[i]); }

  void bind() {
    static constexpr std::array<const char*, 3> names{"in", "state", "out"};
    std::array<std::size_t, 3> places{0, 1, 2};
    std::vector<Binding> bindings;
    for (std::size_t slot = 0; slot < 3; ++slot) {
      if (draw(3) == 0) continue;
      places[slot] = draw(arrays_.size());
      bindings.push_back({names[slot], arrays_[places[slot]]});
    }
    const bool raised = draw(4) == 0;
    if (raised) bindings.push_back({"flag", raised_});
    replay(places, bindings, raised);
  }

  void replay(const std::array<std::size_t, 3>& places, const std::vector<Binding>& bindings,
              bool raised) {
    const auto [in, state, out] = places;
    const Errc code = code_of([&] {
      if (draw(2) == 0) {
        step_.graph.replay(bindings);
      } else {
        step_.graph.run(bindings);
      }
    });
    if (in == state || in == out || state == out) {
      REQUIRE(code == Errc::slot_overlap);
      return;
    }
    // Whose claims they leave and may pass: the slot's where it is bound, else the graph's.
    const int state_owner = state == 1 ? 0 : 2;
    const int out_owner = out == 2 ? 0 : 3;
    // An input is no output, so no claim on it is one that this slot has left.
    const bool runs = cells_[in].claim == Cell::clean && cells_[state].reads_for(state_owner);
    if (!runs) {
      cells_[state].refused(state_owner);
      cells_[out].refused(out_owner);
      last_.refused(0);
      return;
    }
    REQUIRE((code == Errc{} || raised));
    const float value = cells_[in].value;
    raised ? cells_[out].failed() : cells_[out].wrote(value + 1);
    cells_[state].wrote(cells_[state].value + value);
    last_.wrote(cells_[state].value * 2);
  }

  std::mt19937_64 random_;
  Step step_;
  std::vector<Client> clients_;
  std::vector<Array<float>> arrays_;  // The first three are the slots as recorded.
  std::vector<Cell> cells_;
  Cell last_;
  Array<std::int32_t> raised_;
};

}  // namespace

TEST_CASE("every schedule of plain and bound replays gives what the sequential rule gives [I20] "
          "[I21] [I25] [B149]",
          "[runtime][sim]") {
  const std::uint64_t base = test::seed();
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t seed = base + i;
    CAPTURE(seed);
    SeededHost host(SeededOptions{.seed = seed});
    RuntimeOptions options;
    options.host = &host;
    Runtime runtime(options);
    DeviceOptions device_options;
    device_options.workers = static_cast<std::uint32_t>(i % 3);
    device_options.ring_capacity = 4;
    device_options.in_flight = 1 + static_cast<std::uint32_t>(i % 9);
    const Device device = runtime.open("cpu:0", device_options);
    World(device, seed).go(40);
    device.drain();
  }
}

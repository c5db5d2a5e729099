// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/slots.hpp>

#include <reprise/runtime/async.hpp>
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/slot_step.hpp"

#include <boost/asio/use_future.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using test::add_one;
using test::Bench;
using test::mul_two;
using Floats = std::vector<float>;

namespace {

/// out = (in + 1) * 2 by way of a temporary, with slots for both ends.
struct Doubled {
  explicit Doubled(const Client& client, std::size_t n = 4)
      : in(client.create<float>(Floats(n, 1))), out(client.create<float>(Floats(n, 0))) {
    graph = client.capture(
        [&](Client& c) {
          c.slot("in", in);
          c.slot("out", out);
          const auto middle = c.empty<float>(n);
          c.launch(add_one, grid_for(n), in, middle);
          c.launch(mul_two, grid_for(n), middle, out);
        },
        {.name = "doubled"});
  }
  Array<float> in;
  Array<float> out;
  Graph graph;
};

}  // namespace

TEST_CASE("a binding holds for one replay and touches no recorded buffer [I25]", "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 2u));
  const Client& client = bench.client;
  Doubled doubled(client);
  const auto x = client.create<float>({1, 2, 3, 4});
  const auto y = client.empty<float>(4);
  doubled.graph.replay({{"in", x}, {"out", y}});
  CHECK(client.read(y) == Floats{4, 6, 8, 10});
  CHECK(client.read(doubled.in) == Floats(4, 1));
  CHECK(client.read(doubled.out) == Floats(4, 0));
  doubled.graph.replay();
  CHECK(client.read(doubled.out) == Floats(4, 4));
  doubled.graph.replay({{"in", y}});
  CHECK(client.read(doubled.out) == Floats{10, 14, 18, 22});
  doubled.graph.replay({{"out", x}});
  CHECK(client.read(x) == Floats(4, 4));
  CHECK(client.read(y) == Floats{4, 6, 8, 10});
  CHECK(doubled.graph.statistics().replays == 4);
}

TEST_CASE("every form of a replay takes bindings", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Doubled doubled(client);
  const Graph& graph = doubled.graph;
  const auto y = client.empty<float>(4);
  float value = 2;
  std::vector<Binding> list;
  const auto next = [&]() -> const std::vector<Binding>& {
    list = {{"in", client.create<float>(Floats(4, ++value))}, {"out", y}};
    return list;
  };
  const auto is_right = [&] { return client.read(y) == Floats(4, 2 * (value + 1)); };
  graph.replay(next());
  CHECK(is_right());
  graph.run(next());
  CHECK(is_right());
  CHECK(graph.try_replay(next()));
  CHECK(is_right());
  graph.async_replay(next()).get();
  CHECK(is_right());
  graph.async_run(next()).get();
  CHECK(is_right());
  namespace asio = boost::asio;
  graph.async_replay(next(), asio::use_future).get();
  CHECK(is_right());
  graph.async_run(next(), asio::use_future).get();
  CHECK(is_right());
  FailurePtr failure;
  graph.async_replay(next(), CallOptions{.failure = &failure}, asio::use_future).get();
  CHECK(is_right());
  graph.async_run({{"in", y}}, CallOptions{.failure = &failure}, asio::use_future).get();
  CHECK(client.read(doubled.out) == Floats(4, 2 * (2 * (value + 1) + 1)));
  CHECK(failure == nullptr);
}

TEST_CASE("an operation that starts later owns its bindings", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Doubled doubled(client);
  const auto y = client.empty<float>(4);
  std::optional<detail::KeptBindings> kept;
  {
    const std::string name = "a name that is too long for any small string";
    const std::vector<Binding> list{{name, y}, {"out", y}};
    kept.emplace(list);
  }
  const detail::KeptBindings copy = *kept;
  const detail::KeptBindings moved = std::move(*kept);
  kept.reset();
  for (const auto* bindings : {&copy, &moved}) {
    CHECK(bindings->view().begin()[0].slot == "a name that is too long for any small string");
    CHECK(bindings->view().begin()[1].slot == "out");
    CHECK(bindings->view().begin()[1].buffer == y);
    CHECK(bindings->view().size() == 2);
  }
}

TEST_CASE("nodes of every kind and parts of slots go where the slot is bound", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  constexpr std::size_t n = 4096;  // several blocks
  const auto from = client.create<float>(Floats(n, 1));
  const auto to = client.create<float>(Floats(n, 0));
  const Floats written(8, 7);
  const Graph graph = client.capture([&](Client& c) {
    c.slot("from", from);
    c.slot("to", to);
    c.copy(to.slice(0, 8), from.slice(16, 8));
    c.fill(to.slice(8, 8), 5.0f);
    c.write(to.slice(16, 8), written);
    c.launch(add_one, grid_for(n - 64), from.slice(64, n - 64), to.slice(64, n - 64));
    c.launch(mul_two, 1, from.slice(24, 40), to.slice(24, 40));
  });
  Floats values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i);
  const auto x = client.create<float>(Floats(64, -1));
  const auto whole = client.create<float>(Floats(2 * n, -1));
  const auto y = whole.slice(n / 2, n);  // a slice of a larger allocation
  const auto z = client.create<float>(values);
  graph.replay({{"from", z}, {"to", y}});
  Floats expected(2 * n, -1);
  for (std::size_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(i);
    float& at = expected[n / 2 + i];
    if (i < 8) at = value + 16;
    if (i >= 8 && i < 16) at = 5;
    if (i >= 16 && i < 24) at = 7;
    if (i >= 24 && i < 64) at = value * 2;
    if (i >= 64) at = value + 1;
  }
  CHECK(client.read(whole) == expected);
  CHECK(client.read(to) == Floats(n, 0));
  CHECK(client.read(z) == values);
  CHECK(client.read(x) == Floats(64, -1));
}

TEST_CASE("replays in flight with different bindings do not disturb each other [I4] [I27]",
          "[runtime][threads]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, Update<float>) { gate.pass(); }};
  Bench bench(2);
  const Client& client = bench.client;
  Doubled doubled(client);
  constexpr int count = 40;
  std::vector<Array<float>> ins;
  std::vector<Array<float>> outs;
  for (int i = 0; i < count; ++i) {
    ins.push_back(client.create<float>(Floats(4, static_cast<float>(i))));
    outs.push_back(client.zeros<float>(4));
  }
  client.launch(hold, 1, ins[0]);  // The first replay waits, and so do all behind it.
  gate.wait_for_arrivals();
  for (int i = 0; i < count; ++i) {
    if (i % 5 == 4) {
      doubled.graph.replay();
    } else {
      doubled.graph.replay(
          {{"in", ins[static_cast<std::size_t>(i)]}, {"out", outs[static_cast<std::size_t>(i)]}});
    }
  }
  gate.open();
  for (int i = 0; i < count; ++i) {
    CAPTURE(i);
    const float value = i % 5 == 4 ? 0 : 2 * (static_cast<float>(i) + 1);
    CHECK(client.read(outs[static_cast<std::size_t>(i)]) == Floats(4, value));
  }
  CHECK(client.read(doubled.out) == Floats(4, 4));
}

TEST_CASE("threads with buffers of their own share a graph [I4] [I27]", "[runtime][threads]") {
  Bench bench(2);
  Doubled doubled(bench.client);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Client client = bench.device.client();
      const auto in = client.empty<float>(4);
      const auto out = client.empty<float>(4);
      for (int i = 0; i < 100; ++i) {
        const auto value = static_cast<float>(t * 1000 + i);
        client.write(in, Floats(4, value));
        doubled.graph.replay({{"in", in}, {"out", out}});
        if (client.read(out) != Floats(4, 2 * (value + 1))) ++wrong;
      }
    });
  }
  for (int i = 0; i < 100; ++i) doubled.graph.replay();
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(bench.client.read(doubled.out) == Floats(4, 4));
}

TEST_CASE("a bound buffer is refreshed behind the replay that reads it [N1]", "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, Update<float>) { gate.pass(); }};
  Bench bench(2);
  const Client& client = bench.client;
  const Client other = client.fork();
  Doubled doubled(client);
  const auto x = client.create<float>(Floats(4, 10));
  const auto y = client.zeros<float>(4);
  client.launch(hold, 1, y);
  gate.wait_for_arrivals();
  doubled.graph.replay({{"in", x}, {"out", y}});  // waits for y
  other.write(x, Floats(4, 20));
  auto first = other.async_read(y);
  doubled.graph.replay({{"in", x}, {"out", y}});
  auto second = other.async_read(y);
  gate.open();
  CHECK(first.get() == Floats(4, 22));
  CHECK(second.get() == Floats(4, 42));
}

TEST_CASE("bindings that do not fit are refused and change nothing", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto fixed = client.create<float>(Floats(8, 3));
  const auto in = client.create<float>(Floats(4, 1));
  const auto out = client.create<float>(Floats(4, 0));
  Array<float> temporary;
  const Graph graph = client.capture([&](Client& c) {
    c.slot("in", in);
    c.slot("out", out);
    temporary = c.empty<float>(4);
    c.launch(test::add, 1, in, fixed.slice(2, 4), temporary);
    c.launch(add_one, 1, temporary, out);
  });
  DeviceOptions options;
  options.workers = 0;
  const Device elsewhere = bench.runtime.open("cpu:1", options);
  const auto foreign = elsewhere.client().zeros<float>(4);
  const auto x = client.create<float>(Floats(9, 9));
  const auto code = [&](BindingView bindings) {
    const Errc told = code_of([&] { graph.replay(bindings); });
    CHECK(code_of([&] { graph.run(bindings); }) == told);
    CHECK(code_of([&] { (void)graph.try_replay(bindings); }) == told);
    CHECK(code_of([&] { graph.async_replay(bindings).get(); }) == told);
    CHECK(code_of([&] { graph.async_run(bindings).get(); }) == told);
    return told;
  };
  CHECK(code({{"input", x.slice(0, 4)}}) == Errc::no_such_slot);
  CHECK(code({{"", x.slice(0, 4)}}) == Errc::no_such_slot);
  CHECK(code({{"in", x.slice(0, 4)}, {"in", x.slice(4, 4)}}) == Errc::invalid_argument);
  CHECK(code({{"in", x.slice(0, 3)}}) == Errc::size_mismatch);
  CHECK(code({{"in", x.slice(0, 5)}}) == Errc::size_mismatch);
  CHECK(code({{"in", x.slice_bytes(2, 16)}}) == Errc::misaligned);
  CHECK(code({{"in", x.slice(0, 4).as<std::int32_t>()}}) == Errc::invalid_argument);
  CHECK(code({{"in", Buffer{}}}) == Errc::empty_handle);
  CHECK(code({{"in", foreign}}) == Errc::wrong_device);
  // With the other slot, bound or not, with what is captured, and with a temporary.
  CHECK(code({{"in", out}}) == Errc::slot_overlap);
  CHECK(code({{"in", x.slice(0, 4)}, {"out", x.slice(3, 4)}}) == Errc::slot_overlap);
  CHECK(code({{"in", fixed.slice(0, 4)}}) == Errc::slot_overlap);
  CHECK(code({{"out", fixed.slice(4, 4)}}) == Errc::slot_overlap);
  CHECK(code({{"out", temporary}}) == Errc::slot_overlap);
  CHECK(graph.statistics().replays == 0);
  CHECK(graph.statistics().refused == 0);
  CHECK(client.read(x) == Floats(9, 9));
  CHECK(client.read(out) == Floats(4, 0));
  CHECK(client.read(fixed) == Floats(8, 3));
  // Bytes of the same allocation that no node names, neighbours, and slots that change places.
  graph.replay({{"in", x.slice(0, 4)}, {"out", x.slice(4, 4)}});
  CHECK(client.read(x) == Floats{9, 9, 9, 9, 13, 13, 13, 13, 9});
  graph.replay({{"in", out}, {"out", in}});
  CHECK(client.read(in) == Floats(4, 4));
  graph.replay({{"in", Buffer(x.slice(0, 4))}});  // of no type
  CHECK(client.read(out) == Floats(4, 13));
}

TEST_CASE("empty, closed and slotless graphs answer bindings with their own errors", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Doubled doubled(client);
  const auto x = client.zeros<float>(4);
  const Graph none;
  CHECK(code_of([&] { none.replay({{"in", x}}); }) == Errc::empty_graph);
  CHECK(code_of([&] { none.async_run({{"in", x}}).get(); }) == Errc::empty_graph);
  CHECK(none.slots().empty());
  const Graph plain = client.capture([&](Client& c) { c.launch(add_one, 1, x, doubled.out); });
  CHECK(code_of([&] { plain.replay({{"in", x}}); }) == Errc::no_such_slot);
  plain.replay({});
  CHECK(client.read(doubled.out) == Floats(4, 1));
  const Graph nothing = client.capture([&](Client& c) { c.slot("in", x); });
  nothing.replay({{"in", doubled.in}});
  nothing.run({{"in", doubled.in}});
  bench.device.drain();
  CHECK(code_of([&] { doubled.graph.replay({{"in", x}}); }) == Errc::closed);
  CHECK(code_of([&] { doubled.graph.run({{"in", x}}); }) == Errc::closed);
  CHECK(code_of([&] { (void)doubled.graph.try_replay({{"in", x}}); }) == Errc::closed);
  CHECK(code_of([&] { doubled.graph.async_replay({{"in", x}}).get(); }) == Errc::closed);
}

TEST_CASE("a graph tells its slots", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto in = client.zeros<float>(4);
  const auto state = client.zeros<float>(2);
  const auto out = client.zeros<float>(8);
  const auto unused = client.zeros<float>(1);
  const Graph graph = client.capture([&](Client& c) {
    c.slot("in", in);
    c.slot("state", state);
    c.slot("out", out);
    c.slot("unused", unused);
    c.launch(add_one, 1, in, out.slice(0, 4));
    c.launch(test::add_in_place, 1, state, 1.0f);
    c.launch(mul_two, 1, out.slice(0, 4), out.slice(4, 4));  // what the graph wrote itself
  });
  const auto slots = graph.slots();
  REQUIRE(slots.size() == 4);
  CHECK(slots[0].name == "in");
  CHECK(slots[0].bytes == 16);
  CHECK((slots[0].is_input && !slots[0].is_output));
  CHECK((slots[1].is_input && slots[1].is_output));
  CHECK((!slots[2].is_input && slots[2].is_output));
  CHECK((!slots[3].is_input && !slots[3].is_output));
  const auto other = client.zeros<float>(1);
  graph.replay({{"unused", other}});
  CHECK(client.read(out) == Floats{1, 1, 1, 1, 2, 2, 2, 2});
}

TEST_CASE("a slot that a host call uses cannot be bound and others can", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto seen = client.create<float>(Floats(4, 2));
  const auto in = client.create<float>(Floats(4, 1));
  const auto out = client.zeros<float>(4);
  int calls = 0;
  const Graph graph = client.capture([&](Client& c) {
    c.slot("seen", seen);
    c.slot("in", in);
    c.launch(test::add, 1, in, seen, out);
    c.host_call({.reads = {seen}, .may_write = {}, .must_write = {}}, [&calls] { ++calls; });
  });
  const auto x = client.create<float>(Floats(4, 10));
  CHECK(code_of([&] { graph.replay({{"seen", x}}); }) == Errc::unsupported);
  graph.replay({{"in", x}});
  CHECK(client.read(out) == Floats(4, 12));
  client.synchronize();
  CHECK(calls == 1);
}

TEST_CASE("a graph within the graph finds its bytes where they were recorded", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  Doubled child(client);
  const auto added = client.create<float>(Floats(4, 100));
  const auto sum = client.empty<float>(4);
  const Graph parent = client.capture([&](Client& c) {
    c.slot("in", child.in);
    c.slot("added", added);
    c.slot("sum", sum);
    c.replay(child.graph);
    c.launch(test::add, 1, child.out, added, sum);
  });
  const auto x = client.create<float>(Floats(4, 10));
  const auto y = client.empty<float>(4);
  // The child reads it.
  CHECK(code_of([&] { parent.replay({{"in", x}}); }) == Errc::unsupported);
  // Nor may anything else be bound to what the child names.
  CHECK(code_of([&] { parent.replay({{"sum", child.out}}); }) == Errc::slot_overlap);
  CHECK(parent.statistics().replays == 0);
  parent.replay({{"added", x}, {"sum", y}});
  CHECK(client.read(y) == Floats(4, 14));
  CHECK(client.read(child.out) == Floats(4, 4));
  // What a replay of the child binds is no matter of the parent's.
  child.graph.replay({{"in", x}, {"out", y}});
  CHECK(client.read(y) == Floats(4, 22));
  parent.replay();
  CHECK(client.read(sum) == Floats(4, 104));
}

TEST_CASE("a function that names slots is captured, or runs without them", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto x = client.create<float>({1});
  const auto y = client.create<float>({10});
  bool reads = false;
  const auto step = [&](Client& c) {
    c.slot("x", x, SlotPolicy::wait());
    c.launch(test::add_in_place, 1, x, reads ? c.read(x)[0] : 1.0f);
  };
  const CaptureOrRun captured = client.capture_or_run(step);
  REQUIRE(captured);
  CHECK(client.read(x) == Floats{2});
  captured.graph.replay({{"x", y}});
  CHECK(client.read(y) == Floats{11});
  reads = true;
  CHECK_FALSE(client.capture_or_run(step));
  CHECK(client.read(x) == Floats{4});
  // What is wrong with the arguments is told there, too.
  CHECK(code_of([&] { client.slot("", x); }) == Errc::invalid_argument);
  CHECK(code_of([&] { client.slot("x", Buffer{}); }) == Errc::empty_handle);
  bench.device.drain();
  CHECK(code_of([&] { client.slot("x", x); }) == Errc::closed);
}

TEST_CASE("a window that names its slots wrongly does not seal [B108]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.create<float>(Floats(8, 1));
  const auto out = client.create<float>(Floats(4, 0));
  const auto captured = [&](auto&& name_slots) {
    return code_of([&] {
      (void)client.capture([&](Client& c) {
        name_slots(c);
        c.launch(add_one, 1, x.slice(0, 4), out);
      });
    });
  };
  const auto part = x.slice(4, 4);
  CHECK(captured([&](Client& c) { c.slot("x", part), c.slot("x", out); }) == Errc::capture_doomed);
  CHECK(captured([&](Client& c) { c.slot("x", x), c.slot("y", part); }) == Errc::capture_doomed);
  CHECK(captured([&](Client& c) { c.slot("", x); }) == Errc::invalid_argument);
  CHECK(captured([&](Client& c) { c.slot("x", Buffer{}); }) == Errc::empty_handle);
  // The launch names bytes on both sides of the border.
  CHECK(captured([&](Client& c) { c.slot("x", x.slice(2, 4)); }) == Errc::slot_overlap);
  CHECK_FALSE(bench.device.any_recording());
  client.restore({out});
  CHECK(client.read(out) == Floats(4, 0));
  // A slot that is named while the window is prepared.
  client.prepare_capture();
  client.slot("x", part);
  client.start_capture();
  client.launch(add_one, 1, part, out);
  const Graph graph = client.stop_capture();
  graph.replay({{"x", client.create<float>(Floats(4, 5))}});
  CHECK(client.read(out) == Floats(4, 6));
  client.prepare_capture();
  client.slot("x", part);
  client.slot("x", out);
  CHECK(code_of([&] { client.start_capture(); }) == Errc::capture_doomed);
  CHECK_FALSE(client.is_capturing());
}

TEST_CASE("dropping bound buffers with their replay in flight is safe and a binding guards nothing "
          "[I16] [B50]",
          "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, Update<float>) { gate.pass(); }};
  Bench bench(2);
  const Client& client = bench.client;
  std::optional<Doubled> doubled(client);
  const auto y = client.zeros<float>(4);
  const auto guarded = bench.device.memory_report().pool.guarded;
  client.launch(hold, 1, y);
  gate.wait_for_arrivals();
  {
    const auto x = client.create<float>(Floats(4, 10));
    doubled->graph.replay({{"in", x}, {"out", y}});
  }
  CHECK(bench.device.memory_report().pool.guarded == guarded);
  std::vector<Array<float>> others;
  for (int i = 0; i < 16; ++i) others.push_back(client.create<float>(Floats(4, -1)));
  doubled.reset();  // the graph as well
  gate.open();
  CHECK(client.read(y) == Floats(4, 22));
  CHECK(bench.device.memory_report().pool.guarded == 0);
}

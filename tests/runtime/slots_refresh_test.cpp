// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph.hpp>

#include <reprise/runtime/async.hpp>
#include <reprise/runtime/graph_builder.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/slot_step.hpp"

#include <boost/asio/use_future.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using test::add_one;
using test::Bench;
using test::mul_two;
using Step = test::SlotStep;
using Floats = std::vector<float>;

TEST_CASE("a refresh leaves replays before it the old bytes and those behind it the new ones [N1]",
          "[runtime][threads]") {
  const auto in_policy = GENERATE(SlotPolicy::wait(), SlotPolicy::rotate(3));
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, Update<float>) { gate.pass(); }};
  Bench bench(2);
  const Client& client = bench.client;
  Step step(client, in_policy, SlotPolicy::wait());
  client.launch(hold, 1, step.out);
  gate.wait_for_arrivals();
  std::vector<Future<std::vector<float>>> outs;
  step.graph.replay();
  outs.push_back(client.async_read(step.out));
  std::thread([&] { step.graph.refresh("in", Floats{5, 6}); }).join();
  step.graph.replay();
  outs.push_back(client.async_read(step.out));
  step.graph.refresh("in", {7.0f, 8.0f});
  step.graph.async_refresh("in", Floats{9, 10}).get();
  step.graph.replay();
  outs.push_back(client.async_read(step.out));
  gate.open();
  CHECK(outs[0].get() == Floats{2, 2});
  CHECK(outs[1].get() == Floats{6, 7});
  CHECK(outs[2].get() == Floats{10, 11});
  CHECK(step.graph.statistics().refreshes == 3);
}

TEST_CASE("a slot that rotates is refreshed while a replay uses the copy before [N1]",
          "[runtime][threads]") {
  test::Gate gate;
  const Kernel slow{"slow", [&gate](const Block&, In<float> in, Out<float> out) {
                      gate.pass();
                      out[0] = in[0];
                    }};
  Bench bench(2);
  const Client& client = bench.client;
  const auto in = client.create<float>({1});
  const auto out = client.empty<float>(1);
  const Graph graph = client.capture([&](Client& c) {
    c.slot("in", in, SlotPolicy::rotate(2));
    c.launch(slow, 1, in, out);
  });
  CHECK(graph.slots()[0].copies == 2);
  graph.replay();
  gate.wait_for_arrivals();
  graph.refresh("in", {2.0f});
  auto first = client.async_read(out);
  graph.replay();
  gate.open();
  CHECK(first.get() == Floats{1});
  CHECK(client.read(out) == Floats{2});
  // The bytes that were refreshed are the other copy's.
  CHECK(client.read(in) == Floats{1});
  graph.refresh("in", {3.0f});
  CHECK(client.read(in) == Floats{3});
}

TEST_CASE("a refresh takes its bytes before it returns and waits for nothing but room [N2]",
          "[runtime]") {
  const std::size_t n = GENERATE(1u, 100u, 50'000u);
  const auto policy = GENERATE(SlotPolicy::wait(), SlotPolicy::rotate(2));
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, Update<float>) { gate.pass(); }};
  Bench bench(0);  // The device thread stands in the kernel.
  const Client& client = bench.client;
  const auto in = client.create<float>(Floats(n, 1));
  const auto out = client.zeros<float>(n);
  const Graph graph = client.capture([&](Client& c) {
    c.slot("in", in, policy);
    c.launch(add_one, grid_for(n), in, out);
  });
  client.flush();
  const auto z = client.zeros<float>(1);
  client.launch(hold, 1, z);
  gate.wait_for_arrivals();
  Floats next(n, 5);
  graph.refresh("in", next);
  std::fill(next.begin(), next.end(), -1.0f);
  // Other transfers come and go meanwhile.
  client.write(z, Floats{3});
  auto first = graph.async_replay();
  auto seen = client.async_read(out);
  std::fill(next.begin(), next.end(), 8.0f);
  CHECK(graph.try_refresh("in", next));
  std::fill(next.begin(), next.end(), -1.0f);
  auto second = graph.async_replay();
  gate.open();
  first.get();
  second.get();
  CHECK((seen.get() == Floats(n, 6)));
  CHECK((client.read(out) == Floats(n, 9)));
  CHECK(client.read(z) == Floats{3});
  CHECK(graph.statistics().refreshes == 2);
}

TEST_CASE("every form of a refresh takes bytes or elements", "[runtime]") {
  namespace asio = boost::asio;
  Bench bench;
  const Client& client = bench.client;
  Step step(client, SlotPolicy::rotate(2), SlotPolicy::wait());
  const Graph& graph = step.graph;
  float value = 1;
  const auto is_right = [&] {
    graph.replay();
    return client.read(step.out) == Floats(2, value + 1);
  };
  const auto next = [&] { return Floats(2, ++value); };
  graph.refresh("in", next());
  CHECK(is_right());
  graph.refresh("in", {++value, value});
  CHECK(is_right());
  graph.refresh("in", std::as_bytes(std::span<const float>(next())));
  CHECK(is_right());
  CHECK(graph.try_refresh("in", next()));
  CHECK(is_right());
  graph.async_refresh("in", next()).get();
  CHECK(is_right());
  graph.async_refresh("in", next(), asio::use_future).get();
  CHECK(is_right());
  FailurePtr failure;
  graph.async_refresh("in", next(), CallOptions{.failure = &failure}, asio::use_future).get();
  CHECK(is_right());
  CHECK(failure == nullptr);
  // An output is replaced, too: what a lease holds then is what was put there.
  graph.refresh("out", {0.5f, 0.5f});
  CHECK(client.read(graph.lease("out").as<float>()) == Floats{0.5f, 0.5f});
}

TEST_CASE("refreshes and leases that do not fit are refused and change nothing", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Step step(client, SlotPolicy::wait(), SlotPolicy::rotate(2));
  const Graph none;
  const Floats two{0, 0};
  CHECK(code_of([&] { none.refresh("in", two); }) == Errc::empty_graph);
  CHECK(code_of([&] { (void)none.lease("out"); }) == Errc::empty_graph);
  CHECK(code_of([&] { none.async_refresh("in", two).get(); }) == Errc::empty_graph);
  CHECK(code_of([&] { (void)none.try_refresh("in", two); }) == Errc::empty_graph);
  const Graph paper = GraphBuilder().instantiate();
  CHECK(code_of([&] { paper.refresh("in", two); }) == Errc::not_initialized);
  CHECK(code_of([&] { (void)paper.lease("out"); }) == Errc::not_initialized);
  CHECK(code_of([&] { step.graph.refresh("input", two); }) == Errc::no_such_slot);
  CHECK(code_of([&] { (void)step.graph.lease("output"); }) == Errc::no_such_slot);
  CHECK(code_of([&] { (void)step.graph.async_lease("output").get(); }) == Errc::no_such_slot);
  CHECK(code_of([&] { step.graph.refresh("in", Floats{1}); }) == Errc::size_mismatch);
  CHECK(code_of([&] {
          step.graph.refresh("in", std::vector<int>{1, 2});
        }) == Errc::invalid_argument);
  CHECK(code_of([&] { step.graph.refresh("count", Floats{1}); }) == Errc::invalid_argument);
  CHECK(code_of([&] { (void)step.graph.lease("in"); }) == Errc::invalid_argument);
  CHECK(code_of([&] { (void)step.graph.lease("count"); }) == Errc::invalid_argument);
  CHECK(step.graph.statistics().refreshes == 0);
  CHECK(client.read(step.in) == Floats{1, 1});
  step.graph.refresh("in", std::vector<std::byte>(8));  // of no type
  CHECK(client.read(step.in) == Floats{0, 0});
  bench.device.drain();
  CHECK(code_of([&] { step.graph.refresh("in", two); }) == Errc::closed);
  CHECK(code_of([&] { (void)step.graph.lease("out"); }) == Errc::closed);
  CHECK(code_of([&] { step.graph.replay(); }) == Errc::closed);
}

TEST_CASE("only slots that are read or written whole rotate [B108]", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto x = client.create<float>({1, 2, 3, 4});
  const auto y = client.zeros<float>(4);
  const auto captured = [&](auto&& record) {
    return code_of([&] { (void)client.capture(record); });
  };
  const auto rotate = SlotPolicy::rotate(2);
  CHECK(captured([&](Client& c) {
          c.slot("x", x, rotate);
          c.launch(test::add_in_place, 1, x, 1.0f);
        }) == Errc::invalid_argument);
  CHECK(captured([&](Client& c) {
          c.slot("y", y, rotate);
          c.launch(add_one, 1, x.slice(0, 3), y.slice(1, 3));
        }) == Errc::invalid_argument);
  CHECK(captured([&](Client& c) {
          c.slot("y", y, rotate);
          c.launch(test::poke, 1, y, 0u, 1.0f);
        }) == Errc::invalid_argument);
  CHECK(captured([&](Client& c) {
          c.slot("x", x, rotate);
          c.host_call({.reads = {x}, .may_write = {}, .must_write = {}}, [] {});
        }) == Errc::unsupported);
  for (const std::uint32_t copies : {0u, SlotPolicy::most_copies + 1, ~0u}) {
    CHECK(captured([&](Client& c) { c.slot("x", x, SlotPolicy::rotate(copies)); }) ==
          Errc::invalid_argument);
  }
  CHECK(captured([&](Client& c) {
          c.slot("x", x, rotate);
          c.slot("y", y, rotate);
          c.launch(add_one, 1, x.slice(0, 2), y.slice(0, 2));
          c.launch(mul_two, 1, x.slice(0, 2), y.slice(2, 2));
        }) == Errc{});
}

TEST_CASE("a refresh that is given up is what replays find then, and not the bytes before it [I20] "
          "[I21]",
          "[runtime]") {
  namespace asio = boost::asio;
  const auto policy = GENERATE(SlotPolicy::wait(), SlotPolicy::rotate(2));
  Bench bench(GENERATE(0u, 1u));
  const Client& client = bench.client;
  Step step(client, policy, SlotPolicy::wait());
  step.graph.run();
  FailurePtr failure;
  const CallOptions too_late{.failure = &failure, .deadline = {}};
  auto refreshed = step.graph.async_refresh("in", Floats{9, 9}, too_late, asio::use_future);
  CHECK_THROWS(refreshed.get());
  CHECK(failure->code == Errc::operation_aborted);
  CHECK(step.graph.last_failure() == failure);
  CHECK(code_of([&] { step.graph.replay(); }) == Errc::skipped);
  CHECK(code_of([&] { (void)client.read(step.out); }) == Errc::operation_aborted);
  CHECK(step.graph.statistics().refreshes == 0);
  step.graph.refresh("in", {4.0f, 4.0f});
  step.graph.replay();
  CHECK(client.read(step.out) == Floats{5, 5});
}

TEST_CASE("an output whose replay failed is leased with its failure [I20]", "[runtime]") {
  Bench bench(GENERATE(0u, 1u));
  const Client& client = bench.client;
  const auto flag = client.create<std::int32_t>({0});
  const auto in = client.create<float>({1, 1});
  const auto out = client.empty<float>(2);
  const Graph graph = client.capture([&](Client& c) {
    c.slot("flag", flag, SlotPolicy::rotate(2));
    c.slot("out", out, SlotPolicy::rotate(2));
    c.launch(test::fail_if, 1, flag, in, out);
  });
  const auto leased = [&] {
    const OutputLease lease = graph.lease("out");
    return client.read(lease.as<float>());
  };
  graph.replay();
  CHECK(leased() == Floats{2, 2});
  graph.refresh("flag", std::vector<std::int32_t>{1});
  graph.replay();
  CHECK(code_of([&] { (void)leased(); }) == Errc::kernel_failed);
  // Skipped: its input carries a failure.
  client.launch(test::fail, 1, in, in.slice(0, 0));
  graph.refresh("flag", std::vector<std::int32_t>{0});
  graph.replay();
  CHECK(leased() == Floats{2, 2});
}

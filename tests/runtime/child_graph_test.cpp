// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using test::add_in_place;
using test::add_one;
using test::fail_if;
using test::mul_two;
using Floats = std::vector<float>;

namespace {

struct Bench {
  explicit Bench(std::uint32_t workers = 1) {
    DeviceOptions options;
    options.workers = workers;
    client = runtime.open("cpu:0", options).client();
  }
  Runtime runtime;
  Client client;
};

}  // namespace

TEST_CASE("a replay through a client that does not record is an ordinary one [B90]", "[runtime]") {
  Bench bench(GENERATE(0u, 1u));
  const Client& client = bench.client;
  const auto x = client.create<float>({1, 2});
  const Graph graph =
      client.capture([&](Client& c) { c.launch(add_in_place, grid_for(2), x, 1.0f); });
  client.replay(graph);
  CHECK(client.read(x) == Floats{2, 3});
  client.async_replay(graph).get();
  CHECK(client.read(x) == Floats{3, 4});
  CHECK(graph.statistics().replays == 2);
  // While its stream is prepared, too: that is warm-up.
  client.prepare_capture();
  client.replay(graph);
  CHECK(client.read(x) == Floats{4, 5});
  client.abort_capture();
  CHECK(code_of([&] { client.replay(Graph{}); }) == Errc::empty_graph);
  CHECK(code_of([&] { Client{}.replay(graph); }) == Errc::empty_handle);
  const Device other = bench.runtime.open("cpu:1");
  CHECK(code_of([&] { other.client().replay(graph); }) == Errc::wrong_device);
}

TEST_CASE("waiting for a stream waits for the replays that were submitted on it [B90]",
          "[runtime]") {
  Bench bench;
  const Client client = bench.client.fork();
  test::Gate gate;
  std::atomic<bool> done{false};
  const Graph graph = bench.client.capture([&](Client& c) {
    c.host_call({}, [&] {
      gate.pass();
      done = true;
    });
  });
  client.replay(graph);
  gate.wait_for_arrivals();
  auto waited = client.async_synchronize();
  bench.client.flush();
  CHECK_FALSE(waited.ready());
  gate.open();
  waited.get();
  CHECK(done);
}

TEST_CASE("a replay in a window is recorded as one node, in the order of its bytes [I24] [I25]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  const auto in = client.create<float>(Floats(1000, 1.0f));
  const auto middle = client.zeros<float>(1000);
  const auto out = client.zeros<float>(1000);
  Graph child = client.capture(
      [&](Client& c) {
        c.launch(add_one, grid_for(1000), in, middle);
        c.launch(add_in_place, grid_for(1000), middle, 1.0f);
      },
      {.name = "child"});
  const Graph parent = client.capture([&](Client& c) {
    c.replay(child);
    c.launch(mul_two, grid_for(1000), middle, out);
    c.fill(middle, 0.0f);
    c.replay(child);
  });
  CHECK(client.read(middle) == Floats(1000, 0.0f));
  CHECK(child.statistics().replays == 0);
  CHECK(parent.node_count() == 4);
  CHECK(parent.edge_count() == 3);
  CHECK(parent.to_dot().find("child") != std::string::npos);
  child = Graph{};  // The parent keeps it.
  parent.replay();
  CHECK(client.read(out) == Floats(1000, 6.0f));
  CHECK(client.read(middle) == Floats(1000, 3.0f));
  client.fill(in, 9.0f);
  parent.run();
  CHECK(client.read(out) == Floats(1000, 22.0f));

  const Graph grandparent = client.capture([&](Client& c) { c.replay(parent); });
  client.fill(in, 0.0f);
  grandparent.run();
  CHECK(client.read(out) == Floats(1000, 4.0f));
}

TEST_CASE("a failure in a child marks what the child writes and nothing else [N3] [B107]",
          "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  const auto flag = client.create<std::int32_t>({0});
  const auto in = client.create<float>({1, 2});
  const auto mid = client.zeros<float>(2);
  const auto out = client.zeros<float>(2);
  const auto apart = client.zeros<float>(2);
  const Graph child =
      client.capture([&](Client& c) { c.launch(fail_if, grid_for(2), flag, in, mid); });
  const Graph parent = client.capture([&](Client& c) {
    c.replay(child);
    c.launch(add_one, grid_for(2), mid, out);
    c.launch(add_in_place, grid_for(2), apart, 1.0f);
  });
  parent.run();
  CHECK(client.read(out) == Floats{3, 4});
  client.write(flag, std::vector<std::int32_t>{1});
  CHECK(code_of([&] { parent.run(); }) == Errc::kernel_failed);
  CHECK(code_of([&] { (void)client.read(mid); }) == Errc::kernel_failed);
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::kernel_failed);
  CHECK(client.read(apart) == Floats{2, 2});
  client.write(flag, std::vector<std::int32_t>{0});
  parent.run();
  CHECK(client.read(out) == Floats{3, 4});
}

TEST_CASE("two graphs with one child that writes nothing may run it at once [I25]",
          "[runtime][threads]") {
  Bench bench(2);
  const Client& client = bench.client;
  std::atomic<int> calls{0};
  const Graph child = client.capture([&](Client& c) { c.host_call({}, [&] { ++calls; }); });
  const auto x = client.zeros<float>(1);
  const auto y = client.zeros<float>(1);
  const auto make = [&](const Array<float>& array) {
    return client.capture([&](Client& c) {
      c.launch(add_in_place, 1, array, 1.0f);
      c.replay(child);
      c.launch(add_in_place, 1, array, 1.0f);
    });
  };
  const Graph first = make(x);
  const Graph second = make(y);
  // A child that calls the host is a barrier, like the call itself.
  CHECK(first.edge_count() == 2);
  const auto run = [](const Graph& graph) {
    for (int i = 0; i < 200; ++i) graph.replay();
    graph.run();
  };
  std::thread other([&] { run(second); });
  run(first);
  for (int i = 0; i < 50; ++i) child.run();
  other.join();
  CHECK(calls == 452);
  CHECK(client.read(x) == Floats{402});
  CHECK(client.read(y) == Floats{402});
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/output_lease.hpp>

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/async.hpp>
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/graph_builder.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/caller_by_hand.hpp"
#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/seed.hpp"
#include "support/slot_step.hpp"

#include <boost/asio/use_future.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using test::add_one;
using test::Bench;
using Step = test::SlotStep;
using Floats = std::vector<float>;

namespace {

Floats read(const Client& client, const OutputLease& lease) {
  return client.read(lease.as<float>());
}

/// A step and what a sequential run of the same verbs gives.
class RotatingStep {
public:
  RotatingStep(const Client& client, std::uint32_t in_copies, std::uint32_t out_copies)
      : client_(client), copies_(out_copies),
        step_(client, SlotPolicy::rotate(in_copies), SlotPolicy::rotate(out_copies)) {}

  void refresh(float value) {
    in_ = value;
    step_.graph.refresh("in", {value, value});
  }
  void lease() {
    if (!newest_) return;
    if (missed_) {
      REQUIRE(code_of([&] { (void)step_.graph.lease("out"); }) == Errc::lease_held);
    } else {
      held_.push_back({step_.graph.lease("out"), *newest_, newest_copy_});
    }
  }
  void release_oldest() {
    if (held_.empty()) return;
    REQUIRE(read(client_, held_.front().lease) == Floats(2, held_.front().value));
    held_.pop_front();
  }
  void release_all() {
    while (!held_.empty()) release_oldest();
  }
  void replay() {
    const std::optional<std::uint32_t> next = next_free();
    const Errc code = code_of([&] { step_.graph.replay(); });
    REQUIRE(code == (next ? Errc{} : Errc::lease_held));
    missed_ = !next;
    if (missed_) return;
    newest_ = in_ + 1;
    newest_copy_ = *next;
  }

private:
  struct Held {
    OutputLease lease;
    float value;
    std::uint32_t copy;
  };

  std::optional<std::uint32_t> next_free() const {
    for (std::uint32_t step = 1; step <= copies_; ++step) {
      const std::uint32_t next = (newest_copy_ + step) % copies_;
      const auto is_held = [next](const Held& held) { return held.copy == next; };
      if (std::none_of(held_.begin(), held_.end(), is_held)) return next;
    }
    return std::nullopt;
  }

  const Client client_;
  const std::uint32_t copies_;
  const Step step_;
  std::deque<Held> held_;
  float in_ = 1;
  std::optional<float> newest_;
  std::uint32_t newest_copy_ = 0;
  bool missed_ = false;  // The newest output had no copy to go to.
};

}  // namespace

TEST_CASE("a leased output is not overwritten and nobody waits for its holder [N8]", "[runtime]") {
  const std::uint32_t workers = GENERATE(0u, 2u);
  Bench bench(workers);
  const Client& client = bench.client;
  Step step(client, SlotPolicy::wait(), SlotPolicy::rotate(2));
  step.graph.replay();
  OutputLease first = step.graph.lease("out");
  step.graph.refresh("in", {10.0f, 10.0f});
  step.graph.replay();
  step.graph.refresh("in", {20.0f, 20.0f});
  step.graph.replay();  // The other copy again.
  OutputLease second = step.graph.async_lease("out").get();
  CHECK(read(client, first) == Floats{2, 2});
  CHECK(read(client, second) == Floats{21, 21});
  CHECK(step.graph.statistics().leases == 2);
  // Both are held: each form is told at once, and nothing that is leased changes.
  CHECK(code_of([&] { step.graph.replay(); }) == Errc::lease_held);
  CHECK(code_of([&] { step.graph.run(); }) == Errc::lease_held);
  CHECK(code_of([&] { step.graph.async_run().get(); }) == Errc::lease_held);
  CHECK(code_of([&] { step.graph.replay({{"in", client.zeros<float>(2)}}); }) == Errc::lease_held);
  CHECK(code_of([&] { step.graph.replay({{"out", first.buffer()}}); }) == Errc::lease_held);
  CHECK(code_of([&] { step.graph.refresh("out", {0.0f, 0.0f}); }) == Errc::lease_held);
  // Nor is an older output taken for the one that there should have been.
  CHECK(code_of([&] { (void)step.graph.lease("out"); }) == Errc::lease_held);
  CHECK(step.graph.statistics().lease_held == 7);
  CHECK(read(client, first) == Floats{2, 2});
  CHECK(read(client, second) == Floats{21, 21});
  // What else the replay would have written carries that it was not.
  CHECK(code_of([&] { (void)client.read(step.count); }) == Errc::lease_held);
  // Elsewhere it may write, and a lease that is given back is free for what comes behind.
  const auto y = client.empty<float>(2);
  step.graph.replay({{"out", y}});
  CHECK(client.read(y) == Floats{21, 21});
  CHECK(client.read(step.count) == Floats{4});
  step.graph.refresh("in", {30.0f, 30.0f});
  first.release();
  CHECK_FALSE(first);
  step.graph.replay();
  CHECK(read(client, step.graph.lease("out")) == Floats{31, 31});
  CHECK(read(client, second) == Floats{21, 21});
  CHECK(step.graph.statistics().leases == 1);
  CHECK(step.graph.statistics().bound == 1);
}

TEST_CASE("a slot without copies can be leased too [N8]", "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  const Client& client = bench.client;
  Step step(client, SlotPolicy::wait(), SlotPolicy::wait());
  const Graph& graph = step.graph;
  graph.replay();
  {
    const OutputLease lease = graph.lease("out");
    const OutputLease again = graph.lease("out");
    CHECK(code_of([&] { graph.replay(); }) == Errc::lease_held);
    CHECK(graph.try_replay());
    client.flush();
    REQUIRE(graph.last_failure() != nullptr);
    CHECK(graph.last_failure()->code == Errc::lease_held);
    CHECK(code_of([&] { graph.replay({{"in", client.zeros<float>(2)}}); }) == Errc::lease_held);
    CHECK(code_of([&] { client.replay(graph); }) == Errc::lease_held);
    CHECK(code_of([&] { graph.refresh("out", {0.0f, 0.0f}); }) == Errc::lease_held);
    CHECK(client.read(step.out) == Floats{2, 2});
    CHECK(code_of([&] { (void)client.read(step.count); }) == Errc::lease_held);
    CHECK(graph.statistics().refused == 4);
    CHECK(code_of([&] { (void)graph.lease("out"); }) == Errc::lease_held);
  }
  // The holders are gone, and what they left is still older than what was asked for.
  CHECK(code_of([&] { (void)graph.lease("out"); }) == Errc::lease_held);
  graph.refresh("in", {4.0f, 4.0f});
  graph.replay();
  CHECK(read(client, graph.lease("out")) == Floats{5, 5});
  CHECK(client.read(step.count) == Floats{2});
}

TEST_CASE("what a lease holds is decided at its place in the order, whatever waits before it [N8] "
          "[D1]",
          "[runtime]") {
  const auto copies = GENERATE(1u, 3u);
  DeviceOptions options;
  options.staging_limit_bytes = 64 << 10;
  Bench bench(GENERATE(0u, 2u), options);
  const Client& client = bench.client;
  Step step(client, SlotPolicy::rotate(2), SlotPolicy::rotate(copies));
  const Floats many(2 * (16 << 10) / sizeof(float), 7);
  const auto x = client.zeros<float>(many.size());
  test::CallerByHand caller(client, x, many);
  caller.post_first();
  // While the write is open, this waits, and so does everything behind it.
  auto seen = bench.device.client().async_read(x);
  auto replayed = step.graph.async_replay();
  auto first = step.graph.async_lease("out");
  auto refreshed = step.graph.async_refresh("in", Floats{5, 5});
  auto again = step.graph.async_replay();
  auto second = step.graph.async_lease("out");
  CHECK_FALSE(seen.ready());
  caller.send_rest();
  CHECK(seen.get() == many);
  replayed.get();
  refreshed.get();
  const OutputLease lease = first.get();
  CHECK(read(client, lease) == Floats{2, 2});
  CHECK(code_of([&] { again.get(); }) == (copies == 1 ? Errc::lease_held : Errc{}));
  if (copies == 1) {
    CHECK(code_of([&] { (void)second.get(); }) == Errc::lease_held);
  } else {
    CHECK(read(client, second.get()) == Floats{6, 6});
  }
}

TEST_CASE("a replay through a client rotates and respects leases [N8]", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Step step(client, SlotPolicy::rotate(2), SlotPolicy::rotate(2));
  client.replay(step.graph);
  const OutputLease first = step.graph.lease("out");
  step.graph.refresh("in", {3.0f, 3.0f});
  client.replay(step.graph);
  CHECK(read(client, first) == Floats{2, 2});
  CHECK(read(client, step.graph.lease("out")) == Floats{4, 4});
  const OutputLease second = step.graph.lease("out");
  CHECK(code_of([&] { client.replay(step.graph); }) == Errc::lease_held);
  CHECK(code_of([&] { client.async_replay(step.graph).get(); }) == Errc::lease_held);
  CHECK(read(client, first) == Floats{2, 2});
}

TEST_CASE("a graph whose slots rotate is no node of another, and one with leases is [B108]",
          "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Step rotating(client, SlotPolicy::wait(), SlotPolicy::rotate(2));
  rotating.graph.replay();
  const OutputLease kept = rotating.graph.lease("out");
  CHECK(code_of([&] { (void)client.capture([&](Client& c) { c.replay(rotating.graph); }); }) ==
        Errc::unsupported);
  GraphBuilder builder;
  const auto condition = client.create<std::uint32_t>({1});
  CHECK(code_of([&] { (void)builder.add_child(rotating.graph); }) == Errc::unsupported);
  CHECK(code_of([&] { (void)builder.add_if(condition, rotating.graph); }) == Errc::unsupported);
  CHECK(builder.node_count() == 0);
  CHECK(read(client, kept) == Floats{2, 2});
  rotating.graph.replay();
  CHECK(read(client, rotating.graph.lease("out")) == Floats{2, 2});

  Step plain(client, SlotPolicy::wait(), SlotPolicy::wait());
  plain.graph.replay();
  const OutputLease lease = plain.graph.lease("out");
  // A lease is between its holder and its graph.
  const Graph parent = client.capture([&](Client& c) { c.replay(plain.graph); });
  plain.graph.refresh("in", {8.0f, 8.0f});
  parent.replay();
  CHECK(read(client, lease) == Floats{9, 9});
  CHECK(client.read(plain.count) == Floats{2});
}

TEST_CASE("the copies of a slot belong to the memory that its graph keeps", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Step plain(client, SlotPolicy::wait(), SlotPolicy::wait());
  Step rotating(client, SlotPolicy::rotate(2), SlotPolicy::rotate(4));
  CHECK(rotating.graph.guarded_bytes() == plain.graph.guarded_bytes() + 4 * 2 * sizeof(float));
  const MemoryReport report = bench.device.memory_report();
  for (const GraphMemory& graph : report.graphs) {
    CHECK(graph.ranges.size() == (graph.id == report.graphs[0].id ? 7u : 3u));
  }
  CHECK(rotating.graph.slots()[1].copies == 4);
  CHECK(plain.graph.slots()[1].copies == 1);
}

TEST_CASE("an asynchronous lease comes by any completion token, and one that nobody takes is given "
          "back",
          "[runtime]") {
  namespace asio = boost::asio;
  std::optional<Bench> bench(std::in_place);
  const Client client = bench->client;
  Step step(client, SlotPolicy::wait(), SlotPolicy::rotate(2));
  step.graph.replay();
  FailurePtr failure;
  const OutputLease lease = step.graph.async_lease("out", asio::use_future).get();
  CHECK(read(client, lease) == Floats{2, 2});
  CHECK(step.graph.async_lease("out", CallOptions{.failure = &failure}, asio::use_future).get());
  CHECK(failure == nullptr);
  { auto dropped = step.graph.async_lease("out"); }
  CHECK(step.graph.async_lease("out").get());
  // The threads that hand leases over have ended then.
  bench.reset();
  CHECK(step.graph.statistics().leases == 1);
}

TEST_CASE("a copy that is bound elsewhere in the same replay is passed over", "[runtime]") {
  Bench bench;
  const Client& client = bench.client;
  Step step(client, SlotPolicy::rotate(2), SlotPolicy::rotate(2));
  step.graph.replay();  // into the second copy
  const auto output = step.graph.lease("out").as<float>();
  step.graph.replay({{"in", output}});  // Not into what it reads.
  CHECK(read(client, step.graph.lease("out")) == Floats{3, 3});
  CHECK(client.read(step.out) == Floats{3, 3});
  CHECK(client.read(output) == Floats{2, 2});
  step.graph.replay();
  CHECK(client.read(output) == Floats{2, 2});
  // An input may not be written where the newest copy is.
  CHECK(code_of([&] { step.graph.replay({{"out", step.in}}); }) == Errc::slot_overlap);
  CHECK(client.read(step.in) == Floats{1, 1});
  step.graph.refresh("in", {7.0f, 7.0f});
  step.graph.replay({{"out", step.in}});
  CHECK(client.read(step.in) == Floats{8, 8});
}

TEST_CASE("a lease outlives its graph and its device", "[runtime]") {
  std::optional<Bench> bench(std::in_place);
  std::optional<Step> step(std::in_place, bench->client, SlotPolicy::wait(), SlotPolicy::rotate(2));
  step->graph.replay();
  OutputLease lease = step->graph.lease("out");
  OutputLease taken = std::move(lease);
  CHECK_FALSE(lease);
  lease.release();
  step.reset();
  CHECK(read(bench->client, taken) == Floats{2, 2});
  OutputLease other;
  other = std::move(taken);
  bench.reset();
  CHECK(other);
  other.release();
  CHECK_FALSE(other);
}

TEST_CASE("every schedule of refreshes, replays and leases gives what a sequential one gives [N1] "
          "[N8] [I25]",
          "[runtime][sim]") {
  const std::uint64_t base = test::seed();
  for (std::uint64_t i = 0; i < 150; ++i) {
    const std::uint64_t seed = base + i;
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    SeededHost host(SeededOptions{.seed = seed});
    RuntimeOptions options;
    options.host = &host;
    Runtime runtime(options);
    DeviceOptions device_options;
    device_options.workers = static_cast<std::uint32_t>(i % 3);
    device_options.ring_capacity = 4;
    device_options.in_flight = 1 + static_cast<std::uint32_t>(i % 9);
    const Device device = runtime.open("cpu:0", device_options);
    const auto copies = [&] { return static_cast<std::uint32_t>(1 + random() % 3); };
    RotatingStep step(device.client(), copies(), copies());
    for (int k = 0; k < 40; ++k) {
      switch (random() % 5) {
        case 0: step.refresh(static_cast<float>(random() % 100)); break;
        case 1: step.lease(); break;
        case 2: step.release_oldest(); break;
        default: step.replay(); break;
      }
    }
    step.release_all();
    device.drain();
  }
}

TEST_CASE("threads that refresh, replay and lease one graph see whole outputs [N1] [N8]",
          "[runtime][threads]") {
  Bench bench(2);
  Step step(bench.client, SlotPolicy::rotate(3), SlotPolicy::rotate(3));
  step.graph.replay();
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const Client client = bench.device.client();
      for (int i = 0; i < 100; ++i) {
        const auto value = static_cast<float>(1000 * t + i);
        step.graph.refresh("in", {value, value});
        const Errc code = code_of([&] { step.graph.replay(); });
        if (code != Errc{} && code != Errc::lease_held) ++torn;
        const OutputLease lease = step.graph.lease("out");
        const Floats once = read(client, lease);
        if (once[0] != once[1] || read(client, lease) != once) ++torn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(torn == 0);
  CHECK(step.graph.statistics().leases == 0);
}

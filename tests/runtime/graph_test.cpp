// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using test::add_one;
using test::mul_two;
using Floats = std::vector<float>;

namespace {

struct Bench {
  explicit Bench(std::uint32_t workers = 1) {
    DeviceOptions options;
    options.workers = workers;
    device = runtime.open("cpu:0", options);
    client = device.client();
  }
  Runtime runtime;
  Device device;
  Client client;
};

/// Ping-pongs add_one between a and b, `count` launches in all.
void ping_pong(const Client& client, const Array<float>& a, const Array<float>& b, int count) {
  for (int i = 0; i < count; ++i) {
    client.launch(add_one, grid_for(a.size()), i % 2 == 0 ? a : b, i % 2 == 0 ? b : a);
  }
}

}  // namespace

TEST_CASE("a replay runs what was recorded and reads refreshed inputs [B90] [B91] [B96] [I24]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 2u));
  Client& client = bench.client;
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.create<float>({0, 0, 0, 0});
  client.prepare_capture();
  client.launch(add_one, grid_for(4), in, out);
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
  client.fill(out, 0.0f);
  client.start_capture();
  client.launch(add_one, grid_for(4), in, out);
  const Graph graph = client.stop_capture();
  CHECK(client.read(out) == Floats{0, 0, 0, 0});
  CHECK(graph.node_count() == 1);
  graph.replay();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
  graph.replay();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
  client.write(in, Floats{10, 20, 30, 40});
  graph.replay();
  CHECK(client.read(out) == Floats{11, 21, 31, 41});
}

TEST_CASE("a temporary of the window belongs to the graph [B92] [B100] [N5] [I17]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.empty<float>(4);
  Graph graph = client.capture([&](Client& c) {
    const auto temporary = c.empty<float>(4);
    c.launch(add_one, grid_for(4), in, temporary);
    c.launch(mul_two, grid_for(4), temporary, out);
  });
  std::vector<Array<float>> sentinels;
  for (int i = 0; i < 8; ++i) sentinels.push_back(client.create<float>({999, 999, 999, 999}));
  (void)bench.device.trim();
  graph.replay();
  CHECK(client.read(out) == Floats{4, 6, 8, 10});
  for (const auto& sentinel : sentinels) CHECK(client.read(sentinel) == Floats(4, 999.0f));
  graph.replay();
  graph = Graph{};  // dropped with its replay in flight
  for (int i = 0; i < 8; ++i) sentinels.push_back(client.create<float>({999, 999, 999, 999}));
  CHECK(client.read(out) == Floats{4, 6, 8, 10});
}

TEST_CASE("a hundred and fifty recorded launches run once per replay [B93] [B94] [B95] [I25]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 2u));
  Client& client = bench.client;
  const auto a = client.zeros<float>(64);
  const auto b = client.zeros<float>(64);
  client.prepare_capture();
  ping_pong(client, a, b, 150);
  CHECK(client.read(a) == Floats(64, 150.0f));
  CHECK(client.read(b) == Floats(64, 149.0f));
  client.start_capture();
  ping_pong(client, a, b, 150);
  const Graph graph = client.stop_capture();
  graph.replay();
  graph.replay();
  CHECK(client.read(a) == Floats(64, 450.0f));
  CHECK(client.read(b) == Floats(64, 449.0f));
  client.fill(a, 100.0f);
  client.fill(b, 100.0f);
  graph.replay();
  CHECK(client.read(a) == Floats(64, 250.0f));
  CHECK(client.read(b) == Floats(64, 249.0f));
}

TEST_CASE("copies of a handle share a graph and the last one releases it [B97] [B98] [B99] [I26]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.zeros<float>(4);
  Graph graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
  CHECK(bench.device.memory_report().pool.guarded == 16);
  Graph copy = graph;
  graph = Graph{};
  copy.replay();
  CHECK(client.read(x) == Floats(4, 1.0f));
  CHECK(code_of([&] { graph.replay(); }) == Errc::empty_graph);
  CHECK(code_of([&] { graph.async_run().get(); }) == Errc::empty_graph);
  CHECK(bench.device.memory_report().graphs.size() == 1);
  copy = Graph{};
  CHECK(bench.device.memory_report().graphs.empty());
  CHECK(bench.device.memory_report().pool.guarded == 0);
  CHECK(client.read(x) == Floats(4, 1.0f));
}

TEST_CASE("capture verbs out of order are refused and change nothing [B101] [B88]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.empty<float>(4);
  CHECK(code_of([&] { client.start_capture(); }) == Errc::capture_order);
  CHECK_FALSE(client.is_capturing());
  CHECK(code_of([&] { (void)client.stop_capture(); }) == Errc::capture_order);
  client.prepare_capture();
  CHECK(code_of([&] { client.prepare_capture(); }) == Errc::capture_order);
  client.start_capture();
  CHECK(code_of([&] { client.start_capture(); }) == Errc::capture_order);
  CHECK(code_of([&] { client.prepare_capture(); }) == Errc::capture_order);
  client.launch(add_one, 1, in, out);
  const Graph graph = client.stop_capture();
  graph.replay();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
}

TEST_CASE("other streams work on while one records [B102] [N6]", "[runtime]") {
  Bench bench(2);
  Client& client = bench.client;
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.empty<float>(4);
  client.prepare_capture();
  client.start_capture();
  std::thread([&] {
    Client other = bench.device.client();
    const auto sevens = other.create<float>({7, 7, 7, 7});
    const auto doubled = other.empty<float>(4);
    other.launch(mul_two, 1, sevens, doubled);
    CHECK(other.read(doubled) == Floats(4, 14.0f));
    Graph brief = other.capture([&](Client& c) { c.launch(mul_two, 1, sevens, doubled); });
    brief.run();
  }).join();
  client.launch(add_one, 1, in, out);
  const Graph graph = client.stop_capture();
  CHECK(graph.node_count() == 1);
  graph.replay();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
}

TEST_CASE("a client of another stream cannot close a window [B103]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  Client other = client.fork();
  const auto in = client.create<float>({1});
  const auto out = client.empty<float>(1);
  client.prepare_capture();
  client.start_capture();
  CHECK(code_of([&] { (void)other.stop_capture(); }) == Errc::capture_order);
  client.launch(add_one, 1, in, out);
  client.stop_capture().run();
  CHECK(client.read(out) == Floats{2});
}

TEST_CASE("empty grids and zero-byte copies leave no node [B104]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.create<float>({1});
  const auto none = client.empty<float>(0);
  const Graph graph = client.capture([&](Client& c) {
    c.launch(test::add_in_place, grid_for(0), x, 1.0f);
    c.copy(none, none.slice(0, 0));
    c.fill(none, 1.0f);
  });
  CHECK(graph.node_count() == 0);
  graph.replay();
  graph.run();
  CHECK(client.read(x) == Floats{1});
}

TEST_CASE("a successful replay leaves no mark on what it wrote [B106]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1});
  const auto out = client.empty<float>(1);
  const Graph graph = client.capture([&](Client& c) { c.launch(add_one, 1, in, out); });
  CHECK(client.check({out}) == Health::failed);
  graph.run();
  CHECK(client.check({out}) == Health::clean);
  CHECK(client.failure(out) == nullptr);
}

TEST_CASE("a replay with a failed input is skipped, marks its outputs and is not locked out [B107] "
          "[I28]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1});
  const auto cache = client.zeros<float>(1);
  const auto out = client.empty<float>(1);
  const Graph graph = client.capture([&](Client& c) {
    c.launch(test::add, 1, in, cache, cache);  // in place over the cache
    c.launch(add_one, 1, cache, out);
  });
  graph.run();
  CHECK(client.read(cache) == Floats{1});
  client.launch(test::fail, 1, in, in);
  client.synchronize();  // Until then a replay is accepted, and skipped behind the failure.
  for (int i = 0; i < 3; ++i) {
    try {
      graph.replay();
      FAIL("a replay read a failed input");
    } catch (const Failure& failure) {
      CHECK(failure.errc() == Errc::skipped);
      CHECK(failure.record().root().message == "boom");
    }
    CHECK(code_of([&] { (void)client.read(cache); }) == Errc::kernel_failed);
    CHECK(code_of([&] { (void)client.read(out); }) == Errc::kernel_failed);
  }
  CHECK(graph.statistics().refused == 3);
  CHECK(graph.last_failure()->root().message == "boom");
  // The only claim left on the cache is the graph's own refusal: it does not lock itself out.
  client.write(in, Floats{10});
  graph.replay();
  CHECK(client.read(cache) == Floats{11});
  CHECK(client.read(out) == Floats{12});
  CHECK(graph.statistics().replays == 2);
}

TEST_CASE("a window with an operation that failed does not seal and marks its writes [B108] [I20]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1});
  const auto out = client.create<float>({5});
  const auto unwritten_code = code_of([&] {
    (void)client.capture([&](Client& c) {
      c.launch(add_one, 1, in, out);
      const auto fresh = c.empty<float>(1);
      c.launch(add_one, 1, fresh, out);  // nothing in the window wrote it
    });
  });
  CHECK(unwritten_code == Errc::capture_doomed);
  CHECK(code_of([&] { (void)client.read(out); }) == Errc::capture_doomed);
  CHECK(client.read(in) == Floats{1});
  client.restore({out});
  CHECK(client.read(out) == Floats{5});
  client.launch(add_one, 1, in, out);
  CHECK(client.read(out) == Floats{2});
}

TEST_CASE("is_capturing follows the lifecycle for every client of the stream [B86] [B87] [B109]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  Client same = client;
  Client neighbour = client.fork();
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.empty<float>(4);
  CHECK_FALSE(client.is_capturing());
  client.prepare_capture();
  CHECK(client.is_capturing());
  CHECK(same.is_capturing());
  CHECK_FALSE(neighbour.is_capturing());
  CHECK(code_of([&] { (void)client.stop_capture(); }) == Errc::capture_order);
  CHECK_FALSE(client.is_capturing());
  client.prepare_capture();
  client.start_capture();
  CHECK(same.is_capturing());
  CHECK(bench.device.any_recording());
  client.launch(add_one, 1, in, out);
  const Graph graph = client.stop_capture();
  CHECK_FALSE(client.is_capturing());
  CHECK_FALSE(bench.device.any_recording());
  graph.replay();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
}

TEST_CASE("is_capturing answers while the device thread is busy [B89]", "[runtime]") {
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&) { gate.pass(); }};
  Bench bench(0);  // kernels run on the device thread
  bench.client.launch(hold, 1);
  gate.wait_for_arrivals();
  CHECK_FALSE(bench.client.is_capturing());
  gate.open();
  bench.client.synchronize();
}

TEST_CASE("reads and waits of a recording stream are refused without dooming it [B122] [B125]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.empty<float>(4);
  client.prepare_capture();
  client.start_capture();
  client.launch(add_one, 1, in, out);
  CHECK(code_of([&] { (void)client.read(in); }) == Errc::capture_refused);
  CHECK(code_of([&] { client.synchronize(); }) == Errc::capture_refused);
  const Graph graph = client.stop_capture();
  graph.replay();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
}

TEST_CASE("a recorded write keeps its bytes for the graph's life [B115] [B123]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.create<float>({1, 1});
  Graph graph;
  {
    Floats bytes{9, 9};
    graph = client.capture([&](Client& c) { c.write(x, bytes); });
    bytes.assign(2, 0.0f);
  }
  CHECK(client.read(x) == Floats{1, 1});
  graph.run();
  CHECK(client.read(x) == Floats{9, 9});
}

TEST_CASE("a scoped capture may allocate, the lifecycle verbs must be asked [B124] [B110] [B111]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.empty<float>(4);
  constexpr std::size_t never_pooled = 3'145'733;
  const Graph grown = client.capture([&](Client& c) {
    const auto large = c.zeros<std::uint8_t>(never_pooled);
    c.launch(add_one, 1, in, out);
  });
  grown.run();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
  client.prepare_capture();
  client.start_capture();
  (void)client.empty<std::uint8_t>(64 * never_pooled);
  client.launch(add_one, 1, in, out);
  try {
    (void)client.stop_capture();
    FAIL("a window without growth sealed with a new allocation");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::capture_doomed);
    CHECK(failure.record().root().code == Errc::growth_forbidden);
  }
  // The stream is usable again.
  const Graph after = client.capture([&](Client& c) { c.launch(add_one, 1, in, out); });
  after.run();
  CHECK(client.read(out) == Floats{2, 3, 4, 5});
}

TEST_CASE("an exception in the recorded function leaves only marks that restore lifts [N7] [I26]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1});
  const auto out = client.create<float>({5});
  client.synchronize();
  const auto before = bench.device.memory_report();
  CHECK_THROWS_AS(client.capture([&](Client& c) {
    const auto temporary = c.empty<float>(100);
    c.launch(add_one, 1, in, out);
    throw std::logic_error("user");
  }),
                  std::logic_error);
  client.restore({out});
  CHECK(client.read(out) == Floats{5});
  client.synchronize();
  const auto after = bench.device.memory_report();
  CHECK(after.pool.in_use == before.pool.in_use);
  CHECK(after.pool.guarded == before.pool.guarded);
  CHECK_FALSE(bench.device.any_recording());
}

TEST_CASE("an aborted window leaves nothing behind", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto out = client.create<float>({5});
  client.prepare_capture();
  client.start_capture();
  client.fill(out, 1.0f);
  client.abort_capture();
  CHECK(client.read(out) == Floats{5});
  client.abort_capture();
  CHECK_FALSE(client.is_capturing());
}

TEST_CASE("dropping the last client of a recording stream closes its window [I26]", "[runtime]") {
  Bench bench;
  const auto out = bench.client.create<float>({5});
  {
    Client own = bench.client.fork();
    own.prepare_capture();
    own.start_capture();
    own.fill(out, 1.0f);
  }
  // At the place of the drop, though the command that was recorded is on its way still.
  CHECK(code_of([&] { (void)bench.client.read(out); }) == Errc::capture_abandoned);
  CHECK_FALSE(bench.device.any_recording());
  bench.client.restore({out});
  CHECK(bench.client.read(out) == Floats{5});
}

TEST_CASE("a node that fails in a replay takes only its dependents with it [N3] [I25]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 2u));
  Client& client = bench.client;
  const auto flag = client.create<std::int32_t>({0});
  const auto in = client.create<float>({1});
  const auto a = client.empty<float>(1);
  const auto b = client.empty<float>(1);
  const auto c = client.empty<float>(1);
  const auto bystander = client.create<float>({7});
  const Graph graph = client.capture([&](Client& r) {
    r.launch(test::fail_if, 1, flag, in, a);
    r.launch(add_one, 1, a, b);
    r.launch(mul_two, 1, in, c);
  });
  graph.run();
  CHECK(client.read(b) == Floats{3});
  client.write(flag, std::vector<std::int32_t>{1});
  client.write(in, Floats{10});
  graph.replay();
  CHECK(client.read(c) == Floats{20});
  for (int i = 0; i < 2; ++i) {
    try {
      (void)client.read(b);
      FAIL("a dependent of a failed node read back");
    } catch (const Failure& failure) {
      CHECK(failure.errc() == Errc::kernel_failed);
      CHECK(failure.record().root().message == "asked to fail");
      CHECK(failure.record().root().node == "fail_if");
    }
  }
  CHECK(code_of([&] { (void)client.read(a); }) == Errc::kernel_failed);
  CHECK(client.read(bystander) == Floats{7});
  CHECK(graph.statistics().failed == 1);
  CHECK(code_of([&] { graph.run(); }) == Errc::kernel_failed);
  client.write(flag, std::vector<std::int32_t>{0});
  graph.run();
  CHECK(client.read(b) == Floats{12});
}

TEST_CASE("inputs refreshed and outputs read from any stream and thread are in order [N1] [N2] "
          "[I4]",
          "[runtime]") {
  Bench bench(2);
  Client& client = bench.client;
  const auto in = client.zeros<float>(64);
  const auto out = client.zeros<float>(64);
  const Graph graph = client.capture([&](Client& c) {
    const auto middle = c.empty<float>(64);
    c.launch(add_one, 1, in, middle);
    c.launch(mul_two, 1, middle, out);
  });
  for (int i = 0; i < 50; ++i) {
    const auto value = static_cast<float>(i);
    std::thread([&] {
      bench.device.client().write(in, Floats(64, value));
      (void)bench.device.client().create<float>(Floats(64, -1.0f));  // recycles staging
    }).join();
    std::thread([&] { graph.replay(); }).join();
    auto old = bench.device.client().async_read(out);
    bench.device.client().write(in, Floats(64, -5.0f));
    graph.replay();
    CHECK(old.get() == Floats(64, (value + 1) * 2));
    CHECK(client.read(out) == Floats(64, -8.0f));
  }
}

TEST_CASE("replays from several threads never interleave [I27] [D1]", "[runtime]") {
  Bench bench(2);
  Client& client = bench.client;
  const auto x = client.zeros<float>(8);
  const Graph graph = client.capture([&](Client& c) {
    for (int i = 0; i < 10; ++i) c.launch(test::add_in_place, 1, x, 1.0f);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) graph.replay();
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(client.read(x) == Floats(8, 1000.0f));
  CHECK(graph.statistics().replays == 100);
}

TEST_CASE("asynchronous replays and runs complete [I6]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.zeros<float>(1);
  const Graph graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
  graph.async_replay().get();
  graph.async_run().get();
  CHECK(graph.try_replay());
  CHECK(client.read(x) == Floats{3});
}

TEST_CASE("a graph describes itself", "[runtime]") {
  Bench bench;
  const auto x = bench.client.zeros<float>(16);
  const Graph graph = bench.client.capture(
      [&](Client& c) {
        c.launch(test::add_in_place, 1, x, 1.0f);
        c.fill(x.slice(0, 8), 2.0f);
      },
      {.name = "step"});
  CHECK(graph.name() == "step");
  CHECK(graph.node_count() == 2);
  CHECK(graph.guarded_bytes() == 64);
  CHECK(graph.to_dot().find("add_in_place") != std::string::npos);
  std::ostringstream text;
  text << graph << Graph{};
  CHECK(text.str().find("step") != std::string::npos);
  CHECK(text.str().find("empty graph") != std::string::npos);
}

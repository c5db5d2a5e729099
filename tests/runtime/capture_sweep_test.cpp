// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

// A window goes wrong at each of its points in each way; what is left must be what was there.

using namespace reprise;
using Floats = std::vector<float>;

namespace {

enum class Fault {
  exception,     // leaves the recording function
  refused_verb,  // and the window goes on
  bad_launch,    // dooms
  no_memory,     // dooms
  stranger,      // joins a stream that is not of the window
  lost_fork,     // a forked client is never joined
  dropped_fork,
  abort,
  dropped_client,
  foreign_event,  // waits for an event from outside
  count
};

struct LeaveWindow {};

struct Bench {
  Bench() {
    DeviceOptions options;
    options.workers = 1;
    options.memory_limit_bytes = 64 << 20;
    device = runtime.open("cpu:0", options);
    client = device.client();
    for (int i = 0; i < 4; ++i) {
      arrays.push_back(client.create<float>(Floats(16, static_cast<float>(i))));
    }
    inner = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, arrays[3], 1.0f); });
    device.synchronize();
  }

  std::vector<Floats> contents() const {
    std::vector<Floats> all;
    for (const auto& array : arrays) all.push_back(client.read(array));
    return all;
  }
  void restore() const {
    for (const auto& array : arrays) client.restore({array});
  }

  Runtime runtime;
  Device device;
  Client client;
  std::vector<Array<float>> arrays;
  Graph inner;
};

/// The step, command by command; each kind of node occurs.
std::vector<std::function<void(Client&)>> commands(const Bench& bench, Array<float>& temporary) {
  const auto& a = bench.arrays;
  return {
      [&](Client& c) { temporary = c.empty<float>(16); },
      [&](Client& c) { c.fill(temporary, 2.0f); },
      [&](Client& c) { c.launch(test::add_one, 1, a[0], a[1]); },
      [&](Client& c) { c.copy(a[2], temporary); },
      [&](Client& c) { c.write(a[0], Floats(16, 9.0f)); },
      [&](Client& c) { c.replay(bench.inner); },
      [&](Client& c) {
        const Client side = c.fork();
        side.launch(test::add_in_place, 1, a[2], 1.0f);
        c.join(side);
      },
      [&](Client& c) { c.host_call({}, [] {}); },
      [&](Client&) { temporary = {}; },
  };
}

/// What must be as before, whatever became of the window.
struct Books {
  explicit Books(const Device& device) {
    (void)device.trim();
    const MemoryReport report = device.memory_report();
    in_use = report.pool.in_use;
    guarded = report.pool.guarded;
    waiting = report.pool.waiting;
    padding = report.pool.padding;
    blocks = report.pool.blocks;
    reserved = report.pool.reserved;
    staged = report.staging.in_use;
    graphs = report.graphs.size();
    recording = device.any_recording();
  }
  friend bool operator==(const Books&, const Books&) = default;

  std::uint64_t in_use, guarded, waiting, padding, blocks, reserved, staged;
  std::size_t graphs;
  bool recording;
};

void strike(Fault fault, const Bench& bench, Client& client, std::optional<Client>& forked) {
  switch (fault) {
    case Fault::exception: throw LeaveWindow{};
    case Fault::refused_verb:
      CHECK(test::code_of([&] { (void)client.read(bench.arrays[0]); }) == Errc::capture_refused);
      CHECK(test::code_of([&] { client.synchronize(); }) == Errc::capture_refused);
      break;
    case Fault::bad_launch:
      client.launch(test::add_in_place, Grid{Dim3{1}, Dim3{0}}, bench.arrays[0], 1.0f);
      break;
    case Fault::no_memory: {
      const auto huge = client.empty<float>(std::size_t{1} << 28);
      client.fill(huge, 1.0f);
      break;
    }
    case Fault::stranger: client.join(bench.client); break;
    case Fault::lost_fork: forked = client.fork(); break;
    case Fault::dropped_fork: (void)client.fork(); break;
    case Fault::abort: client.abort_capture(); break;
    case Fault::dropped_client: client = {}; break;
    case Fault::foreign_event: client.wait(bench.client.record()); break;
    default: break;
  }
}

/// Whether a window seals in spite of the fault.
bool is_harmless(Fault fault) {
  return fault == Fault::refused_verb;
}

/// Records the step with `fault` before its command `at`; answers the graph, if there is one.
Graph record(Fault fault, std::size_t at, const Bench& bench, bool by_scope) {
  Array<float> temporary;
  const auto steps = commands(bench, temporary);
  std::optional<Client> forked;
  const auto body = [&](Client& client) {
    for (std::size_t i = 0; i <= steps.size() && client; ++i) {
      if (i == at) strike(fault, bench, client, forked);
      // Without its window a client would do the work.
      if (!client || (fault == Fault::abort && i >= at)) return;
      if (i < steps.size()) steps[i](client);
    }
  };
  try {
    if (by_scope) return bench.client.capture(body);
    Client client = bench.client.fork();
    client.prepare_capture({.growth = true});
    client.start_capture();
    body(client);
    return client ? client.stop_capture() : Graph{};
  } catch (const LeaveWindow&) {
  } catch (const Failure& failure) {
    CHECK((failure.errc() == Errc::capture_doomed || failure.errc() == Errc::capture_order));
  }
  return {};
}

}  // namespace

TEST_CASE("a window that goes wrong at any of its points in any way leaves what was there "
          "[I24] [I26] [N7]",
          "[runtime]") {
  Bench bench;
  Array<float> unused;
  const std::size_t points = commands(bench, unused).size();
  const std::vector<Floats> before = bench.contents();
  const Books books(bench.device);
  for (int kind = 0; kind < static_cast<int>(Fault::count); ++kind) {
    for (std::size_t at = 0; at <= points; ++at) {
      for (const bool by_scope : {true, false}) {
        const auto fault = static_cast<Fault>(kind);
        // A scope's client is the library's, which goes on to close the window with its own copy.
        if (by_scope && (fault == Fault::dropped_client || fault == Fault::abort)) continue;
        CAPTURE(kind, at, by_scope);
        const Graph graph = record(fault, at, bench, by_scope);
        CHECK(static_cast<bool>(graph) == is_harmless(fault));
        if (graph) continue;
        bench.restore();
        CHECK(bench.contents() == before);
        CHECK(Books(bench.device) == books);
      }
    }
  }
  // The device is as good as new: the step records and does its work.
  const Graph graph = record(Fault::count, 0, bench, true);
  REQUIRE(graph);
  graph.run();
  CHECK(bench.client.read(bench.arrays[1]) == Floats(16, 1.0f));
  CHECK(bench.client.read(bench.arrays[2]) == Floats(16, 3.0f));
  CHECK(bench.client.read(bench.arrays[0]) == Floats(16, 9.0f));
}

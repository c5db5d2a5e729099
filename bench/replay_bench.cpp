// SPDX-License-Identifier: Apache-2.0
// P5, P8: what a caller waits until a replay is accepted, and what replaying a node costs.
#include "harness.hpp"
#include "replay_peers.hpp"

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#ifdef REPRISE_HAS_TBB
#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>
#endif

namespace reprise::bench {
namespace {

// ---- the same program for everybody -------------------------------------------------------------

using NodeKernel = Kernel<void(InOut<std::uint64_t>, std::uint64_t)>;

template <std::uint64_t mask>
NodeKernel node_kernel() {
  return {"node", [](const Block&, InOut<std::uint64_t> sum, std::uint64_t argument) {
            sum[0] += argument ^ mask;
          }};
}

const std::array<NodeKernel, kinds>& node_kernels() {
  static const std::array<NodeKernel, kinds> kernels = [] {
    return []<std::uint64_t... k>(std::integer_sequence<std::uint64_t, k...>) {
      return std::array{node_kernel<k>()...};
    }
    (std::make_integer_sequence<std::uint64_t, kinds>());
  }();
  return kernels;
}

/// A device with the program captured into a graph.
class Replayed {
public:
  Replayed(std::vector<Step> steps, const DeviceOptions& options)
      : steps_(std::move(steps)), first_core_([&] {
          runtime_ = std::make_unique<Runtime>();
          device_ = runtime_->open("cpu:0", options);
        }),
        client_(device_.client()), sum_(client_.zeros<std::uint64_t>(1)),
        graph_(client_.capture([this](Client& client) { launch_all(client); })) {
    client_.synchronize();
  }

  void replay() {
    graph_.replay();
    ++done_;
  }
  void run() {
    graph_.run();
    ++done_;
  }
  void eager() {
    launch_all(client_);
    client_.synchronize();
    ++done_;
  }
  /// Waits for the end of all that was asked for; aborts unless it all happened.
  void finish() {
    device_.synchronize();
    if (client_.read(sum_)[0] != done_ * total(steps_)) std::abort();
  }

private:
  void launch_all(Client& client) {
    for (const Step& step : steps_)
      client.launch(node_kernels()[step.kind], 1, sum_, step.argument);
  }

  const std::vector<Step> steps_;
  std::unique_ptr<Runtime> runtime_;
  Device device_;
  OnFirstCore first_core_;
  Client client_;
  Array<std::uint64_t> sum_;
  Graph graph_;
  std::uint64_t done_ = 0;
};

DeviceOptions credit_of_64() {
  DeviceOptions options;
  options.in_flight_per_stream = 64;
  return options;
}
DeviceOptions workers(std::uint32_t count) {
  DeviceOptions options;
  options.workers = count;
  return options;
}
DeviceOptions without_help() {
  DeviceOptions options;
  options.help_while_waiting = false;
  return options;
}

// ---- P5 -----------------------------------------------------------------------------------------

constexpr int small_graph = 4;
constexpr int warm_calls = 300;
constexpr int calls = 4096;

/// ns per call of call(i), one by one.
template <class F>
std::vector<double> each(F&& call) {
  for (int i = 0; i < warm_calls; ++i) call(i);
  std::vector<double> times;
  times.reserve(calls);
  for (int i = 0; i < calls; ++i) {
    const std::uint64_t start = ticks();
    call(i);
    times.push_back(ns_since(start));
  }
  return times;
}

/// A blocking replay() returns when the device has taken it. Its execution is part of the time of
/// some later call, as no more than 64 may be in flight, or of the last one, which waits for all.
double accepted(double p) {
  Replayed system(random_program(small_graph), credit_of_64());
  std::vector<double> times = each([&](int i) {
    system.replay();
    if (i + 1 == calls) system.finish();
  });
  return quantile(std::move(times), p);
}

/// The same, as the time of all calls until the last has finished, per call.
double accepted_and_finished() {
  Replayed system(random_program(small_graph), credit_of_64());
  std::vector<double> batches;
  for (int batch = 0; batch < 33; ++batch) {
    const std::uint64_t start = ticks();
    for (int i = 0; i < 128; ++i) system.replay();
    system.finish();
    if (batch > 0) batches.push_back(ns_since(start) / 128);
  }
  return median(std::move(batches));
}

template <class System>
double answered(double p) {
  System system;
  const OnFirstCore first_core([] {});
  std::vector<double> times = each([&](int i) {
    if (system.call(std::uint64_t(i)) != std::uint64_t(i) + 1) std::abort();
  });
  return quantile(std::move(times), p);
}

// ---- P8 -----------------------------------------------------------------------------------------

using Program = std::vector<Step> (*)(int nodes);

constexpr int large_graph = 1000;

template <class F>
double per_node(F&& step) {
  return median_ns(960, std::forward<F>(step)) / large_graph;
}

double pointer_loop(Program program) {
  const PointerProgram pointers(program(large_graph));
  const OnFirstCore first_core([] {});
  return per_node([&](int) { pointers.run(); });
}

double handed_over(Program program) {
  const PointerProgram pointers(program(large_graph));
  SecondThread<const PointerProgram*> second([](const PointerProgram* p) { p->run(); });
  const OnFirstCore first_core([] {});
  return per_node([&](int) { second.call(&pointers); });
}

double replayed(Program program, const DeviceOptions& options) {
  Replayed system(program(large_graph), options);
  const double ns = per_node([&](int) { system.run(); });
  system.finish();
  return ns;
}

double launched(Program program, const DeviceOptions& options) {
  Replayed system(program(large_graph), options);
  const double ns = median_ns(32, [&](int) { system.eager(); }) / large_graph;
  system.finish();
  return ns;
}

#ifdef REPRISE_HAS_TBB
double tbb_flow_graph(Program program) {
  using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;
  tbb::task_arena arena(1);
  std::optional<tbb::flow::graph> graph;
  const OnFirstCore first_core([] {});
  arena.execute([&] { graph.emplace(); });
  std::vector<std::unique_ptr<Node>> nodes;
  for (const Step& step : program(large_graph)) {
    nodes.push_back(std::make_unique<Node>(
        *graph, [run = ops[step.kind], argument = step.argument](const tbb::flow::continue_msg&) {
          run(&pointer_sum, argument);
        }));
    if (nodes.size() > 1) tbb::flow::make_edge(*nodes[nodes.size() - 2], *nodes.back());
  }
  return per_node([&](int) {
    arena.execute([&] {
      nodes.front()->try_put({});
      graph->wait_for_all();
    });
  });
}
#endif

void acceptance_rows(Suite& suite) {
  for (const bool tail : {false, true}) {
    const double p = tail ? 0.99 : 0.5;
    suite.row("P5", tail ? "acceptance, hot, p99" : "acceptance, hot, p50")
        .limit("mailbox, both spin", [p] { return answered<Mailbox>(p); })
        .add(
            "reprise replay()", [p] { return accepted(p); },
            tail ? std::vector<Bar>{at_most(2.5)}
                 : std::vector<Bar>{at_most(1.7), faster_than("promise over a deque", 15),
                                    faster_than("asio post, use_future", 15)})
        .add("promise over a deque", [p] { return answered<PromiseDeque>(p); })
        .add("asio post, use_future", [p] { return answered<AsioFuture>(p); });
  }
  suite.row("P5", "acceptance and execution, hot, per replay")
      .limit("mailbox, both spin", [] { return answered<Mailbox>(0.5); })
      .add("reprise replay()", accepted_and_finished);
}

void replay_rows(Suite& suite, const std::string& order, Program program, bool barred) {
  std::vector<Bar> threaded;
  std::vector<Bar> alone;
  if (barred) {
    threaded = {at_most(1.25), faster_than("eager launches", 20)};
    alone = {at_most(1.6), faster_than("eager launches", 20)};
  }
  Row& row =
      suite.row("P8", "run() with workers, 1000 nodes " + order + ", per node")
          .limit("function pointers on a second thread", [=] { return handed_over(program); })
          .add(
              "reprise", [=] { return replayed(program, {}); }, threaded)
          .add("reprise, without help_while_waiting",
               [=] { return replayed(program, without_help()); })
          .add("eager launches", [=] { return launched(program, {}); });
#ifdef REPRISE_HAS_TBB
  row.add("TBB flow graph", [=] { return tbb_flow_graph(program); });
#else
  (void)row;
#endif
  suite.row("P8", "run() with workers = 0, 1000 nodes " + order + ", per node")
      .limit("function pointers", [=] { return pointer_loop(program); })
      .add(
          "reprise", [=] { return replayed(program, workers(0)); }, alone)
      .add("eager launches", [=] { return launched(program, workers(0)); });
}

const Registration rows{[](Suite& suite) {
  acceptance_rows(suite);
  replay_rows(suite, "in random order", random_program, true);
  replay_rows(suite, "in layers", layered_program, false);
}};

}  // namespace
}  // namespace reprise::bench

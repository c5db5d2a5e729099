// SPDX-License-Identifier: Apache-2.0
// P9: what it costs to record a node.
#include "harness.hpp"
#include "holds.hpp"
#include "replay_peers.hpp"

#include <reprise/device/kernel.hpp>
#include <reprise/capture/recorder.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace reprise::bench {
namespace {

using NodeKernel = Kernel<void(InOut<std::uint64_t>, std::uint64_t)>;

NodeKernel make_kernel() {
  return {"node", [](const Block&, InOut<std::uint64_t> sum, std::uint64_t argument) {
            sum[0] += argument;
          }};
}

constexpr int nodes = 1000;
constexpr int passes = 64;

/// ns of record(), per node, in memory that an earlier pass has used; prepare() is not counted.
template <class Prepare, class Record>
double per_node(Prepare&& prepare, Record&& record) {
  std::vector<double> times;
  for (int pass = 0; pass <= passes; ++pass) {
    prepare();
    const std::uint64_t start = ticks();
    record();
    if (pass > 0) times.push_back(ns_since(start) / nodes);
  }
  return median(std::move(times));
}

// ---- the arena ----------------------------------------------------------------------------------

double pointer_nodes() {
  struct Node {
    Op run;
    std::uint64_t argument;
  };
  const std::vector<Step> steps = random_program(nodes);
  std::vector<Node> recorded;
  return per_node([&] { recorded.clear(); },
                  [&] {
                    for (const Step& step : steps)
                      recorded.push_back({ops[step.kind], step.argument});
                    keep(recorded.data());
                  });
}

/// Resolved launches of a kernel with one buffer and a number, as the device thread hands them to
/// the recorder: argument block, kernel and byte set go along.
double recorded_nodes() {
  const NodeKernel kernel = make_kernel();
  const HoldRef hold = make_hold(8);
  constexpr std::size_t argument_bytes = 24;
  const std::array<std::byte, argument_bytes> arguments{};
  std::vector<Touch> touches(nodes);
  std::vector<RecordedNode> prepared(nodes);
  Recorder recorder;
  const auto prepare = [&] {
    recorder.clear();
    for (std::size_t i = 0; i < nodes; ++i) {
      touches[i] = {hold, {0, 8}, Access::reads | Access::must_write};
      prepared[i].command = command::Launch{kernel.definition().get(), Grid(1), nullptr};
      prepared[i].touches = {&touches[i], 1};
      prepared[i].kernel = kernel.definition();
      prepared[i].name = kernel.definition()->name;
    }
  };
  const double ns = per_node(prepare, [&] {
    for (RecordedNode& node : prepared) {
      std::get<command::Launch>(node.command).arguments = recorder.copy_arguments(arguments);
      if (!recorder.add(std::move(node))) std::abort();
    }
  });
  if (recorder.node_count() != nodes) std::abort();
  return ns;
}

/// No more than what such a node keeps, copied to where it is kept.
double copied_bytes() {
  struct Kept {
    std::byte bytes[sizeof(detail::StoredNode) + sizeof(Touch) + 24];
  };
  const Kept kept{};
  detail::Arena arena;
  return per_node([&] { arena.rewind(); },
                  [&] {
                    for (int i = 0; i < nodes; ++i) {
                      void* const place = arena.allocate(sizeof kept, 16);
                      keep(::new (place) Kept(kept));
                    }
                  });
}

// ---- the verb -----------------------------------------------------------------------------------

/// Half as many launches as may be in flight, each of a buffer of its own, until the device has
/// taken the last.
class Launches {
public:
  Launches() : first_core_([&] { device_ = runtime_.open("cpu:0"); }), client_(device_.client()) {
    for (int i = 0; i < launches; ++i) sums_.push_back(client_.zeros<std::uint64_t>(1));
    client_.synchronize();
  }

  double eager() {
    return timed([] {}, [] {});
  }
  double recorded() {
    return timed(
        [this] {
          client_.prepare_capture();
          client_.start_capture();
        },
        [this] { client_.abort_capture(); });
  }

private:
  static constexpr int launches = 512;

  template <class Before, class After>
  double timed(Before&& before, After&& after) {
    std::vector<double> times;
    for (int pass = 0; pass <= passes; ++pass) {
      before();
      const std::uint64_t start = ticks();
      for (const auto& sum : sums_) client_.launch(kernel_, 1, sum, std::uint64_t(pass));
      client_.flush();
      if (pass > 0) times.push_back(ns_since(start) / launches);
      after();
      client_.synchronize();
    }
    return median(std::move(times));
  }

  const NodeKernel kernel_ = make_kernel();
  Runtime runtime_;
  Device device_;
  OnFirstCore first_core_;
  Client client_;
  std::vector<Array<std::uint64_t>> sums_;
};

const Registration rows{[](Suite& suite) {
  suite.row("P9", "recording a node into a warm arena")
      .limit("function-pointer nodes of 16 bytes", pointer_nodes)
      .add("launches with a buffer and a number", recorded_nodes, {at_most(3)})
      .add("as many bytes, copied", copied_bytes);
  suite.row("P9", "a launch until the device has taken it")
      .limit("eager", [] { return Launches().eager(); })
      .add("in a window", [] { return Launches().recorded(); }, {at_most(1)});
}};

}  // namespace
}  // namespace reprise::bench

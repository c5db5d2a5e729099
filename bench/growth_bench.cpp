// SPDX-License-Identifier: Apache-2.0
// P16: whether a replay costs more the more there is: graphs, buffers, clients.
#include "harness.hpp"
#include "replay_peers.hpp"

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace reprise::bench {
namespace {

using Words = Array<std::uint64_t>;

/// How much there is: graphs that have run, buffers that have memory, clients that have launched.
struct Alive {
  int graphs = 1;
  int buffers = 10;
  int clients = 1;
};

/// A device that runs kernels itself, so that a run is one hand-over there and back.
class World {
public:
  explicit World(const Alive& alive)
      : first_core_([&] { device_ = runtime_.open("cpu:0", options()); }),
        client_(device_.client()), weights_(client_.zeros<std::uint64_t>(1)) {
    for (int i = 1; i < alive.clients; ++i) {
      clients_.push_back(client_.fork());
      clients_.back().launch(add_, 1, weights_, client_.zeros<std::uint64_t>(1));
    }
    for (int i = 1; i < alive.buffers; ++i) {
      buffers_.push_back(client_.empty<std::uint64_t>(1));
      if (i % 256 == 0) client_.flush();
    }
    for (int i = 0; i < alive.graphs; ++i) {
      graphs_.push_back(capture());
      graphs_.back().run();
    }
    device_.synchronize();
  }

  /// ns of a run of one graph.
  double one() {
    pin(0);
    const double ns = median_ns(4000, [this](int) { graphs_.front().run(); });
    pin(-1);
    return ns;
  }
  /// ns of a run when each run is another graph's.
  double in_turns() {
    pin(0);
    const double ns = median_ns(4000, [this](int) {
      graphs_[next_].run();
      next_ = next_ + 1 == graphs_.size() ? 0 : next_ + 1;
    });
    pin(-1);
    return ns;
  }

private:
  static DeviceOptions options() {
    DeviceOptions options;
    options.workers = 0;
    return options;
  }

  /// Eight nodes; what they write is the graph's own.
  Graph capture() {
    sums_.push_back(client_.zeros<std::uint64_t>(1));
    return client_.capture([this](Client& client) {
      for (int i = 0; i < 8; ++i) client.launch(add_, 1, weights_, sums_.back());
    });
  }

  const Kernel<void(In<std::uint64_t>, InOut<std::uint64_t>)> add_{
      "add", [](const Block&, In<std::uint64_t> weights, InOut<std::uint64_t> sum) {
        sum[0] += weights[0] + 1;
      }};
  Runtime runtime_;
  Device device_;
  OnFirstCore first_core_;
  Client client_;
  Words weights_;
  std::vector<Client> clients_;
  std::vector<Words> buffers_;
  std::vector<Words> sums_;
  std::vector<Graph> graphs_;
  std::size_t next_ = 0;
};

/// Made by the first round, as it takes long, and kept.
template <int graphs, int buffers, int clients>
World& world() {
  static World made({graphs, buffers, clients});
  return made;
}

const Registration rows{[](Suite& suite) {
  const auto few = [] { return world<1, 10, 1>().one(); };
  suite.row("P16", "run() of a small graph by graphs alive")
      .limit("1 graph", few)
      .add("10,000 graphs", [] { return world<10'000, 10, 1>().one(); }, {at_most(1.3)})
      .add("10,000 graphs, each in turn", [] { return world<10'000, 10, 1>().in_turns(); });
  suite.row("P16", "run() of a small graph by buffers alive")
      .limit("10 buffers", few)
      .add("1,000,000 buffers", [] { return world<1, 1'000'000, 1>().one(); }, {at_most(1.3)});
  suite.row("P16", "run() of a small graph by clients alive")
      .limit("1 client", few)
      .add("10,000 clients", [] { return world<1, 10, 10'000>().one(); }, {at_most(1.3)});
}};

}  // namespace
}  // namespace reprise::bench

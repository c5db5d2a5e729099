// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <learn_addition/data.hpp>
#include <learn_addition/network.hpp>

#include <reprise/runtime/client.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace learn_addition {

struct TrainingOptions {
  std::uint64_t seed = 1;
  std::uint32_t batch = 64;  ///< Sums in one step.
  Learning learning;         ///< learning.steps bounds how often step() may be called.
};

/// A network on a device that learns from `sums`.
///
/// The whole training step (draw a batch, forward, backward, update) is captured once. Its counter
/// lives on the device too, so that a replay needs nothing from the host.
class Trainer {
public:
  Trainer(reprise::Client client, std::span<const Sum> sums, const TrainingOptions& options);

  /// Submits one training step.
  void step() { step_graph_.replay(); }

  /// Launches in one training step.
  std::uint32_t launches() const { return step_graph_.node_count(); }

  /// Mean losses of `count` steps, `first` the first of them. Waits for the steps.
  std::vector<float> losses(std::uint32_t first, std::uint32_t count);

  /// What the network now says that each sum is.
  std::vector<std::uint32_t> answers(std::span<const Sum> sums);

  /// The share of `sums` that it answers right.
  double accuracy(std::span<const Sum> sums);

private:
  using Floats = reprise::Array<float>;
  using Integers = reprise::Array<std::uint32_t>;
  using Layers = std::array<Floats, network.size()>;

  // What flows through the network for some rows: sums, questions and digits in, scores out.
  struct Rows {
    Rows(reprise::Client& client, std::uint32_t count);

    std::uint32_t count;
    Integers sums;
    Floats questions;
    Integers answers;
    Layers outputs;  // The last are the scores.
  };

  void launch_network(reprise::Client& client, const Rows& rows) const;
  void launch_step(reprise::Client& client) const;
  static Layers by_layer(const Floats& parameters);

  reprise::Client client_;
  Learning learning_;
  Integers sums_;
  Integers step_;
  Rows batch_;
  Floats losses_;
  Floats curve_;
  Layers output_gradients_;
  Floats parameters_;
  Floats gradient_;
  Floats mean_;
  Floats variance_;
  reprise::Graph step_graph_;
};

}  // namespace learn_addition

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/model_ops.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace reprise::test::model {

/// What became of a sequence that ran on a device and on the model beside it.
struct Outcome {
  std::string problem;  ///< Where they differed; empty if nowhere.
  std::uint64_t operations = 0;
};

enum class HostKind : std::uint8_t { seeded, real };

/// Runs `sequence` on both and compares after each step.
Outcome run(const Sequence& sequence, HostKind host = HostKind::seeded);

/// Runs the sequences on one device, each on a thread of its own beside a model of its own. Now and
/// then a thread leaves a buffer to the others, with what its model knows of it. The device is
/// opened as the first sequence says. The problem is the first that differed.
Outcome run_together(std::span<const Sequence> sequences);

/// run() in a process of its own, so that an abort or a hang is an outcome too. Only for the
/// seeded host, which has no threads.
Outcome run_apart(const Sequence& sequence);

/// A small sequence that still fails: chunks of operations are left out, then their numbers made
/// smaller, until nothing of that kind is left to do.
Sequence shrink(Sequence sequence, const std::function<bool(const Sequence&)>& fails);

/// `problem`, the sequence as text, and its bytes, for a file of tests/corpus/model/.
std::string report(const Sequence& sequence, const std::string& problem);

}  // namespace reprise::test::model

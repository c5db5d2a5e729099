// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/cpu/ready_word.hpp>
#include <reprise/device/host.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace reprise::detail {

/// The workers as those see them who have something for them.
///
/// Threads  `handles` is filled before anything is published and does not change then.
struct Crew {
  explicit Crew(std::uint32_t workers) : ready(workers) {}

  /// Lets workers hear of what is ready. Waking one costs the caller a system call; with `wake`
  /// false it looks itself soon.
  void publish(std::uint32_t bits, bool wake) noexcept {
    if (bits != 0) wake_up(ready.publish(bits, wake));
  }
  void wake_up(std::uint32_t worker) noexcept {
    if (worker != ReadyWord<>::nobody) handles[worker]->wake();
  }

  ReadyWord<> ready;
  std::vector<std::unique_ptr<LoopHandle>> handles;
};

}  // namespace reprise::detail

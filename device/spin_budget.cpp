// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/host.hpp>

#include <atomic>

// All counts lie in one word, 16 bits each: threads that run, then spinning ones by rank. It only
// steers how long threads look before they sleep; nothing else is ordered by it, so every access
// is relaxed and has no partner.

namespace reprise {

namespace {

using Rank = SpinBudget::Rank;

constexpr int bits = 16;
constexpr std::uint64_t field = (std::uint64_t{1} << bits) - 1;
constexpr int nobody = -1;

alignas(64) std::atomic<std::uint64_t> counts{0};

thread_local int spinning_as = nobody;  // The rank this thread is registered with.
thread_local bool displaced = false;    // It was taken back while the thread runs.

constexpr std::uint64_t one_running = 1;
constexpr std::uint64_t one_spinning(int rank) noexcept {
  return std::uint64_t{1} << (bits * (rank + 1));
}

}  // namespace

void SpinBudget::running(int change) noexcept {
  std::uint64_t delta = one_running;
  if (change > 0 && spinning_as != nobody && !displaced) {
    displaced = true;
    delta -= one_spinning(spinning_as);
  } else if (change < 0 && displaced) {
    displaced = false;
    delta -= one_spinning(spinning_as);
  }
  counts.fetch_add(change > 0 ? delta : 0 - delta, std::memory_order_relaxed);
}

void SpinBudget::spinning(Rank rank, int change) noexcept {
  const std::uint64_t delta = one_spinning(static_cast<int>(rank));
  spinning_as = change > 0 ? static_cast<int>(rank) : nobody;
  counts.fetch_add(change > 0 ? delta : 0 - delta, std::memory_order_relaxed);
}

bool SpinBudget::may_spin(Rank rank) noexcept {
  const std::uint64_t seen = counts.load(std::memory_order_relaxed);
  std::uint64_t ahead = 0;
  for (int i = 0; i <= static_cast<int>(rank) + 1; ++i) ahead += (seen >> (bits * i)) & field;
  return ahead <= usable_cpus();
}

}  // namespace reprise

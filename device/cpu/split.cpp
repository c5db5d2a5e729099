// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/split.hpp>

#include <reprise/memory/check.hpp>

#include <algorithm>
#include <cstring>

namespace reprise::detail {

namespace {

// How long the owner looks for the others to leave before it sleeps, in pauses of about 20 ns.
constexpr int looks_before_sleep = 1'000;
// What a thread takes at once should last at least this long, or handing out costs too much.
constexpr std::uint64_t chunk_ns = 2'000;
// A cost that was measured once is trusted for so many runs.
constexpr std::uint32_t trusted_uses = 64;

}  // namespace

std::uint64_t blocks_of(const command::Launch& launch) noexcept {
  const std::uint64_t most = launch.grid.blocks.count();
  if (launch.count == 0) return most;
  std::uint32_t count = 0;
  std::memcpy(&count, reinterpret_cast<const void*>(launch.count), sizeof count);
  return std::min<std::uint64_t>(count, most);
}

void run_blocks(const command::Launch& launch, std::uint64_t from, std::uint64_t to,
                const std::atomic<bool>* stop) {
  if (from >= to) return;
  const Dim3 count = launch.grid.blocks;
  const CpuBody body = launch.kernel->cpu;
  const void* const callable = launch.kernel->callable.get();
  const std::uint64_t row = from / count.x;
  Block block{Dim3{static_cast<std::uint32_t>(from % count.x),
                   static_cast<std::uint32_t>(row % count.y),
                   static_cast<std::uint32_t>(row / count.y)},
              count, launch.grid.threads};
  for (std::uint64_t i = from; i < to; ++i) {
    if (stop && stop->load(std::memory_order_relaxed)) return;
    body(callable, launch.arguments, block);
    if (++block.index.x < count.x) continue;
    block.index.x = 0;
    if (++block.index.y < count.y) continue;
    block.index.y = 0;
    ++block.index.z;
  }
}

void SplitSlot::open(const command::Launch& launch, std::uint64_t first, std::uint64_t total,
                     std::uint64_t chunk) noexcept {
  launch_ = &launch;
  total_ = total;
  chunk_ = chunk;
  exception_ = nullptr;
  failed_.store(false, std::memory_order_relaxed);
  next_.store(first, std::memory_order_relaxed);
  word_.fetch_or(open_bit, std::memory_order_release);
}

void SplitSlot::work() noexcept {
  for (;;) {
    const std::uint64_t from = next_.fetch_add(chunk_, std::memory_order_relaxed);
    if (from >= total_ || failed_.load(std::memory_order_relaxed)) return;
    try {
      run_blocks(*launch_, from, std::min(from + chunk_, total_), &failed_);
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) exception_ = std::current_exception();
      return;
    }
  }
}

bool SplitSlot::wants_hands(std::uint64_t beyond) const noexcept {
  return next_.load(std::memory_order_relaxed) + beyond * chunk_ < total_;
}

bool SplitSlot::join() noexcept {
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  do {
    if ((seen & open_bit) == 0) return false;
  } while (!word_.compare_exchange_weak(seen, seen + one, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  return true;
}

void SplitSlot::leave() noexcept {
  const std::uint32_t before = word_.fetch_sub(one, std::memory_order_acq_rel);
  if ((before & parked_bit) == 0 || before / one != 1) return;
  std::lock_guard lock(mutex_);
  left_.notify_all();
}

std::exception_ptr SplitSlot::close() noexcept {
  if (word_.fetch_and(~open_bit, std::memory_order_acq_rel) / one != 0) wait_until_left();
  return std::exchange(exception_, nullptr);
}

void SplitSlot::wait_until_left() noexcept {
  for (int i = 0; i < looks_before_sleep; ++i) {
    if (word_.load(std::memory_order_acquire) / one == 0) return;
    __builtin_ia32_pause();
  }
  REPRISE_MARK("slept_for_a_split_launch");
  std::unique_lock lock(mutex_);
  word_.fetch_or(parked_bit, std::memory_order_acq_rel);
  left_.wait(lock, [&] { return word_.load(std::memory_order_acquire) / one == 0; });
  word_.fetch_and(~parked_bit, std::memory_order_acq_rel);
}

void Splitter::run(const command::Launch& launch, std::uint32_t stream, LaunchCost* known) {
  const std::uint64_t total = blocks_of(launch);
  if (total < 2 || !enabled_ || !crew_.ready.others_are_free()) {
    return run_blocks(launch, 0, total);
  }
  // A worker that looks already costs no wake.
  const std::uint64_t threshold = crew_.ready.others_search() ? threshold_ns_ / 4 : threshold_ns_;
  if (known && known->uses++ % trusted_uses != 0 && known->block_ns * total < threshold) {
    return run_blocks(launch, 0, total);
  }
  const std::uint64_t began = host_.now_ns();
  run_blocks(launch, 0, 1);
  const std::uint64_t block_ns = host_.now_ns() - began;
  if (known) known->block_ns = block_ns;
  if (block_ns * (total - 1) < threshold) return run_blocks(launch, 1, total);
  run_split(launch, stream, total, block_ns);
}

void Splitter::run_split(const command::Launch& launch, std::uint32_t stream, std::uint64_t total,
                         std::uint64_t block_ns) {
  REPRISE_MARK("split_launch");
  const std::uint64_t hands = crew_.handles.size() + 1;
  const std::uint64_t worthwhile = chunk_ns / std::max<std::uint64_t>(block_ns, 1) + 1;
  const std::uint64_t chunk = std::max(std::min(worthwhile, total), total / (4 * hands));
  SplitSlot& slot = *slots_[stream];
  slot.open(launch, 1, total, chunk);
  crew_.publish(ReadyWord<>::split_bit, true);
  slot.work();
  // Nothing is left to hand out. If that hides another launch's wish for hands, it is renewed.
  crew_.ready.clear(ReadyWord<>::split_bit);
  const std::exception_ptr thrown = slot.close();
  for (const SplitSlot* other : slots_) {
    if (other->is_open()) crew_.publish(ReadyWord<>::split_bit, false);
  }
  if (thrown) std::rethrow_exception(thrown);
}

SplitSlot* Splitter::join_any() noexcept {
  for (SplitSlot* slot : slots_) {
    if (!slot->join()) continue;
    if (slot->wants_hands()) return slot;
    slot->leave();
  }
  return nullptr;
}

void Splitter::lend_a_hand() noexcept {
  SplitSlot* slot = join_any();
  if (!slot) {
    // A launch that opens between the look and this keeps its wish, or does without a hand.
    crew_.ready.clear(ReadyWord<>::split_bit);
    slot = join_any();
    if (!slot) return;
    crew_.publish(ReadyWord<>::split_bit, false);
  }
  REPRISE_MARK("lent_a_hand");
  if (slot->wants_hands(1)) crew_.publish(ReadyWord<>::split_bit, true);
  slot->work();
  slot->leave();
}

}  // namespace reprise::detail

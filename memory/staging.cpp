// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/staging.hpp>

#include <reprise/memory/range.hpp>

#include <algorithm>
#include <bit>
#include <new>

namespace reprise {

StagingSource::~StagingSource() = default;

void StagingBlock::reset() noexcept {
  if (StagingPool* const pool = std::exchange(pool_, nullptr)) {
    pool->give_back(data_, size_, capacity_);
  }
  data_ = nullptr;
  size_ = 0;
  capacity_ = 0;
}

StagingPool::StagingPool(StagingSource& source, const StagingOptions& options)
    : source_(source), limit_(options.limit_bytes), least_(options.least_block),
      most_(std::bit_floor(options.most_block != 0 ? options.most_block : options.limit_bytes / 4)),
      on_room_(options.on_room), on_room_context_(options.on_room_context) {
  if (!is_power_of_two(least_) || least_ < 64 || most_ < least_ || most_ > limit_ ||
      most_ >= std::uint64_t{1} << classes) {
    throw Failure(Errc::invalid_argument, "staging",
                  "blocks must be powers of two from 64 bytes to the limit");
  }
}

StagingPool::~StagingPool() {
  REPRISE_CHECK(stats_.blocks == 0, "staging blocks go before their pool");
  trim();
}

Result<StagingBlock> StagingPool::take(std::uint64_t bytes) noexcept {
  if (bytes == 0) return StagingBlock{};
  std::uint64_t capacity = 0;
  Idle* evicted[classes] = {};
  {
    const std::lock_guard lock(mutex_);
    ++stats_.requests;
    if (bytes > most_) return refuse(Errc::never_fits, "send it in chunks of max_block()");
    capacity = std::max(std::bit_ceil(bytes), least_);
    if (void* const memory = take_idle(capacity, capacity, capacity)) {
      return account(memory, bytes, capacity);
    }
    if (!make_room(capacity, evicted)) {
      // Full. A larger block that lies idle is better than waiting.
      if (void* const memory = take_idle(capacity, most_, capacity)) {
        return account(memory, bytes, capacity);
      }
      wanted_ = true;
      return refuse(Errc::would_block, "staging is used up for the moment");
    }
  }
  if (const std::uint64_t freed = free_chains(evicted); freed > capacity) {
    const std::lock_guard lock(mutex_);
    stats_.reserved -= freed - capacity;
  }
  void* memory = source_.allocate(capacity);
  if (memory == nullptr && trim() != 0) {
    memory = source_.allocate(capacity);
  }
  const std::lock_guard lock(mutex_);
  if (memory == nullptr) {
    stats_.reserved -= capacity;
    return refuse(Errc::out_of_memory, "the host has no more staging memory");
  }
  return account(memory, bytes, capacity);
}

// The functions from here to give_back() are called under mutex_, but for free_chains().

// An idle block of `least` to `most` bytes, the smallest there is, and its size.
void* StagingPool::take_idle(std::uint64_t least, std::uint64_t most,
                             std::uint64_t& capacity) noexcept {
  const int first = std::countr_zero(least);
  const std::uint64_t fitting = idle_mask_ >> first << first;
  if (fitting == 0) return nullptr;
  const int at = std::countr_zero(fitting);
  if (std::uint64_t{1} << at > most) return nullptr;
  Idle* const block = idle_[at];
  idle_[at] = block->next;
  if (block->next == nullptr) idle_mask_ &= ~(std::uint64_t{1} << at);
  capacity = std::uint64_t{1} << at;
  return block;
}

// Reserves `bytes` within the limit, at the cost of smaller idle blocks if these suffice; the
// caller frees them. Larger ones stay: they are handed out instead.
bool StagingPool::make_room(std::uint64_t bytes, Idle* (&evicted)[classes]) noexcept {
  if (stats_.reserved + bytes > limit_) {
    const std::uint64_t missing = stats_.reserved + bytes - limit_;
    const std::uint64_t smaller = idle_mask_ & (bytes - 1);
    std::uint64_t found = 0;
    for (std::uint64_t mask = smaller; mask != 0 && found < missing; mask &= mask - 1) {
      const int at = std::countr_zero(mask);
      for (const Idle* block = idle_[at]; block != nullptr && found < missing;
           block = block->next) {
        found += std::uint64_t{1} << at;
      }
    }
    if (found < missing) return false;
    // What is evicted stays reserved until it is freed, so that the limit holds meanwhile too.
    stats_.reserved += bytes - std::min(bytes, found);
    while (found != 0) {
      const int at = std::countr_zero(idle_mask_);
      Idle* const block = idle_[at];
      idle_[at] = block->next;
      if (block->next == nullptr) idle_mask_ &= ~(std::uint64_t{1} << at);
      block->next = std::exchange(evicted[at], block);
      found -= std::uint64_t{1} << at;
    }
    return true;
  }
  stats_.reserved += bytes;
  return true;
}

std::uint64_t StagingPool::free_chains(Idle* (&chains)[classes]) noexcept {
  std::uint64_t freed = 0;
  for (unsigned at = 0; at < classes; ++at) {
    while (Idle* const block = chains[at]) {
      chains[at] = block->next;
      source_.free(block, std::uint64_t{1} << at);
      freed += std::uint64_t{1} << at;
    }
  }
  return freed;
}

Result<StagingBlock> StagingPool::account(void* memory, std::uint64_t bytes,
                                          std::uint64_t capacity) noexcept {
  stats_.taken += capacity;
  stats_.in_use += bytes;
  ++stats_.blocks;
  return StagingBlock{*this, static_cast<std::byte*>(memory), bytes, capacity};
}

Error StagingPool::refuse(Errc code, const char* message) noexcept {
  ++stats_.refused;
  return {code, 0, message};
}

void StagingPool::give_back(std::byte* data, std::uint64_t size, std::uint64_t capacity) noexcept {
  bool tell = false;
  {
    const std::lock_guard lock(mutex_);
    stats_.taken -= capacity;
    stats_.in_use -= size;
    --stats_.blocks;
    const int at = std::countr_zero(capacity);
    idle_[at] = new (data) Idle{idle_[at]};
    idle_mask_ |= std::uint64_t{1} << at;
    tell = std::exchange(wanted_, false) && on_room_ != nullptr;
  }
  if (tell) on_room_(on_room_context_);
}

std::uint64_t StagingPool::trim() noexcept {
  Idle* chains[classes];
  {
    const std::lock_guard lock(mutex_);
    std::copy(std::begin(idle_), std::end(idle_), chains);
    for (std::uint64_t mask = idle_mask_; mask != 0; mask &= mask - 1) {
      const int at = std::countr_zero(mask);
      for (const Idle* block = idle_[at]; block != nullptr; block = block->next) {
        stats_.reserved -= std::uint64_t{1} << at;
      }
      idle_[at] = nullptr;
    }
    idle_mask_ = 0;
  }
  return free_chains(chains);
}

StagingStats StagingPool::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/command.hpp>
#include <reprise/device/cpu/crew.hpp>
#include <reprise/device/host.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

namespace reprise::detail {

/// How many blocks `launch` runs, as its count says now.
std::uint64_t blocks_of(const command::Launch& launch) noexcept;

/// Runs the blocks [from, to), counted in x-fastest order, until `stop` is set. Throws what the
/// kernel throws.
void run_blocks(const command::Launch& launch, std::uint64_t from, std::uint64_t to,
                const std::atomic<bool>* stop = nullptr);

/// A launch whose blocks are handed out to several threads. One per stream, used again and again.
///
/// State        word: `open`: others may join; `parked`: the owner sleeps until they have left;
///              how many have joined
/// Transitions  open    by the owner, who has described the launch before
///              join    joined + 1; needs open
///              leave   joined - 1; the last one wakes a parked owner
///              close   open := 0; the owner then waits until nobody is left
/// Orders       open and leave release, join and the owner's last look acquire. `next` and
///              `failed` only hand out numbers; they are relaxed, ordered by the word.
class SplitSlot {
public:
  // The owner, in this order:
  void open(const command::Launch& launch, std::uint64_t first, std::uint64_t total,
            std::uint64_t chunk) noexcept;
  void work() noexcept;
  /// Answers what the first block that threw threw, or null. Nobody uses the launch any more.
  std::exception_ptr close() noexcept;

  // Others: join(), then the next two and work(), then leave().
  bool join() noexcept;
  /// A hint: something is left to hand out besides `beyond` portions.
  bool wants_hands(std::uint64_t beyond = 0) const noexcept;
  void leave() noexcept;

  /// A hint, read without order.
  bool is_open() const noexcept { return (word_.load(std::memory_order_relaxed) & open_bit) != 0; }

private:
  static constexpr std::uint32_t open_bit = 1;
  static constexpr std::uint32_t parked_bit = 2;
  static constexpr std::uint32_t one = 4;

  void wait_until_left() noexcept;

  alignas(64) std::atomic<std::uint32_t> word_{0};
  const command::Launch* launch_ = nullptr;
  std::uint64_t total_ = 0;
  std::uint64_t chunk_ = 1;
  std::exception_ptr exception_;  // Written by the one who set failed_.
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<std::uint64_t> next_{0};
  std::mutex mutex_;  // Guards nothing but the sleep of a parked owner.
  std::condition_variable left_;
};

/// What is known of a launch that is run again and again: the nodes of a program.
struct LaunchCost {
  std::uint64_t block_ns = 0;
  std::uint32_t uses = 0;
};

/// Runs launches, over several workers where that pays.
///
/// Threads  run(): the owner of the stream. lend_a_hand(): workers.
class Splitter {
public:
  /// `threshold_ns`: what is left of a launch must take longer to be worth a wake. `enabled` is
  /// false where a thread cannot wait for another.
  Splitter(Host& host, Crew& crew, std::uint64_t threshold_ns, bool enabled) noexcept
      : host_(host), crew_(crew), threshold_ns_(threshold_ns), enabled_(enabled) {}

  /// Before any run().
  void set_slots(std::vector<SplitSlot*> slots) noexcept { slots_ = std::move(slots); }

  /// Runs the whole launch on behalf of `stream`; throws what its first failing block threw, once
  /// all of them have stopped.
  void run(const command::Launch& launch, std::uint32_t stream, LaunchCost* known = nullptr);
  /// Works on a launch that wants more hands, if there is one.
  void lend_a_hand() noexcept;

private:
  void run_split(const command::Launch& launch, std::uint32_t stream, std::uint64_t total,
                 std::uint64_t block_ns);
  SplitSlot* join_any() noexcept;

  Host& host_;
  Crew& crew_;
  const std::uint64_t threshold_ns_;
  const bool enabled_;
  std::vector<SplitSlot*> slots_;
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/range.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace reprise::detail {

/// A place in a list of those who wait for a position.
struct PositionWaiter {
  StreamPosition position = 0;
  PositionWaiter* next = nullptr;
};

/// How far a stream has come, and who waits for it to come further.
///
/// State        word: the position, and `watched`: somebody waits. The lists lie behind the mutex.
/// Transitions  advance   position + 1; if watched was set, the one who advances looks at the lists
///              watch     watched := 1, under the mutex; answers the position of that very moment,
///                        so a waiter either sees that it need not wait, or is seen
///              unwatch   watched := 0, under the mutex, when the lists are empty
///
/// Orders       Transitions are acq_rel read-modify-writes of the word; position() acquires. So
///              what a command did is seen by whoever sees its position.
/// Threads      advance(): the owner of the stream. The rest: any.
template <template <class> class Atomic = std::atomic, class Mutex = std::mutex>
class Progress {
public:
  StreamPosition position() const noexcept { return word_.load(std::memory_order_acquire) >> 1; }

  struct Passed {
    PositionWaiter* released = nullptr;  ///< Linked by next; theirs is the position they wanted.
    bool notify = false;                 ///< An armed position was reached.
  };
  Passed advance() noexcept {
    const std::uint64_t before = word_.fetch_add(one, std::memory_order_acq_rel);
    if ((before & watched) == 0) return {};
    return look();
  }

  /// True: `waiter` is released by a later advance(). False: the position was reached already.
  bool wait(PositionWaiter& waiter) noexcept {
    if (position() >= waiter.position) return false;
    std::lock_guard lock(mutex_);
    if (watch() >= waiter.position) return false;
    waiter.next = waiters_;
    waiters_ = &waiter;
    return true;
  }
  /// The same for an advance() that answers `notify`.
  bool arm(StreamPosition wanted) noexcept {
    if (position() >= wanted) return false;
    std::lock_guard lock(mutex_);
    if (watch() >= wanted) return false;
    const auto end = armed_.begin() + armed_count_;
    if (std::find(armed_.begin(), end, wanted) != end) return true;
    if (armed_count_ < armed_.size()) {
      armed_[armed_count_++] = wanted;
    } else if (each_until_ < wanted) {
      // More than are worth a list: every step up to there is told.
      each_until_ = wanted;
    }
    return true;
  }

private:
  static constexpr std::uint64_t watched = 1;
  static constexpr std::uint64_t one = 2;

  StreamPosition watch() noexcept {
    return word_.fetch_or(watched, std::memory_order_acq_rel) >> 1;
  }

  Passed look() noexcept {
    std::lock_guard lock(mutex_);
    const StreamPosition now = position();
    Passed passed;
    for (PositionWaiter** at = &waiters_; *at;) {
      PositionWaiter* const waiter = *at;
      if (waiter->position > now) {
        at = &waiter->next;
        continue;
      }
      *at = waiter->next;
      waiter->next = passed.released;
      passed.released = waiter;
    }
    for (std::size_t i = 0; i < armed_count_;) {
      if (armed_[i] > now) {
        ++i;
        continue;
      }
      armed_[i] = armed_[--armed_count_];
      passed.notify = true;
    }
    if (each_until_ != 0) {
      passed.notify = true;
      if (each_until_ <= now) each_until_ = 0;
    }
    if (!waiters_ && armed_count_ == 0 && each_until_ == 0) {
      word_.fetch_and(~watched, std::memory_order_acq_rel);
    }
    return passed;
  }

  alignas(64) Atomic<std::uint64_t> word_{0};
  Mutex mutex_;  // Guards what follows.
  PositionWaiter* waiters_ = nullptr;
  std::array<StreamPosition, 8> armed_{};
  std::size_t armed_count_ = 0;
  StreamPosition each_until_ = 0;
};

}  // namespace reprise::detail

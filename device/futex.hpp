// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace reprise::detail {

/// A word that threads sleep on, by the system call itself: a wake is one call, made only if
/// somebody sleeps, and may come when the word is gone, as nobody sleeps there then.
using FutexWord = std::atomic<std::uint32_t>;

inline constexpr std::uint64_t futex_no_deadline = ~std::uint64_t{0};

/// Sleeps while the word is `seen`, at most until `deadline_ns` of the monotonic clock. May return
/// early for no reason.
inline void futex_wait(FutexWord& word, std::uint32_t seen,
                       std::uint64_t deadline_ns = futex_no_deadline) noexcept {
  timespec limit{};
  limit.tv_sec = static_cast<std::time_t>(deadline_ns / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, seen,
          deadline_ns == futex_no_deadline ? nullptr : &limit, nullptr, FUTEX_BITSET_MATCH_ANY);
}

/// Wakes one sleeper. The address is all that is used of the word.
inline void futex_wake(FutexWord* word) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

/// One token that one thread waits for.
///
/// States   empty → token by give(); empty → sleeping → token, by the waiter and then give();
///          taken back to empty by the waiter alone.
/// Threads  give() on any thread, possibly as the waiter's thread ends; the rest on the waiter's.
class FutexToken {
public:
  void give() noexcept {
    FutexWord* const address = &word_;
    // Release: what was done before is seen by the waiter. Afterwards this may be gone.
    if (word_.exchange(token, std::memory_order_acq_rel) == sleeping) futex_wake(address);
  }
  /// Whether wait() would return at once.
  bool is_there() const noexcept { return word_.load(std::memory_order_acquire) == token; }
  void wait() noexcept { (void)wait_until(futex_no_deadline); }
  /// False: `deadline_ns` of the monotonic clock passed without a token.
  bool wait_until(std::uint64_t deadline_ns) noexcept {
    std::uint32_t seen = empty;
    // Acquire: the partner is give(), here and below.
    word_.compare_exchange_strong(seen, sleeping, std::memory_order_acq_rel,
                                  std::memory_order_acquire);
    while (seen != token) {
      futex_wait(word_, sleeping, deadline_ns);
      seen = word_.load(std::memory_order_acquire);
      if (seen == token || deadline_ns == futex_no_deadline || !has_passed(deadline_ns)) continue;
      // It may come at the last moment.
      seen = sleeping;
      if (word_.compare_exchange_strong(seen, empty, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        return false;
      }
    }
    word_.store(empty, std::memory_order_relaxed);
    return true;
  }

private:
  static constexpr std::uint32_t empty = 0;
  static constexpr std::uint32_t sleeping = 1;
  static constexpr std::uint32_t token = 2;

  static bool has_passed(std::uint64_t deadline_ns) noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
               static_cast<std::uint64_t>(now.tv_nsec) >=
           deadline_ns;
  }

  FutexWord word_{empty};
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace reprise::detail {

/// Which streams have something to run, and which workers look for it or sleep: one word, so that
/// no stream becomes ready while the last worker that could see it falls asleep.
///
/// State        ready      a bit for each stream; the highest bit says a launch wants more hands
///              searching  workers that are awake and look for something to take
///              idle       the worker that fell asleep last; each links to the one before
///              tag        changes with `idle`, so that a link read too early is noticed
/// Transitions  publish    ready |= bits; if nobody searches, one worker leaves idle for searching
///              take       one bit off, the taker stops searching; if more is ready and nobody
///                         else searches, one worker leaves idle for searching
///              search     searching + 1; needs ready == 0
///              park       searching - 1, the worker becomes idle; needs ready == 0
///
/// Whoever moves a worker off `idle` owes it one wake. A worker that runs something is neither
/// searching nor idle: it looks again before it searches, and searches before it parks.
///
/// Orders       Every transition is an acq_rel read-modify-write of this word; each is the partner
///              of all earlier ones, and what was written before a publish is seen after the take.
///              It begins with an acquiring read, the partner of the park() that it sees, so that
///              the link below `idle` is read whole.
/// Threads      publish(): any. take(), search(), park(): workers.
template <template <class> class Atomic = std::atomic>
class ReadyWord {
public:
  static constexpr std::uint32_t max_streams = 31;
  static constexpr std::uint32_t max_workers = 254;
  static constexpr std::uint32_t split_bit = std::uint32_t{1} << 31;
  static constexpr std::uint32_t nobody = ~std::uint32_t{0};

  explicit ReadyWord(std::uint32_t workers)
      : below_(std::make_unique<Atomic<std::uint8_t>[]>(workers)) {}

  /// Adds `bits` to what is ready and answers the worker to wake, or nobody. With `wake` false the
  /// caller is a worker that will look itself.
  std::uint32_t publish(std::uint32_t bits, bool wake) noexcept {
    return change([&](Word& word) {
      word.ready |= bits;
      return wake && word.searching == 0 ? unpark(word) : nobody;
    });
  }

  struct Taken {
    std::uint32_t stream = nobody;  ///< nobody: no stream is ready.
    bool split = false;             ///< A launch wants more hands; `stream` is nobody then.
    std::uint32_t wake = nobody;    ///< The worker to wake.
  };
  /// Takes the next ready stream behind `after`, in turn.
  Taken take(std::uint32_t after, bool searching) noexcept {
    Taken taken;
    if (unpack(word_.load(std::memory_order_relaxed)).ready == 0) return taken;
    taken.wake = change([&](Word& word) {
      taken.stream = nobody;
      taken.split = false;
      const std::uint32_t streams = word.ready & ~split_bit;
      if (streams != 0) {
        taken.stream = next_bit(streams, after);
        word.ready &= ~(std::uint32_t{1} << taken.stream);
      } else if (word.ready != 0) {
        taken.split = true;
      } else {
        return nobody;
      }
      if (searching) --word.searching;
      const bool more = (word.ready & ~split_bit) != 0;
      return more && word.searching == 0 ? unpark(word) : nobody;
    });
    return taken;
  }

  /// False if something is ready.
  bool search() noexcept {
    return change([&](Word& word) {
      if (word.ready != 0) return false;
      ++word.searching;
      return true;
    });
  }
  /// False if something is ready; the worker goes on searching then.
  bool park(std::uint32_t worker) noexcept {
    return change([&](Word& word) {
      if (word.ready != 0) return false;
      --word.searching;
      // Relaxed: published by the change of the word that follows.
      below_[worker].store(word.top, std::memory_order_relaxed);
      word.top = static_cast<std::uint8_t>(worker + 1);
      ++word.tag;
      return true;
    });
  }
  /// The searching worker leaves for good.
  void retire() noexcept {
    change([](Word& word) {
      --word.searching;
      return true;
    });
  }
  void clear(std::uint32_t bits) noexcept {
    change([&](Word& word) {
      word.ready &= ~bits;
      return true;
    });
  }

  /// Hints, read without order.
  bool is_ready() const noexcept {
    return unpack(word_.load(std::memory_order_relaxed)).ready != 0;
  }
  bool others_search() const noexcept {
    return unpack(word_.load(std::memory_order_relaxed)).searching != 0;
  }
  bool others_are_free() const noexcept {
    const Word word = unpack(word_.load(std::memory_order_relaxed));
    return word.searching != 0 || word.top != 0;
  }
  /// Streams wait while every worker is busy.
  bool is_crowded() const noexcept {
    const Word word = unpack(word_.load(std::memory_order_relaxed));
    return (word.ready & ~split_bit) != 0 && word.searching == 0 && word.top == 0;
  }

private:
  struct Word {
    std::uint32_t ready = 0;
    std::uint8_t top = 0;  // 1 + the worker; 0: none is idle.
    std::uint8_t searching = 0;
    std::uint16_t tag = 0;
  };
  static Word unpack(std::uint64_t bits) noexcept { return std::bit_cast<Word>(bits); }

  template <class F>
  auto change(F&& transition) noexcept {
    std::uint64_t seen = word_.load(std::memory_order_acquire);
    for (;;) {
      Word word = unpack(seen);
      const auto answer = transition(word);
      const auto wanted = std::bit_cast<std::uint64_t>(word);
      if (word_.compare_exchange_weak(seen, wanted, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return answer;
      }
    }
  }

  std::uint32_t unpark(Word& word) noexcept {
    if (word.top == 0) return nobody;
    const std::uint32_t worker = word.top - 1u;
    word.top = below_[worker].load(std::memory_order_relaxed);
    ++word.searching;
    ++word.tag;
    return worker;
  }

  static std::uint32_t next_bit(std::uint32_t bits, std::uint32_t after) noexcept {
    const std::uint32_t later = after >= 31 ? 0 : bits & (~std::uint32_t{0} << (after + 1));
    return static_cast<std::uint32_t>(std::countr_zero(later != 0 ? later : bits));
  }

  alignas(64) Atomic<std::uint64_t> word_{0};
  std::unique_ptr<Atomic<std::uint8_t>[]> below_;
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

/// The interleaving explorer: runs real lock-free templates over a stepped atomic, one task at a
/// time, and decides before each atomic operation who goes on.
///
/// It explores sequentially consistent interleavings only: no store buffer, no reordering. What it
/// finds is a bug; what it does not find may still be one of memory order, unless every decision of
/// the code under test is a read-modify-write of one location.
///
/// Threads   One exploration at a time, on the thread that asked for it; tasks are fibers on it. So
///           the thread sanitizer has nothing to find here, and its builds leave explorations out.
namespace reprise::test {

/// A concurrent program small enough to be run many thousand times. Made anew for each run.
class Scenario {
public:
  struct Task {
    std::function<void()> body;
    bool may_wait_for_ever = false;  // as a consumer that nobody stops does
  };

  virtual ~Scenario() = default;
  virtual std::vector<Task> tasks() = 0;
  /// Called when every task has ended (or waits, where it may); calls require().
  virtual void check() = 0;
};

using MakeScenario = std::function<std::unique_ptr<Scenario>()>;

struct Exploration {
  std::uint64_t schedules = 0;
  bool complete = false;  // every schedule within the bound was run
  std::string failure;    // empty when nothing was found
  std::string schedule;   // of the failure, for replay()
};

/// Every schedule with at most `preemptions` switches away from a task that could have gone on.
Exploration explore_all(const MakeScenario& make, unsigned preemptions,
                        std::uint64_t max_schedules = ~std::uint64_t{0});

/// `runs` schedules by random priorities that change at `depth - 1` random steps.
Exploration explore_random(const MakeScenario& make, std::uint64_t seed, std::uint64_t runs,
                           unsigned depth);

/// The one schedule that an exploration printed.
Exploration replay(const MakeScenario& make, const std::string& schedule);

// ---- for the code under test, inside a task; without effect elsewhere ---------------------------

/// Before an atomic operation: perhaps somebody else goes first.
void switch_point();

/// After an operation changed something that a task might be waiting for.
void changed();

/// The number of changes so far, for wait_for_change().
std::uint64_t changes();

/// Does not go on before something has changed since changes() answered `since`: what a spinning
/// loop says when it has found nothing, so that it need not be run in vain.
void wait_for_change(std::uint64_t since);

/// Does not go on before the condition holds. The condition only reads.
void block_until(std::function<bool()> condition);

/// Explores all the numbers below `count` in turn.
unsigned choose(unsigned count);

/// Ends the run with a failure unless the condition holds.
void require(bool condition, const char* what);

/// std::atomic with a switch point before each operation.
template <class T>
class Stepped {
public:
  Stepped() = default;
  explicit Stepped(T value) : value_(value) {}
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const {
    switch_point();
    return value_;
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    switch_point();
    value_ = value;
    changed();
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) {
    return apply([&](T) { return value; });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order,
                               std::memory_order = std::memory_order_seq_cst) {
    switch_point();
    if (value_ != expected) {
      expected = value_;
      return false;
    }
    value_ = desired;
    changed();
    return true;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  T fetch_add(T by, std::memory_order = std::memory_order_seq_cst) {
    return apply([&](T old) { return T(old + by); });
  }
  T fetch_sub(T by, std::memory_order = std::memory_order_seq_cst) {
    return apply([&](T old) { return T(old - by); });
  }
  T fetch_and(T by, std::memory_order = std::memory_order_seq_cst) {
    return apply([&](T old) { return T(old & by); });
  }
  T fetch_or(T by, std::memory_order = std::memory_order_seq_cst) {
    return apply([&](T old) { return T(old | by); });
  }

  /// Without a switch point, for checks.
  T now() const { return value_; }

private:
  template <class F>
  T apply(F&& change) {
    switch_point();
    const T old = value_;
    value_ = change(old);
    if (value_ != old) changed();
    return old;
  }

  T value_{};
};

/// A mutex of fibers.
class SteppedMutex {
public:
  void lock() {
    switch_point();
    block_until([this] { return !locked_; });
    locked_ = true;
  }
  void unlock() {
    switch_point();
    locked_ = false;
    changed();
  }

private:
  bool locked_ = false;
};

}  // namespace reprise::test

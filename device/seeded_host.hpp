// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/host.hpp>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

/// How a SeededHost picks the next loop among those that can run.
struct SeededOptions {
  enum class Order : std::uint8_t {
    uniform,      ///< Each turn any of them, drawn from the seed.
    priorities,   ///< The highest of random priorities, which change at a few random turns: finds
                  ///< what needs few but well-placed preemptions.
    round_robin,  ///< In turn.
  };
  std::uint64_t seed = 1;
  Order order = Order::uniform;
  std::uint32_t change_points = 2;       ///< priorities: how often the leader is put last.
  std::uint64_t expected_turns = 1'000;  ///< priorities: the change points lie among so many turns.
  std::uint64_t turn_ns = 100;           ///< What a turn takes on the virtual clock.
  std::string_view schedule = {};        ///< One that schedule() gave: its choices come first.
};

/// A host without threads and without real time, for tests: every loop runs on the thread that
/// calls run_one(), one turn at a time, in an order drawn from a seed. A turn is one step(), or the
/// rest() after a step that found nothing, so that a wake can fall between the two. When nothing
/// can run, the clock jumps to the next deadline.
///
/// Lifetime  Outlives the handles it gave and the loops it runs.
/// Threads   One thread; wake() may be called from inside a turn.
/// Units     Nanoseconds of the virtual clock, which starts at 1 s.
class SeededHost final : public Host {
public:
  explicit SeededHost(const SeededOptions& options = {});
  explicit SeededHost(std::uint64_t seed) : SeededHost(SeededOptions{.seed = seed}) {}
  ~SeededHost() override;
  SeededHost(const SeededHost&) = delete;
  SeededHost& operator=(const SeededHost&) = delete;

  std::uint64_t now_ns() noexcept override { return now_; }
  Result<std::unique_ptr<LoopHandle>> start(Loop& loop, const LoopOptions& options) override;
  bool is_cooperative() const noexcept override { return true; }
  bool run_one(std::uint64_t until_ns = never_ns) noexcept override;

  /// Runs turns until none is left or only sleepers with a deadline are; the clock does not jump.
  void run_until_idle() noexcept;
  /// Moves the clock without running anything.
  void advance(std::uint64_t ns) noexcept { now_ += ns; }
  /// Lets the `nth` start() from now on, 1 being the next, answer Errc::refused. 0: none.
  void refuse_start(std::uint32_t nth) noexcept { refuse_in_ = nth; }

  /// Turns so far.
  std::uint64_t turns() const noexcept { return turns_; }
  /// The choices so far: the number of the loop that had each turn, in the order of start(), runs
  /// of one loop as "number*turns", separated by spaces.
  std::string schedule() const;
  /// True if a replayed schedule named a loop that could not run: the code has changed since.
  bool has_diverged() const noexcept { return diverged_; }

private:
  class Task;

  Task* choose() noexcept;
  Task* choose_by_priority() noexcept;
  bool run_runnable() noexcept;
  void turn(Task& task) noexcept;

  SeededOptions options_;
  std::mt19937_64 random_;
  std::uint64_t now_ = 1'000'000'000;
  std::uint64_t turns_ = 0;
  std::uint32_t refuse_in_ = 0;
  std::uint32_t last_ = 0;
  bool diverged_ = false;
  std::int64_t lowest_ = 0;
  std::vector<std::uint64_t> change_at_;
  std::vector<std::shared_ptr<Task>> tasks_;
  std::vector<Task*> runnable_;
  std::vector<std::uint32_t> replay_;
  std::vector<std::uint32_t> chosen_;
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>

#include <cstdint>
#include <memory>

namespace reprise {

/// What a thread is to the library. Blocking verbs are refused on all but `user`.
enum class ThreadRole : std::uint8_t {
  user,
  device,     ///< runs an actor
  worker,     ///< runs CPU kernels and host callbacks
  helper,     ///< compiles, lowers graphs, maps memory
  courier,    ///< hands user code over: handlers without an executor, sinks, deleters
  completer,  ///< fulfils futures; never runs a user's handler
};

/// The role of the calling thread, `user` unless the library started it or is stepping it.
ThreadRole this_thread_role() noexcept;

/// Sets the calling thread's role while it lives.
class RoleScope {
public:
  explicit RoleScope(ThreadRole role) noexcept;
  ~RoleScope();
  RoleScope(const RoleScope&) = delete;
  RoleScope& operator=(const RoleScope&) = delete;

private:
  ThreadRole before_;
};

/// What a loop that found nothing to do wants next.
struct Rest {
  enum class Kind : std::uint8_t { again, sleep, sleep_until, done };
  Kind kind = Kind::again;
  std::uint64_t until_ns = 0;

  static Rest again() noexcept { return {Kind::again, 0}; }
  static Rest sleep() noexcept { return {Kind::sleep, 0}; }
  static Rest sleep_until(std::uint64_t ns) noexcept { return {Kind::sleep_until, ns}; }
  static Rest done() noexcept { return {Kind::done, 0}; }
};

/// The body of one of the library's threads, written so that a scheduler can drive it instead.
///
/// Threads  step(), rest() and pause() are called by one driver at a time.
class Loop {
public:
  /// Does a bounded piece of work and answers whether there was any. Never blocks.
  virtual bool step() noexcept = 0;
  /// Called after a step() that found nothing. `sleep` may be answered only once whoever brings
  /// new work is bound to call LoopHandle::wake(), as decided by an atomic word of the loop's own.
  virtual Rest rest() noexcept = 0;
  /// The pace between two looks while spinning; may end early on a bell.
  virtual void pause() noexcept = 0;
  /// New work is likely soon although none is here: spinning goes on past LoopOptions::spin_ns, up
  /// to LoopOptions::long_spin times that.
  virtual bool expects_work() noexcept { return false; }
  /// A timed sleep ran out without a wake.
  virtual void overslept() noexcept {}

protected:
  ~Loop() = default;
};

/// A started loop.
class LoopHandle {
public:
  virtual ~LoopHandle() = default;
  /// Ends one sleep, present or next: a token, not a count. Any thread.
  virtual void wake() noexcept = 0;
  /// Waits until the loop has answered `done`. False if the deadline passed first; the thread is
  /// then left behind and the handle must be kept for ever.
  virtual bool join(std::uint64_t deadline_ns) noexcept = 0;
};

/// Where and how a loop runs.
struct LoopOptions {
  const char* name = "";  ///< Static; at most 15 characters reach the debugger.
  ThreadRole role = ThreadRole::worker;
  std::uint64_t spin_ns = 0;    ///< How long to look for work before rest(), cores permitting.
  std::uint32_t long_spin = 1;  ///< So many times as long while the loop expects work.
};

/// The seam to the world: clock, threads, sleep. The real one below; tests bring a seeded one with
/// a virtual clock, which runs every loop on the caller's thread in an order drawn from a seed.
class Host {
public:
  virtual ~Host() = default;

  /// Monotonic nanoseconds.
  virtual std::uint64_t now_ns() noexcept = 0;
  /// Starts `loop`, which must outlive its join(). Errc::out_of_memory, Errc::refused (no thread).
  virtual Result<std::unique_ptr<LoopHandle>> start(Loop& loop, const LoopOptions& options) = 0;
  /// True if loops run only while somebody calls run_one(): a blocked caller must then drive them.
  virtual bool is_cooperative() const noexcept { return false; }
  /// Cooperative hosts: lets one loop take a step, or, if none can, moves the clock to the next
  /// deadline or to `until_ns`, whichever is earlier. False if nothing can happen any more.
  virtual bool run_one(std::uint64_t /*until_ns*/ = never_ns) noexcept { return false; }

  static constexpr std::uint64_t never_ns = ~std::uint64_t{0};
};

/// Threads, the steady clock, condition variables. One per process; never destroyed.
Host& real_host() noexcept;

/// CPUs this process may use: affinity, bounded by the control group's quota. At least 1.
std::uint32_t usable_cpus() noexcept;

/// The process-wide budget of library threads that run or spin. A thread may spin only while the
/// count is below the usable CPUs; running ones always count. Blocked callers go before workers,
/// workers before device threads.
///
/// Threads  Any. A thread counts in one way at a time: one that spins and calls running(+1) counts
///          as running only, until running(-1).
class SpinBudget {
public:
  enum class Rank : std::uint8_t { caller, worker, device };
  /// The calling thread begins (+1) or ends (-1) to run.
  static void running(int change) noexcept;
  /// True if the calling thread, which spins with this rank, may go on.
  static bool may_spin(Rank rank) noexcept;
  /// The calling thread begins (+1) or ends (-1) to spin; it displaces lower ranks.
  static void spinning(Rank rank, int change) noexcept;
};

}  // namespace reprise

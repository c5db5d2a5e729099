// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/host.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

namespace reprise::detail {

/// Something to do on a JobLoop, embedded in the object that it is about, so that posting needs no
/// memory and cannot be refused for want of any.
///
/// Lifetime  Belongs to the loop from post() on, until the loop calls exactly one of the two, which
///           may destroy it.
struct Job {
  Job* next = nullptr;
  void (*run)(Job& job) = nullptr;               ///< May throw: user code does.
  void (*destroy)(Job& job) noexcept = nullptr;  ///< Instead of run: the loop was closed.
};

/// Told what a job threw, on the thread of its loop.
struct ExceptionHook {
  void (*call)(void* self, std::exception_ptr thrown) noexcept = nullptr;
  void* self = nullptr;
};

/// A thread that runs jobs in the order in which they were posted: courier and completer.
///
/// Lifetime  Destroyed only after close() has answered true, or if it was never started.
/// Threads   post() and try_post() from any; start() and close() from the owner's.
class JobLoop final : public Loop {
public:
  explicit JobLoop(ExceptionHook hook = {}) noexcept;
  ~JobLoop();
  JobLoop(const JobLoop&) = delete;
  JobLoop& operator=(const JobLoop&) = delete;

  /// Starts the thread. Jobs may be posted before, but by other threads only once this returned.
  /// Errc::out_of_memory, Errc::refused (no thread).
  Result<void> start(Host& host, const LoopOptions& options);

  /// Hands `job` over; wakes the thread only if it sleeps. After close() the job is destroyed: at
  /// once on a thread of the user's, with the loop on one of the library's.
  void post(Job& job) noexcept;
  /// The same, but leaves the job alone and answers false after close().
  bool try_post(Job& job) noexcept;

  /// Runs what was handed over until `deadline_ns` of the host's clock, destroys the rest, and
  /// takes nothing more. False: a job does not return; thread and loop must then be leaked, and
  /// the jobs behind it have been destroyed here. Idempotent.
  bool close(std::uint64_t deadline_ns) noexcept;

  /// Runs `job`, which was not posted, on the calling thread; what it throws is told as usual.
  void run_here(Job& job) noexcept;

  /// Jobs that have thrown so far.
  std::uint64_t exceptions() const noexcept { return exceptions_.load(std::memory_order_relaxed); }

  // Loop, for the host.
  bool step() noexcept override;
  Rest rest() noexcept override;
  void pause() noexcept override;

private:
  struct Closing : Job {
    JobLoop* loop = nullptr;
  };

  // How much longer than its deadline close() waits for a thread that is between two jobs.
  static constexpr std::uint64_t grace_ns = 200'000'000;

  Job* take() noexcept;
  void give_up() noexcept;

  // The one word between posters and loop: newest posted job, or null (empty, awake), or one of two
  // marks: parked_mark (empty, asleep; whoever replaces it owes a wake) and closed_mark (for ever).
  std::atomic<Job*> inbox_{nullptr};
  static Job parked_mark;
  static Job closed_mark;

  const ExceptionHook hook_;
  Host* host_ = nullptr;
  std::unique_ptr<LoopHandle> thread_;
  Closing closing_job_;
  bool close_asked_ = false;
  bool closing_ = false;  // the loop's own: closing_job_ has run
  std::atomic<std::uint64_t> exceptions_{0};
  // Jobs that library threads posted after the close.
  std::atomic<Job*> too_late_{nullptr};

  std::mutex mutex_;  // guards taken_, which the closer empties if the thread is stuck in a job
  Job* taken_ = nullptr;
};

}  // namespace reprise::detail

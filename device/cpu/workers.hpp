// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/cpu/engine.hpp>
#include <reprise/device/host.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace reprise::detail {

/// One worker: takes ready streams and runs them, a bounded number of commands at a time.
class Worker final : public Loop {
public:
  Worker(Engine& engine, const std::atomic<bool>& stopping, std::uint32_t number,
         std::uint32_t works_per_step);

  const char* name() const noexcept { return name_.c_str(); }

  bool step() noexcept override;
  Rest rest() noexcept override;
  void pause() noexcept override;

private:
  void run_current() noexcept;

  Engine& engine_;
  const std::atomic<bool>& stopping_;
  const std::uint32_t number_;
  const std::uint32_t works_per_step_;
  const std::string name_;
  CpuStream* current_ = nullptr;  // This worker's to run.
  std::uint32_t last_ = 0;
  bool searching_ = false;  // Counted as such in the ready word.
};

/// The worker threads of one device, from start to stop.
class Workers {
public:
  /// Throws std::bad_alloc.
  Workers(Engine& engine, Host& host, std::uint32_t count, std::uint64_t spin_ns);

  Result<void> start() noexcept;
  /// False if one did not end by the deadline. It may be called again.
  bool stop(std::uint64_t deadline_ns) noexcept;

private:
  Engine& engine_;
  Host& host_;
  const std::uint64_t spin_ns_;
  std::atomic<bool> stopping_{false};  // Released by stop(), acquired by the workers.
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// Counts the callers that help, so that nobody takes the engine away below them.
///
/// State        word: how many are inside, and `closed`
/// Transitions  enter: + 1, needs !closed;  leave: - 1;  close: closed := 1
/// Orders       Read-modify-writes of one word. After close the last leave is made under the mutex,
///              so that whoever waits for it finds nobody behind it.
class HelperGate {
public:
  bool enter() noexcept;
  void leave() noexcept;
  /// False if somebody was inside still at the deadline.
  bool close(std::uint64_t deadline_ns) noexcept;

private:
  static constexpr std::uint32_t closed = 1;
  static constexpr std::uint32_t one = 2;

  std::atomic<std::uint32_t> word_{0};
  std::mutex mutex_;  // Held to leave a closed gate and to wait for that.
  std::condition_variable left_;
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/backend.hpp>
#include <reprise/device/cpu/crew.hpp>
#include <reprise/device/cpu/split.hpp>
#include <reprise/device/cpu/stream.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace reprise::detail {

/// Runs the commands of streams. Who calls run() is a worker, a helping caller or, without
/// workers, the device thread.
///
/// A stream that has something to run always has an owner or is known to the crew (or, between
/// enqueue and kick, to the device thread). The owner gives it away at four places, and touches it
/// no more: at rest, handed over, suspended into the list of the stream it waits for, held by a
/// failure until the device thread resumes it.
class Engine {
public:
  /// Throws std::bad_alloc.
  Engine(Host& host, std::uint32_t streams, std::uint32_t workers,
         std::uint64_t split_threshold_ns);

  void set_notice(Notice& notice) noexcept { notice_ = &notice; }

  Notice& notice() noexcept { return *notice_; }
  Crew& crew() noexcept { return crew_; }
  Splitter& splitter() noexcept { return splitter_; }
  CpuStream& stream(StreamIndex index) noexcept { return streams_[index]; }
  const CpuStream& stream(StreamIndex index) const noexcept { return streams_[index]; }
  std::span<CpuStream> streams() noexcept { return {streams_.get(), count_}; }

  enum class Left : std::uint8_t {
    gone,        ///< The right to run the stream was given away, or there is no more to run.
    unfinished,  ///< The caller has the right still, and there may be more.
  };
  /// With the right to run `stream`: runs up to `works` commands, or until `until` says so. A
  /// caller that `looks_after` takes ready streams itself when it is done.
  Left run(CpuStream& stream, std::uint32_t works, HelpUntil* until, bool looks_after) noexcept;
  /// Gives the right away; a worker will go on.
  void hand_over(CpuStream& stream, bool wake) noexcept;
  /// Lets a held stream go on behind the failed command.
  void resume(CpuStream& stream) noexcept;
  /// Some thread does not come back: starts no command any more. When this returns, none but user
  /// code runs, so that nothing writes host memory whose owner is told that it never will.
  void give_up() noexcept;
  /// Loops of graphs end before their next run. Any thread.
  void end_loops() noexcept { ends_loops_.store(true, std::memory_order_relaxed); }
  const std::atomic<bool>& ends_loops() const noexcept { return ends_loops_; }

private:
  bool suspend(CpuStream& stream, const Work& work) noexcept;
  bool begin(CpuStream& stream, const Work& work) noexcept;
  bool execute(CpuStream& stream, Work& work) noexcept;
  void dispatch(CpuStream& stream, Work& work);
  std::uint32_t pass(CpuStream& stream) noexcept;

  Notice* notice_ = nullptr;
  std::atomic<bool> given_up_{false};
  std::atomic<bool> ends_loops_{false};  ///< Relaxed; read by CpuProgram.
  Crew crew_;
  Splitter splitter_;
  std::uint32_t count_;
  std::unique_ptr<CpuStream[]> streams_;
};

}  // namespace reprise::detail

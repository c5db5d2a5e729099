// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/cpu/inbox.hpp>
#include <reprise/device/cpu/progress.hpp>
#include <reprise/device/cpu/split.hpp>
#include <reprise/device/work.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace reprise::detail {

/// Says what runs on a stream at the moment, for the report about one that never ends.
///
/// State        word: the command, and `read`: a reader looks at it under the mutex
/// Transitions  begin   word := command                     the owner of the stream
///              mark    read := 1, if a command runs        the reader, under the mutex
///              end     word := 0; if read was set, waits for the mutex, so that the reader has
///                      left before the command goes
/// Orders       begin releases the command to the acquiring mark; end and mark are read-modify-
///              writes of the word, hence ordered.
class RunningCommand {
public:
  void begin(const Work& work) noexcept {
    at.store(nullptr, std::memory_order_relaxed);
    // Sequentially consistent: Engine::begin() looks at another word next.
    word_.store(reinterpret_cast<std::uintptr_t>(&work), std::memory_order_seq_cst);
  }
  void end() noexcept {
    if ((word_.exchange(0, std::memory_order_acq_rel) & read) != 0) std::lock_guard wait(mutex_);
  }
  /// The name of what runs, empty if nothing does.
  std::string name();
  /// Whether a command without user code runs: it will not take long.
  bool is_brief();

  /// The node of a program that runs; a hint for name(), which reads it relaxed.
  std::atomic<const void*> at{nullptr};

private:
  static constexpr std::uintptr_t read = 1;

  std::atomic<std::uintptr_t> word_{0};
  std::mutex mutex_;  // Held while a reader looks at the command.
};

/// One backend stream: commands in order, one runner at a time.
///
/// Threads  `enqueued` is the device thread's. `inbox` and `progress` say themselves. The rest
///          belongs to whoever has the right to run the stream; while the stream is suspended that
///          right lies with the list it waits in, while it is held with the device thread.
class CpuStream {
public:
  StreamPosition enqueued = 0;
  std::uint32_t index = 0;

  Inbox<Work> inbox;
  Progress<> progress;

  /// The place of this stream in the list of another that it waits for.
  struct Waiter : PositionWaiter {
    CpuStream* stream = nullptr;
  };
  Waiter waiter;
  std::size_t waits_done = 0;  ///< Of the first command in the inbox.
  Work* held = nullptr;        ///< The failed command the stream is held behind.

  RunningCommand running;
  SplitSlot split;

  std::uint32_t bit() const noexcept { return std::uint32_t{1} << index; }
};

}  // namespace reprise::detail

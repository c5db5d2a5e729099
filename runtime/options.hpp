// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/memory_event.hpp>
#include <reprise/device/host.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace reprise {

/// How urgent a stream's work is, as a hint to devices that know priorities.
enum class Priority : std::uint8_t { low, normal, high };

/// Receives what happens to the memory of a device, some events at a time and in order, on the
/// courier thread. May throw; that is counted.
using AllocationSink = std::function<void(std::span<const MemoryEvent>)>;

/// What a device is opened with. Opening it again gives the same actor and ignores the options.
struct DeviceOptions {
  /// Threads that run kernels on a CPU device; 0: the device thread runs them itself. Default: one
  /// less than the CPUs this process may use, at least one.
  std::optional<std::uint32_t> workers;
  /// Backend streams; logical streams share them.
  std::uint32_t streams = 8;
  /// Slots of the command ring; a power of two.
  std::uint32_t ring_capacity = 1024;
  /// Commands of one stream between submission and acceptance.
  std::uint32_t in_flight_per_stream = 256;
  /// Commands between acceptance and their end.
  std::uint32_t in_flight = 1024;
  /// Device memory this runtime may map; 0: what the device has.
  std::uint64_t memory_limit_bytes = 0;
  /// Pinned host memory for writes in flight.
  std::uint64_t staging_limit_bytes = 64ULL << 20;
  /// How long an idle device thread looks for commands before it sleeps, CPUs permitting.
  std::uint64_t spin_ns = 50'000;
  /// Whether a thread that blocks on a CPU stream runs its commands meanwhile.
  bool help_while_waiting = true;
  /// Traces allocations; csv_sink() of <reprise/runtime/allocation_trace.hpp> makes one that writes
  /// a file. Without it a trace costs one branch.
  AllocationSink allocation_trace = {};
};

/// Per-call options of async_ forms with a token.
struct CallOptions {
  /// Receives the full failure, or null, before the handler is submitted.
  FailurePtr* failure = nullptr;
  /// A command that the device has not accepted by then is given up, as if cancelled: it completes
  /// with operation_aborted, caused by timed_out, and what it would have written is marked as never
  /// started. One that was accepted runs on.
  ///
  /// The device judges when the command's turn comes, so a completion may come later than this. To
  /// end the wait itself on time, cancel with a timer.
  ///
  /// Units  The clock of the runtime's host: the steady clock, unless RuntimeOptions::host brings
  ///        another.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

/// What the error sink is told.
struct FailureNotice {
  FailurePtr failure;
  bool skipped = false;  ///< False: a first failure. True: a command not run because of one.
};

/// Called on the courier thread for each first failure and each skip. May throw; that is counted.
using ErrorSink = std::function<void(const FailureNotice&)>;

struct RuntimeOptions {
  ErrorSink error_sink;
  /// How long the destructor waits for running kernels and handlers.
  std::uint64_t shutdown_ns = 10'000'000'000;
  /// The seam to threads and clock; null: the real one. It outlives the runtime.
  Host* host = nullptr;
};

namespace detail {

/// The deadline in nanoseconds of the host's clock.
inline std::uint64_t deadline_ns(const CallOptions& options) noexcept {
  if (options.deadline == std::chrono::steady_clock::time_point::max()) return Host::never_ns;
  const auto since =
      std::chrono::duration_cast<std::chrono::nanoseconds>(options.deadline.time_since_epoch());
  return since.count() > 0 ? static_cast<std::uint64_t>(since.count()) : 0;
}

}  // namespace detail

}  // namespace reprise

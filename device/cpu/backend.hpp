// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/backend.hpp>
#include <reprise/device/host.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace reprise {

/// One worker for each usable CPU but the one that the program's own threads take; at least 1.
std::uint32_t default_cpu_workers() noexcept;

/// Units  Times in nanoseconds, sizes in bytes.
struct CpuOptions {
  std::string name = "cpu:0";
  /// Threads that run kernels, at most 254. 0: kernels run on the device thread, inside kick() and
  /// resume(), which is for tests.
  std::uint32_t workers = default_cpu_workers();
  /// At most 31.
  std::uint32_t streams = 8;
  /// A blocked caller runs the commands that it waits for itself.
  bool help_while_waiting = true;
  /// How long an idle worker looks for work before it sleeps.
  std::uint64_t worker_spin_ns = 50'000;
  /// A launch is spread over idle workers if it would take one thread longer than this.
  std::uint64_t split_threshold_ns = 50'000;
  /// As in CpuPageSourceOptions.
  std::uint64_t page_size = std::uint64_t{2} << 20;
  std::uint64_t address_space = 0;
  bool huge_pages = true;
};

/// The CPU as an asynchronous device: streams run in order on worker threads, different ones at
/// once, large launches on several. It judges execution: a command that throws is reported, and its
/// stream waits behind it for resume().
///
/// Its graph programs read argument blocks and operands from the plan each time they run.
///
/// Lifetime  `host` outlives it. After a failed stop() it must not be destroyed.
/// Errors    Failure: invalid_argument for options out of bounds, out_of_memory. The backend's
///           enqueue() and lower() answer no_such_kernel for a kernel without a CPU body.
std::unique_ptr<Backend> make_cpu_backend(Host& host, const CpuOptions& options = {});

}  // namespace reprise

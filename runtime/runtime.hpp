// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/report.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/options.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise {

namespace detail {
class DeviceCore;
struct DeviceAccess;
struct RuntimeState;
struct CloseRequest;
}  // namespace detail

/// What a device has done so far; each number is exact, together they are a snapshot.
struct DeviceStatistics {
  std::uint64_t completed = 0;     ///< Commands that have left, in whatever way.
  std::uint64_t failed = 0;        ///< Failed while running.
  std::uint64_t skipped = 0;       ///< Not run, since an input carried a failure.
  std::uint64_t refused = 0;       ///< Not run for another reason.
  std::uint64_t replays = 0;       ///< Replays accepted.
  std::uint64_t waits_made = 0;    ///< Device-side waits between backend streams.
  std::uint64_t waits_elided = 0;  ///< Not made, since the stream had waited as far before.
  std::uint64_t fallbacks = 0;     ///< Calls of capture_or_run that ran instead.
};

/// A device that was opened: the way to clients and reports. async_ forms end as those of Client;
/// those of reports always go through, also when the ring is full.
///
/// Lifetime  A cheap handle. It keeps nothing open: closing is the Runtime's business or drain()'s
///           and abort()'s; handles that outlive that answer Errc::closed.
/// Threads   Any.
class Device {
public:
  Device() noexcept = default;

  explicit operator bool() const noexcept { return core_ != nullptr; }
  const std::string& name() const;
  /// A client on a new logical stream.
  Client client(Priority priority = Priority::normal) const;

  /// Where the memory is. Waits for the actor only, and goes through when the ring is full.
  MemoryReport memory_report() const;
  template <class... Tail>
  auto async_memory_report(Tail&&... tail) const;
  /// The same as a drawing: an SVG file whose rows are the mapped pages, with buffers, holes, what
  /// waits for its last users, guards and failures. It is drawn on the calling thread; addresses
  /// count from the first one of the device, so that the same memory gives the same picture.
  std::string memory_picture() const;
  /// Unmaps pages that are empty, finished and unguarded; answers the bytes given back.
  std::uint64_t trim() const;
  template <class... Tail>
  auto async_trim(Tail&&... tail) const;
  DeviceStatistics statistics() const;
  /// Whether any stream of the device is recording.
  bool any_recording() const;
  /// Returns when everything submitted before, on any stream, has finished.
  void synchronize() const;
  template <class... Tail>
  auto async_synchronize(Tail&&... tail) const;

  /// Takes no more submissions, finishes what was submitted, ends the device's threads. Idempotent;
  /// a later Runtime::open gives a fresh actor.
  ///
  /// Errc::timed_out       a kernel or callback did not return by then; the message names it, and
  ///                       its thread is left behind.
  /// Errc::would_deadlock  on the library's own threads.
  void drain(std::chrono::nanoseconds limit = std::chrono::seconds(10)) const;
  /// The same, but gives up what has not started: it completes with operation_aborted.
  void abort(std::chrono::nanoseconds limit = std::chrono::seconds(10)) const;
  /// The same on a thread of their own, so from any thread: complete when the device has ended, or
  /// with timed_out. CallOptions::deadline means nothing to them.
  template <class... Tail>
  auto async_drain(std::chrono::nanoseconds limit, Tail&&... tail) const;
  template <class... Tail>
  auto async_abort(std::chrono::nanoseconds limit, Tail&&... tail) const;

private:
  friend class Runtime;
  friend struct detail::DeviceAccess;
  explicit Device(std::shared_ptr<detail::DeviceCore> core) noexcept : core_(std::move(core)) {}
  detail::DeviceCore& core(const char* verb) const;

  std::shared_ptr<detail::DeviceCore> core_;
};

/// Owns the actors of a program's devices and the threads that hand completions over.
///
/// Lifetime  Its end is abort() with the option's limit. Handles may outlive it.
/// Threads   Any thread may call any member; destroy it on a thread of your own.
class Runtime {
public:
  /// Failure out_of_memory or refused if its threads cannot be started.
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Opens a device by name: "cpu:0". Opening it again gives the same actor, or a fresh one after
  /// it was closed.
  ///
  /// Errc::no_such_device    no backend knows the name.
  /// Errc::not_initialized   the backend cannot start on this machine; the message says why.
  /// Errc::invalid_argument  an option is out of its range.
  Device open(std::string_view name, const DeviceOptions& options = {});

  /// Device::drain and Device::abort for all devices that are open, each of which is closed even if
  /// another one does not end.
  void drain(std::chrono::nanoseconds limit = std::chrono::seconds(10));
  void abort(std::chrono::nanoseconds limit = std::chrono::seconds(10));
  template <class... Tail>
  auto async_drain(std::chrono::nanoseconds limit, Tail&&... tail);
  template <class... Tail>
  auto async_abort(std::chrono::nanoseconds limit, Tail&&... tail);

private:
  detail::CloseRequest close_request(bool abort, std::chrono::nanoseconds limit,
                                     const char* verb) const;

  std::unique_ptr<detail::RuntimeState> state_;
};

// ---- async_ forms ------------------------------------------------------------------------------

namespace detail {

class RuntimeShared;

/// A shutdown of some devices that is to be started.
struct CloseRequest {
  std::shared_ptr<RuntimeShared> shared;
  std::vector<std::shared_ptr<DeviceCore>> cores;
  bool abort = false;
  std::chrono::nanoseconds limit{0};
  const char* verb = "";
};

CloseRequest close_request(const Device& device, bool abort, std::chrono::nanoseconds limit,
                           const char* verb);
void start_memory_report(const Device& device, ValueReply<MemoryReport>& reply) noexcept;
void start_trim(const Device& device, ValueReply<std::uint64_t>& reply) noexcept;
void start_synchronize(const Device& device, Reply* reply) noexcept;
void start_close(const CloseRequest& request, Reply* reply) noexcept;

template <class... Tail>
auto begin_close(CloseRequest request, Tail&&... tail) {
  const char* const verb = request.verb;
  const CloseRequest& handle = request;
  return begin_async<void>(
      handle, verb, [request](Reply* reply) noexcept { start_close(request, reply); },
      std::forward<Tail>(tail)...);
}

}  // namespace detail

template <class... Tail>
auto Device::async_memory_report(Tail&&... tail) const {
  return detail::begin_async<MemoryReport>(
      *this, "async_memory_report",
      [device = *this](ValueReply<MemoryReport>* reply) noexcept {
        detail::start_memory_report(device, *reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Device::async_trim(Tail&&... tail) const {
  return detail::begin_async<std::uint64_t>(
      *this, "async_trim",
      [device = *this](ValueReply<std::uint64_t>* reply) noexcept {
        detail::start_trim(device, *reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Device::async_synchronize(Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_synchronize",
      [device = *this](Reply* reply) noexcept { detail::start_synchronize(device, reply); },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Device::async_drain(std::chrono::nanoseconds limit, Tail&&... tail) const {
  return detail::begin_close(detail::close_request(*this, false, limit, "drain"),
                             std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Device::async_abort(std::chrono::nanoseconds limit, Tail&&... tail) const {
  return detail::begin_close(detail::close_request(*this, true, limit, "abort"),
                             std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Runtime::async_drain(std::chrono::nanoseconds limit, Tail&&... tail) {
  return detail::begin_close(close_request(false, limit, "drain"), std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Runtime::async_abort(std::chrono::nanoseconds limit, Tail&&... tail) {
  return detail::begin_close(close_request(true, limit, "abort"), std::forward<Tail>(tail)...);
}

}  // namespace reprise

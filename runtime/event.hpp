// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/verbs.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace reprise {

namespace detail {
struct EventState;
struct EventAccess;
}  // namespace detail

/// What an event notes.
struct EventOptions {
  /// Notes the time at which the device passes the point, for elapsed(). In a window nothing is
  /// timed.
  bool timing = false;
};

/// A point in a stream, made by Client::record(). Other streams wait for it with Client::wait(),
/// threads with wait().
///
/// Lifetime  A cheap handle; the point outlives client and device.
/// Threads   Any.
/// Errors    Those of the wait verbs: empty_handle, capture_refused (it was recorded in a window,
///           so it is no point in time), closed. async_ forms end as those of Client.
class Event {
public:
  /// Stands for nothing; waiting for it answers Errc::empty_handle.
  Event() noexcept = default;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Blocks until the commands before the point have finished. Throws the failure of the last of
  /// them, if it failed or was skipped; never hangs on a failed or cancelled command.
  void wait() const;
  /// Completes then, with that failure.
  template <class... Tail>
  auto async_wait(Tail&&... tail) const;
  /// Whether wait() would not block.
  bool is_done() const noexcept;

private:
  friend struct detail::EventAccess;
  explicit Event(std::shared_ptr<detail::EventState> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<detail::EventState> state_;
};

/// The time from one point to another of the same device, negative if `to` was passed first. Both
/// were recorded with EventOptions::timing. Waits for both, and throws the failure of either as
/// Event::wait() does. On the CPU device it is the clock of the runtime's host when the command
/// before the point had finished.
///
/// Errc::invalid_argument   one was recorded without timing.
/// Errc::wrong_device       they are of different devices.
std::chrono::nanoseconds elapsed(const Event& from, const Event& to);
/// Completes with it.
template <class... Tail>
auto async_elapsed(const Event& from, const Event& to, Tail&&... tail);

namespace detail {
void start_event_wait(const Event& event, Reply* reply) noexcept;
void start_elapsed(const Event& from, const Event& to,
                   ValueReply<std::chrono::nanoseconds>& reply) noexcept;
}  // namespace detail

template <class... Tail>
auto Event::async_wait(Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_wait",
      [event = *this](Reply* reply) noexcept { detail::start_event_wait(event, reply); },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto async_elapsed(const Event& from, const Event& to, Tail&&... tail) {
  return detail::begin_async<std::chrono::nanoseconds>(
      to, "async_elapsed",
      [from, to](ValueReply<std::chrono::nanoseconds>* reply) noexcept {
        detail::start_elapsed(from, to, *reply);
      },
      std::forward<Tail>(tail)...);
}

}  // namespace reprise

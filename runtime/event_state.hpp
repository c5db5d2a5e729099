// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/event.hpp>
#include <reprise/runtime/operation.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace reprise::detail {

/// The point that an Event stands for.
///
/// Lifetime  Shared by handles, by the operation that precedes the point, and by those that record
///           and await it.
/// Threads   The constants and atomics belong to everybody, the rest to the device thread;
///           `failure` is final once the point was passed: whoever saw that may read it.
struct EventState {
  EventState(std::shared_ptr<DeviceCore> core_, bool timing_) noexcept
      : core(std::move(core_)), timing(timing_) {}

  const std::shared_ptr<DeviceCore> core;
  const bool timing;
  /// When the device passed the point, with timing. Release/acquire: the thread that ran the marker
  /// stores it before its stream moves on, whoever waited for that reads it.
  std::atomic<std::uint64_t> time_ns{0};
  /// Release/acquire: whoever sees it set sees `point`.
  std::atomic<bool> recorded{false};
  StreamPoint point;                 ///< Position 0: nothing precedes it.
  StreamId stream = 0;               ///< Recorded in a window of this stream, 0: outside.
  FailurePtr failure;                ///< Of the last command before the point.
  std::shared_ptr<EventState> next;  ///< Of the same preceding command.
};

struct EventAccess {
  static const std::shared_ptr<EventState>& state(const Event& event) noexcept {
    return event.state_;
  }
  static Event make(std::shared_ptr<EventState> state) noexcept { return Event{std::move(state)}; }
};

}  // namespace reprise::detail

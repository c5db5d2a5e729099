// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/operation.hpp>

#include <atomic>
#include <memory>

namespace reprise::detail {

/// The point that an Event stands for.
///
/// Lifetime  Shared by handles, by the operation that precedes the point, and by those that record
///           and await it.
/// Threads   `core` and `recorded` belong to everybody, the rest to the device thread.
struct EventState {
  explicit EventState(std::shared_ptr<DeviceCore> core_) noexcept : core(std::move(core_)) {}

  const std::shared_ptr<DeviceCore> core;
  /// Release/acquire: whoever sees it set sees `point`.
  std::atomic<bool> recorded{false};
  StreamPoint point;                 ///< Position 0: nothing precedes it.
  StreamId stream = 0;               ///< Recorded in a window of this stream, 0: outside.
  FailurePtr failure;                ///< Of the last command before the point.
  std::shared_ptr<EventState> next;  ///< Of the same preceding command.
};

}  // namespace reprise::detail

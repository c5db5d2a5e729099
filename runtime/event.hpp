// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace reprise {

namespace detail {
struct EventState;
}

/// A point in a stream, made by Client::record(). Other streams wait for it with Client::wait(),
/// threads with wait().
///
/// Lifetime  A cheap handle; the point outlives client and device.
/// Threads   Any.
class Event {
public:
  /// Stands for nothing; waiting for it answers Errc::empty_handle.
  Event() noexcept = default;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Blocks until the commands before the point have finished. Throws the failure of the last of
  /// them, if it failed or was skipped; never hangs on a failed or cancelled command.
  void wait() const;
  /// Whether wait() would not block.
  bool is_done() const noexcept;

private:
  friend class Client;
  explicit Event(std::shared_ptr<detail::EventState> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<detail::EventState> state_;
};

}  // namespace reprise

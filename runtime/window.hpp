// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/capture/recorder.hpp>
#include <reprise/capture/stream_capture.hpp>
#include <reprise/runtime/operation.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace reprise::detail {

/// A capture of one logical stream, from prepare to its end.
///
/// Threads  The device thread's.
struct Window {
  Window(DeviceCaptures& captures, LogicalStream& logical_, std::string_view name_)
      : logical(logical_), capture(captures, logical_.id), name(name_) {}

  bool is_recording() const noexcept { return capture.is_recording(); }
  /// `hold` got its memory inside the window: nobody but its nodes can have written it.
  void created(Hold& hold) { fresh.emplace(&hold, WeakHold{HoldRef{&hold}}); }

  LogicalStream& logical;
  StreamCapture capture;
  Recorder recorder;
  std::string name;
  /// The records stay, so that no other allocation gets one's address while the window is open.
  std::unordered_map<const Hold*, WeakHold> fresh;
  FailurePtr warm_up_failure;  ///< Of the first command refused while prepared.
};

}  // namespace reprise::detail

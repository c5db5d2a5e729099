// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/capture/recorder.hpp>
#include <reprise/capture/slots.hpp>
#include <reprise/capture/stream_capture.hpp>
#include <reprise/runtime/operation.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace reprise::detail {

/// The place of a node of a graph by hand, by the numbers of its builder.
struct NodePlace {
  std::uint32_t node = 0;
  NodeOrder order = NodeOrder::automatic;
  std::vector<std::uint32_t> after;
  std::string name;
  SourceLocation where;
};

/// What a window knows while a graph by hand is recorded: for the next command its place, told just
/// before; and which nodes of the recording stand for each node of the builder: itself, or if it
/// does nothing and left none, those that it follows.
struct HandBuilt {
  NodePlace next;
  bool is_told = false;
  std::vector<std::uint32_t> after;  ///< Of the next, by the numbers of the recording.
  std::vector<std::vector<std::uint32_t>> stands_for;
};

/// A capture of one logical stream, and of the streams that were forked in it, from prepare to its
/// end.
///
/// Threads  The device thread's.
struct Window {
  Window(DeviceCaptures& captures_, LogicalStream& logical_, std::string_view name_)
      : logical(logical_), capture(captures_, logical_.id), name(name_), captures(captures_) {}
  ~Window();

  /// `stream` records here until it is joined or the window ends. Throws std::bad_alloc.
  void enroll(LogicalStream& stream);
  void leave(LogicalStream& stream) noexcept;

  bool is_recording() const noexcept { return capture.is_recording(); }
  /// `hold` got its memory inside the window: nobody but its nodes can have written it.
  void created(Hold& hold) { fresh.emplace(&hold, WeakHold{HoldRef{&hold}}); }

  LogicalStream& logical;
  StreamCapture capture;
  Recorder recorder;
  std::string name;
  /// The records stay, so that no other allocation gets one's address while the window is open.
  std::unordered_map<const Hold*, WeakHold> fresh;
  /// A graph by hand; null: a capture.
  std::unique_ptr<HandBuilt> built;
  std::vector<SlotSpec> slots;  ///< Disjoint, of different names.
  FailurePtr warm_up_failure;   ///< Of the first command refused while prepared.

  struct Forked {
    LogicalStream* stream;
    DeviceCaptures::Key key;
  };
  DeviceCaptures& captures;
  std::vector<Forked> forked;  ///< Those not joined yet.
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/device/command.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

namespace reprise {

/// How one node of a replay ended, when it did not simply succeed.
struct NodeOutcome {
  enum class Kind : std::uint8_t { failed, skipped };
  std::uint32_t node = 0;
  Kind kind = Kind::failed;
  std::uint32_t because = 0;  ///< skipped: the failed node whose bytes it would have read.
  FailurePtr failure;         ///< failed: what it threw or what the device said.
};

/// One command in a backend's hands, from enqueue() until its stream has passed it. The actor
/// embeds it in its own record of the command and fills the first part in; the backend links it.
///
/// Threads  Before enqueue() the device thread's; then the backend's, until finished(stream)
///          reaches `position`; then the device thread's again. After a failure the device thread
///          has it from Notice::failed() until resume().
class Work {
public:
  Command command;
  /// Points of other streams that must have finished before this may start. The span's memory
  /// belongs to whoever embeds the Work and lives as long.
  std::span<const StreamPoint> waits;
  /// Called exactly once, when the command has succeeded, by the thread that ran it, before its
  /// stream moves on: it answers whoever waits. Null: nobody does. Not called for a command that
  /// failed or was skipped; the actor answers for those.
  void (*succeeded)(Work&) noexcept = nullptr;
  /// The actor, while the stream is held by a failure: this command must not run, only pass.
  bool skip = false;

  /// Set by the backend with the first failure: what happened. For a replay, node by node.
  FailurePtr failure;
  std::vector<NodeOutcome> nodes;

  StreamIndex stream = 0;
  StreamPosition position = 0;

  /// The backend's links.
  Work* next = nullptr;

protected:
  Work() = default;
  ~Work() = default;
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/graph_program.hpp>
#include <reprise/capture/recording.hpp>
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/operation.hpp>
#include <reprise/runtime/replay_order.hpp>
#include <reprise/runtime/rotation.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace reprise::detail {

/// What the copies of a Graph share: the recording, its executable form, and the stream that
/// replays run on.
///
/// Lifetime  When the last handle and the last replay in flight are gone, the control lane brings
///           it to the device thread, which lets go of its guards and frees it.
/// Threads   Recording and counters belong to everybody, the rest to the device thread.
struct GraphState : ControlNode, std::enable_shared_from_this<GraphState> {
  /// Throws std::bad_alloc.
  static std::shared_ptr<GraphState> make(std::shared_ptr<LogicalStream> logical,
                                          std::shared_ptr<const Recording> recording);
  /// One without a device: no stream, no program, no order. Throws std::bad_alloc.
  static std::shared_ptr<GraphState> make_on_paper(std::shared_ptr<const Recording> recording);

  std::shared_ptr<LogicalStream> logical;  ///< Null without a device.
  std::shared_ptr<const Recording> recording;
  std::unique_ptr<GraphProgram> program;
  /// The byte sets of one replay: what it reads from outside, then what it writes.
  std::vector<Touch> touches;
  /// The same, cut where slots begin and end. Empty without slots.
  std::vector<SlotTouch> parts;
  /// Null without slots.
  std::unique_ptr<Rotation> rotation;
  std::optional<ReplayOrder> order;  ///< The device thread's.
  /// With slots: where refreshes run. They wait for the replays that use their bytes, not for all.
  std::shared_ptr<LogicalStream> refresher;

  // Apart from what callers read.
  alignas(64) std::atomic<std::uint64_t> replays{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> bound{0};
  std::atomic<std::uint64_t> refreshes{0};
  std::atomic<std::uint64_t> lease_held{0};
  /// Of a replay.
  void note_failure(const FailurePtr& failure, bool while_running) noexcept;
  /// The same, uncounted: of a refresh.
  void note_failure(const FailurePtr& failure) noexcept;
  FailurePtr last_failure() const;

  /// Argument blocks by node.
  using Blocks = std::map<std::uint32_t, std::vector<std::byte>>;
  /// The argument block of a launch, as replays that are asked for now will have it. Any thread.
  std::vector<std::byte> arguments(std::uint32_t node) const;
  /// An update has been accepted. Takes what it needs out of `blocks`.
  void note_arguments(Blocks& blocks) noexcept;

  // Programs share argument blocks with those they are nodes of, so a graph is never both. Set by
  // the device thread, which alone decides by them.
  static constexpr const char* no_child = "a graph that was updated cannot be a node of another";
  bool is_child = false;  ///< Or was.
  std::atomic<bool> was_updated{false};

  // The device thread's list of live graphs.
  GraphState* next = nullptr;
  GraphState* before = nullptr;

private:
  GraphState() = default;

  mutable std::mutex mutex_;  // guards both
  FailurePtr last_failure_;
  Blocks updated_;  // What is in the recording belongs to the device.
};

/// What `graph` refers to. Throws Failure empty_graph.
const std::shared_ptr<GraphState>& state_of(const Graph& graph, const char* verb);

/// Whether a node of `recording` calls the host, or might.
bool calls_host(const Recording& recording) noexcept;

/// Whether replays choose copies of slots, and so are no ReplayRequest.
inline bool rotates(const GraphState& graph) noexcept {
  return graph.rotation != nullptr && graph.rotation->rotates();
}

/// The operation of a replay, made by the device thread, which serves its ticket. Throws
/// std::bad_alloc.
Operation* make_replay_here(Actor& actor, const ReplayRequest& request);

/// What `graph` refers to, with a device. Throws Failure empty_graph, not_initialized.
const std::shared_ptr<GraphState>& device_state_of(const Graph& graph, const char* verb);

struct GraphAccess {
  static const std::shared_ptr<GraphState>& state(const Graph& graph) noexcept {
    return graph.state_;
  }
  static Graph make(std::shared_ptr<GraphState> state) noexcept { return Graph{std::move(state)}; }
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/hold.hpp>
#include <reprise/device/graph_program.hpp>
#include <reprise/device/work.hpp>
#include <reprise/capture/device_captures.hpp>
#include <reprise/capture/recorder.hpp>
#include <reprise/capture/sealed_nodes.hpp>
#include <reprise/capture/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

/// One node of a recording, for those who look at it.
struct NodeView {
  std::uint32_t index = 0;
  const Command& command;
  std::string_view verb;                 ///< "launch", "copy" …
  std::string_view name;                 ///< Never empty.
  std::span<const std::byte> arguments;  ///< The block of a launch, addresses filled in.
  NodeTouches touches;
  std::span<const std::uint32_t> after;  ///< Earlier nodes that must have finished first.
  SourceLocation where;
};

/// How a node of a replay ended.
enum class NodeEnd : std::uint8_t { ok, failed, skipped };

/// What a window or a builder sealed: the nodes, their order, the bytes they read and write. Made
/// once and never changed; a graph and all its copies share it. One without nodes is legal.
///
/// Lifetime  Holds everything its nodes touch strongly, and the host memory they read. All views
///           and the plan live as long as the recording.
/// Threads   Immutable, so any thread may read it; the last reference may go on any thread.
/// Units     Sizes in bytes.
class Recording {
  struct Private {};

public:
  struct Options {
    std::string_view name;
    StreamId owner = 0;                    ///< The logical stream it was recorded on.
    std::span<const SlotSpec> slots = {};  ///< Disjoint, of different names.
  };
  /// Seals what `recorder` holds and leaves it empty. Addresses are taken from the holds, so every
  /// one must be bound.
  ///
  /// After an error the recorder is as it was, and can still tell its write set.
  ///
  /// Errc::out_of_memory
  /// Errc::slot_overlap, invalid_argument, unsupported   by SlotTable::take()
  static Result<std::shared_ptr<const Recording>> seal(Recorder&& recorder,
                                                       const Options& options) noexcept;
  explicit Recording(Private) noexcept {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Never used again in this process, never 0.
  std::uint64_t id() const noexcept { return id_; }
  std::string_view name() const noexcept { return name_; }
  StreamId owner() const noexcept { return owner_; }

  std::uint32_t node_count() const noexcept { return nodes_.size(); }
  std::size_t edge_count() const noexcept { return nodes_.edge_count(); }
  NodeView node(std::uint32_t index) const noexcept;

  /// Bytes that are read before the graph itself must have written them: what a replay needs to
  /// find written. This list and the next three are merged per allocation: disjoint, sorted.
  std::span<const Touch> inputs() const noexcept { return sets_.inputs; }
  std::span<const Touch> reads() const noexcept { return sets_.reads; }
  /// Bytes that any node might change.
  std::span<const Touch> may_write() const noexcept { return sets_.may_write; }
  /// Bytes that a run in which every node succeeds has certainly written.
  std::span<const Touch> must_write() const noexcept { return sets_.must_write; }
  /// The allocations it touches, each once, in the order of first use, and the copies of slots.
  std::span<const HoldRef> holds() const noexcept { return sets_.holds; }

  /// Device memory that stays out of the pool because this recording lives: the whole of each
  /// allocation it touches, once, and the copies of its slots.
  std::uint64_t guarded_bytes() const noexcept { return guarded_bytes_; }
  /// The bytes among them that nodes name. Overlaps count once.
  std::uint64_t touched_bytes() const noexcept { return sets_.touched_bytes; }
  /// Host memory it keeps.
  std::uint64_t retained_bytes() const noexcept { return nodes_.retained_bytes(); }

  /// What a backend lowers; it points into this recording.
  GraphPlan plan() const noexcept { return {nodes_, name_, slots_.patches()}; }

  /// The bytes that a replay may find elsewhere.
  const detail::SlotTable& slots() const noexcept { return slots_; }

  /// The nodes and edges in the DOT language.
  std::string to_dot() const;

  /// Calls f(node, end, outcome) for every node in recorded order, given the outcomes of one run in
  /// any order. `outcome` is null for a node that succeeded, else the first that names the node.
  template <class F>
  void walk_outcome(std::span<const NodeOutcome> outcomes, F&& f) const;

private:
  void take_holds(std::span<const SlotSpec> slots);

  std::uint64_t id_ = 0;
  std::string name_;
  StreamId owner_ = 0;
  detail::MergedSets sets_;
  detail::SealedNodes nodes_;  // Refers to the holds in sets_.
  std::uint64_t guarded_bytes_ = 0;
  detail::SlotTable slots_;
};

/// A line about the whole and one about each node.
std::ostream& operator<<(std::ostream& out, const Recording& recording);

template <class F>
void Recording::walk_outcome(std::span<const NodeOutcome> outcomes, F&& f) const {
  const bool sorted = std::is_sorted(outcomes.begin(), outcomes.end(),
                                     [](const auto& a, const auto& b) { return a.node < b.node; });
  auto from = outcomes.begin();
  for (std::uint32_t node = 0; node < node_count(); ++node) {
    const auto it = std::find_if(from, outcomes.end(), [&](const NodeOutcome& outcome) {
      return sorted ? outcome.node >= node : outcome.node == node;
    });
    if (sorted) from = it;
    if (it == outcomes.end() || it->node != node) {
      f(node, NodeEnd::ok, static_cast<const NodeOutcome*>(nullptr));
    } else {
      f(node, it->kind == NodeOutcome::Kind::failed ? NodeEnd::failed : NodeEnd::skipped, &*it);
    }
  }
}

}  // namespace reprise

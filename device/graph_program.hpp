// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/access.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/device/command.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace reprise {

/// Bytes a node touches, by address. Failures inside a replay spread along them.
struct NodeTouch {
  ByteRange addresses;
  Access access = Access::none;
};

/// One node of a recording as a backend lowers it.
struct PlanNode {
  const Command& command;
  std::span<const std::uint32_t> after;  ///< Earlier nodes that must have finished first.
  std::string_view name;
};

/// The nodes of a recording in an order that respects PlanNode::after. They are told one by one, so
/// that what a recording keeps need not be kept again for its program.
///
/// Lifetime  What a PlanNode refers to lives as long as this.
/// Threads   Immutable, so any thread may ask.
class PlanNodes {
public:
  virtual std::uint32_t size() const noexcept = 0;
  virtual PlanNode node(std::uint32_t index) const noexcept = 0;
  /// Adds the bytes that the node touches to `out`. Throws std::bad_alloc.
  virtual void add_touches(std::uint32_t index, std::vector<NodeTouch>& out) const = 0;

protected:
  PlanNodes() = default;
  PlanNodes(PlanNodes&&) = default;
  PlanNodes& operator=(PlanNodes&&) = default;
  ~PlanNodes() = default;
};

/// An address inside a slot that the command of a node names: what a run whose slots lie elsewhere
/// fills in anew.
struct PlanPatch {
  static constexpr std::uint32_t count = ~std::uint32_t{0};

  std::uint32_t node = 0;
  std::uint32_t slot = 0;
  /// Which address: of a launch its offset in the argument block, or `count`; of a copy 0 for `to`,
  /// 1 for `from`; else 0.
  std::uint32_t at = 0;
  std::uint64_t offset = 0;  ///< From the first byte of the slot.
};

/// A recording, resolved. Everything it points to outlives the program made from it.
struct GraphPlan {
  const PlanNodes& nodes;
  std::string_view name;
  std::span<const PlanPatch> patches = {};  ///< By node.
};

/// A graph in the backend's executable form. Immutable; run by command::RunGraph, one run at a
/// time: the actor serialises the replays of one graph.
class GraphProgram {
public:
  virtual ~GraphProgram() = default;
  /// Bytes of host memory it takes.
  virtual std::uint64_t bytes() const noexcept = 0;
  /// The argument block of a launch was changed in place. Called as a command of the stream that
  /// the program runs on, so never during a run.
  virtual void arguments_changed(std::uint32_t /*node*/) noexcept {}
};

}  // namespace reprise

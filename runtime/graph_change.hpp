// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/buffer.hpp>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

/// What it takes to make a node of one graph that of another.
enum class NodeChange : std::uint8_t {
  same,                 ///< Nothing.
  updated,              ///< Other scalars of a launch: an update does it.
  needs_instantiation,  ///< Other bytes, another grid, kernel, pattern or function: a graph anew.
  refused,              ///< Another kind of work, or another place in the order.
};
/// The lower-case name of `change`, as in the enumeration.
std::string_view to_string(NodeChange change) noexcept;

struct NodeDiff {
  std::uint32_t node = 0;
  NodeChange change = NodeChange::same;
  std::string why;  ///< With the values; empty if it is the same.
};

/// What it takes to make one graph another: an answer for each node of the longer one.
struct GraphDiff {
  std::vector<NodeDiff> nodes;

  /// Whether an update is enough.
  bool can_update() const noexcept;
  bool is_same() const noexcept;
};
/// A line about each node that is not the same.
std::ostream& operator<<(std::ostream& out, const GraphDiff& diff);

/// A buffer that a clone of a graph has in the place of another one.
struct BufferChange {
  Buffer from;
  Buffer to;
};

}  // namespace reprise

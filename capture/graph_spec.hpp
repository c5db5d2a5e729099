// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/access.hpp>
#include <reprise/memory/error.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/device/command.hpp>
#include <reprise/device/kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

class Recording;

/// What a node of a spec does.
enum class SpecKind : std::uint8_t { kernel, copy, fill, host, empty, child };
/// The lower-case name of `kind`, as in the enumeration.
std::string_view to_string(SpecKind kind) noexcept;

/// Where the edges of a spec come from.
enum class SpecEdges : std::uint8_t {
  /// depend(), and bytes: of two nodes that conflict on a byte, the one that comes first in the
  /// order of depend() and else of adding runs first. Host nodes also keep their order among
  /// themselves, and one that names no bytes is a barrier.
  derived,
  /// depend() alone. Two nodes that conflict on a byte and have no path between them are an error.
  given,
};

/// A buffer of a spec: a size, and memory only when a graph is made from it.
struct SpecBuffer {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t element_bytes = 1;
};

/// What a node does with some bytes of a buffer.
struct SpecUse {
  std::uint32_t buffer = 0;
  ByteRange range;
  Access access = Access::none;
};

/// One node by hand.
struct SpecNode {
  SpecKind kind = SpecKind::empty;
  std::string name;  ///< Empty: the kernel's, or the kind's.
  /// kernel: one for each buffer parameter, in their order, then that of the count if it has one:
  /// 4 bytes that say how many blocks of the grid run; nothing is certainly written then. copy: the
  /// destination, the source. fill: the destination. host and child: all they touch.
  std::vector<SpecUse> uses;
  std::uint64_t cost = 1;  ///< In units of the caller's, for critical paths.
  SourceLocation where;

  KernelRef kernel;                        ///< kernel
  Grid grid{1};                            ///< kernel
  bool has_count = false;                  ///< kernel
  std::vector<std::byte> arguments;        ///< kernel: the block, without addresses.
  std::uint64_t pattern = 0;               ///< fill
  std::uint32_t pattern_bytes = 1;         ///< fill
  void (*call)(void* context) = nullptr;   ///< host
  std::shared_ptr<void> callee;            ///< host: the context of `call`. child: keeps the graph.
  GraphRepeat repeat = GraphRepeat::once;  ///< child; unless once, the first use is the condition.
  std::uint32_t at_most = 1;               ///< child, while_true
  bool is_barrier = false;  ///< child: it calls the host, so bytes do not tell its order.
};

/// What the edges of a spec say. Numbers are those of the nodes.
struct SpecOrder {
  /// Each node behind all that it depends on; of those that could come next, the first added.
  std::vector<std::uint32_t> order;
  /// By node, the nodes that must have finished first, rising; none that another one implies if
  /// edges are derived.
  std::vector<std::vector<std::uint32_t>> after;
  std::vector<std::uint32_t> level;  ///< By node, edges of the longest path to it.
  std::vector<std::uint64_t> start;  ///< By node, cost of the costliest path to it.
  std::vector<std::uint64_t> slack;  ///< By node, how much later it may start; 0 if critical.
  std::uint64_t cost = 0;            ///< Of the costliest path.
  std::vector<std::uint32_t> critical_path;  ///< A costliest path.

  std::size_t edge_count() const noexcept;
  /// How many nodes each level has.
  std::vector<std::uint32_t> widths() const;
  /// The nodes with those first that may wait least, else in order.
  std::vector<std::uint32_t> by_slack() const;
};

/// From where to where, in one order of the nodes, the bytes of a buffer are of use.
struct SpecLife {
  static constexpr std::uint32_t never = ~std::uint32_t{0};
  std::uint32_t first_write = never;  ///< A position in SpecOrder::order.
  std::uint32_t last_use = never;     ///< The last read or write: a rewrite counts, too.
  bool is_read = false;
};

/// A graph by hand: nodes, buffers that may still be placeholders, edges. It needs no device.
///
/// Nodes and buffers are numbered from 0 as they are added.
///
/// Lifetime  A value; copies are independent. Kernels and callees are kept.
/// Threads   As a vector: several may read, one alone may change.
/// Errors    Throws Failure, whose record names the node and whose message the value. Nothing has
///           changed then. A cycle is found when the order is asked for.
/// Units     Bytes.
class GraphSpec {
public:
  explicit GraphSpec(SpecEdges edges = SpecEdges::derived) noexcept : edges_(edges) {}

  /// Errc::invalid_argument   elements of no bytes, or a size that is no multiple of them
  std::uint32_t add_buffer(SpecBuffer buffer);
  /// Errc::out_of_range       no such buffer, or bytes beyond its end
  /// Errc::size_mismatch      two sides of a copy; a number of arguments or their block
  /// Errc::misaligned         bytes that are no whole elements or patterns
  /// Errc::invalid_argument   a copy onto itself, a pattern of 3 bytes, a host node that is empty,
  ///                          a loop that never runs
  /// Errc::empty_handle, empty_graph   a kernel node without a kernel, a child without a graph
  std::uint32_t add_node(SpecNode node);
  /// `node` runs after `on`. Twice is once.
  ///
  /// Errc::out_of_range       no such node
  /// Errc::invalid_argument   a node after itself
  void depend(std::uint32_t node, std::uint32_t on);
  /// Errc::out_of_range
  void set_name(std::uint32_t node, std::string_view name);

  SpecEdges edges() const noexcept { return edges_; }
  std::uint32_t node_count() const noexcept { return static_cast<std::uint32_t>(nodes_.size()); }
  std::uint32_t buffer_count() const noexcept {
    return static_cast<std::uint32_t>(buffers_.size());
  }
  /// Edges that were given.
  std::size_t edge_count() const noexcept { return edge_count_; }
  /// Errc::out_of_range
  const SpecNode& node(std::uint32_t index) const;
  const SpecBuffer& buffer(std::uint32_t index) const;
  /// Never empty.
  std::string_view name_of(std::uint32_t node) const;
  /// The nodes that `node` was made to follow, rising.
  std::span<const std::uint32_t> after(std::uint32_t node) const;
  /// The nodes that were made to follow `node`, rising. Looks at all nodes.
  std::vector<std::uint32_t> before(std::uint32_t node) const;
  /// Whether given edges lead from one node to the other, or they are the same.
  bool reaches(std::uint32_t from, std::uint32_t to) const;

  /// Checks the whole and puts it in order. Linear in nodes and edges, but for what bytes cost.
  ///
  /// Errc::invalid_argument   a cycle, named node by node; with given edges, two nodes that
  ///                          conflict on bytes and are not ordered
  SpecOrder order() const;
  /// By buffer, where its bytes are of use.
  std::vector<SpecLife> lives(const SpecOrder& order) const;

  /// The nodes and edges in the DOT language; edges that bytes ask for are dashed.
  std::string to_dot(std::string_view name = {}) const;
  /// A recording of the nodes without memory: it can be looked at, not run.
  std::shared_ptr<const Recording> seal(std::string_view name = {}) const;

private:
  friend std::ostream& operator<<(std::ostream& out, const GraphSpec& spec);

  std::string label_of(std::uint32_t node) const;
  void check(const SpecNode& node) const;
  void check_word(const SpecNode& node, const char* what, ByteRange at) const;
  void check_repeat(const SpecNode& node) const;
  void check_use(const SpecNode& node, std::size_t number, std::uint64_t unit) const;
  [[noreturn]] void reject(const SpecNode& node, Errc code, std::string_view message) const;
  std::vector<std::uint32_t> given_order() const;
  [[noreturn]] void report_cycle(const std::vector<std::uint32_t>& waiting_for) const;
  void derive(SpecOrder& order) const;
  void check_ordered(const SpecOrder& order) const;
  static void measure(SpecOrder& order, const std::vector<SpecNode>& nodes);

  SpecEdges edges_;
  std::vector<SpecNode> nodes_;
  std::vector<SpecBuffer> buffers_;
  std::vector<std::vector<std::uint32_t>> after_;  // Rising.
  std::size_t edge_count_ = 0;
};

/// The immediate dominator of each node: the last node that every path to it from the sources goes
/// through. SpecLife::never for nodes that share none.
std::vector<std::uint32_t> dominators(const SpecOrder& order);

/// A line about the whole and one about each node.
std::ostream& operator<<(std::ostream& out, const GraphSpec& spec);

}  // namespace reprise

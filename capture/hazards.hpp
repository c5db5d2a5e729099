// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>
#include <reprise/memory/range.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace reprise::detail {

/// The byte sets of a whole recording. Each list holds, for one allocation after the other in the
/// order of first use, disjoint and sorted ranges; ranges that meet are one.
struct MergedSets {
  std::vector<Touch> inputs;  ///< Read before an earlier node must have written them.
  std::vector<Touch> reads;
  std::vector<Touch> may_write;
  std::vector<Touch> must_write;
  std::vector<HoldRef> holds;  ///< Each allocation once.
  std::uint64_t touched_bytes = 0;
};

/// What bytes say about the nodes of a recording: which must run after which, and what the whole
/// reads and writes.
///
/// Per allocation it keeps segments: maximal runs of bytes with the same last writer, the same
/// readers since and the same part in the sets. A node cuts the segments at the ends of its ranges;
/// a write makes those it covers alike again, so that they fuse. Readers are cells of a list that
/// segments share when they are cut, so cutting copies nothing.
///
/// Edges are kept few: none to what a direct predecessor is ordered after, and at most
/// `most_direct` per node where leaving some out costs only concurrency (see keep_few()).
///
/// Threads   One thread.
/// Errors    Members that are not noexcept throw std::bad_alloc. After add() threw, the object is
///           of no more use.
class Hazards {
public:
  /// A node beyond this many direct predecessors is ordered after another such node instead.
  static constexpr std::size_t most_direct = 256;
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  enum class Order : std::uint8_t {
    bytes,    ///< As its bytes ask.
    chained,  ///< And after the chained node before it.
    barrier,  ///< After all before it, before all behind it.
  };

  /// The next node. `after` names earlier nodes that it follows whatever the bytes say. The
  /// allocations must outlive this object.
  void add(std::span<const Touch> touches, std::span<const std::uint32_t> after, Order order);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(ends_.size()); }
  std::size_t edge_count() const noexcept { return edges_.size(); }
  /// Runs of bytes that are told apart, what questions and further nodes cost.
  std::size_t segment_count() const noexcept;
  /// The nodes that must have finished before `node` starts, in rising order.
  std::span<const std::uint32_t> after(std::uint32_t node) const noexcept {
    const std::size_t begin = node == 0 ? 0 : ends_[node - 1];
    return {edges_.data() + begin, ends_[node] - begin};
  }
  /// Whether each byte may have been written by a node added so far.
  bool written(const Hold& hold, ByteRange range) const noexcept;
  MergedSets merged() const;

private:
  enum Set : std::uint8_t { input = 1, read = 2, may = 4, must = 8 };
  struct Segment {
    std::uint64_t end = 0;
    std::uint32_t writer = none;
    std::uint32_t readers = none;  // The newest cell of those who read since.
    std::uint8_t sets = 0;

    bool alike(const Segment& other) const noexcept {
      return writer == other.writer && readers == other.readers && sets == other.sets;
    }
  };
  struct Cell {
    std::uint32_t node;
    std::uint32_t next;
  };
  using Segments = std::map<std::uint64_t, Segment>;
  struct Allocation {
    Hold* hold;
    Segments segments;
  };

  Segments& segments_of(Hold& hold);
  template <class F>
  static void each_segment(Segments& segments, ByteRange range, F&& f);
  static void fuse(Segments& segments, ByteRange range) noexcept;

  void note_read(Segment& segment, std::uint32_t node);
  void note_write(Segment& segment, std::uint32_t node, bool whole);
  void follow_all(std::uint32_t node);
  void drop_implied(std::uint32_t node);
  void keep_few(std::uint32_t node);
  void cover(std::uint32_t node);
  static void append(std::vector<Touch>& list, const Allocation& allocation, Set set,
                     Access access);

  std::vector<Allocation> allocations_;
  std::unordered_map<const Hold*, std::size_t> index_;
  std::vector<Cell> cells_;

  std::vector<std::uint32_t> edges_;
  std::vector<std::size_t> ends_;      // Where each node's edges end.
  std::vector<std::uint32_t> before_;  // Of the node being added, falling order.
  std::vector<std::uint8_t> has_successor_;
  std::vector<std::uint32_t> implied_by_;  // The last node for which an edge to it was implied.
  std::uint32_t barrier_ = none;
  std::uint32_t chained_ = none;

  std::uint32_t wide_ = none;          // The last node with more than most_direct edges.
  std::vector<std::uint8_t> covered_;  // It and what it is ordered after.
  std::vector<std::uint32_t> stack_;
};

}  // namespace reprise::detail

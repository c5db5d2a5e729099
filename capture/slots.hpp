// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/access.hpp>
#include <reprise/memory/error.hpp>
#include <reprise/memory/hold.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/device/graph_program.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace reprise {

/// A named buffer argument of a recording, as a window declares it.
struct SlotSpec {
  std::string name;
  HoldRef hold;
  ByteRange range;
  const std::type_info* element = nullptr;  ///< Of an Array; null: just bytes.
  std::uint32_t alignment = 1;              ///< What the element type needs.
  std::vector<HoldRef> copies = {};         ///< Further memory of its size, to rotate over.
};

namespace detail {

/// A slot as it was sealed.
struct RecordedSlot : SlotSpec {
  Access access = Access::none;  ///< Of all nodes together.
  bool is_input = false;         ///< Some of it is read before the graph must have written it.
  bool is_opaque = false;        ///< Some node uses it in a way that nobody can look into.
  std::uint64_t owner = 0;       ///< Of claims that replays leave on what is bound to it.
};

/// A part of a byte set that lies wholly in one slot, or outside of all.
struct SlotTouch {
  Touch touch;             ///< As recorded.
  std::uint32_t slot = 0;  ///< SlotTable::none: outside.

  /// Its bytes when the slot begins at `begin`.
  ByteRange moved_to(std::uint64_t begin, const RecordedSlot& from) const noexcept {
    const std::uint64_t at = begin + (touch.range.begin - from.range.begin);
    return {at, at + touch.range.size()};
  }
};

/// The slots of a recording: which of its bytes may lie elsewhere in one run, and what else must
/// then stay apart from them.
///
/// Lifetime  Holds the memory of its slots.
/// Threads   Immutable once it was made.
class SlotTable {
public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// Takes the slots of `nodes`, those of a recorder; `next_id` tells a number that is never used
  /// again. Throws std::bad_alloc.
  ///
  /// Errc::slot_overlap      a node names bytes inside and outside of a slot at once
  /// Errc::invalid_argument  a slot with copies is not only read, nor only written and whole
  /// Errc::unsupported       a slot with copies is used by an opaque node
  template <class Nodes>
  Result<void> take(std::span<const SlotSpec> specs, const Nodes& nodes,
                    std::span<const Touch> inputs, std::span<const Touch> must_write,
                    std::uint64_t (*next_id)()) {
    for (const SlotSpec& spec : specs) {
      slots_.push_back({spec});
      slots_.back().owner = next_id();
    }
    for (std::uint32_t i = 0; i < nodes.size() && !specs.empty(); ++i) {
      const auto added = add_node(nodes[i].command, i, nodes[i].touched());
      if (!added) return added;
    }
    finish(inputs);
    return check_copies(must_write);
  }

  bool empty() const noexcept { return slots_.empty(); }
  std::span<const RecordedSlot> slots() const noexcept { return slots_; }
  std::span<const PlanPatch> patches() const noexcept { return patches_; }
  /// `none` if there is no such slot.
  std::uint32_t find(std::string_view name) const noexcept;
  /// The slot that `range` lies in.
  std::uint32_t slot_of(const Hold& hold, ByteRange range) const noexcept;
  /// Whether a node names any of these bytes other than as a part of a slot.
  bool overlaps_fixed(const Hold& hold, ByteRange range) const noexcept;
  /// `touches`, cut where slots begin and end. Throws std::bad_alloc.
  std::vector<SlotTouch> split(std::span<const Touch> touches) const;

private:
  struct Fixed {
    const Hold* hold;
    ByteRange range;
  };

  Result<void> add_node(const Command& command, std::uint32_t index,
                        std::span<const Touch> touches);
  void add_patch(std::uint32_t node, std::uint32_t at, std::uint64_t address, std::uint64_t bytes,
                 std::uint32_t alignment);
  void add_launch(const Command& command, std::uint32_t index);
  void finish(std::span<const Touch> inputs);
  Result<void> check_copies(std::span<const Touch> must_write) const noexcept;

  std::vector<RecordedSlot> slots_;
  std::vector<PlanPatch> patches_;
  std::vector<Fixed> fixed_;  // By hold; of one, disjoint and rising.
};

}  // namespace detail
}  // namespace reprise

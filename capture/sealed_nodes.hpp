// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/hold.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/device/command.hpp>
#include <reprise/device/graph_program.hpp>
#include <reprise/device/kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace reprise {

namespace detail {

class Hazards;
class NodeStore;

/// An entry of a byte set, as a recording keeps it.
struct PackedTouch {
  ByteRange range;
  std::uint32_t hold = 0;  ///< Its number in the recording.
  Access access = Access::none;
};

}  // namespace detail

/// The byte sets of one node of a recording, told one by one. A view.
class NodeTouches {
public:
  class Iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Touch;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Touch;

    Iterator(const detail::PackedTouch* at, const HoldRef* holds) noexcept
        : at_(at), holds_(holds) {}
    Touch operator*() const noexcept { return {holds_[at_->hold], at_->range, at_->access}; }
    Iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    Iterator operator++(int) noexcept { return {at_++, holds_}; }
    friend bool operator==(const Iterator&, const Iterator&) noexcept = default;

  private:
    const detail::PackedTouch* at_;
    const HoldRef* holds_;
  };

  NodeTouches(std::span<const detail::PackedTouch> touches, const HoldRef* holds) noexcept
      : touches_(touches), holds_(holds) {}
  std::size_t size() const noexcept { return touches_.size(); }
  Touch operator[](std::size_t i) const noexcept { return *Iterator(&touches_[i], holds_); }
  Iterator begin() const noexcept { return {touches_.data(), holds_}; }
  Iterator end() const noexcept { return {touches_.data() + touches_.size(), holds_}; }

private:
  std::span<const detail::PackedTouch> touches_;
  const HoldRef* holds_;
};

namespace detail {

/// The nodes of a recording at rest: 80 bytes for each, its argument block, 24 bytes for each entry
/// of its byte sets and 4 for each edge. Allocations, kernels and names of files are kept once.
///
/// Lifetime  Holds the kernels, argument blocks and names; after keep() what else the nodes need.
///           The list of holds is the recording's and outlives it.
/// Threads   Immutable once it was made.
class SealedNodes final : public PlanNodes {
public:
  SealedNodes() noexcept = default;
  /// Copies what `store` holds. All its allocations are in `holds`. Throws std::bad_alloc.
  SealedNodes(const NodeStore& store, const Hazards& hazards, std::span<const HoldRef> holds);

  /// Takes over what the nodes of `store` keep alive.
  void keep(NodeStore& store) noexcept;

  std::uint32_t size() const noexcept override { return static_cast<std::uint32_t>(nodes_.size()); }
  std::size_t edge_count() const noexcept { return edges_.size(); }
  std::uint64_t retained_bytes() const noexcept { return retained_bytes_; }

  PlanNode node(std::uint32_t index) const noexcept override;
  void add_touches(std::uint32_t index, std::vector<NodeTouch>& out) const override;
  NodeTouches touches(std::uint32_t index) const noexcept;
  SourceLocation where(std::uint32_t index) const noexcept;

private:
  class Packing;

  struct Node {
    Command command;
    std::uint32_t line;
    std::uint32_t file;         // In files_.
    std::uint32_t touches_end;  // They begin where those of the node before it end,
    std::uint32_t edges_end;    // and so do the edges.
  };
  /// A name that is not the kernel's.
  struct Name {
    std::uint32_t node;
    std::uint32_t end;  // In letters_; it begins where the name before it ends.
  };

  std::string_view name_of(std::uint32_t index) const noexcept;
  std::span<const PackedTouch> touches_of(std::uint32_t index) const noexcept;

  std::vector<Node> nodes_;
  std::vector<PackedTouch> touches_;
  std::vector<std::uint32_t> edges_;
  std::unique_ptr<std::byte[]> arguments_;
  std::vector<Name> names_;  // By node.
  std::vector<char> letters_;
  std::vector<const char*> files_;
  std::vector<KernelRef> kernels_;
  std::span<const HoldRef> holds_;
  std::vector<std::shared_ptr<const void>> retained_;
  std::uint64_t retained_bytes_ = 0;
};

}  // namespace detail
}  // namespace reprise

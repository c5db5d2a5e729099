// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/block.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace reprise::detail {

/// What a request needs of a block.
struct Need {
  std::uint64_t asked = 0;
  std::uint64_t size = 0;       ///< Rounded up to the pool's alignment.
  std::uint64_t alignment = 0;  ///< At least the pool's.
  std::uint64_t padded = 0;     ///< A block of this size fits wherever it starts.

  bool fits(std::uint64_t begin, std::uint64_t end) const noexcept {
    return align_up(begin, alignment) + size <= end;
  }
};

/// Blocks by size: lists of classes, 2^column_bits to an octave, found through two levels of
/// bitmaps. Constant time. A block of a class above the one that `size` falls into always fits;
/// of its own class only the first few are tried, which serves the usual case, a size that comes
/// back again and again.
///
/// Units     Sizes from 2^column_bits to below 2^rows bytes.
template <unsigned column_bits>
class SizeIndex {
public:
  static constexpr unsigned rows = 48;
  static constexpr unsigned columns = 1u << column_bits;
  static constexpr int tries = 4;

  bool empty() const noexcept { return rows_in_use_ == 0; }

  void insert(Block& block) noexcept {
    const Class at = class_of(block.size_);
    Block*& head = heads_[at.row][at.column];
    block.before_ = nullptr;
    block.after_ = head;
    if (head != nullptr) {
      head->before_ = &block;
    }
    head = &block;
    rows_in_use_ |= std::uint64_t{1} << at.row;
    columns_in_use_[at.row] |= 1u << at.column;
  }

  void remove(Block& block) noexcept {
    if (block.after_ != nullptr) {
      block.after_->before_ = block.before_;
    }
    if (block.before_ != nullptr) {
      block.before_->after_ = block.after_;
      return;
    }
    const Class at = class_of(block.size_);
    heads_[at.row][at.column] = block.after_;
    if (block.after_ == nullptr && (columns_in_use_[at.row] &= ~(1u << at.column)) == 0) {
      rows_in_use_ &= ~(std::uint64_t{1} << at.row);
    }
  }

  /// A block that fits, or null; may miss one whose class is that of the request.
  Block* find(const Need& need) const noexcept {
    const Class own = class_of(need.size);
    Block* block = heads_[own.row][own.column];
    for (int i = 0; i < tries && block != nullptr; ++i, block = block->after_) {
      if (need.fits(block->address_, block->end())) {
        return block;
      }
    }
    const std::uint64_t step = std::uint64_t{1} << (std::bit_width(need.padded) - 1 - column_bits);
    return first_from(class_of(need.padded + step - 1));
  }

  /// The same without a miss, by walking every class that may hold one.
  Block* find_any(const Need& need) const noexcept {
    Block* found = nullptr;
    for_each_from(need.size, [&](Block& block) {
      if (!need.fits(block.address_, block.end())) {
        return true;
      }
      found = &block;
      return false;
    });
    return found;
  }

  /// Calls `visit` with every block of the class of `size` and above, smaller classes first, until
  /// it answers false. `visit` may remove the block it is given and insert smaller ones.
  template <class Visit>
  void for_each_from(std::uint64_t size, Visit&& visit) const {
    const Class start = class_of(size);
    std::uint64_t in_use = rows_in_use_ & (~std::uint64_t{0} << start.row);
    for (; in_use != 0; in_use &= in_use - 1) {
      const auto row = static_cast<unsigned>(std::countr_zero(in_use));
      std::uint32_t in_row = columns_in_use_[row];
      in_row &= row == start.row ? ~0u << start.column : ~0u;
      for (; in_row != 0; in_row &= in_row - 1) {
        for (Block* block = heads_[row][std::countr_zero(in_row)]; block != nullptr;) {
          Block* const next = block->after_;
          if (!visit(*block)) {
            return;
          }
          block = next;
        }
      }
    }
  }

private:
  struct Class {
    unsigned row;
    unsigned column;
  };
  static Class class_of(std::uint64_t size) noexcept {
    const unsigned row = static_cast<unsigned>(std::bit_width(size)) - 1;
    return {row, static_cast<unsigned>(size >> (row - column_bits)) & (columns - 1)};
  }
  // The first block of the first class from `at` on that has any.
  Block* first_from(Class at) const noexcept {
    if (at.row >= rows) {
      return nullptr;
    }
    std::uint32_t in_row = columns_in_use_[at.row] & (~0u << at.column);
    if (in_row == 0) {
      const std::uint64_t above = rows_in_use_ & (~std::uint64_t{1} << at.row);
      if (above == 0) {
        return nullptr;
      }
      at.row = static_cast<unsigned>(std::countr_zero(above));
      in_row = columns_in_use_[at.row];
    }
    return heads_[at.row][std::countr_zero(in_row)];
  }

  std::uint64_t rows_in_use_ = 0;
  std::uint32_t columns_in_use_[rows] = {};
  Block* heads_[rows][columns] = {};
};

/// Where block records come from. Chunks are kept until the slab goes.
class BlockSlab {
public:
  /// Makes sure that the next `count` calls of make() succeed; false without host memory.
  [[nodiscard]] bool reserve(std::size_t count) noexcept {
    return count <= spare_count_ || grow(count);
  }

  Block* make() noexcept {
    REPRISE_CHECK(spare_ != nullptr, "block records are reserved before they are made");
    Block* const made = spare_;
    spare_ = std::exchange(made->right_, nullptr);
    --spare_count_;
    return made;
  }

  void put(Block* block) noexcept {
    block->state_ = BlockState::spare;
    block->right_ = spare_;
    spare_ = block;
    ++spare_count_;
  }

private:
  static constexpr std::size_t chunk_blocks = 128;

  bool grow(std::size_t count) noexcept;

  Block* spare_ = nullptr;
  std::size_t spare_count_ = 0;
  std::vector<std::unique_ptr<Block[]>> chunks_;
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/block.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
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
/// bitmaps. Constant time. A block of a class above the one that `size` falls into always fits; of
/// its own class only the first few are tried, which serves the usual case, a size that comes back
/// again and again.
///
/// Units     Sizes from 2^column_bits to below 2^rows bytes.
template <unsigned column_bits>
class SizeIndex {
public:
  static constexpr unsigned rows = 48;
  static constexpr unsigned columns = 1u << column_bits;
  static constexpr int tries = 3;

  bool empty() const noexcept { return rows_in_use_ == 0; }

  void insert(PoolBlock& block) noexcept {
    const unsigned at = class_of(block.size_);
    PoolBlock* const head = heads_[at];
    block.before_ = nullptr;
    block.after_ = head;
    heads_[at] = &block;
    if (head != nullptr) {
      head->before_ = &block;
    } else {
      columns_in_use_[row_of(at)] |= 1u << column_of(at);
      rows_in_use_ |= std::uint64_t{1} << row_of(at);
    }
  }

  void remove(PoolBlock& block) noexcept {
    PoolBlock* const after = block.after_;
    if (block.before_ != nullptr) {
      block.before_->after_ = after;
      if (after != nullptr) after->before_ = block.before_;
    } else {
      remove_first(class_of(block.size_), after);
    }
  }

  /// Removes and answers a block of `size` bytes or more, or null; may miss one whose class is that
  /// of the request.
  PoolBlock* take(std::uint64_t size) noexcept {
    unsigned at = class_of(size);
    PoolBlock* block = heads_[at];
    if (block != nullptr && block->size_ < size) {
      block = block->after_;
      for (int i = 1; i < tries && block != nullptr; ++i, block = block->after_) {
        if (block->size_ >= size) {
          remove(*block);
          return block;
        }
      }
      block = nullptr;
    }
    if (block == nullptr) {
      if (!go_above(at, size)) return nullptr;
      block = heads_[at];
    }
    remove_first(at, block->after_);
    return block;
  }

  /// A block that fits, or null; may miss one as take() does.
  PoolBlock* find(const Need& need) const noexcept {
    PoolBlock* block = heads_[class_of(need.size)];
    for (int i = 0; block != nullptr && i < tries; ++i, block = block->after_) {
      if (need.fits(block->address_, block->end())) return block;
    }
    unsigned at = class_of(need.padded);
    return go_above(at, need.padded) ? heads_[at] : nullptr;
  }

  /// The same without a miss, by walking every class that may hold one.
  PoolBlock* find_any(const Need& need) const noexcept {
    PoolBlock* found = nullptr;
    for_each_from(need.size, [&](PoolBlock& block) {
      if (!need.fits(block.address_, block.end())) return true;
      found = &block;
      return false;
    });
    return found;
  }

  /// Calls `visit` with every block of the class of `size` and above, smaller classes first, until
  /// it answers false. `visit` may remove the block it is given and insert smaller ones.
  template <class Visit>
  void for_each_from(std::uint64_t size, Visit&& visit) const {
    const unsigned start = class_of(size);
    std::uint64_t in_use = rows_in_use_ & (~std::uint64_t{0} << row_of(start));
    for (; in_use != 0; in_use &= in_use - 1) {
      const auto row = lowest(in_use);
      std::uint32_t in_row = columns_in_use_[row];
      in_row &= row == row_of(start) ? ~0u << column_of(start) : ~0u;
      for (; in_row != 0; in_row &= in_row - 1) {
        const auto column = lowest(in_row);
        for (PoolBlock* block = heads_[row << column_bits | column]; block != nullptr;) {
          PoolBlock* const next = block->after_;
          if (!visit(*block)) return;
          block = next;
        }
      }
    }
  }

private:
  // Bits of a number other than 0; the standard functions would test for it.
  static unsigned lowest(std::uint64_t bits) noexcept {
    return static_cast<unsigned>(__builtin_ctzll(bits));
  }
  static unsigned highest(std::uint64_t bits) noexcept {
    return 63u ^ static_cast<unsigned>(__builtin_clzll(bits));
  }

  // Classes are numbered through all rows.
  static unsigned class_of(std::uint64_t size) noexcept {
    const unsigned row = highest(size);
    return (row << column_bits) + static_cast<unsigned>(size >> (row - column_bits)) - columns;
  }
  static unsigned row_of(unsigned at) noexcept { return at >> column_bits; }
  static unsigned column_of(unsigned at) noexcept { return at & (columns - 1); }

  // Goes from the class of `size` to the first one that has blocks all of which fit; false if there
  // is none. Those of the class of `size` do if it begins with `size`.
  bool go_above(unsigned& at, std::uint64_t size) const noexcept {
    at += (size & ((std::uint64_t{1} << (row_of(at) - column_bits)) - 1)) != 0;
    unsigned row = row_of(at);
    std::uint32_t in_row = columns_in_use_[row] & (~0u << column_of(at));
    if (in_row == 0) {
      const std::uint64_t above = rows_in_use_ & (~std::uint64_t{1} << row);
      if (above == 0) return false;
      row = lowest(above);
      in_row = columns_in_use_[row];
    }
    at = row << column_bits | lowest(in_row);
    return true;
  }

  // Removes the first block of a class, which `after` follows.
  void remove_first(unsigned at, PoolBlock* after) noexcept {
    heads_[at] = after;
    if (after != nullptr) {
      after->before_ = nullptr;
    } else if ((columns_in_use_[row_of(at)] &= ~(1u << column_of(at))) == 0) {
      rows_in_use_ &= ~(std::uint64_t{1} << row_of(at));
    }
  }

  std::uint64_t rows_in_use_ = 0;
  std::uint32_t columns_in_use_[rows + 1] =
      {};  // One row more, for what lies above the last class.
  PoolBlock* heads_[rows * columns] = {};
};

/// Where block records come from. Chunks are kept until the slab goes.
class BlockSlab {
public:
  /// Makes sure that the next `count` calls of make() succeed; false without host memory.
  [[nodiscard]] bool reserve(std::size_t count) noexcept {
    return count <= spare_count_ || grow(count);
  }

  /// True when one record is at hand.
  bool ready() const noexcept { return spare_ != nullptr; }

  /// A record whose links are to be set.
  PoolBlock* make() noexcept {
    REPRISE_CHECK(spare_ != nullptr, "block records are reserved before they are made");
    PoolBlock* const made = spare_;
    spare_ = made->right_;
    --spare_count_;
    return made;
  }

  void put(PoolBlock* block) noexcept {
    block->state_ = BlockState::spare;
    block->right_ = spare_;
    spare_ = block;
    ++spare_count_;
  }

private:
  static constexpr std::size_t chunk_blocks = 128;

  bool grow(std::size_t count) noexcept;

  PoolBlock* spare_ = nullptr;
  std::size_t spare_count_ = 0;
  std::vector<std::unique_ptr<PoolBlock[]>> chunks_;
};

}  // namespace reprise::detail

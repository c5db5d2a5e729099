// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/range.hpp>

#include <cstdint>
#include <map>
#include <utility>

namespace reprise {

class PoolBlock;
class Pool;

/// A counted pin on a range of a block, made by Pool::guard(). While any guard on a block lives,
/// the block is not carved again even if its owner releases it, and its pages stay mapped where
/// they are; live buffers under it stay writable.
///
/// Lifetime  Dropped before its pool. Whoever drops the last guard of a released block vouches that
///           its own uses of the bytes are finished or were named in release().
/// Threads   As the pool.
class [[nodiscard]] Guard {
public:
  /// Pins nothing.
  Guard() noexcept = default;
  Guard(Guard&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), block_(other.block_), range_(other.range_) {}
  Guard& operator=(Guard&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      block_ = other.block_;
      range_ = other.range_;
    }
    return *this;
  }
  ~Guard() { reset(); }

  /// Lets go; what waited for this guard alone returns to the pool.
  void reset() noexcept;

  explicit operator bool() const noexcept { return pool_ != nullptr; }
  /// The pinned bytes, counted from the start of the block.
  ByteRange range() const noexcept { return range_; }

private:
  friend class Pool;
  Guard(Pool& pool, PoolBlock& block, ByteRange range) noexcept
      : pool_(&pool), block_(&block), range_(range) {}

  Pool* pool_ = nullptr;
  PoolBlock* block_ = nullptr;
  ByteRange range_;
};

namespace detail {

/// How many ranges cover each byte, and how many bytes are covered at all. Adding and removing
/// costs a look-up plus the boundaries inside the range; only adding needs memory.
class CoverMap {
public:
  /// False without host memory; nothing has changed then.
  [[nodiscard]] bool add(ByteRange range) noexcept;
  void remove(ByteRange range) noexcept;

  /// Bytes covered at least once. Overlaps count once.
  std::uint64_t covered() const noexcept { return covered_; }
  bool empty() const noexcept { return boundaries_.empty(); }

  /// Both counted anew, for audits: the bytes covered, and the ranges added and not removed.
  struct Count {
    std::uint64_t covered = 0;
    std::uint64_t ranges = 0;
  };
  Count count() const noexcept;

private:
  struct Boundary {
    std::uint32_t depth = 0;  // Ranges that cover the bytes from here to the next boundary.
    std::uint32_t refs = 0;   // Ranges that begin or end here.
  };
  using Boundaries = std::map<std::uint64_t, Boundary>;

  Boundaries::iterator boundary(std::uint64_t at);
  void drop_ref(Boundaries::iterator at) noexcept;

  Boundaries boundaries_;
  std::uint64_t covered_ = 0;
};

}  // namespace detail
}  // namespace reprise

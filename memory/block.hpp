// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/frontier.hpp>
#include <reprise/memory/range.hpp>

#include <cstdint>

namespace reprise {

class Pool;

namespace detail {
class BlockSlab;
template <unsigned>
class SizeIndex;
class PoolAudit;
}  // namespace detail

/// Where the bytes of a block stand.
enum class BlockState : std::uint8_t {
  spare,    ///< In the slab.
  live,     ///< Owned by whom it was granted to.
  pinned,   ///< Released by its owner, still under a guard.
  waiting,  ///< Released; its last uses are on at most three streams and not observed finished.
  crowded,  ///< Released; its last uses are on more streams than that.
  idle,     ///< Mapped, finished, unguarded: anyone's.
  mapping,  ///< Set aside while its pages are being mapped.
  hole,     ///< Whole pages that are not mapped.
};

/// The record of one block of a Pool: what allocate() hands out and release() takes back. A handle
/// to it saves the look-up by address.
///
/// Lifetime  Belongs to the pool; valid from allocate() to release().
/// Threads   As the pool.
class alignas(64) PoolBlock {
public:
  PoolBlock() noexcept = default;

  /// The device address of the first byte.
  std::uint64_t address() const noexcept { return address_; }
  /// The bytes that were asked for.
  std::uint64_t size() const noexcept { return size_ - padding_; }
  /// The bytes taken, padding included.
  std::uint64_t rounded_size() const noexcept { return size_; }
  /// What earlier owners may still be doing to these bytes. The asking stream is ordered behind
  /// all of it once it has waited as its Grant says; any *other* stream that is given the block
  /// must wait for these points itself, or for a later command of the asking stream.
  const Frontier& earlier() const noexcept { return frontier_; }
  bool guarded() const noexcept { return guards_ != 0; }
  BlockState state() const noexcept { return state_; }

  /// What the owner wants to find again by walking Pool::blocks(). Kept while the block is live;
  /// what an earlier owner noted may be there until then.
  void note_owner(void* owner) noexcept { owner_ = owner; }
  void* noted_owner() const noexcept { return is(BlockState::live) ? owner_ : nullptr; }

private:
  friend class Pool;
  friend class detail::BlockSlab;
  template <unsigned>
  friend class detail::SizeIndex;
  friend class detail::PoolAudit;

  std::uint64_t end() const noexcept { return address_ + size_; }
  bool is(BlockState state) const noexcept { return state_ == state; }

  // First line: what an allocation out of finished memory touches.
  std::uint64_t address_ = 0;
  std::uint64_t size_ = 0;
  PoolBlock* left_ = nullptr;  // Neighbours in the address range.
  PoolBlock* right_ = nullptr;
  PoolBlock* before_ = nullptr;  // Neighbours in a list of a SizeIndex.
  PoolBlock* after_ = nullptr;
  std::uint64_t padding_ = 0;
  std::uint32_t guards_ = 0;
  BlockState state_ = BlockState::spare;
  bool crowded_ = false;  // Its last uses are noted in a crowd, not in frontier_.
  // Second line: for blocks that wait. Live and pinned ones keep earlier() in frontier_.
  Frontier frontier_;
  PoolBlock* older_ = nullptr;  // Neighbours in the queue of the stream of frontier_[0].
  union {
    PoolBlock* newer_ = nullptr;
    void* owner_;  // Of a live block, which is in no queue.
  };
};

static_assert(sizeof(PoolBlock) == 128);

}  // namespace reprise

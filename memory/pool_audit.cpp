// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/pool.hpp>

namespace reprise {
namespace detail {

/// One walk over a pool, adding up what its counters claim.
class PoolAudit {
public:
  explicit PoolAudit(const Pool& pool) noexcept : pool_(pool) {}

  static const PoolBlock* leftmost(const Pool& pool) noexcept {
    const PoolBlock* first = pool.last_;
    while (first->left_ != nullptr) {
      first = first->left_;
    }
    return first;
  }

  static std::vector<PoolPiece> pieces(const Pool& pool) {
    std::vector<PoolPiece> pieces;
    for (const PoolBlock* block = leftmost(pool); block != nullptr; block = block->right_) {
      const std::uint64_t begin = block->address_ - pool.base_;
      pieces.push_back({{begin, begin + block->size_}, block->state_, block->guarded()});
    }
    return pieces;
  }

  void run() {
    walk_addresses();
    walk_queues();
    walk_crowds();
    compare();
  }

private:
  using State = BlockState;

  void walk_addresses() {
    const PoolBlock* first = leftmost(pool_);
    REPRISE_CHECK(first->address_ == pool_.base_, "the first block starts at the base");
    for (const PoolBlock* block = first; block != nullptr; block = block->right_) {
      const PoolBlock* const right = block->right_;
      REPRISE_CHECK(right == nullptr || (right->left_ == block && right->address_ == block->end()),
                    "I14: blocks neither overlap nor leave gaps");
      REPRISE_CHECK(right != nullptr || block == pool_.last_, "the last block is known");
      REPRISE_CHECK(block->size_ > 0 && block->address_ % pool_.alignment_ == 0 &&
                        block->size_ % pool_.alignment_ == 0,
                    "I14: blocks are aligned");
      check_block(*block);
      if (right == nullptr) {
        REPRISE_CHECK(block->end() == pool_.base_ + pool_.source_.address_space(),
                      "the last block ends with the address space");
      }
    }
  }

  void check_block(const PoolBlock& block) {
    const bool joinable = block.is(State::idle) || block.is(State::hole);
    REPRISE_CHECK(!joinable || block.right_ == nullptr || !block.right_->is(block.state_),
                  "free neighbours are joined");
    REPRISE_CHECK(block.frontier_.capacity() == Frontier::inline_points,
                  "a block's frontier is held in place");
    REPRISE_CHECK(block.guards_ == 0 || block.is(State::live) || block.is(State::pinned),
                  "I17: a guarded block is carved by nobody");
    guards_ += block.guards_;
    switch (block.state_) {
      case State::live:
        ++blocks_;
        in_use_ += block.size();
        padding_ += block.padding_;
        break;
      case State::pinned:
        REPRISE_CHECK(block.guards_ > 0, "I18: a pinned block has a guard");
        waiting_ += block.size_;
        break;
      case State::waiting:
        ++waiting_blocks_;
        REPRISE_CHECK(!block.frontier_.empty(), "a waiting block waits for something");
        waiting_ += block.size_;
        break;
      case State::crowded:
        ++crowded_blocks_;
        waiting_ += block.size_;
        break;
      case State::idle:
        REPRISE_CHECK(block.frontier_.empty() && !block.crowded_, "I16: idle bytes are finished");
        REPRISE_CHECK(is_listed(pool_.idle_, block), "idle blocks are indexed");
        idle_ += block.size_;
        break;
      case State::mapping: set_aside_ += block.size_; [[fallthrough]];
      case State::hole:
        REPRISE_CHECK((block.address_ - pool_.base_) % pool_.page_size_ == 0 &&
                          block.size_ % pool_.page_size_ == 0,
                      "holes are whole pages");
        REPRISE_CHECK(block.is(State::mapping) || is_listed(pool_.holes_, block),
                      "holes are indexed");
        break;
      case State::spare: REPRISE_CHECK(false, "a spare record is in no range");
    }
  }

  template <unsigned bits>
  static bool is_listed(const SizeIndex<bits>& index, const PoolBlock& wanted) {
    bool found = false;
    index.for_each_from(wanted.size_, [&](const PoolBlock& block) {
      found = &block == &wanted;
      return !found;
    });
    return found;
  }

  void walk_queues() {
    for (StreamIndex stream = 0; stream < Pool::max_streams; ++stream) {
      const Pool::Lane& lane = pool_.lanes_[stream];
      const PoolBlock* last = nullptr;
      for (const PoolBlock* block = lane.oldest; block != nullptr; block = block->newer_) {
        const StreamPoint point = block->frontier_[0];
        REPRISE_CHECK(block->is(State::waiting) && point.stream == stream && block->older_ == last,
                      "a queue holds what waits for its stream");
        REPRISE_CHECK(last == nullptr || last->frontier_[0].position <= point.position,
                      "a queue is ordered by position");
        REPRISE_CHECK(is_listed(block->frontier_.size() == 1 ? lane.by_size : pool_.mixed_, *block),
                      "waiting blocks are indexed");
        last = block;
        ++queued_blocks_;
      }
      REPRISE_CHECK(lane.newest == last, "a queue ends with its newest block");
      const bool marked = (pool_.lanes_waiting_ >> stream & 1) != 0;
      REPRISE_CHECK(marked == (lane.oldest != nullptr), "queues in use are marked");
    }
    REPRISE_CHECK(queued_blocks_ == waiting_blocks_, "every waiting block is in one queue");
  }

  void walk_crowds() {
    std::uint64_t members = 0;
    for (const Pool::Crowd& crowd : pool_.crowds_) {
      for (const PoolBlock* block = crowd.first; block != nullptr; block = block->after_) {
        REPRISE_CHECK(block->is(State::crowded), "a crowd holds crowded blocks");
        ++members;
      }
    }
    REPRISE_CHECK(members == crowded_blocks_, "every crowded block is in one crowd");
  }

  void compare() const {
    const PoolStats& stats = pool_.stats_;
    REPRISE_CHECK(stats.blocks == blocks_, "I15: blocks");
    REPRISE_CHECK(stats.in_use == in_use_, "I15: in use");
    REPRISE_CHECK(stats.padding == padding_, "I15: padding");
    REPRISE_CHECK(stats.waiting == waiting_, "I15: waiting");
    REPRISE_CHECK(stats.reserved == in_use_ + padding_ + waiting_ + idle_, "I15: reserved");
    const CoverMap::Count guards = pool_.guards_.count();
    REPRISE_CHECK(stats.guarded == guards.covered && guards.covered == pool_.guards_.covered(),
                  "I15: guarded");
    REPRISE_CHECK(guards.ranges == guards_, "I18: guard counts equal the holders");
    REPRISE_CHECK(stats.peak_reserved >= stats.reserved, "I15: the peak is the peak");
    REPRISE_CHECK(stats.reserved + set_aside_ <= pool_.limit_, "the limit is kept");
    REPRISE_CHECK(pool_.set_aside_ == set_aside_, "pages set aside are counted");
  }

  const Pool& pool_;
  std::uint64_t blocks_ = 0;
  std::uint64_t in_use_ = 0;
  std::uint64_t padding_ = 0;
  std::uint64_t waiting_ = 0;
  std::uint64_t idle_ = 0;
  std::uint64_t set_aside_ = 0;
  std::uint64_t guards_ = 0;
  std::uint64_t waiting_blocks_ = 0;
  std::uint64_t queued_blocks_ = 0;
  std::uint64_t crowded_blocks_ = 0;
};

}  // namespace detail

void Pool::audit() const {
  detail::PoolAudit(*this).run();
}

std::vector<const PoolBlock*> Pool::blocks() const {
  std::vector<const PoolBlock*> blocks;
  for (const PoolBlock* at = detail::PoolAudit::leftmost(*this); at != nullptr; at = at->right_) {
    blocks.push_back(at);
  }
  return blocks;
}

std::vector<PoolPiece> Pool::layout() const {
  return detail::PoolAudit::pieces(*this);
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/pool.hpp>

#include <bit>
#include <utility>

// A released block whose last uses are unfinished hangs in the queue of one stream, that of its
// first point, ordered by that point's position; when the point is observed finished the block
// moves to the queue of its next point, or is free. So collecting looks at the oldest block of each
// queue and at what becomes free, never at what goes on waiting.
//
// For reuse before that, blocks with a single point are indexed by size with their stream, which
// may take them without a wait; those with two or three points are indexed together.

namespace reprise {

bool Pool::is_known_finished(StreamPoint point) const noexcept {
  return point.position <= lanes_[point.stream].finished;
}

// Notes in `block` what may be unfinished of `last_uses` and of what earlier owners left.
void Pool::gather(PoolBlock* block, const Frontier& last_uses) noexcept {
  if (last_uses.empty()) {
    return;
  }
  Frontier& uses = block->frontier_;
  for (const StreamPoint point : last_uses) {
    REPRISE_CHECK(point.stream < max_streams, "backend streams are numbered below max_streams");
    if (is_known_finished(point)) {
      continue;
    }
    const bool fits = uses.size() < Frontier::inline_points || uses.position(point.stream) != 0;
    if (block->crowded_ || !fits) {
      // The frontier of a crowd has room for every stream.
      REPRISE_MARK("crowded_block");
      block->crowded_ = true;
      const bool moved = crowds_[1].uses.merge(uses) && crowds_[1].uses.add(point);
      REPRISE_CHECK(moved, "a crowd has room for every stream");
      uses.clear();
      continue;
    }
    const bool added = uses.add(point);
    REPRISE_CHECK(added, "a point that fits in place needs no memory");
  }
}

// Where a block goes that nobody owns or guards any more.
void Pool::settle(PoolBlock* block) noexcept {
  if (block->crowded_) {
    // Its uses were noted in the crowd waited for now or in the next; the next one ends after both.
    block->state_ = State::crowded;
    block->after_ = std::exchange(crowds_[1].first, block);
    return;
  }
  block->frontier_.prune([this](StreamPoint point) { return is_known_finished(point); });
  // Plant 8 is caught by "pages that a device still uses are not unmapped".
  if (block->frontier_.empty() || REPRISE_PLANT(8)) {
    block->frontier_.clear();
    free_waiting(block);
    return;
  }
  block->state_ = State::waiting;
  enqueue(block);
  index_of(block).insert(*block);
}

PoolBlock* Pool::free_waiting(PoolBlock* block) noexcept {
  stats_.waiting -= block->size_;
  return coalesce(block);
}

detail::SizeIndex<2>& Pool::index_of(const PoolBlock* block) noexcept {
  return block->frontier_.size() == 1 ? lanes_[block->frontier_[0].stream].by_size : mixed_;
}

// Streams release in the order of their work, or nearly so: the walk is short.
void Pool::enqueue(PoolBlock* block) noexcept {
  const StreamPoint point = block->frontier_[0];
  PoolBlock* older = lanes_[point.stream].newest;
  while (older != nullptr && older->frontier_[0].position > point.position) {
    older = older->older_;
  }
  enqueue_behind(block, older);
}

void Pool::enqueue_behind(PoolBlock* block, PoolBlock* older) noexcept {
  const StreamIndex stream = block->frontier_[0].stream;
  Lane& lane = lanes_[stream];
  block->older_ = older;
  block->newer_ = older != nullptr ? older->newer_ : lane.oldest;
  (older != nullptr ? older->newer_ : lane.oldest) = block;
  (block->newer_ != nullptr ? block->newer_->older_ : lane.newest) = block;
  lanes_waiting_ |= std::uint64_t{1} << stream;
}

void Pool::dequeue(PoolBlock* block) noexcept {
  const StreamIndex stream = block->frontier_[0].stream;
  Lane& lane = lanes_[stream];
  (block->older_ != nullptr ? block->older_->newer_ : lane.oldest) = block->newer_;
  (block->newer_ != nullptr ? block->newer_->older_ : lane.newest) = block->older_;
  block->older_ = block->newer_ = nullptr;
  if (lane.oldest == nullptr) {
    lanes_waiting_ &= ~(std::uint64_t{1} << stream);
  }
}

// Splits a block that waits. The rest waits for the same, next to it in the queue.
PoolBlock* Pool::split_waiting(PoolBlock* block, std::uint64_t size) noexcept {
  PoolBlock* const rest = split(block, size);
  rest->state_ = State::waiting;
  const bool copied = rest->frontier_.copy_from(block->frontier_);
  REPRISE_CHECK(copied, "a block's frontier is held in place");
  enqueue_behind(rest, block);
  return rest;
}

// A block for `stream` that may need a wait: its own first, then the smallest of another stream,
// then one that several streams used.
PoolBlock* Pool::find_waiting(const Need& need, StreamIndex stream) const noexcept {
  if (PoolBlock* const own = lanes_[stream].by_size.find_any(need)) {
    return own;
  }
  PoolBlock* best = nullptr;
  for (std::uint64_t lanes = lanes_waiting_; lanes != 0; lanes &= lanes - 1) {
    const auto at = static_cast<StreamIndex>(std::countr_zero(lanes));
    PoolBlock* const block = lanes_[at].by_size.find_any(need);
    if (block != nullptr && (best == nullptr || block->size_ < best->size_)) {
      best = block;
    }
  }
  return best != nullptr ? best : mixed_.find_any(need);
}

void Pool::collect(FinishedQuery finished) noexcept {
  for (std::uint64_t lanes = lanes_waiting_; lanes != 0; lanes &= lanes - 1) {
    collect_lane(static_cast<StreamIndex>(std::countr_zero(lanes)), finished);
  }
  collect_crowds(finished);
}

void Pool::collect_lane(StreamIndex stream, FinishedQuery finished) noexcept {
  Lane& lane = lanes_[stream];
  while (PoolBlock* const block = lane.oldest) {
    const StreamPoint point = block->frontier_[0];
    if (!is_known_finished(point)) {
      if (!finished(point)) {
        return;
      }
      lane.finished = point.position;
    }
    index_of(block).remove(*block);
    dequeue(block);
    block->frontier_.prune(
        [&](StreamPoint other) { return is_known_finished(other) || finished(other); });
    settle(block);
  }
}

void Pool::collect_crowds(FinishedQuery finished) noexcept {
  const auto done = [&](StreamPoint point) { return is_known_finished(point) || finished(point); };
  for (int generation = 0; generation < 2; ++generation) {
    crowds_[0].uses.prune(done);
    if (!crowds_[0].uses.empty()) {
      return;
    }
    while (PoolBlock* const block = crowds_[0].first) {
      crowds_[0].first = block->after_;
      block->crowded_ = false;
      free_waiting(block);
    }
    std::swap(crowds_[0], crowds_[1]);
  }
}

}  // namespace reprise

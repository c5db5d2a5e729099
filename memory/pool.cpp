// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/pool.hpp>

#include <algorithm>

// The address range is cut into blocks without gaps, linked in address order. A block is in one
// state (block.hpp) and moves like this:
//
//   hole -> mapping -> idle          new pages, pool_pages.cpp; back to hole if mapping failed
//   idle -> live                     granted
//   live -> pinned                   released under a guard; goes on when the last guard goes
//   live, pinned -> waiting, crowded released with unfinished last uses, pool_waiting.cpp
//   live, pinned, waiting, crowded -> idle    nothing unfinished is left
//   waiting -> live                  granted to a stream that is, or will be, ordered behind them
//   idle -> hole                     trimmed or reclaimed
//
// Two idle blocks, or two holes, are never neighbours. Idle blocks are indexed in idle_, holes in
// holes_, waiting ones by the streams they wait for; a live block keeps in frontier_ what earlier
// owners may still do to it, so that releasing it unused forgets nothing.

namespace reprise {

Pool::Pool(PageSource& source, PoolOptions options)
    : source_(source), notice_(source.wants_notice()), base_(source.base()),
      page_size_(source.page_size()), limit_(source.address_space()),
      growth_bytes_(options.growth_bytes), alignment_(options.alignment),
      lanes_(std::make_unique<Lane[]>(max_streams)) {
  const std::uint64_t space = source.address_space();
  if (!is_power_of_two(page_size_) || !is_power_of_two(alignment_) || alignment_ < 32 ||
      alignment_ > page_size_ || base_ % alignment_ != 0) {
    throw Failure(Errc::invalid_argument, "pool",
                  "alignment must be a power of two from 32 to the page size");
  }
  if (space == 0 || space % page_size_ != 0 || space >= std::uint64_t{1} << 48) {
    throw Failure(Errc::invalid_argument, "pool",
                  "the address space must be whole pages and less than 2^48 bytes");
  }
  if (!slab_.reserve(1) || !crowds_[0].uses.reserve(max_streams) ||
      !crowds_[1].uses.reserve(max_streams)) {
    throw Failure(Errc::out_of_memory, "pool", "no host memory for the books");
  }
  if (options.limit_bytes != 0) {
    limit_ = std::min(limit_, options.limit_bytes / page_size_ * page_size_);
  }
  last_ = slab_.make();
  last_->address_ = base_;
  last_->size_ = space;
  last_->right_ = nullptr;
  last_->state_ = State::hole;
  holes_.insert(*last_);
}

Pool::~Pool() {
  REPRISE_CHECK(guards_.empty(), "guards are dropped before their pool");
}

bool Pool::plan(const PoolRequest& request, Need& need, Error& error) const noexcept {
  if (request.bytes == 0 || !is_power_of_two(request.alignment)) {
    error = {Errc::invalid_argument, 0, "no bytes, or an alignment that is no power of two"};
    return false;
  }
  need.asked = request.bytes;
  need.size = align_up(request.bytes, alignment_);
  if (request.bytes > limit_ || need.size > limit_ || request.alignment > limit_) {
    error = {Errc::never_fits, 0, "larger than the memory of the device or its limit"};
    return false;
  }
  need.alignment = std::max(request.alignment, alignment_);
  need.padded = need.size + (need.alignment - alignment_);
  return true;
}

// Cuts `block` to `size`. What remains on its right has no state yet and is in no index.
PoolBlock* Pool::split(PoolBlock* block, std::uint64_t size) noexcept {
  PoolBlock* const rest = slab_.make();
  rest->address_ = block->address_ + size;
  rest->size_ = block->size_ - size;
  rest->left_ = block;
  rest->right_ = block->right_;
  (rest->right_ != nullptr ? rest->right_->left_ : last_) = rest;
  block->right_ = rest;
  block->size_ = size;
  return rest;
}

// Joins `block` with its right neighbour, which is in no index.
void Pool::absorb_right(PoolBlock* block) noexcept {
  PoolBlock* const gone = block->right_;
  block->size_ += gone->size_;
  block->right_ = gone->right_;
  (gone->right_ != nullptr ? gone->right_->left_ : last_) = block;
  slab_.put(gone);
}

// `block` is idle and fits.
Grant Pool::take_idle(PoolBlock* block, const Need& need) noexcept {
  idle_.remove(*block);
  if (const std::uint64_t head = align_up(block->address_, need.alignment) - block->address_) {
    PoolBlock* const rest = split(block, head);
    idle_.insert(*block);
    block = rest;
  }
  cut(block, need.size);
  hand_over(block, need.asked);
  return {block};
}

// Leaves `size` bytes of `block`, which is idle and in no index; the rest stays idle.
void Pool::cut(PoolBlock* block, std::uint64_t size) noexcept {
  if (block->size_ > size) {
    PoolBlock* const rest = split(block, size);
    rest->state_ = State::idle;
    idle_.insert(*rest);
  }
}

// `block` waits and fits. What is not needed of it goes on waiting in its place.
Grant Pool::take_waiting(PoolBlock* block, const Need& need, StreamIndex stream,
                         FinishedQuery finished) noexcept {
  index_of(block).remove(*block);
  if (const std::uint64_t head = align_up(block->address_, need.alignment) - block->address_) {
    PoolBlock* const rest = split_waiting(block, head);
    index_of(block).insert(*block);
    block = rest;
  }
  if (block->size_ > need.size) {
    PoolBlock* const rest = split_waiting(block, need.size);
    index_of(rest).insert(*rest);
  }
  dequeue(block);
  stats_.waiting -= block->size_;
  block->frontier_.prune(finished);
  hand_over(block, need.asked);
  Grant grant{block};
  for (const StreamPoint point : block->frontier_) {
    grant.waits = grant.waits || point.stream != stream;
  }
  if (grant.waits) {
    REPRISE_MARK("reuse_with_wait");
    ++stats_.waits_made;
  } else {
    ++stats_.reuses_same_stream;
  }
  return grant;
}

// Makes `block`, of the right size and in no index, its owner's.
void Pool::own(PoolBlock* block, std::uint64_t asked) noexcept {
  block->state_ = State::live;
  block->padding_ = block->size_ - asked;
  ++stats_.blocks;
  stats_.in_use += asked;
  stats_.padding += block->padding_;
}

void Pool::hand_over(PoolBlock* block, std::uint64_t asked) noexcept {
  own(block, asked);
  if (notice_) {
    const std::uint64_t begin = block->address_ - base_;
    source_.on_grant({begin, begin + asked});
  }
}

// Served in one go: a usual alignment, finished memory at hand, nobody to notify. Everything else
// goes the long way.
Result<Grant> Pool::allocate(const PoolRequest& request, FinishedQuery finished) noexcept {
  REPRISE_CHECK(request.stream < max_streams, "backend streams are numbered below max_streams");
  ++stats_.requests;
  if (request.bytes - 1 < limit_ && request.alignment - 1 < alignment_ &&
      is_power_of_two(request.alignment) && !notice_ && slab_.ready() &&
      (lanes_waiting_ >> request.stream & 1) == 0) {
    const std::uint64_t size = align_up(request.bytes, alignment_);
    if (PoolBlock* const block = idle_.take(size)) {
      cut(block, size);
      own(block, request.bytes);
      return Grant{block};
    }
  }
  return allocate_by_plan(request, finished);
}

Result<Grant> Pool::allocate_by_plan(const PoolRequest& request, FinishedQuery finished) noexcept {
  Need need;
  Error error;
  if (!plan(request, need, error)) {
    return fail(error);
  }
  // Carving takes up to two records, growing one more; after this nothing needs host memory.
  if (!slab_.reserve(4)) {
    collect(finished);  // Coalescing gives records back.
    if (!slab_.reserve(4)) {
      return fail({Errc::out_of_memory, 0, "no host memory for the books"});
    }
  }
  // A much larger block is left whole while there is finished memory: small blocks cut out of large
  // ones that wait would scatter over the range.
  PoolBlock* const own = lanes_[request.stream].by_size.find(need);
  if (own != nullptr && own->size_ <= need.padded + need.padded / 2) {
    return take_waiting(own, need, request.stream, finished);
  }
  if (PoolBlock* const block = idle_.find(need)) {
    return take_idle(block, need);
  }
  return allocate_slowly(request, need, finished);
}

Result<Grant> Pool::allocate_slowly(const PoolRequest& request, const Need& need,
                                    FinishedQuery finished) noexcept {
  collect(finished);
  if (PoolBlock* const block = idle_.find(need)) {
    return take_idle(block, need);
  }
  if (PoolBlock* const block = lanes_[request.stream].by_size.find(need)) {
    return take_waiting(block, need, request.stream, finished);
  }
  Result<PoolBlock*> grown = grow(need, request);
  if (grown) {
    return take_idle(*grown, need);
  }
  if (grown.error().code == Errc::would_block) {
    return postpone(grown.error());
  }
  // From here on every block is looked at, since the alternative is to fail.
  if (PoolBlock* const block = idle_.find_any(need)) {
    return take_idle(block, need);
  }
  if (PoolBlock* const block = find_waiting(need, request.stream)) {
    return take_waiting(block, need, request.stream, finished);
  }
  PoolRequest again = request;
  again.mapping = request.mapping == Mapping::now ? Mapping::now : Mapping::later;
  while (reclaim_for(need, grown.error().code)) {
    REPRISE_MARK("retry_after_oom");
    if (!slab_.reserve(4)) {
      return fail({Errc::out_of_memory, 0, "no host memory for the books"});
    }
    grown = grow(need, again);
    if (grown) {
      return take_idle(*grown, need);
    }
    if (grown.error().code == Errc::would_block) {
      return postpone(grown.error());
    }
  }
  return fail(grown.error());
}

Result<Grant> Pool::fail(Error error) noexcept {
  ++stats_.failed_requests;
  return error;
}

// The caller asks again.
Result<Grant> Pool::postpone(Error error) noexcept {
  --stats_.requests;
  return error;
}

// Makes `block`, which is in no index, idle and joins it with idle neighbours. In line, since it is
// most of what a release does.
[[gnu::always_inline]] inline PoolBlock* Pool::join_idle(PoolBlock* block) noexcept {
  block->state_ = State::idle;
  if (PoolBlock* const right = block->right_; right != nullptr && right->is(State::idle)) {
    idle_.remove(*right);
    absorb_right(block);
  }
  if (PoolBlock* const left = block->left_; left != nullptr && left->is(State::idle)) {
    idle_.remove(*left);
    absorb_right(left);
    block = left;
  }
  idle_.insert(*block);
  return block;
}

PoolBlock* Pool::coalesce(PoolBlock* block) noexcept {
  if (notice_) {
    const std::uint64_t begin = block->address_ - base_;
    source_.on_free({begin, begin + block->size_});
  }
  return join_idle(block);
}

void Pool::release(PoolBlock* block, const Frontier& last_uses) noexcept {
  REPRISE_CHECK(block->is(State::live), "a block is released once");
  --stats_.blocks;
  stats_.in_use -= block->size();
  stats_.padding -= block->padding_;
  const bool settled = (last_uses.size() | block->frontier_.size() | block->guards_) == 0;
  if (settled && !notice_) {
    join_idle(block);
  } else {
    release_slowly(block, last_uses);
  }
}

void Pool::release_slowly(PoolBlock* block, const Frontier& last_uses) noexcept {
  stats_.waiting += block->size_;
  gather(block, last_uses);
  // Plant 11 is caught by "a guarded range is not carved again".
  if (block->guards_ != 0 && !REPRISE_PLANT(11)) {
    block->state_ = State::pinned;
  } else {
    settle(block);
  }
}

Result<Guard> Pool::guard(PoolBlock* block, ByteRange range) noexcept {
  REPRISE_CHECK(block != nullptr && (block->is(State::live) || block->is(State::pinned)),
                "a guard is put on a block that somebody owns or guards");
  if (range.begin > range.end || range.end > block->size_) {
    return Error{Errc::out_of_range, 0, "the range reaches beyond its block"};
  }
  // Plant 3 is caught by "a guarded range is not carved again".
  if (REPRISE_PLANT(3)) {
    range.end = std::max(range.begin, range.end - std::min(range.end, page_size_));
  }
  if (range.empty()) {
    return Guard{};
  }
  const std::uint64_t begin = block->address_ + range.begin;
  if (!guards_.add({begin, begin + range.size()})) {
    return Error{Errc::out_of_memory, 0, "no host memory for the guard"};
  }
  ++block->guards_;
  stats_.guarded = guards_.covered();
  return Guard{*this, *block, range};
}

void Pool::unguard(PoolBlock& block, ByteRange range) noexcept {
  const std::uint64_t begin = block.address_ + range.begin;
  guards_.remove({begin, begin + range.size()});
  stats_.guarded = guards_.covered();
  REPRISE_CHECK(block.guards_ != 0, "I18: guard counts equal the holders");
  if (--block.guards_ == 0 && block.is(State::pinned)) {
    settle(&block);
  }
}

}  // namespace reprise

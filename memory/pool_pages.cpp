// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/pool.hpp>

#include <algorithm>

// Pages come and go at holes. A request grows into a hole from its left end, together with the
// idle block before the hole, if there is one; so the range stays dense at low addresses and the
// last hole, the never used rest of the address space, is touched last.

namespace reprise {

// How much of `hole` a request needs, counting idle neighbours; false if it cannot hold it.
bool Pool::spot_at(PoolBlock* hole, const Need& need, Spot& spot) const noexcept {
  const PoolBlock* const left = hole->left_;
  const PoolBlock* const right = hole->right_;
  const bool from_left = left != nullptr && left->is(State::idle);
  const std::uint64_t begin = from_left ? left->address_ : hole->address_;
  const std::uint64_t end = align_up(begin, need.alignment) + need.size;
  const bool to_right = right != nullptr && right->is(State::idle);
  if (end > (to_right ? right->end() : hole->end())) {
    return false;
  }
  const std::uint64_t reach = end > hole->address_ ? end - hole->address_ : 1;
  spot = {hole, std::min(align_up(reach, page_size_), hole->size_)};
  return true;
}

// The spot that maps least: of a hole that fits well and the last one, if one of these is within
// the limit, else of all holes.
bool Pool::find_spot(const Need& need, Spot& spot) const noexcept {
  bool found = false;
  const auto consider = [&](PoolBlock* hole) {
    Spot here;
    if (hole != nullptr && hole->is(State::hole) && spot_at(hole, need, here) &&
        (!found || here.bytes < spot.bytes)) {
      spot = here;
      found = true;
    }
  };
  Need pages = need;
  pages.size = align_up(need.size, page_size_);
  pages.padded = align_up(need.padded, page_size_);
  consider(holes_.find(pages));
  consider(last_);
  if (!found || spot.bytes > room()) {
    holes_.for_each_from(page_size_, [&](PoolBlock& hole) {
      consider(&hole);
      return true;
    });
  }
  return found;
}

// Turns the start of a hole into a `mapping` block.
Result<PageRun> Pool::set_aside(const Need& need) noexcept {
  Spot spot;
  if (!find_spot(need, spot)) {
    return Error{Errc::out_of_memory, 0, "no run of free addresses is long enough"};
  }
  if (spot.bytes > room()) {
    return Error{Errc::over_limit, 0, "the limit of the pool would be exceeded"};
  }
  PoolBlock* const hole = spot.hole;
  const std::uint64_t wanted = std::min({align_up(growth_bytes_, page_size_), hole->size_, room()});
  const std::uint64_t bytes = std::max(spot.bytes, wanted);
  holes_.remove(*hole);
  if (hole->size_ > bytes) {
    PoolBlock* const rest = split(hole, bytes);
    rest->state_ = State::hole;
    holes_.insert(*rest);
  }
  hole->state_ = State::mapping;
  set_aside_ += bytes;
  return PageRun{(hole->address_ - base_) / page_size_, bytes / page_size_, hole};
}

// Answers the idle block that the pages are part of, null if they were not mapped.
PoolBlock* Pool::take_in(const PageRun& run, bool mapped) noexcept {
  PoolBlock* const block = run.block;
  REPRISE_CHECK(block != nullptr && block->is(State::mapping), "growth ends once");
  set_aside_ -= block->size_;
  if (!mapped) {
    make_hole(block);
    return nullptr;
  }
  stats_.reserved += block->size_;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  return coalesce(block);
}

Result<PoolBlock*> Pool::grow(const Need& need, const PoolRequest& request) noexcept {
  if (request.pages == PageUpdate::forbidden) {
    return Error{Errc::growth_forbidden, 0, "new pages are needed, and forbidden now"};
  }
  if (request.mapping == Mapping::failed) {
    return Error{Errc::out_of_memory, 0, "new pages could not be mapped"};
  }
  if (request.mapping == Mapping::later) {
    Spot spot;
    if (find_spot(need, spot) && spot.bytes <= room()) {
      return Error{Errc::would_block, 0, "new pages are needed"};
    }
  }
  const Result<PageRun> run = set_aside(need);
  if (!run) {
    return run.error();
  }
  const Result<void> mapped = source_.map(run.value().first, run.value().count);
  PoolBlock* const block = take_in(run.value(), mapped.has_value());
  if (!mapped) {
    return mapped.error();
  }
  return block;
}

Result<PageRun> Pool::begin_growth(const PoolRequest& request) noexcept {
  Need need;
  Error error;
  if (!plan(request, need, error)) {
    return error;
  }
  if (request.pages == PageUpdate::forbidden) {
    return Error{Errc::growth_forbidden, 0, "new pages are needed, and forbidden now"};
  }
  if (!slab_.reserve(1)) {
    return Error{Errc::out_of_memory, 0, "no host memory for the books"};
  }
  return set_aside(need);
}

void Pool::end_growth(const PageRun& run, bool mapped) noexcept {
  take_in(run, mapped);
}

// The pages that lie wholly in `block`.
PageRun Pool::whole_pages(const PoolBlock& block) const noexcept {
  const std::uint64_t first = align_up(block.address_ - base_, page_size_) / page_size_;
  const std::uint64_t end = (block.end() - base_) / page_size_;
  return {first, end > first ? end - first : 0, nullptr};
}

// Unmaps up to `most` bytes of whole pages at the end of an idle block; answers how many.
std::uint64_t Pool::unmap_last(PoolBlock* block, std::uint64_t most) noexcept {
  PageRun run = whole_pages(*block);
  const std::uint64_t count = std::min(run.count, most / page_size_);
  run.first += run.count - count;
  if (count == 0 || !slab_.reserve(2) || !source_.unmap(run.first, count)) {
    return 0;
  }
  const std::uint64_t bytes = count * page_size_;
  const std::uint64_t begin = base_ + run.first * page_size_;
  idle_.remove(*block);
  cut(block, begin + bytes - block->address_);
  if (begin > block->address_) {
    PoolBlock* const rest = split(block, begin - block->address_);
    idle_.insert(*block);
    block = rest;
  }
  make_hole(block);
  stats_.reserved -= bytes;
  return bytes;
}

// Makes `block`, which is in no index, a hole and joins it with neighbouring holes.
PoolBlock* Pool::make_hole(PoolBlock* block) noexcept {
  block->state_ = State::hole;
  if (PoolBlock* const right = block->right_; right != nullptr && right->is(State::hole)) {
    holes_.remove(*right);
    absorb_right(block);
  }
  if (PoolBlock* const left = block->left_; left != nullptr && left->is(State::hole)) {
    holes_.remove(*left);
    absorb_right(left);
    block = left;
  }
  holes_.insert(*block);
  return block;
}

// Unmaps empty pages for a request that grow() refused, smallest blocks first; false if that is in
// vain. Within the limit it is known how many it takes: if there are fewer, nothing is unmapped.
// What a device is short of is not known: then as many as the request needs, or what there is. Idle
// neighbours of the spot stay, since unmapping one would make the spot need as much more; so the
// best spot is the one that needs least together with the pages of its neighbours.
bool Pool::reclaim_for(const Need& need, Errc refusal) noexcept {
  if (refusal == Errc::growth_forbidden) {
    return false;
  }
  const auto pages_of = [this](const PoolBlock* block) {
    const bool idle = block != nullptr && block->is(State::idle);
    return idle ? whole_pages(*block).count * page_size_ : 0;
  };
  Spot spot;
  std::uint64_t least = UINT64_MAX;
  holes_.for_each_from(page_size_, [&](PoolBlock& hole) {
    Spot here;
    if (spot_at(&hole, need, here)) {
      const std::uint64_t cost = here.bytes + pages_of(hole.left_) + pages_of(hole.right_);
      spot = cost < least ? here : spot;
      least = std::min(least, cost);
    }
    return true;
  });
  if (spot.hole == nullptr) {
    return false;
  }
  const bool by_limit = refusal == Errc::over_limit;
  const std::uint64_t wanted = by_limit ? spot.bytes - std::min(spot.bytes, room()) : spot.bytes;
  const PoolBlock* const left = spot.hole->left_;
  const PoolBlock* const right = spot.hole->right_;
  std::uint64_t there = 0;
  idle_.for_each_from(page_size_, [&](PoolBlock& block) {
    there += &block == left || &block == right ? 0 : pages_of(&block);
    return there < wanted;
  });
  if (there == 0 || (by_limit && there < wanted)) {
    return false;
  }
  ++stats_.reclaims;
  std::uint64_t done = 0;
  idle_.for_each_from(page_size_, [&](PoolBlock& block) {
    if (&block != left && &block != right) {
      done += unmap_last(&block, wanted - done);
    }
    return done < wanted;
  });
  return done != 0;
}

std::uint64_t Pool::trim(FinishedQuery finished) noexcept {
  collect(finished);
  std::uint64_t bytes = 0;
  idle_.for_each_from(page_size_, [&](PoolBlock& block) {
    bytes += unmap_last(&block, block.size_);
    return true;
  });
  return bytes;
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/hazards.hpp>

#include <algorithm>
#include <functional>
#include <iterator>

namespace reprise::detail {

namespace {

// How far drop_implied() looks: enough for chains and layers, little for wide nodes.
constexpr std::size_t implied_nodes = 8;
constexpr std::size_t implied_edges = 32;

}  // namespace

Hazards::Segments& Hazards::segments_of(Hold& hold) {
  const auto [at, fresh] = index_.try_emplace(&hold, allocations_.size());
  if (fresh) allocations_.push_back({&hold, {}});
  return allocations_[at->second].segments;
}

// Calls f for segments that cover exactly `range`, making and cutting them as needed.
template <class F>
void Hazards::each_segment(Segments& segments, ByteRange range, F&& f) {
  auto it = segments.upper_bound(range.begin);
  if (it != segments.begin()) {
    const auto before = std::prev(it);
    if (before->first == range.begin) {
      it = before;
    } else if (before->second.end > range.begin) {
      it = segments.emplace_hint(it, range.begin, before->second);
      before->second.end = range.begin;
    }
  }
  for (std::uint64_t at = range.begin; at < range.end; ++it) {
    if (it == segments.end() || it->first > at) {
      const std::uint64_t end = it == segments.end() ? range.end : std::min(range.end, it->first);
      it = segments.emplace_hint(it, at, Segment{end});
    } else if (it->second.end > range.end) {
      segments.emplace_hint(std::next(it), range.end, it->second);
      it->second.end = range.end;
    }
    f(it->second);
    at = it->second.end;
  }
}

// Joins neighbours that became alike in `range` and at its two ends.
void Hazards::fuse(Segments& segments, ByteRange range) noexcept {
  auto it = segments.find(range.begin);
  if (it != segments.begin()) --it;
  while (it != segments.end() && it->first < range.end) {
    const auto next = std::next(it);
    if (next == segments.end()) return;
    if (it->second.end == next->first && it->second.alike(next->second)) {
      it->second.end = next->second.end;
      segments.erase(next);
    } else {
      it = next;
    }
  }
}

void Hazards::note_read(Segment& segment, std::uint32_t node) {
  if (segment.writer != none) before_.push_back(segment.writer);
  if (segment.readers == none || cells_[segment.readers].node != node) {
    cells_.push_back({node, segment.readers});
    segment.readers = static_cast<std::uint32_t>(cells_.size() - 1);
  }
  segment.sets |= read;
  if ((segment.sets & must) == 0) segment.sets |= input;
}

void Hazards::note_write(Segment& segment, std::uint32_t node, bool whole) {
  if (segment.writer != none && segment.writer != node) before_.push_back(segment.writer);
  for (std::uint32_t cell = segment.readers; cell != none; cell = cells_[cell].next) {
    if (cells_[cell].node != node) before_.push_back(cells_[cell].node);
  }
  segment.writer = node;
  segment.readers = none;
  segment.sets |= whole ? may | must : may;
}

void Hazards::add(std::span<const Touch> touches, std::span<const std::uint32_t> after,
                  Order order) {
  const std::uint32_t node = size();
  before_.assign(after.begin(), after.end());
  has_successor_.push_back(0);
  implied_by_.push_back(none);
  covered_.push_back(0);

  // All reads come before all writes: a node reads what was there before it.
  for (const Touch& touch : touches) {
    if (!reads(touch.access)) continue;
    each_segment(segments_of(*touch.hold), touch.range,
                 [&](Segment& segment) { note_read(segment, node); });
  }
  for (const Touch& touch : touches) {
    if (!may_write(touch.access)) continue;
    Segments& segments = segments_of(*touch.hold);
    each_segment(segments, touch.range,
                 [&](Segment& segment) { note_write(segment, node, must_write(touch.access)); });
    fuse(segments, touch.range);
  }

  if (order == Order::chained) {
    if (chained_ != none) before_.push_back(chained_);
    chained_ = node;
  }
  if (order == Order::barrier) {
    follow_all(node);
    barrier_ = node;
  } else {
    drop_implied(node);
    keep_few(node);
  }
  edges_.insert(edges_.end(), before_.rbegin(), before_.rend());
  ends_.push_back(edges_.size());
  for (const std::uint32_t earlier : before_) has_successor_[earlier] = 1;
}

// Whatever nothing follows yet is what a barrier follows. Before the last barrier there is nothing
// of that kind, so each node is looked at by one barrier only.
void Hazards::follow_all(std::uint32_t node) {
  before_.clear();
  const std::uint32_t first = barrier_ == none ? 0 : barrier_;
  for (std::uint32_t earlier = node; earlier-- > first;) {
    if (!has_successor_[earlier]) before_.push_back(earlier);
  }
}

void Hazards::drop_implied(std::uint32_t node) {
  std::sort(before_.begin(), before_.end(), std::greater{});
  before_.erase(std::unique(before_.begin(), before_.end()), before_.end());
  if (barrier_ != none) {
    // Everything before the barrier is implied by it, and it by everything behind it.
    const auto older = std::find_if(before_.begin(), before_.end(),
                                    [&](std::uint32_t earlier) { return earlier < barrier_; });
    before_.erase(older, before_.end());
    if (before_.empty()) before_.push_back(barrier_);
  }
  if (before_.size() < 2) return;
  const std::size_t looks = std::min(before_.size(), implied_nodes);
  for (std::size_t i = 0; i < looks; ++i) {
    const auto further = after(before_[i]);
    if (further.size() > implied_edges) continue;
    for (const std::uint32_t earlier : further) implied_by_[earlier] = node;
  }
  std::erase_if(before_, [&](std::uint32_t earlier) { return implied_by_[earlier] == node; });
}

// m writers and n readers of the same bytes have m * n edges. From `most_direct` on, a node is
// ordered after the last node of this kind in place of all that this one follows. That orders more
// than the bytes ask for, never less, and bounds the edges by a multiple of the nodes.
void Hazards::keep_few(std::uint32_t node) {
  if (before_.size() <= most_direct) return;
  if (wide_ != none) {
    std::erase_if(before_, [&](std::uint32_t earlier) { return covered_[earlier] != 0; });
    before_.insert(std::lower_bound(before_.begin(), before_.end(), wide_, std::greater{}), wide_);
  }
  if (before_.size() > most_direct) cover(node);
}

// Each node is covered once, so all calls together cost no more than there are edges.
void Hazards::cover(std::uint32_t node) {
  wide_ = node;
  covered_[node] = 1;
  stack_.assign(before_.begin(), before_.end());
  while (!stack_.empty()) {
    const std::uint32_t at = stack_.back();
    stack_.pop_back();
    if (covered_[at]) continue;
    covered_[at] = 1;
    const auto further = after(at);
    stack_.insert(stack_.end(), further.begin(), further.end());
  }
}

bool Hazards::written(const Hold& hold, ByteRange range) const noexcept {
  if (range.empty()) return true;
  const auto found = index_.find(&hold);
  if (found == index_.end()) return false;
  const Segments& segments = allocations_[found->second].segments;
  auto it = segments.upper_bound(range.begin);
  if (it == segments.begin()) return false;
  --it;
  for (std::uint64_t at = range.begin; at < range.end; ++it) {
    if (it == segments.end() || it->first > at) return false;
    if ((it->second.sets & may) == 0) return false;
    at = it->second.end;
  }
  return true;
}

void Hazards::append(std::vector<Touch>& list, const Allocation& allocation, Set set,
                     Access access) {
  ByteRange run;
  const auto close = [&] {
    if (!run.empty()) list.push_back({HoldRef{allocation.hold}, run, access});
  };
  for (const auto& [begin, segment] : allocation.segments) {
    if ((segment.sets & set) == 0) continue;
    if (run.end != begin || run.empty()) {
      close();
      run.begin = begin;
    }
    run.end = segment.end;
  }
  close();
}

std::size_t Hazards::segment_count() const noexcept {
  std::size_t count = 0;
  for (const Allocation& allocation : allocations_) count += allocation.segments.size();
  return count;
}

MergedSets Hazards::merged() const {
  MergedSets sets;
  sets.holds.reserve(allocations_.size());
  for (const Allocation& allocation : allocations_) {
    append(sets.inputs, allocation, input, Access::reads);
    append(sets.reads, allocation, read, Access::reads);
    append(sets.may_write, allocation, may, Access::may_write);
    append(sets.must_write, allocation, must, Access::must_write);
    sets.holds.emplace_back(allocation.hold);
    for (const auto& [begin, segment] : allocation.segments) {
      sets.touched_bytes += segment.end - begin;
    }
  }
  return sets;
}

}  // namespace reprise::detail

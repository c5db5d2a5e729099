// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/replay_order.hpp>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

// What a replay reads is noted while it is planned, when memory may still be missing: the map then
// names the cell, which stands where the last replay was until note() moves it, and a replay that
// does not come leaves an order that holds already. What it writes is made ready after that and
// noted by note(), since noting a write forgets what was there.

namespace reprise::detail {

namespace {

void add(Frontier& waits, StreamPoint point) {
  if (!waits.add(point)) throw std::bad_alloc();
}

}  // namespace

ReplayOrder::ReplayOrder(std::span<const Touch> touches, std::uint64_t id) : id_(id) {
  for (const Touch& touch : touches) {
    uses_.push_back({touch.hold.get(), touch.range, may_write(touch.access)});
  }
  std::sort(uses_.begin(), uses_.end(), [](const Use& a, const Use& b) {
    if (a.hold != b.hold) return std::less<const Hold*>{}(a.hold, b.hold);
    return std::tuple(!a.writes, a.range.begin) < std::tuple(!b.writes, b.range.begin);
  });
  drop_covered_reads();
  written_.resize(uses_.size());
  table_.resize(std::bit_ceil(2 * uses_.size() + 2));
  table_shift_ = 64 - static_cast<std::uint32_t>(std::countr_zero(table_.size()));
  for (auto use = uses_.begin(); use != uses_.end();) {
    const auto end =
        std::find_if(use, uses_.end(), [&](const Use& at) { return at.hold != use->hold; });
    std::size_t at = slot_of(use->hold);
    while (table_[at].hold != nullptr) at = next_slot(at);
    table_[at] = {use->hold, std::to_address(use), std::to_address(end)};
    use = end;
  }
}

/// What is read and written is ordered by the write alone.
void ReplayOrder::drop_covered_reads() noexcept {
  std::size_t kept = 0;
  std::size_t first_write = 0;
  std::size_t end_of_writes = 0;
  const auto is_covered = [&](ByteRange range) {
    const auto begin = uses_.begin() + std::ptrdiff_t(first_write);
    const auto behind =
        std::upper_bound(begin, uses_.begin() + std::ptrdiff_t(end_of_writes), range.begin,
                         [](std::uint64_t at, const Use& use) { return at < use.range.begin; });
    return behind != begin && std::prev(behind)->range.contains(range);
  };
  for (const Use& use : uses_) {
    if (kept == 0 || uses_[kept - 1].hold != use.hold) first_write = end_of_writes = kept;
    if (!use.writes && is_covered(use.range)) continue;
    if (use.writes) end_of_writes = kept + 1;
    uses_[kept++] = use;
  }
  uses_.resize(kept);
}

/// Sees to it that `use` will be noted.
inline void ReplayOrder::plan_use(const Use& use) {
  if (!use.writes) return use.hold->device.uses.note_read(use.range, {cell_, &cell_});
  if (written_count_ != 0 && written_[written_count_ - 1] == &use) return;
  if (written_count_ == written_.size()) written_.resize(2 * written_count_);
  written_[written_count_++] = &use;
}

/// False: it is one stranger too many.
inline bool ReplayOrder::plan_after(const ReplayOrder& other, Frontier& waits, int& strangers) {
  const Peer* peer = find_peer(other);
  if (peer == nullptr) {
    if (++strangers > strangers_at_most) return false;
    peer = &make_peer(other);
  }
  if (peer->shared.empty()) return true;
  if (peer->shared.size() == 1) {
    usual_.peer = other.id_;
    usual_.peer_use = peer->shared.front();
  }
  add(waits, other.cell_);
  for (const Use* use : peer->shared) plan_use(*use);
  return true;
}

/// The usual case, without a call: one touch is new, by the same as the last time, and it concerns
/// one use, of just the bytes that the map tells apart. Everything else is plan_anew()'s, even when
/// something was planned here already.
void ReplayOrder::plan_fresh(const RecentTouches& recent, Frontier& waits) {
  if (recent.count() - seen_ != 1) return plan_anew(recent, waits);
  const RecentTouches::Entry& entry = recent[seen_];
  const Use* use = nullptr;
  const StreamPoint* point = nullptr;
  if (entry.hold != nullptr) {
    if (entry.hold != usual_.hold) return plan_anew(recent, waits);
    use = usual_.hold_use;
    point = &entry.point;
    if (!use->range.overlaps(entry.range) || !(entry.wrote || use->writes)) {
      written_count_ = 0;
      return;
    }
  } else {
    if (entry.graph == nullptr || entry.graph->id_ != usual_.peer) return plan_anew(recent, waits);
    use = usual_.peer_use;
    point = &entry.graph->cell_;
  }
  UseMap& uses = use->hold->device.uses;
  if (use->writes) {
    if (!uses.is_whole(use->range)) return plan_anew(recent, waits);
    written_[0] = use;
    written_count_ = 1;
  } else {
    if (!uses.note_first_read(use->range, {cell_, &cell_})) return plan_anew(recent, waits);
    written_count_ = 0;
  }
  if (!waits.add_in_place(*point)) plan_anew(recent, waits);
}

void ReplayOrder::plan_anew(const RecentTouches& recent, Frontier& waits) {
  written_count_ = 0;
  if (!recent.reaches(seen_)) return plan_all(waits);
  int strangers = 0;
  for (std::uint64_t number = seen_; number != recent.count(); ++number) {
    const RecentTouches::Entry& entry = recent[number];
    if (entry.hold != nullptr) {
      const Bucket bucket = bucket_of(entry.hold);  // A copy stays in registers.
      if (bucket.end - bucket.begin == 1) {
        usual_.hold = entry.hold;
        usual_.hold_use = bucket.begin;
      }
      for (const Use* use = bucket.begin; use != bucket.end; ++use) {
        if (!use->range.overlaps(entry.range) || !(entry.wrote || use->writes)) continue;
        add(waits, entry.point);
        plan_use(*use);
      }
    } else if (entry.graph == nullptr || !plan_after(*entry.graph, waits, strangers)) {
      return plan_all(waits);
    }
  }
  ready_written();
}

void ReplayOrder::plan_all(Frontier& waits) {
  REPRISE_MARK("replay_looked_at_all");
  written_count_ = 0;
  for (const Use& use : uses_) {
    const UseMap& map = use.hold->device.uses;
    use.writes ? map.before_write(use.range, waits) : map.before_read(use.range, waits);
    plan_use(use);
  }
  ready_written();
}

void ReplayOrder::ready_written() {
  for (std::size_t i = 0; i < written_count_; ++i) {
    written_[i]->hold->device.uses.ready(written_[i]->range);
  }
}

void ReplayOrder::note_fresh(RecentTouches& recent) noexcept {
  seen_ = recent.add(*this);
  if (written_count_ == 0) return;
  if (written_count_ != 1) return note_written();
  written_[0]->hold->device.uses.note_write(written_[0]->range, {cell_, &cell_});
}

void ReplayOrder::note_written() noexcept {
  for (std::size_t i = 0; i < written_count_; ++i) {
    written_[i]->hold->device.uses.note_write(written_[i]->range, {cell_, &cell_});
  }
}

bool ReplayOrder::conflicts(const Use& other) const noexcept {
  const Bucket& bucket = bucket_of(other.hold);
  return std::any_of(bucket.begin, bucket.end, [&other](const Use& use) {
    return use.range.overlaps(other.range) && (use.writes || other.writes);
  });
}

/// Once per pair, since both are immutable, unless there are too many.
const ReplayOrder::Peer& ReplayOrder::make_peer(const ReplayOrder& other) {
  Peer made{other.id_, {}};
  for (const Use& use : uses_) {
    if (other.conflicts(use)) made.shared.push_back(&use);
  }
  if (peers_.size() < peers_kept) return peers_.emplace_back(std::move(made));
  Peer& replaced = peers_[next_peer_++ % peers_kept];
  replaced = std::move(made);
  return replaced;
}

void ReplayOrder::forget(RecentTouches& recent) noexcept {
  for (const Use& use : uses_) use.hold->device.uses.forget_cell(&cell_);
  recent.forget(*this);
}

}  // namespace reprise::detail

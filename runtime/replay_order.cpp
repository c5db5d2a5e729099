// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/replay_order.hpp>

#include <algorithm>
#include <bit>
#include <functional>
#include <new>
#include <numeric>

namespace reprise::detail {

namespace {

std::size_t slot_of(const Hold* hold, std::size_t slots) noexcept {
  // Fibonacci hashing; the low bits of an address say little.
  return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(hold) * 0x9e3779b97f4a7c15U) >>
                                  32) &
         (slots - 1);
}

void add(Frontier& waits, StreamPoint point) {
  if (!waits.add(point)) throw std::bad_alloc();
}

}  // namespace

ReplayOrder::ReplayOrder(std::span<const Touch> touches, std::uint64_t id)
    : touches_(touches), id_(id), order_(touches.size()), marked_(touches.size()) {
  again_.reserve(touches.size());
  std::iota(order_.begin(), order_.end(), 0U);
  const auto hold = [this](std::uint32_t i) { return touches_[i].hold.get(); };
  std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::less<const Hold*>{}(hold(a), hold(b));
  });
  table_.resize(std::bit_ceil(2 * touches.size() + 1));
  for (std::uint32_t i = 0; i < order_.size();) {
    std::uint32_t end = i + 1;
    while (end < order_.size() && hold(order_[end]) == hold(order_[i])) ++end;
    std::size_t at = slot_of(hold(order_[i]), table_.size());
    while (table_[at].hold != nullptr) at = (at + 1) & (table_.size() - 1);
    table_[at] = {hold(order_[i]), i, end};
    i = end;
  }
}

std::span<const std::uint32_t> ReplayOrder::touches_of(const Hold* hold) const noexcept {
  for (std::size_t at = slot_of(hold, table_.size());; at = (at + 1) & (table_.size() - 1)) {
    const Bucket& bucket = table_[at];
    if (bucket.hold == hold) return {order_.data() + bucket.begin, bucket.end - bucket.begin};
    if (bucket.hold == nullptr) return {};
  }
}

void ReplayOrder::plan(const RecentTouches& recent, Frontier& waits) {
  ++plans_;
  again_.clear();
  planned_all_ = false;
  if (!plan_recent(recent, waits)) plan_all(waits);
}

/// False: too much has happened.
bool ReplayOrder::plan_recent(const RecentTouches& recent, Frontier& waits) {
  if (!noted_ || !recent.reaches(seen_)) return false;
  for (std::uint64_t number = seen_; number != recent.count(); ++number) {
    const RecentTouches::Entry& entry = recent[number];
    if (entry.graph != nullptr) {
      const auto& shared = shared_with(*entry.graph);
      if (shared.empty()) continue;
      add(waits, entry.point);
      for (const std::uint32_t index : shared) note_again(index);
      continue;
    }
    if (entry.hold == nullptr) return false;
    for (const std::uint32_t index : touches_of(entry.hold)) {
      const Touch& mine = touches_[index];
      if (!mine.range.overlaps(entry.range)) continue;
      if (!entry.wrote && !may_write(mine.access)) continue;
      add(waits, entry.point);
      note_again(index);
    }
  }
  for (const std::uint32_t index : again_) {
    touches_[index].hold->device.uses.ready(touches_[index].range);
  }
  return true;
}

void ReplayOrder::note_again(std::uint32_t index) {
  if (marked_[index] == plans_) return;
  marked_[index] = plans_;
  again_.push_back(index);
}

void ReplayOrder::plan_all(Frontier& waits) {
  REPRISE_MARK("replay_looked_at_all");
  planned_all_ = true;
  for (const Touch& touch : touches_) {
    UseMap& uses = touch.hold->device.uses;
    if (may_write(touch.access)) {
      uses.before_write(touch.range, waits);
    } else {
      uses.before_read(touch.range, waits);
    }
    uses.ready(touch.range);
  }
}

bool ReplayOrder::conflicts(const Touch& touch) const noexcept {
  for (const std::uint32_t index : touches_of(touch.hold.get())) {
    const Touch& mine = touches_[index];
    if (mine.range.overlaps(touch.range) && (may_write(mine.access) || may_write(touch.access))) {
      return true;
    }
  }
  return false;
}

/// Looked for once per pair: both are immutable.
const std::vector<std::uint32_t>& ReplayOrder::shared_with(const ReplayOrder& other) {
  for (const Peer& peer : peers_) {
    if (peer.id == other.id_) return peer.shared;
  }
  Peer found{other.id_, {}};
  for (std::uint32_t i = 0; &other != this && i < touches_.size(); ++i) {
    if (other.conflicts(touches_[i])) found.shared.push_back(i);
  }
  if (peers_.size() < peers_kept) {
    peers_.push_back(std::move(found));
    return peers_.back().shared;
  }
  Peer& replaced = peers_[next_peer_++ % peers_kept];
  replaced = std::move(found);
  return replaced.shared;
}

void ReplayOrder::note_uses(std::uint32_t index, bool writes) noexcept {
  const Touch& touch = touches_[index];
  if (may_write(touch.access) != writes) return;
  UseMap& uses = touch.hold->device.uses;
  const UsePoint use{cell_, &cell_};
  writes ? uses.note_write(touch.range, use) : uses.note_read(touch.range, use);
}

void ReplayOrder::note(RecentTouches& recent, StreamPoint point) noexcept {
  cell_ = point;
  for (const bool writes : {true, false}) {
    if (planned_all_) {
      for (std::uint32_t i = 0; i < touches_.size(); ++i) note_uses(i, writes);
    } else {
      for (const std::uint32_t index : again_) note_uses(index, writes);
    }
  }
  noted_ = true;
  recent.add(*this, point);
  seen_ = recent.count();
}

void ReplayOrder::forget(RecentTouches& recent) noexcept {
  if (!noted_) return;
  for (const Touch& touch : touches_) touch.hold->device.uses.forget_cell(&cell_);
  recent.forget(*this);
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/frontier.hpp>
#include <reprise/memory/hold.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace reprise::detail {

class ReplayOrder;

/// The newest touches of bytes that graphs name, by commands and by replays: what a replay looks at
/// instead of all its bytes.
///
/// Threads   The device thread's.
class RecentTouches {
public:
  /// How many are kept. A graph that has missed more looks at all its bytes.
  static constexpr std::uint64_t kept = 64;

  struct alignas(64) Entry {
    const ReplayOrder* graph = nullptr;  ///< Of a replay; the rest is of a command.
    Hold* hold = nullptr;                ///< Null in both cases: of a graph that is gone.
    ByteRange range;
    StreamPoint point;
    bool wrote = false;
  };

  /// How many there ever were.
  std::uint64_t count() const noexcept { return count_; }
  /// Whether all from number `first` on are kept.
  bool reaches(std::uint64_t first) const noexcept { return count_ - first <= kept; }
  const Entry& operator[](std::uint64_t number) const noexcept { return entries_[number % kept]; }

  void add(const Touch& touch, StreamPoint point) noexcept {
    entries_[count_++ % kept] = {nullptr, touch.hold.get(), touch.range, point,
                                 may_write(touch.access)};
  }
  /// The graph itself knows where its newest replay is. Answers the new count.
  std::uint64_t add(const ReplayOrder& graph) noexcept {
    const std::uint64_t number = count_;
    Entry& entry = entries_[number % kept];
    entry.graph = &graph;
    entry.hold = nullptr;
    return count_ = number + 1;
  }
  /// `graph` is about to go.
  void forget(const ReplayOrder& graph) noexcept {
    for (Entry& entry : entries_) {
      if (entry.graph == &graph) entry = {};
    }
  }

private:
  std::array<Entry, kept> entries_;
  std::uint64_t count_ = 0;
};

/// The place of one graph's replays in the order of all that touches its bytes.
///
/// The use map of each allocation names a cell of this graph as the last user of its bytes, and a
/// replay moves the cell: whoever comes later and touches the bytes waits for the newest replay
/// without a word having been written per range. The other way round, a replay follows the replay
/// before it, and of the others only those that have touched its bytes since, which it finds among
/// the recent touches. What they have written of its bytes it notes anew.
///
/// So a replay costs what happened since the last one, not what the graph holds, and if nothing
/// did, one store. The first one, and one that missed too much, look at every range.
///
/// Lifetime  forget() before it goes. Whoever has it keeps the holds.
/// Threads   The device thread's.
class ReplayOrder {
public:
  /// `id` is never reused and never 0. Throws std::bad_alloc.
  ReplayOrder(std::span<const Touch> touches, std::uint64_t id);
  ReplayOrder(const ReplayOrder&) = delete;
  ReplayOrder& operator=(const ReplayOrder&) = delete;

  /// Adds to `waits` what the next replay must come after, and makes room for note(). Throws
  /// std::bad_alloc. What is left of a replay that was planned and then not taken is at most that
  /// a later writer waits for the replay before it once more.
  void plan(const RecentTouches& recent, Frontier& waits) {
    if (seen_ != recent.count()) plan_fresh(recent, waits);
  }
  /// The replay that was planned is at `point`.
  void note(RecentTouches& recent, StreamPoint point) noexcept {
    cell_ = point;
    // Nobody has looked since this graph's own entry: who looks adds an entry of its own.
    if (seen_ != recent.count()) note_fresh(recent);
  }
  /// Takes the cell out of the use maps.
  void forget(RecentTouches& recent) noexcept;

  /// Whether every input was found clean, and every output left as a success leaves it, when the
  /// device had seen `changes` changes of taint: then there is nothing to look at.
  bool is_clean_at(std::uint64_t changes) const noexcept { return clean_at_ == changes; }
  void found_clean(std::uint64_t changes) noexcept { clean_at_ = changes; }

private:
  /// So far from every count that nothing after it is kept.
  static constexpr std::uint64_t never = std::uint64_t{1} << 63;
  static constexpr std::size_t peers_kept = 32;
  /// How many graphs that are no peers yet one plan looks at before it looks at all bytes instead.
  static constexpr int strangers_at_most = 4;

  /// What replays do with some bytes.
  struct Use {
    Hold* hold = nullptr;
    ByteRange range;
    bool writes = false;
  };
  /// The uses of one allocation: a stretch of uses_.
  struct Bucket {
    const Hold* hold = nullptr;
    const Use* begin = nullptr;
    const Use* end = nullptr;
  };
  /// Another graph, and which uses of this one are ordered against its replays.
  struct Peer {
    std::uint64_t id = 0;
    std::vector<const Use*> shared;
  };

  /// The last hold of which there is one use, and the last peer with one use in common.
  struct Usual {
    const Hold* hold = nullptr;
    const Use* hold_use = nullptr;
    std::uint64_t peer = 0;  ///< 0: none.
    const Use* peer_use = nullptr;
  };

  void drop_covered_reads() noexcept;
  void plan_fresh(const RecentTouches& recent, Frontier& waits);
  void plan_anew(const RecentTouches& recent, Frontier& waits);
  void ready_written();
  void note_fresh(RecentTouches& recent) noexcept;
  void note_written() noexcept;
  bool plan_after(const ReplayOrder& other, Frontier& waits, int& strangers);
  [[gnu::cold]] void plan_all(Frontier& waits);
  void plan_use(const Use& use);
  const Peer* find_peer(const ReplayOrder& other) const noexcept {
    const Peer* peer = peers_.data();
    const Peer* const end = peer + peers_.size();
    while (peer != end && peer->id != other.id_) ++peer;
    return peer != end ? peer : nullptr;
  }
  [[gnu::cold]] const Peer& make_peer(const ReplayOrder& other);
  std::size_t slot_of(const Hold* hold) const noexcept {
    // Fibonacci hashing; the low bits of an address say little.
    return (reinterpret_cast<std::uintptr_t>(hold) * 0x9e3779b97f4a7c15U) >> table_shift_;
  }
  std::size_t next_slot(std::size_t slot) const noexcept {
    return (slot + 1) & (table_.size() - 1);
  }
  /// An empty one if no replay uses `hold`.
  const Bucket& bucket_of(const Hold* hold) const noexcept {
    std::size_t at = slot_of(hold);
    while (table_[at].hold != hold && table_[at].hold != nullptr) at = next_slot(at);
    return table_[at];
  }
  bool conflicts(const Use& other) const noexcept;

  StreamPoint cell_;
  std::uint64_t seen_ = never;  ///< Of the recent touches.
  std::uint64_t clean_at_ = ~std::uint64_t{0};
  const std::uint64_t id_;

  std::vector<Use> uses_;      ///< Those of one hold together, writes first.
  std::vector<Bucket> table_;  ///< By hold; open addressing, at most half full.
  std::uint32_t table_shift_ = 0;

  std::vector<const Use*> written_;  ///< The first written_count_: what note() notes.
  std::size_t written_count_ = 0;
  std::vector<Peer> peers_;
  std::size_t next_peer_ = 0;  ///< Replaced next.
  Usual usual_;
};

}  // namespace reprise::detail

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

  struct Entry {
    StreamPoint point;
    const ReplayOrder* graph = nullptr;  ///< Of a replay; the rest is of a command.
    const Hold* hold = nullptr;          ///< Null in both cases: of a graph that is gone.
    ByteRange range;
    bool wrote = false;
  };

  /// How many there ever were.
  std::uint64_t count() const noexcept { return count_; }
  /// Whether all from number `first` on are kept.
  bool reaches(std::uint64_t first) const noexcept { return count_ - first <= kept; }
  const Entry& operator[](std::uint64_t number) const noexcept { return entries_[number % kept]; }

  void add(const Touch& touch, StreamPoint point) noexcept {
    entries_[count_++ % kept] = {point, nullptr, touch.hold.get(), touch.range,
                                 may_write(touch.access)};
  }
  void add(const ReplayOrder& graph, StreamPoint point) noexcept {
    Entry& newest = entries_[(count_ - 1) % kept];
    // Nobody has looked since: who looks adds an entry of its own.
    if (newest.graph == &graph) {
      newest.point = point;
    } else {
      entries_[count_++ % kept] = {point, &graph, nullptr, {}, false};
    }
  }
  /// `graph` is about to go.
  void forget(const ReplayOrder& graph) noexcept {
    for (Entry& entry : entries_) {
      if (entry.graph == &graph) entry.graph = nullptr;
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
/// So a replay costs what happened since the last one, not what the graph holds. The first one,
/// and one that missed too much, look at every range.
///
/// Lifetime  forget() before it goes.
/// Threads   The device thread's.
class ReplayOrder {
public:
  /// `touches` stay where they are, `id` is never reused. Throws std::bad_alloc.
  ReplayOrder(std::span<const Touch> touches, std::uint64_t id);
  ReplayOrder(const ReplayOrder&) = delete;
  ReplayOrder& operator=(const ReplayOrder&) = delete;

  /// Adds to `waits` what the next replay must come after, and makes room for note(). Throws
  /// std::bad_alloc, and has then changed no answer.
  void plan(const RecentTouches& recent, Frontier& waits);
  /// The replay that was planned is at `point`.
  void note(RecentTouches& recent, StreamPoint point) noexcept;
  /// Takes the cell out of the use maps.
  void forget(RecentTouches& recent) noexcept;

  /// Whether every input was found clean, and every output left as a success leaves it, when the
  /// device had seen `changes` changes of taint: then there is nothing to look at.
  bool is_clean_at(std::uint64_t changes) const noexcept { return clean_at_ == changes; }
  void found_clean(std::uint64_t changes) noexcept { clean_at_ = changes; }

private:
  static constexpr std::size_t peers_kept = 32;

  /// Another graph, and which of this one's touches are ordered against its replays.
  struct Peer {
    std::uint64_t id;
    std::vector<std::uint32_t> shared;
  };
  /// The touches of one allocation: a stretch of order_.
  struct Bucket {
    const Hold* hold = nullptr;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  bool plan_recent(const RecentTouches& recent, Frontier& waits);
  void plan_all(Frontier& waits);
  const std::vector<std::uint32_t>& shared_with(const ReplayOrder& other);
  std::span<const std::uint32_t> touches_of(const Hold* hold) const noexcept;
  bool conflicts(const Touch& touch) const noexcept;
  void note_again(std::uint32_t index);
  void note_uses(std::uint32_t index, bool writes) noexcept;

  const std::span<const Touch> touches_;
  const std::uint64_t id_;
  StreamPoint cell_;
  std::uint64_t seen_ = 0;  ///< Of the recent touches.
  std::uint64_t clean_at_ = ~std::uint64_t{0};
  bool noted_ = false;        ///< The use maps name the cell.
  bool planned_all_ = false;  ///< note() notes every touch.

  std::vector<std::uint32_t> order_;   ///< Indices of touches, those of one hold together.
  std::vector<Bucket> table_;          ///< By hold; open addressing, at most half full.
  std::vector<std::uint32_t> again_;   ///< What note() notes, if not all.
  std::vector<std::uint64_t> marked_;  ///< By touch: the plan that put it into again_.
  std::uint64_t plans_ = 0;
  std::vector<Peer> peers_;
  std::size_t next_peer_ = 0;  ///< Replaced next.
};

}  // namespace reprise::detail

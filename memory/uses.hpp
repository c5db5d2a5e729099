// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/check.hpp>
#include <reprise/memory/frontier.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/memory/small_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace reprise {

/// One use of bytes by the device: up to a point of a stream, or by a graph.
///
/// A graph's use names the cell that holds the point of its last replay, so that one store by a
/// replay moves all the uses that the graph has noted anywhere. A cell at position 0 is no use yet.
class UsePoint {
public:
  /// No use.
  constexpr UsePoint() noexcept = default;
  /// `point`, or whatever `cell` says if there is one.
  UsePoint(StreamPoint point, const StreamPoint* cell = nullptr) noexcept  // NOLINT: implicit
      : who_(cell ? number_of(cell) : plain(point.stream)), position_(cell ? 0 : point.position) {}

  /// The cell, nullptr if this is a plain point.
  const StreamPoint* cell() const noexcept {
    if (is_plain()) return nullptr;
    return reinterpret_cast<const StreamPoint*>(who_);  // NOLINT: the number was made of one
  }
  bool is_plain() const noexcept { return (who_ & 1) != 0; }
  bool is_none() const noexcept { return is_plain() && position_ == 0; }
  /// The point to wait for, as of now.
  StreamPoint at() const noexcept {
    return is_plain() ? StreamPoint{static_cast<StreamIndex>(who_ >> 1), position_} : *cell();
  }
  /// Whether both are of one cell, or plain ones of one stream.
  bool is_peer(const UsePoint& other) const noexcept { return who_ == other.who_; }
  /// Whether who waits for this has waited for `other`, now and whatever replays come.
  bool covers(const UsePoint& other) const noexcept {
    return is_peer(other) && position_ >= other.position_;
  }
  friend bool operator==(const UsePoint&, const UsePoint&) noexcept = default;

private:
  // Cells are aligned, so an odd number is a stream.
  static std::uintptr_t number_of(const StreamPoint* cell) noexcept {
    return reinterpret_cast<std::uintptr_t>(std::assume_aligned<alignof(StreamPoint)>(cell));
  }
  static constexpr std::uintptr_t plain(StreamIndex stream) noexcept {
    return std::uintptr_t{stream} << 1 | 1;
  }
  static_assert(sizeof(std::uintptr_t) > sizeof(StreamIndex) && alignof(StreamPoint) > 1);

  std::uintptr_t who_ = 1;
  StreamPosition position_ = 0;  // 0 beside a cell.
};

/// Who last used which bytes of one allocation, byte-exact. From this the order between streams
/// is derived: a command waits for what it must not overtake, and disjoint slices never wait.
///
/// Each byte has at most one last writer, and the readers since, at most one point of each stream
/// and each cell. Points of the asking command's own stream are told like any other; what is
/// ordered already is for the caller to leave out.
///
/// Lifetime  A cell outlives the map or is told to forget_cell() first.
/// Threads   For one thread, the device's.
/// Errors    Members that are not noexcept throw std::bad_alloc. The ones that change the map have
///           changed no answer then. Once every range of a command was made ready or planned,
///           noting its writes and then its reads does not throw: an accepted command is always
///           noted. Making ready changes no answer either; what a refused command leaves of it goes
///           with the next prune().
/// Units     Bytes, from the start of the allocation. Empty ranges mean nothing.
class UseMap {
public:
  /// Adds what has to finish before `range` may be read: its last writers.
  void before_read(ByteRange range, Frontier& out) const {
    if (!is_whole(range)) return collect(range, false, out);
    add(out, segments_[0].writer);
  }
  /// Adds what has to finish before `range` may be written: last writers, and readers since.
  void before_write(ByteRange range, Frontier& out) const {
    if (!is_whole(range)) return collect(range, true, out);
    add_all(out, segments_[0]);
  }
  /// Adds every use that is known, for a free.
  void all(Frontier& out) const { before_write({0, UINT64_MAX}, out); }

  /// Makes room for one note of `range`, by whatever stream.
  void ready(ByteRange range) {
    if (!is_whole(range) || !segments_[0].has_room()) ready_in_part(range);
  }
  /// The usual case: all of the allocation has the same uses, and `range` is just that. It is ready
  /// for a note of a write then.
  bool is_whole(ByteRange range) const noexcept {
    return segments_.size() == 1 && segments_[0].range == range;
  }
  /// before_read() and ready() in one.
  void plan_read(ByteRange range, Frontier& out) {
    if (!is_whole(range) || !segments_[0].has_room()) return plan_read_in_part(range, out);
    add(out, segments_[0].writer);
  }
  /// before_write() in one with the room that note_write() needs.
  void plan_write(ByteRange range, Frontier& out) {
    if (!is_whole(range)) return plan_write_in_part(range, out);
    add_all(out, segments_[0]);
  }
  void note_read(ByteRange range, UsePoint use) {
    REPRISE_CHECK(!use.is_none(), "a use has a position or a cell");
    if (!is_whole(range)) return note_read_in_part(range, use);
    segments_[0].add_reader(use);
  }
  /// The same if `range` is whole and nobody has read it since it was written; else false, and
  /// nothing has changed. Needs no room made for it.
  bool note_first_read(ByteRange range, UsePoint use) noexcept {
    if (!is_whole(range) || !segments_[0].readers.empty() || !segments_[0].has_room()) return false;
    segments_[0].add_reader(use);
    return true;
  }
  /// The writer has waited for before_write(), so what was known of `range` is forgotten, uses by
  /// cells included: a graph whose bytes others wrote notes its uses anew with its next replay.
  void note_write(ByteRange range, UsePoint use) {
    REPRISE_CHECK(!use.is_none(), "a use has a position or a cell");
    if (!is_whole(range)) return note_write_in_part(range, use);
    segments_[0].writer = use;
    segments_[0].readers.clear();
  }

  /// Turns the uses by `cell` into plain points, as the cell now stands.
  void forget_cell(const StreamPoint* cell) noexcept;
  /// Forgets the plain points for which `finished(StreamPoint)` holds. Uses by cells stay, since
  /// the next replay moves them without a word to the map.
  template <class Finished>
  void prune(Finished&& finished) {
    for (Segment& segment : segments_) {
      const auto forget = [&finished](const UsePoint& use) {
        return use.is_plain() && !use.is_none() && finished(use.at());
      };
      if (forget(segment.writer)) segment.writer = {};
      for (std::size_t i = segment.readers.size(); i-- > 0;) {
        if (forget(segment.readers[i])) segment.readers.erase(i, i + 1);
      }
    }
    fuse(0, segments_.size());
  }

  bool empty() const noexcept { return segments_.empty(); }
  /// How many stretches of bytes with different uses there are.
  std::size_t segments() const noexcept { return segments_.size(); }

private:
  /// A stretch of bytes with the same uses.
  struct Segment {
    explicit Segment(ByteRange where, UsePoint last_writer = {}) noexcept
        : range(where), writer(last_writer) {}

    ByteRange range;
    UsePoint writer;
    SmallVector<UsePoint, 2> readers;  ///< At most one of each stream and of each cell.

    bool unused() const noexcept { return writer.is_none() && readers.empty(); }
    bool has_room() const noexcept { return readers.size() < readers.capacity(); }
    bool same_uses(const Segment& other) const noexcept;
    /// The reader in whose place `use` goes, nullptr if there is none.
    UsePoint* peer(const UsePoint& use) noexcept {
      for (UsePoint& reader : readers) {
        if (reader.is_peer(use)) return &reader;
      }
      return nullptr;
    }
    /// Whether waiting for these uses waits for `use` as well, now and later.
    bool holds(const UsePoint& use) const noexcept {
      const UsePoint* mine = const_cast<Segment*>(this)->peer(use);
      return (mine ? *mine : writer).covers(use);
    }
    void ready_reader(const UsePoint& use) {
      if (!holds(use) && !peer(use)) readers.reserve(readers.size() + 1);
    }
    void add_reader(const UsePoint& use) {
      if (UsePoint* mine = peer(use)) {
        if (!mine->covers(use)) *mine = use;
      } else if (!writer.covers(use)) {
        readers.push_back(use);
      }
    }
  };

  [[noreturn]] static void no_memory();
  static void add(Frontier& out, const UsePoint& use) {
    if (!out.add(use.at())) no_memory();
  }
  static void add_all(Frontier& out, const Segment& segment) {
    // On one stream the readers came after the writer, and one point is enough.
    bool covered = false;
    for (const UsePoint& reader : segment.readers) {
      add(out, reader);
      covered = covered || reader.covers(segment.writer);
    }
    if (!covered) add(out, segment.writer);
  }
  void collect(ByteRange range, bool readers_too, Frontier& out) const;
  void cut(ByteRange range);
  void ready_in_part(ByteRange range);
  void plan_read_in_part(ByteRange range, Frontier& out);
  void plan_write_in_part(ByteRange range, Frontier& out);
  void note_read_in_part(ByteRange range, UsePoint use);
  void note_write_in_part(ByteRange range, UsePoint use);
  std::size_t find(std::uint64_t offset) const noexcept;
  std::size_t find_from(std::uint64_t offset) const noexcept;
  template <class Settled>
  ByteRange trimmed(ByteRange range, Settled&& settled) const noexcept;
  void split(std::uint64_t offset);
  void fill_gaps(ByteRange range);
  void fuse(std::size_t from, std::size_t to) noexcept;

  /// Sorted, disjoint. Bytes that no segment covers were never used.
  SmallVector<Segment, 1> segments_;
};

}  // namespace reprise

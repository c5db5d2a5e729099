// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/frontier.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/memory/small_vector.hpp>

#include <cstddef>
#include <cstdint>

namespace reprise {

/// One use of bytes by the device: up to a point of a stream, or by a graph.
///
/// A graph's use names the cell that holds the point of its last replay, so that one store by a
/// replay moves all the uses that the graph has noted anywhere. A cell at position 0 is no use yet.
struct UsePoint {
  StreamPoint point{};
  const StreamPoint* cell = nullptr;  ///< Where to look instead of `point`.

  /// The point to wait for, as of now.
  StreamPoint at() const noexcept { return cell ? *cell : point; }
  bool is_none() const noexcept { return cell == nullptr && point.position == 0; }
  friend bool operator==(const UsePoint& a, const UsePoint& b) noexcept {
    return a.cell == b.cell && (a.cell != nullptr || a.point == b.point);
  }
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
///           changed no answer then. Once every range of a command was made ready, noting its
///           writes and then its reads does not throw, so an accepted command is always noted.
/// Units     Bytes, from the start of the allocation. Empty ranges mean nothing.
class UseMap {
public:
  /// Adds what has to finish before `range` may be read: its last writers.
  void before_read(ByteRange range, Frontier& out) const;
  /// Adds what has to finish before `range` may be written: last writers, and readers since.
  void before_write(ByteRange range, Frontier& out) const;
  /// Adds every use that is known, for a free.
  void all(Frontier& out) const { before_write({0, UINT64_MAX}, out); }

  /// Makes room for note_read() of the same range and stream or cell.
  void ready_read(ByteRange range, UsePoint use);
  /// Makes room for note_write() of the same range.
  void ready_write(ByteRange range);
  void note_read(ByteRange range, UsePoint use);
  /// The writer has waited for before_write(), so what was known of `range` is forgotten, uses by
  /// cells included: a graph whose bytes others wrote notes its uses anew with its next replay.
  void note_write(ByteRange range, UsePoint use);

  /// Turns the uses by `cell` into plain points, as the cell now stands.
  void forget_cell(const StreamPoint* cell) noexcept;
  /// Forgets the plain points for which `finished(StreamPoint)` holds. Uses by cells stay, since
  /// the next replay moves them without a word to the map.
  template <class Finished>
  void prune(Finished&& finished) {
    for (Segment& segment : segments_) {
      const auto forget = [&finished](const UsePoint& use) {
        return use.cell == nullptr && use.point.position != 0 && finished(use.point);
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
  using Readers = SmallVector<UsePoint, 2>;
  /// A stretch of bytes with the same uses.
  struct Segment {
    ByteRange range;
    UsePoint writer;
    Readers readers;

    bool unused() const noexcept { return writer.is_none() && readers.empty(); }
    bool holds(const UsePoint& use) const noexcept;
    bool same_uses(const Segment& other) const noexcept;
    UsePoint* earlier_reader(const UsePoint& use) noexcept;
    void ready_reader(const UsePoint& use);
    void add_reader(const UsePoint& use);
  };

  std::size_t find(std::uint64_t offset) const noexcept;
  ByteRange without_holders(ByteRange range, const UsePoint& use) const noexcept;
  void split(std::uint64_t offset);
  void fill_gaps(ByteRange range);
  void fuse(std::size_t from, std::size_t to) noexcept;

  /// Sorted, disjoint. Bytes that no segment covers were never used.
  SmallVector<Segment, 1> segments_;
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/uses.hpp>

#include <reprise/memory/check.hpp>

#include <algorithm>
#include <new>
#include <utility>

// Why noting does not throw once all ranges of a command were made ready: that cuts the segments at
// the ends of each range, fills the gaps in the ranges that will be read, and makes room for the
// reader in each segment that does not know it yet. Notes fuse neighbours that say the same, and so
// may take away a cut that another range of the command still needs. While writes are noted, what
// fuses has an empty list of readers, so that cutting it again costs no memory but the slot, which a
// SmallVector keeps. While reads are noted, what fuses holds the use already, and note_read() cuts
// only segments that do not.

namespace reprise {

namespace {

void add(Frontier& out, const UsePoint& use) {
  if (!out.add(use.at())) throw std::bad_alloc();
}

}  // namespace

// Whether waiting for this segment's uses waits for `use` as well, now and later.
bool UseMap::Segment::holds(const UsePoint& use) const noexcept {
  const auto covers = [&use](const UsePoint& mine) {
    if (mine.cell || use.cell) return mine.cell == use.cell;
    return mine.point.stream == use.point.stream && mine.point.position >= use.point.position;
  };
  return covers(writer) || std::any_of(readers.begin(), readers.end(), covers);
}

bool UseMap::Segment::same_uses(const Segment& other) const noexcept {
  if (!(writer == other.writer) || readers.size() != other.readers.size()) return false;
  // No list names a use twice, so one inclusion is enough.
  return std::all_of(readers.begin(), readers.end(), [&other](const UsePoint& use) {
    return std::find(other.readers.begin(), other.readers.end(), use) != other.readers.end();
  });
}

// The reader that `use` takes the place of: the same stream's, none if there is no such.
UsePoint* UseMap::Segment::earlier_reader(const UsePoint& use) noexcept {
  const auto same_stream = [&use](const UsePoint& reader) {
    return !use.cell && !reader.cell && reader.point.stream == use.point.stream;
  };
  UsePoint* found = std::find_if(readers.begin(), readers.end(), same_stream);
  return found == readers.end() ? nullptr : found;
}

void UseMap::Segment::ready_reader(const UsePoint& use) {
  if (!holds(use) && !earlier_reader(use)) readers.reserve(readers.size() + 1);
}

void UseMap::Segment::add_reader(const UsePoint& use) {
  if (holds(use)) return;
  if (UsePoint* earlier = earlier_reader(use)) {
    earlier->point.position = use.point.position;
  } else {
    readers.push_back(use);
  }
}

// The first segment that ends after `offset`.
std::size_t UseMap::find(std::uint64_t offset) const noexcept {
  const auto after = [](std::uint64_t at, const Segment& segment) {
    return at < segment.range.end;
  };
  return static_cast<std::size_t>(
      std::upper_bound(segments_.begin(), segments_.end(), offset, after) - segments_.begin());
}

void UseMap::before_read(ByteRange range, Frontier& out) const {
  if (range.empty()) return;
  for (std::size_t i = find(range.begin); i < segments_.size(); ++i) {
    if (segments_[i].range.begin >= range.end) return;
    add(out, segments_[i].writer);
  }
}

void UseMap::before_write(ByteRange range, Frontier& out) const {
  if (range.empty()) return;
  for (std::size_t i = find(range.begin); i < segments_.size(); ++i) {
    if (segments_[i].range.begin >= range.end) return;
    add(out, segments_[i].writer);
    for (const UsePoint& reader : segments_[i].readers) add(out, reader);
  }
}

// Cuts the segment that lies across `offset` in two.
void UseMap::split(std::uint64_t offset) {
  const std::size_t i = find(offset);
  if (i == segments_.size() || segments_[i].range.begin >= offset) return;
  segments_.reserve(segments_.size() + 1);
  Segment right = segments_[i];
  right.range.begin = offset;
  right.readers.reserve(segments_[i].readers.capacity());  // Room that was made stays in both.
  segments_.splice(i + 1, i + 1, &right, 1);
  segments_[i].range.end = offset;
}

// Covers `range`, at whose ends no segment lies across, with segments from end to end.
void UseMap::fill_gaps(ByteRange range) {
  const std::size_t first = find(range.begin);
  std::size_t last = first;
  std::size_t gaps = 0;
  std::uint64_t at = range.begin;
  for (; last < segments_.size() && segments_[last].range.begin < range.end; ++last) {
    if (segments_[last].range.begin != at) ++gaps;
    at = segments_[last].range.end;
  }
  if (at != range.end) ++gaps;
  if (gaps == 0) return;
  SmallVector<Segment, 1> filled;
  filled.reserve(last - first + gaps);
  segments_.reserve(segments_.size() + gaps);
  at = range.begin;
  for (std::size_t i = first; i < last; ++i) {
    const ByteRange old = segments_[i].range;
    if (old.begin != at) filled.push_back(Segment{{at, old.begin}, {}, {}});
    filled.push_back(std::move(segments_[i]));
    at = old.end;
  }
  if (at != range.end) filled.push_back(Segment{{at, range.end}, {}, {}});
  segments_.splice(first, last, filled.data(), filled.size());
}

// What is left of `range` without the segments at its ends that hold `use` already.
ByteRange UseMap::without_holders(ByteRange range, const UsePoint& use) const noexcept {
  for (std::size_t i = find(range.begin); i < segments_.size() && !range.empty(); ++i) {
    if (segments_[i].range.begin > range.begin || !segments_[i].holds(use)) break;
    range.begin = segments_[i].range.end;
  }
  while (!range.empty()) {
    const std::size_t i = find(range.end - 1);
    if (i == segments_.size() || segments_[i].range.begin >= range.end) break;
    if (!segments_[i].holds(use)) break;
    range.end = segments_[i].range.begin;
  }
  return range;
}

void UseMap::ready_read(ByteRange range, UsePoint use) {
  if (segments_.size() == 1 && segments_[0].range == range) {
    segments_[0].ready_reader(use);
    return;
  }
  range = without_holders(range, use);
  if (range.empty()) return;
  split(range.begin);
  split(range.end);
  fill_gaps(range);
  for (std::size_t i = find(range.begin);
       i < segments_.size() && segments_[i].range.begin < range.end; ++i) {
    segments_[i].ready_reader(use);
  }
}

void UseMap::ready_write(ByteRange range) {
  if (range.empty() || (segments_.size() == 1 && segments_[0].range == range)) return;
  split(range.begin);
  split(range.end);
  fill_gaps(range);
}

void UseMap::note_read(ByteRange range, UsePoint use) {
  REPRISE_CHECK(!use.is_none(), "a use has a position or a cell");
  if (segments_.size() == 1 && segments_[0].range == range) {
    segments_[0].add_reader(use);
    return;
  }
  range = without_holders(range, use);
  if (range.empty()) return;
  ready_read(range, use);
  const std::size_t first = find(range.begin);
  std::size_t last = first;
  for (; last < segments_.size() && segments_[last].range.begin < range.end; ++last) {
    segments_[last].add_reader(use);
  }
  fuse(first, last);
}

void UseMap::note_write(ByteRange range, UsePoint use) {
  REPRISE_CHECK(!use.is_none(), "a use has a position or a cell");
  if (segments_.size() == 1 && segments_[0].range == range) {
    segments_[0].writer = use;
    segments_[0].readers.clear();
    return;
  }
  if (range.empty()) return;
  split(range.begin);
  split(range.end);
  const std::size_t first = find(range.begin);
  std::size_t last = first;
  while (last < segments_.size() && segments_[last].range.begin < range.end) ++last;
  Segment written{range, use, {}};
  segments_.splice(first, last, &written, 1);
  fuse(first, first + 1);
}

// Drops the unused among the segments [from, to) and lets equal neighbours grow together, those
// just outside included.
void UseMap::fuse(std::size_t from, std::size_t to) noexcept {
  std::size_t kept = from > 0 ? from - 1 : 0;
  const std::size_t end = std::min(to + 1, segments_.size());
  const std::size_t begin = kept;
  for (std::size_t i = begin; i < end; ++i) {
    if (segments_[i].unused() && i >= from && i < to) continue;
    if (kept > begin && segments_[kept - 1].range.end == segments_[i].range.begin &&
        segments_[kept - 1].same_uses(segments_[i])) {
      segments_[kept - 1].range.end = segments_[i].range.end;
      continue;
    }
    if (kept != i) segments_[kept] = std::move(segments_[i]);
    ++kept;
  }
  segments_.erase(kept, end);
}

void UseMap::forget_cell(const StreamPoint* cell) noexcept {
  const UsePoint left = cell->position == 0 ? UsePoint{} : UsePoint{*cell};
  for (Segment& segment : segments_) {
    if (segment.writer.cell == cell) segment.writer = left;
    for (std::size_t i = segment.readers.size(); i-- > 0;) {
      if (segment.readers[i].cell != cell) continue;
      segment.readers.erase(i, i + 1);
      if (!left.is_none()) segment.add_reader(left);  // Into the slot that was just left.
    }
  }
  fuse(0, segments_.size());
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/uses.hpp>

#include <algorithm>
#include <new>
#include <utility>

// Why noting does not throw once all ranges of a command were made ready: that cuts the segments at
// the ends of each range, fills the gaps in it, and makes room for one reader in each segment.
// A note fuses neighbours that say the same, and so may take away a cut that another range of the
// command still needs. But then, writes being noted before reads, what fused says already what the
// other note is about to say, and a note leaves out such segments at the ends of its range. So it
// cuts only where a cut is.

namespace reprise {

bool UseMap::Segment::same_uses(const Segment& other) const noexcept {
  if (!(writer == other.writer) || readers.size() != other.readers.size()) return false;
  // No list names a use twice, so one inclusion is enough.
  return std::all_of(readers.begin(), readers.end(), [&other](const UsePoint& use) {
    return std::find(other.readers.begin(), other.readers.end(), use) != other.readers.end();
  });
}

// The first segment that ends after `offset`.
std::size_t UseMap::find(std::uint64_t offset) const noexcept {
  const auto after = [](std::uint64_t at, const Segment& segment) {
    return at < segment.range.end;
  };
  return static_cast<std::size_t>(
      std::upper_bound(segments_.begin(), segments_.end(), offset, after) - segments_.begin());
}

// The first segment that begins at or after `offset`.
std::size_t UseMap::find_from(std::uint64_t offset) const noexcept {
  const std::size_t i = find(offset);
  return i < segments_.size() && segments_[i].range.begin < offset ? i + 1 : i;
}

void UseMap::no_memory() {
  throw std::bad_alloc();
}

void UseMap::collect(ByteRange range, bool readers_too, Frontier& out) const {
  if (range.empty()) return;
  const std::size_t last = find_from(range.end);
  for (std::size_t i = find(range.begin); i < last; ++i) {
    readers_too ? add_all(out, segments_[i]) : add(out, segments_[i].writer);
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
    if (old.begin != at) filled.emplace_back(ByteRange{at, old.begin});
    filled.push_back(std::move(segments_[i]));
    at = old.end;
  }
  if (at != range.end) filled.emplace_back(ByteRange{at, range.end});
  segments_.splice(first, last, filled.data(), filled.size());
}

// Covers `range` with segments from end to end, none of which reaches out of it.
void UseMap::cut(ByteRange range) {
  if (range.empty()) return;
  if (segments_.empty()) {
    segments_.emplace_back(range);
    return;
  }
  split(range.begin);
  split(range.end);
  fill_gaps(range);
}

void UseMap::ready_in_part(ByteRange range) {
  if (range.empty()) return;
  cut(range);
  const std::size_t last = find_from(range.end);
  for (std::size_t i = find(range.begin); i < last; ++i) {
    segments_[i].readers.reserve(segments_[i].readers.size() + 1);
  }
}

void UseMap::plan_read_in_part(ByteRange range, Frontier& out) {
  ready_in_part(range);
  collect(range, false, out);
}

void UseMap::plan_write_in_part(ByteRange range, Frontier& out) {
  cut(range);
  collect(range, true, out);
}

// What is left of `range` without the segments at its ends that need no change.
template <class Settled>
ByteRange UseMap::trimmed(ByteRange range, Settled&& settled) const noexcept {
  for (std::size_t i = find(range.begin); i < segments_.size() && !range.empty(); ++i) {
    if (segments_[i].range.begin > range.begin || !settled(segments_[i])) break;
    range.begin = segments_[i].range.end;
  }
  while (!range.empty()) {
    const std::size_t i = find(range.end - 1);
    if (i == segments_.size() || segments_[i].range.begin >= range.end) break;
    if (!settled(segments_[i])) break;
    range.end = segments_[i].range.begin;
  }
  return range;
}

void UseMap::note_read_in_part(ByteRange range, UsePoint use) {
  if (range.empty()) return;
  const ByteRange rest =
      trimmed(range, [&use](const Segment& segment) { return segment.holds(use); });
  if (!rest.empty()) {
    cut(rest);
    const std::size_t first = find(rest.begin);
    const std::size_t last = find_from(rest.end);
    for (std::size_t i = first; i < last; ++i) segments_[i].ready_reader(use);
    for (std::size_t i = first; i < last; ++i) segments_[i].add_reader(use);
  }
  fuse(find(range.begin), find_from(range.end));
}

void UseMap::note_write_in_part(ByteRange range, UsePoint use) {
  if (range.empty()) return;
  if (segments_.empty()) {
    segments_.emplace_back(range, use);
    return;
  }
  const ByteRange rest = trimmed(range, [&use](const Segment& segment) {
    return segment.writer == use && segment.readers.empty();
  });
  if (!rest.empty()) {
    cut(rest);
    const std::size_t first = find(rest.begin);
    segments_[first].range = rest;
    segments_[first].writer = use;
    segments_[first].readers.clear();
    segments_.erase(first + 1, find_from(rest.end));
  }
  fuse(find(range.begin), find_from(range.end));
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
  const UsePoint left = cell->position == 0 ? UsePoint() : UsePoint(*cell);
  for (Segment& segment : segments_) {
    if (segment.writer.cell() == cell) segment.writer = left;
    for (std::size_t i = segment.readers.size(); i-- > 0;) {
      if (segment.readers[i].cell() != cell) continue;
      segment.readers.erase(i, i + 1);
      if (!left.is_none()) segment.add_reader(left);  // Into the slot that was just left.
    }
  }
  fuse(0, segments_.size());
}

}  // namespace reprise

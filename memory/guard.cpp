// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/guard.hpp>

#include <reprise/memory/check.hpp>
#include <reprise/memory/pool.hpp>

#include <iterator>
#include <new>

namespace reprise {

void Guard::reset() noexcept {
  if (Pool* const pool = std::exchange(pool_, nullptr)) {
    pool->unguard(*block_, range_);
  }
}

namespace detail {

// Boundaries cut the address range into pieces of one depth. A boundary exists as long as a range
// begins or ends there; between two boundaries nothing does, so when the last such range goes the
// depths on both sides agree and the boundary can go too, without moving any other.

CoverMap::Boundaries::iterator CoverMap::boundary(std::uint64_t at) {
  auto next = boundaries_.lower_bound(at);
  if (next != boundaries_.end() && next->first == at) {
    return next;
  }
  const std::uint32_t depth = next == boundaries_.begin() ? 0 : std::prev(next)->second.depth;
  return boundaries_.emplace_hint(next, at, Boundary{depth, 0});
}

void CoverMap::drop_ref(Boundaries::iterator at) noexcept {
  if (--at->second.refs == 0) {
    boundaries_.erase(at);
  }
}

bool CoverMap::add(ByteRange range) noexcept {
  Boundaries::iterator first;
  Boundaries::iterator last;
  bool has_first = false;
  try {
    first = boundary(range.begin);
    ++first->second.refs;
    has_first = true;
    last = boundary(range.end);
    ++last->second.refs;
  } catch (const std::bad_alloc&) {
    if (has_first) {
      drop_ref(first);
    }
    return false;
  }
  for (auto at = first; at != last; ++at) {
    if (at->second.depth++ == 0) {
      covered_ += std::next(at)->first - at->first;
    }
  }
  return true;
}

void CoverMap::remove(ByteRange range) noexcept {
  const auto first = boundaries_.find(range.begin);
  const auto last = boundaries_.find(range.end);
  REPRISE_CHECK(first != boundaries_.end() && last != boundaries_.end(),
                "I18: a guard is dropped once, with the range it was made with");
  for (auto at = first; at != last; ++at) {
    REPRISE_CHECK(at->second.depth > 0, "I18: guard counts equal the holders");
    if (--at->second.depth == 0) {
      covered_ -= std::next(at)->first - at->first;
    }
  }
  drop_ref(last);
  drop_ref(first);
}

CoverMap::Count CoverMap::count() const noexcept {
  Count count;
  std::uint64_t ends = 0;
  for (auto at = boundaries_.begin(); at != boundaries_.end(); ++at) {
    const auto next = std::next(at);
    REPRISE_CHECK(next != boundaries_.end() || at->second.depth == 0,
                  "I18: behind the last guard nothing is guarded");
    if (at->second.depth != 0) count.covered += next->first - at->first;
    ends += at->second.refs;
  }
  count.ranges = ends / 2;
  return count;
}

}  // namespace detail
}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/access.hpp>
#include <reprise/memory/pool.hpp>
#include <reprise/memory/staging.hpp>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace reprise {

/// One allocation that a graph guards, and why: what the graph does with it.
struct GuardedRange {
  ByteRange bytes;                 ///< From the first address of the pool.
  Access access = Access::none;    ///< Of all its nodes together.
  std::uint64_t touched = 0;       ///< Bytes of it that nodes name. Overlaps count once.
  std::uint32_t other_graphs = 0;  ///< Which guard the same allocation.

  friend bool operator==(const GuardedRange&, const GuardedRange&) noexcept = default;
};

/// What one graph keeps out of the pool.
struct GraphMemory {
  std::uint64_t id = 0;
  std::string name;
  std::uint64_t guarded_bytes = 0;   ///< Its own ranges, overlaps once; graphs may share bytes.
  std::uint64_t shared_bytes = 0;    ///< Those of them that other graphs guard, too.
  std::uint64_t retained_bytes = 0;  ///< Host memory it keeps, which is in no pool.
  std::vector<GuardedRange> ranges = {};  ///< By address.
};

/// Where the memory of a device is, at one moment.
///
/// Units     Bytes, unless the name says pages.
struct MemoryReport {
  PoolStats pool;
  std::uint64_t limit = 0;
  std::uint64_t page_size = 0;
  std::uint64_t pages_mapped = 0;
  StagingStats staging;
  std::uint64_t staging_limit = 0;
  std::vector<GraphMemory> graphs;

  /// Mapped bytes that any request may have at once.
  std::uint64_t free_bytes() const noexcept {
    return pool.reserved - pool.in_use - pool.padding - pool.waiting;
  }
  /// What the graphs say they guard, shared bytes counted once. That is pool.guarded where nobody
  /// but graphs holds guards.
  std::uint64_t guarded_by_graphs() const;
};

/// The part of a report that the pool knows.
MemoryReport make_report(const Pool& pool);

/// Sorts the ranges of the graphs and works out which of them several guard, and how many bytes
/// each graph shares with others.
void find_shared(std::vector<GraphMemory>& graphs);

/// One line each for the pool, what is in it, staging, requests and every graph, and for every
/// allocation that a graph guards.
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);

/// Bytes that lie in at least one of the ranges.
std::uint64_t covered_bytes(std::vector<ByteRange> ranges);

/// "300 B", "4 KiB", "1.5 MiB": one decimal, cut and not rounded, left out where it is 0.
std::string bytes_text(std::uint64_t bytes);

}  // namespace reprise

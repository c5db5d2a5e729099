// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/pool.hpp>
#include <reprise/memory/staging.hpp>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace reprise {

/// What one graph keeps out of the pool.
struct GraphMemory {
  std::uint64_t id = 0;
  std::string name;
  std::uint64_t guarded_bytes = 0;  ///< Its own ranges, overlaps once; graphs may share bytes.
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
};

/// The part of a report that the pool knows.
MemoryReport make_report(const Pool& pool);

/// One line each for the pool, what is in it, staging, requests and every graph.
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);

}  // namespace reprise

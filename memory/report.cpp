// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/report.hpp>

#include <ostream>

namespace reprise {

namespace {

struct Bytes {
  std::uint64_t count;
};

// "300 B", "4 KiB", "1.5 MiB": one decimal, cut and not rounded, left out where it is 0.
std::ostream& operator<<(std::ostream& out, Bytes bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  unsigned unit = 0;
  std::uint64_t size = 1;
  while (unit + 1 < std::size(units) && bytes.count / size >= 1024) {
    size *= 1024;
    ++unit;
  }
  out << bytes.count / size;
  if (const std::uint64_t tenth = bytes.count % size * 10 / size; tenth != 0) {
    out << '.' << tenth;
  }
  return out << ' ' << units[unit];
}

}  // namespace

MemoryReport make_report(const Pool& pool) {
  MemoryReport report;
  report.pool = pool.stats();
  report.limit = pool.limit();
  report.page_size = pool.page_size();
  report.pages_mapped = report.pool.reserved / report.page_size;
  return report;
}

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) {
  const PoolStats& pool = report.pool;
  out << "reserved " << Bytes{pool.reserved} << " of " << Bytes{report.limit} << " ("
      << report.pages_mapped << " pages of " << Bytes{report.page_size} << "), at most "
      << Bytes{pool.peak_reserved} << '\n';
  out << "in use " << Bytes{pool.in_use} << " in " << pool.blocks << " blocks, padding "
      << Bytes{pool.padding} << ", waiting " << Bytes{pool.waiting} << ", free "
      << Bytes{report.free_bytes()} << ", guarded " << Bytes{pool.guarded} << '\n';
  out << "staging " << Bytes{report.staging.in_use} << " in " << report.staging.blocks
      << " blocks, reserved " << Bytes{report.staging.reserved} << " of "
      << Bytes{report.staging_limit} << '\n';
  out << "requests " << pool.requests << ", failed " << pool.failed_requests << ", with a wait "
      << pool.waits_made << ", same stream " << pool.reuses_same_stream << ", reclaims "
      << pool.reclaims << '\n';
  for (const GraphMemory& graph : report.graphs) {
    out << "graph " << graph.id << " '" << graph.name << "' guards " << Bytes{graph.guarded_bytes}
        << '\n';
  }
  return out;
}

}  // namespace reprise

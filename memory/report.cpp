// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/report.hpp>

#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

namespace reprise {

namespace {

const char* uses_text(Access access) noexcept {
  if (reads(access) && may_write(access)) return "read and written";
  if (may_write(access)) return "written";
  return reads(access) ? "read" : "held";
}

void print(std::ostream& out, const GuardedRange& range) {
  out << "  at " << range.bytes.begin << ' ' << bytes_text(range.bytes.size()) << ' '
      << uses_text(range.access);
  if (range.touched != range.bytes.size()) out << ", touches " << bytes_text(range.touched);
  if (range.other_graphs != 0) {
    out << ", shared with " << range.other_graphs
        << (range.other_graphs == 1 ? " graph" : " graphs");
  }
  out << '\n';
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  unsigned unit = 0;
  std::uint64_t size = 1;
  while (unit + 1 < std::size(units) && bytes / size >= 1024) {
    size *= 1024;
    ++unit;
  }
  std::string text = std::to_string(bytes / size);
  if (const std::uint64_t tenth = bytes % size * 10 / size; tenth != 0) {
    text += '.' + std::to_string(tenth);
  }
  return text + ' ' + units[unit];
}

MemoryReport make_report(const Pool& pool) {
  MemoryReport report;
  report.pool = pool.stats();
  report.limit = pool.limit();
  report.page_size = pool.page_size();
  report.pages_mapped = report.pool.reserved / report.page_size;
  return report;
}

void find_shared(std::vector<GraphMemory>& graphs) {
  // Graphs guard whole allocations, so that ranges are the same or disjoint.
  std::map<std::uint64_t, std::uint32_t> holders;
  for (GraphMemory& graph : graphs) {
    std::sort(graph.ranges.begin(), graph.ranges.end(),
              [](const auto& a, const auto& b) { return a.bytes.begin < b.bytes.begin; });
    for (const GuardedRange& range : graph.ranges) ++holders[range.bytes.begin];
  }
  for (GraphMemory& graph : graphs) {
    graph.shared_bytes = 0;
    for (GuardedRange& range : graph.ranges) {
      range.other_graphs = holders[range.bytes.begin] - 1;
      if (range.other_graphs != 0) graph.shared_bytes += range.bytes.size();
    }
  }
}

std::uint64_t covered_bytes(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](ByteRange a, ByteRange b) { return a.begin < b.begin; });
  std::uint64_t total = 0;
  std::uint64_t end = 0;
  for (const ByteRange range : ranges) {
    if (range.end > end) total += range.end - std::max(range.begin, end);
    end = std::max(end, range.end);
  }
  return total;
}

std::uint64_t MemoryReport::guarded_by_graphs() const {
  std::vector<ByteRange> ranges;
  for (const GraphMemory& graph : graphs) {
    for (const GuardedRange& range : graph.ranges) ranges.push_back(range.bytes);
  }
  return covered_bytes(std::move(ranges));
}

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) {
  const PoolStats& pool = report.pool;
  out << "reserved " << bytes_text(pool.reserved) << " of " << bytes_text(report.limit) << " ("
      << report.pages_mapped << " pages of " << bytes_text(report.page_size) << "), at most "
      << bytes_text(pool.peak_reserved) << '\n';
  out << "in use " << bytes_text(pool.in_use) << " in " << pool.blocks << " blocks, padding "
      << bytes_text(pool.padding) << ", waiting " << bytes_text(pool.waiting) << ", free "
      << bytes_text(report.free_bytes()) << ", guarded " << bytes_text(pool.guarded) << '\n';
  out << "staging " << bytes_text(report.staging.in_use) << " in " << report.staging.blocks
      << " blocks, reserved " << bytes_text(report.staging.reserved) << " of "
      << bytes_text(report.staging_limit) << '\n';
  out << "requests " << pool.requests << ", failed " << pool.failed_requests << ", with a wait "
      << pool.waits_made << ", same stream " << pool.reuses_same_stream << ", reclaims "
      << pool.reclaims << '\n';
  for (const GraphMemory& graph : report.graphs) {
    out << "graph " << graph.id << " '" << graph.name << "' guards "
        << bytes_text(graph.guarded_bytes);
    if (graph.shared_bytes != 0) {
      out << ", " << bytes_text(graph.shared_bytes) << " of it with other graphs";
    }
    if (graph.retained_bytes != 0) {
      out << ", keeps " << bytes_text(graph.retained_bytes) << " of the host's";
    }
    out << '\n';
    for (const GuardedRange& range : graph.ranges) print(out, range);
  }
  return out;
}

}  // namespace reprise

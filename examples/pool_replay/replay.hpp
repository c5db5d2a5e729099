// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/memory_event.hpp>
#include <reprise/memory/pool.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pool_replay {

/// What an allocator is asked to do, worked out from a trace: which block each step is about.
struct Step {
  enum class Kind : std::uint8_t { allocate, refuse, free, trim };
  Kind kind = Kind::allocate;
  std::uint32_t block = 0;    ///< Of those that the trace takes, in order.
  std::uint64_t bytes = 0;    ///< Asked for.
  std::uint64_t address = 0;  ///< In the trace.
};

struct Steps {
  std::vector<Step> steps;
  std::uint32_t blocks = 0;
  std::uint64_t pairs = 0;  ///< Blocks that come back.
  std::uint64_t peak_live = 0;
  std::uint64_t live_at_end = 0;
  std::uint64_t waited = 0;         ///< Blocks that came back while somebody still used them.
  std::uint64_t peak_reserved = 0;  ///< By what the trace says of pages.
};

/// Errors  Failure bad_format, naming the line and the value: a block that comes back without
///         having been taken or in another size, or is taken while it is.
Steps steps_of(std::span<const reprise::MemoryEvent> events);

/// Units  Bytes.
struct ReplayOptions {
  std::uint64_t page_size = std::uint64_t{2} << 20;
  std::uint64_t alignment = 256;
  std::uint64_t limit = 0;
  std::uint64_t growth = 0;
};

struct ReplayResult {
  std::string policy;
  std::uint64_t in_use = 0;  ///< At the end.
  std::uint64_t peak_reserved = 0;
  std::uint64_t refused = 0;
  std::uint64_t same_address = 0;  ///< Blocks that lie where they lay in the trace.
  double ns_per_pair = 0;          ///< A block taken and given back; 0 if there was none.
};

/// Does the steps again on a fresh Pool, whose blocks are finished when they come back, over pages
/// without memory. Ends with what is live in the trace. Throws Failure for bad options.
ReplayResult replay_on_pool(const Steps& steps, const ReplayOptions& options);

/// The same on the allocators that the benchmarks hold the pool against; none where they are not
/// part of the build.
std::vector<ReplayResult> replay_on_peers(const Steps& steps);

}  // namespace pool_replay

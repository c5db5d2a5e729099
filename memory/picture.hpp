// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/block.hpp>
#include <reprise/memory/report.hpp>
#include <reprise/memory/taint.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

/// What there is to see in the memory of a device, at one moment.
///
/// Units     Bytes from the first address of the pool, so that two runs look alike.
struct MemorySnapshot {
  struct Block {
    ByteRange bytes;
    BlockState state = BlockState::hole;
    std::uint64_t asked = 0;  ///< Of a live block: what its owner asked for.
  };
  struct Mark {
    ByteRange bytes;
    ClaimPtr claim;
  };

  MemoryReport report;
  std::vector<Block> blocks;  ///< By address, without gaps.
  std::vector<Mark> marks;    ///< By address, disjoint: bytes that cannot be read.
};

/// Draws the snapshot as a complete SVG file: a row for each mapped page, with buffers in use, what
/// waits for its last users, and what is free; guarded bytes are hatched, bytes that carry a
/// failure are red; below it a legend with sizes, and the graphs. The same snapshot gives the same
/// text. Pages that one block fills go on one row; what is smaller than the picture can show is
/// drawn at the least width; beyond 200 rows it is cut and says so.
///
/// Errors    Throws std::bad_alloc.
std::string render_svg(const MemorySnapshot& snapshot, std::string_view title);

}  // namespace reprise

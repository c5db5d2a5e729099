// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/kernel.hpp>

namespace reprise {

Grid grid_for(std::uint64_t items, std::uint32_t per_block, SourceLocation where) {
  if (per_block == 0) {
    throw Failure(Errc::invalid_argument, "grid_for", "0 items per block");
  }
  const std::uint64_t blocks = (items + per_block - 1) / per_block;
  constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
  if (blocks > most) {
    throw Failure(Errc::invalid_argument, "grid_for",
                  std::to_string(blocks) + " blocks, more than " + std::to_string(most));
  }
  return Grid{Dim3{static_cast<std::uint32_t>(blocks), 1, 1}, Dim3{per_block, 1, 1}, 0, where};
}

}  // namespace reprise

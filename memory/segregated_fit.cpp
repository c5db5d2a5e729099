// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/segregated_fit.hpp>

#include <algorithm>
#include <new>

namespace reprise::detail {

bool BlockSlab::grow(std::size_t count) noexcept {
  const std::size_t fresh = std::max(chunk_blocks, count - spare_count_);
  PoolBlock* blocks = nullptr;
  try {
    chunks_.push_back(std::make_unique<PoolBlock[]>(fresh));
    blocks = chunks_.back().get();
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (std::size_t i = fresh; i != 0; --i) {
    put(&blocks[i - 1]);
  }
  return true;
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>

namespace reprise::test {

/// What random tests start from: REPRISE_SEED, or a fixed number.
inline std::uint64_t seed() {
  const char* text = std::getenv("REPRISE_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 20240229;
}

}  // namespace reprise::test

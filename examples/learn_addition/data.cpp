// SPDX-License-Identifier: Apache-2.0
#include <learn_addition/data.hpp>

#include <numeric>
#include <utility>

namespace learn_addition {

Split split_sums(std::uint64_t seed, std::size_t unseen_count) {
  std::vector<Sum> sums(all_sums);
  std::iota(sums.begin(), sums.end(), 0U);
  // A shuffle of its own: the standard one may differ between libraries.
  std::uint64_t state = seed;
  for (std::size_t left = sums.size(); left > 1; --left) {
    state = mix(state);
    std::swap(sums[left - 1], sums[state % left]);
  }
  const auto middle = sums.begin() + static_cast<std::ptrdiff_t>(unseen_count);
  return {.train = {middle, sums.end()}, .unseen = {sums.begin(), middle}};
}

}  // namespace learn_addition

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace examples {

/// Sums side by side, which a compiler can keep in vector registers. All sums below run in an order
/// that only the sizes decide, so every way of running a kernel gives the same bits.
inline constexpr std::size_t lanes = 8;

/// The sum of a[i] * b[i]: one partial sum for each lane, added up pairwise at the end.
inline float dot(const float* a, const float* b, std::size_t n) {
  float sum[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) sum[lane] += a[i] * b[i];
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
  }
  return sum[0];
}

/// `count` values, each `stride` after the one before.
struct Strided {
  const float* first;
  std::size_t stride;
};

namespace detail {

// Adds to as many whole tiles of `width` elements as fit from `at` on. Answers where they end.
template <std::size_t width>
std::size_t add_tiles(Strided weights, Strided rows, std::size_t count, float* out,
                      std::size_t size, std::size_t at) {
  for (; at + width <= size; at += width) {
    float sum[width];
    std::copy_n(out + at, width, sum);
    for (std::size_t k = 0; k < count; ++k) {
      const float weight = weights.first[k * weights.stride];
      const float* row = rows.first + k * rows.stride + at;
      for (std::size_t i = 0; i < width; ++i) sum[i] += weight * row[i];
    }
    std::copy_n(sum, width, out + at);
  }
  return at;
}

}  // namespace detail

/// out[i] += the sum over all k < count of weights[k] * rows[k][i], for `size` elements of a row.
inline void add_weighted_rows(Strided weights, Strided rows, std::size_t count, float* out,
                              std::size_t size) {
  std::size_t at = detail::add_tiles<4 * lanes>(weights, rows, count, out, size, 0);
  at = detail::add_tiles<lanes>(weights, rows, count, out, size, at);
  at = detail::add_tiles<2>(weights, rows, count, out, size, at);
  detail::add_tiles<1>(weights, rows, count, out, size, at);
}

}  // namespace examples

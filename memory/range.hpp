// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace reprise {

/// A half-open range of bytes [begin, end). Offsets count from the start of an allocation unless
/// the place that uses it says otherwise.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  constexpr std::uint64_t size() const noexcept { return end - begin; }
  constexpr bool empty() const noexcept { return begin >= end; }
  constexpr bool overlaps(ByteRange other) const noexcept {
    return begin < other.end && other.begin < end;
  }
  constexpr bool contains(ByteRange other) const noexcept {
    return begin <= other.begin && other.end <= end;
  }
  constexpr ByteRange intersect(ByteRange other) const noexcept {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
  friend constexpr bool operator==(ByteRange, ByteRange) noexcept = default;
};

constexpr bool is_power_of_two(std::uint64_t n) noexcept {
  return n != 0 && (n & (n - 1)) == 0;
}

/// `n` rounded up to a multiple of `alignment`, a power of two.
constexpr std::uint64_t align_up(std::uint64_t n, std::uint64_t alignment) noexcept {
  return (n + alignment - 1) & ~(alignment - 1);
}

/// A backend stream of one device, by its index in the device's table.
using StreamIndex = std::uint32_t;
/// The how-manieth command of a backend stream: 1 is the first. 0 means "none".
using StreamPosition = std::uint64_t;

/// A point in the work of a device: the first `position` commands of stream `stream`.
struct StreamPoint {
  StreamIndex stream = 0;
  StreamPosition position = 0;

  friend constexpr bool operator==(StreamPoint, StreamPoint) noexcept = default;
};

}  // namespace reprise

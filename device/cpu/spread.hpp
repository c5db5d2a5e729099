// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/range.hpp>
#include <reprise/device/graph_program.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace reprise::detail {

/// The bytes that failed nodes of one run have spoiled, and the root of each.
///
/// Errors  Members that take memory throw std::bad_alloc.
class Spread {
public:
  static constexpr std::uint32_t clean = ~std::uint32_t{0};

  /// The failed node that spoiled something these touches read, or `clean`.
  std::uint32_t root_of(std::span<const NodeTouch> touches) const noexcept;
  /// A node did not do its work: what it may write is spoiled by `root`.
  void spoil(std::span<const NodeTouch> touches, std::uint32_t root);
  /// A node succeeded: what it must write is good again.
  void mend(std::span<const NodeTouch> touches);

private:
  struct Spoiled {
    ByteRange bytes;
    std::uint32_t root;
  };

  void clear(ByteRange bytes);

  std::vector<Spoiled> spoiled_;  // Disjoint, in no order.
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise {

/// How a command uses bytes: the three sets of the design as flags of one range.
///
/// reads       the bytes are an input; tainted ones make the command be skipped
/// may_write   a failure taints them
/// must_write  success clears their taint; implies may_write
enum class Access : std::uint8_t {
  none = 0,
  reads = 1,
  may_write = 2,
  must_write = 4 | 2,
};
constexpr Access operator|(Access a, Access b) noexcept {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool reads(Access a) noexcept {
  return (static_cast<std::uint8_t>(a) & 1) != 0;
}
constexpr bool may_write(Access a) noexcept {
  return (static_cast<std::uint8_t>(a) & 2) != 0;
}
constexpr bool must_write(Access a) noexcept {
  return (static_cast<std::uint8_t>(a) & 4) != 0;
}
/// The same, but nothing is certainly written.
constexpr Access at_most(Access a) noexcept {
  return static_cast<Access>(static_cast<std::uint8_t>(a) & 3);
}

}  // namespace reprise

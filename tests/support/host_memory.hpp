// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise::test {

/// The host allocations of the calling thread so far, through operator new.
std::uint64_t host_allocations() noexcept;

/// While one lives, host allocations of its thread fail: the n-th from now, alone or with all that
/// follow. One at a time per thread.
class HostMemoryFault {
public:
  enum class Flavour : std::uint8_t { once, from_then_on };

  /// `nth` is 1 for the very next allocation.
  explicit HostMemoryFault(std::uint64_t nth, Flavour flavour = Flavour::from_then_on) noexcept;
  HostMemoryFault(const HostMemoryFault&) = delete;
  HostMemoryFault& operator=(const HostMemoryFault&) = delete;
  ~HostMemoryFault();

  /// Whether an allocation was made to fail.
  bool fired() const noexcept;
};

}  // namespace reprise::test

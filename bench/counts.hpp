// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How often this process has asked for heap memory.
namespace reprise::bench {

/// Whether allocations can be counted: not under a sanitizer, which has its own allocator.
bool counts_allocations() noexcept;

/// malloc, calloc, realloc and their aligned kin called so far, by all threads, while one of these
/// lives; operator new comes down to them.
class AllocationCount {
public:
  AllocationCount() noexcept;
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  long so_far() const noexcept;

private:
  long before_;
};

}  // namespace reprise::bench

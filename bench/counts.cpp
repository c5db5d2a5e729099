// SPDX-License-Identifier: Apache-2.0
#include "counts.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define REPRISE_BENCH_COUNTS 1
#endif

namespace reprise::bench {
namespace {

// Relaxed throughout: numbers, no order.
std::atomic<int> counting{0};
std::atomic<long> allocations{0};

[[maybe_unused]] void note() noexcept {
  if (counting.load(std::memory_order_relaxed) != 0)
    allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool counts_allocations() noexcept {
#ifdef REPRISE_BENCH_COUNTS
  return true;
#else
  return false;
#endif
}

AllocationCount::AllocationCount() noexcept : before_(allocations.load(std::memory_order_relaxed)) {
  counting.fetch_add(1, std::memory_order_relaxed);
}

AllocationCount::~AllocationCount() {
  counting.fetch_sub(1, std::memory_order_relaxed);
}

long AllocationCount::so_far() const noexcept {
  return allocations.load(std::memory_order_relaxed) - before_;
}

}  // namespace reprise::bench

#ifdef REPRISE_BENCH_COUNTS

// A program may define these; the C library's own go by other names too. While nobody counts, an
// allocation costs one relaxed load and a branch more, Reprise's and the peers' alike; freeing is
// left alone.
extern "C" {

void* __libc_malloc(std::size_t);                 // NOLINT: the library's name
void* __libc_calloc(std::size_t, std::size_t);    // NOLINT
void* __libc_realloc(void*, std::size_t);         // NOLINT
void* __libc_memalign(std::size_t, std::size_t);  // NOLINT

void* malloc(std::size_t bytes) {
  reprise::bench::note();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  reprise::bench::note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  reprise::bench::note();
  return __libc_realloc(block, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  reprise::bench::note();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  reprise::bench::note();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  reprise::bench::note();
  *block = __libc_memalign(alignment, bytes);
  return *block != nullptr ? 0 : ENOMEM;
}

}  // extern "C"

#endif

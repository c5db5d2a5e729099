// SPDX-License-Identifier: Apache-2.0
#include <support/host_memory.hpp>

#include <cstddef>
#include <cstdlib>
#include <new>

// Replaces the global operator new of the test executable. The state is per thread and needs no
// constructor, so it can be used from the first allocation of a thread to its last.

namespace reprise::test {

namespace {

thread_local std::uint64_t allocations = 0;
thread_local std::uint64_t fails_at = 0;  // The allocation that fails next, 0 for none.
thread_local bool fails_once = false;
thread_local bool has_fired = false;

bool take_allocation() noexcept {
  ++allocations;
  if (fails_at == 0 || allocations < fails_at) return true;
  has_fired = true;
  if (fails_once) fails_at = 0;
  return false;
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (!take_allocation()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

std::uint64_t host_allocations() noexcept {
  return allocations;
}

HostMemoryFault::HostMemoryFault(std::uint64_t nth, Flavour flavour) noexcept {
  fails_at = allocations + nth;
  fails_once = flavour == Flavour::once;
  has_fired = false;
}

HostMemoryFault::~HostMemoryFault() {
  fails_at = 0;
}

bool HostMemoryFault::fired() const noexcept {
  return has_fired;
}

}  // namespace reprise::test

using reprise::test::allocate;
using reprise::test::allocate_or_throw;

void* operator new(std::size_t size) {
  return allocate_or_throw(size, 0);
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 0);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}

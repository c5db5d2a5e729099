// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/block_cache.hpp>

#include <concurrentqueue/concurrentqueue.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace reprise {
namespace {

constexpr std::align_val_t line{BlockCache::alignment};

/// An idle block must not be touched; the address sanitizer says so.
void hide([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(block, bytes);
#endif
}

void show([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(block, bytes);
#endif
}

constexpr std::size_t threads = 64;  // that may give without the queue asking the heap for more

}  // namespace

/// Idle blocks of one size. The queue's own memory is set aside here, and what it cannot hold
/// without asking for more is not kept: that is the bound.
struct BlockCache::Shelf {
  Shelf(std::size_t size, std::size_t kept) : bytes(size), idle(kept, 0, threads) {}
  ~Shelf() {
    for (void* block = nullptr; idle.try_dequeue(block);) {
      show(block, bytes);
      ::operator delete(block, line);
    }
  }
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  const std::size_t bytes;
  moodycamel::ConcurrentQueue<void*> idle;
};

BlockCache::BlockCache(std::size_t kept)
    : small_(std::make_unique<Shelf>(small_block, kept)),
      large_(std::make_unique<Shelf>(large_block, kept)) {}

BlockCache::~BlockCache() = default;

BlockCache::Shelf* BlockCache::shelf_for(std::size_t size) const noexcept {
  if (size <= small_block) return small_.get();
  return size <= large_block ? large_.get() : nullptr;
}

void* BlockCache::try_take(std::size_t size) noexcept {
  Shelf* const shelf = shelf_for(size);
  if (shelf != nullptr) {
    if (void* block = nullptr; shelf->idle.try_dequeue(block)) {
      show(block, shelf->bytes);
      return block;
    }
    size = shelf->bytes;
  }
  heap_requests_.fetch_add(1, std::memory_order_relaxed);  // a count, no partner
  return ::operator new(size, line, std::nothrow);
}

void* BlockCache::take(std::size_t size) {
  void* const block = try_take(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void BlockCache::give(void* block, std::size_t size) noexcept {
  if (block == nullptr) return;
  Shelf* const shelf = shelf_for(size);
  if (shelf != nullptr) {
    hide(block, shelf->bytes);  // before another thread can have it
    if (shelf->idle.try_enqueue(block)) return;
    show(block, shelf->bytes);
  }
  ::operator delete(block, line);
}

BlockCache& BlockCache::shared() noexcept {
  alignas(BlockCache) static std::byte storage[sizeof(BlockCache)];
  static BlockCache* const cache = ::new (static_cast<void*>(storage)) BlockCache();
  return *cache;
}

}  // namespace reprise

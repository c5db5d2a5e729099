// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace reprise {

/// Blocks of two sizes that go round between threads, for what a command carries besides itself:
/// arguments too large for a slot, the cells of operations. Once as many are about as are in use
/// at a time, taking and giving allocate nothing.
///
/// Lifetime  Blocks may be given back to the cache they came from only, and before its end.
/// Threads   Any.
/// Errors    take() throws std::bad_alloc; the try_ form answers null; giving never fails.
/// Units     Bytes. Larger requests than `large_block` go to the heap each time.
class BlockCache {
public:
  static constexpr std::size_t small_block = 256;
  static constexpr std::size_t large_block = 1024;
  static constexpr std::size_t alignment = 64;

  /// Keeps about `kept` idle blocks of each size; what is given beyond that goes to the heap.
  explicit BlockCache(std::size_t kept = 4096);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  /// Uninitialised memory for `size` bytes, aligned to a line.
  void* take(std::size_t size);
  void* try_take(std::size_t size) noexcept;

  /// `size` is what the block was taken with. Null is nothing.
  void give(void* block, std::size_t size) noexcept;

  /// How often the heap was asked so far.
  std::uint64_t heap_requests() const noexcept {
    return heap_requests_.load(std::memory_order_relaxed);  // a count, no partner
  }

  /// The one of the process. Never destroyed, so blocks may be given back by static destructors.
  static BlockCache& shared() noexcept;

private:
  struct Shelf;

  Shelf* shelf_for(std::size_t size) const noexcept;

  std::unique_ptr<Shelf> small_;
  std::unique_ptr<Shelf> large_;
  std::atomic<std::uint64_t> heap_requests_{0};
};

/// Destroys an object and gives its block back to the shared cache.
struct GiveBlock {
  template <class T>
  void operator()(T* object) const noexcept {
    std::destroy_at(object);
    BlockCache::shared().give(object, sizeof(T));
  }
};

/// An object in a block of the shared cache.
template <class T>
using BlockPtr = std::unique_ptr<T, GiveBlock>;

/// Throws std::bad_alloc, and what the constructor throws.
template <class T, class... Arguments>
BlockPtr<T> make_in_block(Arguments&&... arguments) {
  static_assert(alignof(T) <= BlockCache::alignment);
  void* const block = BlockCache::shared().take(sizeof(T));
  try {
    return BlockPtr<T>(::new (block) T(std::forward<Arguments>(arguments)...));
  } catch (...) {
    BlockCache::shared().give(block, sizeof(T));
    throw;
  }
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/block_cache.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise {
namespace {

bool is_aligned(const void* block) {
  return reinterpret_cast<std::uintptr_t>(block) % BlockCache::alignment == 0;
}

}  // namespace

TEST_CASE("a block that was given back is taken again without asking the heap",
          "[runtime][block_cache]") {
  BlockCache cache;
  for (const std::size_t size : {std::size_t{1}, BlockCache::small_block,
                                 BlockCache::small_block + 1, BlockCache::large_block}) {
    CAPTURE(size);
    void* const first = cache.take(size);
    CHECK(is_aligned(first));
    std::memset(first, 0x5a, size);
    cache.give(first, size);
    const std::uint64_t asked = cache.heap_requests();
    void* const again = cache.take(size);
    CHECK(again == first);
    CHECK(cache.heap_requests() == asked);
    cache.give(again, size);
  }
}

TEST_CASE("blocks in use are distinct and hold their whole size", "[runtime][block_cache]") {
  BlockCache cache;
  std::vector<std::pair<unsigned char*, std::size_t>> taken;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t size = 1 + (i * 37) % 1500;
    auto* const block = static_cast<unsigned char*>(cache.take(size));
    std::memset(block, int(i), size);
    taken.emplace_back(block, size);
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto [block, size] = taken[i];
    CHECK(std::count(block, block + size, static_cast<unsigned char>(i)) == std::ptrdiff_t(size));
    cache.give(block, size);
  }
}

TEST_CASE("a request beyond the largest block goes to the heap each time",
          "[runtime][block_cache]") {
  BlockCache cache;
  for (int i = 1; i <= 3; ++i) {
    void* const block = cache.take(BlockCache::large_block + 1);
    CHECK(is_aligned(block));
    CHECK(cache.heap_requests() == std::uint64_t(i));
    cache.give(block, BlockCache::large_block + 1);
  }
}

TEST_CASE("more idle blocks than the cache keeps go back to the heap", "[runtime][block_cache]") {
  constexpr std::size_t kept = 64;
  constexpr std::size_t many = 4096;
  BlockCache cache(kept);
  std::vector<void*> taken;
  for (std::size_t i = 0; i < many; ++i) taken.push_back(cache.take(16));
  for (void* block : taken) cache.give(block, 16);
  const std::uint64_t asked = cache.heap_requests();
  for (void*& block : taken) block = cache.take(16);
  const std::uint64_t found = many - (cache.heap_requests() - asked);
  CHECK(found >= kept);
  CHECK(found < many);
  for (void* block : taken) cache.give(block, 16);
}

// The sanitizers' heaps end the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a size that no heap has is answered with null or thrown", "[runtime][block_cache]") {
  BlockCache cache;
  constexpr std::size_t absurd = ~std::size_t{0} / 4;
  CHECK(cache.try_take(absurd) == nullptr);
  CHECK_THROWS_AS(cache.take(absurd), std::bad_alloc);
  cache.give(nullptr, 16);
}
#endif

TEST_CASE("blocks that circle between two threads stop asking the heap",
          "[runtime][block_cache][threads]") {
  BlockCache cache;
  constexpr int rounds = 2000;
  constexpr std::size_t batch = 8;
  std::array<std::atomic<void*>, batch> hand{};
  std::thread giver([&] {
    for (int r = 0; r < rounds; ++r)
      for (auto& place : hand) {
        void* block = nullptr;
        // Acquire: the partner is the taker's store; release: its look for an empty place, so that
        // it finds what was given before.
        while ((block = place.exchange(nullptr, std::memory_order_acq_rel)) == nullptr)
          std::this_thread::yield();
        if (*static_cast<int*>(block) != r) std::terminate();
        cache.give(block, 200);
      }
  });
  for (int r = 0; r < rounds; ++r)
    for (auto& place : hand) {
      void* const block = cache.take(200);
      *static_cast<int*>(block) = r;
      while (place.load(std::memory_order_acquire) != nullptr) std::this_thread::yield();
      place.store(block, std::memory_order_release);
    }
  giver.join();
  // At most a batch waits in the hand and one on either side of it.
  CHECK(cache.heap_requests() <= batch + 2);
}

TEST_CASE("an object in a block gives the block back, also when its constructor throws",
          "[runtime][block_cache]") {
  struct Throwing {
    explicit Throwing(bool now) {
      if (now) throw std::runtime_error("no");
    }
    std::array<char, 900> bytes{};
  };
  BlockCache& cache = BlockCache::shared();
  void* first = nullptr;
  {
    const auto object = make_in_block<Throwing>(false);
    first = object.get();
  }
  const std::uint64_t asked = cache.heap_requests();
  CHECK_THROWS_AS(make_in_block<Throwing>(true), std::runtime_error);
  const auto object = make_in_block<Throwing>(false);
  CHECK(object.get() == first);
  CHECK(cache.heap_requests() == asked);
  CHECK(make_in_block<std::string>(300, 'x')->size() == 300);
}

}  // namespace reprise

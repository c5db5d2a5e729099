// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/staging.hpp>

#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

using namespace reprise;

namespace {

constexpr std::uint64_t KiB = 1024;

/// Heap memory that keeps the books and fails on request.
class Heap : public StagingSource {
public:
  ~Heap() override { CHECK(held == 0); }

  void* allocate(std::uint64_t bytes) noexcept override {
    ++allocations;
    if (failing > 0 && failing-- > 0) return nullptr;
    const std::uint64_t now = held += bytes;
    std::uint64_t most = peak;
    while (most < now && !peak.compare_exchange_weak(most, now)) {
    }
    return std::aligned_alloc(64, bytes);
  }
  void free(void* memory, std::uint64_t bytes) noexcept override {
    held -= bytes;
    std::free(memory);
  }

  std::atomic<std::uint64_t> held{0};
  std::atomic<std::uint64_t> peak{0};
  std::atomic<int> allocations{0};
  std::atomic<int> failing{0};
};

StagingBlock take(StagingPool& pool, std::uint64_t bytes) {
  auto taken = pool.take(bytes);
  REQUIRE(taken);
  return std::move(taken).value();
}

Errc refusal(StagingPool& pool, std::uint64_t bytes) {
  auto taken = pool.take(bytes);
  REQUIRE_FALSE(taken);
  return taken.error().code;
}

}  // namespace

TEST_CASE("a staging block has room for what was asked and is counted exactly", "[memory]") {
  Heap heap;
  StagingPool pool(heap, {.limit_bytes = 64 * KiB, .least_block = 1 * KiB});
  CHECK(pool.max_block() == 16 * KiB);
  StagingBlock small = take(pool, 100);
  StagingBlock large = take(pool, 5000);
  CHECK(small.size() == 100);
  CHECK(small.capacity() == KiB);
  CHECK(large.capacity() == 8 * KiB);
  std::memset(large.data(), 7, 5000);
  CHECK(pool.stats().reserved == 9 * KiB);
  CHECK(pool.stats().taken == 9 * KiB);
  CHECK(pool.stats().in_use == 5100);
  CHECK(pool.stats().blocks == 2);
  large.reset();
  CHECK(pool.stats().taken == KiB);
  CHECK(pool.stats().in_use == 100);
  CHECK(pool.stats().reserved == 9 * KiB);
  CHECK(heap.held == 9 * KiB);
}

TEST_CASE("a staging block that came back is handed out again", "[memory]") {
  Heap heap;
  StagingPool pool(heap, {.limit_bytes = 64 * KiB});
  for (int i = 0; i < 8; ++i) {
    const StagingBlock block = take(pool, 4000);
    CHECK(block);
  }
  CHECK(heap.allocations == 1);
  CHECK(pool.trim() == 4 * KiB);
  CHECK(pool.stats().reserved == 0);
  CHECK(heap.held == 0);
}

TEST_CASE("taking nothing takes nothing", "[memory]") {
  Heap heap;
  StagingPool pool(heap);
  const StagingBlock block = take(pool, 0);
  CHECK_FALSE(block);
  CHECK(pool.stats() == StagingStats{});
}

TEST_CASE("staging never holds more than its limit and says what is wrong", "[memory][I19]") {
  Heap heap;
  StagingPool pool(heap, {.limit_bytes = 16 * KiB, .least_block = 1 * KiB});
  CHECK(refusal(pool, 4 * KiB + 1) == Errc::never_fits);
  std::vector<StagingBlock> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(take(pool, 4 * KiB));
  const StagingStats before = pool.stats();
  CHECK(refusal(pool, 1) == Errc::would_block);
  CHECK(pool.stats().reserved == before.reserved);
  CHECK(pool.stats().taken == before.taken);
  CHECK(pool.stats().refused == before.refused + 1);
  CHECK(heap.peak == 16 * KiB);
  blocks.pop_back();
  // What came back is larger than needed, and better than waiting.
  const StagingBlock lent = take(pool, 1);
  CHECK(lent.size() == 1);
  CHECK(heap.peak == 16 * KiB);
}

TEST_CASE("idle small staging blocks make room for a large one", "[memory]") {
  Heap heap;
  StagingPool pool(heap, {.limit_bytes = 16 * KiB, .least_block = 1 * KiB, .most_block = 8 * KiB});
  {
    std::vector<StagingBlock> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(take(pool, KiB));
  }
  CHECK(pool.stats().reserved == 16 * KiB);
  const StagingBlock large = take(pool, 8 * KiB);
  CHECK(pool.stats().reserved == 16 * KiB);
  CHECK(pool.stats().taken == 8 * KiB);
  CHECK(heap.held == 16 * KiB);
  CHECK(heap.peak == 16 * KiB);
}

TEST_CASE("a staging source without memory is told apart and tried once more without idle blocks",
          "[memory][I19]") {
  Heap heap;
  StagingPool pool(heap, {.limit_bytes = 64 * KiB, .least_block = 1 * KiB});
  heap.failing = 1;
  CHECK(refusal(pool, 100) == Errc::out_of_memory);
  CHECK(pool.stats().reserved == 0);
  take(pool, 100).reset();
  CHECK(pool.stats().reserved == KiB);
  heap.failing = 1;
  const StagingBlock block = take(pool, 2 * KiB);
  CHECK(pool.stats().reserved == 2 * KiB);
  CHECK(heap.held == 2 * KiB);
}

TEST_CASE("who was refused a staging block is told when one comes back", "[memory]") {
  Heap heap;
  int told = 0;
  StagingPool pool(heap, {.limit_bytes = 4 * KiB,
                          .least_block = 1 * KiB,
                          .on_room = [](void* count) { ++*static_cast<int*>(count); },
                          .on_room_context = &told});
  std::vector<StagingBlock> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(take(pool, KiB));
  blocks.pop_back();
  CHECK(told == 0);  // Nobody was refused.
  blocks.push_back(take(pool, KiB));
  CHECK(refusal(pool, KiB) == Errc::would_block);
  blocks.pop_back();
  CHECK(told == 1);
  blocks.pop_back();
  CHECK(told == 1);
}

TEST_CASE("a moved staging block is given back once", "[memory][I8]") {
  Heap heap;
  StagingPool pool(heap, {.limit_bytes = 64 * KiB});
  StagingBlock first = take(pool, 10);
  std::byte* const data = first.data();
  StagingBlock second = std::move(first);
  CHECK_FALSE(first);  // NOLINT: moved from, on purpose
  CHECK(second.data() == data);
  second = take(pool, 20);
  CHECK(pool.stats().blocks == 1);
  second = StagingBlock{};
  CHECK(pool.stats().blocks == 0);
}

TEST_CASE("staging refuses options that make no sense", "[memory]") {
  Heap heap;
  CHECK_THROWS_AS(StagingPool(heap, {.limit_bytes = 1024, .least_block = 100}), Failure);
  CHECK_THROWS_AS(StagingPool(heap, {.limit_bytes = 1024, .most_block = 4096}), Failure);
  CHECK_THROWS_AS(StagingPool(heap, {.limit_bytes = 1024, .least_block = 512}), Failure);
}

TEST_CASE("several threads share staging within its limit and lose nothing",
          "[memory][threads][I8]") {
  Heap heap;
  constexpr int threads = 4;
  std::atomic<int> overlaps{0};
  {
    StagingPool pool(heap, {.limit_bytes = 256 * KiB, .least_block = 1 * KiB});
    const auto seed = test::seed();
    CAPTURE(seed);
    std::vector<std::thread> workers;
    for (int worker = 0; worker < threads; ++worker) {
      workers.emplace_back([&, worker] {
        std::mt19937_64 random(seed + static_cast<std::uint64_t>(worker));
        std::vector<StagingBlock> held;
        for (int i = 0; i < 5000; ++i) {
          if (held.size() > 6 || (random() % 2 != 0 && !held.empty())) {
            for (const StagingBlock& block : held) {
              overlaps += block.data()[block.size() - 1] != std::byte(worker);
            }
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
          } else if (auto taken = pool.take(random() % (64 * KiB) + 1)) {
            held.push_back(std::move(taken).value());
            held.back().data()[held.back().size() - 1] = std::byte(worker);
          }
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    CHECK(overlaps == 0);
    CHECK(pool.stats().blocks == 0);
    CHECK(pool.stats().taken == 0);
    CHECK(pool.stats().in_use == 0);
    CHECK(pool.stats().reserved == heap.held);
    CHECK(heap.peak <= 256 * KiB);
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/pool.hpp>

#include <support/host_memory.hpp>
#include <support/pool_room.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace reprise;
using namespace reprise::test;

// ---- sizes, accounting --------------------------------------------------------------------------

TEST_CASE("a released block serves the same request again with the same usage",
          "[memory][I15][B163][B175]") {
  Room room(512, 4 * KiB);
  PoolBlock* block = room.take(100);
  PoolStats stats = room.pool.stats();
  CHECK(stats.in_use == 100);
  CHECK(stats.padding == 28);
  CHECK(stats.reserved == 512);
  CHECK(stats.blocks == 1);
  const std::uint64_t address = block->address();
  room.pool.release(block, {});
  CHECK(room.pool.stats().in_use == 0);
  CHECK(room.pool.stats().padding == 0);
  block = room.take(100);
  CHECK(block->address() == address);
  CHECK(block->size() == 100);
  CHECK(block->rounded_size() == 128);
  CHECK(room.pool.stats().reserved == 512);
  CHECK(room.pool.stats().in_use == 100);
}

TEST_CASE("several blocks share a page and a block may span several",
          "[memory][I14][I15][B174][B176]") {
  Room room(2048, MiB);
  room.take(512);
  room.take(512);
  CHECK(room.pool.stats().blocks == 2);
  CHECK(room.pool.stats().in_use == 1024);
  CHECK(room.pool.stats().reserved == 2048);
  room.take(1536);
  CHECK(room.pool.stats().reserved == 4096);
}

TEST_CASE("padding is what rounding adds", "[memory][I15][B177]") {
  Room room(1024, MiB, {.alignment = 64});
  room.take(40);
  room.take(40);
  CHECK(room.pool.stats().in_use == 80);
  CHECK(room.pool.stats().padding == 48);
}

TEST_CASE("what is in use is the sum of what was asked", "[memory][I15][B178][B179]") {
  Room room(4096, MiB);
  std::vector<PoolBlock*> blocks;
  for (const std::uint64_t size : {50, 150, 250, 350, 1000, 2000, 3000, 4000, 5000}) {
    blocks.push_back(room.take(size));
  }
  CHECK(room.pool.stats().in_use == 800 + 15000);
  const std::uint64_t reserved = room.pool.stats().reserved;
  for (PoolBlock* block : blocks) room.pool.release(block, {});
  CHECK(room.pool.stats().in_use == 0);
  for (const std::uint64_t size : {5000, 4000, 3000, 2000, 1000, 350, 250, 150, 50}) {
    room.take(size);
  }
  CHECK(room.pool.stats().in_use == 15800);
  CHECK(room.pool.stats().blocks == 9);
  CHECK(room.pool.stats().reserved == reserved);
}

TEST_CASE("freeing every other block and asking for similar ones hardly grows the pool",
          "[memory][B180]") {
  Room room(4 * KiB, MiB);
  const Sizes asked{50, 1000, 100, 5000, 200, 10000, 300};
  std::vector<PoolBlock*> blocks;
  for (const std::uint64_t size : asked) blocks.push_back(room.take(size));
  const std::uint64_t reserved = room.pool.stats().reserved;
  for (std::size_t i = 0; i < asked.size(); i += 2) room.pool.release(blocks[i], {});
  for (std::size_t i = 0; i < asked.size(); i += 2) room.take(asked[i] - asked[i] / 50);
  CHECK(room.pool.stats().reserved * 10 <= reserved * 11);
}

TEST_CASE("a small block that is freed leaves its page whole", "[memory][B181][B231]") {
  Room room(MiB, 2 * MiB);
  room.pool.release(room.take(4 * KiB), {});
  room.take(512 * KiB);
  CHECK(room.pool.stats().reserved == MiB);
  room.take(MiB);
  room.take(500 * KiB);
  CHECK(room.pool.stats().reserved == 2 * MiB);
  CHECK(room.refusal(MiB) == Errc::over_limit);
}

TEST_CASE("allocation and reuse round a size in the same way", "[memory][B184]") {
  Room room(64 * KiB, MiB);
  PoolBlock* const block = room.take(1025);
  room.take(64);  // Keeps what is freed apart from the rest of the page.
  const std::uint64_t address = block->address();
  room.pool.release(block, {});
  CHECK(room.take(1025)->address() == address);
}

TEST_CASE("free neighbours are one block as soon as they are finished",
          "[memory][I16][B182][B183]") {
  Room room(32 * MiB, 32 * MiB);
  PoolBlock* const half = room.take(16 * MiB);
  room.pool.release(half, Frontier({1, 1}));
  CHECK(room.sizes(BlockState::idle) == Sizes{16 * MiB});
  CHECK(room.sizes(BlockState::waiting) == Sizes{16 * MiB});
  room.progress.done[1] = 1;
  room.pool.collect(room.progress);
  CHECK(room.sizes(BlockState::idle) == Sizes{32 * MiB});

  PoolBlock* const a = room.take(4 * MiB);
  PoolBlock* const b = room.take(15 * MiB);
  PoolBlock* const c = room.take(8 * MiB);
  PoolBlock* const d = room.take(4 * MiB);
  CHECK(room.refusal(8 * MiB) == Errc::over_limit);
  room.pool.release(b, {});
  room.take(9 * MiB);
  CHECK(room.refusal(9 * MiB) == Errc::over_limit);
  room.pool.release(c, Frontier({1, 2}));
  CHECK(room.refusal(9 * MiB) == Errc::over_limit);
  room.progress.done[1] = 2;
  room.pool.collect(room.progress);
  CHECK(room.sizes(BlockState::idle) == Sizes{14 * MiB, 1 * MiB});
  CHECK(room.offset(d) == 27 * MiB);
  CHECK(room.offset(room.take(9 * MiB)) == 13 * MiB);
  room.pool.release(a, {});
  room.pool.release(d, {});
  CHECK(room.sizes(BlockState::idle) == Sizes{4 * MiB, 10 * MiB});
}

TEST_CASE("a block starts at a multiple of the alignment that was asked", "[memory][I14]") {
  Room room(4 * KiB, MiB);
  for (std::uint64_t alignment = 1; alignment <= 64 * KiB; alignment *= 2) {
    room.take(40);
    auto grant = room.pool.allocate({.bytes = 100, .alignment = alignment}, room.progress);
    REQUIRE(grant);
    CHECK(grant->block->address() % alignment == 0);
    CHECK(grant->block->address() % 32 == 0);
    room.pool.audit();
  }
  // What was skipped for alignment is still there for others.
  const std::uint64_t reserved = room.pool.stats().reserved;
  room.take(30 * KiB);
  CHECK(room.pool.stats().reserved == reserved);
}

TEST_CASE("nonsense is refused as an argument", "[memory]") {
  Room room(4 * KiB, MiB);
  CHECK(room.refusal(0) == Errc::invalid_argument);
  const auto grant = room.pool.allocate({.bytes = 8, .alignment = 48}, room.progress);
  REQUIRE_FALSE(grant);
  CHECK(grant.error().code == Errc::invalid_argument);
  CHECK(room.pool.stats().failed_requests == 2);
  FakePages source(4 * KiB, 16);
  CHECK_THROWS_AS(Pool(source, {.alignment = 48}), Failure);
  CHECK_THROWS_AS(Pool(source, {.alignment = 16}), Failure);
  CHECK_THROWS_AS(Pool(source, {.alignment = 8 * KiB}), Failure);
}

// ---- limits and failures ------------------------------------------------------------------------

TEST_CASE("the limit refuses what would exceed it and serves again after a free",
          "[memory][I19][B167][B168][B169]") {
  Room room(1024, 2048);
  PoolBlock* const first = room.take(1024);
  PoolBlock* const second = room.take(1024);
  CHECK(room.refusal(1024) == Errc::over_limit);
  CHECK(room.pool.stats().reserved == 2048);
  room.pool.release(first, {});
  PoolBlock* const third = room.take(1024);
  CHECK(room.pool.stats().reserved == 2048);
  room.pool.release(second, {});
  room.pool.release(third, {});
  CHECK(room.pool.trim(room.progress) == 2048);
  CHECK(room.pool.stats().reserved == 0);
  CHECK(room.source.pages_mapped() == 0);
  room.take(1024);
  room.take(1024);
  CHECK(room.refusal(1024) == Errc::over_limit);
}

TEST_CASE("a limit below one page serves nothing and reserves nothing", "[memory][B171]") {
  Room room(1024, 512);
  CHECK(room.refusal(8) == Errc::never_fits);
  CHECK(room.pool.stats().reserved == 0);
  CHECK(room.source.maps == 0);
}

TEST_CASE("what never fits is told apart and touches nothing", "[memory][I19][B205]") {
  Room room(1024, 8 * KiB);
  room.pool.release(room.take(3000), {});
  const auto before = room.pool.layout();
  CHECK(room.refusal(8 * KiB + 1) == Errc::never_fits);
  CHECK(room.refusal(std::uint64_t{1} << 50) == Errc::never_fits);
  CHECK(room.refusal(UINT64_MAX) == Errc::never_fits);
  CHECK(room.pool.layout() == before);
  CHECK(room.source.unmaps == 0);
  room.take(8 * KiB);
}

TEST_CASE("cleaning keeps the page of a live block and gives back the others",
          "[memory][I16][B166]") {
  Room room(1024, 16 * KiB);
  PoolBlock* const left = room.take(1024);
  PoolBlock* const middle = room.take(1024);
  PoolBlock* const right = room.take(1024);
  room.pool.release(left, {});
  room.pool.release(right, {});
  CHECK(room.pool.trim(room.progress) == 2048);
  CHECK(room.pool.stats().reserved == 1024);
  CHECK(room.source.is_mapped({1024, 2048}));
  CHECK(room.offset(middle) == 1024);
  // The holes are used before fresh addresses.
  CHECK(room.offset(room.take(1024)) == 0);
}

TEST_CASE("under the limit just enough empty pages are given up for a request",
          "[memory][I19][B241]") {
  Room room(MiB, 7 * MiB);
  std::vector<PoolBlock*> blocks;
  std::vector<PoolBlock*> walls;
  for (const std::uint64_t size : {1, 2, 3}) {
    blocks.push_back(room.take(size * MiB - 64));
    walls.push_back(room.take(64));
  }
  for (PoolBlock* block : blocks) room.pool.release(block, {});
  CHECK(room.pool.stats().reserved == 6 * MiB);
  // 1, 2 and 3 MiB minus the walls are free, none of it is 4 MiB in a row.
  room.take(4 * MiB);
  CHECK(room.pool.stats().reserved <= 7 * MiB);
  CHECK(room.pool.stats().reclaims == 1);
  CHECK(room.source.consistent);
}

TEST_CASE("pages are not given up for a request that fails all the same", "[memory][I19]") {
  Room room(1024, 8 * KiB);
  PoolBlock* const first = room.take(2048);
  room.take(1024);
  room.pool.release(first, {});
  const auto before = room.pool.layout();
  const PoolStats stats = room.pool.stats();
  CHECK(room.refusal(7 * KiB + 1) == Errc::over_limit);
  CHECK(room.pool.layout() == before);
  CHECK(room.source.unmaps == 0);
  PoolStats expected = stats;
  ++expected.requests;
  ++expected.failed_requests;
  CHECK(room.pool.stats() == expected);
}

TEST_CASE("when the device has no page left empty pages are given back and mapped elsewhere",
          "[memory][I19]") {
  Room room(1024, 64 * KiB);
  room.source.most_pages = 4;
  PoolBlock* const first = room.take(2048);
  room.take(1024);
  CHECK(room.refusal(2049) == Errc::out_of_memory);
  CHECK(room.pool.stats().reserved == 3072);
  room.pool.release(first, {});
  room.take(3072);
  CHECK(room.pool.stats().reserved == 4096);
  CHECK(room.pool.stats().reclaims == 1);
  CHECK(room.source.pages_mapped() == 4);
}

TEST_CASE("a page source that fails leaves the pool as it was", "[memory][I19]") {
  Room room(1024, 64 * KiB);
  room.take(1024);
  const auto before = room.pool.layout();
  room.source.failing_maps = 2;
  CHECK(room.refusal(1024) == Errc::out_of_memory);
  CHECK(room.pool.layout() == before);
  CHECK(room.pool.stats().failed_requests == 1);
  room.source.failing_maps = 0;
  PoolBlock* const block = room.take(1024);
  room.pool.release(block, {});
  room.source.failing_unmaps = 1;
  CHECK(room.pool.trim(room.progress) == 0);
  CHECK(room.pool.stats().reserved == 2048);
  CHECK(room.pool.trim(room.progress) == 1024);
}

TEST_CASE("without host memory a request fails and changes nothing", "[memory][I19]") {
  Room room(1024, MiB);
  std::vector<PoolBlock*> blocks;
  Errc code{};
  {
    // The records of the books come in chunks: sooner or later one is needed.
    blocks.reserve(1000);
    const HostMemoryFault fault(1);
    for (int i = 0; i < 1000; ++i) {
      auto grant = room.ask(32);
      if (!grant) {
        code = grant.error().code;
        break;
      }
      blocks.push_back(grant->block);
    }
  }
  CHECK(code == Errc::out_of_memory);
  CHECK(room.pool.stats().in_use == 32 * blocks.size());
  CHECK(room.pool.stats().failed_requests == 1);
  room.pool.audit();
  room.take(32);
}

TEST_CASE("a request that may not change pages is served from what is mapped or refused",
          "[memory][I19]") {
  Room room(1024, MiB);
  PoolBlock* const block = room.take(512);
  const int maps = room.source.maps;
  REQUIRE(room.ask(512, 0, PageUpdate::forbidden));
  const auto refused = room.ask(512, 0, PageUpdate::forbidden);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::growth_forbidden);
  CHECK(room.source.maps == maps);
  room.pool.release(block, Frontier({1, 5}));
  auto reused = room.ask(512, 2, PageUpdate::forbidden);
  REQUIRE(reused);
  CHECK(waits(*reused, 2) == Points{{1, 5}});
  REQUIRE(room.ask(512, 0, PageUpdate::add_only));
  CHECK(room.source.maps == maps + 1);
}

// ---- growth -------------------------------------------------------------------------------------

TEST_CASE("a request grows into the free end of the range", "[memory][I15]") {
  Room room(1024, MiB);
  PoolBlock* const first = room.take(1024);
  room.take(512);
  CHECK(room.pool.stats().reserved == 2048);
  room.take(1536);  // 512 are there already.
  CHECK(room.pool.stats().reserved == 3072);
  CHECK(room.pool.stats().peak_reserved == 3072);
  room.pool.release(first, {});
  room.pool.trim(room.progress);
  CHECK(room.pool.stats().reserved == 2048);
  CHECK(room.pool.stats().peak_reserved == 3072);
}

TEST_CASE("pages are mapped in the steps asked for as far as the limit allows", "[memory]") {
  Room room(1024, 10 * KiB, {.growth_bytes = 4000, .alignment = 32});
  room.take(100);
  CHECK(room.pool.stats().reserved == 4096);
  room.take(4096);
  CHECK(room.pool.stats().reserved == 8192);
  room.take(4096);
  CHECK(room.pool.stats().reserved == 10 * KiB);
}

TEST_CASE("pages may be mapped by the caller between two requests", "[memory][I15][I19]") {
  Room room(1024, 4096);
  PoolRequest request{.bytes = 2000, .mapping = Mapping::later};
  auto grant = room.pool.allocate(request, room.progress);
  REQUIRE_FALSE(grant);
  CHECK(grant.error().code == Errc::would_block);
  CHECK(room.pool.stats().failed_requests == 0);
  CHECK(room.pool.stats().requests == 0);

  auto run = room.pool.begin_growth(request);
  REQUIRE(run);
  CHECK(run->count == 2);
  CHECK(room.pool.stats().reserved == 0);
  room.pool.audit();
  // What is set aside counts against the limit.
  CHECK(room.refusal(2049) == Errc::over_limit);
  REQUIRE(room.source.map(run->first, run->count));
  room.pool.end_growth(*run, true);
  CHECK(room.pool.stats().reserved == 2048);
  grant = room.pool.allocate(request, room.progress);
  REQUIRE(grant);
  CHECK(room.source.is_mapped({0, 2000}));

  auto other = room.pool.begin_growth(request);
  REQUIRE(other);
  const auto layout = room.pool.layout();
  room.pool.end_growth(*other, false);
  CHECK(room.pool.stats().reserved == 2048);
  request.mapping = Mapping::failed;
  grant = room.pool.allocate(request, room.progress);
  REQUIRE_FALSE(grant);
  CHECK(grant.error().code == Errc::out_of_memory);
  CHECK(room.pool.stats().failed_requests == 2);
}

TEST_CASE("a caller that maps itself is sent to reclaimed pages after a failure", "[memory][I19]") {
  Room room(1024, MiB);
  PoolBlock* const first = room.take(2048);
  room.take(1024);
  room.pool.release(first, {});
  PoolRequest request{.bytes = 2049, .mapping = Mapping::failed};
  const auto grant = room.pool.allocate(request, room.progress);
  REQUIRE_FALSE(grant);
  CHECK(grant.error().code == Errc::would_block);
  CHECK(room.pool.stats().reserved == 1024);
  CHECK(room.pool.stats().reclaims == 1);
}

TEST_CASE("allocating and releasing takes no host memory once the books are there", "[memory]") {
  Room room(4096, MiB);
  PoolBlock* const first = room.take(100);
  const auto before = host_allocations();
  PoolBlock* block = nullptr;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    const auto stream = static_cast<StreamIndex>(i % 3);
    auto grant = room.pool.allocate({.bytes = 100 + i % 700, .stream = stream}, room.progress);
    block = grant ? grant->block : nullptr;
    room.pool.release(block, Frontier({stream, i}));
    room.progress.done[i % 3] = i - i % 7;
    room.pool.collect(room.progress);
  }
  const auto after = host_allocations();
  CHECK(after == before);
  room.pool.release(first, {});
}

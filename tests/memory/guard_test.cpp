// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/guard.hpp>

#include <reprise/memory/pool.hpp>

#include <support/fake_pages.hpp>
#include <support/host_memory.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <random>
#include <utility>
#include <vector>

using namespace reprise;
using reprise::test::FakePages;
using reprise::test::FakeProgress;
using reprise::test::HostMemoryFault;

namespace {

constexpr std::uint64_t page = 1024;

struct Room {
  explicit Room(std::uint64_t pages = 64) : source(page, pages), pool(source, {.alignment = 64}) {}

  PoolBlock* take(std::uint64_t bytes, StreamIndex stream = 0) {
    auto grant = pool.allocate({.bytes = bytes, .stream = stream}, progress);
    REQUIRE(grant);
    return grant->block;
  }
  Guard guard(PoolBlock* block, ByteRange range) {
    auto made = pool.guard(block, range);
    REQUIRE(made);
    return std::move(made).value();
  }

  FakePages source;
  Pool pool;
  FakeProgress progress;
};

}  // namespace

TEST_CASE("guarded bytes are the union of the guarded ranges", "[memory][I15]") {
  Room room;
  PoolBlock* const block = room.take(1000);
  Guard first = room.guard(block, {100, 300});
  Guard second = room.guard(block, {200, 500});
  Guard third = room.guard(block, {600, 700});
  CHECK(room.pool.stats().guarded == 500);
  first.reset();
  CHECK(room.pool.stats().guarded == 400);
  third.reset();
  CHECK(room.pool.stats().guarded == 300);
  second.reset();
  CHECK(room.pool.stats().guarded == 0);
  room.pool.release(block, {});
  room.pool.audit();
}

TEST_CASE("two guards on one range may be dropped in either order", "[memory][I18]") {
  for (const bool first_first : {true, false}) {
    Room room;
    PoolBlock* const block = room.take(512);
    Guard first = room.guard(block, {0, 512});
    Guard second = room.guard(block, {0, 512});
    CHECK(room.pool.stats().guarded == 512);
    room.pool.release(block, {});
    (first_first ? first : second).reset();
    CHECK(room.pool.stats().guarded == 512);
    CHECK(room.pool.stats().waiting == 512);
    (first_first ? second : first).reset();
    CHECK(room.pool.stats().guarded == 0);
    CHECK(room.pool.stats().waiting == 0);
    room.pool.audit();
  }
}

TEST_CASE("a guarded range is not carved again", "[memory][I17][B190][B212]") {
  Room room;
  PoolBlock* const block = room.take(page);
  const std::uint64_t address = block->address();
  Guard guard = room.guard(block, {0, 64});
  room.pool.release(block, {});
  CHECK(room.pool.stats().in_use == 0);
  CHECK(room.pool.stats().waiting == page);
  PoolBlock* const other = room.take(page);
  CHECK(other->address() != address);
  CHECK(room.source.pages_mapped() == 2);
  guard.reset();
  CHECK(room.take(page)->address() == address);
  CHECK(room.source.pages_mapped() == 2);
}

TEST_CASE("pages under a guard stay mapped and the rest is given back", "[memory][I17][B193]") {
  Room room;
  PoolBlock* const before = room.take(2 * page);
  PoolBlock* const block = room.take(page + 64);
  PoolBlock* const after = room.take(2 * page - 64);
  Guard guard = room.guard(block, {page, page + 64});
  for (PoolBlock* each : {before, block, after}) room.pool.release(each, {});
  CHECK(room.pool.trim(room.progress) == 3 * page);
  CHECK(room.source.is_mapped({2 * page, 4 * page}));
  CHECK(room.source.pages_mapped() == 2);
  room.pool.audit();
  guard.reset();
  CHECK(room.pool.trim(room.progress) == 2 * page);
  CHECK(room.source.pages_mapped() == 0);
  CHECK(room.source.consistent);
  room.pool.audit();
}

TEST_CASE("memory beside a guarded block stays usable", "[memory][I17]") {
  Room room;
  PoolBlock* const block = room.take(256);
  PoolBlock* const neighbour = room.take(256);
  const std::uint64_t address = neighbour->address();
  Guard guard = room.guard(block, {0, 256});
  room.pool.release(neighbour, {});
  CHECK(room.take(256)->address() == address);
  CHECK(room.source.pages_mapped() == 1);
}

TEST_CASE("a block that was guarded and released waits for its last uses too",
          "[memory][I16][I18]") {
  Room room;
  PoolBlock* const block = room.take(page);
  Guard guard = room.guard(block, {0, page});
  room.pool.release(block, Frontier({3, 10}));
  room.progress.done[3] = 9;
  guard.reset();
  CHECK(room.pool.stats().waiting == page);
  room.pool.collect(room.progress);
  CHECK(room.pool.stats().waiting == page);
  room.progress.done[3] = 10;
  room.pool.collect(room.progress);
  CHECK(room.pool.stats().waiting == 0);
}

TEST_CASE("an empty range is guarded by nothing and costs nothing", "[memory]") {
  Room room;
  PoolBlock* const block = room.take(100);
  Guard guard = room.guard(block, {50, 50});
  CHECK_FALSE(guard);
  CHECK(room.pool.stats().guarded == 0);
  CHECK(room.pool.guard(block, {0, 10000}).error().code == Errc::out_of_range);
  CHECK(room.pool.guard(block, {60, 50}).error().code == Errc::out_of_range);
}

TEST_CASE("a guard moves and is counted once", "[memory][I18]") {
  Room room;
  PoolBlock* const block = room.take(256);
  Guard first = room.guard(block, {0, 128});
  Guard moved = std::move(first);
  CHECK_FALSE(first);  // NOLINT: moved from, on purpose
  CHECK(moved);
  CHECK(moved.range() == ByteRange{0, 128});
  CHECK(room.pool.stats().guarded == 128);
  moved = room.guard(block, {128, 256});
  CHECK(room.pool.stats().guarded == 128);
  moved = Guard{};
  CHECK(room.pool.stats().guarded == 0);
}

TEST_CASE("a guard that host memory refuses changes nothing", "[memory][I18][I19]") {
  Room room;
  PoolBlock* const block = room.take(512);
  const Guard held = room.guard(block, {100, 200});
  for (std::uint64_t nth = 1; nth <= 2; ++nth) {
    Errc code{};
    {
      const HostMemoryFault fault(nth);
      const auto made = room.pool.guard(block, {50, 300});
      if (!made) code = made.error().code;
    }
    CHECK(code == Errc::out_of_memory);
    CHECK(room.pool.stats().guarded == 100);
  }
  const Guard made = room.guard(block, {50, 300});
  CHECK(room.pool.stats().guarded == 250);
}

TEST_CASE("cover counts agree with a byte map under random ranges", "[memory][I15][I18]") {
  const auto seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  detail::CoverMap map;
  std::vector<int> depth(300, 0);
  std::vector<ByteRange> ranges;
  for (int step = 0; step < 20000; ++step) {
    // Keeps some ranges for long and lets the number of them go up and down.
    const bool add = ranges.empty() || random() % 64 < (step / 512 % 2 != 0 ? 40u : 24u);
    if (add) {
      const std::uint64_t begin = random() % 299;
      const ByteRange range{begin, begin + 1 + random() % (300 - begin - 1 + 1)};
      REQUIRE(map.add(range));
      ranges.push_back(range);
    } else {
      const std::size_t at = random() % ranges.size();
      map.remove(ranges[at]);
      for (std::uint64_t i = ranges[at].begin; i < ranges[at].end; ++i) --depth[i];
      ranges.erase(ranges.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (add) {
      for (std::uint64_t i = ranges.back().begin; i < ranges.back().end; ++i) ++depth[i];
    }
    const auto covered = std::count_if(depth.begin(), depth.end(), [](int d) { return d > 0; });
    REQUIRE(map.covered() == static_cast<std::uint64_t>(covered));
    REQUIRE(map.empty() == ranges.empty());
  }
}

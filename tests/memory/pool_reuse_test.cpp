// SPDX-License-Identifier: Apache-2.0
// Which memory a request is given, and what its stream must wait for.
#include <reprise/memory/pool.hpp>

#include <support/pool_room.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace reprise;
using namespace reprise::test;

TEST_CASE("the stream that used a block last gets it back at once and without a wait",
          "[memory][I16]") {
  Room room(1024, MiB);
  PoolBlock* const block = room.take(1024, 3);
  const std::uint64_t address = block->address();
  room.pool.release(block, Frontier({3, 8}));
  CHECK(room.pool.stats().waiting == 1024);
  auto grant = room.ask(1024, 3);
  REQUIRE(grant);
  CHECK(grant->block->address() == address);
  CHECK_FALSE(grant->waits);
  CHECK(room.pool.stats().reuses_same_stream == 1);
  // Whoever else is handed the block has to wait for the earlier owner.
  CHECK(grant->block->earlier().covers({3, 8}));
}

TEST_CASE("another stream is given finished memory or new pages before a block it must wait for",
          "[memory][I16]") {
  Room room(1024, 2048);
  PoolBlock* const block = room.take(1024, 1);
  const std::uint64_t address = block->address();
  room.pool.release(block, Frontier({1, 8}));
  CHECK(room.take(1024, 2)->address() != address);  // A new page, no wait.
  auto waited = room.ask(1024, 2);
  REQUIRE(waited);
  CHECK(waited->block->address() == address);
  CHECK(waits(*waited, 2) == Points{{1, 8}});
  CHECK(room.pool.stats().waits_made == 1);
}

TEST_CASE("a finished block is found by asking the device and needs no wait", "[memory][I16]") {
  Room room(1024, 1024);
  room.pool.release(room.take(1024, 1), Frontier({1, 8}));
  room.progress.done[1] = 8;
  auto grant = room.ask(1024, 2);
  REQUIRE(grant);
  CHECK_FALSE(grant->waits);
  CHECK(grant->block->earlier().empty());
}

TEST_CASE("an owner that never used its block does not make the earlier uses forgotten",
          "[memory][I16]") {
  Room room(1024, 1024);
  room.pool.release(room.take(1024, 1), Frontier({1, 8}));
  auto again = room.ask(1024, 1);
  REQUIRE(again);
  room.pool.release(again->block, {});
  CHECK(room.pool.stats().waiting == 1024);
  auto other = room.ask(1024, 2);
  REQUIRE(other);
  CHECK(waits(*other, 2) == Points{{1, 8}});
}

TEST_CASE("a block that several streams used needs a wait for each of the others",
          "[memory][I16]") {
  Room room(1024, 1024);
  Frontier uses({1, 8});
  REQUIRE(uses.add({2, 5}));
  room.pool.release(room.take(1024, 1), uses);
  auto grant = room.ask(1024, 1);
  REQUIRE(grant);
  CHECK(waits(*grant, 1) == Points{{2, 5}});
  CHECK(grant->block->earlier().covers({1, 8}));

  room.pool.release(grant->block, {});
  room.progress.done[2] = 5;
  room.pool.collect(room.progress);
  auto own = room.ask(1024, 1);  // Only its own use is left.
  REQUIRE(own);
  CHECK_FALSE(own->waits);
}

TEST_CASE("a block that more streams used than a record holds waits for all of them",
          "[memory][I16]") {
  Room room(1024, 2048);
  Frontier uses;
  for (StreamIndex stream = 0; stream < 5; ++stream) REQUIRE(uses.add({stream, 10}));
  room.pool.release(room.take(1024), uses);
  for (StreamIndex stream = 0; stream < 4; ++stream) room.progress.done[stream] = 10;
  room.pool.collect(room.progress);
  CHECK(room.pool.stats().waiting == 1024);

  // A second such block does not put off the first.
  Frontier later;
  for (StreamIndex stream = 0; stream < 5; ++stream) REQUIRE(later.add({stream, 20}));
  room.pool.release(room.take(1024), later);
  CHECK(room.refusal(1024) == Errc::over_limit);
  room.progress.done[4] = 10;
  room.pool.collect(room.progress);
  CHECK(room.pool.stats().waiting == 1024);
  for (auto& done : room.progress.done) done = 20;
  room.pool.collect(room.progress);
  CHECK(room.pool.stats().waiting == 0);
}

TEST_CASE("a part of a waiting block may be reused and the rest goes on waiting",
          "[memory][I14][I16]") {
  Room room(4096, 4096);
  PoolBlock* const whole = room.take(4096, 1);
  room.pool.release(whole, Frontier({1, 8}));
  auto part = room.pool.allocate({.bytes = 100, .alignment = 1024, .stream = 2}, room.progress);
  REQUIRE(part);
  CHECK(waits(*part, 2) == Points{{1, 8}});
  room.pool.audit();
  CHECK(room.pool.stats().waiting == 4096 - 128);
  auto own = room.ask(2048, 1);
  REQUIRE(own);
  CHECK_FALSE(own->waits);
  room.progress.done[1] = 8;
  room.pool.collect(room.progress);
  CHECK(room.pool.stats().waiting == 0);
}

TEST_CASE("collecting asks about the oldest use of each stream only", "[memory]") {
  Room room(1024, MiB);
  std::vector<PoolBlock*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(room.take(1024));
  for (StreamPosition i = 100; i > 0; --i) {
    room.pool.release(blocks[i - 1], Frontier({1, i}));
  }
  room.progress.asked = 0;
  room.pool.collect(room.progress);
  CHECK(room.progress.asked == 1);
  room.progress.done[1] = 40;
  room.progress.asked = 0;
  room.pool.collect(room.progress);
  CHECK(room.pool.stats().waiting == 60 * 1024);
  CHECK(room.progress.asked <= 41);
}

TEST_CASE("pages that a device still uses are not unmapped", "[memory][I16]") {
  Room room(1024, MiB);
  room.pool.release(room.take(2048), Frontier({1, 8}));
  CHECK(room.pool.trim(room.progress) == 0);
  CHECK(room.source.pages_mapped() == 2);
  room.progress.done[1] = 8;
  CHECK(room.pool.trim(room.progress) == 2048);
}

TEST_CASE("a large block that waits is left whole while finished memory serves a small request",
          "[memory][I16]") {
  Room room(4096, 8192);
  PoolBlock* const large = room.take(4096, 1);
  PoolBlock* const small = room.take(1024, 1);
  room.pool.release(small, {});
  room.pool.release(large, Frontier({1, 8}));
  PoolBlock* const block = room.take(512, 1);
  CHECK(room.offset(block) == 4096);
  CHECK(room.sizes(BlockState::waiting) == Sizes{4096});
  // It does serve before a page is mapped.
  for (int i = 0; i < 2; ++i) room.take(1792, 1);
  PoolBlock* const part = room.take(512, 1);
  CHECK(room.offset(part) == 0);
  CHECK(room.pool.stats().reserved == 8192);
  CHECK(room.pool.stats().reuses_same_stream == 1);
}

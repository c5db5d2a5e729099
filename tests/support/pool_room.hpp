// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/pool.hpp>

#include <support/fake_pages.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

namespace reprise::test {

inline constexpr std::uint64_t KiB = 1024;
inline constexpr std::uint64_t MiB = 1024 * KiB;

/// A pool over pages of no memory, with a device that finishes what it is told.
struct Room {
  Room(std::uint64_t page_size, std::uint64_t limit, PoolOptions options = {.alignment = 32})
      : source(page_size, 1024), pool(source, with_limit(options, limit)) {}
  ~Room() { pool.audit(); }

  static PoolOptions with_limit(PoolOptions options, std::uint64_t limit) {
    options.limit_bytes = limit;
    return options;
  }
  Result<Grant> ask(std::uint64_t bytes, StreamIndex stream = 0,
                    PageUpdate pages = PageUpdate::allow) {
    return pool.allocate({.bytes = bytes, .stream = stream, .pages = pages}, progress);
  }
  PoolBlock* take(std::uint64_t bytes, StreamIndex stream = 0) {
    auto grant = ask(bytes, stream);
    REQUIRE(grant);
    CHECK_FALSE(grant->waits);
    return grant->block;
  }
  Errc refusal(std::uint64_t bytes, StreamIndex stream = 0) {
    auto grant = ask(bytes, stream);
    REQUIRE_FALSE(grant);
    return grant.error().code;
  }
  std::uint64_t offset(const PoolBlock* block) const { return block->address() - source.base(); }
  /// Sizes of the mapped blocks in one of the states, by address.
  std::vector<std::uint64_t> sizes(BlockState state) const {
    std::vector<std::uint64_t> out;
    for (const PoolPiece& piece : pool.layout()) {
      if (piece.state == state) out.push_back(piece.bytes.size());
    }
    return out;
  }

  FakePages source;
  Pool pool;
  FakeProgress progress;
};

using Sizes = std::vector<std::uint64_t>;
using Points = std::vector<StreamPoint>;

/// What the asking stream has to wait for.
inline Points waits(const Grant& grant, StreamIndex stream) {
  Points out;
  for (const StreamPoint point : grant.block->earlier()) {
    if (point.stream != stream) out.push_back(point);
  }
  CHECK(grant.waits == !out.empty());
  return out;
}

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/report.hpp>

#include <support/fake_pages.hpp>

#include <catch2/catch.hpp>

#include <sstream>

using namespace reprise;
using reprise::test::FakePages;
using reprise::test::FakeProgress;

TEST_CASE("a memory report says where the bytes are and which graph keeps them", "[memory][I15]") {
  FakePages source(1024, 64);
  Pool pool(source, {.limit_bytes = 8 * 1024, .alignment = 256});
  FakeProgress progress;
  auto first = pool.allocate({.bytes = 1000}, progress);
  auto second = pool.allocate({.bytes = 300}, progress);
  REQUIRE(first);
  REQUIRE(second);
  pool.release(second->block, Frontier({1, 1}));

  MemoryReport report = make_report(pool);
  report.graphs.push_back({7, "step", 1536});
  CHECK(report.limit == 8 * 1024);
  CHECK(report.page_size == 1024);
  CHECK(report.pages_mapped == 2);
  CHECK(report.free_bytes() == 512);

  std::ostringstream text;
  text << report;
  CHECK(text.str() == "reserved 2 KiB of 8 KiB (2 pages of 1 KiB), at most 2 KiB\n"
                      "in use 1000 B in 1 blocks, padding 24 B, waiting 512 B, free 512 B, "
                      "guarded 0 B\n"
                      "staging 0 B in 0 blocks, reserved 0 B of 0 B\n"
                      "requests 2, failed 0, with a wait 0, same stream 0, reclaims 0\n"
                      "graph 7 'step' guards 1.5 KiB\n");
  pool.release(first->block, {});
}

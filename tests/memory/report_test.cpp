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

TEST_CASE("bytes that several graphs guard are named with each and counted once", "[memory]") {
  MemoryReport report;
  report.graphs.push_back({.id = 1, .name = "a", .guarded_bytes = 400});
  report.graphs.push_back({.id = 2, .name = "b", .guarded_bytes = 300});
  report.graphs.push_back({.id = 3, .name = "c", .guarded_bytes = 50});
  report.graphs[0].ranges = {{{256, 456}, Access::reads, 200}, {{0, 200}, Access::may_write, 8}};
  report.graphs[1].ranges = {{{256, 456}, Access::reads | Access::may_write, 150}, {{512, 612}}};
  report.graphs[2].ranges = {{{1024, 1074}}};
  find_shared(report.graphs);
  CHECK(report.guarded_by_graphs() == 550);
  CHECK(report.graphs[0].shared_bytes == 200);
  CHECK(report.graphs[1].shared_bytes == 200);
  CHECK(report.graphs[2].shared_bytes == 0);
  // Sorted by address.
  CHECK(report.graphs[0].ranges[0].bytes == ByteRange{0, 200});
  CHECK(report.graphs[0].ranges[0].other_graphs == 0);
  CHECK(report.graphs[0].ranges[1].other_graphs == 1);
  report.graphs.resize(2);
  std::ostringstream text;
  text << report;
  const std::string lines = text.str();
  CHECK(lines.substr(lines.find("graph 1")) ==
        "graph 1 'a' guards 400 B, 200 B of it with other graphs\n"
        "  at 0 200 B written, touches 8 B\n"
        "  at 256 200 B read, shared with 1 graph\n"
        "graph 2 'b' guards 300 B, 200 B of it with other graphs\n"
        "  at 256 200 B read and written, touches 150 B, shared with 1 graph\n"
        "  at 512 100 B held, touches 0 B\n");
}

TEST_CASE("bytes in several ranges are covered once", "[memory]") {
  CHECK(covered_bytes({}) == 0);
  CHECK(covered_bytes({{4, 8}, {0, 4}, {6, 7}, {20, 30}, {25, 40}}) == 28);
  CHECK(covered_bytes({{5, 5}, {0, 1}}) == 1);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/picture.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using namespace reprise;

namespace {

constexpr std::uint64_t page = 1024;

MemorySnapshot snapshot_of(std::vector<MemorySnapshot::Block> blocks) {
  MemorySnapshot snapshot;
  snapshot.blocks = std::move(blocks);
  snapshot.report.page_size = page;
  for (const MemorySnapshot::Block& block : snapshot.blocks) {
    if (block.state == BlockState::hole) continue;
    snapshot.report.pool.reserved += block.bytes.size();
    if (block.state == BlockState::live) snapshot.report.pool.in_use += block.asked;
    if (block.state == BlockState::waiting) snapshot.report.pool.waiting += block.bytes.size();
  }
  return snapshot;
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

/// Whether every tag is closed in its turn and no bare markup is in the text.
bool is_well_formed(std::string_view text) {
  std::vector<std::string_view> open;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '&') {
      const std::size_t end = text.find(';', at);
      if (end == text.npos || end - at > 6) return false;
    }
    if (text[at] != '<') continue;
    const std::size_t end = text.find('>', at);
    if (end == text.npos) return false;
    const std::string_view tag = text.substr(at + 1, end - at - 1);
    if (tag.find('<') != tag.npos || count(tag, "\"") % 2 != 0) return false;
    const std::string_view name = tag.substr(0, tag.find(' '));
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty();
}

}  // namespace

TEST_CASE("a picture shows each state of memory with its size and the same bytes each time",
          "[memory]") {
  MemorySnapshot snapshot = snapshot_of({{{0, 512}, BlockState::live, 500},
                                         {{512, 768}, BlockState::waiting},
                                         {{768, 1024}, BlockState::pinned},
                                         {{1024, 1280}, BlockState::idle},
                                         {{1280, 2048}, BlockState::live, 768},
                                         {{2048, 4096}, BlockState::hole},
                                         {{4096, 5120}, BlockState::crowded},
                                         {{5120, 1 << 20}, BlockState::hole}});
  snapshot.report.graphs.push_back({.name = "step", .guarded_bytes = 500, .ranges = {{{0, 500}}}});
  const auto failure = make_failure(Errc::kernel_failed, "launch", "sum", "overflow");
  snapshot.marks = {{{256, 300}, make_claim(ClaimKind::ran, failure)},
                    {{1280, 1400}, make_claim(ClaimKind::not_started, failure)},
                    {{1400, 2048}, unwritten_claim()}};
  const std::string svg = render_svg(snapshot, "Memory");
  CHECK(svg == render_svg(snapshot, "Memory"));
  CHECK(is_well_formed(svg));
  CHECK(count(svg, "class=\"row\"") == 3);
  CHECK(count(svg, "edge live") == 2);
  CHECK(count(svg, "edge waiting") == 2);
  CHECK(count(svg, "edge pinned") == 1);
  CHECK(count(svg, "edge idle") == 1);
  CHECK(count(svg, "pointer-events") == 1);
  // One of each in the legend.
  CHECK(count(svg, "class=\"ran\"") == 2);
  CHECK(count(svg, "class=\"held\"") == 2);
  CHECK(count(svg, "class=\"unwritten\"") == 2);
  CHECK(count(svg, "500 B in use") == 1);
  CHECK(count(svg, "2 KiB not mapped") == 1);
  CHECK(count(svg, "overflow") == 2);
  CHECK(count(svg, "failed while running, perhaps torn: 44 B") == 1);
  CHECK(count(svg, "graph &#39;step&#39; guards 500 B") == 1);
  // The rest of the address space is not there.
  CHECK(count(svg, "pages 5") == 0);
  CHECK(count(svg, ">page 4<") == 1);
  CHECK(count(svg, ">pages 2–3<") == 1);
}

TEST_CASE("what is smaller than a picture can show is still there", "[memory]") {
  // 8192 blocks in a page: every other one in use, one of them failed.
  MemorySnapshot snapshot;
  snapshot.report.page_size = 2 << 20;
  for (std::uint64_t at = 0; at < 2 << 20; at += 256) {
    const bool live = at / 256 % 2 != 0;
    snapshot.blocks.push_back(
        {{at, at + 256}, live ? BlockState::live : BlockState::idle, live ? 256U : 0U});
  }
  const auto failure = make_failure(Errc::kernel_failed, "launch", "sum", "");
  snapshot.marks = {{{256, 260}, make_claim(ClaimKind::ran, failure)}};
  const std::string svg = render_svg(snapshot, "Memory");
  CHECK(count(svg, "edge live") > 900);
  CHECK(count(svg, "class=\"ran\"") == 2);
  // Bounded by the width of the page.
  CHECK(svg.size() < 300'000);
}

TEST_CASE("a large block takes one row and a thousand pages are cut with a word", "[memory]") {
  const MemorySnapshot large = snapshot_of({{{0, 512}, BlockState::idle},
                                            {{512, 900 * page}, BlockState::live, 900 * page - 512},
                                            {{900 * page, 901 * page}, BlockState::idle}});
  const std::string svg = render_svg(large, "Memory");
  CHECK(count(svg, "class=\"row\"") == 3);
  CHECK(count(svg, ">pages 1–899<") == 1);
  MemorySnapshot many = snapshot_of({});
  for (std::uint64_t at = 0; at < 1000; ++at) {
    many.blocks.push_back({{at * page, (at + 1) * page}, BlockState::live, page});
  }
  const std::string cut = render_svg(many, "Memory");
  CHECK(count(cut, "class=\"row\"") == 200);
  CHECK(count(cut, "and 800 more rows") == 1);
  CHECK(is_well_formed(cut));
}

TEST_CASE("names in a picture cannot break it", "[memory]") {
  MemorySnapshot snapshot = snapshot_of({{{0, 1024}, BlockState::live, 1024}});
  const std::string name = "</text><script>\"'&\x01\xff\xc3\xa9\xed\xa0\x80\xf0\x9f";
  snapshot.report.graphs.push_back({.name = name, .ranges = {{{0, 1024}}}});
  snapshot.marks = {
      {{0, 10}, make_claim(ClaimKind::ran, make_failure(Errc::refused, "launch", name, name))}};
  const std::string svg = render_svg(snapshot, name);
  CHECK(is_well_formed(svg));
  CHECK(count(svg, "script>") == 0);
  CHECK(svg.find('\x01') == svg.npos);
  CHECK(count(svg, "&lt;/text&gt;&lt;script&gt;&quot;&#39;&amp;??é?????") >= 3);
}

TEST_CASE("a picture of nothing is a picture", "[memory]") {
  CHECK(is_well_formed(render_svg(MemorySnapshot{}, "")));
  CHECK(is_well_formed(render_svg(snapshot_of({{{0, 4096}, BlockState::hole}}), "Memory")));
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/frontier.hpp>

#include <support/host_memory.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <map>
#include <random>
#include <utility>

using namespace reprise;
using reprise::test::host_allocations;
using reprise::test::HostMemoryFault;

namespace {

std::map<StreamIndex, StreamPosition> points(const Frontier& frontier) {
  std::map<StreamIndex, StreamPosition> out;
  for (const StreamPoint point : frontier) {
    CHECK(out.count(point.stream) == 0);
    out[point.stream] = point.position;
  }
  return out;
}

}  // namespace

TEST_CASE("a frontier keeps the newest point of each stream", "[memory]") {
  Frontier frontier;
  CHECK(frontier.empty());
  CHECK(frontier.add({2, 7}));
  CHECK(frontier.add({1, 3}));
  CHECK(frontier.add({2, 5}));
  CHECK(frontier.add({1, 4}));
  CHECK(points(frontier) == std::map<StreamIndex, StreamPosition>{{1, 4}, {2, 7}});
  CHECK(frontier.covers({2, 7}));
  CHECK_FALSE(frontier.covers({2, 8}));
  CHECK_FALSE(frontier.covers({3, 1}));
  CHECK(frontier.position(3) == 0);
}

TEST_CASE("position 0 is no use and is not noted", "[memory]") {
  Frontier frontier(StreamPoint{1, 0});
  CHECK(frontier.add({2, 0}));
  CHECK(frontier.empty());
}

TEST_CASE("a frontier of three streams takes no host memory", "[memory]") {
  const auto before = host_allocations();
  Frontier frontier;
  bool added = true;
  for (StreamIndex stream = 0; stream < 3; ++stream) added = added && frontier.add({stream, 9});
  Frontier moved = std::move(frontier);
  const auto after = host_allocations();
  CHECK(added);
  CHECK(after == before);
  CHECK(points(moved).size() == 3);
  CHECK(frontier.empty());  // NOLINT: moved from, on purpose
}

TEST_CASE("a frontier takes in place what it has room for and nothing else", "[memory]") {
  Frontier frontier;
  for (StreamIndex stream = 0; stream < 3; ++stream) CHECK(frontier.add_in_place({stream, 9}));
  CHECK_FALSE(frontier.add_in_place({3, 1}));
  CHECK(frontier.add_in_place({3, 0}));
  CHECK(frontier.add_in_place({1, 12}));
  CHECK(frontier.add_in_place({2, 5}));
  CHECK(points(frontier) == std::map<StreamIndex, StreamPosition>{{0, 9}, {1, 12}, {2, 9}});
  CHECK(frontier.reserve(4));
  CHECK(frontier.add_in_place({3, 1}));
  CHECK(points(frontier).size() == 4);
}

TEST_CASE("without host memory a frontier refuses a fourth stream and keeps what it has",
          "[memory]") {
  Frontier frontier;
  for (StreamIndex stream = 0; stream < 3; ++stream) REQUIRE(frontier.add({stream, 5}));
  Frontier more(StreamPoint{0, 8});
  REQUIRE(more.add({7, 1}));
  const auto before = points(frontier);
  bool added = true;
  bool merged = true;
  bool known = false;
  {
    const HostMemoryFault fault(1);
    added = frontier.add({3, 5});
    merged = frontier.merge(more);
    known = frontier.add({1, 6});  // Needs no room.
  }
  CHECK_FALSE(added);
  CHECK_FALSE(merged);
  CHECK(known);
  auto expected = before;
  expected[1] = 6;
  CHECK(points(frontier) == expected);
  CHECK(frontier.merge(more));
  expected[0] = 8;
  expected[7] = 1;
  CHECK(points(frontier) == expected);
}

TEST_CASE("after reserve a frontier takes so many streams without host memory", "[memory]") {
  Frontier frontier;
  REQUIRE(frontier.reserve(10));
  const HostMemoryFault fault(1);
  bool added = true;
  for (StreamIndex stream = 0; stream < 10; ++stream) added = added && frontier.add({stream, 1});
  CHECK(added);
  CHECK_FALSE(fault.fired());
}

TEST_CASE("pruning forgets the finished points and no others", "[memory]") {
  Frontier frontier;
  for (StreamIndex stream = 0; stream < 6; ++stream) REQUIRE(frontier.add({stream, stream + 1}));
  frontier.prune([](StreamPoint point) { return point.stream % 2 == 0; });
  CHECK(points(frontier) == std::map<StreamIndex, StreamPosition>{{1, 2}, {3, 4}, {5, 6}});
  frontier.forget(3);
  frontier.forget(4);
  CHECK(points(frontier) == std::map<StreamIndex, StreamPosition>{{1, 2}, {5, 6}});
}

TEST_CASE("a query borrows any callable", "[memory]") {
  int asked = 0;
  auto even = [&asked](StreamPoint point) {
    ++asked;
    return point.position % 2 == 0;
  };
  const FinishedQuery query = even;
  CHECK(query({0, 2}));
  CHECK_FALSE(query({0, 3}));
  CHECK(asked == 2);
}

TEST_CASE("a frontier agrees with a map under random adds merges and prunes", "[memory]") {
  const auto seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Frontier frontier;
  std::map<StreamIndex, StreamPosition> model;
  for (int step = 0; step < 20000; ++step) {
    const StreamPoint point{static_cast<StreamIndex>(random() % 8), random() % 100};
    const auto note = [&model](StreamPoint p) {
      if (p.position != 0) model[p.stream] = std::max(model[p.stream], p.position);
    };
    switch (random() % 8) {
      case 0: {
        Frontier other;
        for (int i = 0; i < 4; ++i) {
          const StreamPoint p{static_cast<StreamIndex>(random() % 8), random() % 100};
          REQUIRE(other.add(p));
          note(p);
        }
        REQUIRE(frontier.merge(other));
        break;
      }
      case 1:
        frontier.prune([&](StreamPoint p) { return p.position <= point.position; });
        std::erase_if(model, [&](auto& entry) { return entry.second <= point.position; });
        break;
      case 2:
        frontier.forget(point.stream);
        model.erase(point.stream);
        break;
      case 3: {
        Frontier copy;
        REQUIRE(copy.copy_from(frontier));
        frontier = std::move(copy);
        break;
      }
      default: REQUIRE(frontier.add(point)); note(point);
    }
    REQUIRE(points(frontier) == model);
  }
}

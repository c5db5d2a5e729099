// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/replay_order.hpp>

#include "support/seed.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

using namespace reprise;
using detail::RecentTouches;
using detail::ReplayOrder;

namespace {

constexpr Access both = Access::reads | Access::must_write;

struct Owner final : HoldOwner {
  void released(Hold& hold) noexcept override { hold.forget(); }
  void destroy(Hold& hold) noexcept override { delete &hold; }
};

/// Does what the actor does with order, for commands and graphs on made-up streams, and remembers
/// each of them to judge it by.
class Bookkeeper {
public:
  static constexpr std::size_t most = 512;
  static constexpr std::uint64_t bytes = 16;

  struct Done {
    std::vector<Touch> touches;
    StreamPoint point;
    std::vector<StreamPoint> waits;
    std::bitset<most> before;  // All that it certainly comes after.
  };
  struct Graph {
    std::vector<Touch> touches;
    std::optional<ReplayOrder> order;
    StreamIndex stream = 0;
    StreamPoint last;
  };

  explicit Bookkeeper(std::size_t holds) {
    for (std::size_t i = 0; i < holds; ++i) holds_.emplace_back(new Hold(owner_, bytes));
  }
  ~Bookkeeper() {
    for (auto& graph : graphs_) forget(*graph);
  }

  Touch touch(std::size_t hold, ByteRange range, Access access) const {
    return {holds_[hold], range, access};
  }
  void command(StreamIndex stream, std::vector<Touch> touches) {
    Frontier waits;
    for (const Touch& touch : touches) {
      UseMap& uses = touch.hold->device.uses;
      if (may_write(touch.access)) {
        uses.before_write(touch.range, waits);
      } else {
        uses.before_read(touch.range, waits);
      }
      uses.ready(touch.range);
    }
    const StreamPoint point = next(stream);
    for (const bool writes : {true, false}) {
      for (const Touch& touch : touches) {
        if (may_write(touch.access) != writes) continue;
        UseMap& uses = touch.hold->device.uses;
        writes ? uses.note_write(touch.range, point) : uses.note_read(touch.range, point);
        if (touch.hold->device.graphs != 0) recent_.add(touch, point);
      }
    }
    judge(std::move(touches), point, waits);
  }
  Graph& seal(StreamIndex stream, std::vector<Touch> touches) {
    Graph& graph = *graphs_.emplace_back(std::make_unique<Graph>());
    graph.touches = std::move(touches);
    graph.stream = stream;
    graph.order.emplace(graph.touches, ++ids_);
    for (const Touch& touch : graph.touches) ++touch.hold->device.graphs;
    return graph;
  }
  void replay(Graph& graph, bool refused = false) {
    Frontier waits;
    REQUIRE(waits.add(graph.last));
    graph.order->plan(recent_, waits);
    if (refused) return;
    const StreamPoint point = next(graph.stream);
    graph.order->note(recent_, point);
    graph.last = point;
    judge(graph.touches, point, waits);
  }
  void drop(std::size_t index) {
    forget(*graphs_[index]);
    graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  std::vector<std::unique_ptr<Graph>>& graphs() { return graphs_; }
  const Done& newest() const { return done_.back(); }
  std::size_t count() const { return done_.size(); }
  std::size_t holds() const { return holds_.size(); }

private:
  void forget(Graph& graph) {
    graph.order->forget(recent_);
    for (const Touch& touch : graph.touches) --touch.hold->device.graphs;
  }
  StreamPoint next(StreamIndex stream) { return {stream, ++positions_[stream]}; }

  static bool conflict(const std::vector<Touch>& a, const std::vector<Touch>& b) {
    for (const Touch& x : a) {
      for (const Touch& y : b) {
        if (x.hold == y.hold && x.range.overlaps(y.range) &&
            (may_write(x.access) || may_write(y.access))) {
          return true;
        }
      }
    }
    return false;
  }

  /// Everything it conflicts with is before it, and it waits for nothing that it needs not.
  void judge(std::vector<Touch> touches, StreamPoint point, const Frontier& waits) {
    Done now{std::move(touches), point, {}, {}};
    for (const StreamPoint wait : waits) now.waits.push_back(wait);
    for (std::size_t i = 0; i < done_.size(); ++i) {
      const Done& then = done_[i];
      const bool waited = waits.covers(then.point) || then.point.stream == point.stream;
      if (waited) {
        now.before |= then.before;
        now.before.set(i);
      }
    }
    for (std::size_t i = 0; i < done_.size(); ++i) {
      if (conflict(done_[i].touches, now.touches)) REQUIRE(now.before[i]);
      const bool named =
          std::find(now.waits.begin(), now.waits.end(), done_[i].point) != now.waits.end();
      if (named && done_[i].point.stream != point.stream) {
        REQUIRE(conflict(done_[i].touches, now.touches));
      }
    }
    done_.push_back(std::move(now));
    REQUIRE(done_.size() < most);
  }

  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
  std::vector<HoldRef> holds_;
  RecentTouches recent_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::vector<Done> done_;
  std::map<StreamIndex, StreamPosition> positions_;
  std::uint64_t ids_ = 0;
};

std::set<StreamIndex> streams(const Bookkeeper::Done& done) {
  std::set<StreamIndex> found;
  for (const StreamPoint point : done.waits) found.insert(point.stream);
  return found;
}

}  // namespace

TEST_CASE("a replay follows who touched its bytes since the last one, and nobody else [I4] [I27]",
          "[runtime]") {
  Bookkeeper books(3);
  books.command(1, {books.touch(0, {0, 16}, Access::must_write)});
  auto& graph = books.seal(
      9, {books.touch(0, {0, 16}, Access::reads), books.touch(1, {0, 16}, Access::must_write)});
  books.replay(graph);
  CHECK(streams(books.newest()) == std::set<StreamIndex>{1});
  books.replay(graph);
  CHECK(streams(books.newest()) == std::set<StreamIndex>{9});
  // Others' bytes, and reads of what it only reads, are nothing to it.
  books.command(2, {books.touch(2, {0, 16}, Access::must_write)});
  books.command(3, {books.touch(0, {4, 8}, Access::reads)});
  books.replay(graph);
  CHECK(streams(books.newest()) == std::set<StreamIndex>{9});
  // A refresh of one byte, a read of its output.
  books.command(4, {books.touch(0, {7, 8}, Access::must_write)});
  books.command(5, {books.touch(1, {15, 16}, Access::reads)});
  CHECK(streams(books.newest()) == std::set<StreamIndex>{9});
  books.replay(graph, true);  // Refused after it was planned: as if it had not been.
  books.replay(graph);
  CHECK(streams(books.newest()) == std::set<StreamIndex>{4, 5, 9});
  books.replay(graph);
  CHECK(streams(books.newest()) == std::set<StreamIndex>{9});
}

TEST_CASE("graphs that share bytes follow each other, whatever they missed [I4] [I27]",
          "[runtime]") {
  const int between = GENERATE(1, 3, 200);
  CAPTURE(between);
  Bookkeeper books(3);
  auto& one =
      books.seal(8, {books.touch(0, {0, 16}, both), books.touch(1, {0, 16}, Access::must_write)});
  auto& two = books.seal(9, {books.touch(0, {8, 12}, both)});
  auto& apart = books.seal(10, {books.touch(2, {0, 16}, both)});
  for (int round = 0; round < 2; ++round) {
    books.replay(one);
    for (int i = 0; i < between; ++i) {
      books.replay(apart);
      CHECK(streams(books.newest()).count(8) == 0);
      books.command(3, {books.touch(2, {0, 4}, Access::must_write)});
    }
    books.replay(two);
    CHECK(streams(books.newest()).count(8) == 1);
    books.command(4, {books.touch(0, {10, 11}, Access::reads)});
    CHECK(streams(books.newest()) == std::set<StreamIndex>{9});
    books.command(5, {books.touch(0, {0, 4}, Access::reads)});
    CHECK(streams(books.newest()) == std::set<StreamIndex>{8});
    if (books.count() > 400) return;
  }
}

TEST_CASE("a graph that shares one buffer with each of two others follows either [I4] [I27]",
          "[runtime]") {
  Bookkeeper books(2);
  auto& graph = books.seal(8, {books.touch(0, {0, 16}, both), books.touch(1, {0, 16}, both)});
  auto& one = books.seal(9, {books.touch(0, {0, 16}, both)});
  auto& two = books.seal(10, {books.touch(1, {0, 16}, both)});
  const auto replay_in_turns = [&](Bookkeeper::Graph& other, std::size_t hold) {
    books.replay(other);
    CHECK(streams(books.newest()).count(8) == 1);
    books.replay(graph);
    CHECK(streams(books.newest()) == std::set<StreamIndex>{8, other.stream});
    books.command(1, {books.touch(hold, {0, 16}, Access::reads)});
    CHECK(streams(books.newest()) == std::set<StreamIndex>{8});
    books.replay(graph);
    CHECK(streams(books.newest()) == std::set<StreamIndex>{1, 8});
  };
  books.replay(graph);
  for (int round = 0; round < 3; ++round) {
    replay_in_turns(one, 0);
    replay_in_turns(one, 0);
    replay_in_turns(two, 1);
  }
}

TEST_CASE("random commands, replays and graphs that go are all in order [I4] [I27]", "[runtime]") {
  const std::uint64_t seed = test::seed();
  for (std::uint64_t round = 0; round < 60; ++round) {
    CAPTURE(seed, round);
    std::mt19937_64 random(seed + round);
    const auto draw = [&](std::uint64_t n) { return random() % n; };
    Bookkeeper books(1 + draw(5));
    const auto touches = [&](std::size_t most) {
      std::vector<Touch> made;
      for (std::size_t n = 1 + draw(most); n != 0; --n) {
        constexpr Access modes[] = {Access::reads, Access::must_write, both, Access::may_write};
        const std::uint64_t begin = draw(Bookkeeper::bytes);
        const std::uint64_t end = begin + 1 + draw(Bookkeeper::bytes - begin);
        const bool whole = draw(2) == 0;
        made.push_back(books.touch(draw(books.holds()),
                                   whole ? ByteRange{0, Bookkeeper::bytes} : ByteRange{begin, end},
                                   modes[draw(4)]));
      }
      return made;
    };
    for (int step = 0; step < 200; ++step) {
      auto& graphs = books.graphs();
      const std::uint64_t what = draw(20);
      if (what < 2 || graphs.empty()) {
        books.seal(static_cast<StreamIndex>(10 + step), touches(5));
      } else if (what == 2) {
        books.drop(draw(graphs.size()));
      } else if (what < 9) {
        books.command(static_cast<StreamIndex>(draw(4)), touches(3));
      } else {
        books.replay(*graphs[draw(graphs.size())], draw(8) == 0);
      }
    }
  }
}

TEST_CASE(
    "replays that meet the same touch again and again are in order, surprises or not [I4] [I27]",
    "[runtime]") {
  const std::uint64_t seed = test::seed();
  for (std::uint64_t round = 0; round < 60; ++round) {
    CAPTURE(seed, round);
    std::mt19937_64 random(seed + round);
    const auto draw = [&](std::uint64_t n) { return random() % n; };
    constexpr std::size_t holds = 4;
    Bookkeeper books(holds);
    const bool in_part = draw(2) == 0;
    const auto some_touch = [&](std::size_t hold) {
      constexpr Access modes[] = {Access::reads,      Access::reads, Access::reads,
                                  Access::must_write, both,          Access::may_write};
      constexpr ByteRange ranges[] = {{0, 16}, {0, 8}, {8, 16}, {4, 12}};
      return books.touch(hold, ranges[in_part ? draw(4) : 0], modes[draw(6)]);
    };
    const auto seal = [&](StreamIndex stream) {
      std::vector<Touch> touches;
      for (std::size_t hold = 0; hold < holds; ++hold) {
        for (std::uint64_t n = draw(in_part ? 3 : 2); n != 0; --n) {
          touches.push_back(some_touch(hold));
        }
      }
      if (touches.empty()) touches.push_back(some_touch(0));
      books.seal(stream, std::move(touches));
    };
    seal(10);
    seal(11);
    for (StreamIndex stream = 12; books.count() < 250; ++stream) {
      auto& graphs = books.graphs();
      auto& graph = *graphs[draw(graphs.size())];
      auto& other = *graphs[draw(graphs.size())];
      Touch habit = some_touch(draw(holds));
      if (draw(2) == 0) habit.access = Access::must_write;
      const bool by_graph = draw(2) == 0;
      for (std::uint64_t times = 1 + draw(5); times != 0; --times) {
        by_graph ? books.replay(other) : books.command(StreamIndex(draw(4)), {habit});
        if (draw(8) == 0) books.replay(graph, true);
        if (draw(8) == 0) books.command(StreamIndex(draw(4)), {some_touch(draw(holds))});
        books.replay(graph);
      }
      if (draw(4) != 0) continue;
      if (graphs.size() > 1 && draw(2) == 0) books.drop(draw(graphs.size()));
      if (graphs.size() < 4) seal(stream);
    }
  }
}

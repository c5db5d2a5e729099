// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/control_lane.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <set>
#include <thread>
#include <vector>

namespace reprise {
namespace {

/// A heap for the queue that can run out.
struct QueueHeap : moodycamel::ConcurrentQueueDefaultTraits {
  static void* malloc(std::size_t bytes) {
    return left.fetch_sub(1) > 0 ? std::malloc(bytes) : nullptr;
  }
  static void free(void* block) { std::free(block); }

  static inline std::atomic<long> left{1'000'000};
};

struct PoorTraits : ChannelTraits {
  using Queue = moodycamel::ConcurrentQueue<ControlNode*, QueueHeap>;
};

struct Node : ControlNode {
  Node() noexcept : ControlNode([](ControlNode&, void*) noexcept {}) {}
  int number = 0;
};

template <class Lane>
std::vector<int> take_all(Lane& lane) {
  std::vector<int> numbers;
  while (!lane.take(
      1000, [&](ControlNode& node) { numbers.push_back(static_cast<Node&>(node).number); })) {
  }
  return numbers;
}

std::deque<Node> numbered(int count) {
  std::deque<Node> nodes(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) nodes[static_cast<std::size_t>(i)].number = i;
  return nodes;
}

std::set<int> all_up_to(int count) {
  std::set<int> numbers;
  for (int i = 0; i < count; ++i) numbers.insert(i);
  return numbers;
}

std::set<int> as_set(const std::vector<int>& numbers) {
  return {numbers.begin(), numbers.end()};
}

}  // namespace

TEST_CASE("everything posted on the control lane is taken once", "[runtime][channel]") {
  ControlLane<> lane;
  CHECK(take_all(lane).empty());
  std::deque<Node> nodes = numbered(500);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i % 3 == 0)
      lane.link(nodes[i]);
    else
      lane.post(nodes[i]);
  }
  const std::vector<int> taken = take_all(lane);
  CHECK(taken.size() == 500);
  CHECK(as_set(taken) == all_up_to(500));
  CHECK(take_all(lane).empty());
}

TEST_CASE("linked nodes are taken oldest first", "[runtime][channel]") {
  ControlLane<> lane;
  std::deque<Node> nodes = numbered(5);
  for (Node& node : nodes) lane.link(node);
  CHECK(take_all(lane) == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("a taker with a limit leaves the rest for later", "[runtime][channel]") {
  ControlLane<> lane;
  std::deque<Node> nodes = numbered(100);
  for (Node& node : nodes) lane.post(node);
  std::set<int> taken;
  int calls = 0;
  while (
      !lane.take(10, [&](ControlNode& node) { taken.insert(static_cast<Node&>(node).number); })) {
    ++calls;
    CHECK(taken.size() == std::size_t(10 * calls));
  }
  CHECK(calls == 10);
  CHECK(taken == all_up_to(100));
}

TEST_CASE("a node may be posted again and be gone as soon as it was handed over",
          "[runtime][channel]") {
  ControlLane<> lane;
  struct Own : ControlNode {
    Own() noexcept : ControlNode(nullptr) {}
    int times = 0;
  };
  for (const bool linked : {false, true}) {
    const auto put = [&](ControlNode& node) { linked ? lane.link(node) : lane.post(node); };
    for (int i = 0; i < 3; ++i) put(*new Own);
    int served = 0;
    for (int pass = 0; pass < 2; ++pass)
      lane.take(3, [&](ControlNode& node) {
        auto& own = static_cast<Own&>(node);
        ++served;
        if (++own.times == 1)
          put(node);
        else
          delete &own;
      });
    CHECK(served == 6);
    CHECK(take_all(lane).empty());
  }
}

TEST_CASE("a node that the queue has no memory for goes on the intrusive stack",
          "[runtime][channel][fault]") {
  for (long granted = 0; granted < 8; ++granted) {
    CAPTURE(granted);
    QueueHeap::left.store(granted);
    {
      ControlLane<PoorTraits> lane;
      std::deque<Node> nodes = numbered(2000);
      for (Node& node : nodes) lane.post(node);
      CHECK(QueueHeap::left.load() < 0);  // it did run out
      CHECK(as_set(take_all(lane)) == all_up_to(2000));
      QueueHeap::left.store(1'000'000);  // and recovers
      for (Node& node : nodes) lane.post(node);
      CHECK(as_set(take_all(lane)) == all_up_to(2000));
    }
  }
}

TEST_CASE("nodes of threads that have ended are still taken", "[runtime][channel][threads][I13]") {
  ControlLane<> lane;
  constexpr int each = 300;
  std::deque<Node> nodes = numbered(4 * each);
  for (int generation = 0; generation < 2; ++generation) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&, first = (2 * generation + t) * each] {
        for (int i = 0; i < each; ++i) lane.post(nodes[std::size_t(first + i)]);
      });
    for (std::thread& thread : threads) thread.join();
  }
  const std::vector<int> taken = take_all(lane);
  CHECK(taken.size() == std::size_t(4 * each));
  CHECK(as_set(taken) == all_up_to(4 * each));
}

TEST_CASE("posters and a taker that run at once lose nothing and take nothing twice",
          "[runtime][channel][threads]") {
  ControlLane<> lane;
  constexpr int each = 20'000;
  constexpr int posters = 3;
  std::deque<Node> nodes = numbered(posters * each);
  std::vector<std::thread> threads;
  for (int t = 0; t < posters; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        Node& node = nodes[std::size_t(t * each + i)];
        if (i % 4 == 0)
          lane.link(node);
        else
          lane.post(node);
      }
    });
  std::vector<char> seen(nodes.size(), 0);
  std::size_t taken = 0;
  bool twice = false;
  while (taken < nodes.size())
    lane.take(64, [&](ControlNode& node) {
      char& mark = seen[std::size_t(static_cast<Node&>(node).number)];
      twice = twice || mark != 0;
      mark = 1;
      ++taken;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(twice);
  CHECK(take_all(lane).empty());
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/check.hpp>

#include <concurrentqueue/concurrentqueue.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace reprise {

/// What travels on the control lane: embedded in the object that posts it, so posting needs no
/// memory and cannot be refused.
///
/// Lifetime  From post() until `run` is called the node belongs to the lane; `run` may destroy it.
///           It may be posted again from within its own `run`, not before.
///
/// `run` is null in the nodes of late submissions only, which the channel keeps for itself.
struct ControlNode {
  ControlNode() noexcept {}  // NOLINT: LateNode leaves both for later
  explicit ControlNode(void (*function)(ControlNode&, void*) noexcept) noexcept : run(function) {}

  void (*run)(ControlNode& node, void* context) noexcept;
  ControlNode* next;
};

/// Bugs that can be planted in a channel, by their REPRISE_PLANT number. channel_explore_test
/// catches each of them.
enum class ChannelPlant : int {
  late_without_control = 21,
  close_without_wake = 22,
  skip_wake = 23,
  park_ignores_control = 24,
  late_unsorted = 25,
};

/// The parts of a channel that its tests replace.
struct ChannelTraits {
  template <class T>
  using Atomic = std::atomic<T>;
  using Queue = moodycamel::ConcurrentQueue<ControlNode*>;
  using Mutex = std::mutex;
  static bool planted([[maybe_unused]] ChannelPlant plant) noexcept {
    return REPRISE_PLANT(static_cast<int>(plant));
  }
};

/// An unordered, unbounded bag of control nodes for any number of posters and one taker.
///
/// Nodes travel as raw pointers through moodycamel's queue. Where that cannot be (it is out of
/// memory, or the poster may not allocate) they go on an intrusive stack instead. Who takes learns
/// from ChannelWord when to look; the lane itself announces nothing.
///
/// Lifetime  Nodes still inside when the lane is destroyed are forgotten.
/// Threads   post() and link(): any. take_all(): one thread at a time.
template <class Traits = ChannelTraits>
class ControlLane {
public:
  ControlLane() = default;
  ControlLane(const ControlLane&) = delete;
  ControlLane& operator=(const ControlLane&) = delete;

  void post(ControlNode& node) noexcept {
    if (!queue_.enqueue(&node)) {
      REPRISE_MARK("control_spilled");
      link(node);
    }
  }

  /// Like post(), but never allocates.
  void link(ControlNode& node) noexcept {
    node.next = linked_.load(std::memory_order_relaxed);
    // Release: the partner is the exchange in take(). The node is the taker's afterwards.
    while (!linked_.compare_exchange_weak(node.next, &node, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
  }

  /// Calls f(ControlNode&) for what is there, linked nodes oldest first, and does not touch a node
  /// again once f has it. Stops at about `limit` nodes; true when it found the lane empty instead.
  template <class F>
  bool take(std::size_t limit, F&& f) {
    std::size_t taken = 0;
    for (ControlNode* node = take_linked(); node != nullptr; ++taken) {
      ControlNode* const next = node->next;
      f(*node);
      node = next;
    }
    while (taken < limit) {
      ControlNode* nodes[batch];
      const std::size_t count = queue_.try_dequeue_bulk(nodes, std::min(batch, limit - taken));
      if (count == 0) return true;
      for (std::size_t i = 0; i < count; ++i) f(*nodes[i]);
      taken += count;
    }
    return false;
  }

private:
  static constexpr std::size_t batch = 32;

  ControlNode* take_linked() noexcept {
    // The plain look spares an idle lane the exchange; whoever was announced is seen by it.
    if (linked_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    // Acquire: the partner is the compare-exchange in link().
    ControlNode* newest = linked_.exchange(nullptr, std::memory_order_acquire);
    ControlNode* oldest = nullptr;
    while (newest != nullptr) {
      ControlNode* const next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

  typename Traits::Queue queue_;
  typename Traits::template Atomic<ControlNode*> linked_{nullptr};
};

}  // namespace reprise

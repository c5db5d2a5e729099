// SPDX-License-Identifier: Apache-2.0
// P13: what order and taint add to a replay when nothing has failed.
#include "harness.hpp"
#include "holds.hpp"

#include <reprise/memory/hold.hpp>
#include <reprise/memory/taint.hpp>
#include <reprise/runtime/replay_order.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

namespace reprise::bench {
namespace {

using detail::RecentTouches;
using detail::ReplayOrder;

/// Allocations of a device, with what their bytes carry and who used them.
class Memory {
public:
  explicit Memory(int buffers) {
    for (int i = 0; i < buffers; ++i) {
      HoldRef hold = make_hold(bytes);
      hold->device.taint = TaintMap(bytes, &taint_changes);
      hold->device.taint.clear(all);
      hold->device.graphs = 1;
      holds_.push_back(std::move(hold));
    }
  }
  const HoldRef& operator[](int i) const { return holds_[std::size_t(i)]; }

  static constexpr std::uint64_t bytes = 4096;
  static constexpr ByteRange all{0, bytes};

  std::uint64_t taint_changes = 0;

private:
  std::vector<HoldRef> holds_;
};

/// The byte sets of a graph that reads an input and half of the other buffers, writes the rest, and
/// keeps something from replay to replay in a cache.
struct Sets {
  static constexpr int cache = 0;
  static constexpr int input = 1;

  /// `others`: the buffers from there on are its own.
  Sets(const Memory& memory, int buffers, int others) {
    const auto add = [&](int buffer, Access access) {
      touches.push_back({memory[buffer], Memory::all, access});
    };
    add(cache, Access::reads);
    add(input, Access::reads);
    for (int i = 0; i < buffers - 2; i += 2) add(others + i, Access::reads);
    add(cache, Access::must_write);
    for (int i = 1; i < buffers - 2; i += 2) add(others + i, Access::must_write);
  }

  std::vector<Touch> touches;
};

/// What the device thread does for order and taint, with a device that takes everything.
class Device {
public:
  Device(int buffers, int graphs) : memory_(2 + graphs * (buffers - 2)) {
    for (int i = 0; i < graphs; ++i) {
      graphs_[std::size_t(i)].emplace(memory_, buffers, 2 + i * (buffers - 2),
                                      std::uint64_t(i) + 1);
    }
    // Until everything was seen once.
    for (int i = 0; i < 2 * graphs; ++i) {
      replay(i % graphs);
      refresh();
    }
    if (memory_.taint_changes != 0) std::abort();
  }
  ~Device() {
    for (auto& graph : graphs_) {
      if (graph) graph->order.forget(recent_);
    }
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// With order and taint, or what is left of a replay without them.
  template <bool ordered = true>
  [[gnu::noinline]] void replay(int which) {
    Graph& graph = *graphs_[std::size_t(which)];
    const StreamPoint point = next(std::uint32_t(which));
    if constexpr (!ordered) {
      keep(graph.last = point);
      return;
    }
    if (!graph.order.is_clean_at(memory_.taint_changes)) look_for_claims(graph);
    Frontier waits;
    if (!waits.add(graph.last)) std::abort();
    graph.order.plan(recent_, waits);
    keep(waits.size());
    graph.last = point;
    graph.order.note(recent_, point);
    if (!graph.order.is_clean_at(memory_.taint_changes)) {
      graph.order.found_clean(memory_.taint_changes);
    }
  }

  /// Another command writes all of the graphs' input.
  [[gnu::noinline]] void refresh() {
    const Touch& touch = refreshed_;
    UseMap& uses = touch.hold->device.uses;
    Frontier waits;
    uses.before_write(touch.range, waits);
    uses.ready(touch.range);
    keep(waits.size());
    const StreamPoint point = next(7);
    uses.note_write(touch.range, {point, nullptr});
    if (touch.hold->device.graphs != 0) recent_.add(touch, point);
  }

private:
  struct Graph {
    Graph(const Memory& memory, int buffers, int others, std::uint64_t id)
        : sets(memory, buffers, others), order(sets.touches, id) {}

    Sets sets;
    ReplayOrder order;
    StreamPoint last;
  };

  StreamPoint next(StreamIndex stream) noexcept { return {stream, ++position_}; }
  static void look_for_claims(const Graph& graph) {
    for (const Touch& touch : graph.sets.touches) {
      if (touch.hold->device.taint.first(touch.range) != nullptr) std::abort();
    }
  }

  Memory memory_;
  const Touch refreshed_{memory_[Sets::input], Memory::all, Access::must_write};
  RecentTouches recent_;
  std::array<std::optional<Graph>, 2> graphs_;
  StreamPosition position_ = 0;
};

enum class Between { nothing, refresh, other_graph };

/// Replays of a graph of so many buffers, with order and taint or without.
template <int buffers, Between between, bool ordered>
long loop(int rounds) {
  const int graphs = between == Between::other_graph ? 2 : 1;
  Device device(buffers, graphs);
  const int times = rounds * 256;
  for (int i = 0; i < times; ++i) {
    if constexpr (between == Between::refresh) device.refresh();
    device.replay<ordered>(i % graphs);
  }
  return times;
}

constexpr const char* inside = "*::Device::replay<*";

template <int buffers, Between between>
void row_for(Suite& suite, const std::string& what, double bar) {
  suite.row("P13", "order and taint, " + what, "instructions")
      .limit_instructions("replay without", loop<buffers, between, false>, inside)
      .add_instructions("replay", loop<buffers, between, true>, {at_most_added(bar)}, inside);
}

template <int buffers>
void rows_for(Suite& suite, const std::string& size) {
  row_for<buffers, Between::nothing>(suite, "idle between replays, " + size, 60);
  row_for<buffers, Between::refresh>(suite, "a refresh per replay, " + size, 150);
  row_for<buffers, Between::other_graph>(suite, "two graphs with one cache in turns, " + size, 150);
}

const Registration rows{[](Suite& suite) {
  rows_for<65>(suite, "65 buffers");
  rows_for<1000>(suite, "1,000 buffers");
}};

}  // namespace
}  // namespace reprise::bench

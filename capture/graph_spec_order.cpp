// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/hold.hpp>
#include <reprise/capture/graph_spec.hpp>
#include <reprise/capture/hazards.hpp>
#include <reprise/capture/recorder.hpp>
#include <reprise/capture/recording.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

// What a spec means as a whole: the order of its nodes, with cycles and unordered conflicts found,
// what the order says of times and of buffers, and a recording of it on paper.

namespace reprise {

namespace {

using Nodes = std::vector<std::uint32_t>;
using detail::Hazards;

/// Owns records of allocations that no device knows.
class PaperOwner final : public HoldOwner {
public:
  void released(Hold& hold) noexcept override { hold.forget(); }
  void destroy(Hold& hold) noexcept override { delete &hold; }
};

/// A hold for each buffer, laid end to end.
std::vector<HoldRef> paper_holds(std::span<const SpecBuffer> buffers) {
  const auto owner = std::make_shared<PaperOwner>();
  std::vector<HoldRef> holds;
  std::uint64_t at = 0;
  for (const SpecBuffer& buffer : buffers) {
    holds.emplace_back(new Hold(owner, buffer.bytes));
    holds.back()->device.state = Hold::Device::State::bound;
    holds.back()->device.address = at;
    at = align_up(at + buffer.bytes, 256);
  }
  return holds;
}

std::vector<Touch> touches_of(const SpecNode& node, std::span<const HoldRef> holds) {
  std::vector<Touch> touches;
  for (const SpecUse& use : node.uses) {
    if (!use.range.empty()) touches.push_back({holds[use.buffer], use.range, use.access});
  }
  return touches;
}

NodeOrder order_of(const SpecNode& node, SpecEdges edges) noexcept {
  if (edges == SpecEdges::given || node.kind == SpecKind::empty) return NodeOrder::bytes;
  return node.is_barrier ? NodeOrder::barrier : NodeOrder::automatic;
}

/// The same as a recorder sees it.
Hazards::Order hazard_order_of(const SpecNode& node, bool touches) noexcept {
  if (node.is_barrier || (node.kind == SpecKind::host && !touches)) return Hazards::Order::barrier;
  return node.kind == SpecKind::host ? Hazards::Order::chained : Hazards::Order::bytes;
}

Nodes positions_of(const Nodes& order) {
  Nodes positions(order.size());
  for (std::uint32_t at = 0; at < order.size(); ++at) positions[order[at]] = at;
  return positions;
}

/// Whether `to` comes after `from` on a path of `after`. Looks at nothing before `from`.
class Paths {
public:
  Paths(const std::vector<Nodes>& after, const Nodes& position)
      : after_(after), position_(position), seen_(after.size(), ~std::uint32_t{0}) {}

  bool lead(std::uint32_t from, std::uint32_t to) {
    ++round_;
    stack_.assign(1, to);
    while (!stack_.empty()) {
      const std::uint32_t at = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t on : after_[at]) {
        if (on == from) return true;
        if (position_[on] < position_[from] || seen_[on] == round_) continue;
        seen_[on] = round_;
        stack_.push_back(on);
      }
    }
    return false;
  }

private:
  const std::vector<Nodes>& after_;
  const Nodes& position_;
  Nodes seen_;
  Nodes stack_;
  std::uint32_t round_ = 0;
};

/// The last writer of some bytes and who read them since.
struct Run {
  std::uint64_t end = 0;
  std::uint32_t writer = SpecLife::never;
  Nodes readers;
};
using Runs = std::map<std::uint64_t, Run>;

/// Cuts `runs` at both ends of `range` and calls f(range, run) for what covers it.
template <class F>
void each_run(Runs& runs, ByteRange range, F&& f) {
  for (const std::uint64_t cut : {range.begin, range.end}) {
    const auto it = runs.upper_bound(cut);
    if (it == runs.begin()) continue;
    const auto in = std::prev(it);
    if (in->first == cut || in->second.end <= cut) continue;
    Run right = in->second;
    in->second.end = cut;
    runs.emplace_hint(it, cut, std::move(right));
  }
  std::uint64_t at = range.begin;
  while (at < range.end) {
    auto it = runs.lower_bound(at);
    if (it == runs.end() || it->first > at) {
      const std::uint64_t end = it == runs.end() ? range.end : std::min(range.end, it->first);
      it = runs.emplace_hint(it, at, Run{end, SpecLife::never, {}});
    }
    f(ByteRange{at, it->second.end}, it->second);
    at = it->second.end;
  }
}

}  // namespace

// ---- order -------------------------------------------------------------------------------------

SpecOrder GraphSpec::order() const {
  SpecOrder order;
  order.order = given_order();
  if (edges_ == SpecEdges::derived) {
    derive(order);
  } else {
    order.after = after_;
    check_ordered(order);
  }
  measure(order, nodes_);
  return order;
}

/// Kahn's algorithm; of the nodes that are ready, the first added goes next.
std::vector<std::uint32_t> GraphSpec::given_order() const {
  const std::uint32_t count = node_count();
  std::vector<std::vector<std::uint32_t>> before(count);
  std::vector<std::uint32_t> waiting_for(count);
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (const std::uint32_t on : after_[i]) before[on].push_back(i);
    waiting_for[i] = static_cast<std::uint32_t>(after_[i].size());
    if (waiting_for[i] == 0) ready.push(i);
  }
  std::vector<std::uint32_t> order;
  order.reserve(count);
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const std::uint32_t next : before[order.back()]) {
      if (--waiting_for[next] == 0) ready.push(next);
    }
  }
  if (order.size() != count) report_cycle(waiting_for);
  return order;
}

/// Every node that still waits follows another one that does: going on to that one comes around.
void GraphSpec::report_cycle(const std::vector<std::uint32_t>& waiting_for) const {
  const auto waits = [&](std::uint32_t node) { return waiting_for[node] != 0; };
  std::vector<std::uint32_t> path;
  std::vector<bool> seen(node_count());
  std::uint32_t at = 0;
  while (!waits(at)) ++at;
  while (!seen[at]) {
    seen[at] = true;
    path.push_back(at);
    at = *std::find_if(after_[at].begin(), after_[at].end(), waits);
  }
  // The path goes backwards; told is the order in which the nodes would run.
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  std::reverse(path.begin(), path.end());
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  std::string message = "a cycle: ";
  for (const std::uint32_t node : path) message += label_of(node) + " -> ";
  message += label_of(path[0]);
  throw Failure(make_failure(Errc::invalid_argument, "order", label_of(path[0]), message));
}

void GraphSpec::derive(SpecOrder& order) const {
  const auto holds = paper_holds(buffers_);
  const Nodes position = positions_of(order.order);
  Hazards hazards;
  order.after.resize(node_count());
  for (const std::uint32_t index : order.order) {
    const SpecNode& node = nodes_[index];
    const auto touches = touches_of(node, holds);
    Nodes given;
    for (const std::uint32_t on : after_[index]) given.push_back(position[on]);
    hazards.add(touches, given, hazard_order_of(node, !touches.empty()));
    for (const std::uint32_t at : hazards.after(position[index])) {
      order.after[index].push_back(order.order[at]);
    }
    std::sort(order.after[index].begin(), order.after[index].end());
  }
}

/// Whatever bytes ask for must be on a path of the given edges.
void GraphSpec::check_ordered(const SpecOrder& order) const {
  const Nodes position = positions_of(order.order);
  Paths paths(order.after, position);
  std::vector<Runs> runs(buffer_count());
  std::uint32_t node = 0;
  const auto expect = [&](std::uint32_t earlier, const SpecUse& use, ByteRange range) {
    if (earlier == SpecLife::never || earlier == node || paths.lead(earlier, node)) return;
    throw Failure(make_failure(Errc::invalid_argument, "order", label_of(node),
                               "conflicts with " + label_of(earlier) + " on bytes [" +
                                   std::to_string(range.begin) + ", " + std::to_string(range.end) +
                                   ") of buffer '" + buffers_[use.buffer].name +
                                   "', and no given edges order the two"));
  };
  for (const std::uint32_t at : order.order) {
    node = at;
    for (const SpecUse& use : nodes_[node].uses) {
      if (!reads(use.access)) continue;
      each_run(runs[use.buffer], use.range, [&](ByteRange range, Run& run) {
        expect(run.writer, use, range);
        run.readers.push_back(node);
      });
    }
    for (const SpecUse& use : nodes_[node].uses) {
      if (!may_write(use.access)) continue;
      each_run(runs[use.buffer], use.range, [&](ByteRange range, Run& run) {
        expect(run.writer, use, range);
        for (const std::uint32_t reader : run.readers) expect(reader, use, range);
        run.writer = node;
        run.readers.clear();
      });
    }
  }
}

/// Forwards for levels and starts, backwards for slack.
void GraphSpec::measure(SpecOrder& order, const std::vector<SpecNode>& nodes) {
  const std::size_t count = nodes.size();
  order.level.assign(count, 0);
  order.start.assign(count, 0);
  std::uint32_t last = SpecLife::never;
  for (const std::uint32_t node : order.order) {
    for (const std::uint32_t on : order.after[node]) {
      order.level[node] = std::max(order.level[node], order.level[on] + 1);
      order.start[node] = std::max(order.start[node], order.start[on] + nodes[on].cost);
    }
    const std::uint64_t end = order.start[node] + nodes[node].cost;
    if (last == SpecLife::never || end > order.cost) last = node;
    order.cost = std::max(order.cost, end);
  }
  std::vector<std::uint64_t> latest(count, order.cost);  // By when each must have ended.
  order.slack.assign(count, 0);
  for (auto it = order.order.rbegin(); it != order.order.rend(); ++it) {
    const std::uint64_t start = latest[*it] - nodes[*it].cost;
    order.slack[*it] = start - order.start[*it];
    for (const std::uint32_t on : order.after[*it]) latest[on] = std::min(latest[on], start);
  }
  while (last != SpecLife::never) {
    order.critical_path.push_back(last);
    const auto& after = order.after[last];
    const auto before = std::find_if(after.begin(), after.end(), [&](std::uint32_t on) {
      return order.start[on] + nodes[on].cost == order.start[last];
    });
    last = before == after.end() ? SpecLife::never : *before;
  }
  std::reverse(order.critical_path.begin(), order.critical_path.end());
}

std::size_t SpecOrder::edge_count() const noexcept {
  return std::accumulate(after.begin(), after.end(), std::size_t{0},
                         [](std::size_t sum, const auto& each) { return sum + each.size(); });
}

std::vector<std::uint32_t> SpecOrder::widths() const {
  Nodes widths;
  for (const std::uint32_t each : level) {
    if (each >= widths.size()) widths.resize(each + 1);
    ++widths[each];
  }
  return widths;
}

std::vector<std::uint32_t> SpecOrder::by_slack() const {
  Nodes nodes = order;
  std::stable_sort(nodes.begin(), nodes.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return slack[a] < slack[b]; });
  return nodes;
}

// ---- what order says ---------------------------------------------------------------------------

std::vector<SpecLife> GraphSpec::lives(const SpecOrder& order) const {
  std::vector<SpecLife> lives(buffer_count());
  for (std::uint32_t at = 0; at < order.order.size(); ++at) {
    for (const SpecUse& use : nodes_[order.order[at]].uses) {
      if (use.range.empty()) continue;
      SpecLife& life = lives[use.buffer];
      if (may_write(use.access) && life.first_write == SpecLife::never) life.first_write = at;
      if (reads(use.access)) life.is_read = true;
      life.last_use = at;
    }
  }
  return lives;
}

/// One pass suffices where there are no cycles: the dominators of what comes before are known.
std::vector<std::uint32_t> dominators(const SpecOrder& order) {
  const Nodes position = positions_of(order.order);
  Nodes dominator(order.order.size(), SpecLife::never);
  const auto common = [&](std::uint32_t a, std::uint32_t b) {
    while (a != b && a != SpecLife::never && b != SpecLife::never) {
      std::uint32_t& later = position[a] > position[b] ? a : b;
      later = dominator[later];
    }
    return a == b ? a : SpecLife::never;
  };
  for (const std::uint32_t node : order.order) {
    const auto& after = order.after[node];
    if (after.empty()) continue;
    dominator[node] = std::accumulate(after.begin() + 1, after.end(), after.front(), common);
  }
  return dominator;
}

// ---- a recording on paper ----------------------------------------------------------------------

namespace {

Command command_of(const SpecNode& node, std::span<const HoldRef> holds, Recorder& recorder) {
  const auto address = [&](std::size_t use) {
    return holds[node.uses[use].buffer]->device.address + node.uses[use].range.begin;
  };
  switch (node.kind) {
    case SpecKind::kernel: {
      const std::byte* const arguments = recorder.copy_arguments(node.arguments);
      if (arguments == nullptr) throw std::bad_alloc();
      return command::Launch{node.kernel.get(), node.grid, arguments,
                             node.has_count ? address(node.uses.size() - 1) : 0};
    }
    case SpecKind::copy: return command::Copy{address(0), address(1), node.uses[0].range.size()};
    case SpecKind::fill:
      return command::Fill{address(0), node.uses[0].range.size(), node.pattern, node.pattern_bytes};
    case SpecKind::host: return command::HostCall{node.call, node.callee.get()};
    case SpecKind::child: {
      const bool asks = node.repeat != GraphRepeat::once;
      return command::RunGraph{nullptr, nullptr, node.repeat, asks ? address(0) : 0, node.at_most};
    }
    case SpecKind::empty: break;
  }
  return command::Marker{};
}

}  // namespace

std::shared_ptr<const Recording> GraphSpec::seal(std::string_view name) const {
  const SpecOrder order = this->order();
  const auto holds = paper_holds(buffers_);
  Recorder recorder;
  // A node that does nothing is not recorded: those behind it follow what it follows.
  std::vector<Nodes> numbers(node_count());
  for (const std::uint32_t index : order.order) {
    const SpecNode& node = nodes_[index];
    Nodes after;
    for (const std::uint32_t on : after_[index]) {
      after.insert(after.end(), numbers[on].begin(), numbers[on].end());
    }
    std::vector<Touch> touches = touches_of(node, holds);
    RecordedNode recorded;
    recorded.command = command_of(node, holds, recorder);
    recorded.touches = touches;
    recorded.kernel = node.kernel;
    recorded.name = name_of(index);
    recorded.where = node.where;
    recorded.retained = node.callee;
    recorded.order = order_of(node, edges_);
    recorded.after = after;
    const auto added = recorder.add(std::move(recorded));
    if (!added) throw Failure(added.error().code, "instantiate", added.error().message);
    numbers[index] = *added == Recorder::no_node ? std::move(after) : Nodes{*added};
  }
  auto sealed = Recording::seal(std::move(recorder), {name, 0});
  if (!sealed) throw Failure(sealed.error().code, "instantiate", sealed.error().message);
  return *sealed;
}

}  // namespace reprise

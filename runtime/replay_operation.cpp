// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/replay_operation.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/slot_replay.hpp>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace reprise::detail {

// ---- ReplayOperation ---------------------------------------------------------------------------

ReplayOperation::ReplayOperation(std::shared_ptr<GraphState> graph) noexcept
    : Operation("replay"), graph_(std::move(graph)) {
  logical = graph_->logical;
  touches = graph_->touches;
}

void ReplayOperation::accept(Actor& actor) {
  if (graph_->recording->node_count() == 0) return actor.done(*this);
  command = command::RunGraph{graph_->program.get()};
  actor.replay(*this, *graph_->order);
}

void ReplayOperation::was_accepted(Actor& actor) noexcept {
  add_one(graph_->replays);
  add_one(actor.core().counters().replays);
}

void ReplayOperation::failed_with(const FailurePtr& failure) noexcept {
  graph_->note_failure(failure, enqueued);
}

void ReplayOperation::claim_nodes() {
  std::vector<std::pair<std::uint32_t, ClaimPtr>> failures;
  const auto mark = [this](const NodeView& node, const ClaimPtr& claim) {
    for (const Touch& touch : node.touches) {
      if (!may_write(touch.access)) continue;
      const Located place = locate(touch);
      place.hold.device.taint.claim(place.range, claim);
    }
  };
  graph_->recording->walk_outcome(nodes, [&](std::uint32_t index, NodeEnd end,
                                             const NodeOutcome* outcome) {
    const NodeView node = graph_->recording->node(index);
    if (end == NodeEnd::ok) {
      for (const Touch& touch : node.touches) {
        if (!may_write(touch.access)) continue;
        const Located place = locate(touch);
        TaintMap& taint = place.hold.device.taint;
        if (must_write(touch.access)) taint.clear(place.range);
        taint.lift(place.range, place.owner);
      }
    } else if (end == NodeEnd::failed) {
      failures.emplace_back(index, make_claim(ClaimKind::ran, outcome->failure));
      mark(node, failures.back().second);
    } else {
      const auto root = std::find_if(failures.begin(), failures.end(),
                                     [&](const auto& at) { return at.first == outcome->because; });
      mark(node, root != failures.end() ? skip_claim(*root->second, node.name)
                                        : make_claim(ClaimKind::not_started, failure));
    }
  });
}

// ---- making them -------------------------------------------------------------------------------

namespace {

/// The same through a client of another stream: if that is in a window, a node of its recording.
template <class Replay>
class ThroughClient final : public Replay {
public:
  ThroughClient(std::shared_ptr<GraphState> graph, std::shared_ptr<LogicalStream> stream) noexcept
      : Replay(std::move(graph)) {
    this->logical = std::move(stream);
  }

  void settle(Actor& actor) noexcept override {
    if (!actor.is_recording(*this)) Replay::settle(actor);
  }
  void accept(Actor& actor) override {
    const GraphState& graph = *this->graph_;
    if (!actor.is_recording(*this)) {
      // It runs on the graph's stream, after what was submitted on the client's and before what
      // comes there.
      through_ = std::exchange(this->logical, graph.logical);
      if (!this->waits_for.add(through_->device.last)) throw std::bad_alloc();
      return Replay::accept(actor);
    }
    if (graph.was_updated.load(std::memory_order_relaxed)) {
      return actor.refuse(*this, Errc::unsupported, GraphState::no_child);
    }
    this->graph_->is_child = true;
    if (graph.recording->node_count() == 0) return actor.done(*this);
    if (rotates(graph)) {
      return actor.refuse(*this, Errc::unsupported,
                          "a graph within a graph has fixed addresses, and slots of this rotate");
    }
    this->touches = graph.touches;
    this->command = command::RunGraph{graph.program.get()};
    actor.run(*this);
  }
  void describe(RecordedNode& node, Recorder& /*recorder*/) const override {
    node.retained = this->graph_;
    if (calls_host(*this->graph_->recording)) node.order = NodeOrder::barrier;
  }
  void was_accepted(Actor& actor) noexcept override {
    if (through_) through_->device.last = {this->stream, this->position};
    Replay::was_accepted(actor);
  }
  /// In a window it is the window that failed.
  void failed_with(const FailurePtr& failure) noexcept override {
    if (this->logical == this->graph_->logical) Replay::failed_with(failure);
  }

private:
  std::shared_ptr<LogicalStream> through_;  // Of the client; null in a window.
};

/// Throws std::bad_alloc.
template <class Replay, class... A>
BoundReplay* make_laid_out(const std::shared_ptr<GraphState>& graph, A&&... stream) {
  auto* const operation = graph->logical->core->make<Replay>(BoundReplay::extra_bytes(*graph),
                                                             graph, std::forward<A>(stream)...);
  operation->lay_out(DeviceCore::extra(*operation));
  return operation;
}

}  // namespace

bool calls_host(const Recording& recording) noexcept {
  for (std::uint32_t i = 0; i < recording.node_count(); ++i) {
    const Command& command = recording.node(i).command;
    // What a child calls cannot be seen from here.
    if (std::holds_alternative<command::HostCall>(command) ||
        std::holds_alternative<command::RunGraph>(command)) {
      return true;
    }
  }
  return false;
}

Operation* make_replay(const std::shared_ptr<GraphState>& graph, BindingView bindings,
                       const char* verb) {
  DeviceCore& core = *graph->logical->core;
  if (bindings.empty()) {
    if (!graph->rotation) return core.make<ReplayOperation>(0, graph);
    if (!rotates(*graph)) return core.make<RecordedReplay>(0, graph);
  }
  BoundReplay* const operation = make_laid_out<BoundReplay>(graph);
  try {
    bind_places(*graph, bindings, verb, operation->places());
  } catch (...) {
    core.discard(*operation);
    throw;
  }
  operation->place_touches();
  return operation;
}

Operation* make_client_replay(const std::shared_ptr<LogicalStream>& stream,
                              const std::shared_ptr<GraphState>& graph) {
  DeviceCore& core = *graph->logical->core;
  if (stream->core.get() != &core) {
    throw Failure(Errc::wrong_device, "replay", "the graph is of another device");
  }
  if (!graph->rotation) return core.make<ThroughClient<ReplayOperation>>(0, graph, stream);
  if (!rotates(*graph)) return core.make<ThroughClient<RecordedReplay>>(0, graph, stream);
  BoundReplay* const operation = make_laid_out<ThroughClient<BoundReplay>>(graph, stream);
  operation->place_touches();
  return operation;
}

Operation* make_replay_here(Actor& actor, const ReplayRequest& request) {
  auto graph = request.graph->shared_from_this();
  Operation* operation = nullptr;
  if (graph->rotation == nullptr || !graph->rotation->is_disturbed()) {
    operation = actor.core().make_here<ReplayOperation>(std::move(graph));
  } else {
    operation = actor.core().make_here<RecordedReplay>(std::move(graph));
    operation->settle(actor);
  }
  operation->accepted = Completion(request.accepted);
  operation->finished = Completion(request.finished);
  return operation;
}

}  // namespace reprise::detail

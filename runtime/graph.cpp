// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/reply_cell.hpp>
#include <reprise/runtime/verbs.hpp>

#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

namespace reprise {

namespace detail {

namespace {

/// One replay in flight. It keeps the graph.
class ReplayOperation : public Operation {
public:
  explicit ReplayOperation(std::shared_ptr<GraphState> graph) noexcept
      : Operation("replay"), graph_(std::move(graph)) {
    logical = graph_->logical;
    touches = graph_->touches;
  }

  std::string_view name() const noexcept override { return graph_->recording->name(); }
  std::uint64_t owner() const noexcept override { return graph_->recording->id(); }

  void accept(Actor& actor) override {
    if (graph_->recording->node_count() == 0) return actor.done(*this);
    command = command::RunGraph{graph_->program.get()};
    actor.replay(*this, *graph_->order);
  }

  void was_accepted(Actor& actor) noexcept override {
    add_one(graph_->replays);
    add_one(actor.core().counters().replays);
  }
  void failed_with(const FailurePtr& failure) noexcept override {
    graph_->note_failure(failure, enqueued);
  }
  void claim_nodes() override;

protected:
  std::shared_ptr<GraphState> graph_;
};

/// A replay through a client: if its stream is in a window, a node of the window's recording.
class ClientReplay final : public ReplayOperation {
public:
  ClientReplay(std::shared_ptr<GraphState> graph, std::shared_ptr<LogicalStream> stream) noexcept
      : ReplayOperation(std::move(graph)) {
    logical = std::move(stream);
  }

  void accept(Actor& actor) override {
    if (!actor.is_recording(*this)) {
      // It runs on the graph's stream, after what was submitted on the client's and before what
      // comes there.
      through_ = std::exchange(logical, graph_->logical);
      if (!waits_for.add(through_->device.last)) throw std::bad_alloc();
      return ReplayOperation::accept(actor);
    }
    if (graph_->recording->node_count() == 0) return actor.done(*this);
    command = command::RunGraph{graph_->program.get()};
    actor.run(*this);
  }
  void describe(RecordedNode& node, Recorder& /*recorder*/) const override {
    node.retained = graph_;
    if (calls_host(*graph_->recording)) node.order = NodeOrder::barrier;
  }
  void was_accepted(Actor& actor) noexcept override {
    if (through_) through_->device.last = {stream, position};
    ReplayOperation::was_accepted(actor);
  }
  /// In a window it is the window that failed.
  void failed_with(const FailurePtr& failure) noexcept override {
    if (logical == graph_->logical) ReplayOperation::failed_with(failure);
  }

private:
  std::shared_ptr<LogicalStream> through_;  // Of the client; null in a window.
};

void ReplayOperation::claim_nodes() {
  std::vector<std::pair<std::uint32_t, ClaimPtr>> failures;
  const auto mark = [](const NodeView& node, const ClaimPtr& claim) {
    for (const Touch& touch : node.touches) {
      if (may_write(touch.access)) touch.hold->device.taint.claim(touch.range, claim);
    }
  };
  graph_->recording->walk_outcome(nodes, [&](std::uint32_t index, NodeEnd end,
                                             const NodeOutcome* outcome) {
    const NodeView node = graph_->recording->node(index);
    if (end == NodeEnd::ok) {
      for (const Touch& touch : node.touches) {
        TaintMap& taint = touch.hold->device.taint;
        if (must_write(touch.access)) taint.clear(touch.range);
        if (may_write(touch.access)) taint.lift(touch.range, owner());
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

const std::shared_ptr<GraphState>& state_of(const Graph& graph, const char* verb) {
  const auto& state = GraphAccess::state(graph);
  if (!state) throw Failure(Errc::empty_graph, verb, "the graph handle is empty");
  return state;
}

/// The same for what only a device can do.
const std::shared_ptr<GraphState>& device_state_of(const Graph& graph, const char* verb) {
  const auto& state = state_of(graph, verb);
  if (!state->logical) {
    throw Failure(make_failure(Errc::not_initialized, verb, state->recording->name(),
                               "the graph was made without a device"));
  }
  return state;
}

Operation* make_replay(const std::shared_ptr<GraphState>& state) {
  return state->logical->core->make<ReplayOperation>(0, state);
}

}  // namespace

// ---- GraphState --------------------------------------------------------------------------------

std::shared_ptr<GraphState> GraphState::make(std::shared_ptr<LogicalStream> logical,
                                             std::shared_ptr<const Recording> recording) {
  const auto dispose = [](GraphState* graph) noexcept {
    const std::shared_ptr<DeviceCore> keep = graph->logical->core;
    keep->deliver(*graph);
  };
  std::unique_ptr<GraphState> graph(new GraphState);
  graph->logical = std::move(logical);
  graph->recording = std::move(recording);
  graph->run = [](ControlNode& node, void* actor) noexcept {
    auto* const self = static_cast<GraphState*>(&node);
    if (actor != nullptr) static_cast<Actor*>(actor)->release_graph(*self);
    delete self;
  };
  const Recording& made = *graph->recording;
  graph->touches.assign(made.inputs().begin(), made.inputs().end());
  graph->touches.insert(graph->touches.end(), made.must_write().begin(), made.must_write().end());
  graph->touches.insert(graph->touches.end(), made.may_write().begin(), made.may_write().end());
  graph->order.emplace(graph->touches, made.id());
  auto* const owned = graph.release();
  return std::shared_ptr<GraphState>(owned, dispose);
}

std::shared_ptr<GraphState> GraphState::make_on_paper(std::shared_ptr<const Recording> recording) {
  std::shared_ptr<GraphState> graph(new GraphState);
  graph->recording = std::move(recording);
  return graph;
}

void GraphState::note_failure(const FailurePtr& failure, bool while_running) noexcept {
  (while_running ? failed : refused).fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  last_failure_ = failure;
}

FailurePtr GraphState::last_failure() const {
  const std::lock_guard lock(mutex_);
  return last_failure_;
}

Operation* make_replay_here(DeviceCore& core, const ReplayRequest& request) {
  Operation* const operation = core.make_here<ReplayOperation>(request.graph->shared_from_this());
  operation->accepted = Completion(request.accepted);
  operation->finished = Completion(request.finished);
  return operation;
}

Operation* make_client_replay(const Client& client, const Graph& graph) {
  const auto& stream = ClientAccess::stream(client);
  if (!stream) throw Failure(Errc::empty_handle, "replay", "the client is empty");
  const auto& state = device_state_of(graph, "replay");
  if (state->logical->core != stream->core) {
    throw Failure(Errc::wrong_device, "replay", "the graph is of another device");
  }
  return stream->core->make<ClientReplay>(0, state, stream);
}

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

AsyncContext async_context(const Graph& graph, const char* verb) {
  return device_state_of(graph, verb)->logical->core->async_context();
}

void start_replay(const Graph& graph, Reply* reply) noexcept {
  post_accepted(reply, "replay", [&] { return make_replay(device_state_of(graph, "replay")); });
}

void start_run(const Graph& graph, Reply* reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_replay(device_state_of(graph, "run"));
  } catch (...) {
    return answer_exception(reply, "run");
  }
  operation->finished = Completion(reply);
  operation->logical->core->post_async(operation);
}

}  // namespace detail

// ---- Graph -------------------------------------------------------------------------------------

void Graph::replay() const {
  const auto& state = detail::device_state_of(*this, "replay");
  detail::refuse_library_threads("replay");
  detail::BlockingReply reply;
  state->logical->core->call({.graph = state.get(), .accepted = &reply, .finished = nullptr},
                             reply);
}

bool Graph::try_replay() const {
  return detail::try_post(detail::make_replay(detail::device_state_of(*this, "replay")));
}

void Graph::run() const {
  const auto& state = detail::device_state_of(*this, "run");
  detail::refuse_library_threads("run");
  detail::BlockingReply reply;
  state->logical->core->call({.graph = state.get(), .accepted = nullptr, .finished = &reply},
                             reply);
}

Future<void> Graph::async_replay() const {
  return detail::future_of<void>(
      *this, [this](Reply* reply) noexcept { detail::start_replay(*this, reply); });
}

Future<void> Graph::async_run() const {
  return detail::future_of<void>(
      *this, [this](Reply* reply) noexcept { detail::start_run(*this, reply); });
}

void Client::replay(const Graph& graph) const {
  detail::refuse_library_threads("replay");
  detail::Operation* const operation = detail::make_client_replay(*this, graph);
  detail::BlockingReply reply;
  operation->accepted = Completion(&reply);
  operation->logical->core->call(operation, reply);
}

std::string_view Graph::name() const noexcept {
  return state_ ? state_->recording->name() : std::string_view{};
}

std::uint32_t Graph::node_count() const noexcept {
  return state_ ? state_->recording->node_count() : 0;
}

std::size_t Graph::edge_count() const noexcept {
  return state_ ? state_->recording->edge_count() : 0;
}

bool Graph::has_device() const noexcept {
  return state_ && state_->logical;
}

std::uint64_t Graph::guarded_bytes() const noexcept {
  return has_device() ? state_->recording->guarded_bytes() : 0;
}

std::string Graph::to_dot() const {
  return detail::state_of(*this, "to_dot")->recording->to_dot();
}

GraphStatistics Graph::statistics() const noexcept {
  if (!state_) return {};
  // Relaxed: counters, no order.
  return {state_->replays.load(std::memory_order_relaxed),
          state_->refused.load(std::memory_order_relaxed),
          state_->failed.load(std::memory_order_relaxed)};
}

FailurePtr Graph::last_failure() const {
  return state_ ? state_->last_failure() : nullptr;
}

std::ostream& operator<<(std::ostream& out, const Graph& graph) {
  const auto& state = detail::GraphAccess::state(graph);
  if (!state) return out << "empty graph";
  return out << *state->recording;
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/replay_operation.hpp>
#include <reprise/runtime/reply_cell.hpp>
#include <reprise/runtime/verbs.hpp>

#include <ostream>
#include <utility>
#include <vector>

namespace reprise {

namespace detail {

const std::shared_ptr<GraphState>& state_of(const Graph& graph, const char* verb) {
  const auto& state = GraphAccess::state(graph);
  if (!state) throw Failure(Errc::empty_graph, verb, "the graph handle is empty");
  return state;
}

const std::shared_ptr<GraphState>& device_state_of(const Graph& graph, const char* verb) {
  const auto& state = state_of(graph, verb);
  if (!state->logical) {
    throw Failure(make_failure(Errc::not_initialized, verb, state->recording->name(),
                               "the graph was made without a device"));
  }
  return state;
}

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
  if (!made.slots().empty()) {
    graph->parts = made.slots().split(graph->touches);
    graph->rotation = std::make_unique<Rotation>(made.slots());
    graph->refresher = graph->logical->core->make_stream(graph->logical->priority);
  }
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
  note_failure(failure);
}

void GraphState::note_failure(const FailurePtr& failure) noexcept {
  const std::lock_guard lock(mutex_);
  last_failure_ = failure;
}

FailurePtr GraphState::last_failure() const {
  const std::lock_guard lock(mutex_);
  return last_failure_;
}

std::vector<std::byte> GraphState::arguments(std::uint32_t node) const {
  const std::lock_guard lock(mutex_);
  if (const auto at = updated_.find(node); at != updated_.end()) return at->second;
  const auto block = recording->node(node).arguments;
  return {block.begin(), block.end()};
}

void GraphState::note_arguments(Blocks& blocks) noexcept {
  const std::lock_guard lock(mutex_);
  while (!blocks.empty()) {
    auto added = updated_.insert(blocks.extract(blocks.begin()));
    if (!added.inserted) added.position->second.swap(added.node.mapped());
  }
}

Operation* make_client_replay(const Client& client, const Graph& graph) {
  const auto& stream = ClientAccess::stream(client);
  if (!stream) throw Failure(Errc::empty_handle, "replay", "the client is empty");
  return make_client_replay(stream, device_state_of(graph, "replay"));
}

AsyncContext async_context(const Graph& graph, const char* verb) {
  return device_state_of(graph, verb)->logical->core->async_context();
}

void start_replay(const Graph& graph, BindingView bindings, Reply* reply) noexcept {
  post_accepted(reply, "replay",
                [&] { return make_replay(device_state_of(graph, "replay"), bindings, "replay"); });
}

void start_run(const Graph& graph, BindingView bindings, Reply* reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_replay(device_state_of(graph, "run"), bindings, "run");
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
  if (detail::rotates(*state)) return replay(BindingView{});
  detail::refuse_library_threads("replay");
  detail::BlockingReply reply;
  state->logical->core->call({.graph = state.get(), .accepted = &reply, .finished = nullptr},
                             reply);
}

void Graph::replay(BindingView bindings) const {
  const auto& state = detail::device_state_of(*this, "replay");
  detail::refuse_library_threads("replay");
  detail::Operation* const operation = detail::make_replay(state, bindings, "replay");
  detail::BlockingReply reply;
  operation->accepted = Completion(&reply);
  state->logical->core->call(operation, reply);
}

bool Graph::try_replay() const {
  return try_replay({});
}

bool Graph::try_replay(BindingView bindings) const {
  return detail::try_post(
      detail::make_replay(detail::device_state_of(*this, "replay"), bindings, "replay"));
}

void Graph::run() const {
  const auto& state = detail::device_state_of(*this, "run");
  if (detail::rotates(*state)) return run(BindingView{});
  detail::refuse_library_threads("run");
  detail::BlockingReply reply;
  state->logical->core->call({.graph = state.get(), .accepted = nullptr, .finished = &reply},
                             reply);
}

void Graph::run(BindingView bindings) const {
  const auto& state = detail::device_state_of(*this, "run");
  detail::refuse_library_threads("run");
  detail::Operation* const operation = detail::make_replay(state, bindings, "run");
  detail::BlockingReply reply;
  operation->finished = Completion(&reply);
  state->logical->core->call(operation, reply);
}

Future<void> Graph::async_replay() const {
  return async_replay({});
}

Future<void> Graph::async_replay(BindingView bindings) const {
  return detail::future_of<void>(*this, [this, bindings](Reply* reply) noexcept {
    detail::start_replay(*this, bindings, reply);
  });
}

Future<void> Graph::async_run() const {
  return async_run({});
}

Future<void> Graph::async_run(BindingView bindings) const {
  return detail::future_of<void>(*this, [this, bindings](Reply* reply) noexcept {
    detail::start_run(*this, bindings, reply);
  });
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

std::vector<SlotInfo> Graph::slots() const {
  std::vector<SlotInfo> infos;
  if (!state_) return infos;
  for (const detail::RecordedSlot& slot : state_->recording->slots().slots()) {
    infos.push_back({slot.name, slot.range.size(), slot.is_input, may_write(slot.access),
                     1 + static_cast<std::uint32_t>(slot.copies.size())});
  }
  return infos;
}

std::string Graph::to_dot() const {
  return detail::state_of(*this, "to_dot")->recording->to_dot();
}

GraphStatistics Graph::statistics() const noexcept {
  if (!state_) return {};
  // Relaxed: counters, no order.
  return {state_->replays.load(std::memory_order_relaxed),
          state_->refused.load(std::memory_order_relaxed),
          state_->failed.load(std::memory_order_relaxed),
          state_->bound.load(std::memory_order_relaxed),
          state_->refreshes.load(std::memory_order_relaxed),
          state_->lease_held.load(std::memory_order_relaxed),
          state_->rotation ? state_->rotation->leases() : 0};
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

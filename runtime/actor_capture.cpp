// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>

#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/window.hpp>

#include <algorithm>
#include <new>

namespace reprise::detail {

// Captures: a stream's commands go into a window instead of the backend, and what closes well is
// lowered on the helper thread and becomes a graph.

Window* Actor::window_of(const Operation& operation) const noexcept {
  if (!operation.logical) return nullptr;
  const LogicalStream::Device& stream = operation.logical->device;
  return stream.window ? stream.window.get() : stream.forked_in;
}

bool Actor::is_recording(const Operation& operation) const noexcept {
  const Window* const window = window_of(operation);
  return window != nullptr && window->is_recording();
}

PageUpdate Actor::page_update(const Operation& operation) const noexcept {
  if (const Window* const window = window_of(operation)) return window->capture.page_update();
  return core_.captures().status().any_recording() ? PageUpdate::add_only : PageUpdate::allow;
}

/// The caller is told; nothing else is to know.
void Actor::decline(Operation& operation, const Error& error) noexcept {
  answer(operation, make_failure(error.code, operation.verb, {}, error.message));
}

void Actor::prepare_capture(Operation& operation, bool growth, std::string_view name) {
  if (is_forked(operation)) return;
  LogicalStream& logical = *operation.logical;
  if (logical.device.window != nullptr) {
    // The state machine knows the words.
    const auto refused = logical.device.window->capture.prepare(logical.id);
    return decline(operation, refused.error());
  }
  auto window = std::make_unique<Window>(core_.captures(), logical, name);
  if (auto prepared = window->capture.prepare(logical.id, growth); !prepared) {
    return decline(operation, prepared.error());
  }
  logical.device.window = std::move(window);
  done(operation);
}

void Actor::start_capture(Operation& operation) {
  if (is_forked(operation)) return;
  auto& window = operation.logical->device.window;
  if (window == nullptr) {
    return decline(operation, {Errc::capture_order, 0, "no capture was prepared on this stream"});
  }
  if (window->warm_up_failure) {
    const FailurePtr failure = make_failure(Errc::capture_doomed, operation.verb, {},
                                            "the warm-up failed", window->warm_up_failure);
    window.reset();
    return answer(operation, failure);
  }
  if (auto begun = window->capture.begin(); !begun) {
    return decline(operation, begun.error());
  }
  done(operation);
}

void Actor::stop_capture(Operation& operation, std::shared_ptr<GraphState>& graph, bool marks) {
  if (is_forked(operation)) return;
  LogicalStream& logical = *operation.logical;
  if (logical.device.window == nullptr) {
    return decline(operation, {Errc::capture_order, 0, "no capture is recording on this stream"});
  }
  Window& window = *logical.device.window;
  require_joined(window);
  auto end = window.capture.end(logical.id);
  if (!end) {
    // A warm-up that went wrong has no other way out.
    const Error error = end.error();
    logical.device.window.reset();
    return decline(operation, error);
  }
  if (FailurePtr doom = close_failure(*end, logical.id, window.capture.take_failure())) {
    close_window(logical, doom, marks);
    return answer(operation, doom);
  }
  auto sealed =
      Recording::seal(std::move(window.recorder), {window.name, logical.id, window.slots});
  if (!sealed) {
    const FailurePtr doom =
        make_failure(sealed.error().code, operation.verb, window.name, sealed.error().message);
    close_window(logical, doom, marks);
    return answer(operation, doom);
  }
  // The graph replays on a stream of its own; the client's goes back to ordinary work.
  graph = GraphState::make(core_.make_stream(logical.priority), std::move(*sealed));
  adopt(*graph->logical);
  guard(*graph);
  logical.device.window.reset();
  lower(operation, graph);
}

void Actor::name_slot(Operation& operation, SlotSpec&& slot) {
  Window* const window = window_of(operation);
  if (window == nullptr) {
    return decline(operation, {Errc::capture_order, 0, "no capture is open on this stream"});
  }
  const auto doom = [&](Errc code, const char* message) {
    const auto failure =
        make_failure(code, operation.verb, slot.name, message, slot.hold->device.failure);
    window->capture.fail(failure);
    if (!window->is_recording() && !window->warm_up_failure) window->warm_up_failure = failure;
    answer(operation, failure);
  };
  const auto is_bound = [](const HoldRef& hold) {
    return hold->device.state == Hold::Device::State::bound;
  };
  if (!is_bound(slot.hold) || !std::all_of(slot.copies.begin(), slot.copies.end(), is_bound)) {
    return doom(Errc::capture_doomed, "its memory was never there");
  }
  for (const SlotSpec& other : window->slots) {
    if (other.name == slot.name) return doom(Errc::invalid_argument, "the name is taken");
    if (other.hold == slot.hold && other.range.overlaps(slot.range) && !other.range.empty() &&
        !slot.range.empty()) {
      return doom(Errc::slot_overlap, "it shares bytes with another slot");
    }
  }
  window->slots.push_back(std::move(slot));
  done(operation);
}

void Actor::abort_capture(Operation& operation) {
  if (is_forked(operation)) return;
  if (operation.logical->device.window != nullptr) close_window(*operation.logical, nullptr, false);
  done(operation);
}

void Actor::abandon_capture(Operation& operation) {
  if (operation.logical->device.window != nullptr) {
    close_window(*operation.logical,
                 make_failure(Errc::capture_doomed, "capture",
                              operation.logical->device.window->name,
                              "the recording function threw"),
                 true);
  }
  done(operation);
}

namespace {

/// The marks of a window that did not seal, at their place among the commands.
class WindowMarks final : public Operation {
public:
  explicit WindowMarks(std::vector<Touch> set) noexcept
      : Operation("capture"), set_(std::move(set)) {
    touches = set_;
  }
  void accept(Actor& /*actor*/) override {}

private:
  std::vector<Touch> set_;
};

}  // namespace

/// Ends a window without a graph. With `claim`, what it would have written carries `failure`: its
/// launches never ran.
void Actor::close_window(LogicalStream& logical, const FailurePtr& failure, bool claim) noexcept {
  const std::unique_ptr<Window> window = std::move(logical.device.window);
  window->capture.abort();
  // A graph by hand that does not come about has promised nothing of any bytes.
  if (!claim || window->built) return;
  try {
    auto set = window->recorder.write_set();
    if (!set) throw std::bad_alloc();
    if (set->empty()) return;
    // Through the journal: commands before it may still fail, and what they undo must not undo it.
    auto& marks = *core_.make_here<WindowMarks>(std::move(*set));
    try {
      journal_.note_claimed(marks, make_claim(ClaimKind::not_started, failure));
    } catch (const std::bad_alloc&) {
      core_.discard(marks);
      throw;
    }
    keep_mark(marks);
  } catch (const std::bad_alloc&) {
    window->recorder.each_write(
        [&](const Touch& touch) { touch.hold->device.taint.claim_all(failure); });
  }
}

void Actor::close_stream(LogicalStream& logical) noexcept {
  if (logical.device.forked_in != nullptr) drop_forked(logical);
  if (logical.device.window == nullptr) return;
  REPRISE_MARK("window_dropped");
  const bool recording = logical.device.window->is_recording();
  close_window(logical,
               make_failure(Errc::capture_abandoned, "capture", logical.device.window->name,
                            "every client of the recording stream was dropped"),
               recording);
}

// ---- recording ---------------------------------------------------------------------------------

void Actor::place_next(Operation& operation, NodePlace& place) {
  HandBuilt& built = *window_of(operation)->built;
  // Who was told a place and left no node stands for what it follows.
  if (built.is_told) built.stands_for[built.next.node] = built.after;
  built.next = std::move(place);
  built.is_told = true;
  if (built.next.node >= built.stands_for.size()) built.stands_for.resize(built.next.node + 1);
  built.after.clear();
  for (const std::uint32_t on : built.next.after) {
    if (on >= built.stands_for.size())
      continue;  // Its place found no memory: the window is doomed.
    const auto& nodes = built.stands_for[on];
    built.after.insert(built.after.end(), nodes.begin(), nodes.end());
  }
  done(operation);
}

namespace {

void put_in_place(RecordedNode& node, const HandBuilt& built) noexcept {
  node.after = built.after;
  node.order = built.next.order;
  node.name = built.next.name;
  node.where = built.next.where;
}

void was_placed(HandBuilt& built, std::uint32_t number) {
  built.stands_for[built.next.node] = {number};
  built.is_told = false;
}

}  // namespace

void Actor::record(Operation& operation, Window& window) {
  const auto doom = [&](FailurePtr failure) {
    window.capture.fail(failure);
    answer(operation, failure);
  };
  if (const Hold* hold = failed_memory(operation)) {
    return doom(make_failure(hold->device.failure->code, operation.verb, operation.name(),
                             "its memory was never there", hold->device.failure));
  }
  if (auto valid = validate(operation.command, backend_.properties().limits); !valid) {
    return doom(
        make_failure(valid.error().code, operation.verb, operation.name(), valid.error().message));
  }
  for (const Touch& touch : operation.touches) {
    if (!reads(touch.access) || !window.fresh.contains(touch.hold.get())) continue;
    const auto written = window.recorder.written_in_window(*touch.hold, touch.range);
    if (!written) throw std::bad_alloc();
    if (!*written) {
      return doom(make_failure(Errc::unwritten, operation.verb, operation.name(),
                               "reads a buffer of the window that no node has written"));
    }
  }
  SmallVector<Touch, 4> touches;
  for (const Touch& touch : operation.touches) touches.push_back(touch);
  RecordedNode node;
  node.command = operation.command;
  node.touches = {touches.data(), touches.size()};
  node.name = operation.name().empty() ? std::string_view{operation.verb} : operation.name();
  node.where = operation.where;
  operation.describe(node, window.recorder);
  if (window.built) put_in_place(node, *window.built);
  const auto added = window.recorder.add(std::move(node));
  if (!added) {
    return doom(
        make_failure(added.error().code, operation.verb, operation.name(), added.error().message));
  }
  if (window.built && *added != Recorder::no_node) was_placed(*window.built, *added);
  for (const Touch& touch : operation.touches) {
    const HoldRange range{touch.hold, touch.range};
    window.capture.record({&range, 1});
  }
  answer(operation, nullptr);
}

// ---- graphs ------------------------------------------------------------------------------------

void Actor::guard(GraphState& graph) {
  std::vector<Guard> guards;
  for (const HoldRef& hold : graph.recording->holds()) {
    PoolBlock* const block = hold->device.block;
    if (block == nullptr) continue;
    auto guard = pool_.guard(block, {0, hold->size()});
    if (!guard) throw std::bad_alloc();
    guards.push_back(std::move(*guard));
  }
  // Plant 15 is caught by "random work on a seeded device gives what a sequential model gives".
  if (REPRISE_PLANT(15) && !guards.empty()) guards.pop_back();
  guards_.emplace(&graph, std::move(guards));
  for (const HoldRef& hold : graph.recording->holds()) ++hold->device.graphs;
  graph.next = graphs_;
  if (graphs_ != nullptr) graphs_->before = &graph;
  graphs_ = &graph;
}

void Actor::release_graph(GraphState& graph) noexcept {
  graph.order->forget(recent_);
  if (guards_.erase(&graph) != 0) {
    for (const HoldRef& hold : graph.recording->holds()) --hold->device.graphs;
  }
  if (graph.before != nullptr || graphs_ == &graph) {
    (graph.before ? graph.before->next : graphs_) = graph.next;
    if (graph.next != nullptr) graph.next->before = graph.before;
  }
  for (const Touch& touch : graph.touches) {
    touch.hold->device.taint.disown(touch.range, graph.recording->id());
  }
}

namespace {

/// Lowers one recording on the helper thread and comes back by the control lane.
struct LowerJob : Job, ControlNode {
  LowerJob(Operation& operation_, std::shared_ptr<GraphState> graph_) noexcept
      : operation(operation_), graph(std::move(graph_)) {
    Job::run = [](Job& job) {
      auto& self = static_cast<LowerJob&>(job);
      self.lower();
      (void)self.graph->logical->core->channel().post(self);
    };
    Job::destroy = [](Job& job) noexcept {
      auto& self = static_cast<LowerJob&>(job);
      self.failure = make_failure(Errc::operation_aborted, "capture", {}, "the device was closed");
      (void)self.graph->logical->core->channel().post(self);
    };
    ControlNode::run = [](ControlNode& node, void* actor) noexcept {
      const std::unique_ptr<LowerJob> self(static_cast<LowerJob*>(&node));
      if (actor != nullptr) {
        static_cast<Actor*>(actor)->lowered(self->operation, self->failure);
      } else {
        self->operation.accepted(DeviceCore::closed_failure("capture"));
      }
    };
  }

  void lower() noexcept {
    try {
      auto program = graph->logical->core->backend().lower(graph->recording->plan());
      if (program) {
        graph->program = std::move(*program);
      } else {
        failure = make_failure(program.error().code, "capture", graph->recording->name(),
                               program.error().message);
      }
    } catch (const std::bad_alloc&) {
      failure = make_failure(Errc::out_of_memory, "capture", graph->recording->name(),
                             "no host memory to lower the recording");
    }
  }

  Operation& operation;
  std::shared_ptr<GraphState> graph;
  FailurePtr failure;
};

}  // namespace

void Actor::lower(Operation& operation, const std::shared_ptr<GraphState>& graph) {
  auto* const job = new LowerJob(operation, graph);
  ++lowering_;
  core_.helper_loop().post(*job);
}

void Actor::lowered(Operation& operation, const FailurePtr& failure) noexcept {
  --lowering_;
  answer(operation, failure);
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/replay_operation.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>

#include <algorithm>
#include <new>
#include <string>
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

// ---- ClientReplay ------------------------------------------------------------------------------

namespace {

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

// ---- BoundReplay -------------------------------------------------------------------------------

BoundReplay::~BoundReplay() {
  std::destroy(memory_.touches.begin(), memory_.touches.end());
  std::destroy(memory_.places.begin(), memory_.places.end());
}

void BoundReplay::set_memory(const Memory& memory) noexcept {
  memory_ = memory;
  touches = memory_.touches;
}

void BoundReplay::place_touches() noexcept {
  const std::span<const RecordedSlot> slots = graph_->recording->slots().slots();
  for (std::size_t i = 0; i < memory_.touches.size(); ++i) {
    const SlotTouch& part = graph_->parts[i];
    if (part.slot == SlotTable::none) {
      memory_.touches[i] = part.touch;
    } else {
      const Place& place = memory_.places[part.slot];
      memory_.touches[i] = {place.hold, part.moved_to(place.range.begin, slots[part.slot]),
                            part.touch.access};
    }
  }
}

void BoundReplay::accept(Actor& actor) {
  if (graph_->recording->node_count() == 0) return actor.done(*this);
  for (std::size_t i = 0; i < memory_.places.size(); ++i) {
    const Place& place = memory_.places[i];
    memory_.addresses[i] = place.hold->device.address + place.range.begin;
  }
  command = command::RunGraph{graph_->program.get(), memory_.addresses.data()};
  actor.run(*this);
}

/// A slot that is not bound is what it is in a plain replay.
std::uint64_t BoundReplay::owner_of(std::uint32_t slot) const noexcept {
  if (slot == SlotTable::none || !memory_.places[slot].bound) return owner();
  return graph_->recording->slots().slots()[slot].owner;
}

std::uint64_t BoundReplay::owner_of(const Touch& touch) const noexcept {
  return owner_of(graph_->parts[static_cast<std::size_t>(&touch - touches.data())].slot);
}

ReplayOperation::Located BoundReplay::locate(const Touch& touch) const noexcept {
  const SlotTable& table = graph_->recording->slots();
  const std::uint32_t slot = table.slot_of(*touch.hold, touch.range);
  if (slot == SlotTable::none) return {*touch.hold, touch.range, owner()};
  const Place& place = memory_.places[slot];
  return {*place.hold, SlotTouch{touch, slot}.moved_to(place.range.begin, table.slots()[slot]),
          owner_of(slot)};
}

// ---- making them -------------------------------------------------------------------------------

namespace {

using Place = BoundReplay::Place;

std::string quoted(std::string_view name) {
  return "slot '" + std::string(name) + "'";
}

/// What can be told of one binding without the others.
void check_binding(const GraphState& graph, const Binding& binding, const RecordedSlot& slot,
                   const char* verb) {
  const HoldRef& hold = BufferAccess::hold(binding.buffer);
  const auto fail = [&](Errc code, const std::string& what) {
    throw Failure(code, verb, quoted(slot.name) + ' ' + what);
  };
  if (!hold) fail(Errc::empty_handle, "is bound to an empty buffer");
  if (hold->owner() != graph.logical->core.get()) {
    fail(Errc::wrong_device,
         "is bound to a buffer of another device than '" + graph.logical->core->name() + "'");
  }
  if (binding.buffer.size_bytes() != slot.range.size()) {
    fail(Errc::size_mismatch, "takes " + std::to_string(slot.range.size()) + " bytes, not " +
                                  std::to_string(binding.buffer.size_bytes()));
  }
  if (slot.element != nullptr && binding.element != nullptr && *slot.element != *binding.element) {
    fail(Errc::invalid_argument, "has elements of another type");
  }
  if (BufferAccess::range(binding.buffer).begin % slot.alignment != 0) {
    fail(Errc::misaligned, "needs an alignment of " + std::to_string(slot.alignment));
  }
  if (slot.is_opaque) {
    fail(Errc::unsupported, "is used by a node that cannot be told other addresses");
  }
}

/// What was disjoint when it was recorded stays so.
void check_disjoint(const SlotTable& table, std::span<const Place> places, const char* verb) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    if (!place.bound || place.range.empty()) continue;
    const auto fail = [&](const std::string& what) {
      throw Failure(Errc::slot_overlap, verb,
                    quoted(table.slots()[i].name) + " is bound to bytes of " + what);
    };
    if (table.overlaps_fixed(*place.hold, place.range)) fail("the graph itself");
    for (std::size_t other = 0; other < places.size(); ++other) {
      if (other == i || places[other].hold != place.hold || places[other].range.empty()) continue;
      if (places[other].range.overlaps(place.range)) fail(quoted(table.slots()[other].name));
    }
  }
}

/// Constructs what lies behind `operation`, with every slot as recorded.
void lay_out(BoundReplay& operation, const GraphState& graph) noexcept {
  const std::span<const RecordedSlot> slots = graph.recording->slots().slots();
  std::byte* at = DeviceCore::extra(operation);
  BoundReplay::Memory memory;
  memory.touches = {reinterpret_cast<Touch*>(at), graph.parts.size()};
  std::uninitialized_value_construct(memory.touches.begin(), memory.touches.end());
  at += memory.touches.size_bytes();
  memory.places = {reinterpret_cast<Place*>(at), slots.size()};
  std::uninitialized_value_construct(memory.places.begin(), memory.places.end());
  at += memory.places.size_bytes();
  memory.addresses = {reinterpret_cast<std::uint64_t*>(at), slots.size()};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    memory.places[i] = {slots[i].hold, slots[i].range, false};
  }
  operation.set_memory(memory);
}

}  // namespace

Operation* make_replay(const std::shared_ptr<GraphState>& graph) {
  return graph->logical->core->make<ReplayOperation>(0, graph);
}

Operation* make_replay(const std::shared_ptr<GraphState>& graph, BindingView bindings,
                       const char* verb) {
  if (bindings.empty()) return make_replay(graph);
  const SlotTable& table = graph->recording->slots();
  const std::size_t slots = table.slots().size();
  std::vector<Place> places;
  for (const RecordedSlot& slot : table.slots()) places.push_back({slot.hold, slot.range, false});
  for (const Binding& binding : bindings) {
    const std::uint32_t slot = table.find(binding.slot);
    if (slot == SlotTable::none) {
      throw Failure(Errc::no_such_slot, verb, "the graph has no " + quoted(binding.slot));
    }
    if (places[slot].bound) {
      throw Failure(Errc::invalid_argument, verb, quoted(binding.slot) + " is bound twice");
    }
    check_binding(*graph, binding, table.slots()[slot], verb);
    places[slot] = {BufferAccess::hold(binding.buffer), BufferAccess::range(binding.buffer), true};
  }
  check_disjoint(table, places, verb);
  // Bound to what was recorded is not bound.
  for (std::size_t i = 0; i < slots; ++i) {
    Place& place = places[i];
    const RecordedSlot& slot = table.slots()[i];
    place.bound = place.hold != slot.hold || place.range != slot.range;
  }
  const std::size_t extra =
      graph->parts.size() * sizeof(Touch) + slots * (sizeof(Place) + sizeof(std::uint64_t));
  auto* const operation = graph->logical->core->make<BoundReplay>(extra, graph);
  lay_out(*operation, *graph);
  std::move(places.begin(), places.end(), operation->places().begin());
  operation->place_touches();
  return operation;
}

Operation* make_client_replay(const std::shared_ptr<LogicalStream>& stream,
                              const std::shared_ptr<GraphState>& graph) {
  if (graph->logical->core != stream->core) {
    throw Failure(Errc::wrong_device, "replay", "the graph is of another device");
  }
  return stream->core->make<ClientReplay>(0, graph, stream);
}

Operation* make_replay_here(DeviceCore& core, const ReplayRequest& request) {
  Operation* const operation = core.make_here<ReplayOperation>(request.graph->shared_from_this());
  operation->accepted = Completion(request.accepted);
  operation->finished = Completion(request.finished);
  return operation;
}

}  // namespace reprise::detail

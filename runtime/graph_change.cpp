// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_change.hpp>

#include <reprise/capture/recording.hpp>
#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/reply_cell.hpp>
#include <reprise/runtime/verbs.hpp>
#include <reprise/runtime/window.hpp>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <utility>

// An update is a command in the stream of the graph's replays that writes argument blocks: those
// before it have read the old ones, those behind it read the new ones. So it may change only what
// nothing has been derived from, the scalars. Everything else takes a graph of its own.

namespace reprise {

using detail::GraphState;

namespace {

struct Answer {
  NodeChange change = NodeChange::same;
  std::string why;
};

bool same(const Touch& a, const Touch& b) noexcept {
  return a.hold == b.hold && a.range == b.range && a.access == b.access;
}

bool same_touches(const NodeView& a, const NodeView& b) noexcept {
  return std::equal(a.touches.begin(), a.touches.end(), b.touches.begin(), b.touches.end(), same);
}

bool same_grid(const GridSize& a, const GridSize& b) noexcept {
  return a.blocks == b.blocks && a.threads == b.threads && a.shared_bytes == b.shared_bytes;
}

std::string argument(std::size_t number) {
  return "argument " + std::to_string(number);
}

/// Two argument blocks of `kernel`.
Answer compare_arguments(const KernelDefinition& kernel, const std::byte* a, const std::byte* b) {
  Answer answer;
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    const KernelParameter& parameter = kernel.parameters[i];
    const std::size_t bytes =
        parameter.is_buffer ? sizeof(detail::BufferSlot) : parameter.element_size;
    if (std::memcmp(a + parameter.offset, b + parameter.offset, bytes) == 0) continue;
    if (parameter.is_buffer) {
      return {NodeChange::needs_instantiation, argument(i) + " names other bytes"};
    }
    if (answer.change == NodeChange::same) answer = {NodeChange::updated, argument(i) + " differs"};
  }
  return answer;
}

Answer compare_launches(const GraphState& a, const GraphState& b, const NodeView& x,
                        const NodeView& y) {
  const auto& now = std::get<command::Launch>(x.command);
  const auto& next = std::get<command::Launch>(y.command);
  if (now.kernel != next.kernel) {
    return {NodeChange::needs_instantiation,
            "kernel '" + next.kernel->name + "' instead of '" + now.kernel->name + '\''};
  }
  if (!same_grid(now.grid, next.grid)) return {NodeChange::needs_instantiation, "another grid"};
  if (now.count != next.count) return {NodeChange::needs_instantiation, "another count"};
  const Answer answer =
      compare_arguments(*now.kernel, a.arguments(x.index).data(), b.arguments(y.index).data());
  if (answer.change != NodeChange::needs_instantiation && !same_touches(x, y)) {
    return {NodeChange::needs_instantiation, "names other bytes"};
  }
  return answer;
}

/// Whether two commands of one kind, no launches, that touch the same bytes are the same.
bool same_command(const Command& a, const Command& b) noexcept {
  if (const auto* fill = std::get_if<command::Fill>(&a)) {
    const auto& other = std::get<command::Fill>(b);
    return fill->pattern == other.pattern && fill->pattern_bytes == other.pattern_bytes;
  }
  if (const auto* write = std::get_if<command::Write>(&a)) {
    return std::memcmp(write->from, std::get<command::Write>(b).from, write->bytes) == 0;
  }
  if (const auto* call = std::get_if<command::HostCall>(&a)) {
    const auto& other = std::get<command::HostCall>(b);
    return call->call == other.call && call->context == other.context;
  }
  if (const auto* graph = std::get_if<command::RunGraph>(&a)) {
    const auto& other = std::get<command::RunGraph>(b);
    return graph->program == other.program && graph->repeat == other.repeat &&
           graph->condition == other.condition && graph->at_most == other.at_most;
  }
  return true;
}

Answer compare(const GraphState& a, const GraphState& b, std::uint32_t node) {
  if (node >= a.recording->node_count()) return {NodeChange::refused, "there is no such node"};
  if (node >= b.recording->node_count()) return {NodeChange::refused, "the other has no such node"};
  const NodeView x = a.recording->node(node);
  const NodeView y = b.recording->node(node);
  if (x.command.index() != y.command.index()) {
    return {NodeChange::refused,
            "a " + std::string(y.verb) + " instead of a " + std::string(x.verb)};
  }
  if (!std::equal(x.after.begin(), x.after.end(), y.after.begin(), y.after.end())) {
    return {NodeChange::refused, "it follows other nodes"};
  }
  if (std::holds_alternative<command::Launch>(x.command)) return compare_launches(a, b, x, y);
  if (!same_touches(x, y)) return {NodeChange::needs_instantiation, "names other bytes"};
  if (same_command(x.command, y.command)) return {};
  return {NodeChange::needs_instantiation, "another " + std::string(x.verb)};
}

GraphDiff compare(const GraphState& a, const GraphState& b) {
  GraphDiff diff;
  const std::uint32_t count = std::max(a.recording->node_count(), b.recording->node_count());
  for (std::uint32_t i = 0; i < count; ++i) {
    Answer answer = compare(a, b, i);
    diff.nodes.push_back({i, answer.change, std::move(answer.why)});
  }
  return diff;
}

std::string label_of(const Recording& recording, std::uint32_t node) {
  return "node " + std::to_string(node) + " '" + std::string(recording.node(node).name) + '\'';
}

// ---- update ------------------------------------------------------------------------------------

/// Writes argument blocks of a graph at its place between the replays.
class UpdateOperation final : public detail::Operation {
public:
  UpdateOperation(std::shared_ptr<GraphState> graph, GraphState::Blocks blocks)
      : Operation("update"), graph_(std::move(graph)), blocks_(blocks), noted_(std::move(blocks)) {
    logical = graph_->logical;
  }

  std::string_view name() const noexcept override { return graph_->recording->name(); }

  void accept(detail::Actor& actor) override {
    if (graph_->is_child) {
      return actor.answer(*this, make_failure(Errc::unsupported, verb, name(),
                                              "the graph was made a node of another one"));
    }
    graph_->was_updated.store(true, std::memory_order_relaxed);
    command = command::HostCall{&UpdateOperation::apply, this};
    actor.run(*this);
  }
  void was_accepted(detail::Actor& /*actor*/) noexcept override { graph_->note_arguments(noted_); }

private:
  static void apply(void* context) {
    const auto& self = *static_cast<UpdateOperation*>(context);
    for (const auto& [node, block] : self.blocks_) {
      const auto& launch = std::get<command::Launch>(self.graph_->recording->node(node).command);
      std::memcpy(const_cast<std::byte*>(launch.arguments), block.data(), block.size());
      self.graph_->program->arguments_changed(node);
    }
  }

  std::shared_ptr<GraphState> graph_;
  const GraphState::Blocks blocks_;
  GraphState::Blocks noted_;
};

void submit_update(const std::shared_ptr<GraphState>& graph, GraphState::Blocks blocks) {
  detail::BlockingReply reply;
  auto* const operation = graph->logical->core->make<UpdateOperation>(0, graph, std::move(blocks));
  operation->accepted = Completion(&reply);
  graph->logical->core->call(operation, reply);
}

// ---- clone -------------------------------------------------------------------------------------

/// A node of a recording, recorded again with some of its bytes elsewhere.
class ClonedNode final : public detail::Operation {
public:
  ClonedNode(std::shared_ptr<detail::LogicalStream> stream,
             std::shared_ptr<const Recording> recording, std::uint32_t index,
             std::vector<Touch> moved, std::vector<std::byte> block)
      : Operation(verb_of(recording->node(index).command)), recording_(std::move(recording)),
        index_(index), moved_(std::move(moved)), block_(std::move(block)) {
    logical = std::move(stream);
    touches = moved_;
  }

  std::string_view name() const noexcept override { return recording_->node(index_).name; }

  void accept(detail::Actor& actor) override {
    command = recording_->node(index_).command;
    if (auto* const launch = std::get_if<command::Launch>(&command)) {
      move_arguments(*launch);
    } else if (auto* const copy = std::get_if<command::Copy>(&command)) {
      copy->to = moved(copy->to);
      copy->from = moved(copy->from);
    } else if (auto* const fill = std::get_if<command::Fill>(&command)) {
      fill->to = moved(fill->to);
    } else if (auto* const write = std::get_if<command::Write>(&command)) {
      write->to = moved(write->to);
    }
    actor.run(*this);
  }

  void describe(RecordedNode& node, Recorder& recorder) const override {
    if (auto* const launch = std::get_if<command::Launch>(&node.command)) {
      launch->arguments = recorder.copy_arguments(block_);
      if (launch->arguments == nullptr) throw std::bad_alloc();
      node.kernel = KernelRef{launch->kernel};
    } else if (!std::holds_alternative<command::Copy>(node.command) &&
               !std::holds_alternative<command::Fill>(node.command)) {
      node.retained = recording_;  // It knows the host memory, functions and graphs.
    }
  }

private:
  void move_arguments(command::Launch& launch) noexcept {
    for (const KernelParameter& parameter : launch.kernel->parameters) {
      if (!parameter.is_buffer) continue;
      detail::BufferSlot slot;
      std::memcpy(&slot, block_.data() + parameter.offset, sizeof slot);
      slot.data = reinterpret_cast<void*>(moved(reinterpret_cast<std::uintptr_t>(slot.data)));
      std::memcpy(block_.data() + parameter.offset, &slot, sizeof slot);
    }
    launch.arguments = block_.data();
    if (launch.count != 0) launch.count = moved(launch.count);
  }

  std::uint64_t moved(std::uint64_t address) const noexcept {
    const auto recorded = recording_->node(index_).touches;
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      const std::uint64_t base = recorded[i].hold->device.address + recorded[i].range.begin;
      if (address < base || address - base >= recorded[i].range.size()) continue;
      return moved_[i].hold->device.address + moved_[i].range.begin + (address - base);
    }
    return address;  // Of no bytes.
  }

  std::shared_ptr<const Recording> recording_;
  std::uint32_t index_;
  std::vector<Touch> moved_;  // Those of the recorded node, where they are now.
  std::vector<std::byte> block_;
};

/// The changes of one clone, checked.
class Changes {
public:
  Changes(const GraphState& graph, std::span<const BufferChange> changes) : graph_(graph) {
    for (const BufferChange& change : changes) add(change);
  }

  /// Where the bytes of a node are in the clone.
  std::vector<Touch> move(std::uint32_t node) const {
    const NodeView view = graph_.recording->node(node);
    std::vector<Touch> touches(view.touches.begin(), view.touches.end());
    bool any = false;
    for (Touch& touch : touches) {
      if (const Moved* const moved = find(touch, node)) {
        touch.range = moved->place(touch.range);
        touch.hold = moved->to_hold;
        any = true;
      }
    }
    if (any) check(view, touches);
    return touches;
  }
  /// Where a buffer of the graph is in the clone.
  Buffer move(const HoldRef& hold, ByteRange range) const {
    for (const Moved& moved : moved_) {
      if (moved.hold != hold || !moved.range.contains(range)) continue;
      const ByteRange at = moved.place(range);
      return detail::BufferAccess::make(moved.to_hold, at.begin, at.size());
    }
    return detail::BufferAccess::make(hold, range.begin, range.size());
  }

private:
  struct Moved {
    HoldRef hold;
    ByteRange range;
    HoldRef to_hold;
    std::uint64_t to = 0;

    ByteRange place(ByteRange at) const noexcept {
      const std::uint64_t begin = to + (at.begin - range.begin);
      return {begin, begin + at.size()};
    }
  };

  [[noreturn]] void fail(Errc code, std::string_view message) const {
    throw Failure(make_failure(code, "clone", graph_.recording->name(), message));
  }

  void add(const BufferChange& change) {
    if (!change.from || !change.to) fail(Errc::empty_handle, "a buffer is empty");
    for (const Buffer* buffer : {&change.from, &change.to}) {
      if (detail::BufferAccess::hold(*buffer)->owner() != graph_.logical->core.get()) {
        fail(Errc::wrong_device,
             "a buffer of another device than '" + graph_.logical->core->name() + '\'');
      }
    }
    if (change.from.size_bytes() != change.to.size_bytes()) {
      fail(Errc::size_mismatch, std::to_string(change.to.size_bytes()) + " bytes for " +
                                    std::to_string(change.from.size_bytes()));
    }
    const HoldRef& hold = detail::BufferAccess::hold(change.from);
    const ByteRange range = detail::BufferAccess::range(change.from);
    for (const Moved& other : moved_) {
      if (other.hold == hold && other.range.overlaps(range)) {
        fail(Errc::invalid_argument, "two buffers that are replaced share bytes");
      }
    }
    moved_.push_back({hold, range, detail::BufferAccess::hold(change.to),
                      detail::BufferAccess::range(change.to).begin});
  }

  const Moved* find(const Touch& touch, std::uint32_t node) const {
    for (const Moved& moved : moved_) {
      if (moved.hold != touch.hold || !moved.range.overlaps(touch.range)) continue;
      if (!moved.range.contains(touch.range)) {
        fail(Errc::invalid_argument, label_of(*graph_.recording, node) +
                                         " names bytes inside and outside of a replaced buffer");
      }
      return &moved;
    }
    return nullptr;
  }

  void check(const NodeView& view, std::span<const Touch> touches) const {
    const std::string label = label_of(*graph_.recording, view.index);
    const auto* const launch = std::get_if<command::Launch>(&view.command);
    if (std::holds_alternative<command::HostCall>(view.command) ||
        std::holds_alternative<command::RunGraph>(view.command)) {
      fail(Errc::unsupported, label + " cannot be told other bytes");
    }
    for (std::size_t i = 0; i < touches.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const bool met = view.touches[i].hold == view.touches[j].hold &&
                         view.touches[i].range.overlaps(view.touches[j].range);
        const bool meet =
            touches[i].hold == touches[j].hold && touches[i].range.overlaps(touches[j].range);
        if (meet && !met && (may_write(touches[i].access) || may_write(touches[j].access))) {
          fail(Errc::invalid_argument, label + " would name bytes twice and write them");
        }
      }
    }
    if (launch != nullptr) check_alignment(view, touches, *launch->kernel);
  }

  /// Allocations are aligned to more than any element, so offsets tell.
  void check_alignment(const NodeView& view, std::span<const Touch> touches,
                       const KernelDefinition& kernel) const {
    const std::vector<std::byte> block = graph_.arguments(view.index);
    for (const KernelParameter& parameter : kernel.parameters) {
      if (!parameter.is_buffer) continue;
      std::uint64_t address = 0;
      std::memcpy(&address, block.data() + parameter.offset, sizeof address);
      for (std::size_t i = 0; i < touches.size(); ++i) {
        const Touch& before = view.touches[i];
        const std::uint64_t base = before.hold->device.address + before.range.begin;
        if (address - base >= before.range.size()) continue;
        if (touches[i].range.begin % parameter.element_alignment == 0) break;
        fail(Errc::misaligned, label_of(*graph_.recording, view.index) + " at byte " +
                                   std::to_string(touches[i].range.begin));
      }
    }
  }

  const GraphState& graph_;
  std::vector<Moved> moved_;
};

void record_clone(const Client& inside, const GraphState& graph, const Changes& changes) {
  const auto& stream = detail::ClientAccess::stream(inside);
  const Recording& made = *graph.recording;
  for (const detail::RecordedSlot& slot : made.slots().slots()) {
    Binding named(slot.name, changes.move(slot.hold, slot.range));
    named.element = slot.element;
    named.alignment = slot.alignment;
    detail::post_slot(inside, named,
                      {.copies = static_cast<std::uint32_t>(slot.copies.size() + 1)});
  }
  for (std::uint32_t i = 0; i < made.node_count(); ++i) {
    const NodeView view = made.node(i);
    detail::place_next(inside, {i, NodeOrder::bytes,
                                std::vector<std::uint32_t>(view.after.begin(), view.after.end()),
                                std::string(view.name), view.where});
    detail::post(stream->core->make<ClonedNode>(0, stream, graph.recording, i, changes.move(i),
                                                graph.arguments(i)));
  }
}

}  // namespace

// ---- what is public ----------------------------------------------------------------------------

std::string_view to_string(NodeChange change) noexcept {
  switch (change) {
    case NodeChange::same: return "same";
    case NodeChange::updated: return "updated";
    case NodeChange::needs_instantiation: return "needs_instantiation";
    case NodeChange::refused: return "refused";
  }
  return "change";
}

bool GraphDiff::can_update() const noexcept {
  return std::all_of(nodes.begin(), nodes.end(), [](const NodeDiff& node) {
    return node.change == NodeChange::same || node.change == NodeChange::updated;
  });
}

bool GraphDiff::is_same() const noexcept {
  return std::all_of(nodes.begin(), nodes.end(),
                     [](const NodeDiff& node) { return node.change == NodeChange::same; });
}

std::ostream& operator<<(std::ostream& out, const GraphDiff& diff) {
  for (const NodeDiff& node : diff.nodes) {
    if (node.change == NodeChange::same) continue;
    out << "node " << node.node << ' ' << to_string(node.change) << ": " << node.why << '\n';
  }
  return out;
}

void Graph::update_node(std::uint32_t node, const KernelRef& kernel,
                        const detail::ArgumentView& arguments) const {
  const auto& state = detail::device_state_of(*this, "update");
  detail::refuse_library_threads("update");
  const Recording& made = *state->recording;
  if (node >= made.node_count()) {
    throw Failure(Errc::out_of_range, "update",
                  "no node " + std::to_string(node) + " among " +
                      std::to_string(made.node_count()));
  }
  const auto fail = [&](Errc code, const std::string& message) {
    throw Failure(make_failure(code, "update", label_of(made, node), message));
  };
  const NodeView view = made.node(node);
  const auto* const launch = std::get_if<command::Launch>(&view.command);
  if (launch == nullptr || launch->kernel != kernel.get()) {
    fail(Errc::invalid_argument, "it is no launch of '" + kernel->name + '\'');
  }
  std::vector<std::byte> block(arguments.block.begin(), arguments.block.end());
  const std::vector<std::byte> old = state->arguments(node);
  for (const detail::BoundBuffer& bound : arguments.buffers) {
    const HoldRef& hold = detail::BufferAccess::hold(*bound.buffer);
    if (!hold) fail(Errc::empty_handle, "a buffer is empty");
    const ByteRange range = detail::BufferAccess::range(*bound.buffer);
    const bool known = std::any_of(view.touches.begin(), view.touches.end(), [&](const Touch& at) {
      return at.hold == hold && at.range == range;
    });
    // Where memory lies that the graph does not hold is not for this thread to know.
    if (!known && !range.empty()) fail(Errc::unsupported, "it names other bytes");
    const std::uint64_t address = known ? hold->device.address + range.begin : 0;
    if (known)
      std::memcpy(block.data() + bound.offset, &address, sizeof address);
    else
      std::memcpy(block.data() + bound.offset, old.data() + bound.offset, sizeof address);
  }
  const Answer answer = compare_arguments(*kernel, old.data(), block.data());
  if (answer.change == NodeChange::needs_instantiation) fail(Errc::unsupported, answer.why);
  GraphState::Blocks blocks;
  blocks.emplace(node, std::move(block));
  submit_update(state, std::move(blocks));
}

GraphDiff Graph::diff(const Graph& other) const {
  return compare(*detail::state_of(*this, "diff"), *detail::state_of(other, "diff"));
}

GraphDiff Graph::update(const Graph& other) const {
  const auto& state = detail::device_state_of(*this, "update");
  const auto& next = detail::state_of(other, "update");
  detail::refuse_library_threads("update");
  GraphDiff diff = compare(*state, *next);
  if (!diff.can_update()) return diff;
  GraphState::Blocks blocks;
  for (const NodeDiff& node : diff.nodes) {
    if (node.change == NodeChange::updated) blocks.emplace(node.node, next->arguments(node.node));
  }
  if (!blocks.empty()) submit_update(state, std::move(blocks));
  return diff;
}

Graph Graph::clone(std::span<const BufferChange> changes) const {
  const auto& state = detail::device_state_of(*this, "clone");
  const Changes checked(*state, changes);
  // Checked before anything is made.
  for (std::uint32_t i = 0; i < state->recording->node_count(); ++i) (void)checked.move(i);
  const Client client =
      detail::ClientAccess::make(state->logical->core->make_stream(state->logical->priority));
  const auto record = [&](Client& inside) { record_clone(inside, *state, checked); };
  return detail::build(client, detail::record_function(record), name());
}

}  // namespace reprise

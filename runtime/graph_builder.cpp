// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_builder.hpp>

#include <reprise/memory/check.hpp>
#include <reprise/capture/recording.hpp>
#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/verbs.hpp>
#include <reprise/runtime/window.hpp>

#include <atomic>
#include <utility>

// A graph on a device is made by recording: the nodes are submitted, in their order, to a window
// that was opened for them, each behind a word on its place. So captured and built graphs come out
// of the same code. Whatever the calling thread can check is checked before the window opens.

namespace reprise {

using detail::BufferAccess;

namespace {

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  // Relaxed: only the number matters, nothing is published with it.
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

[[noreturn]] void fail(Errc code, const char* verb, std::string_view node,
                       std::string_view message) {
  throw Failure(make_failure(code, verb, node, message));
}

std::string label_of(const GraphSpec& spec, std::uint32_t node) {
  return "node " + std::to_string(node) + " '" + std::string(spec.name_of(node)) + '\'';
}

NodeOrder order_of(const SpecNode& node, SpecEdges edges) noexcept {
  if (edges == SpecEdges::given || node.kind == SpecKind::empty) return NodeOrder::bytes;
  return node.is_barrier ? NodeOrder::barrier : NodeOrder::automatic;
}

Buffer part_of(const Buffer& whole, ByteRange range) {
  return whole.slice_bytes(range.begin, range.size());
}

}  // namespace

GraphBuilder::GraphBuilder(const GraphBuilderOptions& options)
    : id_(next_id()), name_(options.name), spec_(options.edges) {}

GraphBuilder::GraphBuilder(GraphSpec spec, std::string_view name)
    : id_(next_id()), name_(name), spec_(std::move(spec)), own_(spec_.node_count()),
      holds_(spec_.buffer_count()) {
  for (std::uint32_t i = 0; i < spec_.node_count(); ++i) {
    const SpecKind kind = spec_.node(i).kind;
    if (kind != SpecKind::host && kind != SpecKind::child) continue;
    throw Failure(make_failure(Errc::unsupported, "GraphBuilder", spec_.name_of(i),
                               "node " + std::to_string(i) + " of a spec is a " +
                                   std::string(to_string(kind)) + " node"));
  }
}

std::uint32_t GraphBuilder::find_placeholder(std::string_view name,
                                             std::uint32_t element_bytes) const {
  std::uint32_t found = spec_.buffer_count();
  for (std::uint32_t i = 0; i < spec_.buffer_count(); ++i) {
    if (holds_[i] || spec_.buffer(i).name != name) continue;
    if (found != spec_.buffer_count()) {
      throw Failure(Errc::invalid_argument, "find",
                    "two placeholders are named '" + std::string(name) + "'");
    }
    found = i;
  }
  if (found == spec_.buffer_count()) {
    throw Failure(Errc::invalid_argument, "find",
                  "no placeholder is named '" + std::string(name) + "'");
  }
  if (const std::uint32_t own = spec_.buffer(found).element_bytes; own != element_bytes) {
    throw Failure(Errc::size_mismatch, "find",
                  "elements of '" + std::string(name) + "' have " + std::to_string(own) +
                      " bytes, not " + std::to_string(element_bytes));
  }
  return found;
}

// ---- adding ------------------------------------------------------------------------------------

std::uint32_t GraphBuilder::add_placeholder(std::string_view name, std::uint64_t bytes,
                                            std::uint32_t element_bytes) {
  holds_.reserve(holds_.size() + 1);
  const std::uint32_t index = spec_.add_buffer({std::string(name), bytes, element_bytes});
  holds_.emplace_back();
  return index;
}

std::uint32_t GraphBuilder::buffer_of(const HoldRef& hold) {
  const auto [at, fresh] = known_.try_emplace(hold.get(), spec_.buffer_count());
  if (fresh) {
    holds_.reserve(holds_.size() + 1);
    spec_.add_buffer({"buffer " + std::to_string(at->second), hold->size(), 1});
    holds_.push_back(hold);
  }
  return at->second;
}

SpecUse GraphBuilder::use_of(const char* verb, const GraphOperand& operand, Access access) {
  if (operand.builder_ == 0) {
    const HoldRef& hold = BufferAccess::hold(operand.buffer_);
    if (!hold) fail(Errc::empty_handle, verb, {}, "a buffer is empty");
    return {buffer_of(hold), BufferAccess::range(operand.buffer_), access};
  }
  if (operand.builder_ != id_) {
    fail(Errc::invalid_argument, verb, {}, "a placeholder of another builder");
  }
  return {operand.index_, operand.range_, access};
}

GraphNode GraphBuilder::add(SpecNode node, Own own) {
  own_.reserve(own_.size() + 1);
  const GraphNode added{spec_.add_node(std::move(node))};
  own_.push_back(std::move(own));
  return added;
}

GraphNode GraphBuilder::add_kernel(const KernelRef& kernel, const Grid& grid,
                                   std::vector<std::byte> block,
                                   std::span<const GraphOperand> operands, bool has_count) {
  SpecNode node;
  node.kind = SpecKind::kernel;
  std::size_t next = 0;
  for (const KernelParameter& parameter : kernel->parameters) {
    if (!parameter.is_buffer) continue;
    const Access access = has_count ? at_most(parameter.access) : parameter.access;
    node.uses.push_back(use_of("add_kernel", operands[next++], access));
  }
  if (has_count) node.uses.push_back(use_of("add_kernel", operands[next], Access::reads));
  node.has_count = has_count;
  node.kernel = kernel;
  node.grid = grid;
  node.where = grid.where;
  node.arguments = std::move(block);
  return add(std::move(node));
}

GraphNode GraphBuilder::add_copy(const GraphOperand& to, const GraphOperand& from,
                                 SourceLocation where) {
  SpecNode node;
  node.kind = SpecKind::copy;
  node.uses = {use_of("add_copy", to, Access::must_write), use_of("add_copy", from, Access::reads)};
  node.where = where;
  return add(std::move(node));
}

GraphNode GraphBuilder::add_fill(const GraphOperand& operand, std::uint64_t pattern,
                                 std::uint32_t pattern_bytes, SourceLocation where) {
  SpecNode node;
  node.kind = SpecKind::fill;
  node.uses = {use_of("add_fill", operand, Access::must_write)};
  node.pattern = pattern;
  node.pattern_bytes = pattern_bytes;
  node.where = where;
  return add(std::move(node));
}

GraphNode GraphBuilder::add_host(const GraphSets& sets, std::function<void()> function,
                                 SourceLocation where) {
  SpecNode node;
  node.kind = SpecKind::host;
  const auto use = [&](const std::vector<GraphOperand>& operands, Access access) {
    for (const GraphOperand& operand : operands) {
      node.uses.push_back(use_of("add_host", operand, access));
    }
  };
  use(sets.reads, Access::reads);
  use(sets.may_write, Access::may_write);
  use(sets.must_write, Access::must_write);
  Own own;
  if (function) {
    own.function = std::make_shared<std::function<void()>>(std::move(function));
    node.call = [](void* context) { (*static_cast<std::function<void()>*>(context))(); };
    node.callee = own.function;
  }
  node.where = where;
  return add(std::move(node), std::move(own));
}

GraphNode GraphBuilder::add_empty(SourceLocation where) {
  SpecNode node;
  node.where = where;
  return add(std::move(node));
}

/// What the graph touches; with a condition it may do nothing, so nothing is certainly written.
void GraphBuilder::use_child(SpecNode& node, const Graph& graph) {
  const auto& state = detail::GraphAccess::state(graph);
  if (!state) return;
  if (detail::rotates(*state)) {
    fail(Errc::unsupported, "add_child", graph.name(),
         "a graph within a graph has fixed addresses, and slots of this rotate");
  }
  const Recording& made = *state->recording;
  node.name = graph.name();
  node.callee = state;
  node.is_barrier = detail::calls_host(made);
  const auto use = [&](std::span<const Touch> set) {
    for (const Touch& touch : set) {
      node.uses.push_back({buffer_of(touch.hold), touch.range, touch.access});
    }
  };
  use(made.inputs());
  if (node.repeat == GraphRepeat::once) use(made.must_write());
  use(made.may_write());
}

GraphNode GraphBuilder::add_child(const Graph& graph, SourceLocation where) {
  SpecNode node;
  node.kind = SpecKind::child;
  node.where = where;
  use_child(node, graph);
  return add(std::move(node), {nullptr, graph});
}

GraphNode GraphBuilder::add_conditional(const GraphOperand& condition, const Graph& body,
                                        GraphRepeat repeat, std::uint32_t at_most,
                                        SourceLocation where) {
  SpecNode node;
  node.kind = SpecKind::child;
  node.repeat = repeat;
  node.at_most = at_most;
  node.where = where;
  node.uses = {
      use_of(repeat == GraphRepeat::if_true ? "add_if" : "add_while", condition, Access::reads)};
  use_child(node, body);
  return add(std::move(node), {nullptr, body});
}

void GraphBuilder::set_name(GraphNode node, std::string_view name) {
  spec_.set_name(node.index, name);
}

// ---- without a device --------------------------------------------------------------------------

Graph GraphBuilder::instantiate() const {
  return detail::GraphAccess::make(detail::GraphState::make_on_paper(spec_.seal(name_)));
}

// ---- on a device -------------------------------------------------------------------------------

/// The whole buffer behind each number.
std::vector<Buffer> GraphBuilder::resolve(const Client& client,
                                          std::span<const PlaceholderBinding> bindings) const {
  const auto* const core = detail::ClientAccess::stream(client)->core.get();
  const auto name = [&](std::uint32_t index) { return '\'' + spec_.buffer(index).name + '\''; };
  const auto refuse = [](Errc code, const std::string& message) {
    fail(code, "instantiate", {}, message);
  };
  std::vector<Buffer> memory(holds_.size());
  for (std::uint32_t i = 0; i < memory.size(); ++i) {
    if (holds_[i]) memory[i] = BufferAccess::make(holds_[i], 0, holds_[i]->size());
  }
  for (const PlaceholderBinding& binding : bindings) {
    if (binding.builder != id_) refuse(Errc::invalid_argument, "a placeholder of another builder");
    const std::uint32_t index = binding.index;
    if (memory[index]) refuse(Errc::invalid_argument, "placeholder " + name(index) + " twice");
    if (!binding.buffer) refuse(Errc::empty_handle, "no memory for placeholder " + name(index));
    const std::uint64_t bytes = binding.buffer.size_bytes();
    if (bytes != spec_.buffer(index).bytes) {
      refuse(Errc::size_mismatch, std::to_string(bytes) + " bytes for placeholder " + name(index) +
                                      " of " + std::to_string(spec_.buffer(index).bytes));
    }
    memory[index] = binding.buffer;
  }
  for (std::uint32_t i = 0; i < memory.size(); ++i) {
    if (!memory[i]) refuse(Errc::invalid_argument, "placeholder " + name(i) + " is not bound");
    if (BufferAccess::hold(memory[i])->owner() != core) {
      refuse(Errc::wrong_device, name(i) + " is of another device than '" + core->name() + '\'');
    }
  }
  return memory;
}

/// What only the device knows of a node's values.
void GraphBuilder::check_for(const Client& client) const {
  detail::DeviceCore& core = *detail::ClientAccess::stream(client)->core;
  const Limits& limits = core.backend().properties().limits;
  for (std::uint32_t i = 0; i < node_count(); ++i) {
    const SpecNode& node = spec_.node(i);
    const auto refuse = [&](Errc code, std::string_view message) {
      fail(code, "instantiate", label_of(spec_, i), message);
    };
    if (node.kind == SpecKind::kernel) {
      if (node.kernel->cpu == nullptr) {
        refuse(Errc::no_such_kernel, "the kernel has no body for this device");
      }
      const auto valid = validate(command::Launch{node.kernel.get(), node.grid, nullptr}, limits);
      if (node.grid.blocks.count() != 0 && !valid) {
        refuse(valid.error().code, valid.error().message);
      }
    } else if (node.kind == SpecKind::child) {
      const auto& state = detail::GraphAccess::state(own_[i].child);
      if (!state->logical) refuse(Errc::not_initialized, "the graph was made without a device");
      if (state->logical->core.get() != &core) {
        refuse(Errc::wrong_device, "the graph is of another device");
      }
      // Relaxed: here only told early; the device thread decides.
      if (state->was_updated.load(std::memory_order_relaxed)) {
        refuse(Errc::unsupported, detail::GraphState::no_child);
      }
    }
  }
}

namespace {

void submit_empty(const Client& inside) {
  detail::post(detail::make_call(detail::ClientAccess::stream(inside), "empty",
                                 [](detail::Actor& actor, detail::Operation& self) {
                                   self.command = command::Marker{};
                                   actor.run(self);
                                 }));
}

/// A graph as a node that runs as often as a value on the device says.
class ConditionalNode final : public detail::Operation {
public:
  ConditionalNode(std::shared_ptr<detail::LogicalStream> stream,
                  std::shared_ptr<detail::GraphState> body, Touch condition, GraphRepeat repeat,
                  std::uint32_t at_most)
      : Operation("replay"), body_(std::move(body)), repeat_(repeat), at_most_(at_most) {
    logical = std::move(stream);
    sets_.push_back(std::move(condition));
    // It may do nothing, so nothing is certainly written.
    const Recording& made = *body_->recording;
    sets_.insert(sets_.end(), made.inputs().begin(), made.inputs().end());
    sets_.insert(sets_.end(), made.may_write().begin(), made.may_write().end());
    touches = sets_;
  }

  std::string_view name() const noexcept override { return body_->recording->name(); }

  void accept(detail::Actor& actor) override {
    REPRISE_CHECK(actor.is_recording(*this), "a condition is asked in a graph alone");
    if (body_->was_updated.load(std::memory_order_relaxed)) {
      return actor.refuse(*this, Errc::unsupported, detail::GraphState::no_child);
    }
    body_->is_child = true;
    if (rotates(*body_)) {
      return actor.refuse(*this, Errc::unsupported,
                          "a graph within a graph has fixed addresses, and slots of this rotate");
    }
    if (body_->recording->node_count() == 0) return actor.done(*this);
    const Touch& condition = sets_.front();
    command = command::RunGraph{body_->program.get(), nullptr, repeat_,
                                condition.hold->device.address + condition.range.begin, at_most_};
    actor.run(*this);
  }
  void describe(RecordedNode& node, Recorder& /*recorder*/) const override {
    node.retained = body_;
  }

private:
  std::shared_ptr<detail::GraphState> body_;
  std::vector<Touch> sets_;
  GraphRepeat repeat_;
  std::uint32_t at_most_;
};

void submit_conditional(const Client& inside, const SpecNode& node, const Graph& body,
                        const Buffer& condition) {
  const auto& stream = detail::ClientAccess::stream(inside);
  detail::post(stream->core->make<ConditionalNode>(
      0, stream, detail::GraphAccess::state(body),
      Touch{BufferAccess::hold(condition), BufferAccess::range(condition), Access::reads},
      node.repeat, node.at_most));
}

void submit_host(const Client& inside, const SpecNode& node, std::span<const Buffer> memory,
                 const std::shared_ptr<std::function<void()>>& function) {
  ByteSets sets;
  for (const SpecUse& use : node.uses) {
    auto& set = reads(use.access)        ? sets.reads
                : must_write(use.access) ? sets.must_write
                                         : sets.may_write;
    set.push_back(part_of(memory[use.buffer], use.range));
  }
  detail::post(detail::make_host_call(inside, sets, [function] { (*function)(); }));
}

void submit_kernel(const Client& inside, const SpecNode& node, std::span<const Buffer> memory) {
  std::vector<Buffer> buffers;
  for (const SpecUse& use : node.uses) buffers.push_back(part_of(memory[use.buffer], use.range));
  std::vector<detail::BoundBuffer> bound;
  for (const KernelParameter& parameter : node.kernel->parameters) {
    if (!parameter.is_buffer) continue;
    bound.push_back({&buffers[bound.size()], parameter.access, parameter.offset});
  }
  const Buffer* const count = node.has_count ? &buffers.back() : nullptr;
  detail::post(
      detail::make_launch(inside, node.kernel, {node.grid, count}, {node.arguments, bound}));
}

}  // namespace

void GraphBuilder::record(const Client& inside, const SpecOrder& order,
                          std::span<const Buffer> memory) const {
  for (const std::uint32_t index : order.order) {
    const SpecNode& node = spec_.node(index);
    const auto after = spec_.after(index);
    detail::place_next(inside, {index, order_of(node, spec_.edges()),
                                std::vector<std::uint32_t>(after.begin(), after.end()),
                                std::string(spec_.name_of(index)), node.where});
    const auto part = [&](std::size_t use) {
      return part_of(memory[node.uses[use].buffer], node.uses[use].range);
    };
    switch (node.kind) {
      case SpecKind::kernel: submit_kernel(inside, node, memory); break;
      case SpecKind::copy: detail::post(detail::make_copy(inside, part(0), part(1))); break;
      case SpecKind::fill:
        detail::post(detail::make_fill(inside, part(0), node.pattern, node.pattern_bytes, "fill"));
        break;
      case SpecKind::host: submit_host(inside, node, memory, own_[index].function); break;
      case SpecKind::empty: submit_empty(inside); break;
      case SpecKind::child:
        if (node.repeat == GraphRepeat::once) {
          detail::post(detail::make_client_replay(inside, own_[index].child));
        } else {
          submit_conditional(inside, node, own_[index].child, part(0));
        }
        break;
    }
  }
}

Graph GraphBuilder::instantiate(const Client& client,
                                std::span<const PlaceholderBinding> bindings) const {
  if (!client) fail(Errc::empty_handle, "instantiate", {}, "the client is empty");
  const SpecOrder order = spec_.order();
  const std::vector<Buffer> memory = resolve(client, bindings);
  check_for(client);
  auto fill_in = [&](Client& inside) { record(inside, order, memory); };
  return detail::build(client, detail::record_function(fill_in), name_);
}

}  // namespace reprise

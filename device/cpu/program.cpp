// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/program.hpp>

#include <reprise/device/cpu/execute.hpp>
#include <reprise/device/cpu/spread.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

namespace reprise::detail {

/// One call: a kernel body with its one block, or a function of ours that has the same shape and
/// takes what it needs as `callable`.
struct alignas(64) CpuProgram::Node {
  CpuBody body;
  const void* callable;
  const std::byte* arguments;
  Block block;
  std::uint32_t index;  // In the plan.

  void run() const { body(callable, arguments, block); }
};

struct CpuProgram::SplitNode {
  CpuProgram* program;
  const command::Launch* launch;
  mutable LaunchCost cost;
};

struct CpuProgram::ChildNode {
  CpuProgram* program;
  std::unique_ptr<CpuProgram> child;
  const command::RunGraph* command;

  bool is_wanted(std::uint64_t runs) const noexcept {
    if (command->repeat == GraphRepeat::once) return runs == 0;
    if (command->repeat == GraphRepeat::if_true && runs == 1) return false;
    if (runs == command->at_most && runs != no_repeat_limit) return false;
    std::uint32_t condition = 0;
    std::memcpy(&condition, reinterpret_cast<const void*>(command->condition), sizeof condition);
    return condition != 0;
  }
};

/// The bodies of nodes that are no kernels of one block.
class CpuProgram::Calls {
public:
  template <class C>
  static void operand(const void* what, const std::byte*, const Block&) {
    execute(*static_cast<const C*>(what));
  }
  static void host_call(const void* what, const std::byte*, const Block&) {
    const auto& host = *static_cast<const command::HostCall*>(what);
    host.call(host.context);
  }
  static void split(const void* what, const std::byte*, const Block&) {
    const auto& node = *static_cast<const SplitNode*>(what);
    node.program->splitter_.run(*node.launch, node.program->stream_, &node.cost);
  }
  static void child(const void* what, const std::byte*, const Block&) {
    const auto& node = *static_cast<const ChildNode*>(what);
    std::atomic<const void*> at{nullptr};
    std::vector<NodeOutcome> outcomes;
    for (std::uint64_t runs = 0; node.is_wanted(runs); ++runs) {
      // Relaxed: a request that orders nothing; the partner is Engine::end_loops().
      if (runs != 0 && node.program->ends_loops_.load(std::memory_order_relaxed)) {
        throw ChildFailed{make_failure(Errc::operation_aborted, "replay", node.child->name_,
                                       "the device was aborted between two runs of a loop")};
      }
      FailurePtr failure = node.child->run(node.program->stream_, at, outcomes);
      if (failure) throw ChildFailed{std::move(failure)};
    }
  }
};

CpuProgram::CpuProgram(const GraphPlan& plan, Splitter& splitter,
                       const std::atomic<bool>& ends_loops)
    : plan_(plan.nodes), name_(plan.name), splitter_(splitter), ends_loops_(ends_loops) {
  static_assert(sizeof(Node) == 64, "a node is one line");
  reserve();
  for (std::uint32_t i = 0; i < plan_.size(); ++i) add(plan_.node(i).command, i);
  if (!plan.patches.empty()) add_row(plan.patches);
}

CpuProgram::~CpuProgram() = default;

/// Makes room for everything that nodes point to.
void CpuProgram::reserve() {
  std::size_t splits = 0;
  std::size_t children = 0;
  for (std::uint32_t i = 0; i < plan_.size(); ++i) {
    const Command& command = plan_.node(i).command;
    const auto* launch = std::get_if<command::Launch>(&command);
    splits += launch != nullptr && (launch->grid.blocks.count() > 1 || launch->count != 0);
    children += std::holds_alternative<command::RunGraph>(command);
  }
  split_nodes_.reserve(splits);
  child_nodes_.reserve(children);
  nodes_.reserve(plan_.size());
}

void CpuProgram::add_call(CpuBody body, const void* what, std::uint32_t index) {
  nodes_.push_back({body, what, nullptr, {}, index});
}

void CpuProgram::add(const Command& command, std::uint32_t index) {
  if (const auto* launch = std::get_if<command::Launch>(&command)) {
    const std::uint64_t blocks = launch->grid.blocks.count();
    if (blocks == 1 && launch->count == 0) {
      const KernelDefinition& kernel = *launch->kernel;
      nodes_.push_back({kernel.cpu, kernel.callable.get(), launch->arguments,
                        Block{{0, 0, 0}, launch->grid.blocks, launch->grid.threads}, index});
    } else if (blocks != 0) {
      split_nodes_.push_back({this, launch, {}});
      add_call(&Calls::split, &split_nodes_.back(), index);
    }
  } else if (const auto* copy = std::get_if<command::Copy>(&command)) {
    add_call(&Calls::operand<command::Copy>, copy, index);
  } else if (const auto* fill = std::get_if<command::Fill>(&command)) {
    add_call(&Calls::operand<command::Fill>, fill, index);
  } else if (const auto* write = std::get_if<command::Write>(&command)) {
    add_call(&Calls::operand<command::Write>, write, index);
  } else if (const auto* read = std::get_if<command::Read>(&command)) {
    add_call(&Calls::operand<command::Read>, read, index);
  } else if (const auto* host = std::get_if<command::HostCall>(&command)) {
    add_call(&Calls::host_call, host, index);
  } else if (const auto* graph = std::get_if<command::RunGraph>(&command)) {
    // Lowered anew: a program is run once at a time, and the graph may be replayed or be a child of
    // others meanwhile.
    const auto& program = static_cast<const CpuProgram&>(*graph->program);
    child_nodes_.push_back({this,
                            std::make_unique<CpuProgram>(GraphPlan{program.plan_, program.name_},
                                                         splitter_, ends_loops_),
                            graph});
    add_call(&Calls::child, &child_nodes_.back(), index);
  }
}

void CpuProgram::add_row(std::span<const PlanPatch> patches) {
  bound_nodes_ = nodes_;
  // Reserved, since nodes and patches point into them.
  bound_commands_.reserve(patches.size());
  bound_splits_.reserve(patches.size());
  addresses_.reserve(patches.size());
  auto node = bound_nodes_.begin();
  while (!patches.empty()) {
    const std::uint32_t index = patches.front().node;
    const auto end = std::find_if(patches.begin(), patches.end(),
                                  [index](const PlanPatch& patch) { return patch.node != index; });
    const auto count = static_cast<std::size_t>(end - patches.begin());
    node = std::find_if(node, bound_nodes_.end(),
                        [index](const Node& at) { return at.index == index; });
    if (node == bound_nodes_.end()) return;
    add_bound(*node, patches.first(count));
    patches = patches.subspan(count);
  }
}

void CpuProgram::add_bound(Node& node, std::span<const PlanPatch> patches) {
  Command& command = bound_commands_.emplace_back(plan_.node(node.index).command);
  std::byte* fields[2] = {};
  if (auto* const launch = std::get_if<command::Launch>(&command)) {
    const std::size_t bytes = launch->kernel->argument_bytes;
    // From operator new: aligned to 16, as argument blocks are.
    bound_arguments_.push_back(std::make_unique<std::byte[]>(bytes));
    fields[0] = bound_arguments_.back().get();
    std::memcpy(fields[0], launch->arguments, bytes);
    launch->arguments = fields[0];
    fields[1] = reinterpret_cast<std::byte*>(&launch->count);
    if (launch->grid.blocks.count() == 1 && launch->count == 0) {
      node.arguments = fields[0];
    } else {
      bound_splits_.push_back({this, launch, {}});
      node.callable = &bound_splits_.back();
    }
  } else if (auto* const copy = std::get_if<command::Copy>(&command)) {
    node.callable = copy;
    fields[0] = reinterpret_cast<std::byte*>(&copy->to);
    fields[1] = reinterpret_cast<std::byte*>(&copy->from);
  } else if (auto* const fill = std::get_if<command::Fill>(&command)) {
    node.callable = fill;
    fields[0] = reinterpret_cast<std::byte*>(&fill->to);
  } else if (auto* const write = std::get_if<command::Write>(&command)) {
    node.callable = write;
    fields[0] = reinterpret_cast<std::byte*>(&write->to);
  }
  const bool is_copy = std::holds_alternative<command::Copy>(command);
  for (const PlanPatch& patch : patches) {
    const bool is_second = is_copy ? patch.at == 1 : patch.at == PlanPatch::count;
    std::byte* const field = is_second ? fields[1] : fields[0] + patch.at;
    addresses_.push_back({field, patch.slot, patch.offset});
  }
}

// The first row reads the plan's; what names a slot in the second row has a copy.
void CpuProgram::arguments_changed(std::uint32_t index) noexcept {
  const auto* const launch = std::get_if<command::Launch>(&plan_.node(index).command);
  const std::byte* const from = launch->arguments;
  for (Node& node : bound_nodes_) {
    if (node.index != index) continue;
    const bool is_split = node.body == &Calls::split;
    const std::byte* const to =
        is_split ? static_cast<const SplitNode*>(node.callable)->launch->arguments : node.arguments;
    if (to != from) std::memcpy(const_cast<std::byte*>(to), from, launch->kernel->argument_bytes);
  }
}

std::uint64_t CpuProgram::bytes() const noexcept {
  std::uint64_t bytes =
      sizeof *this + (nodes_.capacity() + bound_nodes_.capacity()) * sizeof(Node) +
      (split_nodes_.capacity() + bound_splits_.capacity()) * sizeof(SplitNode) +
      child_nodes_.capacity() * sizeof(ChildNode) + bound_commands_.capacity() * sizeof(Command) +
      addresses_.capacity() * sizeof(Address) +
      bound_arguments_.capacity() * sizeof(bound_arguments_[0]);
  for (const Command& command : bound_commands_) {
    const auto* const launch = std::get_if<command::Launch>(&command);
    if (launch != nullptr) bytes += launch->kernel->argument_bytes;
  }
  for (const ChildNode& node : child_nodes_) bytes += node.child->bytes();
  return bytes;
}

std::string_view CpuProgram::name_at(const void* at) const noexcept {
  const auto* node = static_cast<const Node*>(at);
  if (!node) return name_;
  const PlanNode plan = plan_.node(node->index);
  if (!plan.name.empty()) return plan.name;
  const std::string_view kernel = name_of(plan.command);
  return kernel.empty() ? std::string_view{verb_of(plan.command)} : kernel;
}

FailurePtr CpuProgram::run(std::uint32_t stream, std::atomic<const void*>& at,
                           std::vector<NodeOutcome>& outcomes,
                           const std::uint64_t* slots) noexcept {
  stream_ = stream;
  const Node* node = nodes_.data();
  if (slots != nullptr && !addresses_.empty()) {
    for (const Address& address : addresses_) {
      const std::uint64_t value = slots[address.slot] + address.offset;
      std::memcpy(address.field, &value, sizeof value);
    }
    node = bound_nodes_.data();
  }
  const Node* const end = node + nodes_.size();
  try {
    for (; node != end; ++node) {
      at.store(node, std::memory_order_relaxed);  // A hint for a report; it has no partner.
      node->run();
    }
    return {};
  } catch (...) {
    return go_on_after(node, end, at, outcomes);
  }
}

FailurePtr CpuProgram::fail(const Node& node) noexcept {
  return describe("replay", name_at(&node), std::current_exception());
}

// Slots are as disjoint wherever they lie, so failures spread along the recorded bytes.
FailurePtr CpuProgram::go_on_after(const Node* failed, const Node* end,
                                   std::atomic<const void*>& at,
                                   std::vector<NodeOutcome>& outcomes) noexcept {
  const FailurePtr first = fail(*failed);
  try {
    using Kind = NodeOutcome::Kind;
    Spread spread;
    outcomes.push_back({failed->index, Kind::failed, failed->index, first});
    std::vector<NodeTouch> touches;
    plan_.add_touches(failed->index, touches);
    spread.spoil(touches, failed->index);
    for (const Node* node = failed + 1; node != end; ++node) {
      touches.clear();
      plan_.add_touches(node->index, touches);
      const std::uint32_t root = spread.root_of(touches);
      if (root != Spread::clean) {
        outcomes.push_back({node->index, Kind::skipped, root, nullptr});
        spread.spoil(touches, root);
        continue;
      }
      FailurePtr failure;
      at.store(node, std::memory_order_relaxed);
      try {
        node->run();
      } catch (...) {
        failure = fail(*node);
      }
      if (failure) {
        outcomes.push_back({node->index, Kind::failed, node->index, std::move(failure)});
        spread.spoil(touches, node->index);
      } else {
        spread.mend(touches);
      }
    }
  } catch (...) {
    // No memory to tell nodes apart.
    outcomes.clear();
  }
  return first;
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/program.hpp>

#include <reprise/device/cpu/execute.hpp>
#include <reprise/device/cpu/spread.hpp>

#include <algorithm>
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
    FailurePtr failure = node.child->run(node.program->stream_, at, outcomes);
    if (failure) throw ChildFailed{std::move(failure)};
  }
};

CpuProgram::CpuProgram(const GraphPlan& plan, Splitter& splitter)
    : plan_(plan.nodes), name_(plan.name), splitter_(splitter) {
  static_assert(sizeof(Node) == 64, "a node is one line");
  const auto is_split = [](const PlanNode& node) {
    const auto* launch = std::get_if<command::Launch>(&node.command);
    return launch && launch->grid.blocks.count() > 1;
  };
  const auto is_child = [](const PlanNode& node) {
    return std::holds_alternative<command::RunGraph>(node.command);
  };
  // Reserved, since nodes point into them.
  split_nodes_.reserve(std::count_if(plan_.begin(), plan_.end(), is_split));
  child_nodes_.reserve(std::count_if(plan_.begin(), plan_.end(), is_child));
  nodes_.reserve(plan_.size());
  for (std::uint32_t i = 0; i < plan_.size(); ++i) add(plan_[i], i);
}

CpuProgram::~CpuProgram() = default;

void CpuProgram::add_call(CpuBody body, const void* what, std::uint32_t index) {
  nodes_.push_back({body, what, nullptr, {}, index});
}

void CpuProgram::add(const PlanNode& plan, std::uint32_t index) {
  const Command& command = plan.command;
  if (const auto* launch = std::get_if<command::Launch>(&command)) {
    const std::uint64_t blocks = launch->grid.blocks.count();
    if (blocks == 1) {
      const KernelDefinition& kernel = *launch->kernel;
      nodes_.push_back({kernel.cpu, kernel.callable.get(), launch->arguments,
                        Block{{0, 0, 0}, launch->grid.blocks, launch->grid.threads}, index});
    } else if (blocks > 1) {
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
    child_nodes_.push_back(
        {this, std::make_unique<CpuProgram>(GraphPlan{program.plan_, program.name_}, splitter_)});
    add_call(&Calls::child, &child_nodes_.back(), index);
  }
}

std::uint64_t CpuProgram::bytes() const noexcept {
  std::uint64_t bytes = sizeof *this + nodes_.capacity() * sizeof(Node) +
                        split_nodes_.capacity() * sizeof(SplitNode) +
                        child_nodes_.capacity() * sizeof(ChildNode);
  for (const ChildNode& node : child_nodes_) bytes += node.child->bytes();
  return bytes;
}

std::string_view CpuProgram::name_at(const void* at) const noexcept {
  const auto* node = static_cast<const Node*>(at);
  if (!node) return name_;
  const PlanNode& plan = plan_[node->index];
  if (!plan.name.empty()) return plan.name;
  const std::string_view kernel = name_of(plan.command);
  return kernel.empty() ? std::string_view{verb_of(plan.command)} : kernel;
}

FailurePtr CpuProgram::run(std::uint32_t stream, std::atomic<const void*>& at,
                           std::vector<NodeOutcome>& outcomes) noexcept {
  stream_ = stream;
  const Node* node = nodes_.data();
  const Node* const end = node + nodes_.size();
  try {
    for (; node != end; ++node) {
      at.store(node, std::memory_order_relaxed);  // A hint for a report; it has no partner.
      node->run();
    }
    return {};
  } catch (...) {
    return go_on_after(node, at, outcomes);
  }
}

FailurePtr CpuProgram::fail(const Node& node) noexcept {
  return describe("replay", name_at(&node), std::current_exception());
}

FailurePtr CpuProgram::go_on_after(const Node* failed, std::atomic<const void*>& at,
                                   std::vector<NodeOutcome>& outcomes) noexcept {
  const FailurePtr first = fail(*failed);
  const Node* const end = nodes_.data() + nodes_.size();
  try {
    using Kind = NodeOutcome::Kind;
    Spread spread;
    outcomes.push_back({failed->index, Kind::failed, failed->index, first});
    spread.spoil(plan_[failed->index].touches, failed->index);
    for (const Node* node = failed + 1; node != end; ++node) {
      const auto touches = plan_[node->index].touches;
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

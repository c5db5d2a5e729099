// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/cpu/split.hpp>
#include <reprise/device/graph_program.hpp>
#include <reprise/device/work.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace reprise::detail {

/// A graph as the CPU device runs it: a row of calls, one line each, in the order of the plan. A
/// kernel of one block is called directly; everything else has the shape of one.
///
/// Argument blocks and the operands of copies, fills, writes, reads and host calls are read where
/// the plan keeps them, each time the program runs.
///
/// A plan with slots has a second row, in which the nodes that name a slot read copies of these
/// instead. A run with slots of its own fills their addresses into the copies and takes that row.
///
/// Lifetime  The plan outlives it.
/// Threads   One run at a time, as the actor sees to.
class CpuProgram final : public GraphProgram {
public:
  /// Throws std::bad_alloc.
  /// Once `ends_loops` is set, a loop fails before its next run.
  CpuProgram(const GraphPlan& plan, Splitter& splitter, const std::atomic<bool>& ends_loops);
  ~CpuProgram() override;

  std::uint64_t bytes() const noexcept override;
  void arguments_changed(std::uint32_t node) noexcept override;

  /// Runs all nodes on behalf of `stream`. Null if all succeeded; else the first failure, and in
  /// `outcomes` every node that failed or was skipped, in order. Empty `outcomes` beside a failure
  /// means that no memory was left to tell nodes apart: everything after the failure was left out.
  /// `at` tells which node runs. `slots` tells where each slot begins; null: where it was recorded.
  FailurePtr run(std::uint32_t stream, std::atomic<const void*>& at,
                 std::vector<NodeOutcome>& outcomes, const std::uint64_t* slots = nullptr) noexcept;

  /// The name of the node that `at` tells, or of the program.
  std::string_view name_at(const void* at) const noexcept;

private:
  struct Node;
  struct SplitNode;
  struct ChildNode;
  class Calls;

  void reserve();
  void add(const Command& command, std::uint32_t index);
  void add_call(CpuBody body, const void* what, std::uint32_t index);
  FailurePtr fail(const Node& node) noexcept;
  FailurePtr go_on_after(const Node* failed, const Node* end, std::atomic<const void*>& at,
                         std::vector<NodeOutcome>& outcomes) noexcept;
  void add_row(std::span<const PlanPatch> patches);
  void add_bound(Node& node, std::span<const PlanPatch> patches);

  const PlanNodes& plan_;
  std::string_view name_;
  Splitter& splitter_;
  const std::atomic<bool>& ends_loops_;
  std::vector<Node> nodes_;
  std::vector<SplitNode> split_nodes_;
  std::vector<ChildNode> child_nodes_;
  std::uint32_t stream_ = 0;  // Of the present run.

  // The second row.
  struct Address {
    std::byte* field;
    std::uint32_t slot;
    std::uint64_t offset;
  };
  std::vector<Node> bound_nodes_;
  std::vector<Command> bound_commands_;
  std::vector<SplitNode> bound_splits_;
  std::vector<std::unique_ptr<std::byte[]>> bound_arguments_;
  std::vector<Address> addresses_;
};

}  // namespace reprise::detail

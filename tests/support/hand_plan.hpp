// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/graph_program.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace reprise::test {

/// The nodes of a plan made by hand, without a recording.
class HandPlan final : public PlanNodes {
public:
  void add(std::string name, Command command, std::vector<NodeTouch> touches = {}) {
    nodes_.push_back({command, std::move(name), std::move(touches)});
  }

  std::uint32_t size() const noexcept override { return static_cast<std::uint32_t>(nodes_.size()); }
  PlanNode node(std::uint32_t index) const noexcept override {
    return {nodes_[index].command, {}, nodes_[index].name};
  }
  void add_touches(std::uint32_t index, std::vector<NodeTouch>& out) const override {
    const std::vector<NodeTouch>& touches = nodes_[index].touches;
    out.insert(out.end(), touches.begin(), touches.end());
  }

private:
  struct Node {
    Command command;
    std::string name;
    std::vector<NodeTouch> touches;
  };

  std::deque<Node> nodes_;
};

}  // namespace reprise::test

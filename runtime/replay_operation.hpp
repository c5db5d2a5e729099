// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/operation.hpp>
#include <reprise/runtime/slots.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace reprise::detail {

/// One replay in flight. It keeps the graph.
class ReplayOperation : public Operation {
public:
  explicit ReplayOperation(std::shared_ptr<GraphState> graph) noexcept;

  std::string_view name() const noexcept override { return graph_->recording->name(); }
  std::uint64_t owner() const noexcept override { return graph_->recording->id(); }
  void accept(Actor& actor) override;
  void was_accepted(Actor& actor) noexcept override;
  void failed_with(const FailurePtr& failure) noexcept override;
  void claim_nodes() override;

protected:
  /// Where the bytes of a node lie in this replay, and whose claims on them are its own.
  struct Located {
    Hold& hold;
    ByteRange range;
    std::uint64_t owner;
  };
  virtual Located locate(const Touch& touch) const noexcept {
    return {*touch.hold, touch.range, owner()};
  }

  std::shared_ptr<GraphState> graph_;
};

/// A replay by any thread. `bindings` are checked. Throws Failure, std::bad_alloc, with nothing
/// changed.
Operation* make_replay(const std::shared_ptr<GraphState>& graph, BindingView bindings,
                       const char* verb);
/// One through a client of `stream`. Throws Failure, std::bad_alloc.
Operation* make_client_replay(const std::shared_ptr<LogicalStream>& stream,
                              const std::shared_ptr<GraphState>& graph);

}  // namespace reprise::detail

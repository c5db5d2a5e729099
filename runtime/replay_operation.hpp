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

/// A replay some of whose slots lie elsewhere: a command like any other to the rules of order and
/// taint, with byte sets of its own.
///
/// The claims it leaves on what is bound to a slot are the slot's, not the graph's: a replay that
/// finds them is not locked out if the bytes play the same part in it, and is if they play another.
class BoundReplay final : public ReplayOperation {
public:
  /// What a slot is in this replay.
  struct Place {
    HoldRef hold;
    ByteRange range;
    bool bound = false;
  };
  /// The spans lie behind it in its block, constructed.
  struct Memory {
    std::span<Touch> touches;
    std::span<Place> places;
    std::span<std::uint64_t> addresses;
  };

  BoundReplay(std::shared_ptr<GraphState> graph) noexcept : ReplayOperation(std::move(graph)) {}
  ~BoundReplay() override;
  void set_memory(const Memory& memory) noexcept;
  /// Fills in the byte sets from the places.
  void place_touches() noexcept;
  std::span<Place> places() noexcept { return memory_.places; }

  void accept(Actor& actor) override;
  std::uint64_t owner_of(const Touch& touch) const noexcept override;

private:
  Located locate(const Touch& touch) const noexcept override;
  std::uint64_t owner_of(std::uint32_t slot) const noexcept;

  Memory memory_;
};

/// A replay with the slots as recorded, made by any thread. Throws std::bad_alloc.
Operation* make_replay(const std::shared_ptr<GraphState>& graph);
/// The same with `bindings`, which are checked. Throws Failure, with nothing changed.
Operation* make_replay(const std::shared_ptr<GraphState>& graph, BindingView bindings,
                       const char* verb);
/// One through a client of `stream`. Throws Failure, std::bad_alloc.
Operation* make_client_replay(const std::shared_ptr<LogicalStream>& stream,
                              const std::shared_ptr<GraphState>& graph);

}  // namespace reprise::detail

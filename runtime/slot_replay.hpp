// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/core.hpp>
#include <reprise/runtime/replay_operation.hpp>
#include <reprise/runtime/rotation.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace reprise::detail {

/// A replay of a graph that has slots. When its ticket is served it settles which bytes it uses,
/// and may find that it cannot run: an output is leased.
class SlotReplay : public ReplayOperation {
public:
  explicit SlotReplay(std::shared_ptr<GraphState> graph) noexcept
      : ReplayOperation(std::move(graph)) {
    settles = true;
  }

protected:
  /// True: settle() found that it cannot run, and it has been answered.
  bool is_refused(Actor& actor) noexcept;
  bool is_output(std::uint32_t slot) const noexcept;

  Errc refusal_{};  ///< Why it cannot run.
};

/// One whose slots all lie where they were recorded.
class RecordedReplay : public SlotReplay {
public:
  using SlotReplay::SlotReplay;
  void settle(Actor& actor) noexcept override;
  void accept(Actor& actor) override;

private:
  std::vector<Touch> unleased_;  // The byte sets, if a lease keeps it from running.
};

/// One some of whose slots lie elsewhere, because the caller said so or because they rotate: a
/// command like any other to the rules of order and taint, with byte sets of its own.
///
/// The claims it leaves on what is bound to a slot are the slot's, not the graph's: a replay that
/// finds them is not locked out if the bytes play the same part in it, and is if they play another.
class BoundReplay : public SlotReplay {
public:
  /// What a slot is in this replay.
  struct Place {
    HoldRef hold;
    ByteRange range;
    bool bound = false;      ///< Not to what was recorded.
    bool chosen = false;     ///< By the caller.
    bool untouched = false;  ///< Not even marked if the replay does not run.
    std::uint32_t copy = 0;  ///< Of a slot that rotates.
  };

  using SlotReplay::SlotReplay;
  ~BoundReplay() override;
  /// The bytes that lay_out() needs behind the operation in its block.
  static std::size_t extra_bytes(const GraphState& graph) noexcept;
  /// Constructs there what it works with, with every slot as recorded.
  void lay_out(std::byte* extra) noexcept;
  /// Fills in the byte sets from the places.
  void place_touches() noexcept;
  std::span<Place> places() noexcept { return places_; }

  void settle(Actor& actor) noexcept override;
  void accept(Actor& actor) override;
  void was_accepted(Actor& actor) noexcept override;
  std::uint64_t owner_of(const Touch& touch) const noexcept override;

private:
  Located locate(const Touch& touch) const noexcept override;
  std::uint64_t owner_of(std::uint32_t slot) const noexcept;
  bool rotates(std::uint32_t slot) const noexcept;
  void choose_copy(std::uint32_t slot) noexcept;
  void settle_output(std::uint32_t slot) noexcept;
  bool meets_chosen(const Rotation::Copy& copy) const noexcept;

  // Behind it in its block.
  std::span<Touch> parts_;
  std::span<Place> places_;
  std::span<std::uint64_t> addresses_;
};

/// Checks `bindings` and puts them in `places`, which are as recorded. Throws Failure.
void bind_places(const GraphState& graph, BindingView bindings, const char* verb,
                 std::span<BoundReplay::Place> places);

}  // namespace reprise::detail

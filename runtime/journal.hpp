// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/taint.hpp>
#include <reprise/runtime/operation.hpp>

#include <cstdint>
#include <vector>

namespace reprise::detail {

/// What the device thread has accepted and not yet seen finished, in ticket order, with enough to
/// take each command's effect on taint back and to do it again.
///
/// Taint is kept as if every accepted command will succeed. When one fails, judge() undoes the
/// effects of everything from the newest command back to the failed one, marks the failed one's
/// bytes, and goes forward again: a command that would now read marked bytes is skipped (it cannot
/// have started, since it waits for what it reads) and marks its own; the others have their effect
/// as before. So the marks are exactly what a slow, sequential device would have left.
///
/// A command that was refused or skipped when its turn came stays too, as a mark, while older ones
/// are unfinished: undoing those must undo it. And what finishes behind a mark stays until the mark
/// goes, since undoing the mark would undo it: commands wait for each other where their bytes
/// conflict, but not for marks.
///
/// Threads   The device thread's.
class Journal {
public:
  bool empty() const noexcept { return newest_ == nullptr; }
  Operation* oldest() const noexcept { return oldest_; }
  bool has_marks() const noexcept { return marks_ != 0; }

  /// Adds the newest command.
  void append(Operation& operation) noexcept;
  void remove(Operation& operation) noexcept;

  /// Success is assumed: clears what the command must write, and for a replay lifts its own claims.
  void note_written(Operation& operation);
  /// The command will never run: its may-write bytes carry `claim`.
  void note_claimed(Operation& operation, ClaimPtr claim);
  /// restore(): lifts every not_started claim from what the operation may write.
  void note_lifted(Operation& operation);

  /// The first claim that keeps the command from running, null if none does: on what it reads,
  /// except a graph's own claims of not having started.
  static const Claim* first_claim(const Operation& operation) noexcept;

  /// `failed` failed while running. `told` is called for it and for every command that is skipped
  /// because of it, with the failure each is to answer; skipped ones have Work::skip set.
  template <class Told>
  void judge(Operation& failed, Told&& told) {
    mark_failed(failed);
    told(failed, failed.failure, false);
    for (Operation* next = failed.newer; next != nullptr; next = next->newer) {
      if (const ClaimPtr claim = redo(*next)) {
        told(*next, report(*claim, next->verb, next->where), true);
      }
    }
  }

private:
  static void undo(Operation& operation);
  void mark_failed(Operation& failed);
  void mark(Operation& operation);
  /// Does the effect again; answers the claim if the command is now skipped.
  ClaimPtr redo(Operation& operation);

  Operation* oldest_ = nullptr;
  Operation* newest_ = nullptr;
  std::uint64_t marks_ = 0;
};

}  // namespace reprise::detail

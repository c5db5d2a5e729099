// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/journal.hpp>

namespace reprise::detail {

namespace {

// Saves the state of `range` if it carries anything, so that undo() can bring it back.
void save(Operation& operation, const Touch& touch) {
  TaintSpans spans;
  touch.hold->device.taint.save(touch.range, spans);
  operation.undo.push_back({touch.hold.get(), touch.range, std::move(spans)});
}

// The claim that a command leaves on bytes whose refusals are `owner`'s.
ClaimPtr owned_by(const ClaimPtr& claim, std::uint64_t owner) {
  if (claim->kind != ClaimKind::not_started || claim->owner == owner || claim->owner == 0) {
    return claim;
  }
  return ClaimPtr(*new Claim(claim->kind, claim->failure, owner, claim->skips));
}

}  // namespace

void Journal::append(Operation& operation) noexcept {
  operation.older = newest_;
  operation.newer = nullptr;
  (newest_ ? newest_->newer : oldest_) = &operation;
  newest_ = &operation;
  if (!operation.enqueued) ++marks_;
}

void Journal::remove(Operation& operation) noexcept {
  if (!operation.enqueued) --marks_;
  (operation.older ? operation.older->newer : oldest_) = operation.newer;
  (operation.newer ? operation.newer->older : newest_) = operation.older;
  operation.older = operation.newer = nullptr;
}

void Journal::note_written(Operation& operation) {
  operation.effect = Operation::Effect::wrote;
  for (const Touch& touch : operation.touches) {
    if (!may_write(touch.access)) continue;
    TaintMap& taint = touch.hold->device.taint;
    if (taint.clean()) continue;
    save(operation, touch);
    if (must_write(touch.access)) taint.clear(touch.range);
    const std::uint64_t owner = operation.owner_of(touch);
    if (owner != 0) taint.lift(touch.range, owner);
  }
}

void Journal::note_claimed(Operation& operation, ClaimPtr claim) {
  operation.effect = Operation::Effect::claimed;
  operation.claim = std::move(claim);
  for (const Touch& touch : operation.touches) {
    if (!may_write(touch.access)) continue;
    save(operation, touch);
    touch.hold->device.taint.claim(touch.range,
                                   owned_by(operation.claim, operation.owner_of(touch)));
  }
}

void Journal::note_lifted(Operation& operation) {
  operation.effect = Operation::Effect::lifted;
  for (const Touch& touch : operation.touches) {
    if (touch.hold->device.taint.clean()) continue;
    save(operation, touch);
    touch.hold->device.taint.lift(touch.range, 0);
  }
}

const Claim* Journal::first_claim(const Operation& operation) noexcept {
  for (const Touch& touch : operation.touches) {
    if (!reads(touch.access)) continue;
    const TaintMap& taint = touch.hold->device.taint;
    const Claim* claim = taint.first(touch.range);
    if (!claim) continue;
    const std::uint64_t owner = operation.owner_of(touch);
    // Plant 16 is caught by "random work on a seeded device gives what a sequential model gives".
    const bool locked_out = REPRISE_PLANT(16);
    if (owner != 0 && !locked_out && taint.only_of(touch.range, owner)) continue;
    return claim;
  }
  return nullptr;
}

void Journal::undo(Operation& operation) {
  // Plant 14 is caught by "random work on a seeded device gives what a sequential model gives".
  if (REPRISE_PLANT(14)) return operation.undo.clear();
  for (std::size_t i = operation.undo.size(); i-- > 0;) {
    Operation::Undo& step = operation.undo[i];
    step.hold->device.taint.put_back(step.range, step.spans);
  }
  operation.undo.clear();
}

void Journal::mark_failed(Operation& failed) {
  for (Operation* at = newest_;; at = at->older) {
    undo(*at);
    if (at == &failed) break;
  }
  failed.effect = Operation::Effect::claimed;
  failed.claim = make_claim(ClaimKind::ran, failed.failure);
  mark(failed);
}

void Journal::mark(Operation& operation) {
  if (operation.nodes.empty()) {
    note_claimed(operation, operation.claim);
    return;
  }
  for (const Touch& touch : operation.touches) {
    if (may_write(touch.access)) save(operation, touch);
  }
  operation.claim_nodes();
}

ClaimPtr Journal::redo(Operation& operation) {
  switch (operation.effect) {
    case Operation::Effect::none:
    case Operation::Effect::wrote: {
      const Claim* found = first_claim(operation);
      if (found == nullptr) found = operation.doomed_by();
      if (found != nullptr) {
        ClaimPtr claim{*found};
        operation.skip = true;
        note_claimed(operation, skip_claim(*claim, operation.name(), operation.owner()));
        return claim;
      }
      if (operation.effect == Operation::Effect::wrote) note_written(operation);
      return {};
    }
    case Operation::Effect::claimed: mark(operation); return {};
    case Operation::Effect::lifted: note_lifted(operation); return {};
  }
  return {};
}

}  // namespace reprise::detail

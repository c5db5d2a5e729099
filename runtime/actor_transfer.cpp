// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>

#include <reprise/runtime/transfer.hpp>
#include <reprise/runtime/window.hpp>

#include <algorithm>
#include <new>

namespace reprise::detail {

// Writes in chunks. The commands of their chunks are ordinary ones, one behind the other; what is
// special is what may not come between them.

bool Actor::is_behind_transfer(const Operation& operation) const noexcept {
  for (const Transfer* open = transfers_; open != nullptr; open = open->device.next) {
    // What has no stream asks for everything before it.
    if (!operation.logical || operation.logical == open->logical) return true;
    for (const Touch& touch : operation.touches) {
      if (touch.hold == open->hold && touch.range.overlaps(open->range)) return true;
    }
  }
  return false;
}

void Actor::open_transfer(ChunkOperation& first) {
  Transfer& transfer = first.transfer();
  if (is_recording(first)) {
    // Only where the capture began after the caller had looked: it keeps such bytes on the heap.
    REPRISE_MARK("transfer_met_capture");
    const auto failure = make_failure(Errc::capture_refused, "write", {},
                                      "a capture began while a large write was on its way");
    window_of(first)->capture.fail(failure);
    return answer(first, failure);
  }
  const std::shared_ptr<Transfer> keep = transfer.shared_from_this();
  transfer.device.state = Transfer::State::open;
  transfer.device.ticket = first.ticket;
  transfer.device.next = std::exchange(transfers_, &transfer);
  first.resolve();
  run(first);
  if (Transfer::Slot* const early = std::exchange(transfer.device.early, nullptr)) {
    take_chunk(transfer, *early);
  }
  settle_transfer(transfer);
}

void Actor::take_chunk(Transfer& transfer, Transfer::Slot& slot) noexcept {
  Transfer::Device& device = transfer.device;
  if (device.state == Transfer::State::waiting && !device.failure) {
    REPRISE_MARK("chunk_before_its_transfer");
    device.early = &slot;
    return;
  }
  const bool last = slot.last;
  if (device.failure) {
    slot.reply->complete(device.failure);
  } else if (core_.is_aborting()) {
    abandon(transfer, slot, Errc::operation_aborted, "the device was aborted");
  } else {
    run_chunk(transfer, slot);
  }
  if (last) end_transfer(transfer);
  settle_transfer(transfer);
}

/// The slot is the caller's again once its reply is answered.
void Actor::run_chunk(Transfer& transfer, Transfer::Slot& slot) noexcept {
  ChunkOperation* operation = nullptr;
  try {
    operation = core_.make_here<ChunkOperation>(transfer.shared_from_this(), slot);
  } catch (const std::bad_alloc&) {
    return abandon(transfer, slot, Errc::out_of_memory, "no host memory");
  }
  operation->ticket = transfer.device.ticket;
  operation->resolve();
  try {
    run(*operation);
  } catch (const std::bad_alloc&) {
    const auto failure = make_failure(Errc::out_of_memory, "write", {}, "no host memory");
    claim_everything(operation->touches, failure);
    answer(*operation, failure);
  }
  // Earlier chunks are in their places: a refusal alone would say that the bytes are untouched.
  if (transfer.device.failure) mark_torn(transfer);
}

void Actor::abandon(Transfer& transfer, Transfer::Slot& slot, Errc code,
                    std::string_view message) noexcept {
  const auto failure = make_failure(code, "write", {}, message);
  core_.shared().report(failure, false);
  transfer.fail(failure);
  mark_torn(transfer);
  slot.reply->complete(failure);
}

namespace {

/// Stands in the journal for the end of a transfer that has written some of its bytes.
class TornMark final : public Operation {
public:
  explicit TornMark(Transfer& transfer) noexcept
      : Operation("write"), touch_{transfer.hold, transfer.range, Access::may_write} {
    touches = {&touch_, 1};
  }
  void accept(Actor& /*actor*/) override {}

private:
  Touch touch_;
};

}  // namespace

void Actor::mark_torn(Transfer& transfer) noexcept {
  try {
    auto* const mark = core_.make_here<TornMark>(transfer);
    try {
      journal_.note_claimed(*mark, transfer.device.doom);
    } catch (const std::bad_alloc&) {
      claim_everything(mark->touches, transfer.device.failure);
    }
    keep_mark(*mark);
  } catch (const std::bad_alloc&) {
    transfer.hold->device.taint.claim_all(transfer.device.failure);
  }
}

void Actor::settle_transfer(Transfer& transfer) noexcept {
  if (!transfer.device.failure) return;
  if (Transfer::Slot* const early = std::exchange(transfer.device.early, nullptr)) {
    early->reply->complete(transfer.device.failure);
  }
  end_transfer(transfer);
}

void Actor::end_transfer(Transfer& transfer) noexcept {
  if (std::exchange(transfer.device.state, Transfer::State::ended) != Transfer::State::open) return;
  Transfer** at = &transfers_;
  while (*at != &transfer) at = &(*at)->device.next;
  *at = transfer.device.next;
}

}  // namespace reprise::detail

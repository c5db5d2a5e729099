// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/transfer.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>

#include <algorithm>
#include <cstring>

namespace reprise::detail {

namespace {

// The device finds a chunk of this size in a cache; and the first one is not overlapped.
constexpr std::uint64_t most_chunk = std::uint64_t{1} << 20;

}  // namespace

Transfer::Transfer(std::shared_ptr<LogicalStream> stream, HoldRef target, ByteRange where)
    : logical(std::move(stream)), hold(std::move(target)), range(where) {
  for (Slot& slot : slots) {
    slot.run = [](ControlNode& node, void* actor) noexcept {
      auto& self = static_cast<Slot&>(node);
      const std::shared_ptr<Transfer> keep = std::move(self.transfer);
      if (actor != nullptr) {
        static_cast<Actor*>(actor)->take_chunk(*keep, self);
      } else {
        self.reply->complete(DeviceCore::closed_failure("write"));
      }
    };
  }
}

void Transfer::fill(Slot& slot, std::span<const std::byte> bytes, std::uint64_t from) noexcept {
  slot.offset = from;
  slot.bytes = std::min<std::uint64_t>(bytes.size() - from, slot.block.size());
  slot.last = from + slot.bytes == bytes.size();
  slot.reply.emplace();
  std::memcpy(slot.block.data(), bytes.data() + from, slot.bytes);
}

void Transfer::deliver(Slot& slot) noexcept {
  slot.transfer = shared_from_this();
  (void)logical->core->channel().post(slot);
}

void Transfer::fail(const FailurePtr& failure) noexcept {
  if (device.failure) return;
  device.failure = failure;
  device.doom = make_claim(ClaimKind::ran, failure);
}

// Every chunk may write the whole: what fails one of them leaves nothing of it to be read. Only the
// last one clears what the bytes carried before.
ChunkOperation::ChunkOperation(std::shared_ptr<Transfer> transfer, Transfer::Slot& slot) noexcept
    : Operation("write"), transfer_(std::move(transfer)),
      slot_(slot), touch_{transfer_->hold, transfer_->range,
                          slot.last ? Access::must_write : Access::may_write} {
  logical = transfer_->logical;
  touches = {&touch_, 1};
  finished = Completion(&*slot.reply);
}

void ChunkOperation::accept(Actor& actor) {
  actor.open_transfer(*this);
}

void ChunkOperation::left_behind(Actor& actor) noexcept {
  actor.settle_transfer(*transfer_);
}

void ChunkOperation::retired(Actor& actor) noexcept {
  actor.settle_transfer(*transfer_);
}

void ChunkOperation::resolve() noexcept {
  const std::uint64_t begin = transfer_->hold->device.address + transfer_->range.begin;
  command = command::Write{begin + slot_.offset, slot_.block.data(), slot_.bytes};
}

void write_in_chunks(const std::shared_ptr<LogicalStream>& stream, Touch target,
                     std::span<const std::byte> bytes) {
  DeviceCore& core = *stream->core;
  const std::uint64_t chunk = std::min(core.staging().max_block(), most_chunk);
  const auto transfer = std::make_shared<Transfer>(stream, std::move(target.hold), target.range);
  // Whoever has a ticket waits for no more staging: two transfers cannot wait for each other's.
  transfer->slots[0].block = core.take_staging(chunk);
  std::size_t slots = 1;
  if (auto second = core.staging().take(chunk)) {
    transfer->slots[1].block = std::move(*second);
    slots = 2;
  } else {
    REPRISE_MARK("write_without_overlap");
  }

  Transfer::Slot& first = transfer->slots[0];
  transfer->fill(first, bytes, 0);
  core.post_async(core.make<ChunkOperation>(0, transfer, first));
  // A closed device has answered already.
  if (first.reply->is_ready()) {
    if (FailurePtr failure = first.reply->wait(core.host())) {
      throw Failure(std::move(failure));
    }
  }
  std::uint64_t sent = first.bytes;
  for (std::size_t i = 1; sent < bytes.size(); ++i) {
    Transfer::Slot& slot = transfer->slots[i % slots];
    if (i >= slots) {
      core.channel().ring_bell();
      if (FailurePtr failure = slot.reply->wait(core.host())) {
        throw Failure(std::move(failure));
      }
    }
    transfer->fill(slot, bytes, sent);
    sent += slot.bytes;
    transfer->deliver(slot);
  }
}

}  // namespace reprise::detail

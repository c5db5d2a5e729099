// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>
#include <reprise/memory/staging.hpp>
#include <reprise/runtime/operation.hpp>
#include <reprise/runtime/reply_cell.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace reprise {
class Buffer;
class Client;
}  // namespace reprise

namespace reprise::detail {

class Actor;
struct Transfer;

/// Tells the caller that a chunk has been copied, or why not. It takes no offer of help: while the
/// chunk is copied its caller has the next one to fill.
class ChunkReply final : public Reply {
public:
  void complete(const FailurePtr& failure) noexcept override {
    failure_ = failure;
    word_.set();
  }
  bool is_ready() const noexcept { return word_.is_ready(); }
  /// Waits and answers the failure, null for success.
  FailurePtr wait(Host& host) noexcept {
    word_.wait(host, nullptr);
    return failure_;
  }

private:
  WaitWord word_;
  FailurePtr failure_;
};

/// One chunk of a transfer on its way: its node brings it to the device thread.
struct TransferSlot : ControlNode {
  std::shared_ptr<Transfer> transfer;  ///< While it is on the control lane.
  StagingBlock block;
  std::uint64_t offset = 0;  ///< In the whole.
  std::uint64_t bytes = 0;
  bool last = false;
  std::optional<ChunkReply> reply;
};

/// A host write that is larger than a staging block. It goes in chunks: the caller's thread fills
/// one block while the device copies another to its place. For everybody else it is one write, at
/// the place in the order where it took its ticket.
///
/// State        waiting: its ticket has not come up; open: some of its chunks are with the backend;
///              ended.
/// Transitions  waiting → open  the first chunk, which travels with the ticket, is accepted
///              open → ended    the last chunk is accepted, or one of them failed
///              waiting → ended the first chunk was refused
/// While it is open, a command that touches its bytes, or that is of its stream, is not accepted,
/// nor is anything behind that command. When it ends early, its bytes carry the failure as torn.
///
/// Lifetime  Shared by the caller, until it has handed over the last chunk, and the commands that
///           write its chunks.
/// Threads   `slots` go to and fro: the caller fills one and delivers it, and has it back when its
///           reply is ready. `device` is the device thread's. The rest does not change.
struct Transfer : std::enable_shared_from_this<Transfer> {
  using Slot = TransferSlot;
  enum class State : std::uint8_t { waiting, open, ended };
  struct Device {
    State state = State::waiting;
    std::uint64_t ticket = 0;
    FailurePtr failure;     ///< What one of its chunks met.
    ClaimPtr doom;          ///< The same, for chunks that the backend has already.
    Slot* early = nullptr;  ///< Delivered before the first one's turn.
    Transfer* next = nullptr;
  };

  Transfer(std::shared_ptr<LogicalStream> stream, HoldRef target, ByteRange where);
  /// The caller's: puts as many of `bytes` from `from` on as fit into the slot's block.
  void fill(Slot& slot, std::span<const std::byte> bytes, std::uint64_t from) noexcept;
  /// The caller's: sends a chunk behind the first one, which goes as an operation.
  void deliver(Slot& slot) noexcept;
  /// The device thread's: one of the chunks has failed.
  void fail(const FailurePtr& failure) noexcept;

  const std::shared_ptr<LogicalStream> logical;
  const HoldRef hold;
  const ByteRange range;
  Slot slots[2];
  Device device;
};

/// The write of one chunk. That of the first has the ticket, that of the last completes the whole.
class ChunkOperation final : public Operation {
public:
  ChunkOperation(std::shared_ptr<Transfer> transfer, Transfer::Slot& slot) noexcept;

  void accept(Actor& actor) override;
  void failed_with(const FailurePtr& failure) noexcept override { transfer_->fail(failure); }
  const Claim* doomed_by() const noexcept override { return transfer_->device.doom.get(); }
  void left_behind(Actor& actor) noexcept override;
  void retired(Actor& actor) noexcept override;

  Transfer& transfer() noexcept { return *transfer_; }
  /// Its address is known by now.
  void resolve() noexcept;

private:
  const std::shared_ptr<Transfer> transfer_;
  Transfer::Slot& slot_;
  Touch touch_;
};

/// Writes `bytes`, more than fit into a staging block, which are taken when this returns. Waits for
/// staging, and for chunks that the device has yet to copy. Throws Failure.
void write_in_chunks(const std::shared_ptr<LogicalStream>& stream, Touch target,
                     std::span<const std::byte> bytes);

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/transfer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace reprise::test {

/// Plays the caller of a write that is larger than a staging block, one chunk at a time.
class CallerByHand {
public:
  CallerByHand(const Client& client, const Array<float>& target, std::vector<float> values)
      : values_(std::move(values)), bytes_(std::as_bytes(std::span<const float>(values_))),
        core_(*detail::ClientAccess::stream(client)->core),
        transfer_(std::make_shared<detail::Transfer>(detail::ClientAccess::stream(client),
                                                     detail::BufferAccess::hold(target),
                                                     detail::BufferAccess::range(target))) {
    const std::uint64_t block = core_.staging().limit() / 4;
    for (auto& slot : transfer_->slots) slot.block = core_.take_staging(block);
    fill(0);
  }

  void post_first() {
    core_.post_async(core_.make<detail::ChunkOperation>(0, transfer_, transfer_->slots[0]));
  }
  /// Sends the next chunk, once its slot is free.
  void send_next() {
    ++chunk_;
    if (chunk_ >= 2) (void)wait(chunk_ - 2);
    fill(chunk_ % 2);
    transfer_->deliver(transfer_->slots[chunk_ % 2]);
  }
  void send_rest() {
    while (sent_ < bytes_.size()) send_next();
  }
  /// What became of a chunk, the last or last but one that was sent.
  FailurePtr wait(std::size_t chunk) {
    return transfer_->slots[chunk % 2].reply->wait(core_.host());
  }

private:
  void fill(std::size_t slot) {
    transfer_->fill(transfer_->slots[slot], bytes_, sent_);
    sent_ += transfer_->slots[slot].bytes;
  }

  const std::vector<float> values_;
  const std::span<const std::byte> bytes_;
  detail::DeviceCore& core_;
  const std::shared_ptr<detail::Transfer> transfer_;
  std::size_t chunk_ = 0;
  std::uint64_t sent_ = 0;
};

}  // namespace reprise::test

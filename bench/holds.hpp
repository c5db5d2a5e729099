// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>

#include <cstdint>
#include <memory>

namespace reprise::bench {

/// A record of ownership without memory and without a device.
inline HoldRef make_hold(std::uint64_t bytes) {
  struct Owner final : HoldOwner {
    void released(Hold& hold) noexcept override { hold.forget(); }
    void destroy(Hold& hold) noexcept override { delete &hold; }
  };
  static const std::shared_ptr<HoldOwner> owner = std::make_shared<Owner>();
  HoldRef hold(new Hold(owner, bytes));
  hold->device.state = Hold::Device::State::bound;
  return hold;
}

}  // namespace reprise::bench

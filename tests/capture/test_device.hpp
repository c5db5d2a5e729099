// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace reprise::test {

/// A device that only gives out holds: each at addresses of its own, given back at once.
class TestDevice {
public:
  HoldRef make(std::uint64_t size) {
    auto* hold = new Hold(book_, size);
    hold->device.state = Hold::Device::State::bound;
    hold->device.address = next_address_;
    next_address_ += align_up(size, 256) + 256;
    ++book_->made;
    return HoldRef{hold};
  }
  /// Allocations that somebody still owns.
  int live() const { return book_->made - book_->released_; }
  /// Records that somebody still names.
  int known() const { return book_->made - book_->destroyed; }

private:
  struct Book final : HoldOwner {
    void released(Hold& hold) noexcept override {
      ++released_;
      hold.forget();
    }
    void destroy(Hold& hold) noexcept override {
      ++destroyed;
      delete &hold;
    }
    std::atomic<int> made{0};
    std::atomic<int> released_{0};
    std::atomic<int> destroyed{0};
  };

  std::shared_ptr<Book> book_ = std::make_shared<Book>();
  std::uint64_t next_address_ = 0x10000;
};

}  // namespace reprise::test

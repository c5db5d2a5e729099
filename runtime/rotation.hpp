// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>
#include <reprise/capture/slots.hpp>
#include <reprise/runtime/output_lease.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace reprise::detail {

/// The copies of each slot of one graph, the recorded bytes first: which is the newest, and which
/// nobody may overwrite. A slot that does not rotate has one.
///
/// Threads   The device thread's, in the order of tickets; rotates() and leases() are any thread's.
class Rotation {
public:
  struct Copy {
    HoldRef hold;
    ByteRange range;
  };

  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// Throws std::bad_alloc.
  explicit Rotation(const SlotTable& table);

  /// Whether some slot has more copies than the recorded one.
  bool rotates() const noexcept { return rotates_; }
  bool rotates(std::uint32_t slot) const noexcept { return slots_[slot].count > 1; }
  std::uint32_t leases() const noexcept { return book_->total(); }

  /// What the last replay wrote or the last refresh filled.
  std::uint32_t newest(std::uint32_t slot) const noexcept { return slots_[slot].newest; }
  const Copy& copy(std::uint32_t slot, std::uint32_t number) const noexcept {
    return copies_[slots_[slot].first + number];
  }
  /// The number of the next copy that nobody leases and that `fits(copy)`; the present newest is
  /// the last that is asked. `none`: there is none.
  template <class Fits>
  std::uint32_t next_free(std::uint32_t slot, Fits&& fits) const noexcept {
    const Slot& at = slots_[slot];
    for (std::uint32_t step = 1; step <= at.count; ++step) {
      const std::uint32_t next = (at.newest + step) % at.count;
      if (!is_leased(slot, next) && fits(copy(slot, next))) return next;
    }
    return none;
  }
  void set_newest(std::uint32_t slot, std::uint32_t number) noexcept {
    slots_[slot].newest = number;
  }

  bool is_leased(std::uint32_t slot, std::uint32_t number) const noexcept {
    return book_->is_leased(slots_[slot].first + number);
  }
  /// Whether some of `range` is part of a leased copy.
  bool is_leased(const Hold& hold, ByteRange range) const noexcept;
  /// Leases the newest copy.
  OutputLease lease(std::uint32_t slot) noexcept;

  /// Whether a lease kept the newest contents of `slot` from being written: what its newest copy
  /// holds is older.
  bool is_missed(std::uint32_t slot) const noexcept { return slots_[slot].is_missed; }
  void set_missed(std::uint32_t slot, bool missed) noexcept;
  /// False: no slot is leased or missed.
  bool is_disturbed() const noexcept { return missed_ != 0 || book_->total() != 0; }

private:
  struct Slot {
    std::uint32_t first = 0;  // Of its copies.
    std::uint32_t count = 1;
    std::uint32_t newest = 0;
    bool is_missed = false;
  };

  std::vector<Slot> slots_;
  std::vector<Copy> copies_;
  std::shared_ptr<LeaseBook> book_;
  std::uint32_t missed_ = 0;  // How many slots are.
  bool rotates_ = false;
};

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/rotation.hpp>

namespace reprise::detail {

Rotation::Rotation(const SlotTable& table) {
  for (const RecordedSlot& slot : table.slots()) {
    const auto first = static_cast<std::uint32_t>(copies_.size());
    copies_.push_back({slot.hold, slot.range});
    for (const HoldRef& copy : slot.copies) copies_.push_back({copy, {0, copy->size()}});
    slots_.push_back({first, static_cast<std::uint32_t>(copies_.size()) - first});
    rotates_ |= !slot.copies.empty();
  }
  book_ = std::make_shared<LeaseBook>(copies_.size());
}

bool Rotation::is_leased(const Hold& hold, ByteRange range) const noexcept {
  if (book_->total() == 0) return false;
  for (std::uint32_t i = 0; i < copies_.size(); ++i) {
    const Copy& copy = copies_[i];
    if (copy.hold.get() == &hold && copy.range.overlaps(range) && book_->is_leased(i)) return true;
  }
  return false;
}

OutputLease Rotation::lease(std::uint32_t slot) noexcept {
  const std::uint32_t copy = slots_[slot].first + slots_[slot].newest;
  const Copy& leased = copies_[copy];
  book_->take(copy);
  return OutputLease{BufferAccess::make(leased.hold, leased.range.begin, leased.range.size()),
                     book_, copy};
}

void Rotation::set_missed(std::uint32_t slot, bool missed) noexcept {
  bool& at = slots_[slot].is_missed;
  missed_ += static_cast<std::uint32_t>(missed) - static_cast<std::uint32_t>(at);
  at = missed;
}

}  // namespace reprise::detail

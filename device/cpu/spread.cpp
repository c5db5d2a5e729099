// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/spread.hpp>

namespace reprise::detail {

std::uint32_t Spread::root_of(std::span<const NodeTouch> touches) const noexcept {
  for (const NodeTouch& touch : touches) {
    if (!reads(touch.access)) continue;
    for (const Spoiled& spoiled : spoiled_) {
      if (spoiled.bytes.overlaps(touch.addresses)) return spoiled.root;
    }
  }
  return clean;
}

void Spread::spoil(std::span<const NodeTouch> touches, std::uint32_t root) {
  for (const NodeTouch& touch : touches) {
    if (!may_write(touch.access) || touch.addresses.empty()) continue;
    clear(touch.addresses);
    spoiled_.push_back({touch.addresses, root});
  }
}

void Spread::mend(std::span<const NodeTouch> touches) {
  for (const NodeTouch& touch : touches) {
    if (must_write(touch.access)) clear(touch.addresses);
  }
}

void Spread::clear(ByteRange bytes) {
  for (std::size_t i = 0; i < spoiled_.size();) {
    const Spoiled found = spoiled_[i];
    if (!found.bytes.overlaps(bytes)) {
      ++i;
      continue;
    }
    spoiled_[i] = spoiled_.back();
    spoiled_.pop_back();
    const ByteRange before{found.bytes.begin, bytes.begin};
    const ByteRange after{bytes.end, found.bytes.end};
    if (!before.empty()) spoiled_.push_back({before, found.root});
    if (!after.empty()) spoiled_.push_back({after, found.root});
  }
}

}  // namespace reprise::detail

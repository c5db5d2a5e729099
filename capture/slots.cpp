// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>
#include <variant>

namespace reprise::detail {

namespace {

/// What a host call does with its bytes nobody knows, and the addresses in a child graph are fixed.
bool is_opaque(const Command& command) noexcept {
  return std::holds_alternative<command::HostCall>(command) ||
         std::holds_alternative<command::RunGraph>(command);
}

bool meet(ByteRange a, ByteRange b) noexcept {
  return !a.empty() && !b.empty() && a.overlaps(b);
}

}  // namespace

Result<void> SlotTable::add_node(const Command& command, std::uint32_t index,
                                 std::span<const Touch> touches) {
  bool in_slots = false;
  for (const Touch& touch : touches) {
    bool outside = true;
    for (RecordedSlot& slot : slots_) {
      if (slot.hold != touch.hold || !meet(slot.range, touch.range)) continue;
      if (!slot.range.contains(touch.range)) {
        return Error{Errc::slot_overlap, 0, "a node names bytes inside and outside of a slot"};
      }
      outside = false;
      slot.access = slot.access | touch.access;
      slot.is_opaque |= is_opaque(command);
    }
    if (outside && !touch.range.empty()) fixed_.push_back({touch.hold.get(), touch.range});
    in_slots |= !outside;
  }
  if (!in_slots) return {};
  if (const auto* copy = std::get_if<command::Copy>(&command)) {
    add_patch(index, 0, copy->to, copy->bytes, 1);
    add_patch(index, 1, copy->from, copy->bytes, 1);
  } else if (const auto* fill = std::get_if<command::Fill>(&command)) {
    add_patch(index, 0, fill->to, fill->bytes, fill->pattern_bytes);
  } else if (const auto* write = std::get_if<command::Write>(&command)) {
    add_patch(index, 0, write->to, write->bytes, 1);
  } else {
    add_launch(command, index);
  }
  return {};
}

void SlotTable::add_launch(const Command& command, std::uint32_t index) {
  const auto* const launch = std::get_if<command::Launch>(&command);
  if (launch == nullptr) return;
  for (const KernelParameter& parameter : launch->kernel->parameters) {
    if (!parameter.is_buffer) continue;
    BufferSlot argument;
    std::memcpy(&argument, launch->arguments + parameter.offset, sizeof argument);
    static_assert(offsetof(BufferSlot, data) == 0);
    add_patch(index, parameter.offset, reinterpret_cast<std::uintptr_t>(argument.data),
              argument.count * parameter.element_size, parameter.element_alignment);
  }
  if (launch->count != 0) add_patch(index, PlanPatch::count, launch->count, 4, 4);
}

/// Addresses of live allocations tell them apart.
void SlotTable::add_patch(std::uint32_t node, std::uint32_t at, std::uint64_t address,
                          std::uint64_t bytes, std::uint32_t alignment) {
  for (std::uint32_t i = 0; i < slots_.size() && bytes != 0; ++i) {
    RecordedSlot& slot = slots_[i];
    const std::uint64_t base = slot.hold->device.address;
    const ByteRange addresses{base + slot.range.begin, base + slot.range.end};
    if (!addresses.contains({address, address + bytes})) continue;
    patches_.push_back({node, i, at, address - addresses.begin});
    slot.alignment = std::max(slot.alignment, alignment);
  }
}

void SlotTable::finish(std::span<const Touch> inputs) {
  for (RecordedSlot& slot : slots_) {
    slot.is_input = std::any_of(inputs.begin(), inputs.end(), [&slot](const Touch& input) {
      return input.hold == slot.hold && meet(input.range, slot.range);
    });
  }
  std::sort(fixed_.begin(), fixed_.end(), [](const Fixed& a, const Fixed& b) {
    if (a.hold != b.hold) return std::less<const Hold*>{}(a.hold, b.hold);
    return a.range.begin < b.range.begin;
  });
  std::size_t kept = 0;
  for (const Fixed& next : fixed_) {
    if (kept != 0 && fixed_[kept - 1].hold == next.hold &&
        fixed_[kept - 1].range.end >= next.range.begin) {
      fixed_[kept - 1].range.end = std::max(fixed_[kept - 1].range.end, next.range.end);
    } else {
      fixed_[kept++] = next;
    }
  }
  fixed_.resize(kept);
  fixed_.shrink_to_fit();
}

/// A copy holds what was written last, whole, or nothing that anybody asks for.
Result<void> SlotTable::check_copies(std::span<const Touch> must_write) const noexcept {
  for (const RecordedSlot& slot : slots_) {
    if (slot.copies.empty()) continue;
    if (slot.is_opaque) {
      return Error{Errc::unsupported, 0, "a slot that a host call or a graph uses cannot rotate"};
    }
    if (!may_write(slot.access)) continue;
    const bool whole = std::any_of(must_write.begin(), must_write.end(), [&](const Touch& touch) {
      return touch.hold == slot.hold && touch.range.contains(slot.range);
    });
    if (slot.is_input || !whole) {
      return Error{Errc::invalid_argument, 0,
                   "a slot that rotates is only read, or only written and whole"};
    }
  }
  return {};
}

std::uint32_t SlotTable::find(std::string_view name) const noexcept {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].name == name) return i;
  }
  return none;
}

std::uint32_t SlotTable::slot_of(const Hold& hold, ByteRange range) const noexcept {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].hold.get() == &hold && slots_[i].range.contains(range)) return i;
  }
  return none;
}

bool SlotTable::overlaps_fixed(const Hold& hold, ByteRange range) const noexcept {
  if (range.empty()) return false;
  // The first that ends behind the beginning of `range`.
  const auto at = std::partition_point(fixed_.begin(), fixed_.end(), [&](const Fixed& fixed) {
    if (fixed.hold != &hold) return std::less<const Hold*>{}(fixed.hold, &hold);
    return fixed.range.end <= range.begin;
  });
  return at != fixed_.end() && at->hold == &hold && at->range.begin < range.end;
}

std::vector<SlotTouch> SlotTable::split(std::span<const Touch> touches) const {
  std::vector<SlotTouch> parts;
  std::vector<std::pair<ByteRange, std::uint32_t>> cuts;
  for (const Touch& touch : touches) {
    cuts.clear();
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].hold != touch.hold || !meet(slots_[i].range, touch.range)) continue;
      cuts.emplace_back(slots_[i].range.intersect(touch.range), i);
    }
    std::sort(cuts.begin(), cuts.end(),
              [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
    std::uint64_t at = touch.range.begin;
    const auto add = [&](std::uint64_t end, std::uint32_t slot) {
      if (at < end) parts.push_back({{touch.hold, {at, end}, touch.access}, slot});
      at = end;
    };
    for (const auto& [range, slot] : cuts) {
      add(range.begin, none);
      add(range.end, slot);
    }
    add(touch.range.end, none);
  }
  return parts;
}

}  // namespace reprise::detail

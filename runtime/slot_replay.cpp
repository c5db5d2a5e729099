// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/slot_replay.hpp>

#include <reprise/runtime/actor.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace reprise::detail {

// ---- SlotReplay --------------------------------------------------------------------------------

bool SlotReplay::is_refused(Actor& actor) noexcept {
  if (refusal_ == Errc{}) return false;
  if (refusal_ == Errc::lease_held) {
    add_one(graph_->lease_held);
    actor.refuse(*this, refusal_, "an output is leased and no copy of it is free");
  } else {
    actor.answer(*this, make_failure(refusal_, verb, name(),
                                     "a buffer that is bound to one slot is a copy of another"));
  }
  return true;
}

bool SlotReplay::is_output(std::uint32_t slot) const noexcept {
  return may_write(graph_->recording->slots().slots()[slot].access);
}

// ---- RecordedReplay ----------------------------------------------------------------------------

/// Nothing may write what is leased, not even the mark that it was not written.
void RecordedReplay::settle(Actor& /*actor*/) noexcept {
  Rotation& rotation = *graph_->rotation;
  if (!rotation.is_disturbed()) return;
  const auto is_leased = [&](std::uint32_t slot) {
    return slot != SlotTable::none && is_output(slot) && rotation.is_leased(slot, 0);
  };
  const auto slots = static_cast<std::uint32_t>(graph_->recording->slots().slots().size());
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    if (is_leased(slot)) refusal_ = Errc::lease_held;
    if (is_output(slot)) rotation.set_missed(slot, is_leased(slot));
  }
  if (refusal_ == Errc{}) return;
  try {
    for (const SlotTouch& part : graph_->parts) {
      if (!is_leased(part.slot)) unleased_.push_back(part.touch);
    }
    touches = unleased_;
  } catch (const std::bad_alloc&) {
    // Then what is leased carries the mark, too: rather that than anything that lacks it.
  }
}

void RecordedReplay::accept(Actor& actor) {
  if (is_refused(actor)) return;
  ReplayOperation::accept(actor);
}

// ---- BoundReplay -------------------------------------------------------------------------------

BoundReplay::~BoundReplay() {
  std::destroy(parts_.begin(), parts_.end());
  std::destroy(places_.begin(), places_.end());
}

std::size_t BoundReplay::extra_bytes(const GraphState& graph) noexcept {
  return graph.parts.size() * sizeof(Touch) +
         graph.recording->slots().slots().size() * (sizeof(Place) + sizeof(std::uint64_t));
}

void BoundReplay::lay_out(std::byte* extra) noexcept {
  const std::span<const RecordedSlot> slots = graph_->recording->slots().slots();
  parts_ = {reinterpret_cast<Touch*>(extra), graph_->parts.size()};
  std::uninitialized_value_construct(parts_.begin(), parts_.end());
  extra += parts_.size_bytes();
  places_ = {reinterpret_cast<Place*>(extra), slots.size()};
  std::uninitialized_value_construct(places_.begin(), places_.end());
  extra += places_.size_bytes();
  addresses_ = {reinterpret_cast<std::uint64_t*>(extra), slots.size()};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    places_[i].hold = slots[i].hold;
    places_[i].range = slots[i].range;
  }
  touches = parts_;
}

void BoundReplay::place_touches() noexcept {
  const std::span<const RecordedSlot> slots = graph_->recording->slots().slots();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const SlotTouch& part = graph_->parts[i];
    if (part.slot == SlotTable::none) {
      parts_[i] = part.touch;
      continue;
    }
    const Place& place = places_[part.slot];
    const ByteRange range = part.moved_to(place.range.begin, slots[part.slot]);
    parts_[i] = {place.hold, place.untouched ? ByteRange{} : range, part.touch.access};
  }
}

bool BoundReplay::meets_chosen(const Rotation::Copy& copy) const noexcept {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.chosen && place.hold == copy.hold && !place.range.empty() &&
           place.range.overlaps(copy.range);
  });
}

bool BoundReplay::rotates(std::uint32_t slot) const noexcept {
  return !places_[slot].chosen && graph_->rotation->rotates(slot);
}

/// The newest copy of an input, the next free one of an output.
void BoundReplay::choose_copy(std::uint32_t slot) noexcept {
  const Rotation& rotation = *graph_->rotation;
  Place& place = places_[slot];
  bool met = false;
  const auto fits = [&](const Rotation::Copy& copy) {
    const bool meets = meets_chosen(copy);
    met |= meets;
    return !meets;
  };
  if (is_output(slot)) {
    place.copy = rotation.next_free(slot, fits);
  } else {
    const std::uint32_t newest = rotation.newest(slot);
    place.copy = fits(rotation.copy(slot, newest)) ? newest : Rotation::none;
  }
  if (place.copy == Rotation::none) {
    refusal_ = met ? Errc::slot_overlap : Errc::lease_held;
    return;
  }
  const Rotation::Copy& copy = rotation.copy(slot, place.copy);
  place.hold = copy.hold;
  place.range = copy.range;
  place.bound = place.copy != 0;
}

/// All outputs that rotate move on, or none does; what is leased stays as it is.
void BoundReplay::settle_output(std::uint32_t slot) noexcept {
  Rotation& rotation = *graph_->rotation;
  Place& place = places_[slot];
  if (refusal_ == Errc{}) {
    if (rotates(slot)) rotation.set_newest(slot, place.copy);
    if (!place.chosen) rotation.set_missed(slot, false);
    return;
  }
  place.untouched |= rotates(slot);
  if (refusal_ == Errc::lease_held && !place.chosen) rotation.set_missed(slot, place.untouched);
}

void BoundReplay::settle(Actor& /*actor*/) noexcept {
  const Rotation& rotation = *graph_->rotation;
  if (!rotation.rotates() && !rotation.is_disturbed()) return;
  const auto count = static_cast<std::uint32_t>(places_.size());
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    Place& place = places_[slot];
    if (!is_output(slot) || rotates(slot)) continue;
    place.untouched = rotation.is_leased(*place.hold, place.range);
    if (place.untouched) refusal_ = Errc::lease_held;
  }
  for (std::uint32_t slot = 0; slot < count && refusal_ == Errc{}; ++slot) {
    if (rotates(slot)) choose_copy(slot);
  }
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    if (is_output(slot)) settle_output(slot);
  }
  place_touches();
}

void BoundReplay::was_accepted(Actor& actor) noexcept {
  ReplayOperation::was_accepted(actor);
  const auto chosen = [](const Place& place) { return place.chosen; };
  if (std::any_of(places_.begin(), places_.end(), chosen)) add_one(graph_->bound);
}

void BoundReplay::accept(Actor& actor) {
  if (is_refused(actor)) return;
  if (graph_->recording->node_count() == 0) return actor.done(*this);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    addresses_[i] = places_[i].hold->device.address + places_[i].range.begin;
  }
  command = command::RunGraph{graph_->program.get(), addresses_.data()};
  actor.run(*this);
}

/// A slot that is not bound is what it is in a plain replay.
std::uint64_t BoundReplay::owner_of(std::uint32_t slot) const noexcept {
  if (slot == SlotTable::none || !places_[slot].bound) return owner();
  return graph_->recording->slots().slots()[slot].owner;
}

std::uint64_t BoundReplay::owner_of(const Touch& touch) const noexcept {
  return owner_of(graph_->parts[static_cast<std::size_t>(&touch - touches.data())].slot);
}

ReplayOperation::Located BoundReplay::locate(const Touch& touch) const noexcept {
  const SlotTable& table = graph_->recording->slots();
  const std::uint32_t slot = table.slot_of(*touch.hold, touch.range);
  if (slot == SlotTable::none) return {*touch.hold, touch.range, owner()};
  const Place& place = places_[slot];
  return {*place.hold, SlotTouch{touch, slot}.moved_to(place.range.begin, table.slots()[slot]),
          owner_of(slot)};
}

// ---- bindings ----------------------------------------------------------------------------------

namespace {

using Place = BoundReplay::Place;

std::string quoted(std::string_view name) {
  return "slot '" + std::string(name) + "'";
}

/// What can be told of one binding without the others.
void check_binding(const GraphState& graph, const Binding& binding, const RecordedSlot& slot,
                   const char* verb) {
  const HoldRef& hold = BufferAccess::hold(binding.buffer);
  const auto fail = [&](Errc code, const std::string& what) {
    throw Failure(code, verb, quoted(slot.name) + ' ' + what);
  };
  if (!hold) fail(Errc::empty_handle, "is bound to an empty buffer");
  if (hold->owner() != graph.logical->core.get()) {
    fail(Errc::wrong_device,
         "is bound to a buffer of another device than '" + graph.logical->core->name() + "'");
  }
  if (binding.buffer.size_bytes() != slot.range.size()) {
    fail(Errc::size_mismatch, "takes " + std::to_string(slot.range.size()) + " bytes, not " +
                                  std::to_string(binding.buffer.size_bytes()));
  }
  if (slot.element != nullptr && binding.element != nullptr && *slot.element != *binding.element) {
    fail(Errc::invalid_argument, "has elements of another type");
  }
  if (BufferAccess::range(binding.buffer).begin % slot.alignment != 0) {
    fail(Errc::misaligned, "needs an alignment of " + std::to_string(slot.alignment));
  }
  if (slot.is_opaque) {
    fail(Errc::unsupported, "is used by a node that cannot be told other addresses");
  }
}

/// What was disjoint when it was recorded stays so. Which copy of a slot that rotates a binding is
/// to stay apart from turns out when the replay's ticket is served.
void check_disjoint(const GraphState& graph, std::span<const Place> places, const char* verb) {
  const SlotTable& table = graph.recording->slots();
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    if (!place.chosen || place.range.empty()) continue;
    const auto fail = [&](const std::string& what) {
      throw Failure(Errc::slot_overlap, verb,
                    quoted(table.slots()[i].name) + " is bound to bytes of " + what);
    };
    if (table.overlaps_fixed(*place.hold, place.range)) fail("the graph itself");
    for (std::uint32_t other = 0; other < places.size(); ++other) {
      const Place& at = places[other];
      if (other == i || at.hold != place.hold || at.range.empty()) continue;
      if (!at.chosen && graph.rotation->rotates(other)) continue;
      if (at.range.overlaps(place.range)) fail(quoted(table.slots()[other].name));
    }
  }
}

}  // namespace

void bind_places(const GraphState& graph, BindingView bindings, const char* verb,
                 std::span<Place> places) {
  const SlotTable& table = graph.recording->slots();
  for (const Binding& binding : bindings) {
    const std::uint32_t slot = table.find(binding.slot);
    if (slot == SlotTable::none) {
      throw Failure(Errc::no_such_slot, verb, "the graph has no " + quoted(binding.slot));
    }
    Place& place = places[slot];
    const RecordedSlot& recorded = table.slots()[slot];
    if (place.chosen) {
      throw Failure(Errc::invalid_argument, verb, quoted(binding.slot) + " is bound twice");
    }
    check_binding(graph, binding, recorded, verb);
    place.hold = BufferAccess::hold(binding.buffer);
    place.range = BufferAccess::range(binding.buffer);
    place.chosen = true;
    // Bound to what was recorded is not bound, to the rules of claims.
    place.bound = place.hold != recorded.hold || place.range != recorded.range;
  }
  check_disjoint(graph, places, verb);
}

}  // namespace reprise::detail

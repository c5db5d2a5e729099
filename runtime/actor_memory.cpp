// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>

#include <reprise/runtime/client.hpp>
#include <reprise/runtime/event_state.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/window.hpp>

#include <new>

namespace reprise::detail {

// What a device does with memory and streams: bind holds, take them back, answer questions.

bool Actor::find_memory(Operation& operation, std::span<const HoldRef> holds) {
  FailurePtr failure;
  for (const HoldRef& hold : holds) {
    if (!bind(operation, *hold, failure)) break;
  }
  if (!failure) return true;
  add_one(core_.counters().refused);
  core_.shared().report(failure, false);
  if (Window* const window = window_of(operation)) window->capture.fail(failure);
  answer(operation, failure);
  return false;
}

bool Actor::bind(const Operation& operation, Hold& hold, FailurePtr& failure) {
  Hold::Device& device = hold.device;
  if (hold.size() != 0) {
    const LogicalStream* const logical = operation.logical.get();
    const PoolRequest request{.bytes = hold.size(),
                              .alignment = backend_.properties().alignment,
                              .stream = logical ? logical->device.home : 0,
                              .pages = page_update(operation)};
    const auto finished = [this](StreamPoint point) { return is_finished(point); };
    const auto allocate = [&] {
      return tracer_ == nullptr
                 ? pool_.allocate(request, finished)
                 : tracer_->allocate(pool_, request, logical ? logical->id : 0, finished);
    };
    auto grant = allocate();
    // What was dropped before this was asked for may lie on the control lane still.
    while (!grant && grant.error().code != Errc::never_fits && serve_control()) {
      REPRISE_MARK("memory_from_control_lane");
      grant = allocate();
    }
    if (!grant) {
      failure = make_failure(grant.error().code, operation.verb, {},
                             std::to_string(hold.size()) + " bytes: " + grant.error().message);
      return false;
    }
    device.block = grant->block;
    device.block->note_owner(&hold);
    device.address = device.block->address();
    // Whoever writes first is ordered behind what earlier owners may still be doing.
    device.uses.ready({0, hold.size()});
    for (const StreamPoint point : device.block->earlier()) {
      device.uses.note_read({0, hold.size()}, {point, nullptr});
    }
  }
  device.state = Hold::Device::State::bound;
  // In the warm-up work executes, and may well have written it.
  if (Window* const window = window_of(operation); window != nullptr && window->is_recording()) {
    window->created(hold);
  }
  return true;
}

void Actor::give_back(Hold& hold) noexcept {
  Hold::Device& device = hold.device;
  if (device.block == nullptr) return;
  Frontier last;
  try {
    device.uses.all(last);
  } catch (const std::bad_alloc&) {
    device.block->note_owner(nullptr);
    return;  // Better lost than reused too early.
  }
  last.prune([this](StreamPoint point) { return is_finished(point); });
  PoolBlock* const block = std::exchange(device.block, nullptr);
  if (tracer_ == nullptr) {
    pool_.release(block, last);
  } else {
    tracer_->release(pool_, block, last);
  }
}

Frontier Actor::everything() const {
  Frontier points;
  for (StreamIndex i = 0; i < lanes_.size(); ++i) {
    if ((busy_ >> i & 1) != 0 && !points.add({i, lanes_[i].enqueued})) throw std::bad_alloc();
  }
  return points;
}

void Actor::synchronize(Operation& operation) {
  if (is_recording(operation)) {
    return answer(operation, make_failure(Errc::capture_refused, operation.verb, {},
                                          "a recording stream cannot be waited for"));
  }
  run_after(operation, Frontier{operation.logical->device.last});
}

void Actor::record_event(Operation& operation, std::shared_ptr<EventState> event) {
  LogicalStream::Device& stream = operation.logical->device;
  const bool recording = is_recording(operation);
  event->point = stream.last;
  event->failure = stream.failure;
  event->stream = recording ? window_of(operation)->logical.id : 0;
  if (stream.newest != nullptr) {
    event->next = std::exchange(stream.newest->events, event);
  }
  if (event->timing && !recording) {
    // The marker is no command of the user's: events to come still stand behind the one before it.
    Operation* const newest = stream.newest;
    const FailurePtr failure = stream.failure;
    run_after(operation, Frontier{stream.last});  // which may end the operation
    stream.newest = newest;
    stream.failure = failure;
    event->point = stream.last;
    event->recorded.store(true, std::memory_order_release);
    return;
  }
  event->recorded.store(true, std::memory_order_release);
  done(operation);
}

void Actor::wait_event(Operation& operation, const EventState& event) {
  if (is_recording(operation)) {
    // Inside a window the recorded order holds; a point outside would be frozen into the graph.
    if (event.stream == window_of(operation)->logical.id) return done(operation);
    return refuse(operation, Errc::capture_refused, "waits for an event from outside its window");
  }
  wait_for(operation, event.point);
}

void Actor::wait_for(Operation& operation, StreamPoint point) {
  Frontier points{operation.logical->device.last};
  if (!points.add(point)) throw std::bad_alloc();
  points.prune([this](StreamPoint one) { return is_finished(one); });
  if (points.empty()) return done(operation);
  run_after(operation, points);
}

/// Whether it is finished, or whoever waits for it has been told that it is: a worker answers a
/// little before its stream moves on.
bool Actor::is_answered(StreamPoint point) const noexcept {
  if (is_finished(point)) return true;
  const Operation* at = lanes_[point.stream].first;
  while (at != nullptr && at->position < point.position) at = at->behind;
  // Acquire: the partner is finish().
  return at != nullptr && at->answered.load(std::memory_order_acquire);
}

Health Actor::health(std::span<const Touch> touches) {
  retire();
  Health health = Health::clean;
  for (const Touch& touch : touches) {
    if (touch.hold->device.taint.first(touch.range) != nullptr) return Health::failed;
    Frontier writers;
    touch.hold->device.uses.before_read(touch.range, writers);
    writers.prune([this](StreamPoint point) { return is_answered(point); });
    if (!writers.empty()) health = Health::pending;
  }
  return health;
}

std::uint64_t Actor::trim() noexcept {
  retire();
  // Pages that a window may have touched stay as they are until it closes.
  if (core_.captures().status().any_recording()) return 0;
  const std::uint64_t bytes = pool_.trim([this](StreamPoint point) { return is_finished(point); });
  if (tracer_ != nullptr) tracer_->note_trim(bytes);
  return bytes;
}

}  // namespace reprise::detail

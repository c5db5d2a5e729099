// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>

#include <reprise/runtime/window.hpp>

#include <algorithm>
#include <new>

namespace reprise::detail {

// How a command becomes work: may it run, what does it come after, which backend stream takes it,
// and what is known of its bytes from then on.

namespace {

void answer_on_success(Work& work) noexcept {
  auto& operation = static_cast<Operation&>(work);
  operation.finish(nullptr);
}

}  // namespace

const Hold* Actor::failed_memory(const Operation& operation) noexcept {
  for (const Touch& touch : operation.touches) {
    if (touch.hold->device.state != Hold::Device::State::bound) return touch.hold.get();
  }
  return nullptr;
}

void Actor::run(Operation& operation) {
  if (Window* const window = window_of(operation); window != nullptr && window->is_recording()) {
    return record(operation, *window);
  }
  if (const Hold* hold = failed_memory(operation)) {
    return refuse(operation,
                  make_failure(hold->device.failure->code, operation.verb, operation.name(),
                               "its memory was never there", hold->device.failure));
  }
  if (auto valid = validate(operation.command, backend_.properties().limits); !valid) {
    return refuse(operation, valid.error().code, valid.error().message);
  }
  if (const Claim* claim = Journal::first_claim(operation)) return skip(operation, *claim);
  find_waits(operation);
  enqueue(operation);
}

void Actor::replay(Operation& operation, ReplayOrder& order) {
  if (!order.is_clean_at(core_.taint_changes())) {
    if (const Claim* claim = Journal::first_claim(operation)) return skip(operation, *claim);
  }
  if (!operation.waits_for.add(operation.logical->device.last)) throw std::bad_alloc();
  order.plan(recent_, operation.waits_for);
  operation.replay = &order;
  enqueue(operation);
}

void Actor::run_after(Operation& operation, const Frontier& points) {
  if (!operation.waits_for.copy_from(points)) throw std::bad_alloc();
  enqueue(operation);
}

void Actor::find_waits(Operation& operation) {
  Frontier& waits = operation.waits_for;
  if (operation.logical && !waits.add(operation.logical->device.last)) throw std::bad_alloc();
  for (const Touch& touch : operation.touches) {
    UseMap& uses = touch.hold->device.uses;
    if (may_write(touch.access)) {
      uses.before_write(touch.range, waits);
    } else {
      uses.before_read(touch.range, waits);
    }
    uses.ready(touch.range);
  }
}

void Actor::adopt(LogicalStream& logical) noexcept {
  logical.device.adopted = true;
  logical.device.home = next_home_;
  next_home_ = (next_home_ + 1) % static_cast<StreamIndex>(lanes_.size());
}

/// A command follows its youngest unfinished dependency if nothing came behind that yet, so that no
/// wait between streams is needed; else it goes to the home of its logical stream.
StreamIndex Actor::place(Operation& operation) noexcept {
  operation.waits_for.prune([this](StreamPoint point) { return is_finished(point); });
  const StreamIndex home = operation.logical ? operation.logical->device.home : 0;
  StreamIndex chosen = home;
  bool at_home = false;
  for (const StreamPoint point : operation.waits_for) {
    if (point.stream == home) at_home = true;
  }
  if (!at_home) {
    for (const StreamPoint point : operation.waits_for) {
      if (lanes_[point.stream].enqueued == point.position) chosen = point.stream;
    }
  }
  operation.waits_for.forget(chosen);
  return chosen;
}

void Actor::enqueue(Operation& operation) {
  const StreamIndex at = place(operation);
  for (const StreamPoint point : operation.waits_for) {
    if (lanes_[at].waited_for[point.stream] >= point.position) {
      add_one(core_.counters().waits_elided);
    } else if (!REPRISE_PLANT(13)) {
      // Caught by "random work on a seeded device gives what a sequential model gives".
      operation.wait_points.push_back(point);
    }
  }
  operation.waits = {operation.wait_points.data(), operation.wait_points.size()};
  operation.succeeded = operation.finished ? &answer_on_success : nullptr;
  const bool help_offered =
      core_.helper() != nullptr && operation.finished && operation.finished.get()->offer_help(at);
  if (help_offered) helped_ = at;
  answered_caller_ = operation.accepted && operation.accepted.get()->has_blocked_caller();
  caller_is_near_ |= answered_caller_;

  if (auto taken = backend_.enqueue(at, operation); !taken) {
    const Error& error = taken.error();
    FailureRecord record;
    record.code = error.code;
    record.native_code = error.native_code;
    record.verb = operation.verb;
    record.node = operation.name();
    record.message = error.message;
    record.where = operation.where;
    return refuse(operation, make_failure(std::move(record)));
  }
  Lane& lane = lanes_[at];
  for (const StreamPoint point : operation.wait_points) {
    lane.waited_for[point.stream] = point.position;
    add_one(core_.counters().waits_made);
  }
  lane.enqueued = operation.position;
  (lane.last ? lane.last->behind : lane.first) = &operation;
  lane.last = &operation;
  busy_ |= std::uint64_t{1} << at;
  ++in_flight_;
  ++unkicked_;
  operation.enqueued = true;
  const StreamPoint point{at, operation.position};
  if (help_offered) help_until_ = point;
  note_outcome(operation, nullptr);
  if (operation.logical) {
    operation.logical->device.last = point;
    if (!is_transparent(operation)) operation.logical->device.newest = &operation;
  }
  // The caller may go on: what it does next comes behind what follows.
  operation.was_accepted(*this);
  operation.accepted(nullptr);
  note_uses(operation, point);
  journal_.append(operation);
  note_written(operation);
  let_go(operation);
}

/// What nobody else owns goes back to the pool now: the uses that were noted say when the command
/// will be done with it.
void Actor::let_go(Operation& operation) noexcept {
  for (const Touch& touch : operation.own_touches) {
    // Foreign memory has no such books; whoever lent it is told when its users are done.
    if (touch.hold->device.block == nullptr) return;
  }
  operation.let_go = true;
  for (const Touch& touch : operation.own_touches) {
    ++touch.hold->device.queued;
    touch.hold.let_go();
  }
}

void Actor::note_uses(Operation& operation, StreamPoint point) noexcept {
  if (operation.replay != nullptr) return operation.replay->note(recent_, point);
  for (const bool writes : {true, false}) {
    for (const Touch& touch : operation.touches) {
      if (may_write(touch.access) != writes) continue;
      Hold::Device& device = touch.hold->device;
      writes ? device.uses.note_write(touch.range, {point, nullptr})
             : device.uses.note_read(touch.range, {point, nullptr});
      if (device.graphs != 0) recent_.add(touch, point);
    }
  }
}

/// Success is assumed.
void Actor::note_written(Operation& operation) noexcept {
  ReplayOrder* const order = operation.replay;
  if (order != nullptr && order->is_clean_at(core_.taint_changes())) {
    operation.effect = Operation::Effect::wrote;
    return;
  }
  try {
    journal_.note_written(operation);
    if (order != nullptr) order->found_clean(core_.taint_changes());
  } catch (const std::bad_alloc&) {
    claim_everything(operation.touches, make_failure(Errc::out_of_memory, operation.verb,
                                                     operation.name(), "no host memory"));
  }
}

}  // namespace reprise::detail

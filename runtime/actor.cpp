// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>

#include <reprise/runtime/event_state.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/window.hpp>

#include <algorithm>
#include <new>

namespace reprise::detail {

namespace {

constexpr std::uint32_t commands_per_step = 32;
// The control lane is looked at once in so many busy steps, and in every other.
constexpr std::uint32_t steps_per_control = 8;
// So much enqueued work is kicked off without waiting for a quiet moment.
constexpr std::uint32_t kick_at_most = 16;
// The same while a caller waits for each answer: what the kick costs would be its time.
constexpr std::uint32_t kick_at_most_for_caller = 256;
// Quiet looks before a kick that leaves a stream to its helper, and before one that leaves none.
constexpr std::uint32_t looks_before_kick = 2;
// A caller that was just answered, or offered help, is given a little longer to come back.
constexpr std::uint32_t looks_for_caller = 8;
// How long unfinished work nobody waits for may go unseen before the backend is asked to tell.
constexpr std::uint64_t unseen_ns = 2'000'000;
// While shutting down with work in flight, and for a producer stopped inside its submission.
constexpr std::uint64_t short_rest_ns = 200'000;

}  // namespace

namespace {

// The device whose actor the calling thread is driving.
thread_local const DeviceCore* stepping_core = nullptr;

class Stepping {
public:
  explicit Stepping(const DeviceCore& core) noexcept
      : before_(std::exchange(stepping_core, &core)) {}
  ~Stepping() { stepping_core = before_; }
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;

private:
  const DeviceCore* before_;
};

}  // namespace

bool Actor::is_stepping(const DeviceCore& core) noexcept {
  return stepping_core == &core;
}

const ItemOps Submitted::ops{.run = nullptr, .destroy = nullptr};
const ItemOps ReplayRequest::ops{.run = nullptr, .destroy = nullptr};

Actor::Actor(DeviceCore& core)
    : core_(core), backend_(core.backend()),
      tracer_(core.options().allocation_trace
                  ? std::make_unique<AllocationTracer>(core.shared(), backend_.pages(),
                                                       core.options().allocation_trace)
                  : nullptr),
      pool_(tracer_ ? *tracer_ : backend_.pages(),
            PoolOptions{.limit_bytes = core.options().memory_limit_bytes,
                        .alignment = backend_.properties().alignment}),
      lanes_(backend_.properties().streams), cooperative_(core.host().is_cooperative()) {
  REPRISE_CHECK(lanes_.size() <= 64, "backend streams are numbered below 64");
  for (Lane& lane : lanes_) lane.waited_for.resize(lanes_.size());
}

Actor::~Actor() = default;

// ---- the loop --------------------------------------------------------------------------------

bool Actor::step() noexcept {
  const Stepping stepping(core_);
  bool worked = serve_ring();
  if (busy_ != 0) worked |= retire();
  if (stage_first_ != nullptr) worked |= run_stage();
  // The word belongs to whoever takes the next ticket, as long as tickets are taken.
  if (!worked || ++steps_ % steps_per_control == 0) worked |= serve_control();
  if (questions_ != nullptr && core_.channel().control_is_dry()) answer_questions();
  if (worked) {
    looks_ = 0;
    if (unkicked_ >= (caller_is_near_ ? kick_at_most_for_caller : kick_at_most)) {
      kick(Backend::no_stream);
    }
    return true;
  }
  return idle_kick();
}

bool Actor::serve_control() noexcept {
  return core_.channel().drain_control([this](ControlNode& node) { node.run(node, this); }) > 0;
}

bool Actor::serve_ring() noexcept {
  bool served = false;
  for (std::uint32_t i = 0; i < commands_per_step; ++i) {
    while (!core_.channel().consume([this](const ChannelItem& item) { take(item); })) {
      if (!std::exchange(answered_caller_, false) || cooperative_) return served;
      if (!core_.channel().linger()) return served;
    }
    served = true;
    // In the time the caller needs to come back.
    if (answered_caller_) {
      retire(2);
      core_.expect_make_here();
    }
  }
  return served;
}

/// Whether there was enough time for whoever is about to enqueue more, or to help.
bool Actor::may_kick() const noexcept {
  const bool caller_may_come = caller_is_near_ || helped_ != Backend::no_stream;
  return looks_ >= (caller_may_come ? looks_for_caller : looks_before_kick);
}

bool Actor::idle_kick() noexcept {
  if (unkicked_ == 0) return false;
  ++looks_;
  if (helped_ != Backend::no_stream && looks_ == looks_before_kick) backend_.kick(helped_);
  if (!may_kick()) return false;
  kick(Backend::no_stream);
  return true;
}

bool Actor::expects_work() noexcept {
  return help_until_.position != 0 && !is_finished(help_until_);
}

void Actor::kick(StreamIndex except) noexcept {
  backend_.kick(except);
  unkicked_ = 0;
  looks_ = 0;
  helped_ = Backend::no_stream;
  caller_is_near_ = false;
}

Rest Actor::rest() noexcept {
  const Stepping stepping(core_);
  if (unkicked_ != 0) {
    // The few looks before a kick are taken even where there is no CPU to spin on for long.
    pause();
    return Rest::again();
  }
  if (core_.channel().is_closed()) {
    if (core_.is_giving_up()) return Rest::done();
    if (!may_stop()) return Rest::sleep_until(core_.host().now_ns() + short_rest_ns);
  }
  switch (core_.channel().try_park()) {
    case Channel::Idle::stopped: return Rest::done();
    case Channel::Idle::busy:
      if (core_.channel().has_unpublished() && core_.channel().front() == nullptr) {
        add_one(core_.counters().stalled_producers);
        return Rest::sleep_until(core_.host().now_ns() + short_rest_ns);
      }
      return Rest::again();
    case Channel::Idle::parked: break;
  }
  parked_ = true;
  if (tracer_ != nullptr) tracer_->flush();
  // Commands that wait for room must start as soon as there is some.
  if (stage_first_ != nullptr && !armed_) arm(true);
  if (busy_ == 0 || armed_) return Rest::sleep();
  return Rest::sleep_until(core_.host().now_ns() + unseen_ns);
}

void Actor::overslept() noexcept {
  if (parked_ && core_.channel().unpark()) parked_ = false;
  // Nobody came for a while: let the backend say when the work is done, then sleep for good.
  arm(false);
}

void Actor::arm(bool first) noexcept {
  for (std::uint64_t left = busy_; left != 0; left &= left - 1) {
    const auto i = static_cast<StreamIndex>(__builtin_ctzll(left));
    const StreamPosition at = first ? lanes_[i].first->position : lanes_[i].enqueued;
    if (backend_.arm(i, at)) {
      armed_ = true;
    } else {
      core_.progressed();  // It has finished already.
    }
  }
}

/// Everything ticketed was taken and is finished and judged; try_park() checks the tickets again.
bool Actor::may_stop() noexcept {
  retire();
  if (core_.channel().has_unpublished()) return true;  // try_park() will say busy.
  return stage_first_ == nullptr && journal_.empty() && lowering_ == 0 && transfers_ == nullptr;
}

void Actor::answer_left_behind() noexcept {
  while (questions_ != nullptr) {
    ControlNode& question = *std::exchange(questions_, questions_->next);
    question.run(question, nullptr);
  }
  const auto failure =
      make_failure(Errc::timed_out, "shutdown", {}, "the device did not come to this command");
  // What was ticketed before the end, and may have been overtaken by it, goes behind the rest.
  do {
    core_.channel().drain_control([](ControlNode& node) { node.run(node, nullptr); });
    while (core_.channel().consume([&](const ChannelItem& item) { leave_behind(item, failure); })) {
    }
  } while (core_.channel().try_park() != Channel::Idle::stopped);
  for (Operation* at = journal_.oldest(); at != nullptr; at = at->newer) at->finish(failure);
  while (stage_first_ != nullptr) {
    Operation& operation = *stage_first_;
    stage_first_ = operation.newer;
    operation.failed_with(failure);
    operation.accepted(failure);
    operation.finish(failure);
    operation.left_behind(*this);
  }
}

void Actor::leave_behind(const ChannelItem& item, const FailurePtr& failure) noexcept {
  if (item.ops == &ReplayRequest::ops) {
    const ReplayRequest request = *static_cast<const ReplayRequest*>(item.payload);
    Completion(request.accepted)(failure);
    Completion(request.finished)(failure);
    return;
  }
  Operation& operation = *static_cast<Submitted*>(item.payload)->operation;
  Reply* const taken =
      operation.late.holds_command() ? std::exchange(operation.taken, nullptr) : nullptr;
  stage(operation);
  if (taken != nullptr) taken->complete(nullptr);
}

// ---- taking commands -------------------------------------------------------------------------

void Actor::take(const ChannelItem& item) noexcept {
  parked_ = false;
  armed_ = false;
  if (item.ops == &ReplayRequest::ops) {
    take(*static_cast<const ReplayRequest*>(item.payload), item.ticket);
  } else {
    Operation& operation = *static_cast<Submitted*>(item.payload)->operation;
    if (operation.late.holds_command()) {
      operation.late.clear();
      // The poster waits for exactly this; it is gone afterwards.
      if (Reply* const taken = std::exchange(operation.taken, nullptr)) taken->complete(nullptr);
    }
    operation.taken = nullptr;
    take(operation, item.ticket);
  }
}

void Actor::take(const ReplayRequest& request, std::uint64_t ticket) noexcept {
  // The answer will be written where the caller looks: its line comes while the replay is prepared.
  __builtin_prefetch(request.accepted != nullptr ? request.accepted : request.finished, 1);
  try {
    place(*make_replay_here(*this, request), ticket);
  } catch (const std::bad_alloc&) {
    const auto failure = make_failure(Errc::out_of_memory, "replay",
                                      request.graph->recording->name(), "no host memory");
    request.graph->logical->give_credit();
    claim_everything(request.graph->touches, failure);
    Completion(request.accepted)(failure);
    Completion(request.finished)(failure);
  }
}

void Actor::take(Operation& operation, std::uint64_t ticket) noexcept {
  if (operation.settles) operation.settle(*this);
  place(operation, ticket);
}

void Actor::place(Operation& operation, std::uint64_t ticket) noexcept {
  operation.ticket = ticket;
  if (stage_first_ != nullptr || must_stage(operation)) {
    REPRISE_MARK("staged");
    return stage(operation);
  }
  accept(operation);
}

void Actor::stage(Operation& operation) noexcept {
  operation.newer = nullptr;
  (stage_last_ ? stage_last_->newer : stage_first_) = &operation;
  stage_last_ = &operation;
}

bool Actor::run_stage() noexcept {
  bool worked = false;
  while (stage_first_ != nullptr && !must_stage(*stage_first_)) {
    Operation& operation = *stage_first_;
    stage_first_ = operation.newer;
    if (stage_first_ == nullptr) stage_last_ = nullptr;
    operation.newer = nullptr;
    accept(operation);
    worked = true;
  }
  return worked;
}

namespace {

FailurePtr expiry(const Operation& operation) noexcept {
  return make_failure(Errc::operation_aborted, operation.verb, operation.name(),
                      "given up: its turn came after its deadline",
                      make_failure(Errc::timed_out, operation.verb, operation.name(),
                                   "the deadline of the call has passed"));
}

}  // namespace

void Actor::accept(Operation& operation) noexcept {
  if (LogicalStream* const logical = operation.logical.get()) {
    logical->give_credit();
    if (!logical->device.adopted) adopt(*logical);
  }
  Reply* const reply = operation.finished ? operation.finished.get() : operation.accepted.get();
  if (reply != nullptr && !reply->start()) {
    if (reply->is_expired()) {
      REPRISE_MARK("expired_before_start");
      return refuse(operation, expiry(operation));
    }
    REPRISE_MARK("cancelled_before_start");
    return refuse(operation, Errc::operation_aborted, "cancelled before it started");
  }
  if (core_.is_aborting()) {
    return refuse(operation, Errc::operation_aborted, "the device was aborted");
  }
  try {
    operation.accept(*this);
  } catch (const std::bad_alloc&) {
    const auto failure =
        make_failure(Errc::out_of_memory, operation.verb, operation.name(), "no host memory");
    claim_everything(operation.touches, failure);
    // A window that misses an operation does not seal.
    if (is_recording(operation)) window_of(operation)->capture.fail(failure);
    answer(operation, failure);
  }
}

void Actor::claim_everything(std::span<const Touch> touches, const FailurePtr& failure) noexcept {
  for (const Touch& touch : touches) {
    if (may_write(touch.access)) touch.hold->device.taint.claim_all(failure);
  }
}

// ---- outcomes --------------------------------------------------------------------------------

void Actor::done(Operation& operation) noexcept {
  // Nothing was done that an event could stand behind.
  operation.accepted(nullptr);
  operation.finish(nullptr);
  keep_mark(operation);
}

/// The stream's newest command has this outcome so far; events recorded now stand behind it.
void Actor::note_outcome(Operation& operation, const FailurePtr& failure) noexcept {
  if (failure) operation.failed_with(failure);
  if (!operation.logical || is_transparent(operation)) return;
  operation.logical->device.newest = nullptr;
  operation.logical->device.failure = failure;
  if (Window* const window = window_of(operation);
      failure && window != nullptr && !window->is_recording() && !window->warm_up_failure) {
    window->warm_up_failure = failure;
  }
}

void Actor::answer(Operation& operation, const FailurePtr& failure) noexcept {
  note_outcome(operation, failure);
  operation.accepted(failure);
  operation.finish(failure);
  keep_mark(operation);
}

/// An operation whose marks unfinished commands before it could still disturb stays in the journal.
void Actor::keep_mark(Operation& operation) noexcept {
  if (operation.effect != Operation::Effect::none && !journal_.empty()) {
    journal_.append(operation);
  } else {
    release(operation);
  }
}

void Actor::refuse(Operation& operation, FailurePtr failure) noexcept {
  add_one(core_.counters().refused);
  core_.shared().report(failure, false);
  if (is_recording(operation)) window_of(operation)->capture.fail(failure);
  try {
    journal_.note_claimed(operation,
                          make_claim(ClaimKind::not_started, failure, operation.owner()));
  } catch (const std::bad_alloc&) {
    claim_everything(operation.touches, failure);
  }
  answer(operation, failure);
}

void Actor::refuse(Operation& operation, Errc code, std::string_view message) noexcept {
  try {
    FailureRecord record;
    record.code = code;
    record.verb = operation.verb;
    record.node = operation.name();
    record.message = message;
    record.where = operation.where;
    record.stream = operation.logical ? operation.logical->id : 0;
    refuse(operation, make_failure(std::move(record)));
  } catch (const std::bad_alloc&) {
    refuse(operation, make_failure(code, {}, {}, {}));
  }
}

void Actor::skip(Operation& operation, const Claim& claim) {
  add_one(core_.counters().skipped);
  const ClaimPtr keep{claim};
  const FailurePtr failure = operation.skip_failure(claim);
  journal_.note_claimed(operation, skip_claim(claim, operation.name(), operation.owner()));
  core_.shared().report(failure, true);
  answer(operation, failure);
}

void Actor::restore(Operation& operation) {
  journal_.note_lifted(operation);
  done(operation);
}

void Actor::on_failed(Operation& operation) noexcept {
  switch (operation.judge()) {
    case Operation::Verdict::waits: return;
    case Operation::Verdict::opens:
      operation.failure = nullptr;
      backend_.resume(operation.stream);
      ++unkicked_;
      return;
    case Operation::Verdict::failed: break;
  }
  if (operation.failure->exception) core_.shared().keep(operation.failure);
  add_one(core_.counters().failed);
  const auto told = [this](Operation& at, const FailurePtr& failure, bool skipped) {
    if (skipped) add_one(core_.counters().skipped);
    at.failed_with(failure);
    if (at.logical && at.logical->device.newest == &at) at.logical->device.failure = failure;
    for (EventState* event = at.events.get(); event != nullptr; event = event->next.get()) {
      event->failure = failure;
    }
    core_.shared().report(failure, skipped);
    at.finish(failure);
  };
  try {
    journal_.judge(operation, told);
  } catch (const std::bad_alloc&) {
    // Without memory to be exact, everything that unfinished commands may have written is suspect.
    for (Operation* at = &operation; at != nullptr; at = at->newer) {
      claim_everything(at->touches, operation.failure);
      if (!is_finished({at->stream, at->position}) && at->enqueued) {
        at->skip = true;
        told(*at, operation.failure, at != &operation);
      }
    }
  }
  backend_.resume(operation.stream);
  ++unkicked_;
}

// ---- the end of commands ---------------------------------------------------------------------

/// Commands that conflict finish in their order, but lanes are looked at one after the other. So
/// they are looked at until none has moved: then nothing is seen finished before what it follows.
void Actor::look_at_lanes() noexcept {
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::uint64_t left = busy_; left != 0; left &= left - 1) {
      const auto i = static_cast<StreamIndex>(__builtin_ctzll(left));
      const StreamPosition finished = backend_.finished(i);
      moved |= std::exchange(lanes_[i].finished, finished) != finished;
    }
    if ((busy_ & (busy_ - 1)) == 0) return;
  }
}

bool Actor::retire(std::uint32_t at_most) noexcept {
  // The journal takes a command away only after those that it follows, on whatever lane.
  const bool one_lane = (busy_ & (busy_ - 1)) == 0;
  if (!one_lane && at_most != ~std::uint32_t{0}) return false;
  look_at_lanes();
  bool any = false;
  for (std::uint64_t left = busy_; left != 0; left &= left - 1) {
    const auto i = static_cast<StreamIndex>(__builtin_ctzll(left));
    Lane& lane = lanes_[i];
    for (; lane.first != nullptr && lane.first->position <= lane.finished && at_most != 0;
         --at_most) {
      Operation& operation = *lane.first;
      lane.first = operation.behind;
      if (lane.first == nullptr) lane.last = nullptr;
      --in_flight_;
      operation.passed = true;
      ++kept_;
      if (!journal_.has_marks()) leave_journal(operation);
      any = true;
    }
    if (lane.first == nullptr) busy_ &= ~(std::uint64_t{1} << i);
  }
  // Marks, and what finished behind them, are final once nothing unfinished is left before them.
  while (!journal_.empty() && (!journal_.oldest()->enqueued || journal_.oldest()->passed)) {
    leave_journal(*journal_.oldest());
    any = true;
  }
  // Once the last mark is gone, all go that it kept: what finishes from now on leaves at once, and
  // nothing may stay behind that would be undone beneath it.
  if (kept_ != 0 && !journal_.has_marks()) {
    for (Operation* next = journal_.oldest(); next != nullptr;) {
      Operation& operation = *std::exchange(next, next->newer);
      if (operation.passed) leave_journal(operation);
    }
  }
  return any;
}

void Actor::leave_journal(Operation& operation) noexcept {
  if (operation.passed) --kept_;
  journal_.remove(operation);
  release(operation);
}

void Actor::release(Operation& operation) noexcept {
  add_one(core_.counters().completed);
  if (operation.logical && operation.logical->device.newest == &operation) {
    operation.logical->device.newest = nullptr;
  }
  operation.retired(*this);
  if (operation.let_go) {
    for (Touch& touch : operation.own_touches) {
      Hold& hold = *touch.hold.take_off();
      if (--hold.device.queued == 0 && hold.device.given_back) hold.forget();
    }
  }
  core_.discard(operation);
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/client.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/event_state.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>

#include <algorithm>

namespace reprise {

using detail::Actor;
using detail::BlockingReply;
using detail::DeviceCore;
using detail::LogicalStream;
using detail::Operation;

namespace {

LogicalStream& stream_of(const std::shared_ptr<LogicalStream>& stream, const char* verb) {
  if (!stream) throw Failure(Errc::empty_handle, verb, "the client is empty");
  return *stream;
}

/// Submits a call at its place in the stream and waits until it has answered.
template <class F>
void ask(const std::shared_ptr<LogicalStream>& stream, const char* verb, F function) {
  DeviceCore& core = *stream_of(stream, verb).core;
  detail::refuse_library_threads(verb);
  BlockingReply reply;
  Operation* const operation = detail::make_call(stream, verb, std::move(function));
  operation->accepted = Completion(&reply);
  core.call(operation, reply);
}

/// An operation that binds memory to its holds.
class AllocateOperation final : public Operation {
public:
  explicit AllocateOperation(std::vector<HoldRef> holds) noexcept
      : Operation("empty"), holds_(std::move(holds)) {}
  void accept(Actor& actor) override { actor.bind(*this, holds_); }
  void failed_with(const FailurePtr& failure) noexcept override {
    for (const HoldRef& hold : holds_) {
      hold->device.state = Hold::Device::State::failed;
      hold->device.failure = failure;
      hold->device.taint.claim_all(failure);
    }
  }

private:
  std::vector<HoldRef> holds_;
};

std::vector<Touch> touches_of(LogicalStream& stream, std::span<const Buffer> buffers, Access access,
                              const char* verb) {
  std::vector<Touch> touches;
  for (const Buffer& buffer : buffers) {
    const HoldRef& hold = detail::BufferAccess::hold(buffer);
    if (!hold) throw Failure(Errc::empty_handle, verb, "a buffer is empty");
    if (hold->owner() != stream.core.get()) {
      throw Failure(Errc::wrong_device, verb,
                    "a buffer of another device than '" + stream.core->name() + "'");
    }
    touches.push_back({hold, detail::BufferAccess::range(buffer), access});
  }
  return touches;
}

}  // namespace

StreamId Client::stream() const noexcept {
  return stream_ ? stream_->id : 0;
}

Client Client::fork(Priority priority) const {
  return Client{stream_of(stream_, "fork").core->make_stream(priority)};
}

Client Client::on(const Client& other) const {
  if (stream_of(stream_, "on").core != stream_of(other.stream_, "on").core) {
    throw Failure(Errc::wrong_device, "on", "the stream is of another device");
  }
  return other;
}

bool Client::is_capturing() const noexcept {
  return stream_ && !stream_->core->is_closed() &&
         stream_->core->captures().status().is_capturing(stream_->id);
}

// ---- memory ------------------------------------------------------------------------------------

Buffer Client::empty_bytes(std::uint64_t bytes) const {
  DeviceCore& core = *stream_of(stream_, "empty").core;
  HoldRef hold = core.make_hold(bytes);
  Operation* const operation = core.make<AllocateOperation>(0, std::vector<HoldRef>{hold});
  operation->logical = stream_;
  core.post(operation);
  return detail::BufferAccess::make(std::move(hold), 0, bytes);
}

std::vector<Buffer> Client::carve(std::span<const std::uint64_t> bytes) const {
  DeviceCore& core = *stream_of(stream_, "create_many").core;
  const std::uint64_t alignment = core.backend().properties().alignment;
  std::uint64_t total = 0;
  for (const std::uint64_t each : bytes) total = align_up(total, alignment) + each;
  const Buffer whole = empty_bytes(total);
  std::vector<Buffer> parts;
  std::uint64_t at = 0;
  for (const std::uint64_t each : bytes) {
    at = align_up(at, alignment);
    parts.push_back(whole.slice_bytes(std::min(at, total), each));
    at += each;
  }
  return parts;
}

// ---- answers -----------------------------------------------------------------------------------

Health Client::check(std::span<const Buffer> buffers) const {
  const auto touches = touches_of(stream_of(stream_, "check"), buffers, Access::reads, "check");
  Health health = Health::clean;
  ask(stream_, "check", [&](Actor& actor, Operation& self) {
    health = actor.health(touches);
    actor.done(self);
  });
  return health;
}

FailurePtr Client::failure(const Buffer& buffer) const {
  const auto touches =
      touches_of(stream_of(stream_, "failure"), {&buffer, 1}, Access::reads, "failure");
  FailurePtr found;
  ask(stream_, "failure", [&](Actor& actor, Operation& self) {
    for (const Touch& touch : touches) {
      if (const Claim* claim = touch.hold->device.taint.first(touch.range)) {
        found = report(*claim, "read");
      }
    }
    actor.done(self);
  });
  return found;
}

void Client::restore(std::span<const Buffer> buffers) const {
  const auto touches =
      touches_of(stream_of(stream_, "restore"), buffers, Access::may_write, "restore");
  ask(stream_, "restore", [touches](Actor& actor, Operation& self) {
    self.touches = touches;
    actor.restore(self);
  });
}

void Client::flush() const {
  ask(stream_, "flush", [](Actor& actor, Operation& self) { actor.done(self); });
}

void Client::synchronize() const {
  DeviceCore& core = *stream_of(stream_, "synchronize").core;
  detail::refuse_library_threads("synchronize");
  BlockingReply reply;
  Operation* const operation = detail::make_call(
      stream_, "synchronize", [](Actor& actor, Operation& self) { actor.synchronize(self); });
  operation->finished = Completion(&reply);
  core.call(operation, reply);
}

// ---- events ------------------------------------------------------------------------------------

Event Client::record() const {
  DeviceCore& core = *stream_of(stream_, "record").core;
  auto state = std::make_shared<detail::EventState>(stream_->core);
  core.post(detail::make_call(stream_, "record", [state](Actor& actor, Operation& self) {
    actor.record_event(self, state);
  }));
  return Event{std::move(state)};
}

void Client::wait(const Event& event) const {
  DeviceCore& core = *stream_of(stream_, "wait").core;
  if (!event.state_) throw Failure(Errc::empty_handle, "wait", "the event is empty");
  if (event.state_->core != stream_->core) {
    throw Failure(Errc::wrong_device, "wait", "the event is of another device");
  }
  core.post(
      detail::make_call(stream_, "wait", [state = event.state_](Actor& actor, Operation& self) {
        actor.wait_event(self, *state);
      }));
}

bool Event::is_done() const noexcept {
  // Acquire: the partner is the store in Actor::record_event().
  if (!state_ || !state_->recorded.load(std::memory_order_acquire)) return false;
  return state_->core->backend().finished(state_->point.stream) >= state_->point.position;
}

void Event::wait() const {
  if (!state_) throw Failure(Errc::empty_handle, "wait", "the event is empty");
  detail::refuse_library_threads("wait");
  BlockingReply reply;
  Operation* const operation =
      detail::make_call(*state_->core, "wait", [state = state_](Actor& actor, Operation& self) {
        actor.run_after(self, Frontier{state->point});
      });
  operation->finished = Completion(&reply);
  state_->core->call(operation, reply);
  FailurePtr failure;
  BlockingReply answered;
  Operation* const ask = detail::make_call(
      *state_->core, "wait", [state = state_, &failure](Actor& actor, Operation& self) {
        failure = state->failure;
        actor.done(self);
      });
  ask->accepted = Completion(&answered);
  state_->core->call(ask, answered);
  if (failure) throw Failure(std::move(failure));
}

// ---- capture -----------------------------------------------------------------------------------

void Client::prepare_capture(const CaptureOptions& options) const {
  ask(stream_, "prepare_capture",
      [growth = options.growth, name = std::string(options.name)](Actor& actor, Operation& self) {
        actor.prepare_capture(self, growth, name);
      });
}

void Client::start_capture() const {
  ask(stream_, "start_capture", [](Actor& actor, Operation& self) { actor.start_capture(self); });
}

Graph Client::stop_capture() const {
  auto graph = std::make_shared<std::shared_ptr<detail::GraphState>>();
  ask(stream_, "stop_capture",
      [graph](Actor& actor, Operation& self) { actor.stop_capture(self, *graph); });
  return detail::GraphAccess::make(std::move(*graph));
}

void Client::abort_capture() const {
  ask(stream_, "abort_capture", [](Actor& actor, Operation& self) { actor.abort_capture(self); });
}

detail::AsyncContext detail::async_context(const Client& client, const char* verb) {
  return stream_of(ClientAccess::stream(client), verb).core->async_context();
}

Graph detail::capture(const Client& client, RecordFunction function,
                      const CaptureOptions& options) {
  Client inside = client.fork();
  inside.prepare_capture({.growth = true, .name = options.name});
  inside.start_capture();
  try {
    function.call(function.context, inside);
  } catch (...) {
    const auto& stream = ClientAccess::stream(inside);
    ask(stream, "capture", [](Actor& actor, Operation& self) { actor.abandon_capture(self); });
    throw;
  }
  return inside.stop_capture();
}

}  // namespace reprise

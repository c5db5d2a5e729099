// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/event.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/answered_call.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/event_state.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>

#include <optional>
#include <string>
#include <utility>

namespace reprise {

namespace detail {

namespace {

const std::shared_ptr<EventState>& state_of(const Event& event, const char* verb) {
  const auto& state = EventAccess::state(event);
  if (!state) throw Failure(Errc::empty_handle, verb, "the event is empty");
  return state;
}

const std::shared_ptr<LogicalStream>& stream_of(const Client& client, const char* verb) {
  const auto& stream = ClientAccess::stream(client);
  if (!stream) throw Failure(Errc::empty_handle, verb, "the client is empty");
  return stream;
}

/// Marks a point in its stream.
class RecordOperation final : public Operation {
public:
  explicit RecordOperation(std::shared_ptr<EventState> event) noexcept
      : Operation("record"), event_(std::move(event)), timer_(*event_) {}

  void accept(Actor& actor) override {
    if (event_->timing) finished = Completion(&timer_);
    actor.record_event(*this, event_);
  }
  void failed_with(const FailurePtr& failure) noexcept override {
    event_->failure = failure;
    event_->recorded.store(true, std::memory_order_release);
  }

private:
  /// Told when the device passes the point.
  class Timer final : public Reply {
  public:
    explicit Timer(EventState& event) noexcept : event_(event) {}
    void complete(const FailurePtr& failure) noexcept override {
      if (failure) return;
      event_.time_ns.store(event_.core->host().now_ns(), std::memory_order_release);
    }

  private:
    EventState& event_;
  };

  std::shared_ptr<EventState> event_;
  Timer timer_;
};

FailurePtr window_failure(const char* verb) noexcept {
  return make_failure(Errc::capture_refused, verb, {},
                      "the event was recorded in a window, so it is no point in time");
}

Operation* make_event_wait(const std::shared_ptr<EventState>& state, Reply* reply) {
  auto* const operation = make_answered_call(
      *state->core, "wait", reply,
      [state](Actor& actor, Operation& self) {
        if (state->stream != 0) return actor.answer(self, window_failure("wait"));
        actor.run_after(self, Frontier{state->point});
      },
      [state](const FailurePtr& failure) noexcept { return failure ? failure : state->failure; });
  operation->finished = Completion(operation->answer());
  return operation;
}

Operation* make_elapsed(const Event& first, const Event& second,
                        ValueReply<std::chrono::nanoseconds>& reply) {
  const auto& from = state_of(first, "elapsed");
  const auto& to = state_of(second, "elapsed");
  if (from->core != to->core) {
    throw Failure(Errc::wrong_device, "elapsed", "the events are of different devices");
  }
  if (!from->timing || !to->timing) {
    throw Failure(Errc::invalid_argument, "elapsed",
                  std::string(from->timing ? "the second" : "the first") +
                      " event was recorded without timing");
  }
  auto* const operation = make_answered_call(
      *to->core, "elapsed", &reply,
      [from, to](Actor& actor, Operation& self) {
        if (from->stream != 0 || to->stream != 0) {
          return actor.answer(self, window_failure("elapsed"));
        }
        Frontier points{from->point};
        if (!points.add(to->point)) throw std::bad_alloc();
        actor.run_after(self, points);
      },
      [from, to, &reply](const FailurePtr& failure) noexcept {
        if (failure) return failure;
        // Acquire: the partner is the store in RecordOperation::Timer.
        const auto ended = static_cast<std::int64_t>(to->time_ns.load(std::memory_order_acquire));
        const auto began = static_cast<std::int64_t>(from->time_ns.load(std::memory_order_acquire));
        reply.value = std::chrono::nanoseconds(ended - began);
        return from->failure ? from->failure : to->failure;
      });
  operation->finished = Completion(operation->answer());
  return operation;
}

/// A blocked caller's reply with a value.
class ElapsedReply final : public ValueReply<std::chrono::nanoseconds> {
public:
  bool offer_help(StreamIndex stream) noexcept override { return blocked.offer_help(stream); }
  bool has_blocked_caller() const noexcept override { return true; }
  void complete(const FailurePtr& failure) noexcept override { blocked.complete(failure); }

  BlockingReply blocked;
};

}  // namespace

AsyncContext async_context(const Event& event, const char* verb) {
  return state_of(event, verb)->core->async_context();
}

Operation* make_record(const Client& client, const EventOptions& options, Event& made) {
  const auto& stream = stream_of(client, "record");
  auto state = std::make_shared<EventState>(stream->core, options.timing);
  Operation* const operation = stream->core->make<RecordOperation>(0, state);
  operation->logical = stream;
  made = EventAccess::make(std::move(state));
  return operation;
}

Operation* make_wait(const Client& client, const Event& event) {
  const auto& stream = stream_of(client, "wait");
  const auto& state = state_of(event, "wait");
  if (state->core != stream->core) {
    throw Failure(Errc::wrong_device, "wait", "the event is of another device");
  }
  return make_call(stream, "wait",
                   [state](Actor& actor, Operation& self) { actor.wait_event(self, *state); });
}

void start_event_wait(const Event& event, Reply* reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_event_wait(state_of(event, "wait"), reply);
  } catch (...) {
    return answer_exception(reply, "wait");
  }
  EventAccess::state(event)->core->post_async(operation);
}

void start_elapsed(const Event& from, const Event& to,
                   ValueReply<std::chrono::nanoseconds>& reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_elapsed(from, to, reply);
  } catch (...) {
    return answer_exception(&reply, "elapsed");
  }
  EventAccess::state(to)->core->post_async(operation);
}

}  // namespace detail

// ---- Event -------------------------------------------------------------------------------------

bool Event::is_done() const noexcept {
  // Acquire: the partner is the store in Actor::record_event().
  if (!state_ || !state_->recorded.load(std::memory_order_acquire)) return false;
  return state_->core->backend().finished(state_->point.stream) >= state_->point.position;
}

void Event::wait() const {
  const auto& state = detail::state_of(*this, "wait");
  detail::refuse_library_threads("wait");
  detail::BlockingReply reply;
  state->core->call(detail::make_event_wait(state, &reply), reply);
}

std::chrono::nanoseconds elapsed(const Event& from, const Event& to) {
  detail::refuse_library_threads("elapsed");
  detail::ElapsedReply reply;
  detail::Operation* const operation = detail::make_elapsed(from, to, reply);
  detail::EventAccess::state(to)->core->call(operation, reply.blocked);
  return reply.value;
}

// ---- Client ------------------------------------------------------------------------------------

Event Client::record(const EventOptions& options) const {
  Event made;
  detail::post(detail::make_record(*this, options, made));
  return made;
}

std::optional<Event> Client::try_record(const EventOptions& options) const {
  Event made;
  if (!detail::try_post(detail::make_record(*this, options, made))) return {};
  return made;
}

void Client::wait(const Event& event) const {
  detail::post(detail::make_wait(*this, event));
}

bool Client::try_wait(const Event& event) const {
  return detail::try_post(detail::make_wait(*this, event));
}

}  // namespace reprise

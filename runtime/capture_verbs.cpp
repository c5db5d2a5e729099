// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/answered_call.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>
#include <reprise/runtime/window.hpp>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace reprise {

namespace detail {

namespace {

const std::shared_ptr<LogicalStream>& stream_of(const Client& client, const char* verb) {
  const auto& stream = ClientAccess::stream(client);
  if (!stream) throw Failure(Errc::empty_handle, verb, "the client is empty");
  return stream;
}

Operation* make_prepare(const Client& client, const CaptureOptions& options) {
  const auto& stream = stream_of(client, "prepare_capture");
  stream->captures.store(true, std::memory_order_relaxed);
  return make_call(
      stream, "prepare_capture",
      [growth = options.growth, name = std::string(options.name)](Actor& actor, Operation& self) {
        actor.prepare_capture(self, growth, name);
      });
}

Operation* make_start(const Client& client) {
  return make_call(stream_of(client, "start_capture"), "start_capture",
                   [](Actor& actor, Operation& self) { actor.start_capture(self); });
}

/// With `marks`, a window that does not seal marks what it would have written.
Operation* make_stop(const Client& client, ValueReply<Graph>& reply, bool marks = true) {
  const auto& stream = stream_of(client, "stop_capture");
  auto state = std::make_shared<std::shared_ptr<GraphState>>();
  auto* const operation = make_answered_call(
      *stream->core, "stop_capture", &reply,
      [state, marks](Actor& actor, Operation& self) { actor.stop_capture(self, *state, marks); },
      [state, &reply](const FailurePtr& failure) noexcept {
        if (!failure) reply.value = GraphAccess::make(std::move(*state));
        return failure;
      });
  operation->logical = stream;
  operation->accepted = Completion(operation->answer());
  return operation;
}

Operation* make_abort(const Client& client) {
  return make_call(stream_of(client, "abort_capture"), "abort_capture",
                   [](Actor& actor, Operation& self) { actor.abort_capture(self); });
}

/// Ends with `thrown` once the window is gone.
Operation* make_abandon(const Client& client, Reply* reply, FailurePtr thrown) {
  const auto& stream = stream_of(client, "capture");
  auto* const operation = make_answered_call(
      *stream->core, "capture", reply,
      [](Actor& actor, Operation& self) { actor.abandon_capture(self); },
      [thrown = std::move(thrown)](const FailurePtr&) noexcept { return thrown; });
  operation->logical = stream;
  operation->accepted = Completion(operation->answer());
  return operation;
}

/// Submits and waits until the device has answered.
void ask(Operation* operation) {
  BlockingReply reply;
  operation->accepted = Completion(&reply);
  operation->logical->core->call(operation, reply);
}

/// A blocked caller's reply with a graph.
class GraphReply final : public ValueReply<Graph> {
public:
  bool has_blocked_caller() const noexcept override { return true; }
  void complete(const FailurePtr& failure) noexcept override { blocked.complete(failure); }

  BlockingReply blocked;
};

/// A client on a new stream that records already.
Client open_window(const Client& client, const CaptureOptions& options, bool by_hand = false) {
  DeviceCore& core = *stream_of(client, "capture")->core;
  if (core.is_closed()) throw Failure(DeviceCore::closed_failure("capture"));
  auto stream = core.make_stream(Priority::normal);
  // Nobody else has the stream yet, so even its device's part is this thread's. Opened here, the
  // window is there before what the function submits: nothing of that can run.
  auto window = std::make_unique<Window>(core.captures(), *stream, options.name);
  auto opened = window->capture.prepare(stream->id, true);
  if (opened) opened = window->capture.begin();
  REPRISE_CHECK(opened.has_value(), "the window of a new stream does not open");
  if (by_hand) window->built = std::make_unique<HandBuilt>();
  stream->device.window = std::move(window);
  stream->captures.store(true, std::memory_order_relaxed);
  return ClientAccess::make(std::move(stream));
}

/// What a recording function threw, in flight, as the failure of an async_capture.
FailurePtr recording_failure(DeviceCore& core) noexcept {
  FailureRecord record;
  record.code = Errc::capture_doomed;
  record.verb = "capture";
  record.exception = std::current_exception();
  try {
    record.message = "the recording function threw";
    throw;
  } catch (const Failure& thrown) {
    record.cause = thrown.shared_record();
  } catch (...) {
  }
  FailurePtr failure = make_failure(std::move(record));
  core.shared().keep(failure);
  return failure;
}

}  // namespace

ClientStream::~ClientStream() {
  if (!logical->captures.load(std::memory_order_relaxed)) return;
  try {
    logical->core->post_async(make_call(logical, "capture", [](Actor& actor, Operation& self) {
      actor.close_stream(*self.logical);
      actor.done(self);
    }));
  } catch (const std::bad_alloc&) {
    // The stream itself goes soon, and its window with it.
  }
}

void post_slot(const Client& client, const Binding& slot, const SlotPolicy& policy) {
  const auto& stream = stream_of(client, "slot");
  const HoldRef& hold = BufferAccess::hold(slot.buffer);
  if (slot.slot.empty()) throw Failure(Errc::invalid_argument, "slot", "the name is empty");
  if (!hold) throw Failure(Errc::empty_handle, "slot", "a buffer is empty");
  if (hold->owner() != stream->core.get()) {
    throw Failure(Errc::wrong_device, "slot",
                  "a buffer of another device than '" + stream->core->name() + "'");
  }
  if (policy.copies == 0 || policy.copies > SlotPolicy::most_copies) {
    throw Failure(Errc::invalid_argument, "slot",
                  "a slot rotates over 1 to " + std::to_string(SlotPolicy::most_copies) +
                      " copies, not " + std::to_string(policy.copies));
  }
  if (stream->core->is_closed()) throw Failure(DeviceCore::closed_failure("slot"));
  if (!client.is_capturing()) return;
  SlotSpec spec{std::string(slot.slot), hold,           BufferAccess::range(slot.buffer),
                slot.element,           slot.alignment, {}};
  for (std::uint32_t i = 1; i < policy.copies; ++i) {
    Buffer copy;
    post(make_empty(client, spec.range.size(), copy));
    spec.copies.push_back(BufferAccess::hold(copy));
  }
  post(make_call(stream, "slot", [spec = std::move(spec)](Actor& actor, Operation& self) mutable {
    actor.name_slot(self, std::move(spec));
  }));
}

void start_prepare_capture(const Client& client, const CaptureOptions& options,
                           Reply* reply) noexcept {
  post_accepted(reply, "prepare_capture", [&] { return make_prepare(client, options); });
}

void start_start_capture(const Client& client, Reply* reply) noexcept {
  post_accepted(reply, "start_capture", [&] { return make_start(client); });
}

void start_stop_capture(const Client& client, ValueReply<Graph>& reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_stop(client, reply);
  } catch (...) {
    return answer_exception(&reply, "stop_capture");
  }
  operation->logical->core->post_async(operation);
}

void start_abort_capture(const Client& client, Reply* reply) noexcept {
  post_accepted(reply, "abort_capture", [&] { return make_abort(client); });
}

namespace {

/// `inside` records already.
Graph record_scope(Client inside, RecordFunction function) {
  try {
    function.call(function.context, inside);
  } catch (...) {
    BlockingReply abandoned;
    Operation* const operation = make_abandon(inside, &abandoned, nullptr);
    operation->logical->core->call(operation, abandoned);
    throw;
  }
  return inside.stop_capture();
}

}  // namespace

Graph capture(const Client& client, RecordFunction function, const CaptureOptions& options) {
  refuse_library_threads("capture");
  return record_scope(open_window(client, options), function);
}

Graph try_capture(const Client& client, RecordFunction function, const CaptureOptions& options,
                  FailurePtr& reason) {
  refuse_library_threads("capture_or_run");
  const Client inside = open_window(client, options);
  const auto fall_back = [&](const FailurePtr& why) {
    inside.abort_capture();
    reason = why;
    stream_of(client, "capture_or_run")
        ->core->counters()
        .fallbacks.fetch_add(1, std::memory_order_relaxed);
    return Graph{};
  };
  try {
    Client given = inside;
    function.call(function.context, given);
  } catch (const Failure& failure) {
    return fall_back(failure.shared_record());
  } catch (...) {
    inside.abort_capture();
    throw;
  }
  try {
    GraphReply reply;
    Operation* const operation = make_stop(inside, reply, false);
    operation->logical->core->call(operation, reply.blocked);
    return std::move(reply.value);
  } catch (const Failure& failure) {
    const FailurePtr& cause = failure.record().cause;
    return fall_back(cause ? cause : failure.shared_record());
  }
}

Graph build(const Client& client, RecordFunction function, std::string_view name) {
  refuse_library_threads("instantiate");
  try {
    return record_scope(open_window(client, {.name = name}, true), function);
  } catch (const Failure& failure) {
    // What doomed the window is what the caller has to know.
    if (failure.errc() != Errc::capture_doomed || !failure.record().cause) throw;
    throw Failure(failure.record().cause);
  }
}

void place_next(const Client& inside, NodePlace place) {
  post(make_call(stream_of(inside, "instantiate"), "instantiate",
                 [place = std::move(place)](Actor& actor, Operation& self) mutable {
                   actor.place_next(self, place);
                 }));
}

void start_capture(const Client& client, RecordFunction function, const CaptureOptions& options,
                   ValueReply<Graph>& reply) noexcept {
  Client inside;
  try {
    inside = open_window(client, options);
  } catch (...) {
    return answer_exception(&reply, "capture");
  }
  DeviceCore& core = *ClientAccess::stream(inside)->core;
  Operation* operation = nullptr;
  FailurePtr thrown;
  try {
    function.call(function.context, inside);
  } catch (...) {
    thrown = recording_failure(core);
  }
  try {
    operation = thrown ? make_abandon(inside, &reply, thrown) : make_stop(inside, reply);
  } catch (...) {
    return answer_exception(&reply, "capture");
  }
  core.post_async(operation);
}

}  // namespace detail

void Client::prepare_capture(const CaptureOptions& options) const {
  detail::refuse_library_threads("prepare_capture");
  detail::ask(detail::make_prepare(*this, options));
}

void Client::start_capture() const {
  detail::refuse_library_threads("start_capture");
  detail::ask(detail::make_start(*this));
}

Graph Client::stop_capture() const {
  detail::refuse_library_threads("stop_capture");
  detail::GraphReply reply;
  detail::Operation* const operation = detail::make_stop(*this, reply);
  operation->logical->core->call(operation, reply.blocked);
  return std::move(reply.value);
}

void Client::abort_capture() const {
  detail::refuse_library_threads("abort_capture");
  detail::ask(detail::make_abort(*this));
}

}  // namespace reprise

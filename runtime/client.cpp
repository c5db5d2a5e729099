// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/client.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>

#include <span>
#include <utility>
#include <vector>

namespace reprise {

using detail::Actor;
using detail::BlockingReply;
using detail::ClientAccess;
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

/// What a restore does when its turn comes.
auto restoring(const std::shared_ptr<LogicalStream>& stream, std::span<const Buffer> buffers) {
  return [touches = touches_of(stream_of(stream, "restore"), buffers, Access::may_write,
                               "restore")](Actor& actor, Operation& self) {
    self.touches = touches;
    actor.restore(self);
  };
}

}  // namespace

Operation* detail::make_join(const Client& client, const Client& other) {
  const auto& stream = ClientAccess::stream(client);
  const auto& joined = ClientAccess::stream(other);
  if (stream_of(stream, "join").core != stream_of(joined, "join").core) {
    throw Failure(Errc::wrong_device, "join", "the stream is of another device");
  }
  return make_call(stream, "join",
                   [joined](Actor& actor, Operation& self) { actor.join(self, *joined); });
}

StreamId Client::stream() const noexcept {
  const auto& stream = ClientAccess::stream(*this);
  return stream ? stream->id : 0;
}

Client Client::fork(Priority priority) const {
  const auto& stream = ClientAccess::stream(*this);
  DeviceCore& core = *stream_of(stream, "fork").core;
  auto forked = core.make_stream(priority);
  Client made = ClientAccess::make(forked);
  // Only the device knows whether the stream is recording when the turn of this comes.
  if (stream->captures.load(std::memory_order_relaxed)) {
    forked->captures.store(true, std::memory_order_relaxed);
    core.post_async(detail::make_call(stream, "fork",
                                      [forked = std::move(forked)](Actor& actor, Operation& self) {
                                        actor.enroll(self, *forked);
                                      }));
  }
  return made;
}

void Client::join(const Client& other) const {
  detail::post(detail::make_join(*this, other));
}

bool Client::try_join(const Client& other) const {
  return detail::try_post(detail::make_join(*this, other));
}

Client Client::on(const Client& other) const {
  if (stream_of(ClientAccess::stream(*this), "on").core !=
      stream_of(ClientAccess::stream(other), "on").core) {
    throw Failure(Errc::wrong_device, "on", "the stream is of another device");
  }
  return other;
}

bool Client::is_capturing() const noexcept {
  const auto& stream = ClientAccess::stream(*this);
  return stream && !stream->core->is_closed() &&
         stream->core->captures().status().is_capturing(stream->id);
}

// ---- answers -----------------------------------------------------------------------------------

Health Client::check(std::span<const Buffer> buffers) const {
  const auto touches =
      touches_of(stream_of(ClientAccess::stream(*this), "check"), buffers, Access::reads, "check");
  Health health = Health::clean;
  ask(ClientAccess::stream(*this), "check", [&](Actor& actor, Operation& self) {
    health = actor.health(touches);
    actor.done(self);
  });
  return health;
}

FailurePtr Client::failure(const Buffer& buffer) const {
  const auto touches = touches_of(stream_of(ClientAccess::stream(*this), "failure"), {&buffer, 1},
                                  Access::reads, "failure");
  FailurePtr found;
  ask(ClientAccess::stream(*this), "failure", [&](Actor& actor, Operation& self) {
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
  ask(ClientAccess::stream(*this), "restore", restoring(ClientAccess::stream(*this), buffers));
}

void detail::start_check(const Client& client, std::span<const Buffer> buffers,
                         ValueReply<Health>& reply) noexcept {
  post_accepted(&reply, "check", [&] {
    const auto& stream = ClientAccess::stream(client);
    auto touches = touches_of(stream_of(stream, "check"), buffers, Access::reads, "check");
    return make_call(stream, "check",
                     [touches = std::move(touches), &reply](Actor& actor, Operation& self) {
                       reply.value = actor.health(touches);
                       actor.done(self);
                     });
  });
}

void detail::start_restore(const Client& client, std::span<const Buffer> buffers,
                           Reply* reply) noexcept {
  post_accepted(reply, "restore", [&] {
    const auto& stream = ClientAccess::stream(client);
    return make_call(stream, "restore", restoring(stream, buffers));
  });
}

void Client::flush() const {
  ask(ClientAccess::stream(*this), "flush",
      [](Actor& actor, Operation& self) { actor.done(self); });
}

void Client::synchronize() const {
  DeviceCore& core = *stream_of(ClientAccess::stream(*this), "synchronize").core;
  detail::refuse_library_threads("synchronize");
  BlockingReply reply;
  Operation* const operation =
      detail::make_call(ClientAccess::stream(*this), "synchronize",
                        [](Actor& actor, Operation& self) { actor.synchronize(self); });
  operation->finished = Completion(&reply);
  core.call(operation, reply);
}

detail::AsyncContext detail::async_context(const Client& client, const char* verb) {
  return stream_of(ClientAccess::stream(client), verb).core->async_context();
}

}  // namespace reprise

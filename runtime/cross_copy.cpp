// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/cross_copy.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

// A copy between devices is two commands that meet: a read on the source's device into host memory,
// and on the destination's, at the copy's own place, a write that needs it.
//
// State        pending: neither has come. held: the write was run first, and its stream is held as
//              by a failure, so no thread waits. done: the read has been answered, well or not.
// Transitions  pending → held   the thread that runs the write
//              any → done       whoever answers the read; if it was held, the rendezvous goes to
//                               the destination's device thread by the control lane
//
// The read has its ticket before the write has, and a command waits only for earlier tickets of its
// own device; so no circle of copies can wait for itself.
namespace reprise::detail {

namespace {

/// What run() throws where the bytes are not there. The actor looks at the gate, not at this.
struct NotYet : std::exception {};

class CrossCopy;

/// Where the two commands meet. As a reply it is answered by the read; as a control node it brings
/// the answer to the destination's device thread.
class Rendezvous final : public Reply, public ControlNode {
public:
  enum class State : std::uint8_t { pending, held, done };

  Rendezvous(std::shared_ptr<DeviceCore> to, std::uint64_t bytes)
      : staging(new std::byte[bytes]), to_(std::move(to)) {
    run = [](ControlNode& node, void* actor) noexcept {
      static_cast<Rendezvous&>(node).arrive(actor);
    };
  }

  void complete(const FailurePtr& failure) noexcept override {
    failure_ = failure;
    // Release: bytes and failure. Acquire: with hold(), so that this is posted only after it.
    if (state_.exchange(State::done, std::memory_order_acq_rel) == State::held) {
      (void)to_->channel().post(*this);
    }
  }
  /// The thread that runs the write. False: the read has been answered.
  bool hold() noexcept {
    State seen = State::pending;
    // With the exchange in complete().
    return state_.compare_exchange_strong(seen, State::held, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
  }
  /// Once the read has been answered.
  const FailurePtr& failure() const noexcept { return failure_; }

  const std::unique_ptr<std::byte[]> staging;

  // The destination's device thread. The notice of the held stream and the answer of the read come
  // in any order.
  CrossCopy* copy = nullptr;  ///< Whose stream is held.
  bool arrived = false;

private:
  void arrive(void* actor) noexcept;

  const std::shared_ptr<DeviceCore> to_;
  std::atomic<State> state_{State::pending};
  FailurePtr failure_;
};

/// The read on the source's device.
class CrossRead final : public Operation {
public:
  CrossRead(Touch from, std::shared_ptr<Rendezvous> at) noexcept
      : Operation("copy"), from_(std::move(from)), at_(std::move(at)) {
    touches = {&from_, 1};
    finished = Completion(at_.get());
  }

  void accept(Actor& actor) override {
    command = command::Read{at_->staging.get(), from_.hold->device.address + from_.range.begin,
                            from_.range.size()};
    actor.run(*this);
  }
  FailurePtr skip_failure(const Claim& claim) const noexcept override {
    return report(claim, verb, where);
  }

private:
  Touch from_;
  std::shared_ptr<Rendezvous> at_;
};

/// The write on the destination's device.
class CrossCopy final : public Operation {
public:
  CrossCopy(Touch to, std::shared_ptr<Rendezvous> at, const std::string& source) noexcept
      : Operation("copy"), to_(std::move(to)), at_(std::move(at)), source_(source) {
    touches = {&to_, 1};
  }

  void accept(Actor& actor) override {
    if (to_.range.empty()) return actor.done(*this);
    if (actor.is_recording(*this)) {
      return actor.refuse(*this, Errc::capture_refused,
                          "a copy from another device cannot be recorded");
    }
    command = command::HostCall{[](void* self) { static_cast<CrossCopy*>(self)->write(); }, this};
    actor.run(*this);
  }

  Verdict judge() noexcept override {
    at_->copy = this;
    if (waited_ && !at_->arrived) return Verdict::waits;
    const FailurePtr& cause = at_->failure();
    if (!cause) return Verdict::opens;
    failure = make_failure(cause->code, verb, {}, source_, cause);
    return Verdict::failed;
  }

private:
  void write() {
    if (!waited_ && at_->hold()) {
      waited_ = true;
      REPRISE_MARK("copy_held");
      throw NotYet();
    }
    if (at_->failure()) throw NotYet();
    std::memcpy(reinterpret_cast<void*>(to_.hold->device.address + to_.range.begin),
                at_->staging.get(), to_.range.size());
  }

  Touch to_;
  std::shared_ptr<Rendezvous> at_;
  const std::string source_;
  bool waited_ = false;  ///< Of whoever has the stream.
};

void Rendezvous::arrive(void* actor) noexcept {
  arrived = true;
  if (copy != nullptr && actor != nullptr) static_cast<Actor*>(actor)->on_failed(*copy);
}

}  // namespace

Operation* make_cross_copy(const std::shared_ptr<LogicalStream>& stream, Touch to, Touch from) {
  const std::shared_ptr<DeviceCore>& core = stream->core;
  DeviceCore& source = *static_cast<DeviceCore*>(from.hold->owner());
  if (&source.shared() != &core->shared()) {
    throw Failure(Errc::wrong_device, "copy", "the source is of another runtime");
  }
  for (DeviceCore* each : {core.get(), &source}) {
    if (!each->backend().properties().host_visible) {
      throw Failure(Errc::unsupported, "copy",
                    "'" + each->name() + "' does not share its memory with the host");
    }
  }
  auto at = std::make_shared<Rendezvous>(core, to.range.size());
  const std::string text = "its source, on '" + source.name() + "', could not be read";
  auto* const copy = core->make<CrossCopy>(0, std::move(to), at, text);
  copy->logical = stream;
  if (from.range.empty()) return copy;
  CrossRead* read = nullptr;
  try {
    read = source.make<CrossRead>(0, std::move(from), std::move(at));
  } catch (...) {
    core->discard(*copy);
    throw;
  }
  source.post_async(read);
  return copy;
}

}  // namespace reprise::detail

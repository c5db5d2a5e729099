// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/core.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>
#include <reprise/runtime/window.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace reprise::detail {

namespace {

// How much longer than its deadline a shutdown waits for a device thread that only has to notice.
constexpr std::uint64_t grace_ns = 1'000'000'000;

/// A hold of this device: with the node that brings it back to the device thread.
struct DeviceHold final : Hold, ControlNode {
  DeviceHold(std::shared_ptr<HoldOwner> owner, std::uint64_t bytes, std::uint64_t& taint_changes,
             Job* on_release_) noexcept
      : Hold(std::move(owner), bytes), on_release(on_release_) {
    device.taint = TaintMap(bytes, &taint_changes);
    run = [](ControlNode& node, void* actor) noexcept {
      auto& hold = static_cast<DeviceHold&>(node);
      if (actor != nullptr) static_cast<Actor*>(actor)->give_back(hold);
      if (hold.on_release != nullptr) {
        static_cast<DeviceCore*>(hold.owner())->shared().courier.post(*hold.on_release);
      }
      if (hold.device.queued == 0) return hold.forget();
      hold.device.given_back = true;
    };
  }

  Job* const on_release;
};

}  // namespace

void leave_behind(std::shared_ptr<const void> object) {
  static std::mutex mutex;  // guards objects
  static auto* const objects = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  objects->push_back(std::move(object));
}

// ---- RuntimeShared -----------------------------------------------------------------------------

RuntimeShared::RuntimeShared(RuntimeOptions options_)
    : options(std::move(options_)), host(options.host ? *options.host : real_host()),
      courier({&RuntimeShared::job_threw, this}), completer({&RuntimeShared::job_threw, this}) {
  const auto start = [this](JobLoop& loop, const char* name, ThreadRole role) {
    if (auto started = loop.start(host, {.name = name, .role = role}); !started) {
      throw Failure(started.error().code, "runtime", "no thread for completions");
    }
  };
  start(courier, "rp-courier", ThreadRole::courier);
  start(completer, "rp-completer", ThreadRole::completer);
}

void RuntimeShared::job_threw(void* self, std::exception_ptr) noexcept {
  static_cast<RuntimeShared*>(self)->sink_failures.fetch_add(1, std::memory_order_relaxed);
}

void RuntimeShared::keep(const FailurePtr& failure) noexcept {
  std::vector<FailurePtr> unused;
  try {
    const std::lock_guard lock(mutex_);
    const auto only_here = [](const FailurePtr& kept) { return kept.use_count() == 1; };
    const auto from = std::partition(kept_.begin(), kept_.end(), std::not_fn(only_here));
    unused.assign(std::make_move_iterator(from), std::make_move_iterator(kept_.end()));
    kept_.erase(from, kept_.end());
    kept_.push_back(failure);
  } catch (const std::bad_alloc&) {
    // Without memory to keep it, the exception dies wherever its last carrier does.
  }
  if (!unused.empty()) dispose(std::move(unused));
}

bool RuntimeShared::close(std::uint64_t deadline_ns) noexcept {
  const bool closers_ended = closers.close(deadline_ns);  // before those that their answers need
  const bool courier_ended = courier.close(deadline_ns);
  const bool completer_ended = completer.close(deadline_ns);
  return closers_ended && courier_ended && completer_ended;
}

namespace {

struct SinkJob : Job {
  SinkJob(RuntimeShared& shared_, FailureNotice notice_) noexcept
      : shared(shared_), notice(std::move(notice_)) {
    run = [](Job& job) {
      const std::unique_ptr<SinkJob> self(static_cast<SinkJob*>(&job));
      self->shared.options.error_sink(self->notice);
    };
    destroy = [](Job& job) noexcept { delete static_cast<SinkJob*>(&job); };
  }
  RuntimeShared& shared;
  FailureNotice notice;
};

}  // namespace

void RuntimeShared::report(const FailurePtr& failure, bool skipped) noexcept {
  if (!options.error_sink || failure->code == Errc::operation_aborted) return;
  auto* const job = new (std::nothrow) SinkJob(*this, {failure, skipped});
  if (job == nullptr) {
    sink_failures.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  courier.post(*job);
}

// ---- HeapStaging -------------------------------------------------------------------------------

void* HeapStaging::allocate(std::uint64_t bytes) noexcept {
  return ::operator new (bytes, std::align_val_t{64}, std::nothrow);
}

void HeapStaging::free(void* memory, std::uint64_t /*bytes*/) noexcept {
  ::operator delete (memory, std::align_val_t{64});
}

// ---- DeviceCore --------------------------------------------------------------------------------

DeviceCore::DeviceCore(std::shared_ptr<RuntimeShared> shared, std::unique_ptr<Backend> backend,
                       DeviceOptions options)
    : shared_(std::move(shared)), options_(std::move(options)), backend_(std::move(backend)),
      staging_(staging_source_, {.limit_bytes = options_.staging_limit_bytes}),
      channel_({.capacity = options_.ring_capacity}, *this) {
  doorbell_.run = [](ControlNode& node, void* actor) noexcept {
    // Cleared first: a ring from here on is served again.
    static_cast<Doorbell&>(node).rung.store(false, std::memory_order_seq_cst);
    if (actor != nullptr) static_cast<Actor*>(actor)->on_doorbell();
  };
}

DeviceCore::~DeviceCore() {
  while (here_ != nullptr) blocks_.give(std::exchange(here_, here_->next), block_here);
}

void DeviceCore::start() {
  actor_ = std::make_unique<Actor>(*this);
  if (auto started = helper_loop_.start(host(), {.name = "rp-helper", .role = ThreadRole::helper});
      !started) {
    throw Failure(started.error().code, "open", "no helper thread for '" + name() + "'");
  }
  if (auto started = backend_->start(*this); !started) {
    (void)helper_loop_.close(host().now_ns());
    throw Failure(started.error().code, "open",
                  "the backend of '" + name() +
                      "' does not start: " + std::string(started.error().message));
  }
  auto thread = host().start(*actor_, {.name = "rp-device",
                                       .role = ThreadRole::device,
                                       .spin_ns = options_.spin_ns,
                                       .long_spin = 20});
  if (!thread) {
    std::string stuck;
    (void)backend_->stop(~std::uint64_t{0}, stuck);
    (void)helper_loop_.close(~std::uint64_t{0});
    throw Failure(thread.error().code, "open", "no device thread for '" + name() + "'");
  }
  thread_ = std::move(*thread);
  // Release: the partner is the load in wake().
  handle_.store(thread_.get(), std::memory_order_release);
  thread_->wake();
}

void DeviceCore::wake() noexcept {
  if (LoopHandle* const handle = handle_.load(std::memory_order_acquire)) handle->wake();
}

void DeviceCore::discard(Operation& operation) noexcept {
  void* const block = operation.block;
  const std::size_t bytes = operation.block_bytes;
  const bool made_here = operation.made_here;
  operation.~Operation();
  if (made_here) {
    here_ = ::new (block) FreeBlock{here_};
  } else {
    blocks_.give(block, bytes);
  }
}

Admission DeviceCore::submit(Operation& operation) noexcept {
  const bool room =
      !operation.logical || operation.logical->take_credit(options_.in_flight_per_stream);
  const Admission admission = channel_.submit(Submitted{&operation}, operation.late, room);
  if (admission == Admission::closed && operation.logical) operation.logical->return_credit();
  return admission;
}

Result<void> DeviceCore::try_post(Operation* operation) noexcept {
  const bool room =
      !operation->logical || operation->logical->take_credit(options_.in_flight_per_stream);
  switch (channel_.try_submit(Submitted{operation}, room)) {
    case Admission::in_slot: return {};
    case Admission::closed:
      if (operation->logical) operation->logical->return_credit();
      discard(*operation);
      return Errc::closed;
    default:
      if (operation->logical) operation->logical->return_credit();
      discard(*operation);
      return Errc::would_block;
  }
}

void DeviceCore::post(Operation* operation) {
  const char* const verb = operation->verb;
  if (this_thread_role() != ThreadRole::user) {
    auto posted = try_post(operation);
    if (posted) return;
    if (posted.error().code == Errc::closed) throw Failure(closed_failure(verb));
    throw Failure(Errc::channel_full, verb, "a library thread may not wait for room in the ring");
  }
  BlockingReply taken;
  operation->taken = &taken;
  switch (submit(*operation)) {
    case Admission::in_slot: return;
    case Admission::late:
      REPRISE_MARK("post_waited");
      channel_.ring_bell();
      (void)taken.wait(host(), helper());
      return;
    default: discard(*operation); throw Failure(closed_failure(verb));
  }
}

void DeviceCore::post_async(Operation* operation) noexcept {
  operation->taken = nullptr;
  if (submit(*operation) == Admission::closed) refuse_closed(*operation);
}

void DeviceCore::refuse_closed(Operation& operation) noexcept {
  const FailurePtr failure = closed_failure(operation.verb);
  operation.accepted(failure);
  operation.finish(failure);
  discard(operation);
}

void DeviceCore::call(Operation* operation, BlockingReply& reply) {
  post_async(operation);
  channel_.ring_bell();
  if (FailurePtr failure = reply.wait(host(), helper())) throw Failure(std::move(failure));
}

void DeviceCore::call(const ReplayRequest& request, BlockingReply& reply) {
  LogicalStream& logical = *request.graph->logical;
  Late<ReplayRequest> late;
  const bool room = logical.take_credit(options_.in_flight_per_stream);
  if (channel_.submit(ReplayRequest(request), late, room) == Admission::closed) {
    logical.return_credit();
    throw Failure(closed_failure("replay"));
  }
  channel_.ring_bell();
  if (FailurePtr failure = reply.wait(host(), helper())) throw Failure(std::move(failure));
}

void DeviceCore::query(ControlNode& node, BlockingReply& reply) {
  (void)channel_.post(node);
  channel_.ring_bell();
  if (FailurePtr failure = reply.wait(host(), nullptr)) throw Failure(std::move(failure));
}

AsyncContext DeviceCore::async_context() noexcept {
  return {host(), helper(), shared_->courier, shared_->completer, blocks_, shared_from_this()};
}

FailurePtr DeviceCore::closed_failure(const char* verb) noexcept {
  return make_failure(Errc::closed, verb, {}, "the device was closed");
}

HoldRef DeviceCore::make_hold(std::uint64_t bytes, Job* on_release) {
  void* const block = blocks_.take(sizeof(DeviceHold));
  if (block == nullptr) throw std::bad_alloc();
  return HoldRef{::new (block) DeviceHold(shared_from_this(), bytes, taint_changes_, on_release)};
}

std::shared_ptr<LogicalStream> DeviceCore::make_stream(Priority priority) {
  // Relaxed: only uniqueness matters.
  return LogicalStream::make(shared_from_this(),
                             next_stream_.fetch_add(1, std::memory_order_relaxed), priority);
}

StagingBlock DeviceCore::take_staging(std::uint64_t bytes) {
  for (;;) {
    auto block = staging_.take(bytes);
    if (block) return std::move(*block);
    if (block.error().code != Errc::would_block) {
      throw Failure(block.error().code, "write",
                    "no staging memory for " + std::to_string(bytes) + " bytes");
    }
    if (this_thread_role() != ThreadRole::user) {
      throw Failure(Errc::channel_full, "write", "a library thread may not wait for staging");
    }
    // Staging comes back when the writes that hold it have finished.
    REPRISE_MARK("write_waited_for_staging");
    BlockingReply reply;
    auto* const operation = make_call(*this, "write", [](Actor& actor, Operation& self) {
      actor.run_after(self, actor.everything());
    });
    operation->finished = Completion(&reply);
    call(operation, reply);
  }
}

// ---- shutdown ----------------------------------------------------------------------------------

Result<void> DeviceCore::close(bool abort, std::uint64_t deadline_ns, std::string& stuck) {
  const std::lock_guard lock(close_mutex_);
  return close_locked(abort, deadline_ns, stuck);
}

std::optional<Result<void>> DeviceCore::try_close(bool abort, std::uint64_t deadline_ns,
                                                  std::string& stuck) {
  const std::unique_lock lock(close_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  return close_locked(abort, deadline_ns, stuck);
}

Result<void> DeviceCore::close_locked(bool abort, std::uint64_t deadline_ns, std::string& stuck) {
  if (ended_) return {};
  if (leaked_) {
    stuck = stuck_;
    return Errc::timed_out;
  }
  // Release, there: the partner is is_aborting() on the device thread.
  if (abort) begin_abort();
  channel_.close();
  thread_->wake();
  bool ended = thread_->join(deadline_ns);
  bool device_thread_ended = ended;
  if (!ended) {
    REPRISE_MARK("shutdown_timed_out");
    giving_up_.store(true, std::memory_order_release);
    thread_->wake();
    // The device thread never blocks on the device, so it does end now, unless it runs kernels
    // itself and one of them is what does not return.
    device_thread_ended = thread_->join(host().now_ns() + grace_ns);
  }
  if (!backend_->stop(deadline_ns, stuck_)) ended = false;
  if (!helper_loop_.close(deadline_ns)) ended = false;
  if (!ended) {
    // From here on this thread is the actor's, as nobody else comes back to it.
    if (!device_thread_ended && !backend_->holds_device_thread()) {
      device_thread_ended = thread_->join(host().now_ns() + grace_ns);
    }
    if (device_thread_ended || backend_->holds_device_thread()) actor_->answer_left_behind();
    leaked_ = true;
    stuck = stuck_;
    // What a stuck thread may still use must never go.
    leave_behind(shared_from_this());
    return Errc::timed_out;
  }
  handle_.store(nullptr, std::memory_order_release);
  thread_.reset();
  actor_.reset();
  ended_ = true;
  return {};
}

// ---- what others tell the device ---------------------------------------------------------------

void DeviceCore::deliver(ControlNode& node) noexcept {
  if (Actor::is_stepping(*this)) {
    // Already where the control lane would bring it: the books are exact at once.
    node.run(node, actor_.get());
  } else {
    (void)channel_.post(node);
  }
}

void DeviceCore::released(Hold& hold) noexcept {
  deliver(static_cast<DeviceHold&>(hold));
}

void DeviceCore::destroy(Hold& hold) noexcept {
  auto& mine = static_cast<DeviceHold&>(hold);
  mine.~DeviceHold();
  blocks_.give(&mine, sizeof(DeviceHold));
}

void DeviceCore::failed(Work& work) noexcept {
  auto& operation = static_cast<Operation&>(work);
  operation.run = [](ControlNode& node, void* actor) noexcept {
    if (actor != nullptr) static_cast<Actor*>(actor)->on_failed(static_cast<Operation&>(node));
  };
  (void)channel_.post(operation);
}

void DeviceCore::progressed() noexcept {
  // Pairs with the clearing store in the doorbell's run: who sets it posts it.
  if (!doorbell_.rung.exchange(true, std::memory_order_seq_cst)) (void)channel_.post(doorbell_);
}

// ---- LogicalStream -----------------------------------------------------------------------------

LogicalStream::LogicalStream(std::shared_ptr<DeviceCore> core_, StreamId id_,
                             Priority priority_) noexcept
    : core(std::move(core_)), id(id_), priority(priority_) {}

LogicalStream::~LogicalStream() = default;

std::shared_ptr<LogicalStream> LogicalStream::make(std::shared_ptr<DeviceCore> core, StreamId id,
                                                   Priority priority) {
  const auto dispose = [](LogicalStream* stream) noexcept {
    const std::shared_ptr<DeviceCore> keep = stream->core;
    keep->deliver(*stream);
  };
  auto* const stream = new LogicalStream(std::move(core), id, priority);
  stream->run = [](ControlNode& node, void* actor) noexcept {
    auto* const self = static_cast<LogicalStream*>(&node);
    if (actor != nullptr) static_cast<Actor*>(actor)->close_stream(*self);
    delete self;
  };
  return std::shared_ptr<LogicalStream>(stream, dispose);
}

}  // namespace reprise::detail

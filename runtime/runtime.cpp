// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include <reprise/memory/picture.hpp>
#include <reprise/device/cpu/backend.hpp>
#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/closer.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>

#include <bit>
#include <charconv>
#include <map>
#include <mutex>

namespace reprise {

namespace detail {

struct RuntimeState {
  explicit RuntimeState(RuntimeOptions options)
      : shared(std::make_shared<RuntimeShared>(std::move(options))) {}

  std::shared_ptr<RuntimeShared> shared;
  std::mutex mutex;  // guards devices
  std::map<std::string, std::shared_ptr<DeviceCore>, std::less<>> devices;
};

}  // namespace detail

namespace {

using detail::Actor;
using detail::BlockingReply;
using detail::DeviceCore;
using detail::Operation;

void close_devices(detail::CloseRequest request) {
  detail::refuse_library_threads(request.verb);
  detail::CloseSteps steps(std::move(request));
  if (FailurePtr failure = steps.wait()) throw Failure(std::move(failure));
}

void check_option(bool good, const char* text, std::uint64_t value) {
  if (good) return;
  throw Failure(Errc::invalid_argument, "open",
                std::string(text) + ", not " + std::to_string(value));
}

void check_options(const DeviceOptions& o) {
  check_option(o.ring_capacity >= 2 && std::has_single_bit(o.ring_capacity) &&
                   o.ring_capacity <= (1u << 20),
               "ring_capacity is a power of two from 2 to 2^20", o.ring_capacity);
  check_option(o.streams >= 1 && o.streams <= 64, "streams are 1 to 64", o.streams);
  check_option(o.in_flight >= 1, "in_flight is at least 1", o.in_flight);
  check_option(o.in_flight_per_stream >= 1, "in_flight_per_stream is at least 1",
               o.in_flight_per_stream);
  check_option(!o.workers || *o.workers <= 256, "workers are at most 256", o.workers.value_or(0));
  check_option(o.staging_limit_bytes >= (64u << 10), "staging_limit_bytes is at least 64 KiB",
               o.staging_limit_bytes);
}

std::unique_ptr<Backend> make_backend(Host& host, std::string_view name, const DeviceOptions& o) {
  const auto colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  std::uint32_t index = 0;
  bool numbered = false;
  if (colon != std::string_view::npos) {
    const std::string_view digits = name.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    numbered = error == std::errc{} && end == digits.data() + digits.size() && index < 64;
  }
  if (kind == "cpu" && numbered) {
    CpuOptions options;
    options.name = std::string(name);
    if (o.workers) options.workers = *o.workers;
    options.streams = o.streams;
    options.help_while_waiting = o.help_while_waiting;
    return make_cpu_backend(host, options);
  }
  if (kind == "cuda" && numbered) {
    throw Failure(Errc::not_initialized, "open",
                  "'" + std::string(name) + "': this build has no CUDA backend");
  }
  throw Failure(Errc::no_such_device, "open",
                "'" + std::string(name) + "' is not the name of a device; \"cpu:0\" is one");
}

/// A question that goes by the control lane. The asker keeps it until it is answered.
template <class F>
class Query : public ControlNode {
public:
  Query(Reply& reply, const char* verb, F function) noexcept
      : reply_(reply), verb_(verb), function_(std::move(function)) {
    run = [](ControlNode& node, void* actor) noexcept {
      if (!is_deferred(node, actor)) static_cast<Query&>(node).answer(actor);
    };
  }

protected:
  static bool is_deferred(ControlNode& node, void* actor) noexcept {
    return actor != nullptr && static_cast<Actor*>(actor)->defers(node);
  }
  void answer(void* actor) noexcept {
    Reply& waiting = reply_;
    if (!waiting.start()) {
      return waiting.complete(make_failure(Errc::operation_aborted, verb_, {}, "cancelled"));
    }
    if (actor == nullptr) return waiting.complete(DeviceCore::closed_failure(verb_));
    FailurePtr failure;
    try {
      function_(*static_cast<Actor*>(actor));
    } catch (const std::bad_alloc&) {
      failure = make_failure(Errc::out_of_memory, verb_, {}, "no host memory");
    }
    waiting.complete(failure);
  }

private:
  Reply& reply_;
  const char* verb_;
  F function_;
};

/// One that nobody keeps.
template <class F>
class OwnQuery final : public Query<F> {
public:
  OwnQuery(Reply& reply, const char* verb, F function) noexcept
      : Query<F>(reply, verb, std::move(function)) {
    this->run = [](ControlNode& node, void* actor) noexcept {
      if (Query<F>::is_deferred(node, actor)) return;
      const std::unique_ptr<OwnQuery> self(static_cast<OwnQuery*>(&node));
      self->answer(actor);
    };
  }
};

template <class F>
void ask(DeviceCore& core, const char* verb, F function) {
  detail::refuse_library_threads(verb);
  BlockingReply reply;
  Query<F> query(reply, verb, std::move(function));
  core.query(query, reply);
}

template <class F>
void start_query(DeviceCore& core, const char* verb, Reply& reply, F function) noexcept {
  // A device that was left behind serves its lane no more.
  if (core.is_giving_up()) return reply.complete(DeviceCore::closed_failure(verb));
  auto* const query = new (std::nothrow) OwnQuery<F>(reply, verb, std::move(function));
  if (query == nullptr) {
    return reply.complete(make_failure(Errc::out_of_memory, verb, {}, "no host memory"));
  }
  (void)core.channel().post(*query);
}

Operation* make_synchronize(DeviceCore& core) {
  return detail::make_call(core, "synchronize", [](Actor& actor, Operation& self) {
    actor.run_after(self, actor.everything());
  });
}

}  // namespace

namespace detail {

struct DeviceAccess {
  static const std::shared_ptr<DeviceCore>& core(const Device& device, const char* verb) {
    if (!device.core_) throw Failure(Errc::empty_handle, verb, "the device handle is empty");
    return device.core_;
  }
};

AsyncContext async_context(const Device& device, const char* verb) {
  return DeviceAccess::core(device, verb)->async_context();
}

AsyncContext async_context(const CloseRequest& request, const char* /*verb*/) {
  RuntimeShared& shared = *request.shared;
  return {shared.host,          nullptr,       shared.courier, shared.completer,
          BlockCache::shared(), request.shared};
}

CloseRequest close_request(const Device& device, bool abort, std::chrono::nanoseconds limit,
                           const char* verb) {
  const auto& core = DeviceAccess::core(device, verb);
  return {core->share(), {core}, abort, limit, verb};
}

void start_memory_report(const Device& device, ValueReply<MemoryReport>& reply) noexcept {
  start_query(*DeviceAccess::core(device, "memory_report"), "memory_report", reply,
              [&reply](Actor& actor) { reply.value = actor.memory_report(); });
}

void start_trim(const Device& device, ValueReply<std::uint64_t>& reply) noexcept {
  start_query(*DeviceAccess::core(device, "trim"), "trim", reply,
              [&reply](Actor& actor) { reply.value = actor.trim(); });
}

void start_synchronize(const Device& device, Reply* reply) noexcept {
  DeviceCore& core = *DeviceAccess::core(device, "synchronize");
  Operation* operation = nullptr;
  try {
    operation = make_synchronize(core);
  } catch (...) {
    return answer_exception(reply, "synchronize");
  }
  operation->finished = Completion(reply);
  core.post_async(operation);
}

void start_close(const CloseRequest& request, Reply* reply) noexcept {
  FailurePtr failure;
  try {
    auto closer = std::make_unique<Closer>(request, reply);
    if (request.shared->closers.start(request.shared->host, closer, failure)) return;
    // The runtime has ended, and its devices with it: nothing is left to wait for.
    if (!failure) failure = CloseSteps(request).wait();
  } catch (const std::bad_alloc&) {
    failure = make_failure(Errc::out_of_memory, request.verb, {}, "no host memory");
  }
  reply->complete(failure);
}

}  // namespace detail

// ---- Device ------------------------------------------------------------------------------------

DeviceCore& Device::core(const char* verb) const {
  return *detail::DeviceAccess::core(*this, verb);
}

const std::string& Device::name() const {
  return core("name").name();
}

Client Device::client(Priority priority) const {
  return detail::ClientAccess::make(core("client").make_stream(priority));
}

MemoryReport Device::memory_report() const {
  MemoryReport report;
  ask(core("memory_report"), "memory_report",
      [&report](Actor& actor) { report = actor.memory_report(); });
  find_shared(report.graphs);
  return report;
}

std::string Device::memory_picture() const {
  MemorySnapshot snapshot;
  ask(core("memory_picture"), "memory_picture",
      [&snapshot](Actor& actor) { snapshot = actor.memory_snapshot(); });
  find_shared(snapshot.report.graphs);
  return render_svg(snapshot, "Memory of " + name());
}

std::uint64_t Device::trim() const {
  std::uint64_t bytes = 0;
  ask(core("trim"), "trim", [&bytes](Actor& actor) { bytes = actor.trim(); });
  return bytes;
}

DeviceStatistics Device::statistics() const {
  // Relaxed: counters, no order.
  const auto load = [](const std::atomic<std::uint64_t>& n) {
    return n.load(std::memory_order_relaxed);
  };
  const auto& c = core("statistics").counters();
  return {load(c.completed), load(c.failed),     load(c.skipped),      load(c.refused),
          load(c.replays),   load(c.waits_made), load(c.waits_elided), load(c.fallbacks)};
}

bool Device::any_recording() const {
  return core("any_recording").captures().status().any_recording();
}

void Device::synchronize() const {
  detail::refuse_library_threads("synchronize");
  DeviceCore& device = core("synchronize");
  BlockingReply reply;
  Operation* const operation = make_synchronize(device);
  operation->finished = Completion(&reply);
  device.call(operation, reply);
}

void Device::drain(std::chrono::nanoseconds limit) const {
  close_devices(detail::close_request(*this, false, limit, "drain"));
}

void Device::abort(std::chrono::nanoseconds limit) const {
  close_devices(detail::close_request(*this, true, limit, "abort"));
}

// ---- Runtime -----------------------------------------------------------------------------------

Runtime::Runtime(RuntimeOptions options)
    : state_(std::make_unique<detail::RuntimeState>(std::move(options))) {}

Runtime::~Runtime() {
  Host& host = state_->shared->host;
  const std::uint64_t limit =
      detail::deadline_after(host, std::chrono::nanoseconds(state_->shared->options.shutdown_ns));
  for (const auto& [name, core] : state_->devices) core->begin_abort();
  for (auto& [name, core] : state_->devices) {
    std::string stuck;
    (void)core->close(true, limit, stuck);
  }
  // The devices outlast the courier: what it has yet to destroy goes back to their blocks.
  if (!state_->shared->close(limit)) {
    // A handler does not return: its thread may use the runtime for ever.
    detail::leave_behind(state_->shared);
  }
  state_->devices.clear();
}

Device Runtime::open(std::string_view name, const DeviceOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->devices.find(name);
  if (found != state_->devices.end() && !found->second->is_closed()) return Device{found->second};
  check_options(options);
  auto core = std::make_shared<DeviceCore>(
      state_->shared, make_backend(state_->shared->host, name, options), options);
  core->start();
  state_->devices.insert_or_assign(std::string(name), core);
  return Device{std::move(core)};
}

detail::CloseRequest Runtime::close_request(bool abort, std::chrono::nanoseconds limit,
                                            const char* verb) const {
  detail::CloseRequest request{state_->shared, {}, abort, limit, verb};
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, core] : state_->devices) request.cores.push_back(core);
  return request;
}

void Runtime::drain(std::chrono::nanoseconds limit) {
  close_devices(close_request(false, limit, "drain"));
}

void Runtime::abort(std::chrono::nanoseconds limit) {
  close_devices(close_request(true, limit, "abort"));
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include <reprise/device/cpu/backend.hpp>
#include <reprise/runtime/actor.hpp>
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

std::uint64_t deadline(Host& host, std::chrono::nanoseconds limit) {
  const auto now = host.now_ns();
  const auto left = static_cast<std::uint64_t>(std::max<std::int64_t>(limit.count(), 0));
  return now + std::min(left, ~std::uint64_t{0} / 2 - now);
}

void close_device(DeviceCore& core, bool abort, std::chrono::nanoseconds limit, const char* verb) {
  detail::refuse_library_threads(verb);
  std::string stuck;
  if (auto closed = core.close(abort, deadline(core.host(), limit), stuck); !closed) {
    throw Failure(closed.error().code, verb,
                  "'" + core.name() + "' still runs " + (stuck.empty() ? "work" : stuck));
  }
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

template <class F>
class Query final : public ControlNode {
public:
  Query(BlockingReply& reply, const char* verb, F function) noexcept
      : reply_(reply), verb_(verb), function_(std::move(function)) {
    run = [](ControlNode& node, void* actor) noexcept {
      auto& self = static_cast<Query&>(node);
      BlockingReply& waiting = self.reply_;
      if (actor == nullptr) return waiting.complete(DeviceCore::closed_failure(self.verb_));
      FailurePtr failure;
      try {
        self.function_(*static_cast<Actor*>(actor));
      } catch (const std::bad_alloc&) {
        failure = make_failure(Errc::out_of_memory, self.verb_, {}, "no host memory");
      }
      waiting.complete(failure);
    };
  }

private:
  BlockingReply& reply_;
  const char* verb_;
  F function_;
};

template <class F>
void ask(DeviceCore& core, const char* verb, F function) {
  detail::refuse_library_threads(verb);
  BlockingReply reply;
  Query<F> query(reply, verb, std::move(function));
  core.query(query, reply);
}

}  // namespace

// ---- Device ------------------------------------------------------------------------------------

DeviceCore& Device::core(const char* verb) const {
  if (!core_) throw Failure(Errc::empty_handle, verb, "the device handle is empty");
  return *core_;
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
  return report;
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
  return {load(c.completed), load(c.failed),  load(c.skipped),
          load(c.refused),   load(c.replays), load(c.waits_made)};
}

bool Device::any_recording() const {
  return core("any_recording").captures().status().any_recording();
}

void Device::synchronize() const {
  detail::refuse_library_threads("synchronize");
  DeviceCore& device = core("synchronize");
  BlockingReply reply;
  Operation* const operation =
      detail::make_call(device, "synchronize", [](Actor& actor, Operation& self) {
        actor.run_after(self, actor.everything());
      });
  operation->finished = Completion(&reply);
  device.call(operation, reply);
}

void Device::drain(std::chrono::nanoseconds limit) const {
  close_device(core("drain"), false, limit, "drain");
}

void Device::abort(std::chrono::nanoseconds limit) const {
  close_device(core("abort"), true, limit, "abort");
}

// ---- Runtime -----------------------------------------------------------------------------------

Runtime::Runtime(RuntimeOptions options)
    : state_(std::make_unique<detail::RuntimeState>(std::move(options))) {}

Runtime::~Runtime() {
  Host& host = state_->shared->host;
  const std::uint64_t limit =
      deadline(host, std::chrono::nanoseconds(state_->shared->options.shutdown_ns));
  for (auto& [name, core] : state_->devices) {
    std::string stuck;
    (void)core->close(true, limit, stuck);
  }
  state_->devices.clear();
  if (!state_->shared->close(limit)) {
    // A handler does not return: its thread may use the runtime for ever.
    detail::leave_behind(state_->shared);
  }
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

void Runtime::close_all(bool abort, std::chrono::nanoseconds limit, const char* verb) {
  std::map<std::string, std::shared_ptr<DeviceCore>, std::less<>> devices;
  {
    const std::lock_guard lock(state_->mutex);
    devices = state_->devices;
  }
  for (auto& [name, core] : devices) close_device(*core, abort, limit, verb);
}

void Runtime::drain(std::chrono::nanoseconds limit) {
  close_all(false, limit, "drain");
}

void Runtime::abort(std::chrono::nanoseconds limit) {
  close_all(true, limit, "abort");
}

}  // namespace reprise

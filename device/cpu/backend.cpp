// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/backend.hpp>

#include <reprise/memory/check.hpp>
#include <reprise/device/cpu/engine.hpp>
#include <reprise/device/cpu/page_source.hpp>
#include <reprise/device/cpu/program.hpp>
#include <reprise/device/cpu/workers.hpp>
#include <reprise/device/futex.hpp>

#include <algorithm>
#include <atomic>
#include <new>
#include <unistd.h>

namespace reprise {

namespace {

using detail::CpuStream;
using detail::Engine;

std::uint64_t machine_memory() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? std::uint64_t(pages) * std::uint64_t(page) : 0;
}

bool has_body(const Command& command) noexcept {
  const auto* launch = std::get_if<command::Launch>(&command);
  return !launch || (launch->kernel && launch->kernel->cpu);
}

constexpr Error no_body{Errc::no_such_kernel, 0, "the kernel has no body for the CPU"};

class CpuBackend final : public Backend {
public:
  CpuBackend(Host& host, const CpuOptions& options)
      : host_(host), helps_(options.help_while_waiting && options.workers != 0),
        pages_({options.page_size, options.address_space, options.huge_pages}),
        engine_(host, options.streams, options.workers, options.split_threshold_ns),
        workers_(engine_, host, options.workers, options.worker_spin_ns) {
    properties_.name = options.name;
    properties_.description = "CPU, " + std::to_string(options.workers) + " workers";
    properties_.memory_bytes = machine_memory();
    properties_.streams = options.streams;
    properties_.workers = options.workers;
    properties_.asynchronous = options.workers != 0;
    // A block is a call of the body, however many items it covers.
    properties_.limits.max_threads = {0x7fffffff, 0x7fffffff, 0x7fffffff};
    properties_.limits.max_threads_per_block = 0x7fffffff;
  }

  const DeviceProperties& properties() const noexcept override { return properties_; }
  PageSource& pages() noexcept override { return pages_; }

  Result<void> start(Notice& notice) override {
    engine_.set_notice(notice);
    return workers_.start();
  }

  bool stop(std::uint64_t deadline_ns, std::string& stuck) noexcept override {
    const bool ended = workers_.stop(deadline_ns);
    // On a cooperative host a helper is this very thread, which is not inside.
    const bool left = host_.is_cooperative() || gate_.close(deadline_ns);
    if (ended && left) return true;
    engine_.give_up();
    try {
      for (CpuStream& stream : engine_.streams()) {
        stuck = stream.running.name();
        if (!stuck.empty()) break;
      }
    } catch (...) {
      stuck.clear();  // No memory for a name.
    }
    return false;
  }

  void end_loops() noexcept override { engine_.end_loops(); }

  bool holds_device_thread() noexcept override {
    // With the exchange in run_inline(): either that thread has come out, or it never will.
    auto seen = Inline::inside;
    return inline_.compare_exchange_strong(seen, Inline::left_behind, std::memory_order_acq_rel) ||
           seen == Inline::left_behind;
  }

  Result<void> enqueue(StreamIndex index, Work& work) noexcept override {
    if (!has_body(work.command)) return no_body;
    CpuStream& stream = at(index);
    work.stream = index;
    work.position = ++stream.enqueued;
    if (stream.inbox.push(work)) unkicked_ |= stream.bit();
    return {};
  }

  StreamPosition finished(StreamIndex index) const noexcept override {
    return engine_.stream(index).progress.position();
  }

  void kick(StreamIndex except) noexcept override {
    // Acquire: pairs with the release in help(); what it left is in the inbox.
    if (left_over_.load(std::memory_order_relaxed) != 0) {
      unkicked_ |= left_over_.exchange(0, std::memory_order_acquire);
    }
    if (unkicked_ == 0) return;
    const std::uint32_t kept = helps_ && except != no_stream ? at(except).bit() & unkicked_ : 0;
    std::uint32_t bits = 0;
    for (std::uint32_t rest = unkicked_ & ~kept; rest != 0; rest &= rest - 1) {
      CpuStream& stream = engine_.stream(static_cast<StreamIndex>(std::countr_zero(rest)));
      // Else a helper has it, and hands it over itself if it does not finish.
      if (stream.inbox.is_waiting()) bits |= stream.bit();
    }
    unkicked_ = kept;
    engine_.crew().publish(bits, true);
    run_inline();
  }

  bool arm(StreamIndex index, StreamPosition position) noexcept override {
    return at(index).progress.arm(position);
  }

  void resume(StreamIndex index) noexcept override {
    engine_.resume(at(index));
    run_inline();
  }

  void help(StreamIndex index, HelpUntil& until) noexcept override {
    CpuStream& stream = at(index);
    // A blocked caller looks here again and again; mostly there is nothing.
    if (!helps_ || !stream.inbox.is_waiting() || !gate_.enter()) return;
    if (stream.inbox.claim()) {
      SpinBudget::running(+1);
      {
        const RoleScope role(ThreadRole::worker);
        if (engine_.run(stream, ~std::uint32_t{0}, &until, false) == Engine::Left::unfinished) {
          leave(stream);
        }
      }
      SpinBudget::running(-1);
    }
    gate_.leave();
  }

  Result<std::unique_ptr<GraphProgram>> lower(const GraphPlan& plan) override {
    for (std::uint32_t i = 0; i < plan.nodes.size(); ++i) {
      if (!has_body(plan.nodes.node(i).command)) return no_body;
    }
    try {
      return std::unique_ptr<GraphProgram>{
          std::make_unique<detail::CpuProgram>(plan, engine_.splitter(), engine_.ends_loops())};
    } catch (const std::bad_alloc&) {
      return Error{Errc::out_of_memory, 0, "no memory for the program of a graph"};
    }
  }

private:
  CpuStream& at(StreamIndex index) noexcept {
    REPRISE_CHECK(index < properties_.streams, "a stream of the CPU device is out of range");
    return engine_.stream(index);
  }

  // Waking a worker is dear, and a caller that helped once is likely to come back: the device
  // thread sees to the rest, after a while.
  void leave(CpuStream& stream) noexcept {
    if (!stream.inbox.hand_over()) return;
    left_over_.fetch_or(stream.bit(), std::memory_order_release);
    engine_.notice().progressed();
  }

  // Without workers the device thread runs everything, here.
  void run_inline() noexcept {
    if (properties_.workers != 0 || inline_.load(std::memory_order_relaxed) != Inline::outside) {
      return;
    }
    inline_.store(Inline::inside, std::memory_order_release);
    const RoleScope role(ThreadRole::worker);
    std::uint32_t last = 0;
    for (;;) {
      const auto taken = engine_.crew().ready.take(last, false);
      if (taken.stream == detail::ReadyWord<>::nobody) break;
      last = taken.stream;
      CpuStream& stream = engine_.stream(last);
      if (stream.inbox.claim()) engine_.run(stream, ~std::uint32_t{0}, nullptr, true);
    }
    if (inline_.exchange(Inline::outside, std::memory_order_acq_rel) == Inline::left_behind) {
      stay_for_ever();
    }
  }

  [[noreturn]] static void stay_for_ever() noexcept {
    REPRISE_MARK("device_thread_left_behind");
    SpinBudget::running(-1);
    detail::FutexWord never{0};
    for (;;) detail::futex_wait(never, 0);
  }

  /// Where the device thread is, if it runs the commands.
  enum class Inline : std::uint8_t { outside, inside, left_behind };

  Host& host_;
  const bool helps_;
  DeviceProperties properties_;
  CpuPageSource pages_;
  Engine engine_;
  detail::Workers workers_;
  detail::HelperGate gate_;
  std::atomic<std::uint32_t> left_over_{0};  // Streams that helpers left with work in them.
  // The device thread's:
  std::uint32_t unkicked_ = 0;  // Streams that began to wait for an owner since the last kick.
  std::atomic<Inline> inline_{Inline::outside};
};

}  // namespace

std::uint32_t default_cpu_workers() noexcept {
  return std::max(2U, usable_cpus()) - 1;
}

std::unique_ptr<Backend> make_cpu_backend(Host& host, const CpuOptions& options) {
  using Word = detail::ReadyWord<>;
  if (options.streams == 0 || options.streams > Word::max_streams) {
    throw Failure(Errc::invalid_argument, "open", "a CPU device has 1 to 31 streams");
  }
  if (options.workers > Word::max_workers) {
    throw Failure(Errc::invalid_argument, "open", "a CPU device has at most 254 workers");
  }
  try {
    return std::make_unique<CpuBackend>(host, options);
  } catch (const std::bad_alloc&) {
    throw Failure(Errc::out_of_memory, "open", "no memory for a CPU device");
  }
}

}  // namespace reprise

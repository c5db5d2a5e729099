// SPDX-License-Identifier: Apache-2.0
// P6, P7: callers of a device that sleeps, or that others call too.
#include "harness.hpp"
#include "replay_peers.hpp"

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise::bench {
namespace {

/// A device with graphs of four nodes that have run, each over a number of its own.
class Graphs {
public:
  explicit Graphs(int count) : device_(runtime_.open("cpu:0", options())) {
    const Kernel touch("touch", [](const Block&, InOut<std::uint64_t> x) { x[0] += 1; });
    const Client client = device_.client();
    for (int i = 0; i < count; ++i) {
      numbers_.push_back(client.zeros<std::uint64_t>(1));
      graphs_.push_back(client.capture([&](Client& recording) {
        for (int k = 0; k < nodes; ++k) recording.launch(touch, 1, numbers_.back());
      }));
      graphs_.back().run();
    }
    device_.synchronize();
  }

  const Graph& operator[](int i) const { return graphs_[std::size_t(i)]; }
  /// Waits for the end of all that was asked for; aborts unless graph `i` ran `runs` times.
  void finish(int i, std::uint64_t runs) {
    device_.synchronize();
    if (device_.client().read(numbers_[std::size_t(i)])[0] != runs * nodes) std::abort();
  }
  void synchronize() { device_.synchronize(); }

private:
  static constexpr int nodes = 4;

  static DeviceOptions options() {
    DeviceOptions options;
    options.in_flight_per_stream = 64;
    return options;
  }

  Runtime runtime_;
  Device device_;
  std::vector<Array<std::uint64_t>> numbers_;
  std::vector<Graph> graphs_;
};

// ---- P6: a device that sleeps -------------------------------------------------------------------

constexpr int sleepers = 150;
constexpr double idle_ns = 300e3;  // much longer than anybody spins

void be_idle() {
  for (const std::uint64_t start = ticks(); ns_since(start) < idle_ns;) relax();
}

/// The median of call(), each after so long a pause that the other side sleeps.
template <class F>
double after_idle(F&& call) {
  std::vector<double> times;
  for (int i = 0; i < sleepers; ++i) {
    be_idle();
    const std::uint64_t start = ticks();
    call();
    times.push_back(ns_since(start));
  }
  return median(std::move(times));
}

/// A word there with a futex on it, a word back without.
class SleepingThread {
public:
  SleepingThread() : thread_([this] { run(); }) {}
  ~SleepingThread() {
    post(stop);
    thread_.join();
  }
  SleepingThread(const SleepingThread&) = delete;
  SleepingThread& operator=(const SleepingThread&) = delete;

  void call() {
    post(++turn_);
    while (answer_.load(std::memory_order_acquire) != turn_) relax();
  }

private:
  static constexpr std::uint32_t stop = ~std::uint32_t{0};

  void post(std::uint32_t turn) {
    request_.store(turn, std::memory_order_release);
    syscall(SYS_futex, &request_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void run() {
    pin(1);
    for (std::uint32_t turn = 1;; ++turn) {
      std::uint32_t seen = request_.load(std::memory_order_acquire);
      for (; seen == turn - 1; seen = request_.load(std::memory_order_acquire))
        syscall(SYS_futex, &request_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      if (seen == stop) return;
      answer_.store(turn, std::memory_order_release);
    }
  }

  alignas(64) std::atomic<std::uint32_t> request_{0};
  alignas(64) std::atomic<std::uint32_t> answer_{0};
  std::uint32_t turn_ = 0;
  std::thread thread_;
};

double woken() {
  SleepingThread other;
  const OnFirstCore first_core([] {});
  return after_idle([&] { other.call(); });
}

double accepted_asleep() {
  std::unique_ptr<Graphs> graphs;
  const OnFirstCore first_core([&] { graphs = std::make_unique<Graphs>(1); });
  const double ns = after_idle([&] { (*graphs)[0].replay(); });
  graphs->finish(0, sleepers + 1);
  return ns;
}

/// CPU time of the threads of this process whose name begins so, in ns.
double cpu_time(const std::string& name) {
  double total = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    double ran = 0;
    if (comm.starts_with(name) && std::ifstream(task.path() / "schedstat") >> ran) total += ran;
  }
  return total;
}

/// ms of CPU that such threads of a device take in a second in which nobody asks it for anything.
double idle_cpu(const std::string& name) {
  using std::chrono::milliseconds;
  Graphs graphs(1);
  for (int i = 0; i < 1000; ++i) graphs[0].replay();
  graphs.synchronize();
  std::this_thread::sleep_for(milliseconds(5));
  const double before = cpu_time(name);
  if (before == 0) std::abort();
  std::this_thread::sleep_for(milliseconds(500));
  return (cpu_time(name) - before) * 2 / 1e6;
}

// ---- P7: callers that outnumber the cores -------------------------------------------------------

constexpr int callers = 4;
constexpr double crowd_ns = 250e6;  // many times what the scheduler gives a thread at once

/// ns per call when four threads call call(caller, i) as often as they can.
template <class Call, class Finish>
double crowd(Call&& call, Finish&& finish) {
  std::array<std::uint64_t, callers> done{};
  std::vector<std::thread> threads;
  const std::uint64_t start = ticks();
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, caller] {
      std::uint64_t calls = 0;
      for (; ns_since(start) < crowd_ns; ++calls) call(caller);
      done[std::size_t(caller)] = calls;
    });
  }
  std::uint64_t total = 0;
  for (int caller = 0; caller < callers; ++caller) {
    threads[std::size_t(caller)].join();
    total += done[std::size_t(caller)];
  }
  for (int caller = 0; caller < callers; ++caller) finish(caller, done[std::size_t(caller)]);
  return ns_since(start) / double(total);
}

/// A line there and a line back for each caller. All five threads spin for ever.
class SpinningThread {
public:
  ~SpinningThread() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  SpinningThread() : thread_([this] { run(); }) {}
  SpinningThread(const SpinningThread&) = delete;
  SpinningThread& operator=(const SpinningThread&) = delete;

  void call(int caller) {
    Lines& lines = lines_[std::size_t(caller)];
    const std::uint32_t turn = lines.answer.load(std::memory_order_relaxed) + 1;
    lines.request.store(turn, std::memory_order_release);
    while (lines.answer.load(std::memory_order_acquire) != turn) relax();
  }

private:
  struct Lines {
    alignas(64) std::atomic<std::uint32_t> request{0};
    alignas(64) std::atomic<std::uint32_t> answer{0};
  };

  void run() {
    while (!stop_.load(std::memory_order_relaxed)) {
      for (Lines& lines : lines_) {
        const std::uint32_t turn = lines.request.load(std::memory_order_acquire);
        if (turn != lines.answer.load(std::memory_order_relaxed))
          lines.answer.store(turn, std::memory_order_release);
      }
      relax();
    }
  }

  std::array<Lines, callers> lines_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

double spin_for_ever() {
  SpinningThread server;
  return crowd([&](int caller) { server.call(caller); }, [](int, std::uint64_t) {});
}

double crowd_of_replays() {
  Graphs graphs(callers);
  return crowd([&](int caller) { graphs[caller].replay(); },
               [&](int caller, std::uint64_t calls) { graphs.finish(caller, calls + 1); });
}

double crowd_of_runs() {
  Graphs graphs(callers);
  return crowd([&](int caller) { graphs[caller].run(); },
               [&](int caller, std::uint64_t calls) { graphs.finish(caller, calls + 1); });
}

const Registration rows{[](Suite& suite) {
  suite.row("P6", "acceptance, device asleep, p50")
      .limit("futex wake, caller spins", woken)
      .add("reprise replay()", accepted_asleep, {at_most(1.5)});
  suite.row("P6", "CPU of an idle device, per second", "ms")
      .add("device thread", [] { return idle_cpu("rp-device"); }, {value_at_most(1)})
      .add("device thread, courier, completer, helper", [] { return idle_cpu("rp-"); });
  suite.row("P7", "four blocking callers, per call")
      .limit("all spin for ever", spin_for_ever)
      .add("reprise replay(), to the end of all", crowd_of_replays, {at_most(1)})
      .add("reprise run()", crowd_of_runs);
}};

}  // namespace
}  // namespace reprise::bench

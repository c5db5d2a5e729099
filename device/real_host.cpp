// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/check.hpp>
#include <reprise/device/futex.hpp>
#include <reprise/device/host.hpp>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <new>
#include <pthread.h>
#include <system_error>
#include <thread>

namespace reprise {

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t now() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count());
}

Clock::time_point to_time(std::uint64_t ns) noexcept {
  constexpr auto latest = static_cast<std::uint64_t>(std::chrono::nanoseconds::max().count());
  return Clock::time_point{std::chrono::nanoseconds{ns < latest ? ns : latest}};
}

SpinBudget::Rank rank_of(ThreadRole role) noexcept {
  return role == ThreadRole::worker ? SpinBudget::Rank::worker : SpinBudget::Rank::device;
}

// A thread that spins for less than this still counts as running: while calls come back to back,
// the word that all threads share is left alone.
constexpr std::uint64_t unregistered_ns = 2'000;

class Thread final : public LoopHandle {
public:
  Thread(Loop& loop, const LoopOptions& options) noexcept : loop_(loop), options_(options) {}

  ~Thread() override {
    if (!thread_.joinable()) return;
    REPRISE_CHECK(is_done(), "the handle of a thread that still runs was dropped");
    thread_.join();
  }

  void launch() {
    // Signals belong to the program's own threads, except those that a thread brings on itself.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
      sigdelset(&all, own);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void wake() noexcept override { token_.give(); }

  bool join(std::uint64_t deadline_ns) noexcept override {
    {
      std::unique_lock lock(mutex_);
      if (!ended_.wait_until(lock, to_time(deadline_ns), [&] { return done_; })) return false;
    }
    if (thread_.joinable()) thread_.join();
    return true;
  }

private:
  bool is_done() noexcept {
    std::lock_guard lock(mutex_);
    return done_;
  }

  void run() noexcept {
    pthread_setname_np(pthread_self(), short_name().text);
    const RoleScope role(options_.role);
    SpinBudget::running(+1);
    for (;;) {
      if (loop_.step() || spin()) continue;
      const Rest rest = loop_.rest();
      if (rest.kind == Rest::Kind::done) break;
      if (rest.kind != Rest::Kind::again) sleep(rest);
    }
    SpinBudget::running(-1);
    std::lock_guard lock(mutex_);
    done_ = true;
    ended_.notify_all();
  }

  // True as soon as a step found work.
  bool spin() noexcept {
    if (options_.spin_ns == 0) return false;
    const SpinBudget::Rank rank = rank_of(options_.role);
    const std::uint64_t began = now();
    std::uint64_t expected = began;  // when work was last expected
    bool registered = false;
    bool found = false;
    for (;;) {
      loop_.pause();
      if ((found = loop_.step())) break;
      if (token_.is_there()) break;  // Something else than work: rest() will see what.
      const std::uint64_t seen = now();
      const std::uint64_t spent = seen - began;
      if (spent < options_.spin_ns * options_.long_spin && loop_.expects_work()) expected = seen;
      if (seen - expected >= options_.spin_ns) break;
      if (spent < unregistered_ns) continue;
      if (!registered) {
        registered = true;
        SpinBudget::running(-1);
        SpinBudget::spinning(rank, +1);
      }
      if (!SpinBudget::may_spin(rank)) break;
    }
    if (registered) {
      SpinBudget::spinning(rank, -1);
      SpinBudget::running(+1);
    }
    return found;
  }

  void sleep(const Rest& rest) noexcept {
    SpinBudget::running(-1);
    bool woken = true;
    if (rest.kind == Rest::Kind::sleep) {
      token_.wait();
    } else {
      woken = token_.wait_until(rest.until_ns);
    }
    SpinBudget::running(+1);
    if (!woken) loop_.overslept();
  }

  struct ShortName {
    char text[16] = {};
  };
  ShortName short_name() const noexcept {
    ShortName name;
    for (std::size_t i = 0; i + 1 < sizeof name.text && options_.name[i]; ++i) {
      name.text[i] = options_.name[i];
    }
    return name;
  }

  Loop& loop_;
  const LoopOptions options_;
  detail::FutexToken token_;
  std::mutex mutex_;  // Guards done_.
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;  // The starter's and the joiner's.
};

class RealHost final : public Host {
public:
  std::uint64_t now_ns() noexcept override { return now(); }

  Result<std::unique_ptr<LoopHandle>> start(Loop& loop, const LoopOptions& options) override {
    try {
      auto thread = std::make_unique<Thread>(loop, options);
      thread->launch();
      return std::unique_ptr<LoopHandle>{std::move(thread)};
    } catch (const std::bad_alloc&) {
      return Error{Errc::out_of_memory, 0, "no memory for a thread"};
    } catch (const std::system_error& error) {
      return Error{Errc::refused, error.code().value(), "the system starts no more threads"};
    }
  }
};

}  // namespace

Host& real_host() noexcept {
  // Never destroyed: leaked threads may use it until the process ends.
  static Host* const host = new RealHost;
  return *host;
}

}  // namespace reprise

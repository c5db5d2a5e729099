// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/host.hpp>

#include <reprise/device/detail/cpu_count.hpp>
#include <reprise/device/futex.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace reprise;

namespace {

constexpr std::uint64_t soon_ns = 30'000'000'000;

std::uint64_t deadline() {
  return real_host().now_ns() + soon_ns;
}

/// Work items and a place to park, decided by one word: bit 0 says the loop sleeps or is about to.
class CountingLoop final : public Loop {
public:
  bool step() noexcept override {
    role_ = this_thread_role();
    auto seen = word_.load();
    do {
      if (seen < item) return false;
    } while (!word_.compare_exchange_weak(seen, seen - item));
    {
      std::lock_guard lock(mutex_);
      ++served_;
    }
    changed_.notify_all();
    return true;
  }
  Rest rest() noexcept override {
    ++rests_;
    if (stop_.load()) return Rest::done();
    std::uint64_t expected = 0;
    if (!word_.compare_exchange_strong(expected, parked)) return Rest::again();
    return limit_ns_ == 0 ? Rest::sleep() : Rest::sleep_until(real_host().now_ns() + limit_ns_);
  }
  void pause() noexcept override {
    ++pauses_;
    __builtin_ia32_pause();
  }
  void overslept() noexcept override {
    word_.fetch_and(~parked);
    {
      std::lock_guard lock(mutex_);
      ++overslept_;
    }
    changed_.notify_all();
  }

  void add(LoopHandle& handle) {
    auto seen = word_.load();
    while (!word_.compare_exchange_weak(seen, (seen & ~parked) + item)) {
    }
    if (seen & parked) handle.wake();
  }
  void stop(LoopHandle& handle) {
    stop_.store(true);
    word_.fetch_and(~parked);
    handle.wake();
  }
  void wait_served(int n) {
    wait([&] { return served_ >= n; });
  }
  void wait_overslept(int n) {
    wait([&] { return overslept_ >= n; });
  }

  std::uint64_t limit_ns_ = 0;
  std::atomic<int> rests_{0};
  std::atomic<int> pauses_{0};
  std::atomic<ThreadRole> role_{ThreadRole::user};
  int served_ = 0;
  int overslept_ = 0;

private:
  static constexpr std::uint64_t parked = 1;
  static constexpr std::uint64_t item = 2;

  template <class P>
  void wait(P predicate) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, predicate);
  }

  std::atomic<std::uint64_t> word_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // Guards served_ and overslept_.
  std::condition_variable changed_;
};

std::unique_ptr<LoopHandle> start(Loop& loop, const LoopOptions& options) {
  auto handle = real_host().start(loop, options);
  REQUIRE(handle);
  return std::move(handle).value();
}

}  // namespace

TEST_CASE("a role lasts as long as its scope", "[device]") {
  CHECK(this_thread_role() == ThreadRole::user);
  {
    const RoleScope outer(ThreadRole::courier);
    CHECK(this_thread_role() == ThreadRole::courier);
    {
      const RoleScope inner(ThreadRole::worker);
      CHECK(this_thread_role() == ThreadRole::worker);
      std::thread([] { CHECK(this_thread_role() == ThreadRole::user); }).join();
    }
    CHECK(this_thread_role() == ThreadRole::courier);
  }
  CHECK(this_thread_role() == ThreadRole::user);
}

TEST_CASE("a started loop works in its role until it says done", "[device][threads]") {
  const std::uint64_t spin_ns = GENERATE(as<std::uint64_t>{}, 0, 20'000, 3'600'000'000'000);
  CAPTURE(spin_ns);
  CountingLoop loop;
  const auto handle = start(loop, {"a-name-that-is-too-long", ThreadRole::courier, spin_ns});
  for (int i = 1; i <= 100; ++i) {
    loop.add(*handle);
    if (i % 10 == 0) loop.wait_served(i);
  }
  loop.wait_served(100);
  loop.stop(*handle);
  REQUIRE(handle->join(deadline()));
  CHECK(handle->join(0));
  CHECK(loop.served_ == 100);
  CHECK(loop.role_.load() == ThreadRole::courier);
}

TEST_CASE("a wake before the sleep is not lost and many wakes end one sleep", "[device][threads]") {
  // The loop parks its producer's token itself, before it sleeps: the sleep must end at once.
  class Early final : public Loop {
  public:
    bool step() noexcept override { return false; }
    Rest rest() noexcept override {
      if (++rests_ > 3) return Rest::done();
      while (!handle_.load()) {
      }
      handle_.load()->wake();
      handle_.load()->wake();
      return Rest::sleep();
    }
    void pause() noexcept override {}
    std::atomic<LoopHandle*> handle_{nullptr};
    int rests_ = 0;
  };
  Early loop;
  const auto handle = start(loop, {"early", ThreadRole::worker, 0});
  loop.handle_.store(handle.get());
  REQUIRE(handle->join(deadline()));
  CHECK(loop.rests_ == 4);
}

TEST_CASE("a timed sleep that nobody ends is told so", "[device][threads]") {
  CountingLoop loop;
  loop.limit_ns_ = 1'000;
  const auto handle = start(loop, {"timed", ThreadRole::worker, 0});
  loop.wait_overslept(3);
  loop.add(*handle);
  loop.wait_served(1);
  loop.stop(*handle);
  REQUIRE(handle->join(deadline()));
}

TEST_CASE("joining a loop that does not end answers false at the deadline", "[device][threads]") {
  CountingLoop loop;
  const auto handle = start(loop, {"endless", ThreadRole::worker, 0});
  CHECK_FALSE(handle->join(0));
  CHECK_FALSE(handle->join(real_host().now_ns() + 1'000'000));
  loop.stop(*handle);
  CHECK(handle->join(deadline()));
}

TEST_CASE("an idle loop sleeps once its spin budget is spent", "[device][threads][D3]") {
  CountingLoop loop;
  const auto handle = start(loop, {"idle", ThreadRole::device, 100'000});
  loop.add(*handle);
  loop.wait_served(1);
  loop.add(*handle);
  loop.wait_served(2);
  // Each time it has rested at most a few times, however long this thread was away.
  CHECK(loop.rests_.load() <= 6);
  loop.stop(*handle);
  REQUIRE(handle->join(deadline()));
}

TEST_CASE("threads are named and keep the program's signals away", "[device][threads]") {
  class Named final : public Loop {
  public:
    bool step() noexcept override { return false; }
    Rest rest() noexcept override {
      pthread_getname_np(pthread_self(), name_, sizeof name_);
      pthread_sigmask(SIG_BLOCK, nullptr, &blocked_);
      return Rest::done();
    }
    void pause() noexcept override {}
    char name_[32] = {};
    sigset_t blocked_;
  };
  Named loop;
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  const auto handle = start(loop, {"reprise-worker-12", ThreadRole::worker, 0});
  REQUIRE(handle->join(deadline()));
  CHECK(std::string(loop.name_) == "reprise-worker-");
  CHECK(sigismember(&loop.blocked_, SIGINT) == 1);
  CHECK(sigismember(&loop.blocked_, SIGSEGV) == 0);
  sigset_t after;
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  CHECK(sigismember(&after, SIGINT) == sigismember(&before, SIGINT));
}

TEST_CASE("the clock of the real host does not go back", "[device]") {
  const auto first = real_host().now_ns();
  CHECK(real_host().now_ns() >= first);
  CHECK_FALSE(real_host().is_cooperative());
  CHECK_FALSE(real_host().run_one());
}

TEST_CASE("usable CPUs are bounded by the affinity", "[device]") {
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  CHECK(usable_cpus() >= 1);
  CHECK(usable_cpus() <= std::uint32_t(CPU_COUNT(&set)));
}

TEST_CASE("control groups bound the CPUs by the tightest quota on the way up", "[device]") {
  namespace fs = std::filesystem;
  const fs::path root =
      fs::temp_directory_path() / ("reprise-cgroup-" + std::to_string(::getpid()));
  const auto put = [&](const char* path, const char* text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  put("a/b/cpu.max", "max 100000\n");
  put("a/cpu.max", "350000 100000\n");
  put("cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n");
  put("cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  put("cpu/y/cpu.cfs_quota_us", "-1\n");
  put("cpu/y/cpu.cfs_period_us", "100000\n");
  put("cpu/cpu.cfs_quota_us", "700000\n");
  put("cpu/cpu.cfs_period_us", "100000\n");
  const auto none = ~std::uint32_t{0};
  CHECK(detail::quota_cpus(root, "0::/a/b\n") == 3);
  CHECK(detail::quota_cpus(root, "0::/elsewhere\n") == none);
  CHECK(detail::quota_cpus(root, "4:memory:/a\n3:cpuset:/a\n0::/\n") == none);
  CHECK(detail::quota_cpus(root, "2:cpu,cpuacct:/x\n") == 1);
  CHECK(detail::quota_cpus(root, "2:cpu:/y\n0::/\n") == 7);
  CHECK(detail::quota_cpus(root, "nonsense") == none);
  fs::remove_all(root);
}

namespace {

/// Threads that count in the budget until the group is destroyed.
class Others {
public:
  template <class Enter, class Leave>
  Others(int n, Enter enter, Leave leave) {
    std::atomic<int> there{0};
    for (int i = 0; i < n; ++i) {
      threads_.emplace_back([this, &there, enter, leave] {
        enter();
        ++there;
        while (!leave_.load()) std::this_thread::yield();
        leave();
      });
    }
    while (there.load() < n) std::this_thread::yield();
  }
  ~Others() {
    leave_.store(true);
    for (auto& thread : threads_) thread.join();
  }

private:
  std::atomic<bool> leave_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("spinning stops where it would take a CPU from a higher rank", "[device][D3]") {
  using Rank = SpinBudget::Rank;
  const auto cpus = static_cast<int>(usable_cpus());
  const auto rank = GENERATE(Rank::caller, Rank::worker, Rank::device);
  CAPTURE(int(rank), cpus);
  const auto run = [] { SpinBudget::running(+1); };
  const auto end = [] { SpinBudget::running(-1); };
  const auto spin = [](Rank as) { return [as] { SpinBudget::spinning(as, +1); }; };
  const auto stop = [](Rank as) { return [as] { SpinBudget::spinning(as, -1); }; };

  SpinBudget::spinning(rank, +1);
  CHECK(SpinBudget::may_spin(rank));
  {
    const Others room_for_one(cpus - 1, run, end);
    CHECK(SpinBudget::may_spin(rank));
  }
  {
    const Others all(cpus, run, end);
    CHECK_FALSE(SpinBudget::may_spin(rank));
  }
  for (const auto other : {Rank::caller, Rank::worker, Rank::device}) {
    const Others all(cpus, spin(other), stop(other));
    CHECK(SpinBudget::may_spin(rank) == (other > rank));
  }
  CHECK(SpinBudget::may_spin(rank));
  SpinBudget::spinning(rank, -1);
}

TEST_CASE("a spinning thread that runs counts once", "[device]") {
  using Rank = SpinBudget::Rank;
  const auto cpus = static_cast<int>(usable_cpus());
  const Others others(
      cpus - 1, [] { SpinBudget::running(+1); }, [] { SpinBudget::running(-1); });
  SpinBudget::spinning(Rank::caller, +1);
  SpinBudget::running(+1);
  CHECK(SpinBudget::may_spin(Rank::device));
  SpinBudget::running(-1);
  CHECK(SpinBudget::may_spin(Rank::caller));
  SpinBudget::spinning(Rank::caller, -1);
}

TEST_CASE("a token is given before, while and after somebody waits for it", "[device][threads]") {
  detail::FutexToken token;
  token.give();
  token.give();  // There is one at most.
  token.wait();
  CHECK_FALSE(token.wait_until(real_host().now_ns()));
  CHECK_FALSE(token.wait_until(0));
  token.give();
  CHECK(token.wait_until(0));

  detail::FutexToken there;
  detail::FutexToken back;
  constexpr int rounds = 2000;
  int carried = 0;
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) {
      there.wait();
      ++carried;
      back.give();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    there.give();
    if (!back.wait_until(deadline())) break;
    if (carried != i + 1) break;
  }
  CHECK(carried == rounds);
  other.join();
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/cpu/backend.hpp>
#include <reprise/device/seeded_host.hpp>

#include <support/test_work.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

namespace reprise::test {

/// The real host, watched and bent: it counts wakes and sleepers, its clock can be made coarse, and
/// it refuses to start threads on request.
class WatchedHost final : public Host {
public:
  std::uint64_t now_ns() noexcept override {
    return real_host().now_ns() + leap_ns_ * (looks_.fetch_add(1) + 1);
  }
  Result<std::unique_ptr<LoopHandle>> start(Loop& loop, const LoopOptions& options) override {
    if (refuse_in_ != 0 && --refuse_in_ == 0) return Error{Errc::refused, 11, "refused"};
    auto watched = std::make_unique<WatchedLoop>(*this, loop);
    auto handle = real_host().start(*watched, options);
    if (!handle) return handle.error();
    return std::unique_ptr<LoopHandle>{
        std::make_unique<Handle>(*this, std::move(watched), std::move(handle).value())};
  }

  int wakes() const noexcept { return wakes_.load(); }
  /// Waits until `n` loops sleep or are bound to.
  void wait_for_sleepers(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asleep_ >= n; });
  }
  /// Every look at the clock finds it so much later.
  void leap(std::uint64_t ns) noexcept { leap_ns_ = ns; }
  void refuse_start(int nth) noexcept { refuse_in_ = nth; }

private:
  class WatchedLoop final : public Loop {
  public:
    WatchedLoop(WatchedHost& host, Loop& loop) : host_(host), loop_(loop) {}
    bool step() noexcept override {
      if (asleep_) host_.add_sleepers(-1);
      asleep_ = false;
      return loop_.step();
    }
    Rest rest() noexcept override {
      const Rest rest = loop_.rest();
      asleep_ = rest.kind == Rest::Kind::sleep;
      if (asleep_) host_.add_sleepers(+1);
      return rest;
    }
    void pause() noexcept override { loop_.pause(); }
    void overslept() noexcept override { loop_.overslept(); }

  private:
    WatchedHost& host_;
    Loop& loop_;
    bool asleep_ = false;
  };

  class Handle final : public LoopHandle {
  public:
    Handle(WatchedHost& host, std::unique_ptr<WatchedLoop> loop, std::unique_ptr<LoopHandle> real)
        : host_(host), loop_(std::move(loop)), real_(std::move(real)) {}
    void wake() noexcept override {
      host_.wakes_.fetch_add(1);
      real_->wake();
    }
    bool join(std::uint64_t deadline_ns) noexcept override { return real_->join(deadline_ns); }

  private:
    WatchedHost& host_;
    std::unique_ptr<WatchedLoop> loop_;
    std::unique_ptr<LoopHandle> real_;
  };

  void add_sleepers(int change) {
    std::lock_guard lock(mutex_);
    asleep_ += change;
    changed_.notify_all();
  }

  std::atomic<int> wakes_{0};
  std::atomic<std::uint64_t> looks_{0};
  std::uint64_t leap_ns_ = 0;
  int refuse_in_ = 0;
  std::mutex mutex_;  // Guards asleep_.
  std::condition_variable changed_;
  int asleep_ = 0;
};

inline CpuOptions small_cpu(std::uint32_t workers) {
  CpuOptions options;
  options.workers = workers;
  options.address_space = std::uint64_t{64} << 20;
  options.worker_spin_ns = 0;
  return options;
}

/// A started CPU backend and the device thread's side of it.
class CpuRig {
public:
  explicit CpuRig(const CpuOptions& options, Host& host = real_host())
      : host_(host), backend_(make_cpu_backend(host, options)) {
    const auto started = backend_->start(notice);
    REPRISE_CHECK(started.has_value(), "the backend of a test did not start");
  }
  ~CpuRig() {
    std::string stuck;
    REPRISE_CHECK(backend_->stop(Host::never_ns, stuck), "the backend of a test did not stop");
  }

  Backend& operator*() noexcept { return *backend_; }
  Backend* operator->() noexcept { return backend_.get(); }

  /// A command that lives as long as the rig.
  TestWork& work() { return works_.emplace_back(); }
  /// Enqueues without a kick.
  void enqueue(StreamIndex stream, TestWork& work) {
    const auto taken = backend_->enqueue(stream, work);
    REPRISE_CHECK(taken.has_value(), "a command of a test was refused");
  }
  void submit(StreamIndex stream, TestWork& work) {
    enqueue(stream, work);
    backend_->kick(Backend::no_stream);
  }
  TestWork& call(StreamIndex stream, std::function<void()> what) {
    TestWork& added = work();
    added.call(std::move(what));
    submit(stream, added);
    return added;
  }
  /// Waits until `work` has finished.
  void wait(const TestWork& work) {
    while (backend_->finished(work.stream) < work.position) {
      if (host_.is_cooperative()) {
        REPRISE_CHECK(host_.run_one(), "a test waits and nothing can run any more");
        continue;
      }
      const int before = notice.progress();
      if (backend_->arm(work.stream, work.position)) notice.wait_for_progress(before + 1);
    }
  }

  TestNotice notice;

private:
  Host& host_;
  std::unique_ptr<Backend> backend_;
  std::deque<TestWork> works_;
};

}  // namespace reprise::test

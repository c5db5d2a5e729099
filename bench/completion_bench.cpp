// SPDX-License-Identifier: Apache-2.0
// P14: how long after the device has finished a read its handler starts.
#include "harness.hpp"
#include "replay_peers.hpp"

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/async.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace reprise::bench {
namespace {

namespace asio = boost::asio;
using Words = std::vector<std::uint64_t>;
using ReadReply = ValueReply<Words>;

/// An executor that does not sleep, on the first core.
class AwakeExecutor {
public:
  /// Runs handlers until one of them has called done().
  void run() {
    for (finished_ = 0; finished_ == 0; think()) context_.poll();
  }
  void done() noexcept { finished_ = ticks(); }
  /// When done() was called.
  std::uint64_t finished_at() const noexcept { return finished_; }
  asio::io_context& get() noexcept { return context_; }

private:
  static void think() {
    for (int i = 0; i < 4; ++i) relax();
  }

  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_{context_.get_executor()};
  std::uint64_t finished_ = 0;
};

/// A thread on the second core that finishes things when told so, a little later: the executor is
/// back then.
class Finisher {
public:
  Finisher() : thread_([this] { run(); }) {}
  ~Finisher() {
    stop_ = true;
    give(nullptr);
    thread_.join();
  }
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  /// Null: a handler is to be posted; else the reply is to be answered.
  void give(ReadReply* reply) noexcept {
    reply_ = reply;
    // Release: the partner is run().
    turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  AwakeExecutor& executor() noexcept { return executor_; }
  /// When it finished the last thing.
  std::uint64_t started_at() const noexcept { return started_; }

private:
  void run() {
    pin(1);
    for (std::uint32_t turn = 1;; ++turn) {
      while (turn_.load(std::memory_order_acquire) != turn) relax();
      if (stop_) return;
      for (int i = 0; i < 200; ++i) relax();
      if (reply_ == nullptr) {
        started_ = ticks();
        asio::post(executor_.get(), [this] { executor_.done(); });
      } else {
        (void)reply_->start();
        reply_->value = Words{1};
        started_ = ticks();
        reply_->complete(nullptr);
      }
    }
  }

  AwakeExecutor executor_;
  std::atomic<std::uint32_t> turn_{0};
  ReadReply* reply_ = nullptr;  // handed over with turn_
  bool stop_ = false;           // the same
  std::uint64_t started_ = 0;   // handed over with the handler
  std::thread thread_;
};

constexpr int calls = 2000;
constexpr int warm_calls = 200;

/// The median of what call() answers, in ns.
template <class F>
double median_of(F&& call) {
  std::vector<double> times;
  for (int i = 0; i < warm_calls + calls; ++i) {
    const double ns = call();
    if (i >= warm_calls) times.push_back(ns);
  }
  return median(std::move(times));
}

double between(std::uint64_t start, std::uint64_t end) {
  return double(end - start) * ns_per_tick();
}

double posted() {
  Finisher finisher;
  const OnFirstCore first_core([] {});
  return median_of([&] {
    finisher.give(nullptr);
    finisher.executor().run();
    return between(finisher.started_at(), finisher.executor().finished_at());
  });
}

void must_succeed(const boost::system::error_code& code, const Words& words) {
  if (code || words.size() != 1) std::abort();
}

/// What async_read() starts, with a thread in the device's place.
double completed() {
  Runtime runtime;
  const Device device = runtime.open("cpu:0");
  const Client client = device.client();
  Finisher finisher;
  AwakeExecutor& executor = finisher.executor();
  const OnFirstCore first_core([] {});
  return median_of([&] {
    detail::initiate<Words>(
        detail::async_context(client, "async_read"),
        asio::bind_executor(executor.get(),
                            [&](const boost::system::error_code& code, const Words& words) {
                              executor.done();
                              must_succeed(code, words);
                            }),
        nullptr, [&](ReadReply* reply) noexcept { finisher.give(reply); });
    executor.run();
    return between(finisher.started_at(), executor.finished_at());
  });
}

/// The whole way of a read behind a kernel that the device runs, from the kernel's last word.
double read_behind_kernel() {
  std::atomic<bool> go{false};
  std::uint64_t end = 0;  // handed over with the bytes
  const Kernel last("last", [&](const Block&, Out<std::uint64_t> word) {
    while (!go.load(std::memory_order_acquire)) relax();
    for (int i = 0; i < 200; ++i) relax();
    word[0] = 1;
    end = ticks();
  });
  Runtime runtime;
  Device device;
  const OnFirstCore first_core([&] { device = runtime.open("cpu:0"); });
  const Client client = device.client();
  const auto word = client.zeros<std::uint64_t>(1);
  AwakeExecutor executor;
  return median_of([&] {
    go.store(false, std::memory_order_release);
    client.launch(last, 1, word);
    client.async_read(
        word, asio::bind_executor(executor.get(),
                                  [&](const boost::system::error_code& code, const Words& words) {
                                    executor.done();
                                    must_succeed(code, words);
                                  }));
    client.flush();
    go.store(true, std::memory_order_release);
    executor.run();
    return between(end, executor.finished_at());
  });
}

const Registration rows{[](Suite& suite) {
  suite.row("P14", "from the end of a read to its handler on an awake executor")
      .limit("asio::post", posted)
      .add("async_read", completed, {at_most(1.5)})
      .add("async_read, with the device's part from the kernel before", read_behind_kernel);
}};

}  // namespace
}  // namespace reprise::bench

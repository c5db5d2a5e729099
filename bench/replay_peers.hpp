// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/host.hpp>

#include "harness.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>

/// What P5 and P8 hold replays against: a program of function pointers, and other ways to ask a
/// thread for something and wait for the answer.
namespace reprise::bench {

// ---- the program --------------------------------------------------------------------------------

constexpr std::uint64_t kinds = 8;

/// One node: sum += argument ^ kind.
struct Step {
  std::uint64_t kind;
  std::uint64_t argument;
};

/// A program whose branches a processor learns with difficulty, or not at all.
inline std::vector<Step> random_program(int nodes) {
  std::mt19937_64 random(7);
  std::vector<Step> steps;
  for (int i = 0; i < nodes; ++i) steps.push_back({random() % kinds, random()});
  return steps;
}

/// The same 13 kinds of node again and again, as in the layers of a model.
inline std::vector<Step> layered_program(int nodes) {
  std::vector<Step> steps = random_program(nodes);
  for (std::size_t i = 13; i < steps.size(); ++i) steps[i].kind = steps[i - 13].kind;
  return steps;
}

/// What one run of the program adds to the sum.
inline std::uint64_t total(const std::vector<Step>& steps) {
  std::uint64_t sum = 0;
  for (const Step& step : steps) sum += step.argument ^ step.kind;
  return sum;
}

inline std::uint64_t pointer_sum = 0;

using Op = void (*)(std::uint64_t* sum, std::uint64_t argument);

template <std::uint64_t mask>
[[gnu::noinline]] void op(std::uint64_t* sum, std::uint64_t argument) {
  *sum += argument ^ mask;
}

template <std::uint64_t... k>
constexpr std::array<Op, kinds> all_ops(std::integer_sequence<std::uint64_t, k...>) {
  return {op<k>...};
}
constexpr std::array<Op, kinds> ops = all_ops(std::make_integer_sequence<std::uint64_t, kinds>());

/// The program as a loop over nodes of 16 bytes.
class PointerProgram {
public:
  explicit PointerProgram(const std::vector<Step>& steps) {
    for (const Step& step : steps) nodes_.push_back({ops[step.kind], step.argument});
  }
  void run() const {
    for (const Node& node : nodes_) node.run(&pointer_sum, node.argument);
  }

private:
  struct Node {
    Op run;
    std::uint64_t argument;
  };

  std::vector<Node> nodes_;
};

// ---- cores --------------------------------------------------------------------------------------

/// While this lives the calling thread has the first core. Threads that `make` starts have the
/// second: so lie the limits and peers, and on a busy machine the scheduler would often put caller
/// and device on one.
class OnFirstCore {
public:
  template <class Make>
  explicit OnFirstCore(Make&& make) {
    (void)usable_cpus();  // remembered, so that pinned threads are not taken for the machine
    pin(1);
    make();
    pin(0);
  }
  ~OnFirstCore() { pin(-1); }
  OnFirstCore(const OnFirstCore&) = delete;
  OnFirstCore& operator=(const OnFirstCore&) = delete;
};

// ---- the limit: nothing but one line there and one line back ------------------------------------

/// A thread that does one thing for one caller. Both spin for ever.
template <class Request>
class SecondThread {
public:
  /// `serve` may change the request, which comes back as the answer.
  template <class F>
  explicit SecondThread(F serve) : thread_([this, serve] { run(serve); }) {}
  ~SecondThread() {
    // Release: the partner is run().
    request_.turn.store(stop, std::memory_order_release);
    thread_.join();
  }
  SecondThread(const SecondThread&) = delete;
  SecondThread& operator=(const SecondThread&) = delete;

  Request call(const Request& request) {
    request_.value = request;
    // Release and acquire: the partners are in run().
    request_.turn.store(++turn_, std::memory_order_release);
    while (answer_.turn.load(std::memory_order_acquire) != turn_) relax();
    return answer_.value;
  }

private:
  static constexpr std::uint32_t stop = ~std::uint32_t{0};

  struct alignas(64) Line {
    std::atomic<std::uint32_t> turn{0};
    Request value{};
  };

  template <class F>
  void run(F& serve) {
    pin(1);
    for (std::uint32_t turn = 1;; ++turn) {
      for (std::uint32_t seen = 0; seen != turn; relax()) {
        seen = request_.turn.load(std::memory_order_acquire);
        if (seen == stop) return;
      }
      Request value = request_.value;
      serve(value);
      answer_.value = value;
      answer_.turn.store(turn, std::memory_order_release);
    }
  }

  Line request_;
  Line answer_;
  std::uint32_t turn_ = 0;
  std::thread thread_;
};

/// The request that all ways of asking carry; answered with its first word plus 1.
using Arguments = std::array<std::uint64_t, 7>;

class Mailbox {
public:
  std::uint64_t call(std::uint64_t x) { return second_.call({x})[0]; }

private:
  SecondThread<Arguments> second_{[](Arguments& arguments) { ++arguments[0]; }};
};

// ---- peers --------------------------------------------------------------------------------------

/// The textbook way: a queue under a mutex, a condition variable, a shared promise.
class PromiseDeque {
public:
  PromiseDeque() : thread_([this] { run(); }) {}
  ~PromiseDeque() {
    push([this] { stop_ = true; });
    thread_.join();
  }
  PromiseDeque(const PromiseDeque&) = delete;
  PromiseDeque& operator=(const PromiseDeque&) = delete;

  std::uint64_t call(std::uint64_t x) {
    auto promise = std::make_shared<std::promise<std::uint64_t>>();
    auto answer = promise->get_future();
    push([promise, arguments = Arguments{x}] { promise->set_value(arguments[0] + 1); });
    return answer.get();
  }

private:
  void push(std::function<void()> f) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(f));
    }
    changed_.notify_one();
  }

  void run() {
    pin(1);
    while (!stop_) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const std::function<void()> f = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      f();
    }
  }

  bool stop_ = false;  // the thread's
  std::mutex mutex_;   // guards queue_
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

class AsioFuture {
public:
  AsioFuture()
      : guard_(context_.get_executor()), thread_([this] {
          pin(1);
          context_.run();
        }) {}
  ~AsioFuture() {
    guard_.reset();
    thread_.join();
  }
  AsioFuture(const AsioFuture&) = delete;
  AsioFuture& operator=(const AsioFuture&) = delete;

  std::uint64_t call(std::uint64_t x) {
    const auto answer = [arguments = Arguments{x}] { return arguments[0] + 1; };
    return boost::asio::post(context_, boost::asio::use_future(answer)).get();
  }

private:
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::thread thread_;
};

}  // namespace reprise::bench

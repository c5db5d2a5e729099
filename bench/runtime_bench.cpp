// SPDX-License-Identifier: Apache-2.0
// P2: the heap allocations and system calls of an asynchronous operation.
#include "counts.hpp"
#include "harness.hpp"

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/async.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

namespace reprise::bench {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int per = 10'000;      // operations that a figure is for
constexpr int warm_up = 20'000;  // operations until everything has its memory
constexpr int window = 16;       // operations in flight

/// The operations of one measurement: it calls `mark` where the counted ones begin and where they
/// end, both in the midst of others. At first more are in flight than later, so that there is
/// memory left for a device that lags behind.
class Course {
public:
  explicit Course(std::function<void()> mark) : mark_(std::move(mark)) {}

  bool wants_more(int in_flight) const noexcept {
    return in_flight < (done_ < warm_up / 2 ? most : window) && done_ + in_flight < all;
  }
  void finished_one() {
    ++done_;
    if (done_ == warm_up || done_ == warm_up + per) mark_();
  }
  bool is_over() const noexcept { return done_ == all; }

  static constexpr int most = 8 * window;

private:
  static constexpr int all = warm_up + per + window;

  std::function<void()> mark_;
  int done_ = 0;
};

void must_succeed(const error_code& code) {
  if (code) std::abort();
}

/// What the executor does besides. So long that it, not the device, is what others wait for: the
/// device then finds operations of before still queued, and needs neither to wake the executor nor
/// to take the lock of its queue.
void think() {
  for (int i = 0; i < 128; ++i) relax();
}

/// Blocks of one size, kept for the next operation. For one thread.
template <class T>
class Recycling {
public:
  using value_type = T;

  explicit Recycling(std::vector<void*>& idle) noexcept : idle_(&idle) {}
  template <class U>
  Recycling(const Recycling<U>& other) noexcept : idle_(&other.idle()) {}

  T* allocate(std::size_t count) {
    if (count * sizeof(T) > block) std::abort();
    if (idle_->empty()) return static_cast<T*>(::operator new(block));
    void* const kept = idle_->back();
    idle_->pop_back();
    return static_cast<T*>(kept);
  }
  void deallocate(T* memory, std::size_t) { idle_->push_back(memory); }

  std::vector<void*>& idle() const noexcept { return *idle_; }
  template <class U>
  bool operator==(const Recycling<U>& other) const noexcept {
    return idle_ == &other.idle();
  }

private:
  static constexpr std::size_t block = 1024;

  std::vector<void*>* idle_;
};

/// An executor that does not sleep, on a thread that starts operations too.
class AwakeContext {
public:
  /// Runs handlers until `is_over()`, and those that are there then.
  template <class F>
  void run_until(F is_over) {
    asio::post(context_, Look<F>{this, is_over});
    context_.run();
  }
  asio::io_context& get() noexcept { return context_; }
  std::vector<void*>& idle() noexcept { return idle_; }

  ~AwakeContext() {
    for (void* const block : idle_) ::operator delete(block);
  }

private:
  /// Keeps run() from falling asleep.
  template <class F>
  struct Look {
    using allocator_type = Recycling<void>;

    allocator_type get_allocator() const noexcept { return allocator_type(self->idle_); }
    void operator()() const {
      if (is_over()) return;
      think();
      asio::post(self->context_, *this);
    }

    AwakeContext* self;
    F is_over;
  };

  std::vector<void*> idle_;
  asio::io_context context_{1};
};

/// A device that does not sleep either and runs kernels itself, as a worker would have to be woken.
class AwakeDevice {
public:
  AwakeDevice() : device_(runtime_.open("cpu:0", options())), client_(device_.client()) {
    const Kernel touch("touch", [](const Block&, InOut<std::uint64_t> words) { words[0] += 1; });
    auto words = client_.zeros<std::uint64_t>(1);
    graph_ = client_.capture([&](Client& client) { client.launch(touch, 1, words); });
    client_.synchronize();
  }
  const Graph& graph() const noexcept { return graph_; }

private:
  static DeviceOptions options() {
    DeviceOptions options;
    options.workers = 0;
    options.spin_ns = 50'000'000;  // longer than its core may be taken away; closing waits for it
    return options;
  }

  Runtime runtime_;
  Device device_;
  Client client_;
  Graph graph_;
};

// ---- ways to wait for a replay's end ------------------------------------------------------------

/// Handlers that start the next operation.
template <class Start>
class Chain {
public:
  explicit Chain(Start start) : start_(std::move(start)) {}

  void run(AwakeContext& context, Course& course) {
    course_ = &course;
    refill();
    context.run_until([&course] { return course.is_over(); });
  }

private:
  struct Done {
    Chain* chain;
    void operator()(const error_code& code) const {
      must_succeed(code);
      think();
      --chain->in_flight_;
      chain->course_->finished_one();
      chain->refill();
    }
  };

  void refill() {
    while (course_->wants_more(in_flight_)) {
      ++in_flight_;
      start_(Done{this});
    }
  }

  Start start_;
  Course* course_ = nullptr;
  int in_flight_ = 0;
};

class Callback {
public:
  void run(Course& course) { chain_.run(context_, course); }

private:
  struct Start {
    Callback* self;
    template <class Done>
    void operator()(Done done) const {
      self->device_.graph().async_run(
          asio::bind_executor(self->context_.get(),
                              asio::bind_allocator(Recycling<void>(self->context_.idle()), done)));
    }
  };

  AwakeContext context_;
  AwakeDevice device_;
  Chain<Start> chain_{Start{this}};
};

class Deferred {
public:
  void run(Course& course) { chain_.run(context_, course); }

private:
  struct Start {
    Deferred* self;
    template <class Done>
    void operator()(Done done) const {
      auto operation = self->device_.graph().async_run(asio::deferred);
      std::move(operation)(asio::bind_executor(self->context_.get(), done));
    }
  };

  AwakeContext context_;
  AwakeDevice device_;
  Chain<Start> chain_{Start{this}};
};

class Awaitable {
public:
  void run(Course& course) {
    for (int i = 0; i < Course::most; ++i) {
      asio::co_spawn(context_.get(), loop(course), asio::detached);
    }
    context_.run_until([&course] { return course.is_over(); });
  }

private:
  asio::awaitable<void> loop(Course& course) {
    while (course.wants_more(in_flight_)) {
      ++in_flight_;
      co_await device_.graph().async_run(asio::use_awaitable);
      think();
      --in_flight_;
      course.finished_one();
    }
  }

  AwakeContext context_;
  AwakeDevice device_;
  int in_flight_ = 0;
};

/// One operation at a time.
template <class F>
void one_by_one(Course& course, F&& operation) {
  while (course.wants_more(0)) {
    operation();
    course.finished_one();
  }
}

/// The library's own future: the thread blocks.
class OwnFuture {
public:
  void run(Course& course) {
    one_by_one(course, [this] { device_.graph().async_run().get(); });
  }

private:
  AwakeDevice device_;
};

class BlockingRun {
public:
  void run(Course& course) {
    one_by_one(course, [this] { device_.graph().run(); });
  }

private:
  AwakeDevice device_;
};

class StandardFuture {
public:
  void run(Course& course) {
    one_by_one(course, [this] { device_.graph().async_run(asio::use_future).get(); });
  }

private:
  AwakeDevice device_;
};

/// The peer: a second io_context for a device, awake as well.
class AsioPost {
public:
  AsioPost() : thread_([this] { device_.run_until([this] { return ended_; }); }) {}
  ~AsioPost() {
    asio::post(device_.get(), [this] { ended_ = true; });
    thread_.join();
  }
  void run(Course& course) { chain_.run(context_, course); }

private:
  struct Start {
    AsioPost* self;
    template <class Done>
    void operator()(Done done) const {
      asio::post(self->device_.get(), [self = self, done] {
        asio::post(self->context_.get(), [done] { done(error_code()); });
      });
    }
  };

  AwakeContext context_;
  AwakeContext device_;
  bool ended_ = false;  // the thread's
  Chain<Start> chain_{Start{this}};
  std::thread thread_;
};

class AsioUseFuture {
public:
  AsioUseFuture() : thread_([this] { device_.run_until([this] { return ended_; }); }) {}
  ~AsioUseFuture() {
    asio::post(device_.get(), [this] { ended_ = true; });
    thread_.join();
  }
  void run(Course& course) {
    one_by_one(course, [this] { asio::post(device_.get(), asio::use_future([] {})).get(); });
  }

private:
  AwakeContext device_;
  bool ended_ = false;  // the thread's
  std::thread thread_;
};

template <class Way>
void measure(const std::function<void()>& mark) {
  Course course(mark);
  const auto way = std::make_unique<Way>();
  way->run(course);
}

template <class Way>
double allocations() {
  if (!counts_allocations()) return std::numeric_limits<double>::quiet_NaN();
  const AllocationCount count;
  long at_first_mark = -1;
  long between = 0;
  measure<Way>([&] {
    if (at_first_mark < 0) {
      at_first_mark = count.so_far();
    } else {
      between = count.so_far() - at_first_mark;
    }
  });
  return double(between);
}

/// Once, whatever `rounds` says: the marks take the place of a difference between two lengths.
template <class Way>
long loop(int /*rounds*/) {
  measure<Way>(mark_system_calls);
  return 1;
}

const Registration rows{[](Suite& suite) {
  suite.row("P2", "heap allocations in 10,000 operations", "allocations")
      .add("callback, recycling allocator", allocations<Callback>, {value_at_most(0)})
      .add("deferred", allocations<Deferred>, {value_at_most(0)})
      .add("use_awaitable", allocations<Awaitable>, {value_at_most(0)})
      .add("blocking", allocations<BlockingRun>)
      .add("reprise::Future", allocations<OwnFuture>)
      .add("use_future", allocations<StandardFuture>)
      .add("asio::post there and back", allocations<AsioPost>)
      .add("asio::post, use_future", allocations<AsioUseFuture>);
  suite.row("P2", "system calls in 10,000 operations", "calls")
      .add_system_calls("callback, recycling allocator", loop<Callback>, {value_at_most(0)})
      .add_system_calls("deferred", loop<Deferred>, {value_at_most(0)})
      .add_system_calls("use_awaitable", loop<Awaitable>, {value_at_most(0)})
      .add_system_calls("blocking", loop<BlockingRun>)
      .add_system_calls("reprise::Future", loop<OwnFuture>)
      .add_system_calls("use_future", loop<StandardFuture>)
      .add_system_calls("asio::post there and back", loop<AsioPost>)
      .add_system_calls("asio::post, use_future", loop<AsioUseFuture>);
}};

}  // namespace
}  // namespace reprise::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness.hpp"

#include <reprise/runtime/channel.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <sched.h>
#include <thread>
#include <type_traits>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

/// The channels that P1, P3 and P4 compare. A system is one device thread fed by producers:
/// send(producer, f) makes the device thread call f(Device&). All run the same closures, so what
/// differs is the way they travel.
namespace reprise::bench {

constexpr int max_producers = 4;
constexpr std::uint64_t window = 256;        // commands a producer may have in flight
constexpr std::size_t ring_capacity = 1024;  // so all windows fit
constexpr double spin_budget_ns = 50e3;      // of a device thread, before it parks

/// A flag that one thread raises and one sleeps for.
class Flag {
public:
  void raise() {
    const std::lock_guard lock(mutex_);
    raised_ = true;
    changed_.notify_one();
  }
  void wait_and_lower() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return raised_; });
    raised_ = false;
  }

private:
  std::mutex mutex_;  // guards raised_
  std::condition_variable changed_;
  bool raised_ = false;
};

/// What commands act on; the device thread's, but for `published` and `done`.
struct Device {
  struct alignas(64) Progress {
    std::uint64_t executed = 0;
    std::atomic<std::uint64_t> published{0};
  };

  void consume(std::uint64_t producer, std::uint64_t value) {
    sum += value;
    ++executed;
    Progress& p = progress[producer];
    // Release: the partner is the producer's look at its window.
    if ((++p.executed & 31) == 0) p.published.store(p.executed, std::memory_order_release);
    if (executed % lap == 0 || executed == target) note();
  }

  /// Apart, so that the command stays as small as it is.
  [[gnu::noinline]] void note() {
    if (executed % lap == 0) laps.push_back(ticks());
    if (executed == target) {
      finish = ticks();
      done.raise();
    }
  }

  static constexpr std::uint64_t lap = 256;

  std::array<Progress, max_producers> progress;
  std::uint64_t sum = 0;
  std::uint64_t executed = 0;
  std::uint64_t target = ~std::uint64_t{0};
  std::uint64_t start = 0;
  std::uint64_t finish = 0;
  std::vector<std::uint64_t> laps;  // when each `lap` commands were executed
  Flag done;
};

/// An ordinary command: a closure of 64 bytes.
struct Work {
  void operator()(Device& device) const { device.consume(words[0], words[1]); }

  std::array<std::uint64_t, 8> words;
};

struct PinDevice {
  void operator()(Device&) const { pin(cpu); }

  int cpu;
};

/// Holds the device thread until opened.
struct Gate {
  struct State {
    Flag entered;
    Flag open;
  };

  void operator()(Device& device) const {
    state->entered.raise();
    state->open.wait_and_lower();
    device.start = ticks();
  }

  State* state;
};

/// A type-erased closure that lies in itself; trivially copyable.
struct Erased {
  Erased() = default;
  template <class F>
  requires(!std::is_same_v<F, Erased> && sizeof(F) <= 64 &&
           std::is_trivially_copyable_v<F>) explicit Erased(const F& f)
      : run([](void* p, Device& device) { (*static_cast<F*>(p))(device); }) {
    ::new (static_cast<void*>(payload)) F(f);
  }
  void operator()(Device& device) { run(payload, device); }

  void (*run)(void*, Device&) = nullptr;
  alignas(8) std::byte payload[64];
};

// ---- the limit: a ring of its own for each producer ---------------------------------------------

/// A slot is nothing but the command, empty while `run` is null: no other line goes between cores.
class SpscRings {
public:
  explicit SpscRings(int producers) : rings_(std::size_t(producers)) {}

  void push(int producer, const Erased& command) {
    Ring& ring = rings_[std::size_t(producer)];
    Erased& slot = ring.slots[ring.tail++ % ring_capacity];
    const std::atomic_ref run(slot.run);
    // Acquire and release here and in drain() are each other's partners.
    while (run.load(std::memory_order_acquire) != nullptr) relax();
    std::copy_n(command.payload, sizeof command.payload, slot.payload);
    run.store(command.run, std::memory_order_release);
  }

  template <class F>
  std::size_t drain(F&& f) {
    std::size_t count = 0;
    for (Ring& ring : rings_)
      for (;; ++count, ++ring.head) {
        Erased& slot = ring.slots[ring.head % ring_capacity];
        const std::atomic_ref run(slot.run);
        if (run.load(std::memory_order_acquire) == nullptr) break;
        f(slot);
        run.store(nullptr, std::memory_order_release);
      }
    return count;
  }

private:
  struct Ring {
    alignas(64) std::size_t tail = 0;
    alignas(64) std::size_t head = 0;
    alignas(64) std::vector<Erased> slots = std::vector<Erased>(ring_capacity);
  };

  std::vector<Ring> rings_;
};

/// A device thread that never sleeps over SPSC rings.
class SpscSystem {
public:
  SpscSystem(Device& device, int producers)
      : rings_(producers), thread_([this, &device] {
          Backoff backoff;
          while (!stop_.load(std::memory_order_relaxed)) {
            if (rings_.drain([&](Erased& command) { command(device); }) != 0)
              backoff.reset();
            else
              backoff.wait();
          }
        }) {}
  ~SpscSystem() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

  template <class F>
  void send(int producer, const F& f) {
    rings_.push(producer, Erased(f));
  }

private:
  std::atomic<bool> stop_{false};
  SpscRings rings_;
  std::thread thread_;
};

// ---- ours ---------------------------------------------------------------------------------------

/// A closure as the channel carries it.
template <class F>
struct ForDevice {
  void operator()(void* device) noexcept { f(*static_cast<Device*>(device)); }

  F f;
};

class ChannelSystem : private WakeTarget {
public:
  ChannelSystem(Device& device, int)
      : channel_({.capacity = ring_capacity}, *this), thread_([this, &device] { run(device); }) {}
  ~ChannelSystem() {
    channel_.close();
    thread_.join();
  }

  template <class F>
  void send(int, const F& f) {
    if (channel_.try_submit(ForDevice<F>{f}, true) == Admission::in_slot) [[likely]]
      return;
    Backoff backoff;  // never with windows that fit
    while (channel_.try_submit(ForDevice<F>{f}, true) != Admission::in_slot) backoff.wait();
  }

private:
  void wake() noexcept override { token_.raise(); }

  /// A look in vain: leaves the slot alone for a while and, when that goes on, lets somebody else
  /// have the core. With more threads than cores the command it waits for is often theirs.
  void look_later() {
    channel_.pause();
    if (++looks_ > 4) sched_yield();
  }

  void run(Device& device) {
    std::uint64_t idle_since = 0;
    for (;;) {
      channel_.drain_control([&](ControlNode& node) { node.run(node, &device); });
      bool any = false;
      while (channel_.consume([&](const ChannelItem& item) noexcept { item.run(&device); }))
        any = true;
      if (any) {
        idle_since = 0;
        looks_ = 0;
      } else if (channel_.has_unpublished()) {
        look_later();
      } else if (idle_since == 0) {
        idle_since = ticks();
      } else if (ns_since(idle_since) < spin_budget_ns) {
        look_later();
      } else {
        const Channel::Idle idle = channel_.try_park();
        if (idle == Channel::Idle::stopped) return;
        if (idle == Channel::Idle::parked) token_.wait_and_lower();
        idle_since = 0;
      }
    }
  }

  int looks_ = 0;  // the device thread's
  Flag token_;
  Channel channel_;
  std::thread thread_;
};

// ---- peers --------------------------------------------------------------------------------------

/// moodycamel with producer tokens and bulk takes; the device thread spins, then parks, and leaves
/// the queue alone for `Pauses` pause instructions once it has found it empty.
template <int Pauses, bool Yields = false>
class MoodySystem {
public:
  MoodySystem(Device& device, int producers) : queue_(ring_capacity) {
    for (int p = 0; p < producers; ++p) tokens_.emplace_back(queue_);
    thread_ = std::thread([this, &device] { run(device); });
  }
  ~MoodySystem() {
    send(0, [this](Device&) { stop_ = true; });
    thread_.join();
  }

  template <class F>
  void send(int producer, const F& f) {
    queue_.enqueue(tokens_[std::size_t(producer)], Erased(f));
    // The queue is one word and the sleeper another, hence the two full barriers, here and before
    // the last look in run().
    pushed_.fetch_add(0, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst) && asleep_.exchange(false)) token_.raise();
  }

private:
  std::size_t drain(Device& device, moodycamel::ConsumerToken& consumer) {
    const std::size_t count = queue_.try_dequeue_bulk(consumer, items_.data(), items_.size());
    for (std::size_t i = 0; i < count; ++i) items_[i](device);
    return count;
  }

  void run(Device& device) {
    moodycamel::ConsumerToken consumer(queue_);
    std::uint64_t idle_since = 0;
    while (!stop_) {
      if (drain(device, consumer) != 0) {
        idle_since = 0;
      } else if (idle_since == 0) {
        idle_since = ticks();
      } else if (ns_since(idle_since) < spin_budget_ns) {
        for (int i = 0; i < Pauses; ++i) relax();
        if (Yields) sched_yield();
      } else {
        asleep_.exchange(true);
        if (drain(device, consumer) == 0 || !asleep_.exchange(false)) token_.wait_and_lower();
        asleep_.store(false, std::memory_order_relaxed);
        idle_since = 0;
      }
    }
  }

  bool stop_ = false;  // the device thread's
  std::array<Erased, 64> items_;
  moodycamel::ConcurrentQueue<Erased> queue_;
  std::vector<moodycamel::ProducerToken> tokens_;
  alignas(64) std::atomic<std::uint32_t> pushed_{0};
  alignas(64) std::atomic<bool> asleep_{false};
  Flag token_;
  std::thread thread_;
};

class AsioPostSystem {
public:
  AsioPostSystem(Device& device, int)
      : device_(device), guard_(context_.get_executor()), thread_([this] { context_.run(); }) {}
  ~AsioPostSystem() {
    guard_.reset();
    thread_.join();
  }

  template <class F>
  void send(int, const F& f) {
    boost::asio::post(context_, [this, f] { f(device_); });
  }

private:
  Device& device_;
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::thread thread_;
};

}  // namespace reprise::bench

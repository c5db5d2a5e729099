// SPDX-License-Identifier: Apache-2.0
// P1, P3, P4: what a command costs to submit, to take and run, and end to end.
#include "channel_peers.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <sched.h>
#include <thread>
#include <vector>

namespace reprise::bench {
namespace {

constexpr int burst = 512;

/// ns per send while the device thread is held at a gate, so that nobody is in the way.
template <class System>
double held() {
  constexpr int bursts = 17;
  std::vector<double> send_ns;
  Device device;
  System system(device, 1);
  pin(0);
  system.send(0, PinDevice{1});
  for (int b = 0; b < bursts; ++b) {
    Gate::State gate;
    system.send(0, Gate{&gate});
    gate.entered.wait_and_lower();
    device.target = device.executed + burst;
    const std::uint64_t start = ticks();
    for (std::uint64_t i = 0; i < burst; ++i) system.send(0, Work{{0, i}});
    const double sent = ns_since(start);
    gate.open.raise();
    device.done.wait_and_lower();
    if (b >= 2) send_ns.push_back(sent / burst);  // the first warm up
  }
  pin(-1);
  return median(std::move(send_ns));
}

/// Producers send as fast as a window of commands in flight allows: ns per command. With a core
/// each for producer and device, the slowest tenth of the laps is left out: that is where the host
/// took a core away. With more threads than cores, waiting for one is part of the cost.
template <class System>
class Stream {
public:
  explicit Stream(int producers) : producers_(producers), system_(device_, producers) {}

  double measure() {
    if (producers_ == 1) {
      pin(0);
      system_.send(0, PinDevice{1});
    }
    std::vector<std::thread> threads;
    for (int p = 1; p < producers_; ++p) threads.emplace_back([this, p] { produce(p); });
    threads.emplace_back([this] { start_all(); });
    produce(0);
    device_.done.wait_and_lower();
    for (std::thread& thread : threads) thread.join();
    pin(-1);
    const double all = double(device_.finish - start_) * ns_per_tick() / double(total());
    if (producers_ > 1) return all;
    std::vector<double> laps;
    for (std::size_t i = 1; i < device_.laps.size(); ++i)
      if (device_.laps[i - 1] >= start_)
        laps.push_back(double(device_.laps[i] - device_.laps[i - 1]));
    return trimmed_mean(std::move(laps)) * ns_per_tick() / double(Device::lap);
  }

private:
  std::uint64_t each() const { return 24000 / std::uint64_t(producers_); }
  std::uint64_t total() const { return each() * std::uint64_t(producers_); }

  void start_all() {
    while (ready_.load() < producers_) sched_yield();
    device_.target = device_.executed + total();
    start_ = ticks();
    go_.store(true);
  }

  void send(int p, std::uint64_t& sent, std::uint64_t count) {
    const auto& published = device_.progress[std::size_t(p)].published;
    for (const std::uint64_t end = sent + count; sent < end; ++sent) {
      if (sent % 32 == 0) {
        Backoff backoff;
        // Acquire: the partner is Device::consume().
        while (sent - published.load(std::memory_order_acquire) > window - 32) backoff.wait();
      }
      system_.send(p, Work{{std::uint64_t(p), sent}});
    }
  }

  void produce(int p) {
    std::uint64_t sent = 0;
    send(p, sent, window);
    while (device_.progress[std::size_t(p)].published.load(std::memory_order_acquire) < window)
      sched_yield();
    ready_.fetch_add(1);
    while (!go_.load()) sched_yield();
    send(p, sent, each());
  }

  const int producers_;
  Device device_;
  System system_;
  std::atomic<int> ready_{0};
  std::atomic<bool> go_{false};
  std::uint64_t start_ = 0;
};

template <class System>
Measure stream(int producers) {
  return [producers] { return Stream<System>(producers).measure(); };
}

// ---- P1: one thread, bursts, nothing but the loop -----------------------------------------------

constexpr int loop_burst = 256;

long loop_spsc(int rounds) {
  Device device;
  SpscRings rings(1);
  for (int r = 0; r < rounds; ++r) {
    for (std::uint64_t i = 0; i < loop_burst; ++i) rings.push(0, Erased(Work{{0, i}}));
    rings.drain([&](Erased& command) { command(device); });
  }
  return long(rounds) * loop_burst;
}

struct NoWaker final : WakeTarget {
  void wake() noexcept override {}
};

long loop_channel(int rounds) {
  Device device;
  NoWaker waker;
  Channel channel({.capacity = ring_capacity}, waker);
  for (int r = 0; r < rounds; ++r) {
    for (std::uint64_t i = 0; i < loop_burst; ++i) {
      Late<ForDevice<Work>> late;
      channel.submit(ForDevice<Work>{{{0, i}}}, late, true);
    }
    while (channel.consume([&](const ChannelItem& item) noexcept { item.run(&device); })) {
    }
    channel.drain_control([](ControlNode&) {});
  }
  return long(rounds) * loop_burst;
}

long loop_channel_try(int rounds) {
  Device device;
  NoWaker waker;
  Channel channel({.capacity = ring_capacity}, waker);
  for (int r = 0; r < rounds; ++r) {
    for (std::uint64_t i = 0; i < loop_burst; ++i)
      channel.try_submit(ForDevice<Work>{{{0, i}}}, true);
    while (channel.consume_if(
        [&](const ChannelItem& item) noexcept { return item.ops->run != nullptr; },
        [&](const ChannelItem& item) noexcept { item.run(&device); })) {
    }
    channel.drain_control([](ControlNode&) {});
  }
  return long(rounds) * loop_burst;
}

long loop_moody(int rounds) {
  Device device;
  moodycamel::ConcurrentQueue<Erased> queue(ring_capacity);
  moodycamel::ProducerToken producer(queue);
  moodycamel::ConsumerToken consumer(queue);
  std::array<Erased, 64> items;
  for (int r = 0; r < rounds; ++r) {
    for (std::uint64_t i = 0; i < loop_burst; ++i) queue.enqueue(producer, Erased(Work{{0, i}}));
    while (const std::size_t count = queue.try_dequeue_bulk(consumer, items.data(), items.size()))
      for (std::size_t i = 0; i < count; ++i) items[i](device);
  }
  return long(rounds) * loop_burst;
}

const Registration rows{[](Suite& suite) {
  suite.row("P1", "submit, take and run a 64 B command", "instructions")
      .limit_instructions("SPSC ring", loop_spsc)
      .add_instructions("reprise channel", loop_channel, {value_at_most(95)})
      .add_instructions("reprise channel, try_submit, consume_if", loop_channel_try,
                        {value_at_most(95)})
      .add_instructions("moodycamel, tokens and bulk", loop_moody);

  suite.row("P3", "submit, device held")
      .limit("SPSC ring", held<SpscSystem>)
      .add("reprise channel", held<ChannelSystem>, {at_most(2.2), faster_than("asio::post", 4)})
      .add("moodycamel, tokens and bulk, parking", held<MoodySystem<64>>)
      .add("asio::post", held<AsioPostSystem>);

  for (const int producers : {1, 4})
    suite
        .row("P4",
             producers == 1 ? "stream of commands, 1 producer" : "stream of commands, 4 producers")
        .limit("SPSC ring a producer", stream<SpscSystem>(producers))
        .add("reprise channel, parking", stream<ChannelSystem>(producers),
             {faster_than("moodycamel, parking", producers == 1 ? 2 : 1.5),
              faster_than("moodycamel, parking, 64 pauses a look", producers == 1 ? 2 : 1.5),
              faster_than("asio::post", 10)})
        .add("moodycamel, parking", stream<MoodySystem<1>>(producers))
        .add("moodycamel, parking, 64 pauses a look", stream<MoodySystem<64>>(producers))
        .add("moodycamel, the same, giving the core away as ours does",
             stream<MoodySystem<64, true>>(producers))
        .add("asio::post", stream<AsioPostSystem>(producers));
}};

}  // namespace
}  // namespace reprise::bench

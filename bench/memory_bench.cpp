// SPDX-License-Identifier: Apache-2.0
// P15: host memory per idle device, per node of a graph and per queued command.
#include "harness.hpp"

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace reprise::bench {
namespace {

using Words = Array<std::uint64_t>;

/// Resident memory of this process in KiB, exactly.
long resident() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Rss:")) return std::atol(line.c_str() + 4);
  std::abort();
}

/// Bytes of heap in use, in all arenas; what a thread keeps to itself after freeing it counts.
long heap_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return long(info.uordblks + info.hblkhd);
}

// ---- devices ------------------------------------------------------------------------------------

/// A runtime with one device; no thread of it is awake any more.
class Idle {
public:
  Idle() {
    device_ = runtime_.open("cpu:0");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

private:
  Runtime runtime_;
  Device device_;
};

long first_device(int /*rounds*/) {
  (void)resident();
  const long before = resident();
  const Idle device;
  return resident() - before;
}

long one_more_device(int /*rounds*/) {
  const Idle first;
  const long before = resident();
  const Idle device;
  return resident() - before;
}

// ---- nodes --------------------------------------------------------------------------------------

constexpr int nodes = 1000;
constexpr int graphs = 16;

/// Launches that all differ, in a chain over one array after the other, or all over the same one.
class Recorded {
public:
  explicit Recorded(int arrays) : device_(runtime_.open("cpu:0")), client_(device_.client()) {
    for (int i = 0; i < arrays; ++i) arrays_.push_back(client_.zeros<std::uint64_t>(1));
    client_.synchronize();
    // Whatever is made once is there.
    for (int i = 0; i < 4; ++i) (void)capture(nodes);
    client_.synchronize();
  }

  /// Heap bytes of so many graphs, which live.
  long bytes_of(int count) {
    client_.flush();
    std::vector<Graph> made;
    made.reserve(std::size_t(graphs));
    const long before = heap_in_use();
    for (int i = 0; i < graphs; ++i) made.push_back(capture(count));
    client_.flush();
    return heap_in_use() - before;
  }

private:
  Graph capture(int count) {
    return client_.capture([&](Client& client) {
      for (int i = 0; i < count; ++i) {
        const std::size_t from = std::size_t(i) % arrays_.size();
        const std::size_t to = (from + 1) % arrays_.size();
        client.launch(chain_, 1, arrays_[from], arrays_[to], std::uint64_t(i));
      }
    });
  }

  const Kernel<void(In<std::uint64_t>, Out<std::uint64_t>, std::uint64_t)> chain_{
      "chain", [](const Block&, In<std::uint64_t> from, Out<std::uint64_t> to, std::uint64_t i) {
        to[0] = from[0] + i;
      }};
  Runtime runtime_;
  Device device_;
  Client client_;
  std::vector<Words> arrays_;
};

template <int arrays>
long node(int /*rounds*/) {
  Recorded recorded(arrays);
  const long empty = recorded.bytes_of(0);
  return (recorded.bytes_of(nodes) - empty) / (nodes * graphs);
}

// ---- commands -----------------------------------------------------------------------------------

DeviceOptions held_options(std::uint32_t capacity) {
  DeviceOptions options;
  options.workers = 0;
  options.ring_capacity = capacity;
  options.in_flight_per_stream = capacity;
  return options;
}

/// What a larger ring takes, per slot. Both are large, so that the rest of a page, which malloc may
/// add to one and not to the other, is nothing beside their slots.
long slot(int /*rounds*/) {
  const auto with = [](std::uint32_t capacity) {
    Runtime runtime;
    const long before = heap_in_use();
    const Device device = runtime.open("cpu:0", held_options(capacity));
    return heap_in_use() - before;
  };
  constexpr std::uint32_t less = 1U << 15;
  constexpr std::uint32_t more = 1U << 16;
  (void)with(less);
  const long small = with(less);
  return (with(more) - small) / (more - less);
}

/// What launches in the ring take besides their slots, while the device runs another one.
long block(int /*rounds*/) {
  constexpr int launches = 3000;
  std::atomic<bool> runs{false};
  std::atomic<bool> go{false};
  const Kernel held("held", [&](const Block&, InOut<std::uint64_t>) {
    runs.store(true, std::memory_order_release);
    while (!go.load(std::memory_order_acquire)) relax();
  });
  const Kernel touch("touch", [](const Block&, InOut<std::uint64_t> x) { x[0] += 1; });
  Runtime runtime;
  const Device device = runtime.open("cpu:0", held_options(4096));
  const Client client = device.client();
  const Words x = client.zeros<std::uint64_t>(1);
  client.synchronize();
  client.launch(held, 1, x);
  while (!runs.load(std::memory_order_acquire)) relax();
  const long before = heap_in_use();
  for (int i = 0; i < launches; ++i) client.launch(touch, 1, x);
  const long after = heap_in_use();
  go.store(true, std::memory_order_release);
  if (client.read(x)[0] != launches) std::abort();
  return (after - before) / launches;
}

const Registration rows{[](Suite& suite) {
  suite.row("P15", "resident memory of an idle device and its threads", "KiB")
      .add_alone("the first, with the library's own pages", first_device, {value_at_most(4096)})
      .add_alone("one more, with its runtime", one_more_device, {value_at_most(4096)});
  suite.row("P15", "heap per node of a graph of 1,000 launches", "bytes")
      .add_alone("over 2 arrays", node<2>, {value_at_most(256)})
      .add_alone("over 1,000 arrays, with what an array takes", node<1000>);
  suite.row("P15", "memory per queued command", "bytes")
      .add_alone("its slot, and its place among late ones", slot, {value_at_most(128)})
      .add_alone("a launch, besides its slot", block);
}};

}  // namespace
}  // namespace reprise::bench

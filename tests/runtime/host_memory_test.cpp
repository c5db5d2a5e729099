// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/host_memory.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <optional>
#include <vector>

using namespace reprise;
using Floats = std::vector<float>;

namespace {

/// Makes one host allocation of the device thread fail: the n-th from when it is armed.
class DeviceThreadFault {
public:
  explicit DeviceThreadFault(const Client& client) : client_(client) {}

  void arm(std::uint64_t nth) {
    on_device_thread([this, nth] { fault_.emplace(nth, test::HostMemoryFault::Flavour::once); });
  }
  /// Whether it had its chance.
  bool disarm() {
    bool fired = false;
    on_device_thread([&] {
      fired = fault_->fired();
      fault_.reset();
    });
    return fired;
  }

private:
  template <class F>
  void on_device_thread(F function) {
    detail::DeviceCore& core = *detail::ClientAccess::stream(client_)->core;
    detail::BlockingReply reply;
    auto* const call = detail::make_call(core, "test", [&](detail::Actor& actor, auto& self) {
      function();
      actor.done(self);
    });
    call->finished = Completion(&reply);
    core.call(call, reply);
  }

  const Client& client_;
  std::optional<test::HostMemoryFault> fault_;
};

/// Runs it; true unless it threw a Failure, which has to speak of memory in the end.
template <class F>
bool succeeds(F&& function) {
  try {
    function();
    return true;
  } catch (const Failure& failure) {
    const FailureRecord* root = &failure.record();
    while (root->cause) root = root->cause.get();
    INFO(failure.what());
    CHECK(root->code == Errc::out_of_memory);
    return false;
  }
}

}  // namespace

TEST_CASE("whichever host allocation of the device thread fails, no stale byte is read and all "
          "goes on [I3] [I28]",
          "[runtime][fault]") {
  const std::uint32_t workers = GENERATE(0U, 1U);
  CAPTURE(workers);
  Runtime runtime;
  DeviceOptions options;
  options.workers = workers;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  Client other = device.client();
  const auto x = client.zeros<float>(16);
  const auto y = client.zeros<float>(16);
  const Graph graph = client.capture([&](Client& c) {
    c.launch(test::add_one, 1, x, y);
    c.launch(test::add_in_place, 1, y.slice(0, 8), 0.0f);
  });
  DeviceThreadFault fault(client);
  int failures = 0;
  std::uint64_t nth = 1;
  for (bool fired = true; fired; ++nth) {
    const auto v = static_cast<float>(nth);
    CAPTURE(nth);
    fault.arm(nth);
    bool all = true;
    all &= succeeds([&] { client.write(x, Floats(16, v)); });
    all &= succeeds([&] { graph.replay(); });
    all &= succeeds([&] {
      const Floats got = other.read(y);
      CHECK(got == Floats(16, v + 1));
    });
    all &= succeeds([&] {
      const auto z = other.empty<float>(16);
      other.copy(z.slice(0, 4), y.slice(12, 4));
      other.fill(z.slice(4, 12), v);
      const Floats got = client.read(z.slice(0, 4));
      CHECK(got == Floats(4, v + 1));
    });
    all &= succeeds([&] { graph.run(); });
    all &= succeeds([&] {
      const Graph again = client.capture([&](Client& c) {
        const auto t = c.empty<float>(16);
        c.launch(test::mul_two, 1, x, t);
        c.launch(test::add_one, 1, t, y);
      });
      again.run();
      const Floats got = client.read(y);
      CHECK(got == Floats(16, 2 * v + 1));
    });
    fired = fault.disarm();
    failures += all ? 0 : 1;
    CHECK((fired || all));
    // Whole again.
    client.write(x, Floats(16, v));
    graph.replay();
    CHECK(client.read(y) == Floats(16, v + 1));
  }
  CHECK(failures > 3);
  CHECK(nth > 10);
}

TEST_CASE("whichever host allocation of the device thread fails, a write in chunks is whole or "
          "tells [I20]",
          "[runtime][fault]") {
  constexpr std::size_t size = 20'000;  // five chunks
  int failures = 0;
  // Which of its allocations need the heap is a matter of time: often enough the first one does.
  for (std::uint64_t round = 0; round < 100 && failures < 5; ++round) {
    const std::uint64_t nth = 1 + round % 3;
    CAPTURE(nth);
    // A fresh device, whose device thread has no blocks yet; those of the callers are kept away.
    Runtime runtime;
    DeviceOptions options;
    options.workers = 0;
    options.staging_limit_bytes = 64 << 10;
    Device device = runtime.open("cpu:0", options);
    Client client = device.client();
    const auto x = client.zeros<float>(size);
    device.synchronize();
    BlockCache& blocks = detail::ClientAccess::stream(client)->core->blocks();
    std::vector<void*> kept;
    DeviceThreadFault fault(client);
    fault.arm(nth);
    for (int i = 0; i < 32; ++i) kept.push_back(blocks.take(BlockCache::large_block));
    bool all = succeeds([&] { client.write(x, Floats(size, 1)); });
    all &= succeeds([&] {
      const Floats got = client.read(x);
      CHECK(got == Floats(size, 1));
    });
    const bool fired = fault.disarm();
    failures += all ? 0 : 1;
    CHECK((fired || all));
    client.write(x, Floats(size, 2));
    CHECK(client.read(x) == Floats(size, 2));
    for (void* block : kept) blocks.give(block, BlockCache::large_block);
  }
  CHECK(failures > 0);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/transfer.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/caller_by_hand.hpp"
#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/watched_backend.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using Floats = std::vector<float>;
using test::CallerByHand;
using test::WatchedBackend;
using test::WatchedDevice;

namespace {

// The least there may be; blocks are a quarter of it.
constexpr std::uint64_t staging = 64 << 10;
constexpr std::size_t block_floats = staging / 4 / sizeof(float);
// So many that a write of them takes 13 chunks, the last of which is not full.
constexpr std::size_t many = 12 * block_floats + 17;

DeviceOptions small_staging(std::uint32_t workers) {
  DeviceOptions options;
  options.workers = workers;
  options.staging_limit_bytes = staging;
  return options;
}

Floats counted(float from) {
  Floats values(many);
  std::iota(values.begin(), values.end(), from);
  return values;
}

}  // namespace

TEST_CASE("a write larger than staging arrives whole and within the bound", "[runtime]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(workers));
  Client client = device.client();
  const auto x = client.create<float>(counted(1));
  CHECK(client.read(x) == counted(1));
  client.write(x, counted(2));
  client.launch(test::add_in_place, grid_for(many), x, 1.0f);
  client.write(x.slice(0, many / 2), Floats(many / 2, -1));
  Floats expected = counted(3);
  std::fill_n(expected.begin(), many / 2, -1.0f);
  CHECK(client.read(x) == expected);
  device.synchronize();
  const StagingStats stats = device.memory_report().staging;
  CHECK(stats.blocks == 0);
  CHECK(stats.reserved <= staging);
  CHECK(device.statistics().refused == 0);
}

TEST_CASE("readers on other streams see a write in chunks whole or not at all [I4]",
          "[runtime][threads]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(workers));
  Client writer = device.client();
  const auto x = writer.zeros<float>(many);
  writer.flush();
  std::atomic<bool> done{false};
  std::atomic<int> torn{0};
  std::atomic<int> backwards{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t, client = device.client()] {
      const auto copy = client.empty<float>(many);
      for (float last = 0; !done;) {
        client.copy(copy, x);
        const Floats seen = client.read(t == 0 ? x : copy);
        torn += std::count(seen.begin(), seen.end(), seen[0]) == static_cast<long>(many) ? 0 : 1;
        backwards += seen[0] < last ? 1 : 0;
        last = seen[0];
      }
    });
  }
  for (int i = 1; i <= 40; ++i) writer.write(x, Floats(many, static_cast<float>(i)));
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(torn == 0);
  CHECK(backwards == 0);
  CHECK(device.client().read(x) == Floats(many, 40));
}

TEST_CASE("large writes of different streams to the same bytes do not mix [I4]",
          "[runtime][threads]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(workers));
  Client client = device.client();
  const auto x = client.zeros<float>(many);
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&x, t, own = device.client()] {
      for (int i = 0; i < 10; ++i) own.write(x, Floats(many, static_cast<float>(t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Floats seen = client.read(x);
  CHECK(seen == Floats(many, seen[0]));
}

TEST_CASE("what touches the bytes of an open transfer waits for its end and other work does not",
          "[runtime]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  const bool early = GENERATE(false, true);
  CAPTURE(workers, early);
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(workers));
  Client client = device.client();
  Client other = device.client();
  const auto x = client.create<float>(Floats(many, 1));
  const auto z = other.create<float>({5});
  auto before = other.async_read(x);
  CallerByHand caller(client, x, counted(2));
  // The second chunk may overtake the first, which has to come to its turn.
  if (early) caller.send_next();
  caller.post_first();
  // Neither touches x: both are served while the transfer is open.
  other.launch(test::add_in_place, 1, z, 1.0f);
  CHECK(other.read(z) == Floats{6});
  auto after = other.async_read(x);
  auto same_stream = client.async_read(x.slice(many - 1, 1));
  CHECK_FALSE(after.ready());
  caller.send_rest();
  CHECK(before.get() == Floats(many, 1));
  CHECK(after.get() == counted(2));
  CHECK(same_stream.get() == Floats{static_cast<float>(many) + 1});
}

TEST_CASE("an abort in the middle of a large write leaves all of its bytes marked [I20]",
          "[runtime]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  WatchedDevice device(workers, small_staging(workers));
  Client client = device.client();
  const auto x = client.create<float>(Floats(many, 1));
  const auto y = client.create<float>(Floats(4, 1));
  const Client other = device.client();
  CallerByHand caller(client, x, counted(2));
  caller.post_first();
  caller.send_next();
  CHECK_FALSE(caller.wait(1));
  auto reader = other.async_read(x);
  auto aborted = std::async(std::launch::async, [&] { device.close(true); });
  while (!device.core().is_aborting()) std::this_thread::yield();
  caller.send_next();
  const FailurePtr failure = caller.wait(2);
  REQUIRE(failure);
  CHECK(failure->code == Errc::operation_aborted);
  aborted.get();
  CHECK(code_of([&] { (void)reader.get(); }) == Errc::operation_aborted);
  // Nobody can read any more; the books still say what could be.
  const TaintMap& taint = detail::BufferAccess::hold(x)->device.taint;
  std::uint64_t marked = 0;
  taint.each({0, x.size_bytes()}, [&](ByteRange range, const ClaimPtr& claim) {
    marked += range.size();
    CHECK(claim->kind == ClaimKind::ran);
    CHECK(claim->failure->code == Errc::operation_aborted);
  });
  CHECK(marked == x.size_bytes());
  CHECK(detail::BufferAccess::hold(y)->device.taint.clean());
}

TEST_CASE("a large write on a device that closes is whole, refused or torn as a whole [I12] [I34]",
          "[runtime][threads]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  const bool abort = GENERATE(false, true);
  CAPTURE(workers, abort);
  for (int round = 0; round < 20; ++round) {
    Runtime runtime;
    Device device = runtime.open("cpu:0", small_staging(workers));
    Client client = device.client();
    const auto x = client.create<float>(Floats(many, 1));
    client.synchronize();
    std::thread writer([&] {
      const Errc code = code_of([&] {
        for (int i = 0; i < 1000; ++i) client.write(x, Floats(many, 2));
      });
      const bool known = code == Errc::closed || code == Errc::operation_aborted || code == Errc{};
      CHECK(known);
    });
    if (abort) {
      device.abort();
    } else {
      device.drain();
    }
    writer.join();
    const TaintMap& taint = detail::BufferAccess::hold(x)->device.taint;
    const bool all_or_nothing = taint.clean() || taint.spans() == 1;
    CHECK(all_or_nothing);
    if (!abort) CHECK(taint.clean());
  }
}

TEST_CASE("a chunk that fails or is refused fails the whole write and nothing else [I20] [I21]",
          "[runtime]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  const int nth = GENERATE(1, 2, 7, 12, 13);
  const auto fault = GENERATE(WatchedBackend::Fault::refuse, WatchedBackend::Fault::fail);
  CAPTURE(workers, nth, static_cast<int>(fault));
  WatchedDevice device(workers, small_staging(workers));
  Client client = device.client();
  const auto x = client.create<float>(Floats(many + 8, 1));
  const auto target = x.slice(4, many);
  client.synchronize();
  device.backend().arm(fault, nth);
  // The caller is told if the device knew before the last chunk was handed over.
  (void)code_of([&] { client.write(target, counted(2)); });
  const Errc expected =
      fault == WatchedBackend::Fault::refuse ? Errc::refused : Errc::kernel_failed;
  CHECK(code_of([&] { (void)client.read(target.slice(0, 1)); }) == expected);
  CHECK(code_of([&] { (void)client.read(target.slice(many - 1, 1)); }) == expected);
  CHECK(client.read(x.slice(0, 4)) == Floats(4, 1));
  CHECK(client.read(x.slice(many + 4, 4)) == Floats(4, 1));
  // Only a refusal of the first chunk leaves the bytes as they were.
  client.restore({target});
  const bool untouched = fault == WatchedBackend::Fault::refuse && nth == 1;
  CHECK(code_of([&] { (void)client.read(target); }) == (untouched ? Errc{} : expected));
  client.write(target, counted(3));
  CHECK(client.read(target) == counted(3));
}

TEST_CASE("a last chunk that the device has already does not heal what an earlier one tore [I21]",
          "[runtime]") {
  WatchedDevice device(1, small_staging(1));
  Client client = device.client();
  const Client other = device.client();
  constexpr std::size_t two_chunks = 2 * block_floats;
  const auto x = client.create<float>(Floats(two_chunks, 1));
  test::Gate gate;
  client.host_call({}, [&] { gate.pass(); });
  gate.wait_for_arrivals();
  device.backend().arm(WatchedBackend::Fault::fail, 1);
  CallerByHand caller(client, x, Floats(two_chunks, 2));
  caller.post_first();
  caller.send_rest();
  auto reader = other.async_read(x);
  other.flush();
  gate.open();
  CHECK(code_of([&] { (void)reader.get(); }) == Errc::kernel_failed);
  CHECK(caller.wait(0));
  CHECK(caller.wait(1));
  CHECK(code_of([&] { (void)client.read(x.slice(0, 1)); }) == Errc::kernel_failed);
  client.restore({x});
  CHECK(code_of([&] { (void)client.read(x.slice(two_chunks - 1, 1)); }) == Errc::kernel_failed);
}

TEST_CASE("what a recording stream writes is kept by the graph and never staged [B115] [B123]",
          "[runtime]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(workers));
  Client client = device.client();
  const auto x = client.create<float>(Floats(many, 1));
  client.synchronize();
  const std::uint64_t requests = device.memory_report().staging.requests;
  static std::atomic<int> released;
  released = 0;
  std::vector<float> foreign(many, 7);
  {
    const auto y = client.empty<float>(many);
    const Graph graph = client.capture([&](Client& c) {
      Floats values = counted(5);
      c.write(x, values);
      std::fill(values.begin(), values.end(), 0.0f);
      c.write(y, HostBytes(
                     reinterpret_cast<std::byte*>(foreign.data()), many * sizeof(float),
                     [](void*, std::byte*) noexcept { ++released; }, nullptr));
    });
    CHECK(client.read(x) == Floats(many, 1));
    // Taken over without a copy: the graph reads where the caller wrote.
    foreign[3] = 8;
    for (int i = 0; i < 2; ++i) {
      graph.run();
      CHECK(client.read(x) == counted(5));
      CHECK(client.read(y.slice(2, 2)) == Floats{7, 8});
      client.fill(x, 0.0f);
    }
    CHECK(released == 0);
    CHECK(device.memory_report().staging.requests == requests);
  }
  runtime.drain();
  while (released == 0) std::this_thread::yield();
  CHECK(released == 1);
}

TEST_CASE("a large write that meets a capture it did not know of dooms the window [B108]",
          "[runtime]") {
  const bool early = GENERATE(false, true);
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(1));
  Client client = device.client();
  const auto x = client.create<float>(Floats(many, 1));
  client.prepare_capture();
  client.start_capture();
  // Its caller has looked before the capture began.
  CallerByHand caller(client, x, counted(2));
  if (early) caller.send_next();
  caller.post_first();
  const FailurePtr refused = caller.wait(0);
  REQUIRE(refused);
  CHECK(refused->code == Errc::capture_refused);
  if (!early) caller.send_next();
  CHECK(caller.wait(1));
  CHECK(code_of([&] { (void)client.stop_capture(); }) == Errc::capture_doomed);
  CHECK(client.read(x) == Floats(many, 1));
  client.write(x, counted(2));
  CHECK(client.read(x) == counted(2));
}

TEST_CASE("a large write makes do with the one staging block that there is", "[runtime]") {
  const std::uint32_t workers = GENERATE(0u, 1u);
  WatchedDevice device(workers, small_staging(workers));
  Client client = device.client();
  const auto x = client.empty<float>(many);
  {
    std::vector<StagingBlock> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(*device.core().staging().take(staging / 4));
    client.write(x, counted(1));
    CHECK(device.core().staging().stats().reserved == staging);
  }
  CHECK(client.read(x) == counted(1));
}

TEST_CASE("memory that is handed over or borrowed is neither copied nor staged", "[runtime]") {
  WatchedDevice device(1, small_staging(1));
  Client client = device.client();
  const auto x = client.empty<float>(many);
  client.synchronize();
  (void)device.backend().take_commands();
  const std::uint64_t requests = device.core().staging().stats().requests;
  const Floats borrowed = counted(3);
  client.async_write(x, std::span<const float>(borrowed)).get();
  HostBytes owned(x.size_bytes());
  const std::byte* const data = owned.data();
  client.write(x, std::move(owned));
  CHECK(client.read(x) == Floats(many, 0));
  // Of a slice only the slice is moved.
  CHECK(client.read(x.slice(5, 3)) == Floats(3, 0));
  std::vector<const void*> from;
  std::vector<std::uint64_t> sizes;
  for (const Command& command : device.backend().take_commands()) {
    if (const auto* write = std::get_if<command::Write>(&command)) from.push_back(write->from);
    if (const auto* read = std::get_if<command::Read>(&command)) sizes.push_back(read->bytes);
  }
  CHECK(from == std::vector<const void*>{borrowed.data(), data});
  CHECK(sizes == std::vector<std::uint64_t>{many * sizeof(float), 3 * sizeof(float)});
  CHECK(device.core().staging().stats().requests == requests);
}

TEST_CASE("transfers of nothing cost nothing [B121]", "[runtime]") {
  WatchedDevice device(1);
  Client client = device.client();
  const auto x = client.create<float>({1, 2});
  test::Gate gate;
  device.core().post(
      detail::make_call(device.core(), "test", [&](detail::Actor& actor, auto& self) {
        gate.pass();
        actor.done(self);
      }));
  gate.wait_for_arrivals();
  // The device thread is busy, and not asked.
  client.write(x.slice(2, 0), Floats{});
  CHECK(client.read(x.slice(1, 0)).empty());
  CHECK(code_of([&] { client.write(x.slice(2, 0), Floats{1}); }) == Errc::size_mismatch);
  gate.open();
  device.close(false);
  CHECK(code_of([&] { client.write(x.slice(2, 0), Floats{}); }) == Errc::closed);
  CHECK(code_of([&] { (void)client.read(x.slice(2, 0)); }) == Errc::closed);
}

TEST_CASE("a library thread writes more than staging holds without waiting [B28]", "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(1));
  Client client = device.client();
  Client inside = device.client();
  const auto x = client.zeros<float>(many);
  client.host_call({}, [&] { inside.write(x, counted(4)); });
  client.synchronize();
  CHECK(client.read(x) == counted(4));
}

TEST_CASE("what is read of a buffer moves, and its size is known without asking [B268]",
          "[runtime]") {
  test::WatchedDevice device(1);
  const Client client = device.client();
  std::vector<int> values(1024);
  for (int i = 0; i < 1024; ++i) values[static_cast<std::size_t>(i)] = i;
  const auto whole = client.create<int>(values);
  client.synchronize();
  (void)device.backend().take_commands();
  CHECK(whole.size() == 1024);
  CHECK(whole.size_bytes() == 4096);
  const auto view = whole.slice(100, 100);
  CHECK(device.backend().take_commands().empty());
  const std::vector<int> part = client.read(view);
  CHECK(part == std::vector<int>(values.begin() + 100, values.begin() + 200));
  std::uint64_t moved = 0;
  for (const Command& command : device.backend().take_commands()) {
    if (const auto* read = std::get_if<command::Read>(&command)) moved += read->bytes;
  }
  CHECK(moved == 400);
  CHECK(client.read(whole) == values);
}

TEST_CASE("any number of writes in a window takes no staging, and replays in order [B112]",
          "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0", small_staging(1));
  const Client client = device.client();
  const auto x = client.zeros<float>(150);
  const auto large = client.zeros<float>(block_floats);
  client.synchronize();
  const std::uint64_t requests = device.memory_report().staging.requests;
  const Graph graph = client.capture([&](Client& c) {
    for (std::size_t i = 0; i < 150; ++i) {
      c.write(x.slice(i, 1), Floats{static_cast<float>(i)});
      c.write(large, Floats(block_floats, static_cast<float>(i)));
    }
  });
  CHECK(graph.node_count() == 300);
  CHECK(device.memory_report().staging.requests == requests);
  CHECK(device.memory_report().staging.in_use == 0);
  graph.run();
  Floats expected(150);
  std::iota(expected.begin(), expected.end(), 0.0f);
  CHECK(client.read(x) == expected);
  CHECK(client.read(large) == Floats(block_floats, 149));
}

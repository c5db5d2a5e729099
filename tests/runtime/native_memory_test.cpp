// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/buffer.hpp>

#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using Floats = std::vector<float>;

namespace {

/// Memory of the caller's that notes its release.
struct Lent {
  std::array<float, 4> values{1, 2, 3, 4};
  std::atomic<int> releases{0};
  std::promise<ThreadRole> released;

  std::function<void(void*)> release() {
    return [this](void* data) {
      CHECK(data == values.data());
      if (++releases == 1) released.set_value(this_thread_role());
    };
  }
};

}  // namespace

TEST_CASE("imported memory counts as written and is worked on in place [B264]", "[runtime]") {
  Lent lent;
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  {
    const auto x = client.import_memory(&lent.values, sizeof lent.values, nullptr).as<float>();
    CHECK(client.read(x) == Floats{1, 2, 3, 4});
    CHECK(client.check({x}) == Health::clean);
    const auto half = x.slice(2, 2);
    client.launch(test::add_in_place, 1, half, 10.0f);
    CHECK(client.read(half) == Floats{13, 14});
    CHECK(lent.values == std::array<float, 4>{1, 2, 13, 14});
    client.launch(test::fail, 1, x, half);
    CHECK(code_of([&] { (void)client.read(half); }) == Errc::kernel_failed);
    CHECK(client.read(x.slice(0, 2)) == Floats{1, 2});
  }
  CHECK(client.read(client.import_memory(nullptr, 0, nullptr)).size() == 0);
}

TEST_CASE("imported memory is released once, on the courier, when nothing uses it any more [I8] "
          "[D4]",
          "[runtime]") {
  Lent lent;
  test::Gate gate;
  const Kernel hold{"hold", [&gate](const Block&, InOut<float>) { gate.pass(); }};
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  Client client = runtime.open("cpu:0", options).client();
  Graph graph;
  {
    const auto x =
        client.import_memory(&lent.values, sizeof lent.values, lent.release()).as<float>();
    graph = client.capture([&](Client& c) { c.launch(test::add_in_place, 1, x, 1.0f); });
    client.launch(hold, 1, x);
  }
  gate.wait_for_arrivals();
  graph.replay();
  CHECK(lent.releases == 0);
  graph = {};  // The replay in flight keeps it, and the launch before.
  CHECK(lent.releases == 0);
  gate.open();
  CHECK(lent.released.get_future().get() == ThreadRole::courier);
  CHECK(lent.releases == 1);
  CHECK(lent.values == std::array<float, 4>{2, 3, 4, 5});
}

TEST_CASE("imported memory that outlives its runtime is released by its last handle [I8] [I33]",
          "[runtime]") {
  Lent lent;
  Buffer x;
  {
    Runtime runtime;
    Client client = runtime.open("cpu:0").client();
    x = client.import_memory(&lent.values, sizeof lent.values, lent.release());
    // What a release throws is counted, as with any job of the courier's.
    (void)client.import_memory(&lent.values, 4, [](void*) { throw std::runtime_error("no"); });
    client.synchronize();
  }
  CHECK(lent.releases == 0);
  x = {};
  CHECK(lent.releases == 1);
}

TEST_CASE("importing what is no memory is refused, and nothing is released", "[runtime]") {
  Lent lent;
  {
    Runtime runtime;
    Client client = runtime.open("cpu:0").client();
    CHECK(code_of([&] { (void)client.import_memory(nullptr, 4, lent.release()); }) ==
          Errc::invalid_argument);
    CHECK(code_of([&] { (void)Client{}.import_memory(&lent.values, 4, lent.release()); }) ==
          Errc::empty_handle);
    runtime.drain();
    CHECK(code_of([&] { (void)client.import_memory(&lent.values, 4, lent.release()); }) ==
          Errc::closed);
  }
  CHECK(lent.releases == 0);
}

TEST_CASE("an exported address is where the bytes are", "[runtime]") {
  Lent lent;
  Runtime runtime;
  DeviceOptions options;
  options.memory_limit_bytes = 16 << 20;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  const auto x = client.create<float>({1, 2, 3});
  client.synchronize();
  auto* const address = static_cast<float*>(x.export_native());
  CHECK(address[2] == 3);
  address[1] = 20;
  CHECK(client.read(x) == Floats{1, 20, 3});
  CHECK(x.slice(1, 2).export_native() == address + 1);
  const Buffer lent_buffer = client.import_memory(&lent.values, sizeof lent.values, nullptr);
  CHECK(lent_buffer.export_native() == &lent.values);
  CHECK(code_of([&] { (void)client.empty<float>(16 << 20).export_native(); }) == Errc::never_fits);
  CHECK(code_of([&] { (void)Buffer{}.export_native(); }) == Errc::empty_handle);
  std::promise<Errc> inside;
  client.host_call({}, [&] { inside.set_value(code_of([&] { (void)x.export_native(); })); });
  CHECK(inside.get_future().get() == Errc::would_deadlock);
  device.drain();
  CHECK(code_of([&] { (void)x.export_native(); }) == Errc::closed);
}

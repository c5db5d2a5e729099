// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <vector>

using namespace reprise;
using test::code_of;
using Floats = std::vector<float>;

namespace {

struct Bench {
  Bench() : device(runtime.open("cpu:0")), client(device.client()) {}
  std::uint64_t fallbacks() const { return device.statistics().fallbacks; }
  Runtime runtime;
  Device device;
  Client client;
};

}  // namespace

TEST_CASE("what can be captured is replayed once and the graph is answered", "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  int calls = 0;
  const CaptureOrRun done = bench.client.capture_or_run([&](Client& client) {
    ++calls;
    client.launch(test::add_in_place, 1, x, 1.0f);
  });
  CHECK(done);
  CHECK(done.reason == nullptr);
  CHECK(calls == 1);
  CHECK(bench.fallbacks() == 0);
  CHECK(bench.client.read(x) == Floats{6});
  done.graph.run();
  CHECK(bench.client.read(x) == Floats{7});
}

TEST_CASE("what cannot be captured runs instead, once, counted and with the reason [I22] [I26]",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  const auto other = bench.client.create<float>({3});
  bool reads = false;
  int calls = 0;
  const auto step = [&](Client& client) {
    ++calls;
    client.fill(other, 8.0f);
    if (reads) {
      // Known only when the step runs.
      client.launch(test::add_in_place, 1, x, client.read(x)[0]);
    } else {
      // Its stream is refused as a neighbour of the window, which is doomed.
      if (client.is_capturing()) client.join(bench.client);
      client.launch(test::add_in_place, 1, x, 5.0f);
    }
  };
  reads = GENERATE(true, false);
  const CaptureOrRun done = bench.client.capture_or_run(step);
  CHECK_FALSE(done);
  REQUIRE(done.reason);
  CHECK(done.reason->code == Errc::capture_refused);
  CHECK(done.reason->verb == std::string_view(reads ? "read" : "join"));
  CHECK(calls == 2);
  CHECK(bench.fallbacks() == 1);
  // No marks are left of the attempt: both are as one call leaves them.
  CHECK(bench.client.read(x) == Floats{10});
  CHECK(bench.client.read(other) == Floats{8});
  CHECK_FALSE(bench.device.any_recording());
}

TEST_CASE("an attempt that is given up marks nothing, even where the second call does not write "
          "[I22]",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  const CaptureOrRun done = bench.client.capture_or_run([&](Client& client) {
    if (client.is_capturing()) client.fill(x, 1.0f);
    (void)client.read(x);
  });
  CHECK_FALSE(done);
  CHECK(bench.client.check({x}) == Health::clean);
  CHECK(bench.client.read(x) == Floats{5});
}

TEST_CASE("what the function itself throws is thrown on, and nothing runs instead [N7]",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  int calls = 0;
  CHECK_THROWS_AS(bench.client.capture_or_run([&](Client& client) {
    ++calls;
    client.fill(x, 1.0f);
    throw std::logic_error("the caller's own");
  }),
                  std::logic_error);
  CHECK(calls == 1);
  CHECK(bench.fallbacks() == 0);
  CHECK_FALSE(bench.device.any_recording());
  CHECK(bench.client.read(x) == Floats{5});
}

TEST_CASE("a failure of the second call is that of the step", "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({5});
  CHECK(code_of([&] {
          (void)bench.client.capture_or_run([&](Client& client) {
            (void)client.read(x);
            client.write(x, Floats{1, 2});
          });
        }) == Errc::size_mismatch);
  CHECK(bench.fallbacks() == 1);
}

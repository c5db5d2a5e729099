// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using test::add_one;
using Floats = std::vector<float>;

namespace {

/// What a read of `x` fails with; empty if it succeeds.
std::optional<Failure> failure_of(const Client& client, const Array<float>& x) {
  try {
    (void)client.read(x);
  } catch (const Failure& failure) {
    return failure;
  }
  return std::nullopt;
}

Errc code_of(const Client& client, const Array<float>& x) {
  const auto failure = failure_of(client, x);
  return failure ? failure->errc() : Errc{};
}

struct Payload {
  int code;
  std::string what;
  friend bool operator==(const Payload&, const Payload&) = default;
};

/// A kernel whose body throws what `make` answers.
template <class F>
Kernel<void(Out<float>)> thrower(F make) {
  return Kernel<void(Out<float>)>{"thrower", [make](const Block&, Out<float>) { throw make(); }};
}

struct Bench {
  explicit Bench(std::uint32_t workers = 1) {
    DeviceOptions options;
    options.workers = workers;
    device = runtime.open("cpu:0", options);
    client = device.client();
  }
  Runtime runtime;
  Device device;
  Client client;
};

}  // namespace

TEST_CASE("a throwing kernel fails its output with its message and the device goes on [B13] [B14]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 2u));
  Client& client = bench.client;
  const auto spy = std::make_shared<int>(0);
  const auto out = client.empty<float>(1);
  {
    const Kernel boom{"boom",
                      [spy](const Block&, Out<float>) { throw std::runtime_error("boom"); }};
    client.launch(boom, 1, out);
    const auto failure = failure_of(client, out);
    REQUIRE(failure);
    CHECK(failure->errc() == Errc::kernel_failed);
    CHECK(failure->record().root().message == "boom");
    CHECK(failure->record().root().node == "boom");
    CHECK(failure->record().root().verb == "launch");
  }
  client.fill(out, 0.0f);
  CHECK(client.read(out) == Floats{0});
  CHECK(bench.device.statistics().failed == 1);
}

TEST_CASE("what a kernel throws is kept whole [B15] [B16] [B17] [B18] [B19] [B20] [B21]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto out = client.empty<float>(1);
  const auto root_of = [&](const auto& kernel) {
    client.launch(kernel, 1, out);
    const auto failure = failure_of(client, out);
    REQUIRE(failure);
    return failure->record().root();
  };
  const auto formatted =
      root_of(thrower([] { return std::runtime_error("value " + std::to_string(99)); }));
  CHECK(formatted.message == "value 99");

  const auto object = root_of(thrower([] { return Payload{7, "kaboom"}; }));
  CHECK(object.message.empty());
  REQUIRE(object.exception);
  try {
    std::rethrow_exception(object.exception);
  } catch (const Payload& payload) {
    CHECK(payload == Payload{7, "kaboom"});
  }
  const auto number = root_of(thrower([] { return 42; }));
  CHECK(number.message.empty());
  CHECK_THROWS_AS(std::rethrow_exception(number.exception), int);

  const auto index = root_of(
      Kernel<void(Out<float>)>{"at", [](const Block&, Out<float> x) { x[0] = Floats(2).at(5); }});
  CHECK(index.message.find("out_of_range") == std::string::npos);
  CHECK_THROWS_AS(std::rethrow_exception(index.exception), std::out_of_range);
  CHECK_FALSE(index.message.empty());

  const auto unwrap = root_of(Kernel<void(Out<float>)>{
      "value", [](const Block&, Out<float> x) { x[0] = std::optional<float>{}.value(); }});
  CHECK(unwrap.message.find("optional") != std::string::npos);
}

TEST_CASE("each failing call carries its own message and a third one succeeds [B22] [B23] [B24]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto a = client.empty<float>(1);
  const auto b = client.empty<float>(1);
  const auto c = client.empty<float>(1);
  client.launch(thrower([] { return std::runtime_error("first"); }), 1, a);
  client.launch(thrower([] { return std::runtime_error("second"); }), 1, b);
  client.fill(c, 3.0f);
  CHECK(failure_of(client, a)->record().root().message == "first");
  CHECK(failure_of(client, b)->record().root().message == "second");
  CHECK(client.read(c) == Floats{3});
}

TEST_CASE("a call on a closed device says so and carries no exception [B25] [B26] [I33]",
          "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({1});
  bench.device.drain();
  const auto failure = failure_of(bench.client, x);
  REQUIRE(failure);
  CHECK(failure->errc() == Errc::closed);
  CHECK_FALSE(failure->record().exception);
  std::ostringstream text;
  text << failure->record();
  CHECK(text.str().find("closed") != std::string::npos);
  CHECK(text.str().find("read") != std::string::npos);
}

TEST_CASE("bytes that nothing wrote do not read [I23] [I21]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.empty<float>(8);
  CHECK(code_of(client, x) == Errc::unwritten);
  client.fill(x.slice(0, 4), 1.0f);
  CHECK(client.read(x.slice(0, 4)) == Floats(4, 1.0f));
  CHECK(code_of(client, x) == Errc::unwritten);
  const auto y = client.zeros<float>(8);
  client.launch(add_one, 1, x, y);
  const auto failure = failure_of(client, y);
  REQUIRE(failure);
  CHECK(failure->errc() == Errc::unwritten);
}

TEST_CASE("reused memory counts as unwritten again [I23]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  for (int i = 0; i < 4; ++i) {
    const auto x = client.empty<float>(1024);
    CHECK(code_of(client, x) == Errc::unwritten);
    client.fill(x, 9.0f);
    CHECK(client.read(x).back() == 9.0f);
  }
}

TEST_CASE("a launch whose input carries a failure is skipped and names the root [B145] [B139]",
          "[runtime]") {
  Bench bench(GENERATE(0u, 1u, 2u));
  Client& client = bench.client;
  const auto a = client.create<float>({1});
  const auto b = client.empty<float>(1);
  const auto c = client.empty<float>(1);
  const auto d = client.create<float>({5});
  client.launch(test::fail, 1, a, b);
  client.launch(add_one, 1, b, c);
  client.launch(test::mul_two, 1, c, d);
  const auto failure = failure_of(client, d);
  REQUIRE(failure);
  CHECK(failure->errc() == Errc::kernel_failed);
  CHECK(failure->record().root().message == "boom");
  const FailureRecord* newest = failure->record().cause.get();
  REQUIRE(newest != nullptr);
  CHECK(newest->node == "mul_two");
  REQUIRE(newest->cause);
  CHECK(newest->cause->node == "add_one");
  CHECK(failure_of(client, b)->record().root().id == failure->record().root().id);
  CHECK(client.read(a) == Floats{1});
}

TEST_CASE("a partial rewrite clears just its bytes [B146] [N4] [I22]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto a = client.zeros<float>(16);
  const auto x = client.empty<float>(16);
  client.launch(test::fail, 1, a, x);
  CHECK(code_of(client, x) == Errc::kernel_failed);
  client.write(x.slice(4, 4), Floats(4, 2.0f));
  CHECK(client.read(x.slice(4, 4)) == Floats(4, 2.0f));
  CHECK(code_of(client, x.slice(3, 5)) == Errc::kernel_failed);
  CHECK(code_of(client, x.slice(4, 5)) == Errc::kernel_failed);
  client.fill(x, 1.0f);
  CHECK(client.read(x) == Floats(16, 1.0f));
}

TEST_CASE("a stream's failure leaves its neighbours on one backend stream alone [B150] [B153]",
          "[runtime]") {
  Runtime runtime;
  DeviceOptions options;
  options.streams = 1;
  Device device = runtime.open("cpu:0", options);
  Client one = device.client();
  Client two = device.client();
  const auto in = one.create<float>({1});
  const auto bad = one.empty<float>(1);
  const auto good = two.create<float>({7});
  one.launch(test::fail, 1, in, bad);
  two.flush();
  CHECK(two.read(good) == Floats{7});
  CHECK(code_of(two, bad) == Errc::kernel_failed);
}

TEST_CASE("reading a failure from another stream twice fails twice [B151] [B152] [B158]",
          "[runtime]") {
  Bench bench;
  Client other = bench.device.client();
  const auto in = bench.client.create<float>({1});
  const auto theirs = other.empty<float>(1);
  bench.client.launch(test::fail, 1, in, theirs);
  const auto first = failure_of(other, theirs);
  const auto second = failure_of(other, theirs);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->record().root().id == second->record().root().id);
  CHECK(other.check({theirs}) == Health::failed);
  CHECK(other.failure(theirs)->root().id == first->record().root().id);
  CHECK(other.check({in}) == Health::clean);
}

TEST_CASE("a host write from another stream comes after the queued fill [B154]", "[runtime]") {
  Bench bench(2);
  Client other = bench.device.client();
  const auto x = bench.client.empty<float>(256);
  for (int i = 0; i < 20; ++i) {
    bench.client.fill(x, 1.0f);
    other.write(x, Floats(256, 9.0f));
    CHECK(bench.client.read(x) == Floats(256, 9.0f));
  }
}

TEST_CASE("a launch that the device refuses taints what it would have written alone [B155] [I20]",
          "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({1});
  const auto out = client.create<float>({2});
  client.launch(add_one, Grid{Dim3{1, 1, 1}, Dim3{0, 1, 1}}, in, out);
  CHECK(code_of(client, out) == Errc::invalid_argument);
  CHECK(client.read(in) == Floats{1});
  // Nothing ran, so the old bytes may be had back on request.
  client.restore({out});
  CHECK(client.read(out) == Floats{2});
}

TEST_CASE("a host write or a relaunch recovers what failed [B156]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto in = client.create<float>({2, 2, 2, 2});
  const auto out = client.empty<float>(4);
  client.launch(test::fail, 1, in, out);
  CHECK(code_of(client, out) == Errc::kernel_failed);
  client.write(out, Floats(4, 42.0f));
  CHECK(client.read(out) == Floats(4, 42.0f));
  client.launch(test::fail, 1, in, out);
  client.launch(add_one, 1, in, out);
  CHECK(client.read(out) == Floats(4, 3.0f));
}

TEST_CASE("an in-place launch that fails taints its buffer [B157]", "[runtime]") {
  Bench bench;
  const auto x = bench.client.create<float>({1});
  bench.client.launch(test::fail, 1, x, x);
  CHECK(code_of(bench.client, x) == Errc::kernel_failed);
  bench.client.restore({x});  // It ran: its bytes may be torn, and stay so.
  CHECK(code_of(bench.client, x) == Errc::kernel_failed);
}

TEST_CASE("updates need nothing written and clear nothing [I22]", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.empty<float>(4);
  client.launch(test::poke, 1, x, 1u, 5.0f);
  CHECK(code_of(client, x.slice(1, 1)) == Errc::unwritten);
  const auto cache = client.zeros<float>(4);
  client.launch(test::poke, 1, cache, 2u, 5.0f);
  CHECK(client.read(cache) == Floats{0, 0, 5, 0});
}

TEST_CASE("commands behind a failure that is not known yet are judged as if it had been [I20]",
          "[runtime]") {
  // The failing kernel is held open until everything behind it has been accepted.
  test::Gate gate;
  Bench bench(2);
  Client& client = bench.client;
  Client other = bench.device.client();
  const Kernel late_failure{"late_failure", [&gate](const Block&, In<float>, Out<float>) {
                              gate.pass();
                              throw std::runtime_error("late");
                            }};
  const auto in = client.create<float>({1});
  const auto x = client.create<float>({2});
  const auto y = client.create<float>({3});
  const auto z = client.create<float>({4});
  const auto w = client.create<float>({5});
  client.synchronize();
  client.launch(late_failure, 1, in, x);
  other.launch(add_one, 1, x, y);   // will be skipped
  other.launch(add_one, 1, y, w);   // and so will this
  other.launch(add_one, 1, in, z);  // does not depend on it
  client.write(x, Floats{8});       // x is written after all
  other.launch(add_one, 1, x, w);   // w too
  auto skipped = other.async_read(y);
  other.flush();
  gate.wait_for_arrivals();
  CHECK(client.check({y}) == Health::pending);
  gate.open();
  try {
    (void)skipped.get();
    FAIL("a read behind a failure delivered bytes");
  } catch (const Failure& failure) {
    CHECK(failure.record().root().message == "late");
  }
  CHECK(client.read(x) == Floats{8});
  CHECK(client.read(w) == Floats{9});
  CHECK(client.read(z) == Floats{2});
  CHECK(code_of(client, y) == Errc::kernel_failed);
  CHECK(bench.device.statistics().skipped == 4);  // two launches and both reads
  client.restore({y});                            // the skipped launch never touched it
  CHECK(client.read(y) == Floats{3});
}

TEST_CASE("the error sink hears of each failure and each skip once, on the courier [I2]",
          "[runtime]") {
  std::atomic<int> failures{0};
  std::atomic<int> skips{0};
  std::atomic<bool> elsewhere{false};
  RuntimeOptions options;
  options.error_sink = [&](const FailureNotice& notice) {
    ++(notice.skipped ? skips : failures);
    if (this_thread_role() != ThreadRole::courier) elsewhere = true;
  };
  {
    Runtime runtime(options);
    Client client = runtime.open("cpu:0").client();
    const auto in = client.create<float>({1});
    const auto x = client.empty<float>(1);
    client.launch(test::fail, 1, in, x);
    client.launch(add_one, 1, x, x);
    client.synchronize();
  }
  CHECK(failures == 1);
  CHECK(skips == 1);
  CHECK_FALSE(elsewhere);
}

TEST_CASE("a host call that throws fails the bytes it may have written", "[runtime]") {
  Bench bench;
  Client& client = bench.client;
  const auto x = client.create<float>({1});
  ByteSets sets;
  sets.may_write.push_back(x);
  client.host_call(sets, [] { throw std::runtime_error("host"); });
  const auto failure = failure_of(client, x);
  REQUIRE(failure);
  CHECK(failure->record().root().verb == "host_call");
  CHECK(failure->record().root().message == "host");
}

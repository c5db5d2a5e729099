// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/gate.hpp>
#include <support/host_memory.hpp>

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

struct Payload {
  int code;
  std::string what;
};

/// The failure of a host call that throws as `body` does.
FailurePtr failure_of(std::function<void()> body) {
  CpuRig rig(small_cpu(1));
  TestWork& work = rig.call(0, std::move(body));
  rig.notice.wait_for_failures(1);
  FailurePtr failure = work.failure;
  REQUIRE(failure);
  CHECK(failure->code == Errc::kernel_failed);
  CHECK(failure->verb == "host_call");
  REQUIRE(failure->exception);
  rig->resume(0);
  TestWork& next = rig.call(0, [] {});
  rig.wait(next);
  CHECK(next.successes == 1);
  return failure;
}

}  // namespace

TEST_CASE("what a command threw is in its failure as text", "[device][cpu][B13][B15]") {
  auto spy = std::make_shared<int>(0);
  std::weak_ptr<int> dropped = spy;
  const FailurePtr boom = failure_of([spy = std::move(spy)] { throw std::runtime_error("boom"); });
  CHECK(boom->message == "boom");
  CHECK(dropped.expired());
  CHECK(failure_of([] { throw std::runtime_error("value " + std::to_string(99)); })->message ==
        "value 99");
}

TEST_CASE("a payload without a text comes back as the object it was", "[device][cpu][B16][B17]") {
  const FailurePtr object = failure_of([] { throw Payload{7, "kaboom"}; });
  CHECK(object->message.empty());
  const Payload* first = nullptr;
  for (int i = 0; i < 2; ++i) {
    try {
      std::rethrow_exception(object->exception);
    } catch (const Payload& payload) {
      CHECK(payload.code == 7);
      CHECK(payload.what == "kaboom");
      if (!first) first = &payload;
      CHECK(first == &payload);
    }
  }
  const FailurePtr number = failure_of([] { throw 42; });
  CHECK(number->message.empty());
  CHECK_THROWS_AS(std::rethrow_exception(number->exception), int);
}

TEST_CASE("errors of the standard library are named in the text", "[device][cpu][B18][B19]") {
  const FailurePtr range = failure_of([] {
    const std::vector<int> two(2);
    (void)two.at(5);
  });
  CHECK(range->message.find("5") != std::string::npos);
  CHECK(range->message.find("2") != std::string::npos);
  const FailurePtr unwrap = failure_of([] { (void)std::optional<int>{}.value(); });
  CHECK(unwrap->message.find("optional") != std::string::npos);
}

TEST_CASE("a failing kernel is named", "[device][cpu][B13]") {
  CpuRig rig(small_cpu(1));
  const Kernel fails{"fails", [](Block, Update<int>) { throw std::runtime_error("no"); }};
  std::vector<int> none;
  TestWork& work = rig.work();
  work.launch(fails, 1, none);
  rig.submit(0, work);
  rig.notice.wait_for_failures(1);
  CHECK(work.failure->node == "fails");
  CHECK(work.failure->verb == "launch");
  CHECK(work.failure->id != 0);
  rig->resume(0);
}

TEST_CASE("a payload survives when there is no memory for its text", "[device][cpu]") {
  CpuRig rig(small_cpu(0));
  std::optional<HostMemoryFault> fault;
  const std::string long_text(200, 'x');
  TestWork& work = rig.work();
  work.call([&] {
    fault.emplace(1, HostMemoryFault::Flavour::once);
    throw Payload{1, ""};  // The exception itself has a reserve; the verb's text has none.
  });
  const std::string verb(verb_of(work.command));
  rig.enqueue(0, work);
  rig->kick(Backend::no_stream);
  fault.reset();
  REQUIRE(work.failure);
  CHECK((work.failure->exception || work.failure->code == Errc::out_of_memory));
  rig->resume(0);
}

TEST_CASE("a failure holds its stream until it is resumed", "[device][cpu][threads]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 2u);
  CAPTURE(workers);
  CpuRig rig(small_cpu(workers));
  std::atomic<int> ran{0};
  TestWork& before = rig.work();
  TestWork& fails = rig.work();
  TestWork& skipped = rig.work();
  TestWork& after = rig.work();
  before.call([&] { ++ran; });
  fails.call([] { throw std::runtime_error("no"); });
  skipped.call([&] { ran += 100; });
  after.call([&] { ++ran; });
  for (TestWork* work : {&before, &fails, &skipped, &after}) rig.enqueue(0, *work);
  // Another stream waits for the failed command: it must not start before the verdict either.
  TestWork& elsewhere = rig.work();
  elsewhere.wait_for(fails);
  elsewhere.call([&] { ran += 10; });
  rig.enqueue(1, elsewhere);
  // A third one goes on.
  TestWork& unrelated = rig.work();
  rig.enqueue(2, unrelated);
  rig->kick(Backend::no_stream);
  rig.notice.wait_for_failures(1);
  rig.wait(unrelated);
  CHECK(rig.notice.failures() == std::vector<Work*>{&fails});
  CHECK(rig->finished(0) == 1);
  CHECK(rig->finished(1) == 0);
  CHECK(ran == 1);
  skipped.skip = true;
  rig->resume(0);
  rig.wait(after);
  rig.wait(elsewhere);
  CHECK(ran == 12);
  CHECK(before.successes == 1);
  CHECK(fails.successes == 0);
  CHECK(skipped.successes == 0);
  CHECK(after.successes == 1);
  CHECK(rig->finished(0) == 4);
  CHECK(rig.notice.failures().size() == 1);
}

TEST_CASE("a stream may be resumed from within the notice of a failure", "[device][cpu]") {
  CpuRig rig(small_cpu(0));
  rig.notice.on_failed = [&](Work& work) { rig->resume(work.stream); };
  int ran = 0;
  TestWork& fails = rig.work();
  fails.call([] { throw 1; });
  rig.enqueue(0, fails);
  TestWork& after = rig.work();
  after.call([&] { ++ran; });
  rig.enqueue(0, after);
  rig->kick(Backend::no_stream);
  CHECK(ran == 1);
  CHECK(rig->finished(0) == 2);
}

TEST_CASE("a skipped command passes in order behind its waits", "[device][cpu][threads][I5]") {
  CpuRig rig(small_cpu(2));
  Gate gate;
  TestWork& first = rig.call(0, [&] { gate.pass(); });
  TestWork& skipped = rig.work();
  skipped.skip = true;
  skipped.wait_for(first);
  skipped.call([] { FAIL("it ran"); });
  rig.submit(1, skipped);
  gate.wait_for_arrivals();
  rig.wait(rig.call(2, [] {}));
  CHECK(rig->finished(1) == 0);
  gate.open();
  rig.wait(skipped);
  CHECK(skipped.successes == 0);
}

TEST_CASE("failures one after another each carry their own text", "[device][cpu][B22]") {
  CpuRig rig(small_cpu(1));
  for (const char* text : {"first", "second"}) {
    const std::size_t before = rig.notice.failures().size();
    TestWork& work = rig.call(0, [text] { throw std::runtime_error(text); });
    rig.notice.wait_for_failures(before + 1);
    CHECK(work.failure->message == text);
    rig->resume(0);
  }
  TestWork& third = rig.call(0, [] {});
  rig.wait(third);
  CHECK(third.successes == 1);
}

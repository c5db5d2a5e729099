// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/gate.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

/// Done once a flag is set.
class UntilFlag final : public HelpUntil {
public:
  bool done() noexcept override { return flag.load(); }
  std::atomic<bool> flag{false};
};

struct Ran {
  std::thread::id thread;
  ThreadRole role = ThreadRole::user;
};

std::function<void()> note(Ran& ran) {
  return [&ran] { ran = {std::this_thread::get_id(), this_thread_role()}; };
}

}  // namespace

TEST_CASE("a helper runs its stream on its own thread as a worker", "[device][cpu][help]") {
  CpuRig rig(small_cpu(1));
  Ran ran;
  TestWork& work = rig.work();
  work.call(note(ran));
  rig.enqueue(3, work);
  rig->kick(3);
  UntilFlag until;
  rig->help(3, until);
  CHECK(rig->finished(3) == 1);
  CHECK(work.successes == 1);
  CHECK(ran.thread == std::this_thread::get_id());
  CHECK(ran.role == ThreadRole::worker);
  CHECK(this_thread_role() == ThreadRole::user);
}

TEST_CASE("a helper may come before the kick", "[device][cpu][help]") {
  CpuRig rig(small_cpu(1));
  Ran ran;
  TestWork& work = rig.work();
  work.call(note(ran));
  rig.enqueue(0, work);
  UntilFlag until;
  rig->help(0, until);
  CHECK(ran.thread == std::this_thread::get_id());
  rig->kick(0);
  rig->kick(Backend::no_stream);
  CHECK(rig->finished(0) == 1);
}

TEST_CASE("the stream of a helper wakes no worker", "[device][cpu][help][threads][D3]") {
  WatchedHost host;
  CpuRig rig(small_cpu(2), host);
  host.wait_for_sleepers(2);
  for (int i = 0; i < 20; ++i) {
    TestWork& work = rig.work();
    rig.enqueue(0, work);
    rig->kick(0);
    UntilFlag until;
    rig->help(0, until);
    CHECK(rig->finished(0) == work.position);
  }
  CHECK(host.wakes() == 0);
}

TEST_CASE("a stream left for a helper that never came is kicked with the next kick",
          "[device][cpu][help][threads]") {
  CpuRig rig(small_cpu(1));
  TestWork& left = rig.work();
  rig.enqueue(0, left);
  rig->kick(0);
  TestWork& next = rig.work();
  rig.enqueue(1, next);
  rig->kick(Backend::no_stream);
  rig.wait(left);
  rig.wait(next);
  CHECK(rig->finished(0) == 1);
}

TEST_CASE("a helper leaves after the command that made it done and the next kick starts the rest",
          "[device][cpu][help][threads]") {
  CpuRig rig(small_cpu(1));
  UntilFlag until;
  Ran first;
  Ran second;
  TestWork& a = rig.work();
  a.call([&] {
    note(first)();
    until.flag = true;
  });
  TestWork& b = rig.work();
  b.call(note(second));
  rig.enqueue(0, a);
  rig.enqueue(0, b);
  rig->kick(0);
  rig->help(0, until);
  CHECK(first.thread == std::this_thread::get_id());
  rig->kick(Backend::no_stream);
  rig.wait(b);
  CHECK(second.thread != std::this_thread::get_id());
  CHECK(second.role == ThreadRole::worker);
}

TEST_CASE("a helper that is done already still runs one command or none and loses nothing",
          "[device][cpu][help][threads]") {
  CpuRig rig(small_cpu(1));
  UntilFlag until;
  until.flag = true;
  TestWork& a = rig.work();
  TestWork& b = rig.work();
  rig.enqueue(0, a);
  rig.enqueue(0, b);
  rig->help(0, until);
  CHECK(rig->finished(0) <= 1);
  rig->kick(Backend::no_stream);
  rig.wait(b);
}

TEST_CASE("nobody helps a stream that another thread runs", "[device][cpu][help][threads]") {
  CpuRig rig(small_cpu(1));
  Gate gate;
  rig.call(0, [&] { gate.pass(); });
  Ran ran;
  TestWork& next = rig.call(0, note(ran));
  gate.wait_for_arrivals();
  UntilFlag until;
  rig->help(0, until);
  CHECK(rig->finished(0) == 0);
  gate.open();
  rig.wait(next);
  CHECK(ran.thread != std::this_thread::get_id());
}

TEST_CASE("a helper leaves a stream that waits for another and a worker goes on",
          "[device][cpu][help][threads][I5]") {
  CpuRig rig(small_cpu(1));
  Gate gate;
  TestWork& first = rig.call(1, [&] { gate.pass(); });
  Ran ran;
  TestWork& waits = rig.work();
  waits.call(note(ran));
  waits.wait_for(first);
  rig.enqueue(0, waits);
  rig->kick(0);
  gate.wait_for_arrivals();
  UntilFlag until;
  rig->help(0, until);
  CHECK(rig->finished(0) == 0);
  gate.open();
  rig.wait(waits);
  CHECK(ran.thread != std::this_thread::get_id());
}

TEST_CASE("a failure under a helper holds the stream and lets the helper go",
          "[device][cpu][help]") {
  CpuRig rig(small_cpu(1));
  TestWork& fails = rig.work();
  fails.call([] { throw std::runtime_error("no"); });
  TestWork& after = rig.work();
  rig.enqueue(0, fails);
  rig.enqueue(0, after);
  rig->kick(0);
  UntilFlag until;
  rig->help(0, until);
  CHECK(rig.notice.failures() == std::vector<Work*>{&fails});
  CHECK(rig->finished(0) == 0);
  rig->help(0, until);
  CHECK(rig->finished(0) == 0);
  rig->resume(0);
  rig.wait(after);
}

TEST_CASE("nobody helps when helping is off or there are no workers", "[device][cpu][help]") {
  CpuOptions options = small_cpu(GENERATE(0u, 1u));
  options.help_while_waiting = options.workers == 0;
  CpuRig rig(options);
  Gate gate;
  Ran ran;
  TestWork& work = rig.work();
  work.call(note(ran));
  rig.enqueue(0, work);
  UntilFlag until;
  rig->help(0, until);
  CHECK(rig->finished(0) == 0);
  rig->kick(0);  // So nothing is left for a helper either.
  rig.wait(work);
  CHECK(ran.role == ThreadRole::worker);
}

TEST_CASE("a helper counts as running while it helps", "[device][cpu][help][threads]") {
  using Rank = SpinBudget::Rank;
  CpuRig rig(small_cpu(1));
  const auto cpus = usable_cpus();
  // Fill the budget up to one CPU that the helper takes itself.
  std::vector<std::thread> others;
  Gate hold;
  for (std::uint32_t i = 0; i < cpus; ++i) {
    others.emplace_back([&] {
      SpinBudget::running(+1);
      hold.pass();
      SpinBudget::running(-1);
    });
  }
  hold.wait_for_arrivals(int(cpus));
  bool inside = true;
  TestWork& work = rig.work();
  work.call([&] { inside = SpinBudget::may_spin(Rank::caller); });
  rig.enqueue(0, work);
  UntilFlag until;
  rig->help(0, until);
  CHECK_FALSE(inside);
  hold.open();
  for (auto& other : others) other.join();
}

TEST_CASE("stop waits for helpers and names what one of them runs",
          "[device][cpu][help][threads][D5]") {
  TestNotice notice;
  const auto backend = make_cpu_backend(real_host(), small_cpu(1));
  REQUIRE(backend->start(notice));
  Gate gate;
  const Kernel endless{"endless", [&gate](Block, Update<int>) { gate.pass(); }};
  std::vector<int> none;
  TestWork work;
  work.launch(endless, 1, none);
  REQUIRE(backend->enqueue(0, work));
  backend->kick(0);
  UntilFlag until;
  std::thread helper([&] { backend->help(0, until); });
  gate.wait_for_arrivals();
  std::string stuck;
  CHECK_FALSE(backend->stop(real_host().now_ns(), stuck));
  CHECK(stuck == "endless");
  gate.open();
  CHECK(backend->stop(Host::never_ns, stuck));
  helper.join();
  // The gate is closed for good.
  TestWork late;
  REQUIRE(backend->enqueue(0, late));
  backend->help(0, until);
  CHECK(backend->finished(0) == 1);
}

TEST_CASE("helpers and workers never run one stream at once", "[device][cpu][help][threads][I4]") {
  CpuOptions options = small_cpu(2);
  options.worker_spin_ns = 20'000;
  CpuRig rig(options);
  constexpr int n = 3'000;
  std::atomic<bool> inside{false};
  std::atomic<int> overlaps{0};
  int next = 0;  // Plain: the stream orders its users.
  std::atomic<bool> over{false};
  std::vector<std::thread> helpers;
  for (int h = 0; h < 2; ++h) {
    helpers.emplace_back([&] {
      class OneCommand final : public HelpUntil {
      public:
        bool done() noexcept override { return true; }
      };
      while (!over) {
        OneCommand until;
        rig->help(0, until);
        std::this_thread::yield();
      }
    });
  }
  TestWork* last = nullptr;
  for (int i = 0; i < n; ++i) {
    last = &rig.work();
    last->call([&, i] {
      if (inside.exchange(true) || next != i) ++overlaps;
      ++next;
      inside = false;
    });
    rig.enqueue(0, *last);
    if (i % 3 == 0) rig->kick(i % 2 == 0 ? 0 : Backend::no_stream);
    if (i % 50 == 0) rig.wait(*last);
  }
  rig->kick(Backend::no_stream);
  rig.wait(*last);
  over = true;
  for (auto& helper : helpers) helper.join();
  CHECK(overlaps == 0);
  CHECK(next == n);
}

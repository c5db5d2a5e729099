// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/gate.hpp>
#include <support/hand_plan.hpp>
#include <support/host_memory.hpp>

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

const Kernel append{"append", [](Block, Update<int> log, Update<int> count, int value) {
                      log[std::size_t(count[0]++)] = value;
                    }};

}  // namespace

TEST_CASE("the CPU device says what it is", "[device][cpu]") {
  CpuOptions options = small_cpu(3);
  options.name = "cpu:7";
  options.streams = 5;
  const auto backend = make_cpu_backend(real_host(), options);
  const DeviceProperties& properties = backend->properties();
  CHECK(properties.name == "cpu:7");
  CHECK(properties.streams == 5);
  CHECK(properties.workers == 3);
  CHECK(properties.memory_bytes > 0);
  CHECK(properties.judges_execution);
  CHECK(properties.asynchronous);
  CHECK(backend->pages().page_size() == options.page_size);
  CHECK(default_cpu_workers() >= 1);
}

TEST_CASE("options out of bounds are refused by name", "[device][cpu]") {
  for (std::uint32_t streams : {0u, 32u}) {
    CpuOptions options = small_cpu(1);
    options.streams = streams;
    CHECK_THROWS_AS(make_cpu_backend(real_host(), options), Failure);
  }
  CHECK_THROWS_AS(make_cpu_backend(real_host(), small_cpu(255)), Failure);
}

TEST_CASE("commands of a stream run in order and each sees the one before", "[device][cpu][I4]") {
  const std::uint32_t workers = GENERATE(0u, 1u, 3u);
  CAPTURE(workers);
  constexpr int n = 2'000;
  std::vector<int> log(n);
  std::vector<int> count(1);
  CpuRig rig(small_cpu(workers));
  TestWork* last = nullptr;
  for (int i = 0; i < n; ++i) {
    last = &rig.work();
    last->launch(append, 1, log, count, i);
    if (i % 7 == 0) {
      rig.submit(2, *last);
    } else {
      rig.enqueue(2, *last);
    }
  }
  CHECK(last->position == n);
  CHECK(last->stream == 2);
  rig->kick(Backend::no_stream);
  rig.wait(*last);
  CHECK(count[0] == n);
  std::vector<int> expected(n);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(log == expected);
  CHECK(last->successes == 1);
}

TEST_CASE("different streams overlap", "[device][cpu][threads]") {
  // Each command waits until the other one runs.
  CpuRig rig(small_cpu(2));
  Gate both;
  const auto meet = [&] { both.pass(2); };
  TestWork& a = rig.work();
  TestWork& b = rig.work();
  a.call(meet);
  b.call(meet);
  rig.enqueue(0, a);
  rig.enqueue(1, b);
  rig->kick(Backend::no_stream);
  rig.wait(a);
  rig.wait(b);
  CHECK(both.arrivals() == 2);
}

TEST_CASE("a command waits for points of other streams", "[device][cpu][threads][I4][I5]") {
  CpuRig rig(small_cpu(3));
  Gate gate;
  int written = 0;
  int seen = -1;
  TestWork& early = rig.call(2, [] {});
  rig.call(0, [&] { gate.pass(); });
  TestWork& writer = rig.call(0, [&] { written = 42; });
  TestWork& reader = rig.work();
  reader.call([&] { seen = written; });
  reader.wait_for(early);
  reader.wait_for(writer);
  rig.submit(1, reader);
  // The third stream goes on meanwhile.
  rig.wait(rig.call(2, [] {}));
  gate.wait_for_arrivals();
  CHECK(rig->finished(1) == 0);
  CHECK(seen == -1);
  gate.open();
  rig.wait(reader);
  CHECK(seen == 42);
}

TEST_CASE("a wait on what has finished or on the own past costs no stop", "[device][cpu][I5]") {
  CpuRig rig(small_cpu(1));
  TestWork& other = rig.call(1, [] {});
  rig.wait(other);
  TestWork& before = rig.call(0, [] {});
  TestWork& after = rig.work();
  after.wait_for(other);
  after.wait_for(before);
  after.wait_for({{3, 0}});
  rig.submit(0, after);
  rig.wait(after);
  CHECK(after.successes == 1);
}

TEST_CASE("many streams may wait for one and one for many", "[device][cpu][threads][I5]") {
  CpuRig rig(small_cpu(2));
  Gate gate;
  rig.call(0, [&] { gate.pass(); });
  TestWork& first = rig.call(0, [] {});
  TestWork& second = rig.call(0, [] {});
  std::atomic<int> order{0};
  TestWork& all = rig.work();
  for (StreamIndex s = 1; s <= 6; ++s) {
    TestWork& waiter = rig.work();
    waiter.call([&] { ++order; });
    waiter.wait_for(s % 2 == 0 ? first : second);
    rig.submit(s, waiter);
    all.wait_for(waiter);
  }
  int at_last = 0;
  all.call([&] { at_last = order; });
  rig.submit(7, all);
  gate.wait_for_arrivals();
  CHECK(order == 0);
  gate.open();
  rig.wait(all);
  CHECK(at_last == 6);
}

TEST_CASE("success is told once before the stream moves on", "[device][cpu][threads]") {
  CpuRig rig(small_cpu(1));
  TestWork& work = rig.work();
  StreamPosition finished_then = 99;
  ThreadRole role_then = ThreadRole::user;
  work.then = [&] {
    finished_then = rig->finished(0);
    role_then = this_thread_role();
  };
  rig.submit(0, work);
  rig.wait(work);
  CHECK(work.successes == 1);
  CHECK(finished_then == 0);
  CHECK(role_then == ThreadRole::worker);
}

TEST_CASE("user code runs on workers and never on the device thread", "[device][cpu][I2][D4]") {
  CpuRig rig(small_cpu(2));
  std::set<std::thread::id> threads;
  ThreadRole role = ThreadRole::user;
  TestWork* last = nullptr;
  for (int i = 0; i < 20; ++i) {
    last = &rig.call(0, [&] {
      threads.insert(std::this_thread::get_id());
      role = this_thread_role();
    });
  }
  rig.wait(*last);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
  CHECK(role == ThreadRole::worker);
}

TEST_CASE("without workers kick runs everything that can run", "[device][cpu]") {
  CpuRig rig(small_cpu(0));
  CHECK_FALSE(rig->properties().asynchronous);
  std::vector<int> log;
  ThreadRole role = ThreadRole::user;
  TestWork& a = rig.work();
  TestWork& b = rig.work();
  TestWork& c = rig.work();
  a.call([&] {
    log.push_back(1);
    role = this_thread_role();
  });
  b.call([&] { log.push_back(2); });
  c.call([&] { log.push_back(3); });
  rig.enqueue(1, a);
  b.wait_for(a);
  rig.enqueue(0, b);
  c.wait_for(b);
  rig.enqueue(1, c);
  CHECK(log.empty());
  rig->kick(1);  // Nobody helps here, so no stream is left for a helper.
  CHECK(log == std::vector{1, 2, 3});
  CHECK(role == ThreadRole::worker);
  CHECK(this_thread_role() == ThreadRole::user);
  CHECK(rig->finished(1) == 2);
}

TEST_CASE("a kernel without a body for the CPU is refused", "[device][cpu]") {
  CpuRig rig(small_cpu(0));
  const KernelDefinition bodiless;
  TestWork& work = rig.work();
  work.command = command::Launch{&bodiless, Grid{1}, nullptr};
  const auto taken = rig->enqueue(0, work);
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == Errc::no_such_kernel);
  TestWork& next = rig.call(0, [] {});
  CHECK(next.position == 1);
}

TEST_CASE("copies writes and reads move bytes", "[device][cpu]") {
  CpuRig rig(small_cpu(1));
  std::vector<std::byte> device(64);
  std::vector<std::byte> in(16);
  std::vector<std::byte> out(16);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::byte(i + 1);
  const auto base = reinterpret_cast<std::uint64_t>(device.data());
  TestWork& write = rig.work();
  write.command = command::Write{base + 1, in.data(), 16};
  TestWork& copy = rig.work();
  copy.command = command::Copy{base + 33, base + 1, 16};
  TestWork& read = rig.work();
  read.command = command::Read{out.data(), base + 33, 16};
  TestWork& nothing = rig.work();
  nothing.command = command::Copy{0, 0, 0};
  TestWork& marker = rig.work();
  for (TestWork* work : {&write, &copy, &read, &nothing, &marker}) rig.submit(0, *work);
  rig.wait(marker);
  CHECK(out == in);
  CHECK(device[0] == std::byte{0});
  CHECK(device[17] == std::byte{0});
  CHECK(marker.successes == 1);
}

TEST_CASE("fills repeat patterns of every width at any address", "[device][cpu]") {
  const std::uint32_t width = GENERATE(1u, 2u, 4u, 8u);
  const std::uint64_t pattern = GENERATE(0x8877665544332211u, 0u, 0x2222222222222222u);
  CpuRig rig(small_cpu(0));
  for (std::uint64_t offset = 0; offset < 9; ++offset) {
    for (std::uint64_t count = 0; count < 20; ++count) {
      CAPTURE(width, pattern, offset, count);
      std::vector<std::uint8_t> memory(200, 0xee);
      std::vector<std::uint8_t> expected = memory;
      for (std::uint64_t i = 0; i < count * width; ++i) {
        expected[offset + i] = std::uint8_t(pattern >> (8 * (i % width)));
      }
      TestWork& fill = rig.work();
      fill.command = command::Fill{reinterpret_cast<std::uint64_t>(memory.data()) + offset,
                                   count * width, pattern, width};
      rig.submit(0, fill);
      REQUIRE(memory == expected);
    }
  }
}

TEST_CASE("arming tells once and only if there is something to come", "[device][cpu][threads]") {
  CpuRig rig(small_cpu(1));
  Gate gate;
  TestWork& a = rig.call(0, [&] { gate.pass(); });
  TestWork& b = rig.call(0, [] {});
  gate.wait_for_arrivals();
  CHECK(rig->arm(0, a.position));
  CHECK(rig->arm(0, b.position));
  CHECK_FALSE(rig->arm(1, 0));
  CHECK(rig.notice.progress() == 0);
  gate.open();
  rig.notice.wait_for_progress(2);
  CHECK(rig->finished(0) == 2);
  CHECK_FALSE(rig->arm(0, b.position));
  rig.wait(rig.call(0, [] {}));
  CHECK(rig.notice.progress() <= 3);
}

TEST_CASE("more armed positions than a stream lists are all told", "[device][cpu]") {
  CpuRig rig(small_cpu(0));
  constexpr int n = 30;
  for (int i = 1; i <= n; ++i) CHECK(rig->arm(0, StreamPosition(i)));
  for (int i = 1; i <= n; ++i) {
    CAPTURE(i);
    const int before = rig.notice.progress();
    rig.call(0, [] {});
    CHECK(rig.notice.progress() == before + 1);
  }
  const int before = rig.notice.progress();
  rig.call(0, [] {});
  CHECK(rig.notice.progress() == before);
}

TEST_CASE("no armed position is forgotten while the stream runs on", "[device][cpu][threads]") {
  CpuRig rig(small_cpu(1));
  for (int i = 0; i < 2'000; ++i) {
    TestWork& work = rig.work();
    rig.submit(0, work);
    rig.wait(work);  // Hangs if a notice is lost.
  }
  CHECK(rig->finished(0) == 2'000);
}

TEST_CASE("work for a running stream wakes nobody and a kick wakes at most one worker",
          "[device][cpu][threads][D3]") {
  WatchedHost host;
  CpuRig rig(small_cpu(3), host);
  host.wait_for_sleepers(3);
  Gate gate;
  CHECK(host.wakes() == 0);
  rig.call(0, [&] { gate.pass(); });
  gate.wait_for_arrivals();
  CHECK(host.wakes() == 1);
  for (int i = 0; i < 100; ++i) rig.call(0, [] {});
  CHECK(host.wakes() == 1);
  host.wait_for_sleepers(2);
  TestWork& marker = rig.work();
  rig.submit(1, marker);
  CHECK(host.wakes() == 2);
  rig.wait(marker);
  gate.open();
  rig.wait(rig.call(0, [] {}));
}

TEST_CASE("one kick for many streams gets all of them going", "[device][cpu][threads][D3]") {
  WatchedHost host;
  CpuRig rig(small_cpu(3), host);
  host.wait_for_sleepers(3);
  Gate all;
  for (StreamIndex s = 0; s < 3; ++s) {
    TestWork& work = rig.work();
    work.call([&] { all.pass(3); });
    rig.enqueue(s, work);
  }
  CHECK(host.wakes() == 0);
  rig->kick(Backend::no_stream);
  for (StreamIndex s = 0; s < 3; ++s) rig.wait(rig.call(s, [] {}));
  CHECK(all.arrivals() == 3);
}

TEST_CASE("idle workers sleep until there is something to run", "[device][cpu][threads][D3]") {
  WatchedHost host;
  CpuOptions options = small_cpu(2);
  options.worker_spin_ns = 100'000;
  CpuRig rig(options, host);
  for (int i = 0; i < 20; ++i) {
    host.wait_for_sleepers(2);
    rig.wait(rig.call(StreamIndex(i % 3), [] {}));
  }
  CHECK(host.wakes() == 20);
}

TEST_CASE("a stream does not keep a worker from streams that wait", "[device][cpu][threads]") {
  // With one worker, a stream that is never at rest: each command enqueues the next.
  CpuRig rig(small_cpu(1));
  std::atomic<bool> enough{false};
  bool fair = true;
  Gate ready;
  TestWork& first = rig.call(0, [&] { ready.pass(); });
  for (int i = 0; i < 200; ++i) {
    TestWork& work = rig.work();
    work.call([&, i] { fair = fair && (i < 150 || enough); });
    rig.enqueue(0, work);
  }
  rig.call(1, [&] { enough = true; });
  ready.wait_for_arrivals();
  ready.open();
  rig.wait(first);
  rig.wait(rig.call(0, [] {}));
  CHECK(fair);
}

TEST_CASE("enqueue and kick take no host memory", "[device][cpu]") {
  CpuRig rig(small_cpu(1));
  TestWork& work = rig.work();
  TestWork& other = rig.work();
  const auto before = host_allocations();
  rig.enqueue(0, work);
  rig.enqueue(1, other);
  rig->kick(Backend::no_stream);
  CHECK(host_allocations() == before);
  rig.wait(work);
  rig.wait(other);
}

TEST_CASE("a kernel that never returns makes stop say its name", "[device][cpu][threads][D5]") {
  const bool in_graph = GENERATE(false, true);
  CAPTURE(in_graph);
  TestNotice notice;
  const auto backend = make_cpu_backend(real_host(), small_cpu(2));
  REQUIRE(backend->start(notice));
  Gate gate;
  const Kernel endless{"endless", [&gate](Block, Update<int>) { gate.pass(); }};
  std::vector<int> none;
  TestWork work;
  work.launch(endless, 1, none);
  HandPlan nodes;
  nodes.add("first", {});
  nodes.add("node of endless", work.command);
  nodes.add("last", {});
  auto program = backend->lower({nodes, "graph"});
  REQUIRE(program);
  if (in_graph) work.command = command::RunGraph{program->get()};
  REQUIRE(backend->enqueue(0, work));
  backend->kick(Backend::no_stream);
  gate.wait_for_arrivals();
  std::string stuck;
  CHECK_FALSE(backend->stop(real_host().now_ns(), stuck));
  CHECK(stuck == (in_graph ? "node of endless" : "endless"));
  gate.open();
  CHECK(backend->stop(Host::never_ns, stuck));
}

TEST_CASE("a device whose second thread cannot start says so and leaves none", "[device][cpu]") {
  WatchedHost host;
  host.refuse_start(2);
  TestNotice notice;
  const auto backend = make_cpu_backend(host, small_cpu(3));
  const auto started = backend->start(notice);
  REQUIRE_FALSE(started);
  CHECK(started.error().code == Errc::refused);
  CHECK(started.error().native_code == 11);
  std::string stuck;
  CHECK(backend->stop(Host::never_ns, stuck));
}

TEST_CASE("stop gives up what is queued and is idempotent", "[device][cpu][threads][D5]") {
  TestNotice notice;
  const auto backend = make_cpu_backend(real_host(), small_cpu(1));
  REQUIRE(backend->start(notice));
  Gate gate;
  TestWork running;
  running.call([&] { gate.pass(); });
  TestWork queued[200];
  REQUIRE(backend->enqueue(0, running));
  for (TestWork& work : queued) REQUIRE(backend->enqueue(1, work));
  backend->kick(Backend::no_stream);
  std::string stuck;
  gate.wait_for_arrivals();
  CHECK_FALSE(backend->stop(0, stuck));
  gate.open();
  CHECK(backend->stop(Host::never_ns, stuck));
  CHECK(backend->stop(Host::never_ns, stuck));
  CHECK(running.successes == 1);
  CHECK(backend->finished(1) < 200);
}

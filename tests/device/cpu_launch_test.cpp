// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/gate.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

const Kernel count_blocks{"count_blocks",
                          [](Block block, Update<std::uint8_t> seen) { ++seen[block.linear()]; }};

}  // namespace

TEST_CASE("a grid runs each of its blocks once with its place in three dimensions",
          "[device][cpu]") {
  const Kernel note{"note", [](Block block, Update<std::uint32_t> at, Update<int> times) {
                      const auto i = std::size_t(block.linear());
                      at[i] = block.index.x + 100 * block.index.y + 10'000 * block.index.z;
                      ++times[i];
                      if (block.count != Dim3{4, 3, 2} || block.threads != Dim3{8, 2, 1}) {
                        throw std::runtime_error("wrong extents");
                      }
                    }};
  CpuRig rig(small_cpu(1));
  std::vector<std::uint32_t> at(24);
  std::vector<int> times(24);
  TestWork& work = rig.work();
  work.launch(note, Grid{{4, 3, 2}, {8, 2, 1}}, at, times);
  rig.submit(0, work);
  rig.wait(work);
  CHECK(times == std::vector<int>(24, 1));
  CHECK(at[0] == 0);
  CHECK(at[3] == 3);
  CHECK(at[4] == 100);
  CHECK(at[23] == 10'203);
}

TEST_CASE("a grid without blocks does nothing and succeeds", "[device][cpu]") {
  CpuRig rig(small_cpu(1));
  std::vector<std::uint8_t> seen(1);
  TestWork& work = rig.work();
  work.launch(count_blocks, Grid{Dim3{5, 0, 5}}, seen);
  rig.submit(0, work);
  rig.wait(work);
  CHECK(seen[0] == 0);
  CHECK(work.successes == 1);
}

TEST_CASE("a long launch is spread over idle workers", "[device][cpu][threads]") {
  WatchedHost host;
  host.leap(10'000'000);  // Each block seems to take long.
  CpuRig rig(small_cpu(2), host);
  host.wait_for_sleepers(2);
  Gate meeting;
  std::vector<std::uint8_t> seen(64);
  const Kernel meet{"meet", [&meeting](Block block, Update<std::uint8_t> blocks) {
                      ++blocks[block.linear()];
                      // The first is what is measured; two others meet.
                      if (block.index.x != 0) meeting.pass(2);
                    }};
  TestWork& work = rig.work();
  work.launch(meet, 64, seen);
  rig.submit(0, work);
  rig.wait(work);
  CHECK(seen == std::vector<std::uint8_t>(64, 1));
}

TEST_CASE("a spread launch runs each block once however its blocks fall",
          "[device][cpu][threads][I4]") {
  WatchedHost host;
  host.leap(1'000'000);
  CpuRig rig(small_cpu(3), host);
  std::vector<std::uint8_t> seen(1'000);
  std::vector<std::uint8_t> copy(seen.size());
  TestWork* last = nullptr;
  constexpr int rounds = 50;
  for (int i = 0; i < rounds; ++i) {
    TestWork& launch = rig.work();
    launch.launch(count_blocks, Grid{Dim3{10, 20, 5}}, seen);
    rig.enqueue(0, launch);
    last = &rig.work();
    last->command = command::Copy{reinterpret_cast<std::uint64_t>(copy.data()),
                                  reinterpret_cast<std::uint64_t>(seen.data()), seen.size()};
    rig.submit(0, *last);
  }
  rig.wait(*last);
  CHECK(copy == std::vector<std::uint8_t>(seen.size(), rounds));
}

TEST_CASE("a spread launch with a count runs its first blocks once", "[device][cpu][threads][I4]") {
  WatchedHost host;
  host.leap(1'000'000);
  CpuRig rig(small_cpu(3), host);
  for (const std::uint32_t count : {0u, 1u, 2u, 613u, 1'000u, 4'000'000'000u}) {
    std::vector<std::uint8_t> seen(1'000);
    TestWork& launch = rig.work();
    launch.launch(count_blocks, Grid{Dim3{10, 20, 5}}, seen);
    std::get<command::Launch>(launch.command).count = reinterpret_cast<std::uint64_t>(&count);
    rig.submit(0, launch);
    rig.wait(launch);
    std::vector<std::uint8_t> expected(1'000);
    std::fill_n(expected.begin(), std::min(count, 1'000u), 1);
    CHECK(seen == expected);
  }
}

TEST_CASE("two spread launches at once share the workers", "[device][cpu][threads]") {
  WatchedHost host;
  host.leap(1'000'000);
  CpuRig rig(small_cpu(3), host);
  std::vector<std::uint8_t> a(500);
  std::vector<std::uint8_t> b(500);
  constexpr int rounds = 50;
  for (int i = 0; i < rounds; ++i) {
    TestWork& first = rig.work();
    first.launch(count_blocks, 500, a);
    rig.submit(0, first);
    TestWork& second = rig.work();
    second.launch(count_blocks, 500, b);
    rig.submit(1, second);
    if (i % 5 == 0) rig.wait(second);
  }
  rig.wait(rig.call(0, [] {}));
  rig.wait(rig.call(1, [] {}));
  CHECK(a == std::vector<std::uint8_t>(500, rounds));
  CHECK(b == std::vector<std::uint8_t>(500, rounds));
}

TEST_CASE("a short launch stays on one thread and wakes nobody", "[device][cpu][threads]") {
  WatchedHost host;
  CpuOptions options = small_cpu(2);
  options.split_threshold_ns = Host::never_ns;
  CpuRig rig(options, host);
  host.wait_for_sleepers(2);
  std::set<std::thread::id> threads;
  const Kernel note{"note", [&threads](Block, Update<int>) {
                      threads.insert(std::this_thread::get_id());  // A race if two run.
                    }};
  std::vector<int> none;
  TestWork& work = rig.work();
  work.launch(note, 100, none);
  rig.submit(0, work);
  rig.wait(work);
  CHECK(threads.size() == 1);
  CHECK(host.wakes() <= 1);
}

TEST_CASE("a throwing block ends the launch once the others have stopped",
          "[device][cpu][threads]") {
  WatchedHost host;
  host.leap(10'000'000);
  const bool spread = GENERATE(false, true);
  CAPTURE(spread);
  CpuRig rig(small_cpu(spread ? 2 : 1), host);
  host.wait_for_sleepers(spread ? 2 : 1);
  Gate meeting;
  std::atomic<int> running{0};
  std::atomic<int> blocks{0};
  const Kernel fails{"fails", [&](Block block, Update<int>) {
                       ++running;
                       ++blocks;
                       if (block.index.x != 0) {
                         if (spread) meeting.pass(2);
                         --running;
                         throw std::runtime_error("block " + std::to_string(block.index.x));
                       }
                       --running;
                     }};
  std::vector<int> none;
  TestWork& work = rig.work();
  work.launch(fails, 1'000, none);
  rig.submit(0, work);
  rig.notice.wait_for_failures(1);
  CHECK(running == 0);
  CHECK(blocks == (spread ? 3 : 2));
  REQUIRE(work.failure);
  CHECK(work.failure->message.substr(0, 6) == "block ");
  CHECK(work.successes == 0);
  CHECK(rig->finished(0) == 0);
  rig->resume(0);
  rig.wait(work);
}

TEST_CASE("a spread launch has not finished while one of its blocks still runs",
          "[device][cpu][threads][I4]") {
  WatchedHost host;
  host.leap(10'000'000);
  CpuRig rig(small_cpu(3), host);
  host.wait_for_sleepers(3);
  constexpr int n = 40;
  Gate meeting;
  Gate hold;
  std::atomic<bool> held{false};
  std::atomic<bool> moved_on{false};
  std::atomic<bool> too_early{false};
  std::thread::id owner;
  const Kernel kernel{"kernel", [&](Block block, Update<int>) {
                        if (block.index.x == 0) {
                          owner = std::this_thread::get_id();
                          return;
                        }
                        meeting.pass(2);
                        // One of the two others at most: the third worker is needed below.
                        if (std::this_thread::get_id() != owner && !held.exchange(true)) {
                          hold.pass();
                          too_early = moved_on.load();
                        }
                      }};
  std::vector<int> none;
  TestWork& launch = rig.work();
  launch.launch(kernel, n, none);
  rig.submit(0, launch);
  TestWork& next = rig.call(0, [&] { moved_on = true; });
  hold.wait_for_arrivals();
  // Time for the others to run out of blocks: they are awake, and so is the worker of this.
  for (int i = 0; i < 200; ++i) rig.wait(rig.call(1, [] {}));
  CHECK(rig->finished(0) == 0);
  hold.open();
  rig.wait(next);
  CHECK_FALSE(too_early);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/gate.hpp>
#include <support/host_memory.hpp>

#include <catch2/catch.hpp>

#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

const Kernel append{"append", [](Block3, Update<int> log, Update<int> count, int value) {
                      log[std::size_t(count[0]++)] = value;
                    }};
const Kernel count_blocks{"count_blocks",
                          [](Block3 block, Update<std::uint8_t> seen) { ++seen[block.linear()]; }};

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

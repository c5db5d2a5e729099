// SPDX-License-Identifier: Apache-2.0
#include <pool_replay/replay.hpp>

#include <reprise/memory/error.hpp>

#include <catch2/catch.hpp>

#include <pool_replay/record.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace pool_replay;
using reprise::Errc;
using reprise::Failure;
using reprise::MemoryEvent;
using reprise::MemoryVerb;

namespace {

std::string complaint_about(const std::vector<MemoryEvent>& events) {
  try {
    (void)steps_of(events);
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::bad_format);
    return failure.record().message;
  }
  return {};
}

}  // namespace

TEST_CASE("a replay follows a trace to its end and counts what it takes", "[examples]") {
  const std::vector<MemoryEvent> events{
      {1, 1, MemoryVerb::map, 4096, 0},     {1, 1, MemoryVerb::allocate, 1000, 0},
      {2, 2, MemoryVerb::reuse, 300, 1024}, {3, 1, MemoryVerb::refuse, 1 << 20, 0},
      {4, 1, MemoryVerb::release, 1000, 0}, {5, 1, MemoryVerb::allocate, 700, 0},
      {6, 2, MemoryVerb::free, 300, 1024},  {7, 0, MemoryVerb::trim, 0, 0}};
  const Steps steps = steps_of(events);
  CHECK(steps.blocks == 3);
  CHECK(steps.pairs == 2);
  CHECK(steps.waited == 1);
  CHECK(steps.peak_live == 1300);
  CHECK(steps.live_at_end == 700);
  CHECK(steps.peak_reserved == 4096);
  const ReplayResult result =
      replay_on_pool(steps, {.page_size = 4096, .alignment = 256, .limit = 8192});
  CHECK(result.in_use == 700);
  CHECK(result.same_address == 3);
  CHECK(result.refused == 1);
  CHECK(result.peak_reserved == 4096);
  for (const ReplayResult& peer : replay_on_peers(steps)) {
    CHECK(peer.in_use == 700);
    CHECK(peer.peak_reserved >= 1300);
  }
}

TEST_CASE("a trace that cannot have happened is refused by line and value", "[examples]") {
  const MemoryEvent taken{1, 1, MemoryVerb::allocate, 256, 512};
  CHECK(complaint_about({taken, taken}) == "line 3: address is '512', where a block is live");
  CHECK(complaint_about({{1, 1, MemoryVerb::free, 256, 512}}) ==
        "line 2: address is '512', where no block is live");
  CHECK(complaint_about({taken, {1, 1, MemoryVerb::free, 255, 512}}) ==
        "line 3: bytes is '255', of a block of 256");
  CHECK(complaint_about({{1, 1, MemoryVerb::allocate, 0, 0}}) ==
        "line 2: bytes is '0', nothing is taken");
}

TEST_CASE("a recorded trace can be replayed", "[examples]") {
  const auto path = std::filesystem::temp_directory_path() / "reprise-replay-test.csv";
  record("cpu:0", path);
  std::ifstream file(path);
  const Steps steps = steps_of(reprise::read_csv(file));
  file.close();
  std::filesystem::remove(path);
  CHECK(steps.blocks > 1000);
  CHECK(replay_on_pool(steps, {}).in_use == steps.live_at_end);
  CHECK_THROWS_AS(record("cpu:0", "/proc/no/such/folder/trace.csv"), Failure);
}

// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/page_source.hpp>

#include <reprise/memory/pool.hpp>

#include <support/fake_pages.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#ifdef __SANITIZE_ADDRESS__
extern "C" int __asan_address_is_poisoned(const volatile void* address);
#endif

using namespace reprise;
using reprise::test::FakeProgress;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

unsigned char* at(std::uint64_t address) {
  return reinterpret_cast<unsigned char*>(static_cast<std::uintptr_t>(address));
}

/// The rights of the mapping that holds `address`, as "rw-p".
std::string rights(std::uint64_t address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    const std::size_t dash = line.find('-');
    const std::size_t space = line.find(' ');
    const auto begin = std::stoull(line.substr(0, dash), nullptr, 16);
    const auto end = std::stoull(line.substr(dash + 1, space - dash - 1), nullptr, 16);
    if (begin <= address && address < end) return line.substr(space + 1, 4);
  }
  return "";
}

}  // namespace

TEST_CASE("reserved addresses are accessible page by page as they are mapped", "[device][cpu]") {
  CpuPageSource source({.page_size = MiB, .address_space = 16 * MiB});
  CHECK(source.address_space() == 16 * MiB);
  CHECK(source.base() % MiB == 0);
  CHECK(rights(source.base()) == "---p");
  REQUIRE(source.map(2, 3));
  CHECK(rights(source.base() + 2 * MiB) == "rw-p");
  CHECK(rights(source.base() + 5 * MiB - 1) == "rw-p");
  CHECK(rights(source.base() + 2 * MiB - 1) == "---p");
  CHECK(rights(source.base() + 5 * MiB) == "---p");
  REQUIRE(source.unmap(3, 1));
  CHECK(rights(source.base() + 3 * MiB) == "---p");
  CHECK(rights(source.base() + 2 * MiB) == "rw-p");
}

TEST_CASE("a page that is mapped afresh reads as zero", "[device][cpu][B187]") {
  CpuPageSource source({.page_size = MiB, .address_space = 4 * MiB});
  REQUIRE(source.map(1, 1));
  unsigned char* const bytes = at(source.base() + MiB);
  CHECK(bytes[0] == 0);
  std::memset(bytes, 0xAB, MiB);
  REQUIRE(source.unmap(1, 1));
  REQUIRE(source.map(1, 1));
  CHECK(bytes[0] == 0);
  CHECK(bytes[MiB - 1] == 0);
}

TEST_CASE("by default the addresses are several times the memory of the machine", "[device][cpu]") {
  const CpuPageSource source;
  CHECK(source.page_size() == 2 * MiB);
  CHECK(source.address_space() >= 1024 * MiB);
  CHECK(source.address_space() % source.page_size() == 0);
}

TEST_CASE("a cpu page source refuses sizes it cannot serve", "[device][cpu]") {
  CHECK_THROWS_AS(CpuPageSource({.page_size = 100}), Failure);
  CHECK_THROWS_AS(CpuPageSource({.page_size = 512}), Failure);
  CHECK_THROWS_AS(CpuPageSource({.address_space = UINT64_MAX}), Failure);
}

TEST_CASE("a pool over host memory hands out bytes that can be written", "[device][cpu][I14]") {
  CpuPageSource source({.page_size = MiB, .address_space = 16 * MiB});
  Pool pool(source);
  FakeProgress progress;
  auto first = pool.allocate({.bytes = 3 * MiB}, progress);
  auto second = pool.allocate({.bytes = 1000}, progress);
  REQUIRE(first);
  REQUIRE(second);
  std::memset(at(first->block->address()), 1, 3 * MiB);
  std::memset(at(second->block->address()), 2, 1000);
  CHECK(at(first->block->address())[3 * MiB - 1] == 1);
  pool.release(first->block, {});
  CHECK(pool.trim(progress) == 3 * MiB);
  CHECK(at(second->block->address())[999] == 2);
  pool.release(second->block, {});
}

#ifdef __SANITIZE_ADDRESS__
TEST_CASE("stale access through the pool is a report under the address sanitizer",
          "[device][cpu][I16]") {
  CpuPageSource source({.page_size = MiB, .address_space = 16 * MiB});
  Pool pool(source);
  FakeProgress progress;
  auto grant = pool.allocate({.bytes = 1000}, progress);
  REQUIRE(grant);
  const unsigned char* const bytes = at(grant->block->address());
  const auto poisoned = [&](std::uint64_t offset) {
    return __asan_address_is_poisoned(bytes + offset) != 0;
  };
  CHECK_FALSE(poisoned(0));
  CHECK_FALSE(poisoned(999));
  CHECK(poisoned(1000));
  pool.release(grant->block, Frontier({1, 1}));
  CHECK_FALSE(poisoned(0));  // The device may still use it.
  progress.done[1] = 1;
  pool.collect(progress);
  CHECK(poisoned(0));
  grant = pool.allocate({.bytes = 10}, progress);
  REQUIRE(grant);
  CHECK_FALSE(poisoned(9));
  CHECK(poisoned(10));
  pool.release(grant->block, {});
}
#endif

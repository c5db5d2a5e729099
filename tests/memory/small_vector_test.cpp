// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/small_vector.hpp>

#include <support/host_memory.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <utility>
#include <vector>

using namespace reprise;
using reprise::test::host_allocations;
using reprise::test::HostMemoryFault;

namespace {

using Item = std::shared_ptr<int>;
using Small = SmallVector<Item, 2>;

bool same(const Small& small, const std::vector<Item>& items) {
  return std::equal(small.begin(), small.end(), items.begin(), items.end());
}

}  // namespace

TEST_CASE("A small vector needs no allocation for its first items or for room it had", "[memory]") {
  SmallVector<int, 2> numbers;
  const std::uint64_t start = host_allocations();
  numbers.push_back(1);
  numbers.push_back(2);
  SmallVector<int, 2> moved = std::move(numbers);
  const std::uint64_t inside = host_allocations();
  for (int i = 0; i < 10; ++i) moved.push_back(i);
  const std::uint64_t grown = host_allocations();
  moved.clear();
  for (int i = 0; i < 12; ++i) moved.push_back(i);
  const std::uint64_t again = host_allocations();
  CHECK(inside == start);
  CHECK(grown > inside);
  CHECK(again == grown);
  CHECK(numbers.empty());  // NOLINT: a moved-from small vector is empty.
}

TEST_CASE("An item of a small vector may be pushed into it while it grows", "[memory]") {
  Small small;
  small.push_back(std::make_shared<int>(7));
  for (int i = 0; i < 20; ++i) small.push_back(small[0]);
  CHECK(small.size() == 21);
  CHECK(small.back() == small[0]);
  CHECK(small[0].use_count() == 21);
}

TEST_CASE("A small vector does what a vector does", "[memory]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const auto below = [&engine](std::size_t n) { return static_cast<std::size_t>(engine() % n); };
  Small small;
  std::vector<Item> items;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t first = below(items.size() + 1);
    const std::size_t last = first + below(items.size() - first + 1);
    const auto from = items.begin() + static_cast<std::ptrdiff_t>(first);
    const auto to = items.begin() + static_cast<std::ptrdiff_t>(last);
    switch (below(5)) {
      case 0: {
        items.push_back(std::make_shared<int>(step));
        small.push_back(items.back());
        break;
      }
      case 1: {
        items.erase(from, to);
        small.erase(first, last);
        break;
      }
      case 2: {
        std::vector<Item> fresh(below(4));
        for (Item& item : fresh) item = std::make_shared<int>(step);
        items.insert(items.erase(from, to), fresh.begin(), fresh.end());
        small.splice(first, last, fresh.data(), fresh.size());
        break;
      }
      case 3: {
        const Small copy = small;
        small = copy;
        break;
      }
      default: {
        Small other = std::move(small);
        small = std::move(other);
        break;
      }
    }
    if (!same(small, items)) FAIL("they differ after step " << step);
    if (items.size() > 12) {
      items.clear();
      small.clear();
    }
  }
  small = Small();
  CHECK(std::all_of(items.begin(), items.end(), [](const Item& i) { return i.use_count() == 1; }));
}

TEST_CASE("A small vector that cannot grow stays as it was", "[memory][fault]") {
  Small small;
  std::vector<Item> items;
  for (int i = 0; i < 2; ++i) {
    items.push_back(std::make_shared<int>(i));
    small.push_back(items.back());
  }
  Item fresh[2] = {std::make_shared<int>(8), std::make_shared<int>(9)};
  int failed = 0;
  const auto fails = [&failed](auto&& change) {
    HostMemoryFault fault(1);
    try {
      change();
    } catch (const std::bad_alloc&) {
      ++failed;
    }
  };
  fails([&] { small.push_back(fresh[0]); });
  fails([&] { small.splice(1, 1, fresh, 2); });
  fails([&] { small.reserve(3); });
  CHECK(failed == 3);
  CHECK(same(small, items));
  CHECK(fresh[0]);
  CHECK(fresh[1]);
}

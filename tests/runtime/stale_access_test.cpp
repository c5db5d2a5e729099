// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "support/gate.hpp"
#include "support/kernels.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <iostream>

using namespace reprise;

#ifdef __SANITIZE_ADDRESS__
extern "C" int __asan_address_is_poisoned(const volatile void* address);

namespace {

struct Place {
  const std::uint8_t* at = nullptr;
  bool is_open(std::size_t offset) const { return __asan_address_is_poisoned(at + offset) == 0; }
};

}  // namespace
#endif

TEST_CASE("a kernel that reaches for memory which is nobody's any more is reported [I16] [I17]",
          "[runtime]") {
#ifndef __SANITIZE_ADDRESS__
  std::cout << "skipped: only the address sanitizer can tell\n";
  SUCCEED();
#else
  Runtime runtime;
  DeviceOptions options;
  options.workers = 2;
  Device device = runtime.open("cpu:0", options);
  Client client = device.client();
  Place place;
  const Kernel look{"look",
                    [&place](const Block&, Update<std::uint8_t> x) { place.at = x.data(); }};

  SECTION("bytes are open as long as somebody owns or uses them") {
    test::Gate gate;
    const Kernel wait{"wait", [&gate](const Block&, Update<std::uint8_t>) { gate.pass(); }};
    {
      const auto x = client.zeros<std::uint8_t>(1000);
      client.launch(look, 1, x);
      client.launch(wait, 1, x);
    }
    gate.wait_for_arrivals();
    CHECK(place.is_open(0));
    CHECK(place.is_open(999));
    CHECK_FALSE(place.is_open(1000));  // Padding belongs to nobody.
    gate.open();
    client.synchronize();
    (void)device.memory_report();
    CHECK_FALSE(place.is_open(0));
    CHECK_FALSE(place.is_open(999));
    const auto again = client.zeros<std::uint8_t>(10);
    client.launch(look, 1, again);
    client.synchronize();
    CHECK(place.is_open(9));
    CHECK_FALSE(place.is_open(10));
  }
  SECTION("a graph keeps what it touches open") {
    const auto out = client.zeros<std::uint8_t>(64);
    Graph graph = client.capture([&](Client& c) {
      const auto temporary = c.zeros<std::uint8_t>(64);
      c.launch(look, 1, temporary);
      c.copy(out, temporary);
    });
    graph.run();
    (void)device.trim();
    CHECK(place.is_open(63));
    graph = {};
    client.synchronize();
    (void)device.memory_report();
    CHECK_FALSE(place.is_open(0));
    CHECK_FALSE(place.is_open(63));
  }
#endif
}

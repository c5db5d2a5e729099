// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_cache.hpp>

#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"
#include "support/gate.hpp"
#include "support/kernels.hpp"
#include "support/slot_step.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace reprise;
using reprise::test::code_of;
using test::add_one;
using test::Bench;
using Floats = std::vector<float>;
using Told = std::vector<std::pair<GraphCacheEvent, std::string>>;

namespace {

constexpr auto capture_event = GraphCacheEvent::capture;
constexpr auto evict_event = GraphCacheEvent::evict;

/// A cache of graphs that fill `out` with the length of their key.
struct Lengths {
  explicit Lengths(const Client& client_, std::size_t capacity)
      : client(client_), out(client.zeros<float>(1)),
        cache(capacity, [this](GraphCacheEvent event, const std::string& key) {
          if (refuses == event) throw std::runtime_error("not now");
          told.emplace_back(event, key);
        }) {}

  Graph make(const std::string& key) const {
    return client.capture([&](Client& c) { c.fill(out, static_cast<float>(key.size())); });
  }
  Graph get(const std::string& key) {
    return cache.get(key, [&] { return make(key); });
  }
  float run(const std::string& key) {
    get(key).run();
    return client.read(out)[0];
  }

  const Client client;
  const Array<float> out;
  Told told;
  std::optional<GraphCacheEvent> refuses;
  GraphCache<std::string> cache;
};

}  // namespace

TEST_CASE("a cache captures a graph once per key and evicts what was not used for longest",
          "[runtime]") {
  Bench bench;
  Lengths lengths(bench.client, 2);
  CHECK(lengths.run("a") == 1);
  CHECK(lengths.run("bb") == 2);
  CHECK(lengths.run("a") == 1);
  CHECK(lengths.run("ccc") == 3);  // bb makes room, since a was used after it.
  CHECK(lengths.run("a") == 1);
  CHECK(lengths.run("bb") == 2);
  CHECK(lengths.run("ccc") == 3);
  CHECK(lengths.told == Told{{capture_event, "a"},
                             {capture_event, "bb"},
                             {capture_event, "ccc"},
                             {evict_event, "bb"},
                             {capture_event, "bb"},
                             {evict_event, "ccc"},
                             {capture_event, "ccc"},
                             {evict_event, "a"}});
  CHECK(lengths.cache.statistics().hits == 2);
  CHECK(lengths.cache.statistics().captures == 5);
  CHECK(lengths.cache.statistics().evictions == 3);
  CHECK(lengths.cache.size() == 2);
  CHECK(lengths.cache.capacity() == 2);
  CHECK(code_of([] { GraphCache<int>(0); }) == Errc::invalid_argument);
}

TEST_CASE("a capture or eviction that throws or is refused leaves a cache as it was", "[runtime]") {
  Bench bench;
  Lengths lengths(bench.client, 2);
  lengths.run("a");
  lengths.run("bb");
  const auto is_unchanged = [&] {
    const Told before = lengths.told;
    const bool same = lengths.run("a") == 1 && lengths.run("bb") == 2;
    return same && lengths.told == before && lengths.cache.statistics().captures == 2 &&
           lengths.cache.statistics().evictions == 0;
  };
  CHECK_THROWS_AS(lengths.cache.get("ccc", []() -> Graph { throw std::bad_alloc(); }),
                  std::bad_alloc);
  CHECK(is_unchanged());
  CHECK(code_of([&] { lengths.cache.get("ccc", [] { return Graph(); }); }) == Errc::empty_graph);
  CHECK(is_unchanged());
  for (const GraphCacheEvent event : {capture_event, evict_event}) {
    lengths.refuses = event;
    CHECK_THROWS_AS(lengths.get("ccc"), std::runtime_error);
    CHECK(is_unchanged());
  }
  // Known keys need no capture.
  lengths.refuses = capture_event;
  CHECK(lengths.run("a") == 1);
  lengths.refuses.reset();
  CHECK(lengths.run("ccc") == 3);
}

TEST_CASE("a graph that leaves a cache finishes its replays and gives its memory back [B97] [B100]",
          "[runtime]") {
  test::Gate gate;
  const Kernel slow{"slow", [&gate](const Block&, Out<float> out) {
                      gate.pass();
                      out[0] = 5;
                    }};
  Bench bench(2);
  const Client& client = bench.client;
  const auto out = client.zeros<float>(1);
  const auto temporary_in = [&](Client& c) {
    const auto temporary = c.empty<float>(1000);
    c.fill(temporary, 1.0f);
  };
  GraphCache<int> cache(1);
  cache
      .get(1,
           [&] {
             return client.capture([&](Client& c) {
               temporary_in(c);
               c.launch(slow, 1, out);
             });
           })
      .replay();
  gate.wait_for_arrivals();
  (void)cache.get(2, [&] { return client.capture(temporary_in); });
  auto seen = client.async_read(out);
  gate.open();
  CHECK(seen.get() == Floats{5});
  CHECK(cache.erase(2));
  CHECK_FALSE(cache.erase(2));
  CHECK(cache.size() == 0);
  CHECK(cache.statistics().evictions == 1);
  (void)cache.get(3, [&] { return client.capture(temporary_in); });
  cache.clear();
  bench.device.synchronize();
  CHECK(bench.device.memory_report().graphs.empty());
}

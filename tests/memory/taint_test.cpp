// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/taint.hpp>

#include <support/host_memory.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace reprise;
using reprise::test::host_allocations;
using reprise::test::HostMemoryFault;

namespace {

constexpr ByteRange hundred{0, 100};

FailurePtr failure_of(std::string_view kernel) {
  return make_failure(Errc::kernel_failed, "launch", kernel, "it threw");
}

ClaimPtr ran(std::string_view kernel) {
  return make_claim(ClaimKind::ran, failure_of(kernel));
}

ClaimPtr refused(std::string_view what, std::uint64_t owner) {
  return make_claim(ClaimKind::not_started, make_failure(Errc::refused, "replay", what, ""), owner);
}

std::vector<ByteRange> ranges_of(const TaintMap& map) {
  std::vector<ByteRange> ranges;
  map.each({0, map.bytes()}, [&](ByteRange range, const ClaimPtr&) { ranges.push_back(range); });
  return ranges;
}

std::size_t depth(const Claim* claim) {
  std::size_t entries = 0;
  for (; claim; claim = claim->beneath.get()) ++entries;
  return entries;
}

}  // namespace

TEST_CASE("Fresh memory is one unwritten span and costs no allocation", "[memory][I23]") {
  const std::uint64_t before = host_allocations();
  TaintMap map(100);
  TaintMap moved = std::move(map);
  moved.clear({0, 50});
  moved.clear({50, 100});
  const std::uint64_t after = host_allocations();
  CHECK(after == before);
  CHECK(moved.clean());

  TaintMap fresh(100);
  REQUIRE(fresh.spans() == 1);
  REQUIRE(fresh.first({99, 100}) == unwritten_claim().get());
  CHECK(report(*fresh.first({99, 100}), "read")->code == Errc::unwritten);
  CHECK(TaintMap::written(100).clean());
  CHECK(TaintMap(0).clean());
}

TEST_CASE("Memory that starts anew forgets what was written there before", "[memory][I23]") {
  TaintMap map = TaintMap::written(100);
  map = TaintMap(100);
  CHECK(ranges_of(map) == std::vector<ByteRange>{hundred});
}

TEST_CASE("Writing a part releases exactly that part", "[memory][B129][I22][N4]") {
  TaintMap map = TaintMap::written(100);
  map.claim(hundred, ran("a"));
  map.clear({40, 60});
  CHECK(ranges_of(map) == std::vector<ByteRange>{{0, 40}, {60, 100}});
  CHECK(map.first({40, 60}) == nullptr);
  CHECK(map.first({39, 60}) != nullptr);
  CHECK(map.first({40, 61}) != nullptr);
  map.clear(hundred);
  CHECK(map.clean());
}

TEST_CASE("Each range names its own failure", "[memory][B130]") {
  TaintMap map = TaintMap::written(100);
  map.claim({0, 10}, ran("a"));
  map.claim({50, 60}, ran("b"));
  CHECK(map.first({0, 10})->failure->node == "a");
  CHECK(map.first({50, 60})->failure->node == "b");
  CHECK(map.first({5, 100})->failure->node == "a");
  CHECK(map.first({10, 100})->failure->node == "b");
  CHECK(map.first({10, 50}) == nullptr);
}

TEST_CASE("A failure whose bytes others took over is gone", "[memory][B131]") {
  TaintMap map = TaintMap::written(100);
  FailurePtr a = failure_of("a");
  const std::weak_ptr<const FailureRecord> watch = a;
  map.claim(hundred, make_claim(ClaimKind::ran, std::move(a)));
  const ClaimPtr b = ran("b");
  map.claim({25, 75}, b);
  CHECK_FALSE(watch.expired());
  map.claim(hundred, b);
  CHECK(watch.expired());
  CHECK(map.spans() == 1);
}

TEST_CASE("Claiming the same range again with one failure counts once", "[memory][B132]") {
  TaintMap map = TaintMap::written(100);
  const FailurePtr failure = failure_of("a");
  for (const auto kind : {ClaimKind::ran, ClaimKind::not_started}) {
    for (int i = 0; i < 3; ++i) map.claim({10, 20}, make_claim(kind, failure, 7));
    REQUIRE(ranges_of(map) == std::vector<ByteRange>{{10, 20}});
  }
  CHECK(depth(map.first(hundred)) == 2);
}

TEST_CASE("Adjacent claims of one failure fuse", "[memory][B133]") {
  TaintMap map = TaintMap::written(100);
  const FailurePtr failure = failure_of("a");
  for (const ByteRange range : {ByteRange{0, 10}, ByteRange{20, 30}, ByteRange{10, 20}}) {
    map.claim(range, make_claim(ClaimKind::ran, failure));
  }
  CHECK(ranges_of(map) == std::vector<ByteRange>{{0, 30}});
  // The same when each claim had to be stacked apart.
  for (const ByteRange range : {ByteRange{0, 10}, ByteRange{20, 30}, ByteRange{10, 20}}) {
    map.claim(range, make_claim(ClaimKind::not_started, failure, 3));
  }
  CHECK(ranges_of(map) == std::vector<ByteRange>{{0, 30}});
}

TEST_CASE("Clearing a map releases every failure in it", "[memory][B134]") {
  TaintMap map = TaintMap::written(100);
  std::vector<std::weak_ptr<const FailureRecord>> watches;
  for (std::uint64_t i = 0; i < 10; ++i) {
    const ClaimPtr claim = refused("r", i);
    watches.emplace_back(claim->failure);
    map.claim({i * 10, 100}, claim);
  }
  map.clear(hundred);
  CHECK(map.clean());
  for (const auto& watch : watches) CHECK(watch.expired());
}

TEST_CASE("An empty range changes nothing and says nothing", "[memory][B135]") {
  TaintMap map = TaintMap::written(100);
  map.claim({50, 50}, ran("a"));
  CHECK(map.clean());
  map.claim({10, 90}, ran("a"));
  map.claim({50, 50}, ran("b"));
  map.clear({50, 50});
  map.lift({50, 50}, 0);
  map.put_back({50, 50}, {});
  CHECK(ranges_of(map) == std::vector<ByteRange>{{10, 90}});
  CHECK(map.first({50, 50}) == nullptr);
  CHECK(map.only_of({50, 50}, 1));
}

TEST_CASE("A failure lives as long as one allocation carries it", "[memory][B136][B137]") {
  TaintMap one = TaintMap::written(100);
  TaintMap two = TaintMap::written(100);
  std::weak_ptr<const FailureRecord> watch;
  {
    const ClaimPtr claim = ran("a");
    watch = claim->failure;
    one.claim({0, 10}, claim);
    two.claim({0, 10}, claim);
  }
  one.clear({0, 10});
  CHECK_FALSE(watch.expired());
  two.clear({0, 5});
  CHECK_FALSE(watch.expired());
  two.clear({5, 10});
  CHECK(watch.expired());

  std::weak_ptr<const FailureRecord> unclaimed = ran("b")->failure;
  CHECK(unclaimed.expired());
}

TEST_CASE("A better error takes over all carriers of a provisional one", "[memory][B138][B142]") {
  TaintMap one = TaintMap::written(100);
  TaintMap two = TaintMap::written(100);
  const auto provisional = [] {
    return make_claim(ClaimKind::ran, make_failure(Errc::torn_down, "launch", "k", ""));
  };
  ClaimPtr torn = provisional();
  std::weak_ptr<const FailureRecord> watch = torn->failure;
  one.claim({0, 10}, torn);
  two.claim({90, 100}, torn);
  torn = {};
  const ClaimPtr real = ran("k");
  one.claim({0, 10}, real);
  two.claim({90, 100}, real);
  CHECK(watch.expired());
  CHECK(report(*one.first(hundred), "read")->code == Errc::kernel_failed);
  CHECK(report(*two.first(hundred), "read")->code == Errc::kernel_failed);

  // And success leaves no failure behind.
  torn = provisional();
  watch = torn->failure;
  one.claim({50, 60}, torn);
  torn = {};
  one.clear({50, 60});
  CHECK(watch.expired());
}

TEST_CASE("A report lists the skips from the newest to the root", "[memory][B139]") {
  FailureRecord driver;
  driver.code = Errc::refused;
  driver.native_code = 719;
  driver.verb = "launch";
  driver.node = "Embed";
  const ClaimPtr embed = make_claim(ClaimKind::ran, make_failure(std::move(driver)));
  const ClaimPtr matmul = skip_claim(*embed, "Matmul");
  const ClaimPtr gelu = skip_claim(*matmul, "Gelu", 12);
  CHECK(gelu->kind == ClaimKind::not_started);
  CHECK(gelu->owner == 12);

  const FailurePtr told = report(*gelu, "read", SourceLocation{"main.cpp", 7});
  CHECK(told->code == Errc::refused);
  CHECK(told->native_code == 719);
  CHECK(told->verb == "read");
  CHECK(told->where.line == 7);
  REQUIRE(told->cause);
  CHECK(told->cause->code == Errc::skipped);
  CHECK(told->cause->node == "Gelu");
  REQUIRE(told->cause->cause);
  CHECK(told->cause->cause->node == "Matmul");
  CHECK(told->cause->cause->cause == embed->failure);
  CHECK(told->message.find("older") == std::string::npos);
}

TEST_CASE("Of twenty skips the newest sixteen are named and four counted", "[memory][B140]") {
  ClaimPtr claim = ran("root");
  for (int i = 1; i <= 20; ++i) claim = skip_claim(*claim, "skip " + std::to_string(i));
  CHECK(claim->skips.size() == SkipChain::max_kept);
  CHECK(claim->skips.older() == 4);
  const FailurePtr told = report(*claim, "read");
  CHECK(told->message.find("4 older skips") != std::string::npos);
  const FailureRecord* record = told->cause.get();
  for (int i = 20; i > 4; --i, record = record->cause.get()) {
    REQUIRE(record);
    CHECK(record->node == "skip " + std::to_string(i));
  }
  REQUIRE(record);
  CHECK(record->node == "root");
  CHECK(record->code == Errc::kernel_failed);
}

TEST_CASE("Skipping carries the root on and mints no failure", "[memory][B145]") {
  const ClaimPtr root = ran("root");
  const FailurePtr before = failure_of("x");
  const ClaimPtr skipped = skip_claim(*skip_claim(*root, "a"), "b");
  const FailurePtr after = failure_of("x");
  CHECK(after->id == before->id + 1);
  CHECK(skipped->failure == root->failure);

  const ClaimPtr on_unwritten = skip_claim(*unwritten_claim(), "a");
  CHECK(on_unwritten->kind == ClaimKind::not_started);
  CHECK(report(*on_unwritten, "read")->code == Errc::unwritten);
}

TEST_CASE("Writing the middle of claimed memory lets only the middle be read", "[memory][B146]") {
  TaintMap map = TaintMap::written(64);
  map.claim({0, 64}, ran("a"));
  map.clear({24, 40});
  CHECK(map.first({24, 40}) == nullptr);
  CHECK(map.first({23, 40}) != nullptr);
  CHECK(map.first({24, 41}) != nullptr);
  CHECK(map.first({0, 64}) != nullptr);
}

TEST_CASE("Lifting a refusal gives back each state that lay beneath it", "[memory][I22]") {
  TaintMap map = TaintMap::written(100);
  map.claim({10, 20}, ran("torn"));
  map.claim({30, 40}, unwritten_claim());
  TaintSpans before;
  map.save(hundred, before);
  map.claim({0, 90}, refused("step", 5));
  CHECK(map.first({0, 10})->kind == ClaimKind::not_started);
  CHECK(map.first({10, 20})->beneath->kind == ClaimKind::ran);
  map.lift(hundred, 4);
  CHECK(map.spans() == 5);
  map.lift(hundred, 5);
  CHECK(ranges_of(map) == std::vector<ByteRange>{{10, 20}, {30, 40}});
  CHECK(map.first({10, 20}) == before[0].claim.get());
  CHECK(map.first({30, 40}) == unwritten_claim().get());

  map.claim(hundred, refused("one", 1));
  map.claim(hundred, refused("two", 2));
  map.claim(hundred, refused("nobody", 0));
  map.lift(hundred, 1);
  CHECK(depth(map.first({0, 10})) == 2);
  map.lift(hundred, 0);
  CHECK(ranges_of(map) == std::vector<ByteRange>{{10, 20}, {30, 40}});
}

TEST_CASE("A claim of torn bytes forgets the refusals before it", "[memory][I20]") {
  TaintMap map = TaintMap::written(100);
  map.claim(hundred, refused("step", 5));
  map.claim({50, 100}, ran("torn"));
  map.lift(hundred, 0);
  CHECK(ranges_of(map) == std::vector<ByteRange>{{50, 100}});
  CHECK(map.first(hundred)->kind == ClaimKind::ran);
}

TEST_CASE("A graph knows bytes that only its own refusal keeps it from", "[memory]") {
  TaintMap map = TaintMap::written(100);
  CHECK(map.only_of(hundred, 5));
  map.claim({20, 80}, refused("step", 5));
  CHECK(map.only_of(hundred, 5));
  CHECK_FALSE(map.only_of(hundred, 6));
  map.claim({20, 30}, refused("other", 6));
  CHECK_FALSE(map.only_of(hundred, 5));
  CHECK(map.only_of({30, 100}, 5));
  map.lift({20, 30}, 6);
  CHECK(map.only_of(hundred, 5));
  map.claim({40, 41}, ran("torn"));
  map.claim({40, 41}, refused("step", 5));
  CHECK_FALSE(map.only_of(hundred, 5));
  CHECK(map.only_of({0, 40}, 5));
  TaintMap fresh(100);
  fresh.claim(hundred, refused("step", 5));
  CHECK_FALSE(fresh.only_of(hundred, 5));
}

TEST_CASE("Refusing replays a thousand times leaves one claim per owner", "[memory]") {
  TaintMap map(100);
  for (int i = 0; i < 1000; ++i) {
    for (std::uint64_t owner = 0; owner < 4; ++owner) map.claim(hundred, refused("r", owner));
  }
  CHECK(map.spans() == 1);
  CHECK(depth(map.first(hundred)) == 5);
  CHECK(map.first(hundred)->owner == 3);
}

TEST_CASE("Graphs that come and go leave one claim of nobody", "[memory]") {
  TaintMap map(100);
  for (std::uint64_t owner = 1; owner <= 1000; ++owner) {
    map.claim({0, 50}, refused("r", owner));
    map.disown(hundred, owner);
  }
  CHECK(depth(map.first(hundred)) == 2);
  CHECK(map.first(hundred)->owner == 0);
  map.lift(hundred, 0);
  CHECK(map.first(hundred) == unwritten_claim().get());
  CHECK(map.spans() == 1);
}

TEST_CASE("Disowning without memory leaves the claims as they were", "[memory][fault]") {
  TaintMap map(100);
  map.claim(hundred, refused("a", 1));
  map.claim(hundred, refused("b", 2));
  {
    HostMemoryFault fault(1);
    map.disown(hundred, 1);
  }
  CHECK(map.first(hundred)->beneath->owner == 1);
  map.disown(hundred, 1);
  CHECK(map.first(hundred)->beneath->owner == 0);
  CHECK(depth(map.first(hundred)) == 3);
}

TEST_CASE("A very deep stack of claims is dropped without recursion", "[memory]") {
  const FailurePtr failure = failure_of("a");
  ClaimPtr claim = ran("bottom");
  const std::weak_ptr<const FailureRecord> bottom = claim->failure;
  for (std::uint64_t owner = 1; owner <= 300'000; ++owner) {
    claim =
        ClaimPtr(*new Claim(ClaimKind::not_started, failure, owner, SkipChain(), std::move(claim)));
  }
  TaintMap map = TaintMap::written(100);
  TaintSpans spans;
  spans.push_back({hundred, std::move(claim)});
  map.put_back(hundred, spans);
  spans.clear();
  CHECK_FALSE(bottom.expired());
  map.clear(hundred);
  CHECK(bottom.expired());
}

TEST_CASE("Clearing hands out what putting back restores", "[memory]") {
  TaintMap map = TaintMap::written(100);
  map.claim({10, 50}, ran("a"));
  map.claim({50, 70}, refused("b", 2));
  TaintSpans removed;
  map.clear({30, 60}, &removed);
  REQUIRE(removed.size() == 2);
  CHECK(removed[0].range == ByteRange{30, 50});
  CHECK(removed[1].range == ByteRange{50, 60});
  map.claim({40, 45}, ran("c"));
  map.put_back({30, 60}, removed);
  CHECK(ranges_of(map) == std::vector<ByteRange>{{10, 50}, {50, 70}});
  CHECK(map.first({10, 50})->failure->node == "a");
}

TEST_CASE("The last resort claims everything without any memory", "[memory]") {
  TaintMap map = TaintMap::written(100);
  for (std::uint64_t i = 0; i < 10; ++i) map.claim({i * 10, i * 10 + 5}, refused("r", i));
  const FailurePtr failure = failure_of("a");
  {
    HostMemoryFault fault(1);
    map.claim_all(failure);
  }
  REQUIRE(ranges_of(map) == std::vector<ByteRange>{hundred});
  CHECK(map.first(hundred)->kind == ClaimKind::ran);
  CHECK(map.first(hundred)->failure->code == Errc::out_of_memory);
  map.claim_all(failure);
  CHECK(map.first(hundred)->failure == failure);
}

TEST_CASE("Claims and reports made without memory still name a cause", "[memory]") {
  const ClaimPtr input = skip_claim(*skip_claim(*ran("root"), "first long name of a node"), "b");
  bool clean_run = false;
  for (std::uint64_t nth = 1; !clean_run; ++nth) {
    ClaimPtr made;
    ClaimPtr skipped;
    FailurePtr told;
    {
      HostMemoryFault fault(nth, HostMemoryFault::Flavour::once);
      made = make_claim(ClaimKind::not_started, input->failure, 3);
      skipped = skip_claim(*input, "another long name of a node", 3);
      told = report(*input, "read");
      clean_run = !fault.fired();
    }
    REQUIRE(made);
    REQUIRE(skipped);
    CHECK(made->kind == ClaimKind::not_started);
    CHECK(skipped->kind == ClaimKind::not_started);
    CHECK((made->failure == input->failure || made->failure->code == Errc::out_of_memory));
    CHECK(skipped->failure == input->failure);
    CHECK(&told->root() == input->failure.get());
    CHECK(told->code == input->failure->code);
    REQUIRE(nth < 100);
  }
  ClaimPtr made;
  ClaimPtr skipped;
  {
    HostMemoryFault fault(1);
    made = make_claim(ClaimKind::ran, input->failure, 3);
    skipped = skip_claim(*input, "b", 3);
  }
  CHECK(made->kind == ClaimKind::ran);
  CHECK(made->failure->code == Errc::out_of_memory);
  CHECK(made->owner == 0);
  CHECK(skipped->kind == ClaimKind::not_started);
}

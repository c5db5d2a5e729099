// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/taint.hpp>

#include <support/host_memory.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace reprise;
using reprise::test::HostMemoryFault;

namespace {

// What the map must say, kept byte by byte.
struct Entry {
  ClaimKind kind;
  std::uint64_t owner;
  FailurePtr failure;
  SkipChain skips;
  friend bool operator==(const Entry&, const Entry&) = default;
};
using Stack = std::vector<Entry>;  // The newest first.

Stack stack_of(const Claim* claim) {
  Stack stack;
  for (; claim; claim = claim->beneath.get()) {
    stack.push_back({claim->kind, claim->owner, claim->failure, claim->skips});
  }
  return stack;
}

bool covers(const Entry& entry) {
  return entry.kind == ClaimKind::not_started;
}

class NaiveMap {
public:
  explicit NaiveMap(std::uint64_t bytes) : bytes_(bytes, stack_of(unwritten_claim().get())) {}

  template <class F>
  void change(ByteRange range, F&& how) {
    for (std::uint64_t at = range.begin; at < range.end; ++at) how(bytes_[at]);
  }
  void claim(ByteRange range, const Claim& claim) {
    const Entry entry = stack_of(&claim).front();
    change(range, [&](Stack& stack) {
      if (covers(entry)) {
        remove(stack, entry.owner);
      } else {
        stack.clear();
      }
      stack.insert(stack.begin(), entry);
    });
  }
  void clear(ByteRange range) {
    change(range, [](Stack& stack) { stack.clear(); });
  }
  void lift(ByteRange range, std::uint64_t owner) {
    change(range, [&](Stack& stack) {
      if (owner != 0) remove(stack, owner);
      while (owner == 0 && !stack.empty() && covers(stack.front())) stack.erase(stack.begin());
    });
  }
  void disown(ByteRange range, std::uint64_t owner) {
    change(range, [&](Stack& stack) {
      bool nobody = false;
      for (std::size_t i = 0; i < stack.size();) {
        if (covers(stack[i]) && stack[i].owner == owner) stack[i].owner = 0;
        const bool is_nobody = covers(stack[i]) && stack[i].owner == 0;
        if (is_nobody && nobody) {
          stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(i));
          continue;
        }
        nobody = nobody || is_nobody;
        ++i;
      }
    });
  }
  bool only_of(ByteRange range, std::uint64_t owner) const {
    for (std::uint64_t at = range.begin; at < range.end; ++at) {
      const Stack& stack = bytes_[at];
      if (stack.empty()) continue;
      if (stack.size() != 1 || !covers(stack[0]) || stack[0].owner != owner) return false;
    }
    return true;
  }
  const Stack* first(ByteRange range) const {
    for (std::uint64_t at = range.begin; at < range.end; ++at) {
      if (!bytes_[at].empty()) return &bytes_[at];
    }
    return nullptr;
  }

  // Whether `map` says the same of every byte, in as few spans as can be.
  bool agrees(const TaintMap& map) const {
    std::vector<Stack> told(bytes_.size());
    std::uint64_t end = 0;
    bool good = true;
    const Stack* last = nullptr;
    std::size_t spans = 0;
    map.each({0, map.bytes()}, [&](ByteRange range, const ClaimPtr& claim) {
      ++spans;
      good = good && !range.empty() && range.begin >= end && range.end <= bytes_.size();
      if (!good) return;
      for (std::uint64_t at = range.begin; at < range.end; ++at) told[at] = stack_of(claim.get());
      good = !(last && range.begin == end && *last == told[range.begin]);
      last = &told[range.begin];
      end = range.end;
    });
    return good && told == bytes_ && spans == map.spans() && map.clean() == (spans == 0);
  }

  std::vector<Stack> bytes_;

private:
  static void remove(Stack& stack, std::uint64_t owner) {
    for (std::size_t i = 0; i < stack.size() && covers(stack[i]); ++i) {
      if (stack[i].owner != owner) continue;
      stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }
};

class Dice {
public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {
    for (int i = 0; i < 4; ++i)
      failures_.push_back(make_failure(Errc::kernel_failed, "launch", "k" + std::to_string(i), ""));
  }
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  ByteRange range(std::uint64_t bytes) {
    const std::uint64_t begin = below(bytes + 1);
    if (below(12) == 0) return {begin, begin};
    if (below(8) == 0) return {0, bytes};
    return {begin, std::min(bytes, begin + below(bytes / 2))};
  }
  ClaimPtr claim() {
    const FailurePtr& failure = failures_[below(failures_.size())];
    switch (below(6)) {
      case 0: return unwritten_claim();
      case 1: return make_claim(ClaimKind::ran, failure, below(4));
      case 2:
        if (input_) return input_ = skip_claim(*input_, "n", below(4));
        return input_ = make_claim(ClaimKind::ran, failure);
      default: return make_claim(ClaimKind::not_started, failure, below(4));
    }
  }

private:
  std::mt19937_64 engine_;
  std::vector<FailurePtr> failures_;
  ClaimPtr input_;
};

}  // namespace

TEST_CASE("The map of claims agrees with a naive one kept byte by byte",
          "[memory][I20][I21][I22]") {
  constexpr std::uint64_t bytes = 48;
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  Dice dice(seed);
  TaintMap map(bytes);
  NaiveMap naive(bytes);
  for (int step = 0; step < 100'000; ++step) {
    const ByteRange range = dice.range(bytes);
    const std::uint64_t owner = dice.below(4);
    const std::uint64_t what = dice.below(16);
    if (what < 7) {
      const ClaimPtr claim = dice.claim();
      map.claim(range, claim);
      naive.claim(range, *claim);
    } else if (what < 10) {
      TaintSpans removed;
      TaintSpans saved;
      map.save(range, saved);
      map.clear(range, &removed);
      naive.clear(range);
      bool same = saved.size() == removed.size();
      for (std::size_t i = 0; same && i < saved.size(); ++i) {
        same = saved[i].range == removed[i].range && saved[i].claim == removed[i].claim;
      }
      if (!same) FAIL("clear() told other spans than save() at step " << step);
    } else if (what < 13) {
      map.lift(range, owner);
      naive.lift(range, owner);
    } else if (what < 14 && owner != 0) {
      map.disown(range, owner);
      naive.disown(range, owner);
    } else {
      const Claim* first = map.first(range);
      const Stack* told = naive.first(range);
      const bool same = (first == nullptr) == (told == nullptr) &&
                        (!first || stack_of(first) == *told) &&
                        map.only_of(range, owner) == naive.only_of(range, owner);
      if (!same) FAIL("the maps answer differently at step " << step);
    }
    if (!naive.agrees(map)) FAIL("the maps differ after step " << step << ", kind " << what);
  }
  SUCCEED("100000 steps agreed");
}

TEST_CASE("Undoing changes in reverse order restores every earlier state", "[memory]") {
  constexpr std::uint64_t bytes = 48;
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  Dice dice(seed);
  struct Done {
    ByteRange range;
    TaintSpans was;
    NaiveMap before;
  };
  TaintMap map(bytes);
  NaiveMap naive(bytes);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<Done> journal;
    for (std::uint64_t n = dice.below(10); n > 0; --n) {
      Done done{dice.range(bytes), {}, naive};
      const std::uint64_t what = dice.below(3);
      if (what == 0) {
        map.clear(done.range, &done.was);
        naive.clear(done.range);
      } else {
        map.save(done.range, done.was);
        const ClaimPtr claim = dice.claim();
        map.claim(done.range, claim);
        naive.claim(done.range, *claim);
      }
      journal.push_back(std::move(done));
    }
    const bool keep = dice.below(3) == 0;
    for (; !keep && !journal.empty(); journal.pop_back()) {
      map.put_back(journal.back().range, journal.back().was);
      if (!journal.back().before.agrees(map)) FAIL("undo differs in round " << round);
      naive = journal.back().before;
    }
  }
  CHECK(naive.agrees(map));
}

TEST_CASE("A change that runs out of memory leaves the claims as they were", "[memory][fault]") {
  constexpr std::uint64_t bytes = 48;
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  Dice dice(seed);
  std::uint64_t faults = 0;
  NaiveMap naive(bytes);
  TaintMap map(bytes);
  TaintSpans removed;
  for (int step = 0; step < 5'000; ++step) {
    const ByteRange range = dice.range(bytes);
    const ClaimPtr claim = dice.claim();
    const std::uint64_t what = dice.below(4);
    const std::uint64_t owner = dice.below(4);
    TaintSpans spans;
    map.save(range, spans);
    if (dice.below(8) == 0) {
      // A map without spare room, so that growing has to allocate.
      TaintMap fresh(bytes);
      fresh.put_back({0, bytes}, [&] {
        TaintSpans all;
        map.save({0, bytes}, all);
        return all;
      }());
      map = std::move(fresh);
    }
    const auto change = [&] {
      if (what == 0) map.claim(range, claim);
      if (what == 1) map.clear(range, &removed);
      if (what == 2) map.lift(range, owner);
      if (what == 3) map.put_back(range, spans);
    };
    for (std::uint64_t nth = 1;; ++nth) {
      const std::size_t told = removed.size();
      bool failed = false;
      {
        HostMemoryFault fault(nth, HostMemoryFault::Flavour::once);
        try {
          change();
        } catch (const std::bad_alloc&) {
          failed = true;
        }
      }
      if (!failed) break;
      ++faults;
      if (removed.size() != told || !naive.agrees(map)) FAIL("a trace at step " << step);
    }
    removed = TaintSpans();
    if (what == 0) naive.claim(range, *claim);
    if (what == 1) naive.clear(range);
    if (what == 2) naive.lift(range, owner);
    if (!naive.agrees(map)) FAIL("the maps differ after step " << step);
  }
  CHECK(faults > 1'000);
}

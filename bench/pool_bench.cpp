// SPDX-License-Identifier: Apache-2.0
// P10, P11: what a block costs to allocate and to free, and how much memory that takes.
#include <reprise/memory/pool.hpp>

#include "harness.hpp"
#include "pool_peers.hpp"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace reprise::bench {
namespace {

/// Pages that cost nothing: only the books of the pool are measured.
class NoPages final : public PageSource {
public:
  std::uint64_t base() const noexcept override { return std::uint64_t{1} << 40; }
  std::uint64_t page_size() const noexcept override { return 2 * mebibyte; }
  std::uint64_t address_space() const noexcept override { return std::uint64_t{1} << 40; }
  Result<void> map(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Result<void> unmap(std::uint64_t, std::uint64_t) noexcept override { return {}; }
};

/// The pool, its blocks finished when they are freed.
class Finished {
public:
  using Handle = PoolBlock*;
  Handle allocate(std::uint64_t bytes) {
    const auto finished = [](StreamPoint) { return true; };
    Result<Grant> grant = pool_.allocate({.bytes = bytes}, finished);
    if (!grant) std::abort();
    return grant->block;
  }
  void free(Handle block) { pool_.release(block, none_); }
  std::uint64_t peak_reserved() const { return pool_.stats().peak_reserved; }

private:
  NoPages pages_;
  Pool pool_{pages_};
  Frontier none_;
};

/// The pool, with four streams in turns; the device finishes 64 commands behind them.
class InFlight {
public:
  using Handle = PoolBlock*;
  Handle allocate(std::uint64_t bytes) {
    const auto finished = [this](StreamPoint point) { return point.position + 64 <= position_; };
    if (++position_ % 16 == 0) pool_.collect(finished);
    Result<Grant> grant = pool_.allocate({.bytes = bytes, .stream = stream()}, finished);
    if (!grant) std::abort();
    return grant->block;
  }
  void free(Handle block) { pool_.release(block, Frontier({stream(), position_})); }
  std::uint64_t peak_reserved() const { return pool_.stats().peak_reserved; }

private:
  StreamIndex stream() const { return static_cast<StreamIndex>(position_ / 8 % 4); }

  NoPages pages_;
  Pool pool_{pages_};
  StreamPosition position_ = 1;
};

template <class Allocator>
void replay(const Trace& trace, Allocator& allocator, std::size_t begin, std::size_t end,
            std::vector<typename Allocator::Handle>& live) {
  for (std::size_t i = begin; i < end; ++i) {
    const TraceEvent event = trace.events[i];
    if (event.size != 0)
      live[event.id] = allocator.allocate(event.size);
    else
      allocator.free(live[event.id]);
  }
}

/// ns per pair of the second of two passes; the first takes the page faults.
template <class Allocator>
double time_of(const Trace& trace) {
  constexpr std::size_t lap = 200;
  std::vector<typename Allocator::Handle> live(trace.ids);
  std::vector<double> laps;
  for (int pass = 0; pass < 2; ++pass) {
    const auto allocator = std::make_unique<Allocator>();
    laps.clear();
    for (std::size_t first = 0; first + lap <= trace.events.size(); first += lap) {
      const std::uint64_t start = ticks();
      replay(trace, *allocator, first, first + lap, live);
      laps.push_back(ns_since(start) * 2 / lap);  // two events are a pair
    }
  }
  return trimmed_mean(std::move(laps));
}

template <class Allocator>
double reserved_of(const Trace& trace) {
  const auto allocator = std::make_unique<Allocator>();
  std::vector<typename Allocator::Handle> live(trace.ids);
  replay(trace, *allocator, 0, trace.events.size(), live);
  return double(allocator->peak_reserved()) / double(trace.peak_live);
}

template <class Allocator>
long instructions(int rounds) {
  const Trace& trace = mixed_trace();
  std::vector<typename Allocator::Handle> live(trace.ids);
  const auto allocator = std::make_unique<Allocator>();
  for (int round = 0; round < rounds; ++round) {
    replay(trace, *allocator, 0, trace.events.size(), live);
  }
  return long(rounds) * long(trace.ids);
}

using Tlsf = GrowingRange<TwoLevelIndex>;
using BestFit = GrowingRange<TreeIndex>;

void time_rows(Suite& suite, const char* column, const Trace& (*trace)(), bool barred) {
  const std::vector<Bar> bars = barred ? std::vector<Bar>{at_most(1.3), faster_than("best fit", 4),
                                                          faster_than("PyTorch's rules", 4)}
                                       : std::vector<Bar>{};
  suite.row("P10", column, "ns")
      .limit("plain TLSF", [trace] { return time_of<Tlsf>(trace()); })
      .add(
          "pool", [trace] { return time_of<Finished>(trace()); }, bars)
      .add("pool, uses in flight", [trace] { return time_of<InFlight>(trace()); })
      .add("best fit", [trace] { return time_of<BestFit>(trace()); })
      .add("PyTorch's rules", [trace] { return time_of<CachingRules>(trace()); });
}

void reserved_rows(Suite& suite, const char* column, const Trace& (*trace)(), double bar) {
  suite.row("P11", column, "x")
      .add("pool", [trace] { return reserved_of<Finished>(trace()); }, {value_at_most(bar)})
      .add("pool, uses in flight", [trace] { return reserved_of<InFlight>(trace()); })
      .add("plain TLSF", [trace] { return reserved_of<Tlsf>(trace()); })
      .add("best fit", [trace] { return reserved_of<BestFit>(trace()); })
      .add("PyTorch's rules", [trace] { return reserved_of<CachingRules>(trace()); });
}

const Registration rows{[](Suite& suite) {
  time_rows(suite, "allocate and free, mixed sizes and lives", mixed_trace, true);
  time_rows(suite, "allocate and free, repeated steps", steps_trace, false);
  suite.row("P10", "allocate and free, mixed", "instructions")
      .limit_instructions("plain TLSF", instructions<Tlsf>)
      .add_instructions("pool", instructions<Finished>, {value_at_most(260)})
      .add_instructions("pool, uses in flight", instructions<InFlight>)
      .add_instructions("best fit", instructions<BestFit>)
      .add_instructions("PyTorch's rules", instructions<CachingRules>);
  reserved_rows(suite, "reserved / live, mixed sizes and lives", mixed_trace, 1.20);
  reserved_rows(suite, "reserved / live, repeated steps", steps_trace, 1.02);
}};

}  // namespace
}  // namespace reprise::bench

// SPDX-License-Identifier: Apache-2.0
#include <pool_replay/replay.hpp>

#if __has_include("../../bench/pool_peers.hpp")
#include "../../bench/pool_peers.hpp"
#define POOL_REPLAY_HAS_PEERS
#endif

#include <chrono>

namespace pool_replay {

#ifdef POOL_REPLAY_HAS_PEERS
namespace {

template <class Allocator>
ReplayResult replay_on(const char* policy, const Steps& steps) {
  Allocator allocator;
  std::vector<typename Allocator::Handle> blocks(steps.blocks);
  const auto begin = std::chrono::steady_clock::now();
  for (const Step& step : steps.steps) {
    if (step.kind == Step::Kind::allocate) {
      blocks[step.block] = allocator.allocate(step.bytes);
    } else if (step.kind == Step::Kind::free) {
      allocator.free(blocks[step.block]);
    }
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  ReplayResult result;
  result.policy = policy;
  result.in_use = steps.live_at_end;
  result.peak_reserved = allocator.peak_reserved();
  result.ns_per_pair = steps.pairs == 0 ? 0 : took.count() / static_cast<double>(steps.pairs);
  return result;
}

}  // namespace
#endif

std::vector<ReplayResult> replay_on_peers([[maybe_unused]] const Steps& steps) {
  std::vector<ReplayResult> results;
#ifdef POOL_REPLAY_HAS_PEERS
  using reprise::bench::CachingRules;
  using reprise::bench::GrowingRange;
  using reprise::bench::TreeIndex;
  results.push_back(replay_on<GrowingRange<TreeIndex>>("best fit by a tree", steps));
  results.push_back(replay_on<CachingRules>("caching by size class", steps));
#endif
  return results;
}

}  // namespace pool_replay

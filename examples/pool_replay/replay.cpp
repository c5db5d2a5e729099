// SPDX-License-Identifier: Apache-2.0
#include <pool_replay/replay.hpp>

#include <reprise/memory/error.hpp>

#include <algorithm>
#include <chrono>
#include <unordered_map>

namespace pool_replay {

namespace {

using reprise::MemoryEvent;
using reprise::MemoryVerb;

/// Pages of no memory: an allocator's books are all there is to a replay.
class NoPages final : public reprise::PageSource {
public:
  explicit NoPages(std::uint64_t page_size) : page_size_(page_size) {}

  std::uint64_t base() const noexcept override { return base_address; }
  std::uint64_t page_size() const noexcept override { return page_size_; }
  std::uint64_t address_space() const noexcept override { return std::uint64_t{1} << 46; }
  reprise::Result<void> map(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  reprise::Result<void> unmap(std::uint64_t, std::uint64_t) noexcept override { return {}; }

  static constexpr std::uint64_t base_address = std::uint64_t{1} << 46;

private:
  const std::uint64_t page_size_;
};

[[noreturn]] void fail(std::size_t event, const std::string& what) {
  // The first line names the columns.
  throw reprise::Failure(reprise::Errc::bad_format, "replay",
                         "line " + std::to_string(event + 2) + ": " + what);
}

class Reader {
public:
  void take(std::size_t at, const MemoryEvent& event) {
    switch (event.verb) {
      case MemoryVerb::allocate:
      case MemoryVerb::reuse: allocate(at, event); break;
      case MemoryVerb::refuse: made.steps.push_back({Step::Kind::refuse, 0, event.bytes, 0}); break;
      case MemoryVerb::release: ++made.waited; [[fallthrough]];
      case MemoryVerb::free: free(at, event); break;
      case MemoryVerb::map:
        reserved_ += event.bytes;
        made.peak_reserved = std::max(made.peak_reserved, reserved_);
        break;
      case MemoryVerb::unmap: reserved_ -= std::min(reserved_, event.bytes); break;
      case MemoryVerb::trim: made.steps.push_back({Step::Kind::trim, 0, 0, 0}); break;
    }
  }

  Steps made;

private:
  struct Live {
    std::uint32_t block;
    std::uint64_t bytes;
  };

  void allocate(std::size_t at, const MemoryEvent& event) {
    if (event.bytes == 0) fail(at, "bytes is '0', nothing is taken");
    if (!live_.emplace(event.address, Live{made.blocks, event.bytes}).second) {
      fail(at, "address is '" + std::to_string(event.address) + "', where a block is live");
    }
    made.steps.push_back({Step::Kind::allocate, made.blocks++, event.bytes, event.address});
    made.live_at_end += event.bytes;
    made.peak_live = std::max(made.peak_live, made.live_at_end);
  }

  void free(std::size_t at, const MemoryEvent& event) {
    const auto found = live_.find(event.address);
    if (found == live_.end()) {
      fail(at, "address is '" + std::to_string(event.address) + "', where no block is live");
    }
    if (found->second.bytes != event.bytes) {
      fail(at, "bytes is '" + std::to_string(event.bytes) + "', of a block of " +
                   std::to_string(found->second.bytes));
    }
    made.steps.push_back({Step::Kind::free, found->second.block, 0, 0});
    made.live_at_end -= event.bytes;
    ++made.pairs;
    live_.erase(found);
  }

  std::unordered_map<std::uint64_t, Live> live_;
  std::uint64_t reserved_ = 0;
};

}  // namespace

Steps steps_of(std::span<const MemoryEvent> events) {
  Reader reader;
  for (std::size_t i = 0; i < events.size(); ++i) reader.take(i, events[i]);
  return std::move(reader.made);
}

ReplayResult replay_on_pool(const Steps& steps, const ReplayOptions& options) {
  NoPages pages(options.page_size);
  reprise::Pool pool(pages, {.limit_bytes = options.limit,
                             .growth_bytes = options.growth,
                             .alignment = options.alignment});
  const auto finished = [](reprise::StreamPoint) { return true; };
  const reprise::Frontier none;
  std::vector<reprise::PoolBlock*> blocks(steps.blocks);
  std::vector<std::uint64_t> addresses(steps.blocks);
  const auto begin = std::chrono::steady_clock::now();
  for (const Step& step : steps.steps) {
    switch (step.kind) {
      case Step::Kind::allocate:
        if (const auto grant = pool.allocate({.bytes = step.bytes}, finished)) {
          blocks[step.block] = grant->block;
          addresses[step.block] = grant->block->address();
        }
        break;
      case Step::Kind::refuse:
        // The request is made again, and what it gets goes back: the trace went on without.
        if (const auto grant = pool.allocate({.bytes = step.bytes}, finished)) {
          pool.release(grant->block, none);
        }
        break;
      case Step::Kind::free:
        if (blocks[step.block] != nullptr) pool.release(blocks[step.block], none);
        break;
      case Step::Kind::trim: pool.trim(finished); break;
    }
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  ReplayResult result;
  result.policy = options.growth > options.page_size ? "pool, growing faster" : "pool";
  result.in_use = pool.stats().in_use;
  result.peak_reserved = pool.stats().peak_reserved;
  result.refused = pool.stats().failed_requests;
  result.ns_per_pair = steps.pairs == 0 ? 0 : took.count() / static_cast<double>(steps.pairs);
  for (const Step& step : steps.steps) {
    if (step.kind != Step::Kind::allocate) continue;
    result.same_address += addresses[step.block] == NoPages::base_address + step.address ? 1 : 0;
  }
  return result;
}

}  // namespace pool_replay

// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/pool.hpp>

#include <support/fake_pages.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace reprise;
using reprise::test::FakePages;
using reprise::test::FakeProgress;

// The pool against a naive picture of memory: one record for every 64 bytes.

namespace {

constexpr std::uint64_t granule = 64;
constexpr StreamIndex most_streams = 6;

struct Shape {
  std::uint64_t page_size = 4096;
  std::uint64_t pages = 256;
  std::uint64_t limit_pages = 96;
  std::uint64_t device_pages = UINT64_MAX;
  StreamIndex streams = 3;
  std::uint64_t largest = 64 * 1024;
  bool notices = true;  // The source is told of every grant and free; the pool takes longer ways.
};

class Reference {
public:
  Reference(std::uint64_t seed, const Shape& shape)
      : random_(seed), shape_(shape), source_(shape.page_size, shape.pages),
        pool_(prepared(), {.limit_bytes = shape.limit_pages * shape.page_size, .alignment = 64}),
        bytes_(shape.pages * shape.page_size / granule) {}

  ~Reference() {
    guards_.clear();
    for (Live& live : live_) pool_.release(live.block, {});
  }

  void run(int operations) {
    for (int i = 0; i < operations && problem_.empty(); ++i) {
      step();
      compare(i % 512 == 0);
      if (!problem_.empty()) problem_ += " after operation " + std::to_string(i);
    }
    if (problem_.empty()) finish();
  }

  const std::string& problem() const { return problem_; }
  const PoolStats& stats() const { return pool_.stats(); }

private:
  using Uses = std::array<StreamPosition, most_streams>;
  struct Granule {
    bool owned = false;
    bool released = false;  // By its owner, and not observed finished.
    int guards = 0;
    Uses uses{};  // Last uses by those who owned it before.
  };
  struct Live {
    PoolBlock* block;
    Uses uses{};
    std::uint64_t id;
  };
  struct Held {
    Guard guard;
    ByteRange bytes;  // From the base.
    std::uint64_t owner;
  };
  struct Pinned {
    std::uint64_t owner;
    ByteRange bytes;
  };

  FakePages& prepared() {
    source_.most_pages = shape_.device_pages;
    source_.before_unmap = [this](ByteRange range) { check_nobody_uses(range, "unmapped"); };
    if (!shape_.notices) return source_;
    source_.after_grant = [this](ByteRange range) { last_grant_ = range; };
    source_.before_free = [this](ByteRange range) { check_nobody_uses(range, "freed"); };
    return source_;
  }

  void fail(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  ByteRange range_of(const PoolBlock* block) const {
    const std::uint64_t begin = block->address() - source_.base();
    return {begin, begin + block->rounded_size()};
  }
  template <class Visit>
  void each(ByteRange range, Visit&& visit) {
    for (std::uint64_t at = range.begin / granule; at < range.end / granule; ++at) {
      visit(bytes_[at]);
    }
  }
  bool is_finished(StreamIndex stream, StreamPosition position) const {
    return position <= progress_.done[stream];
  }

  void check_nobody_uses(ByteRange range, const char* what) {
    each(range, [&](const Granule& one) {
      if (one.owned) fail(std::string("I14: bytes are owned and ") + what);
      if (one.guards != 0) fail(std::string("I17: bytes are guarded and ") + what);
      for (StreamIndex stream = 0; stream < shape_.streams; ++stream) {
        if (!is_finished(stream, one.uses[stream]))
          fail(std::string("I16: used bytes are ") + what);
      }
    });
  }

  void step() {
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: allocate(); break;
      case 5:
      case 6:
      case 7:
      case 8: use(); break;
      case 9:
      case 10:
      case 11:
      case 12: release(); break;
      case 13:
        if (below(2) == 0)
          progress();
        else if (below(4) == 0)
          trim();
        else
          collect();
        break;
      case 14: guard(); break;
      default: drop_guard();
    }
  }

  std::uint64_t some_size() {
    const auto bits = below(static_cast<std::uint64_t>(std::bit_width(shape_.largest)));
    std::uint64_t size = (std::uint64_t{1} << bits) + below(std::uint64_t{1} << bits);
    if (below(3) == 0) size = std::max<std::uint64_t>(size / 4096, 1) * 4096;  // Sizes come again.
    return size;
  }

  void allocate() {
    PoolRequest request;
    request.bytes =
        below(500) == 0 ? shape_.limit_pages * shape_.page_size + below(9999) + 1 : some_size();
    if (below(8) == 0) request.alignment = std::uint64_t{1} << below(15);
    request.stream = static_cast<StreamIndex>(below(shape_.streams));
    if (below(8) == 0) request.pages = PageUpdate::forbidden;
    const int maps = source_.maps;
    const PoolStats before = pool_.stats();
    auto grant = pool_.allocate(request, progress_);
    if (request.pages == PageUpdate::forbidden && source_.maps != maps) fail("forbidden pages");
    if (pool_.stats().requests != before.requests + 1) fail("I15: requests");
    if (!grant) {
      if (pool_.stats().failed_requests != before.failed_requests + 1) fail("I15: failures");
      check_refusal(request, grant.error().code, before);
      return;
    }
    check_grant(request, *grant);
  }

  void check_grant(const PoolRequest& request, const Grant& grant) {
    const PoolBlock* const block = grant.block;
    const ByteRange range = range_of(block);
    if (block->size() != request.bytes) fail("a block of another size");
    if (block->address() % request.alignment != 0) fail("I14: misaligned");
    if (range.size() != align_up(request.bytes, granule)) fail("I15: rounding");
    if (!source_.is_mapped(range)) fail("I14: pages are not mapped");
    if (shape_.notices && last_grant_ != ByteRange{range.begin, range.begin + request.bytes}) {
      fail("no notice of a grant");
    }
    Uses past{};
    each(range, [&](Granule& one) {
      if (one.owned) fail("I14: overlaps a live block");
      if (one.guards != 0) fail("I17: guarded bytes were carved");
      for (StreamIndex stream = 0; stream < shape_.streams; ++stream) {
        past[stream] = std::max(past[stream], one.uses[stream]);
      }
      one.owned = true;
      one.released = false;
    });
    for (StreamIndex stream = 0; stream < shape_.streams; ++stream) {
      const StreamPoint point{stream, past[stream]};
      if (is_finished(stream, past[stream])) continue;
      if (!block->earlier().covers(point)) fail("I16: an earlier use is forgotten");
      if (stream != request.stream && !grant.waits) fail("I16: no wait");
    }
    bool waits = false;
    for (const StreamPoint point : block->earlier()) {
      waits = waits || point.stream != request.stream;
      if (point.position > past[point.stream]) fail("an earlier use that nobody made");
    }
    if (grant.waits != waits) fail("a wait that is not named");
    live_.push_back({grant.block, {}, next_id_++});
  }

  void check_refusal(const PoolRequest& request, Errc code, const PoolStats& before) {
    const std::uint64_t size = align_up(request.bytes, granule);
    const std::uint64_t limit = shape_.limit_pages * shape_.page_size;
    if ((code == Errc::never_fits) != (size > limit)) fail("never_fits means what it says");
    if (pool_.stats().in_use != before.in_use) fail("I19: in use");
    // Nothing that was mapped could have served it.
    for (const PoolPiece& piece : pool_.layout()) {
      if (piece.state != BlockState::idle && piece.state != BlockState::waiting) continue;
      const std::uint64_t base = source_.base();
      const std::uint64_t begin = align_up(base + piece.bytes.begin, request.alignment);
      if (size <= limit && begin + size <= base + piece.bytes.end) fail("refused what fits");
    }
    // A second try changes nothing but the counts.
    const auto layout = pool_.layout();
    const auto mapped = source_.mapped();
    PoolStats expected = pool_.stats();
    if (pool_.allocate(request, progress_)) fail("I19: a second try succeeds");
    ++expected.requests;
    ++expected.failed_requests;
    if (code != Errc::out_of_memory) {  // A device that is full may be asked to reclaim again.
      if (pool_.stats() != expected) fail("I19: counts changed");
      if (pool_.layout() != layout || source_.mapped() != mapped) fail("I19: layout changed");
    }
  }

  void use() {
    if (live_.empty()) return;
    Live& live = live_[below(live_.size())];
    const auto stream = static_cast<StreamIndex>(below(shape_.streams));
    live.uses[stream] = ++submitted_[stream];
  }

  void release() {
    if (live_.empty()) return;
    const std::size_t at = below(live_.size());
    const Live live = live_[at];
    live_[at] = live_.back();
    live_.pop_back();
    Frontier uses;
    for (StreamIndex stream = 0; stream < shape_.streams; ++stream) {
      // Finished uses may be named or left out.
      if (is_finished(stream, live.uses[stream]) && below(2) == 0) continue;
      if (!uses.add({stream, live.uses[stream]})) fail("no host memory");
    }
    const ByteRange range = range_of(live.block);
    each(range, [&](Granule& one) {
      one.owned = false;
      one.released = true;
      for (StreamIndex stream = 0; stream < shape_.streams; ++stream) {
        one.uses[stream] = std::max(one.uses[stream], live.uses[stream]);
      }
    });
    const bool guarded = std::any_of(guards_.begin(), guards_.end(),
                                     [&](const Held& held) { return held.owner == live.id; });
    if (guarded) pinned_.push_back({live.id, range});
    pool_.release(live.block, uses);
  }

  void progress() {
    const auto stream = static_cast<StreamIndex>(below(shape_.streams));
    StreamPosition& done = progress_.done[stream];
    done += below(submitted_[stream] - done + 1);
  }

  void collect() {
    pool_.collect(progress_);
    observe();
  }

  // What a collect() must have freed: everything released whose uses are finished, unguarded.
  void observe() {
    std::uint64_t waiting = 0;
    for (Granule& one : bytes_) {
      if (!one.released) continue;
      bool done = true;
      for (StreamIndex stream = 0; stream < shape_.streams; ++stream) {
        done = done && is_finished(stream, one.uses[stream]);
      }
      one.released = !done;
      waiting += done ? 0 : granule;
    }
    for (const Pinned& pinned : pinned_) {
      each(pinned.bytes, [&](Granule& one) {
        waiting += one.released ? 0 : granule;
        one.released = true;
      });
    }
    const std::uint64_t told = pool_.stats().waiting;
    // Blocks with more users than a record holds may wait a little longer than needed.
    const bool exact = shape_.streams <= Frontier::inline_points;
    if (exact ? told != waiting : told < waiting) fail("I15: waiting");
  }

  void trim() {
    const std::uint64_t reserved = pool_.stats().reserved;
    const std::uint64_t bytes = pool_.trim(progress_);
    observe();
    if (pool_.stats().reserved != reserved - bytes) fail("I15: trim");
    for (const PoolPiece& piece : pool_.layout()) {
      if (piece.state == BlockState::idle &&
          align_up(piece.bytes.begin, shape_.page_size) + shape_.page_size <= piece.bytes.end) {
        fail("an empty page was left mapped");
      }
    }
  }

  void guard() {
    if (live_.empty() || guards_.size() > 40) return;
    Live& live = live_[below(live_.size())];
    const std::uint64_t size = live.block->rounded_size() / granule;
    const std::uint64_t begin = below(size);
    const std::uint64_t end = begin + 1 + below(size - begin);
    auto guard = pool_.guard(live.block, {begin * granule, end * granule});
    if (!guard) return fail("no guard");
    const std::uint64_t base = live.block->address() - source_.base();
    const ByteRange bytes{base + begin * granule, base + end * granule};
    each(bytes, [](Granule& one) { ++one.guards; });
    guards_.push_back({std::move(guard).value(), bytes, live.id});
  }

  void drop_guard() {
    if (guards_.empty()) return;
    const std::size_t at = below(guards_.size());
    Held held = std::move(guards_[at]);
    guards_[at] = std::move(guards_.back());
    guards_.pop_back();
    each(held.bytes, [](Granule& one) { --one.guards; });
    const auto last = std::none_of(guards_.begin(), guards_.end(),
                                   [&](const Held& other) { return other.owner == held.owner; });
    if (last) std::erase_if(pinned_, [&](const Pinned& one) { return one.owner == held.owner; });
    held.guard.reset();
  }

  void compare(bool thoroughly) {
    std::uint64_t in_use = 0;
    std::uint64_t padding = 0;
    for (const Live& live : live_) {
      in_use += live.block->size();
      padding += live.block->rounded_size() - live.block->size();
    }
    const PoolStats& stats = pool_.stats();
    if (stats.blocks != live_.size()) fail("I15: blocks");
    if (stats.in_use != in_use) fail("I15: in use");
    if (stats.padding != padding) fail("I15: padding");
    if (stats.reserved != source_.bytes_mapped()) fail("I15: reserved");
    if (stats.reserved > pool_.limit()) fail("the limit is exceeded");
    if (!source_.consistent) fail("a page was mapped or unmapped twice");
    if (!thoroughly) return;
    pool_.audit();
    const auto guarded = std::count_if(bytes_.begin(), bytes_.end(),
                                       [](const Granule& one) { return one.guards > 0; });
    if (stats.guarded != static_cast<std::uint64_t>(guarded) * granule) fail("I15: guarded");
  }

  void finish() {
    while (!guards_.empty()) drop_guard();
    while (!live_.empty()) release();
    progress_.done.assign(64, UINT64_MAX);
    pool_.collect(progress_);
    if (pool_.stats().waiting != 0) fail("something waits for ever");
    pool_.trim(progress_);
    if (pool_.stats().reserved != 0) fail("something stays mapped");
    pool_.audit();
  }

  std::mt19937_64 random_;
  Shape shape_;
  FakePages source_;
  Pool pool_;
  FakeProgress progress_;
  std::array<StreamPosition, most_streams> submitted_{};
  std::vector<Granule> bytes_;
  std::vector<Live> live_;
  std::vector<Held> guards_;
  std::vector<Pinned> pinned_;
  ByteRange last_grant_;
  std::uint64_t next_id_ = 1;
  std::string problem_;
};

/// REPRISE_POOL_OPS: so many operations in all, spread over the shapes as they are otherwise.
int scaled(int operations) {
  constexpr double usual = 420'000;
  const char* const text = std::getenv("REPRISE_POOL_OPS");
  if (text == nullptr) return operations;
  return static_cast<int>(operations * (std::strtod(text, nullptr) / usual)) + 1;
}

void try_shape(const Shape& shape, int usual_operations) {
  const int operations = scaled(usual_operations);
  const auto seed = test::seed();
  CAPTURE(seed);
  Reference reference(seed, shape);
  reference.run(operations);
  CHECK(reference.problem().empty());
  INFO(reference.problem());
  REQUIRE(reference.problem() == "");
  std::cout << "pool operations: " << operations << "\n";
  // The run was worth something.
  CHECK(reference.stats().reuses_same_stream > 0);
  CHECK(reference.stats().waits_made > 0);
  CHECK(reference.stats().failed_requests > 0);
  CHECK(reference.stats().reclaims > 0);
}

}  // namespace

TEST_CASE("the pool agrees with a naive picture of memory under random use",
          "[memory][I14][I15][I16][I17][I18][I19]") {
  try_shape({}, 120'000);
}

TEST_CASE("the pool agrees with it when nobody asked for notices",
          "[memory][I14][I15][I16][I17][I18][I19]") {
  try_shape({.notices = false}, 120'000);
}

TEST_CASE("the pool agrees with it when blocks have more users than a record holds",
          "[memory][I14][I15][I16][I17][I18][I19]") {
  try_shape({.streams = 6}, 60'000);
}

TEST_CASE("the pool agrees with it on a device that runs out before the limit",
          "[memory][I14][I15][I16][I17][I18][I19]") {
  try_shape({.limit_pages = 200, .device_pages = 70}, 60'000);
}

TEST_CASE("the pool agrees with it in an address space no larger than the limit",
          "[memory][I14][I15][I16][I17][I18][I19]") {
  try_shape({.pages = 64, .limit_pages = 48, .streams = 2, .largest = 32 * 1024}, 60'000);
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/block.hpp>
#include <reprise/memory/error.hpp>
#include <reprise/memory/frontier.hpp>
#include <reprise/memory/guard.hpp>
#include <reprise/memory/page.hpp>
#include <reprise/memory/segregated_fit.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace reprise {

/// Units     Bytes.
struct PoolOptions {
  /// Most bytes mapped at once, rounded down to whole pages; 0 is the whole address space.
  std::uint64_t limit_bytes = 0;
  /// Least bytes mapped at a time where limit and addresses allow it; 0 is one page.
  std::uint64_t growth_bytes = 0;
  /// Every block starts at a multiple of it and is rounded up to one. A power of two, 32 or more.
  std::uint64_t alignment = 256;
};

/// Exact after every call. reserved = in_use + padding + waiting + what is free.
struct PoolStats {
  std::uint64_t reserved = 0;       ///< Mapped.
  std::uint64_t peak_reserved = 0;  ///< The most there ever was of it.
  std::uint64_t in_use = 0;         ///< Asked for by those who own blocks now.
  std::uint64_t padding = 0;        ///< Taken on top of that by rounding.
  std::uint64_t guarded = 0;        ///< Under at least one guard; overlaps count once.
  std::uint64_t waiting = 0;        ///< Released, but not observed finished, or under a guard.

  std::uint64_t blocks = 0;              ///< Owned now.
  std::uint64_t requests = 0;            ///< Calls of allocate().
  std::uint64_t failed_requests = 0;     ///< Those that answered an error.
  std::uint64_t waits_made = 0;          ///< Grants that came with something to wait for.
  std::uint64_t reuses_same_stream = 0;  ///< Grants of a block that the same stream had released.
  std::uint64_t reclaims = 0;            ///< Times that pages were given back to serve a request.

  friend bool operator==(const PoolStats&, const PoolStats&) noexcept = default;
};

/// Who maps new pages.
enum class Mapping : std::uint8_t {
  now,     ///< allocate() itself, through PageSource::map().
  later,   ///< The caller: where mapping would be next, the answer is Errc::would_block.
  failed,  ///< The caller, who tried begin_growth() for this request and could not map.
};

struct PoolRequest {
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 1;  ///< A power of two; the pool's own is the least.
  StreamIndex stream = 0;       ///< The backend stream that will touch the bytes first.
  PageUpdate pages = PageUpdate::allow;
  Mapping mapping = Mapping::now;
};

/// A block, and whether the asking stream must wait on the device before it touches the bytes: for
/// the points of PoolBlock::earlier() that are on other streams. Seldom so. Any stream that is
/// handed the block later waits for all of PoolBlock::earlier() that is not its own.
struct Grant {
  PoolBlock* block = nullptr;
  bool waits = false;
};

/// Pages that were set aside to be mapped. Filled in by Pool::begin_growth().
struct PageRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  PoolBlock* block = nullptr;
};

/// One block in a picture of the pool. Bytes count from the first address.
struct PoolPiece {
  ByteRange bytes;
  BlockState state = BlockState::hole;
  bool guarded = false;

  friend bool operator==(const PoolPiece&, const PoolPiece&) noexcept = default;
};

/// The memory of one device: blocks carved out of a growing range of pages by a two-level
/// segregated fit. Constant time for what is served without mapping a page.
///
/// A released block is reusable when its last uses are done. A request is served, in this order,
///   1. from a block of about its size whose only unfinished uses are those of the asking stream:
///      at once, no wait;
///   2. from memory whose last uses are known to be finished;
///   3. the same, after asking the device about the blocks that wait;
///   4. from a larger block of the first kind;
///   5. from new pages, within the limit: memory nobody uses is as good as finished, and mapping
///      is paid once where a wait would tie two streams together each time round;
///   6. from a block that another stream may still use, with a device-side wait;
///   7. from new pages again, after unmapping empty ones.
/// Otherwise it fails, and the pool is as it was after 3, or after 7 where the page source alone
/// knows whether unmapping helps. Under a limit 7 is not tried in vain.
///
/// Lifetime  Outlives its blocks and guards; its PageSource outlives it.
/// Threads   One thread at a time, the device thread.
/// Errors    The constructor throws Failure; nothing else throws.
///           never_fits        larger than the limit or the address space; nothing was tried.
///           over_limit        the limit would be exceeded. Blocks that wait may help later.
///           out_of_memory     the page source has no page, or the host no room for the books.
///           growth_forbidden  new pages would be needed and PageUpdate forbids them.
///           would_block       no failure: begin_growth() is next, as Mapping::later asked.
///           invalid_argument  no bytes, or an alignment that is no power of two.
class Pool {
public:
  /// Backend streams are few: their index is below this.
  static constexpr StreamIndex max_streams = 64;

  explicit Pool(PageSource& source, PoolOptions options = {});
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  /// Takes a block. `finished` is asked about blocks that wait, when nothing else serves.
  Result<Grant> allocate(const PoolRequest& request, FinishedQuery finished) noexcept;

  /// Gives a block back. `last_uses` are the uses that may be unfinished; those that
  /// PoolBlock::earlier() names are remembered here. If there are none, the bytes are free at once.
  void release(PoolBlock* block, const Frontier& last_uses) noexcept;

  /// Frees and coalesces every block that waits for nothing but what `finished` says is finished.
  void collect(FinishedQuery finished) noexcept;

  /// Collects, then unmaps every page that is empty, finished and unguarded. Answers the bytes
  /// given back.
  std::uint64_t trim(FinishedQuery finished) noexcept;

  /// Pins `range` of the block, counted from its start. Errc::out_of_range if it reaches beyond the
  /// block, Errc::out_of_memory without host memory. An empty range gives an empty guard.
  Result<Guard> guard(PoolBlock* block, ByteRange range) noexcept;

  /// Growth in two steps, for devices that map pages on another thread: after Errc::would_block,
  /// sets aside the pages that the request needs. The caller maps them and says how it went; then
  /// the request is made again, with Mapping::later or ::failed. Pages set aside count against the
  /// limit and are not `reserved` yet.
  Result<PageRun> begin_growth(const PoolRequest& request) noexcept;
  void end_growth(const PageRun& run, bool mapped) noexcept;

  const PoolStats& stats() const noexcept { return stats_; }
  std::uint64_t limit() const noexcept { return limit_; }
  std::uint64_t page_size() const noexcept { return page_size_; }

  /// Every block by address, for pictures and tests. Throws std::bad_alloc.
  std::vector<PoolPiece> layout() const;
  /// The same as records, valid until the next call. Throws std::bad_alloc.
  std::vector<const PoolBlock*> blocks() const;

  /// Walks every structure and checks the invariants I14, I15, I17 and I18. Slow.
  void audit() const;

private:
  friend class Guard;
  friend class detail::PoolAudit;
  using Need = detail::Need;
  using State = BlockState;

  // Blocks that one backend stream was the last to use.
  struct Lane {
    detail::SizeIndex<2> by_size;  // Those that no other stream has to finish with.
    PoolBlock* oldest = nullptr;   // All whose frontier begins with this stream, by position.
    PoolBlock* newest = nullptr;
    StreamPosition finished = 0;  // The highest position observed finished.
  };
  // Blocks with more last users than a record holds wait together for the uses of all of them.
  // Those that come while one crowd is waited for form the next, so each is waited for at last.
  struct Crowd {
    Frontier uses;
    PoolBlock* first = nullptr;
  };
  // Where a request could grow, and how much of it must be mapped.
  struct Spot {
    PoolBlock* hole = nullptr;
    std::uint64_t bytes = 0;
  };

  // Serving, pool.cpp.
  bool plan(const PoolRequest& request, Need& need, Error& error) const noexcept;
  Result<Grant> allocate_by_plan(const PoolRequest& request, FinishedQuery finished) noexcept;
  Result<Grant> allocate_slowly(const PoolRequest& request, const Need& need,
                                FinishedQuery finished) noexcept;
  Result<Grant> fail(Error error) noexcept;
  Result<Grant> postpone(Error error) noexcept;
  Grant take_idle(PoolBlock* block, const Need& need) noexcept;
  void cut(PoolBlock* block, std::uint64_t size) noexcept;
  Grant take_waiting(PoolBlock* block, const Need& need, StreamIndex stream,
                     FinishedQuery finished) noexcept;
  void own(PoolBlock* block, std::uint64_t asked) noexcept;
  void hand_over(PoolBlock* block, std::uint64_t asked) noexcept;
  void release_slowly(PoolBlock* block, const Frontier& last_uses) noexcept;
  PoolBlock* split(PoolBlock* block, std::uint64_t size) noexcept;
  void absorb_right(PoolBlock* block) noexcept;
  PoolBlock* join_idle(PoolBlock* block) noexcept;
  PoolBlock* coalesce(PoolBlock* block) noexcept;
  void unguard(PoolBlock& block, ByteRange range) noexcept;

  // Blocks that wait, pool_waiting.cpp.
  bool is_known_finished(StreamPoint point) const noexcept;
  void gather(PoolBlock* block, const Frontier& last_uses) noexcept;
  void settle(PoolBlock* block) noexcept;
  PoolBlock* free_waiting(PoolBlock* block) noexcept;
  void enqueue(PoolBlock* block) noexcept;
  void enqueue_behind(PoolBlock* block, PoolBlock* older) noexcept;
  void dequeue(PoolBlock* block) noexcept;
  detail::SizeIndex<2>& index_of(const PoolBlock* block) noexcept;
  PoolBlock* split_waiting(PoolBlock* block, std::uint64_t size) noexcept;
  PoolBlock* find_waiting(const Need& need, StreamIndex stream) const noexcept;
  void collect_lane(StreamIndex stream, FinishedQuery finished) noexcept;
  void collect_crowds(FinishedQuery finished) noexcept;

  // Pages, pool_pages.cpp.
  bool spot_at(PoolBlock* hole, const Need& need, Spot& spot) const noexcept;
  bool find_spot(const Need& need, Spot& spot) const noexcept;
  Result<PageRun> set_aside(const Need& need) noexcept;
  PoolBlock* take_in(const PageRun& run, bool mapped) noexcept;
  Result<PoolBlock*> grow(const Need& need, const PoolRequest& request) noexcept;
  bool reclaim_for(const Need& need, Errc refusal) noexcept;
  PageRun whole_pages(const PoolBlock& block) const noexcept;
  std::uint64_t unmap_last(PoolBlock* block, std::uint64_t most) noexcept;
  PoolBlock* make_hole(PoolBlock* block) noexcept;
  std::uint64_t room() const noexcept { return limit_ - stats_.reserved - set_aside_; }

  PageSource& source_;
  bool notice_;
  std::uint64_t base_;
  std::uint64_t page_size_;
  std::uint64_t limit_;
  std::uint64_t growth_bytes_;
  std::uint64_t alignment_;
  std::uint64_t set_aside_ = 0;  // Bytes of pages between begin_growth and end_growth.

  detail::BlockSlab slab_;
  PoolBlock* last_ = nullptr;        // The rightmost block.
  detail::SizeIndex<5> idle_;        // Finished memory.
  detail::SizeIndex<2> holes_;       // Unmapped pages.
  detail::SizeIndex<2> mixed_;       // Waiting blocks with last uses on two or three streams.
  std::unique_ptr<Lane[]> lanes_;    // max_streams of them.
  std::uint64_t lanes_waiting_ = 0;  // Bit s: lanes_[s] has a queue.
  Crowd crowds_[2];                  // The one waited for, and the next.
  detail::CoverMap guards_;
  PoolStats stats_;
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/check.hpp>
#include <reprise/memory/error.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/memory/small_vector.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// Taint: which bytes carry which failure. A read returns bytes if and only if each byte's last
/// writer succeeded, so a failure is a mark on the bytes that it left without a writer, kept until
/// somebody writes them.
namespace reprise {

/// What a claim says about the bytes under it. All three make a read fail.
enum class ClaimKind : std::uint8_t {
  unwritten,    ///< Nothing wrote them since they were allocated.
  not_started,  ///< A writer was refused, skipped or cancelled; the bytes are what they were.
  ran,          ///< A writer failed while it ran; the bytes may be torn.
};

/// The commands that were skipped between a failure and the bytes at hand, the newest first. The
/// last 16 are kept by name, older ones are counted.
///
/// Lifetime  A value; copies share the names.
/// Threads   Immutable.
class SkipChain {
public:
  static constexpr std::size_t max_kept = 16;

  SkipChain() noexcept = default;

  /// How many names are kept.
  std::size_t size() const noexcept { return links_ ? links_->size : 0; }
  bool empty() const noexcept { return links_ == nullptr; }
  /// How many older skips are only counted.
  std::uint64_t older() const noexcept { return links_ ? links_->older : 0; }
  /// The node skipped `i` steps before the newest.
  std::string_view operator[](std::size_t i) const noexcept { return *links_->names[i]; }

  /// This chain with one more skip at its new end. Throws std::bad_alloc.
  SkipChain extended(std::string_view node) const;

  /// Whether both are copies of one chain. Chains made apart differ, whatever they name.
  friend bool operator==(const SkipChain&, const SkipChain&) noexcept = default;

private:
  struct Links {
    std::shared_ptr<const std::string> names[max_kept];
    std::size_t size = 0;
    std::uint64_t older = 0;
  };
  explicit SkipChain(std::shared_ptr<const Links> links) noexcept : links_(std::move(links)) {}

  std::shared_ptr<const Links> links_;
};

struct Claim;
namespace detail {
struct StaticClaims;
const StaticClaims& make_static_claims() noexcept;
}  // namespace detail

/// A counted reference to a claim, or none.
///
/// Threads   Copies may be made and dropped on any thread; one object is for one thread.
class ClaimPtr {
public:
  ClaimPtr() noexcept = default;
  /// Shares a claim that some other ClaimPtr keeps.
  explicit ClaimPtr(const Claim& claim) noexcept;
  ClaimPtr(const ClaimPtr& other) noexcept;
  ClaimPtr(ClaimPtr&& other) noexcept : claim_(std::exchange(other.claim_, nullptr)) {}
  ClaimPtr& operator=(ClaimPtr other) noexcept {
    std::swap(claim_, other.claim_);
    return *this;
  }
  ~ClaimPtr();

  explicit operator bool() const noexcept { return claim_ != nullptr; }
  const Claim* get() const noexcept { return claim_; }
  const Claim& operator*() const noexcept { return *claim_; }
  const Claim* operator->() const noexcept { return claim_; }
  friend bool operator==(const ClaimPtr&, const ClaimPtr&) noexcept = default;

private:
  void release() noexcept;

  const Claim* claim_ = nullptr;
};

/// A failure's mark on bytes: why they cannot be read, and what they were before.
///
/// Lifetime  Shared by every span that carries it. It keeps its failure alive: a failure that no
///           bytes, completion or exception carries is gone.
/// Threads   Immutable.
struct Claim {
  Claim(ClaimKind what, FailurePtr root, std::uint64_t whose, SkipChain chain = {},
        ClaimPtr below = {}) noexcept
      : kind(what), owner(whose), failure(std::move(root)), skips(std::move(chain)),
        beneath(std::move(below)) {}

  ClaimKind kind;
  std::uint64_t owner;  ///< The graph or window whose refusal this is, 0 for anything else.
  FailurePtr failure;   ///< The root: what went wrong first.
  SkipChain skips;      ///< From the newest back towards the root.
  ClaimPtr beneath;     ///< The state that a `not_started` claim covers; none means clean.

private:
  friend class ClaimPtr;
  friend const detail::StaticClaims& detail::make_static_claims() noexcept;

  void add() const noexcept {
    // Relaxed: a new reference comes from one that keeps the claim alive.
    if (counted_) refs_.fetch_add(1, std::memory_order_relaxed);
  }

  bool counted_ = true;
  mutable std::atomic<std::uint32_t> refs_{0};
};

namespace detail {
/// The claims that live for ever. They are not counted, so that devices do not share a counter.
struct StaticClaims {
  ClaimPtr unwritten;
  ClaimPtr torn;     ///< For a claim of kind `ran` that there is no memory for.
  ClaimPtr refused;  ///< The same for `not_started`.
};
extern const StaticClaims* static_claims;  // Made before main, or by the first who asks then.
}  // namespace detail

/// The claim of memory that nothing wrote. One for the whole process.
inline const ClaimPtr& unwritten_claim() noexcept {
  const detail::StaticClaims* made = detail::static_claims;
  return (made ? *made : detail::make_static_claims()).unwritten;
}

/// A claim of `failure`. Without memory it answers a static claim of Errc::out_of_memory without an
/// owner, `not_started` if that was asked for, else `ran`. A graph that must not be locked out by
/// its own refusal then makes a claim of its own while there is memory, and falls back on that.
ClaimPtr make_claim(ClaimKind kind, FailurePtr failure, std::uint64_t owner = 0) noexcept;

/// The claim on the outputs of a command that did not run since it would have read `input`: the
/// same root failure, one skip more. Makes no failure record. Without memory as make_claim().
ClaimPtr skip_claim(const Claim& input, std::string_view node, std::uint64_t owner = 0) noexcept;

/// What a reader of claimed bytes is told: a record with the root's code and number and the
/// reader's verb. Its causes are the kept skips, the newest first, then the root; its message
/// counts the skips that are not kept. Without memory it answers the root itself.
FailurePtr report(const Claim& claim, std::string_view verb,
                  SourceLocation where = SourceLocation{}) noexcept;

struct TaintSpan {
  ByteRange range;
  ClaimPtr claim;
};
/// Spans in rising order, disjoint. Two fit without an allocation.
using TaintSpans = SmallVector<TaintSpan, 2>;

/// Which bytes of one allocation carry which claim, byte-exact.
///
/// A byte is clean or carries a stack of claims: at the bottom at most one of `ran` or `unwritten`,
/// on it `not_started` claims, the newest on top, at most one of each owner. So refusing one graph
/// a thousand times leaves one claim, and taking it away leaves what was there before.
///
/// Lifetime  Moves with the record of its allocation. A freed block drops its map; memory handed
///           out again starts with a fresh one, so old contents never count as written.
/// Threads   For one thread, the device's.
/// Errors    Members that are not noexcept throw std::bad_alloc and then changed nothing. A caller
///           that cannot go on without the change falls back on claim_all(), which cannot fail.
/// Units     Bytes, from the start of the allocation. Ranges of changes lie inside it; empty ones
///           change nothing.
class TaintMap {
public:
  /// The map of fresh memory: all of it unwritten. `changes` counts, for all maps that share it,
  /// the changes that may have put claims on clean bytes: who has seen bytes clean and the count as
  /// it is need not look again.
  explicit TaintMap(std::uint64_t bytes = 0, std::uint64_t* changes = nullptr) noexcept;
  /// The map of memory that somebody else filled: all of it clean.
  static TaintMap written(std::uint64_t bytes) noexcept;

  std::uint64_t bytes() const noexcept { return bytes_; }
  /// True when no byte carries a claim.
  bool clean() const noexcept { return spans_.empty(); }
  /// The lowest claim in `range`, nullptr if all of it is clean. Valid until the next change.
  const Claim* first(ByteRange range) const noexcept { return clean() ? nullptr : lowest(range); }
  /// Whether every claim in `range` is a `not_started` one of `owner` over clean bytes. That is
  /// what a graph's own refusals leave on inputs that are good otherwise. True of clean bytes.
  bool only_of(ByteRange range, std::uint64_t owner) const noexcept;

  /// Marks `range` as left without a writer. `ran` and `unwritten` replace what was there;
  /// `not_started` goes on top of it and takes away the earlier one of the same owner. What
  /// `claim` itself has beneath it is ignored then.
  void claim(ByteRange range, const ClaimPtr& claim);
  /// Claims the whole allocation as `ran`. For when there is no memory for anything better.
  void claim_all(FailurePtr failure) noexcept;

  /// A writer of all of `range` succeeded. Appends what the range carried to `removed`.
  void clear(ByteRange range, TaintSpans* removed = nullptr) {
    if (clean()) return;
    // Plant 4 is caught by "The map of claims agrees with a naive one kept byte by byte".
    if (REPRISE_PLANT(4) && range.size() > 1) --range.end;
    if (!removed && spans_.size() == 1 && spans_[0].range == range) {
      spans_.clear();
    } else {
      take_off(range, removed);
    }
  }
  /// Appends the claims of `range`, clipped to it, to `saved`.
  void save(ByteRange range, TaintSpans& saved) const;
  /// Makes `range` carry exactly `spans`, as save() or clear() told them; the rest of it is clean.
  void put_back(ByteRange range, const TaintSpans& spans);

  /// Takes away the `not_started` claims of `owner` in `range`, all of them if `owner` is 0, and
  /// gives back what lay beneath.
  void lift(ByteRange range, std::uint64_t owner);
  /// The graph `owner` is gone for good: what its claims say stays, but they are nobody's. Else
  /// each short-lived graph could leave one claim more on the stack. Without memory they stay as
  /// they are.
  void disown(ByteRange range, std::uint64_t owner) noexcept;

  /// Calls visit(ByteRange, const ClaimPtr&) for each span in `range`, clipped to it, in order.
  template <class F>
  void each(ByteRange range, F&& visit) const {
    for (std::size_t i = find(range.begin); i < spans_.size(); ++i) {
      const ByteRange part = spans_[i].range.intersect(range);
      if (part.empty()) return;
      visit(part, spans_[i].claim);
    }
  }
  /// How many spans there are. Adjacent ones that say the same are one.
  std::size_t spans() const noexcept { return spans_.size(); }

private:
  const Claim* lowest(ByteRange range) const noexcept;
  std::size_t find(std::uint64_t offset) const noexcept;
  void check_inside(ByteRange range) const noexcept;
  void take_off(ByteRange range, TaintSpans* removed);
  void assign(ByteRange range, std::span<const TaintSpan> fresh);
  template <class F>
  void rewrite(ByteRange range, F&& state);

  void count_change() noexcept {
    if (changes_ != nullptr) ++*changes_;
  }

  std::uint64_t bytes_ = 0;
  std::uint64_t* changes_ = nullptr;
  TaintSpans spans_;
};

inline ClaimPtr::ClaimPtr(const Claim& claim) noexcept : claim_(&claim) {
  claim.add();
}

inline ClaimPtr::ClaimPtr(const ClaimPtr& other) noexcept : claim_(other.claim_) {
  if (claim_) claim_->add();
}

inline ClaimPtr::~ClaimPtr() {
  if (claim_ && claim_->counted_) release();
}

inline TaintMap::TaintMap(std::uint64_t bytes, std::uint64_t* changes) noexcept
    : bytes_(bytes), changes_(changes) {
  if (bytes != 0) spans_.emplace_back(ByteRange{0, bytes}, unwritten_claim());
}

}  // namespace reprise

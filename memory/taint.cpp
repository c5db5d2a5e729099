// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/taint.hpp>

#include <reprise/memory/check.hpp>

#include <algorithm>
#include <exception>
#include <new>

// State: sorted, disjoint, non-empty spans, each with a stack of claims; adjacent spans whose
// stacks say the same are one span. Every change builds the new spans of its range beside the map
// and then splices them in, which is the only step that touches the map; so a change that runs out
// of memory leaves no trace.

namespace reprise {

namespace detail {

// Constant until the line below it runs, so that other files' initialisers may ask.
constinit const StaticClaims* static_claims = nullptr;

// Kept for ever, so that they exist when memory does not.
const StaticClaims& make_static_claims() noexcept {
  if (static_claims) return *static_claims;
  const auto make = [](ClaimKind kind, Errc code, std::string_view message) {
    auto* claim = new Claim(kind, make_failure(code, {}, {}, message), 0);
    claim->counted_ = false;
    return ClaimPtr(*claim);
  };
  static_claims = new StaticClaims{
      make(ClaimKind::unwritten, Errc::unwritten, "nothing wrote these bytes"),
      make(ClaimKind::ran, Errc::out_of_memory, "no host memory to describe the failure"),
      make(ClaimKind::not_started, Errc::out_of_memory, "no host memory to describe the failure"),
  };
  return *static_claims;
}

}  // namespace detail

namespace {

[[maybe_unused]] const detail::StaticClaims& made_before_main = detail::make_static_claims();

// Whether two claims say the same, the states beneath them left aside.
bool same_entry(const Claim& a, const Claim& b) noexcept {
  return a.kind == b.kind && a.owner == b.owner && a.failure == b.failure && a.skips == b.skips;
}

bool same_stack(const Claim* a, const Claim* b) noexcept {
  while (a != b) {
    if (!a || !b || !same_entry(*a, *b)) return false;
    a = a->beneath.get();
    b = b->beneath.get();
  }
  return true;
}

ClaimPtr on_top(const Claim& entry, ClaimPtr beneath) {
  return ClaimPtr(
      *new Claim(entry.kind, entry.failure, entry.owner, entry.skips, std::move(beneath)));
}

// The stack without its `not_started` entry of `owner`, of which there is at most one.
ClaimPtr without(const ClaimPtr& stack, std::uint64_t owner) {
  SmallVector<const Claim*, 8> above;
  const Claim* entry = stack.get();
  while (entry && entry->kind == ClaimKind::not_started && entry->owner != owner) {
    above.push_back(entry);
    entry = entry->beneath.get();
  }
  if (!entry || entry->kind != ClaimKind::not_started) return stack;
  ClaimPtr rest = entry->beneath;
  for (std::size_t i = above.size(); i-- > 0;) rest = on_top(*above[i], std::move(rest));
  return rest;
}

ClaimPtr stacked(const ClaimPtr& claim, const ClaimPtr& old) {
  ClaimPtr rest = without(old, claim->owner);
  if (rest == claim->beneath) return claim;
  return on_top(*claim, std::move(rest));
}

ClaimPtr bottom(const ClaimPtr& stack) noexcept {
  const Claim* entry = stack.get();
  while (entry && entry->kind == ClaimKind::not_started) entry = entry->beneath.get();
  return entry ? ClaimPtr(*entry) : ClaimPtr();
}

// The stack with the entry of `owner` made nobody's, in the place where it is, unless a newer one
// of nobody lies on it already.
ClaimPtr disowned(const ClaimPtr& stack, std::uint64_t owner) {
  SmallVector<const Claim*, 8> above;
  bool nobody_above = false;
  const Claim* entry = stack.get();
  while (entry && entry->kind == ClaimKind::not_started && entry->owner != owner) {
    nobody_above = nobody_above || entry->owner == 0;
    above.push_back(entry);
    entry = entry->beneath.get();
  }
  if (!entry || entry->kind != ClaimKind::not_started) return stack;
  ClaimPtr rest = entry->beneath;
  if (!nobody_above) {
    rest = without(rest, 0);
    rest = ClaimPtr(*new Claim(entry->kind, entry->failure, 0, entry->skips, std::move(rest)));
  }
  for (std::size_t i = above.size(); i-- > 0;) rest = on_top(*above[i], std::move(rest));
  return rest;
}

// Appends a span, or lets the last one grow when it says the same.
template <class Spans>
void append(Spans& spans, ByteRange range, const ClaimPtr& claim) {
  if (range.empty() || !claim) return;
  if (!spans.empty() && spans.back().range.end == range.begin &&
      same_stack(spans.back().claim.get(), claim.get())) {
    spans.back().range.end = range.end;
    return;
  }
  spans.push_back(TaintSpan{range, claim});
}

}  // namespace

SkipChain SkipChain::extended(std::string_view node) const {
  auto links = std::make_shared<Links>();
  links->names[0] = std::make_shared<const std::string>(node);
  links->size = std::min(size() + 1, max_kept);
  links->older = older() + (size() == max_kept ? 1 : 0);
  for (std::size_t i = 1; i < links->size; ++i) links->names[i] = links_->names[i - 1];
  return SkipChain(std::move(links));
}

// A loop, since a stack may be as deep as there are graphs.
void ClaimPtr::release() noexcept {
  const Claim* claim = std::exchange(claim_, nullptr);
  // Acquire and release: the last one to drop the claim sees the others done with it. Partner of
  // itself on other threads.
  while (claim && claim->counted_ && claim->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    // Nobody else refers to it any more, and none was created const.
    const Claim* beneath = std::exchange(const_cast<Claim*>(claim)->beneath.claim_, nullptr);
    delete claim;
    claim = beneath;
  }
}

ClaimPtr make_claim(ClaimKind kind, FailurePtr failure, std::uint64_t owner) noexcept {
  REPRISE_CHECK(failure != nullptr, "a claim names its failure");
  if (auto* claim = new (std::nothrow) Claim(kind, std::move(failure), owner)) {
    return ClaimPtr(*claim);
  }
  REPRISE_MARK("no_memory_for_claim");
  const detail::StaticClaims& fallback = detail::make_static_claims();
  return kind == ClaimKind::not_started ? fallback.refused : fallback.torn;
}

ClaimPtr skip_claim(const Claim& input, std::string_view node, std::uint64_t owner) noexcept {
  try {
    return ClaimPtr(
        *new Claim(ClaimKind::not_started, input.failure, owner, input.skips.extended(node)));
  } catch (const std::bad_alloc&) {
    return make_claim(ClaimKind::not_started, input.failure, owner);
  }
}

FailurePtr report(const Claim& claim, std::string_view verb, SourceLocation where) noexcept {
  try {
    const FailureRecord& root = *claim.failure;
    FailurePtr chain = claim.failure;
    for (std::size_t i = claim.skips.size(); i-- > 0;) {
      FailurePtr skip = make_failure(Errc::skipped, "skip", claim.skips[i], {}, chain);
      if (skip->cause != chain) return claim.failure;  // There was no memory for the record.
      chain = std::move(skip);
    }
    FailureRecord record;
    record.code = root.code;
    record.native_code = root.native_code;
    record.verb = verb;
    record.where = where;
    record.exception = root.exception;
    record.message = "these bytes carry a failure";
    if (claim.skips.older() != 0) {
      record.message += ", " + std::to_string(claim.skips.older()) + " older skips not shown";
    }
    record.cause = chain;
    FailurePtr told = make_failure(std::move(record));
    return told->cause == chain ? told : claim.failure;
  } catch (const std::exception&) {
    return claim.failure;
  }
}

TaintMap TaintMap::written(std::uint64_t bytes) noexcept {
  TaintMap map;
  map.bytes_ = bytes;
  return map;
}

void TaintMap::check_inside(ByteRange range) const noexcept {
  REPRISE_CHECK(range.empty() || range.end <= bytes_, "a range lies inside its allocation");
}

// The first span that ends after `offset`.
std::size_t TaintMap::find(std::uint64_t offset) const noexcept {
  const auto after = [](std::uint64_t at, const TaintSpan& span) { return at < span.range.end; };
  return static_cast<std::size_t>(std::upper_bound(spans_.begin(), spans_.end(), offset, after) -
                                  spans_.begin());
}

const Claim* TaintMap::lowest(ByteRange range) const noexcept {
  if (range.empty()) return nullptr;
  const std::size_t i = find(range.begin);
  if (i == spans_.size() || !spans_[i].range.overlaps(range)) return nullptr;
  return spans_[i].claim.get();
}

bool TaintMap::only_of(ByteRange range, std::uint64_t owner) const noexcept {
  bool only = true;
  each(range, [&](ByteRange, const ClaimPtr& claim) {
    only =
        only && claim->kind == ClaimKind::not_started && claim->owner == owner && !claim->beneath;
  });
  return only;
}

// Puts `fresh`, clipped, in place of everything in `range`.
void TaintMap::assign(ByteRange range, std::span<const TaintSpan> fresh) {
  // The spans that overlap the range or touch it; at most one of them begins before it and at
  // most one ends after it.
  std::size_t from = find(range.begin);
  if (from > 0 && spans_[from - 1].range.end == range.begin) --from;
  std::size_t to = from;
  SmallVector<TaintSpan, 4> built;
  if (from < spans_.size()) {
    const ByteRange left = spans_[from].range;
    append(built, {left.begin, std::min(left.end, range.begin)}, spans_[from].claim);
  }
  for (const TaintSpan& span : fresh) append(built, span.range.intersect(range), span.claim);
  while (to < spans_.size() && spans_[to].range.begin <= range.end) ++to;
  if (to > from) {
    const ByteRange right = spans_[to - 1].range;
    append(built, {std::max(right.begin, range.end), right.end}, spans_[to - 1].claim);
  }
  spans_.splice(from, to, built.data(), built.size());
}

// Gives each byte of `range` the state that `state` makes of its old one.
template <class F>
void TaintMap::rewrite(ByteRange range, F&& state) {
  TaintSpans fresh;
  // One result per old state, so that neighbours share it.
  ClaimPtr last_old;
  ClaimPtr last_new;
  bool known = false;
  const auto change = [&](ByteRange part, const ClaimPtr& old) {
    if (part.empty()) return;
    if (!known || last_old != old) {
      last_new = state(old);
      last_old = old;
      known = true;
    }
    append(fresh, part, last_new);
  };
  std::uint64_t at = range.begin;
  each(range, [&](ByteRange part, const ClaimPtr& old) {
    change({at, part.begin}, ClaimPtr());
    change(part, old);
    at = part.end;
  });
  change({at, range.end}, ClaimPtr());
  assign(range, {fresh.data(), fresh.size()});
}

void TaintMap::claim(ByteRange range, const ClaimPtr& claim) {
  check_inside(range);
  if (range.empty()) return;
  count_change();
  if (claim->kind != ClaimKind::not_started) {
    const TaintSpan span{range, claim};
    assign(range, {&span, 1});
    return;
  }
  rewrite(range, [&](const ClaimPtr& old) { return stacked(claim, old); });
}

void TaintMap::claim_all(FailurePtr failure) noexcept {
  count_change();
  spans_.clear();
  if (bytes_ == 0) return;
  // Fits inside the map, so nothing is allocated.
  spans_.push_back(TaintSpan{{0, bytes_}, make_claim(ClaimKind::ran, std::move(failure))});
}

void TaintMap::save(ByteRange range, TaintSpans& saved) const {
  std::size_t count = 0;
  each(range, [&](ByteRange, const ClaimPtr&) { ++count; });
  saved.reserve(saved.size() + count);
  each(range, [&](ByteRange part, const ClaimPtr& claim) {
    saved.push_back(TaintSpan{part, claim});
  });
}

void TaintMap::take_off(ByteRange range, TaintSpans* removed) {
  check_inside(range);
  if (range.empty()) return;
  const std::size_t before = removed ? removed->size() : 0;
  if (removed) save(range, *removed);
  if (range.begin <= spans_[0].range.begin && spans_.back().range.end <= range.end) {
    spans_.clear();
    return;
  }
  try {
    assign(range, {});
  } catch (const std::bad_alloc&) {
    if (removed) removed->erase(before, removed->size());
    throw;
  }
}

void TaintMap::put_back(ByteRange range, const TaintSpans& spans) {
  check_inside(range);
  count_change();
  if (!range.empty()) assign(range, {spans.data(), spans.size()});
}

void TaintMap::lift(ByteRange range, std::uint64_t owner) {
  check_inside(range);
  if (range.empty() || !first(range)) return;
  rewrite(range,
          [owner](const ClaimPtr& old) { return owner == 0 ? bottom(old) : without(old, owner); });
}

void TaintMap::disown(ByteRange range, std::uint64_t owner) noexcept {
  check_inside(range);
  if (owner == 0 || range.empty() || !first(range)) return;
  try {
    rewrite(range, [owner](const ClaimPtr& old) { return disowned(old, owner); });
  } catch (const std::bad_alloc&) {
    REPRISE_MARK("no_memory_to_disown");
  }
}

}  // namespace reprise

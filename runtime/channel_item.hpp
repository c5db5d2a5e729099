// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/control_lane.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace reprise {

/// What a channel can do with a command it carries without knowing its type. One static table a
/// type; a type with a member `static const ItemOps ops` (or of a class derived from ItemOps)
/// brings its own, which the consumer finds again in ChannelItem::ops.
struct ItemOps {
  void (*run)(void* payload, void* context) noexcept = nullptr;
  void (*destroy)(void* payload) noexcept = nullptr;  // null where there is nothing to do
};

/// A command as the consumer sees it.
struct ChannelItem {
  const ItemOps* ops = nullptr;
  void* payload = nullptr;
  std::uint64_t ticket = 0;

  void run(void* context) const noexcept { ops->run(payload, context); }
};

enum class Admission : std::uint8_t {
  in_slot,      ///< the command is in the ring
  late,         ///< it has its ticket and stays in the caller's Late until it is served
  closed,       ///< no ticket, no effect
  would_block,  ///< no ticket, no effect
};

namespace detail {

template <class C>
concept HasOps = requires {
  { &C::ops } -> std::convertible_to<const ItemOps*>;
};

template <class C>
struct DefaultOps {
  static void run(void* payload, void* context) noexcept {
    static_assert(noexcept((*static_cast<C*>(payload))(context)));
    (*static_cast<C*>(payload))(context);
  }
  static void destroy(void* payload) noexcept { std::destroy_at(static_cast<C*>(payload)); }

  static constexpr ItemOps ops{.run = &run,
                               .destroy = std::is_trivially_destructible_v<C> ? nullptr : &destroy};
};

template <class C>
constexpr const ItemOps& item_ops() noexcept {
  if constexpr (HasOps<C>)
    return C::ops;
  else
    return DefaultOps<C>::ops;
}

}  // namespace detail

/// A command the ring can carry: it fits a slot and nothing can throw once it has a ticket.
/// Called as `void operator()(void* context) noexcept` unless it has `ops`.
template <class C>
concept ChannelCommand =
    sizeof(C) <= 112 &&
    alignof(C) <= 16 && std::is_nothrow_move_constructible_v<C>&& std::is_nothrow_destructible_v<C>;

/// A submission that found no room: its ticket, and where its command lives until it is served.
///
/// Nothing is initialised until it is needed: one of these is made for most submissions and used
/// by few.
struct LateNode : ControlNode {
  LateNode() noexcept {}  // NOLINT: on purpose

  std::uint64_t position;  // of its ticket, as in TicketPosition
  const ItemOps* ops;
  void* payload;
  LateNode* later;  // in the consumer's table
};

/// Room for one late command of type C, on a blocked caller's stack or in an async operation.
///
/// Lifetime  When submit() answered `late`, it must live until the command has run; the channel
///           touches neither node nor command once `run` was called, so `run` may end the wait of
///           whoever destroys this, as its last act. The command is destroyed with it or by
///           clear(), never by the channel. After any other answer it holds nothing.
template <class C>
class Late {
public:
  Late() noexcept {}  // NOLINT: the command comes later
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
  ~Late() { clear(); }

  bool holds_command() const noexcept { return holds_command_; }

  /// The command. Precondition: holds_command(), and it was served.
  C& command() noexcept { return *std::launder(reinterpret_cast<C*>(storage_)); }

  /// Destroys what was served, so that this can be used again.
  void clear() noexcept {
    if (!holds_command_) return;
    holds_command_ = false;
    std::destroy_at(&command());
  }

private:
  template <class>
  friend class BasicChannel;

  LateNode& hold(C&& command, std::uint64_t position) noexcept {
    REPRISE_CHECK(!holds_command_, "a Late holds one command at a time");
    holds_command_ = true;
    node_.run = nullptr;
    node_.payload = ::new (static_cast<void*>(storage_)) C(std::move(command));
    node_.ops = &detail::item_ops<C>();
    node_.position = position;
    return node_;
  }

  bool holds_command_ = false;
  LateNode node_;
  alignas(C) std::byte storage_[sizeof(C)];
};

/// The consumer's late submissions, found by ticket. Intrusive: as many as callers hold, no memory
/// but the buckets.
///
/// Threads   The consumer's only.
template <class Traits>
class LateTable {
public:
  /// `capacity` is that of the ring, a power of two. Late tickets are few or come in their order,
  /// so that more buckets than these would not make them quicker to find.
  explicit LateTable(std::size_t capacity)
      : buckets_(std::make_unique<Bucket[]>(std::min(capacity, most_buckets))),
        mask_(std::min(capacity, most_buckets) - 1) {}

  bool empty() const noexcept { return count_ == 0; }

  /// `head` is the position served next: no late ticket is before it.
  void insert(LateNode& node, std::uint64_t head) noexcept {
    Bucket& bucket = bucket_of(node.position);
    ++count_;
    node.later = nullptr;
    if (bucket.first == nullptr) {
      bucket.first = bucket.last = &node;
    } else if (Traits::planted(ChannelPlant::late_unsorted) ||
               bucket.last->position - head < node.position - head) {  // the usual case
      bucket.last->later = &node;
      bucket.last = &node;
    } else {
      LateNode** at = &bucket.first;
      while ((*at)->position - head < node.position - head) at = &(*at)->later;
      node.later = *at;
      *at = &node;
    }
  }

  LateNode* find(std::uint64_t position) const noexcept {
    LateNode* const first = buckets_[(position / step) & mask_].first;
    return first != nullptr && first->position == position ? first : nullptr;
  }

  /// Precondition: find(node.position) == &node.
  void remove(LateNode& node) noexcept {
    Bucket& bucket = bucket_of(node.position);
    bucket.first = node.later;
    if (bucket.first == nullptr) bucket.last = nullptr;
    --count_;
  }

private:
  static constexpr std::uint64_t step = 16;
  static constexpr std::size_t most_buckets = 64;

  struct Bucket {  // ascending by distance from the head
    LateNode* first = nullptr;
    LateNode* last = nullptr;
  };

  Bucket& bucket_of(std::uint64_t position) noexcept { return buckets_[(position / step) & mask_]; }

  std::unique_ptr<Bucket[]> buckets_;
  std::uint64_t mask_;
  std::size_t count_ = 0;
};

}  // namespace reprise

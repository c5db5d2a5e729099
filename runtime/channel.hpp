// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/check.hpp>
#include <reprise/runtime/channel_item.hpp>
#include <reprise/runtime/channel_word.hpp>
#include <reprise/runtime/control_lane.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace reprise {

/// Where a channel delivers the one token that ends the consumer's park. wake() is called at most
/// once per park, by any thread, and possibly before the consumer has begun to wait.
struct WakeTarget {
  virtual void wake() noexcept = 0;

protected:
  ~WakeTarget() = default;
};

struct ChannelOptions {
  std::size_t capacity = 1024;     ///< slots; a power of two, at least 2
  std::uint64_t first_ticket = 0;  ///< tests start near the wrap of 60 bits
  /// What a poster does with a control node that came after the consumer had left. Null: calls the
  /// node's own `run` with a null context. Called without any lock, on the poster's thread.
  void (*closed_item)(ControlNode& node, void* context) noexcept = nullptr;
  void* closed_context = nullptr;
};

/// The way from any number of threads to the one that owns a device: an ordered lane, a bounded
/// ring of commands that are built and run in their slots, and an unordered control lane.
///
/// Order        A submission's ticket is its place. If submission A happens before submission B,
///              A is served before B, whatever threads they came from and whether or not the ring
///              was full.
/// Full         A submission that finds no room takes its ticket all the same and keeps its
///              command in the caller's Late, which goes to the consumer by intrusive link; only
///              try_submit() answers would_block. After the ticket nothing throws, allocates or
///              locks.
/// End          close() is a point in the order of tickets: what was ticketed before is served,
///              nothing is after. Control nodes go for ever; after the consumer has left, posters
///              serve them.
/// Consumer     drain_control(); consume() while it answers true; then either pause() and look
///              again, or try_park() and wait for the token. front() empty while
///              has_unpublished() means a producer was stopped between its ticket and its command:
///              spin, then wait with a timeout; parking is refused meanwhile.
///
/// Lifetime  Outlives every call into it. Commands still in slots when it is destroyed are
///           destroyed unrun; late ones belong to their callers; control nodes are treated as
///           those that came after the consumer had left.
/// Threads   submit, try_submit, post, ring_bell, close, is_closed, tickets_taken: any.
///           The rest: the consumer's.
/// Errors    Nothing throws but the constructor (no memory).
template <class Traits>
class BasicChannel {
public:
  using Options = ChannelOptions;
  using Item = ChannelItem;
  using Word = ChannelWord<Traits::template Atomic>;
  using Idle = typename Word::Idle;

  BasicChannel(const Options& options, WakeTarget& consumer)
      : consumer_(consumer), options_(options), slots_(new Slot[options.capacity]),
        slot_bytes_(reinterpret_cast<std::byte*>(slots_.get())),
        mask_((options.capacity - 1) * sizeof(Slot)), lap_(options.capacity * TicketPosition::step),
        word_(options.first_ticket), head_(TicketPosition::of(options.first_ticket)),
        late_(options.capacity) {
    REPRISE_CHECK(options.capacity >= 2 && std::has_single_bit(options.capacity),
                  "the capacity of a channel is a power of two of at least 2");
    for (std::size_t i = 0; i < options.capacity; ++i) {
      const std::uint64_t position = head_ + i * TicketPosition::step;
      slot_at(position).sequence.store(position, std::memory_order_relaxed);
    }
  }

  BasicChannel(const BasicChannel&) = delete;
  BasicChannel& operator=(const BasicChannel&) = delete;

  ~BasicChannel() {
    while (consume([](const Item& item) noexcept { (void)item; })) {
    }
    drain_as_closed();
  }

  /// Builds the command in the slot of its ticket, or, when that is occupied or `room` (the
  /// caller's credit) is false, leaves it in `late`. Never waits.
  ///
  /// in_slot, late or closed; `command` is untouched when closed.
  template <ChannelCommand C>
  Admission submit(C&& command, Late<C>& late, bool room) noexcept {
    static_assert(!std::is_reference_v<C>, "a command is moved into the channel");
    typename Word::State seen = word_.peek();
    do {
      if (seen.is_closed()) return Admission::closed;
    } while (!word_.try_take(seen));
    Slot& slot = slot_at(seen.bits);
    if (!room || !is_free(slot, seen.position())) [[unlikely]] {
      leave_late(late.hold(std::move(command), seen.position()), seen.is_parked());
      return Admission::late;
    }
    publish(slot, std::move(command), seen);
    return Admission::in_slot;
  }

  /// The same without the last resort: in_slot, or would_block or closed without any effect.
  template <ChannelCommand C>
  Admission try_submit(C&& command, bool room) noexcept {
    static_assert(!std::is_reference_v<C>, "a command is moved into the channel");
    typename Word::State seen = word_.peek();
    do {
      while (!room || !is_free(slot_at(seen.bits), seen.position())) [[unlikely]] {
          // Either the slot is taken, or `seen` was old and the slot is already the next owner's.
          const typename Word::State now = word_.peek();
          if (now.is_closed()) return Admission::closed;
          if (!room || now.position() == seen.position()) {
            REPRISE_MARK("channel_would_block");
            return Admission::would_block;
          }
          seen = now;
        }
      if (seen.is_closed()) return Admission::closed;
    } while (!word_.try_take(seen));
    publish(slot_at(seen.bits), std::move(command), seen);
    return Admission::in_slot;
  }

  /// Posts a node on the control lane; it cannot be refused.
  ///
  /// True: the consumer will serve it. False: the consumer has left; if it had not just served the
  /// node, the node was given to `closed_item`, perhaps by another thread. Either way the node may
  /// be gone when this returns.
  bool post(ControlNode& node) noexcept {
    if (word_.is_stopped()) {
      answer_closed(node);
      return false;
    }
    lane_.post(node);
    const typename Word::State before = word_.post_control();
    if (before.is_stopped()) {
      REPRISE_MARK("control_after_stop");
      drain_as_closed();
      return false;
    }
    if (before.is_parked()) wake();
    return true;
  }

  /// Cuts a pause() short: for callers who are going to wait for the answer.
  void ring_bell() noexcept {
    // Two that ring at once may write the same number, and the second goes unheard: a pause then
    // takes its time. No read-modify-write, since that would wait for the command's lines first.
    // Release: the partner is the load in pause(), so the look after it finds what was submitted.
    bell_.store(bell_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// No tickets from here on. Idempotent.
  void close() noexcept {
    if (word_.close().is_parked() && !Traits::planted(ChannelPlant::close_without_wake)) wake();
  }

  bool is_closed() const noexcept { return word_.peek().is_closed(); }

  /// The number of the next ticket, modulo 2^60.
  std::uint64_t tickets_taken() const noexcept { return TicketPosition::ticket(word_.peek().bits); }

  /// The command whose turn it is, or null while it is not there. Consumes nothing; good until the
  /// next call of consume() or drain_control().
  const Item* front() noexcept {
    Slot& slot = slot_at(head_);
    // Acquire: the partner is the store in publish().
    if (slot.sequence.load(std::memory_order_acquire) == (head_ | filled)) {
      front_ = {slot.ops, slot.payload, TicketPosition::ticket(head_)};
      return &front_;
    }
    LateNode* const node = find_late();
    if (node == nullptr) return nullptr;
    front_ = {node->ops, node->payload, TicketPosition::ticket(head_)};
    return &front_;
  }

  /// Serves the command whose turn it is: calls `run(const Item&)`, which must not throw and must
  /// not consume. False when it is not there.
  ///
  /// A command in a slot is run in place, then destroyed, then its slot is free. A late command is
  /// taken off the channel first and not touched after `run`, which may end its life.
  template <class Run>
  bool consume(Run&& run) noexcept {
    return consume_if([](const Item&) noexcept { return true; }, std::forward<Run>(run));
  }

  /// The same, but only if `may(const Item&)` agrees; else the command stays where it is, as if
  /// front() had been asked, and this answers false.
  template <class May, class Run>
  bool consume_if(May&& may, Run&& run) noexcept {
    const std::uint64_t position = head_;
    Slot& slot = slot_at(position);
    // Acquire: the partner is the store in publish().
    if (slot.sequence.load(std::memory_order_acquire) == (position | filled)) [[likely]] {
      const Item item{slot.ops, slot.payload, TicketPosition::ticket(position)};
      if (!may(item)) return false;
      head_ = position + TicketPosition::step;
      run(item);
      if (item.ops->destroy != nullptr) item.ops->destroy(slot.payload);
      release(slot, position);
      return true;
    }
    LateNode* const node = find_late();
    if (node == nullptr) return false;
    const Item item{node->ops, node->payload, TicketPosition::ticket(position)};
    if (!may(item)) return false;
    REPRISE_MARK("channel_late_served");
    head_ = position + TicketPosition::step;
    late_.remove(*node);
    release(slot, position);
    run(item);
    return true;
  }

  /// Calls f(ControlNode&) for what was posted on the control lane and files late tickets. Costs
  /// one load when there is nothing. At most about `limit` nodes; the rest stay announced. Answers
  /// how many f got.
  template <class F>
  std::size_t drain_control(F&& f, std::size_t limit = 256) {
    if (!word_.look()) return 0;
    std::size_t given = 0;
    control_is_dry_ = lane_.take(limit, [&](ControlNode& node) {
      if (node.run == nullptr) {
        late_.insert(static_cast<LateNode&>(node), head_);
      } else {
        ++given;
        f(node);
      }
    });
    if (!control_is_dry_) word_.look_again();
    return given;
  }

  /// Whether the last drain_control() that found anything found all there was: what was posted
  /// before any node of it is served then, whoever posted it.
  bool control_is_dry() const noexcept { return control_is_dry_; }

  /// True when a ticket was taken that is not served yet: with front() empty, its producer is
  /// between ticket and command.
  bool has_unpublished() const noexcept { return word_.peek().position() != head_; }

  /// Parks, or leaves for good when closed; one compare-exchange that needs an empty control lane
  /// and no ticket beyond the head. A consumer that still waits for something of its own, which
  /// will be announced by a control node, says so with `may_leave` and parks though closed.
  ///
  /// parked: wait for the token, or give up with unpark(). busy: there is something to do.
  /// stopped: everything ticketed was served and no more will come; the channel is never to be
  /// consumed again.
  Idle try_park(bool may_leave = true) noexcept {
    if (Traits::planted(ChannelPlant::park_ignores_control)) word_.look();
    return word_.try_park(head_, may_leave);
  }

  /// Ends a park from within, after a timed wait. True: no token will come. False: one has come or
  /// is about to, and must be waited for.
  bool unpark() noexcept { return word_.unpark(); }

  /// Leaves the next slot alone for 64 pause instructions, unless the bell rings: looking at it
  /// all the time would take its line away from the producer who is about to fill it.
  void pause() noexcept {
    for (int i = 0; i < 64; ++i) {
      // Acquire: the partner is ring_bell().
      if (const auto rung = bell_.load(std::memory_order_acquire); rung != heard_) {
        heard_ = rung;
        return;
      }
      relax();
    }
  }

  /// Watches the next slot for about as long as a pause(): for a consumer that has just answered a
  /// blocked caller, who is likely to be back with the next command. True as soon as it is there.
  bool linger() const noexcept {
    const Slot& slot = slot_at(head_);
    for (int i = 0; i < 64; ++i) {
      // Relaxed: a hint; consume() looks again.
      if (slot.sequence.load(std::memory_order_relaxed) == (head_ | filled)) return true;
      relax();
    }
    return false;
  }

  /// The ticket served next; inside consume()'s run already the one after.
  std::uint64_t head() const noexcept { return TicketPosition::ticket(head_); }

  std::size_t capacity() const noexcept { return options_.capacity; }

private:
  static constexpr std::uint64_t filled = 1;  // of a slot's sequence
  static constexpr std::uint64_t ahead = 8;   // tickets, of expect_write()

  /// `sequence` is the position whose command the slot waits for, with `filled` once it is there.
  struct alignas(128) Slot {
    typename Traits::template Atomic<std::uint64_t> sequence{0};
    const ItemOps* ops = nullptr;
    alignas(16) std::byte payload[112];
  };
  static_assert(sizeof(Slot) == 128);

  /// Flags and marks in the low bits do not matter: they fall below the size of a slot.
  Slot& slot_at(std::uint64_t position) const noexcept {
    constexpr std::uint64_t bytes = sizeof(Slot) / TicketPosition::step;
    return *std::launder(reinterpret_cast<Slot*>(slot_bytes_ + ((position * bytes) & mask_)));
  }

  static bool is_free(const Slot& slot, std::uint64_t position) noexcept {
    // Acquire: the partner is the store in release(); the command before has been destroyed.
    return slot.sequence.load(std::memory_order_acquire) == position;
  }

  void release(Slot& slot, std::uint64_t position) noexcept {
    // Release: the partner is the load in is_free().
    slot.sequence.store(position + lap_, std::memory_order_release);
  }

  template <class C>
  void publish(Slot& slot, C&& command, typename Word::State taken) noexcept {
    expect_write<sizeof(C)>(slot_at(taken.bits + ahead * TicketPosition::step));
    slot.ops = &detail::item_ops<C>();
    ::new (static_cast<void*>(slot.payload)) C(std::move(command));
    // Release: the partners are the loads in front() and consume().
    slot.sequence.store(taken.position() | filled, std::memory_order_release);
    if (taken.is_parked()) [[unlikely]] {
      if (!Traits::planted(ChannelPlant::skip_wake)) wake();
    }
  }

  void leave_late(LateNode& node, bool owes_token) noexcept {
    REPRISE_MARK("channel_late");
    lane_.link(node);  // never the queue, which may allocate
    if (!Traits::planted(ChannelPlant::late_without_control)) {
      // The consumer may have found the node already, announced by somebody else, and have served
      // it and parked, or left. It cannot have parked while the first token is still owed.
      const typename Word::State before = word_.post_control();
      owes_token = owes_token || before.is_parked();
    }
    if (owes_token) wake();
  }

  LateNode* find_late() noexcept {
    if (late_.empty()) [[likely]]
      return nullptr;
    return late_.find(head_);
  }

  void wake() noexcept {
    REPRISE_MARK("channel_woke_parked");
    consumer_.wake();
  }

  void answer_closed(ControlNode& node) noexcept {
    if (options_.closed_item != nullptr)
      options_.closed_item(node, options_.closed_context);
    else
      node.run(node, nullptr);
  }

  /// Nobody consumes any more: takes what lies on the lane under the lock, as a lane has one taker
  /// at a time, and answers it outside.
  void drain_as_closed() noexcept {
    ControlNode* found = nullptr;
    {
      const std::lock_guard lock(after_stop_);
      while (!lane_.take(256, [&](ControlNode& node) {
        if (node.run == nullptr) return;  // late: its caller's
        node.next = found;
        found = &node;
      })) {
      }
    }
    while (found != nullptr) {
      ControlNode* const next = found->next;
      answer_closed(*found);
      found = next;
    }
  }

  /// Asks for a slot's lines while there is still time: the consumer has them, and what the next
  /// ticket waits for is mostly that its predecessors' lines arrive.
  template <std::size_t bytes>
  static void expect_write([[maybe_unused]] Slot& slot) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(slot.sequence));
    if constexpr (bytes > 48) asm volatile("prefetchw %0" : : "m"(slot.payload[48]));
#else
    __builtin_prefetch(&slot.sequence, 1);
    if constexpr (bytes > 48) __builtin_prefetch(&slot.payload[48], 1);
#endif
  }

  static void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // Read by everybody, written by nobody.
  WakeTarget& consumer_;
  const Options options_;
  const std::unique_ptr<Slot[]> slots_;
  std::byte* const slot_bytes_;
  const std::uint64_t mask_;  // of a slot's offset in slot_bytes_
  const std::uint64_t lap_;   // once round the ring, in positions

  alignas(64) Word word_;
  alignas(64) typename Traits::template Atomic<std::uint32_t> bell_{0};

  alignas(64) ControlLane<Traits> lane_;
  typename Traits::Mutex after_stop_;  // guards taking from lane_ once the consumer has left

  // The consumer's.
  alignas(64) std::uint64_t head_;
  LateTable<Traits> late_;
  Item front_;
  bool control_is_dry_ = true;
  std::uint32_t heard_ = 0;
};

using Channel = BasicChannel<ChannelTraits>;

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace reprise {

/// A place in the order of a channel, counted in 60 bits that wrap.
///
/// Kept shifted left by the four flag bits of ChannelWord, so that adding wraps by itself and the
/// low bits are free for marks.
///
/// Units     step = one ticket.
struct TicketPosition {
  static constexpr std::uint64_t step = 16;
  static constexpr std::uint64_t ticket_mask = ~std::uint64_t{0} >> 4;

  static constexpr std::uint64_t of(std::uint64_t ticket) noexcept { return ticket << 4; }
  static constexpr std::uint64_t ticket(std::uint64_t position) noexcept { return position >> 4; }
};

/// The one word that decides everything about a channel: parked, closed, stopped, control and the
/// next ticket.
///
/// State        ticket    the next submission's place in the order
///              control   the control lane may hold something the consumer has not looked for
///              parked    the consumer waits for a token, which whoever clears the flag owes
///              closed    no ticket is given any more
///              stopped   the consumer has left for good
/// Transitions  take      ticket + 1, parked := 0    any thread; !closed
///              post      control := 1, parked := 0  any thread
///              close     closed := 1, parked := 0   any thread
///              look      control := 0               the consumer, before it drains the lane
///              park      parked := 1                the consumer; ticket == head, !control
///              leave     stopped := 1               the consumer; ticket == head, !control, closed
///              unpark    parked := 0                the consumer, after a timed wait
///
/// Each transition is a read-modify-write of this word, and nothing is decided from a second one.
/// So the order of all decisions is the modification order of one location: no store has to be
/// ordered before a load of something else, no fence is needed, and a checker that assumes
/// sequential consistency is adequate. `parked` is cleared by exactly one of them per park, hence
/// at most one token exists.
///
/// Orders       A read-modify-write is acq_rel. Its release half publishes what was done before it
///              (a node on the control lane, the end of a drain); its acquire half is the partner
///              of every earlier one, as read-modify-writes never break a release sequence. Plain
///              loads are relaxed hints: what they suggest is confirmed by a compare-exchange,
///              except `stopped`, which is final.
///
/// Threads   As marked above.
template <template <class> class Atomic = std::atomic>
class ChannelWord {
public:
  static constexpr std::uint64_t parked = 1;
  static constexpr std::uint64_t closed = 2;
  static constexpr std::uint64_t stopped = 4;
  static constexpr std::uint64_t control = 8;
  static constexpr std::uint64_t flags = 15;

  /// A value of the word.
  struct State {
    std::uint64_t bits = 0;

    bool is_parked() const noexcept { return (bits & parked) != 0; }
    bool is_closed() const noexcept { return (bits & closed) != 0; }
    bool is_stopped() const noexcept { return (bits & stopped) != 0; }
    bool has_control() const noexcept { return (bits & control) != 0; }
    std::uint64_t position() const noexcept { return bits & ~flags; }
  };

  enum class Idle : std::uint8_t { parked, busy, stopped };

  explicit ChannelWord(std::uint64_t first_ticket = 0) noexcept
      : word_(TicketPosition::of(first_ticket)) {}

  State peek() const noexcept { return {word_.load(std::memory_order_relaxed)}; }

  /// True once the consumer has left; pairs with leave(), so what it did before is visible.
  bool is_stopped() const noexcept {
    return State{word_.load(std::memory_order_acquire)}.is_stopped();
  }

  /// Takes the ticket at seen.position(). False when the word has moved on: `seen` is then what it
  /// is now. After true, `seen` is what it was, and seen.is_parked() says that a token is owed.
  ///
  /// Precondition: !seen.is_closed().
  bool try_take(State& seen) noexcept {
    std::uint64_t bits = seen.bits;  // a plain local stays in a register
    const bool taken =
        word_.compare_exchange_weak(bits, (bits & ~parked) + TicketPosition::step,
                                    std::memory_order_acq_rel, std::memory_order_relaxed);
    if (!taken) seen.bits = bits;
    return taken;
  }

  /// Announces a node on the control lane. Answers the state before: is_parked() says that a token
  /// is owed, is_stopped() that nobody will look and the poster must drain the lane itself.
  State post_control() noexcept {
    return transform([](std::uint64_t bits) { return (bits | control) & ~parked; });
  }

  /// Answers the state before: is_parked() says that a token is owed.
  State close() noexcept {
    return transform([](std::uint64_t bits) { return (bits | closed) & ~parked; });
  }

  /// The consumer's, before it drains the control lane: what is posted from now on is announced
  /// anew. False when nothing was announced.
  bool look() noexcept {
    if (!peek().has_control()) return false;
    word_.fetch_and(~control, std::memory_order_acq_rel);
    return true;
  }

  /// The consumer's, when it stopped draining early.
  void look_again() noexcept { word_.fetch_or(control, std::memory_order_acq_rel); }

  /// The consumer's, when it has found nothing to do: leaves if that is possible and allowed, else
  /// parks; neither when something was ticketed beyond `head` or posted.
  Idle try_park(std::uint64_t head, bool may_leave = true) noexcept {
    State seen = peek();
    for (;;) {
      if (seen.is_stopped()) return Idle::stopped;
      if (seen.has_control() || seen.position() != head) return Idle::busy;
      const std::uint64_t mark = seen.is_closed() && may_leave ? stopped : parked;
      if (word_.compare_exchange_weak(seen.bits, seen.bits | mark, std::memory_order_acq_rel,
                                      std::memory_order_relaxed))
        return mark == stopped ? Idle::stopped : Idle::parked;
    }
  }

  /// The consumer's, after a timed wait. True when it was still parked: no token will come. False
  /// when somebody had cleared the flag: the token is there or owed, and must be waited for.
  bool unpark() noexcept {
    return State{word_.fetch_and(~parked, std::memory_order_acq_rel)}.is_parked();
  }

private:
  template <class F>
  State transform(F&& change) noexcept {
    State seen = peek();
    while (!word_.compare_exchange_weak(seen.bits, change(seen.bits), std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
    }
    return seen;
  }

  Atomic<std::uint64_t> word_;
};

}  // namespace reprise

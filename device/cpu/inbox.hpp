// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace reprise::detail {

/// The queue of one stream together with the right to run it. One word decides who runs the stream
/// and whether anything is left, so nothing is run twice and nothing is left lying.
///
/// State        a list of items, newest first; `owned`: somebody has the right to run the stream;
///              `leftover`: the last owner left items that it had taken already
///              The stream is at rest when the word is 0, and waits for an owner when it is neither
///              0 nor owned.
/// Transitions  push       adds an item                                    the device thread
///              claim      owned := 1, leftover := 0; needs a waiting stream   anyone
///              take all   the list becomes empty                          the owner
///              rest       owned := 0; needs an empty list                 the owner
///              hand over  owned := 0, leftover := 1                       the owner
/// Whoever makes the stream wait, by push or hand over, sees to it that a worker hears of it.
///
/// Orders       Every transition is a read-modify-write. push releases the item to the taking
///              acquire; giving the right up releases everything to the acquiring claim.
template <class Item, template <class> class Atomic = std::atomic>
class Inbox {
public:
  /// True if the stream was at rest: a worker has to hear of it.
  bool push(Item& item) noexcept {
    std::uintptr_t seen = word_.load(std::memory_order_relaxed);
    std::uintptr_t wanted;
    do {
      item.next = pointer(seen);
      wanted = reinterpret_cast<std::uintptr_t>(&item) | (seen & flags);
    } while (!word_.compare_exchange_weak(seen, wanted, std::memory_order_release,
                                          std::memory_order_relaxed));
    return seen == 0;
  }

  /// Takes the right to run, if the stream waits for an owner.
  bool claim() noexcept {
    std::uintptr_t seen = word_.load(std::memory_order_relaxed);
    do {
      if (seen == 0 || (seen & owned) != 0) return false;
    } while (!word_.compare_exchange_weak(seen, (seen & ~leftover) | owned,
                                          std::memory_order_acquire, std::memory_order_relaxed));
    return true;
  }

  // For the owner:

  /// The oldest item, or null: then the stream is at rest and the right is gone.
  Item* first() noexcept {
    if (first_) return first_;
    std::uintptr_t seen = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (pointer(seen) == nullptr) {
        if (word_.compare_exchange_weak(seen, 0, std::memory_order_release,
                                        std::memory_order_relaxed)) {
          return nullptr;
        }
      } else if (word_.compare_exchange_weak(seen, owned, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
        first_ = oldest_first(pointer(seen));
        return first_;
      }
    }
  }
  /// Forgets the item that first() answered; it may be gone as soon as its stream moves on.
  void drop_first() noexcept { first_ = static_cast<Item*>(first_->next); }
  /// Gives the right up. True: items are left, and a worker has to hear of it.
  bool hand_over() noexcept {
    std::uintptr_t seen = word_.load(std::memory_order_relaxed);
    std::uintptr_t wanted;
    do {
      wanted = (seen & ~owned) | (first_ ? leftover : 0);
    } while (!word_.compare_exchange_weak(seen, wanted, std::memory_order_release,
                                          std::memory_order_relaxed));
    return wanted != 0;
  }

  /// A hint, read without order: somebody should run the stream and nobody does.
  bool is_waiting() const noexcept {
    const std::uintptr_t seen = word_.load(std::memory_order_relaxed);
    return seen != 0 && (seen & owned) == 0;
  }

private:
  static constexpr std::uintptr_t owned = 1;
  static constexpr std::uintptr_t leftover = 2;
  static constexpr std::uintptr_t flags = owned | leftover;

  static Item* pointer(std::uintptr_t word) noexcept {
    return reinterpret_cast<Item*>(word & ~flags);
  }
  static Item* oldest_first(Item* newest) noexcept {
    Item* oldest = nullptr;
    while (newest) {
      Item* const older = static_cast<Item*>(newest->next);
      newest->next = oldest;
      oldest = newest;
      newest = older;
    }
    return oldest;
  }

  alignas(64) Atomic<std::uintptr_t> word_{0};
  Item* first_ = nullptr;  // The owner's.
};

}  // namespace reprise::detail

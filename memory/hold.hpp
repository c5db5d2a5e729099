// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/access.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/memory/taint.hpp>
#include <reprise/memory/uses.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace reprise {

class Hold;
struct PoolBlock;

/// Who is told that nobody owns a range any more: the device that gave it out.
class HoldOwner {
public:
  /// The last strong reference went, on any thread. The owner gives the memory back when its last
  /// users are done and then calls hold.forget().
  virtual void released(Hold& hold) noexcept = 0;
  /// Nothing refers to the record any more; the owner frees it.
  virtual void destroy(Hold& hold) noexcept = 0;

protected:
  ~HoldOwner() = default;
};

/// A counted record of ownership of one allocation of device memory: what a Buffer, a queued
/// command and a graph share. Slices are ranges of one hold.
///
/// Lifetime  Strong references (HoldRef) keep the memory; weak ones (WeakHold) only the record.
/// Threads   References may be copied and dropped on any thread. Everything in `device` belongs to
///           the device thread.
class Hold {
public:
  Hold(std::shared_ptr<HoldOwner> owner, std::uint64_t size) noexcept
      : owner_(std::move(owner)), size_(size) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  /// Bytes asked for.
  std::uint64_t size() const noexcept { return size_; }
  HoldOwner* owner() const noexcept { return owner_.get(); }

  /// The device thread's part.
  struct Device {
    enum class State : std::uint8_t {
      unbound,  ///< Asked for, its turn has not come.
      bound,    ///< `address` is its own.
      failed,   ///< The request failed; every byte carries `failure`.
    };
    State state = State::unbound;
    bool given_back = false;     ///< Nobody owns it, and its memory is the pool's again.
    std::uint32_t graphs = 0;    ///< Live graphs that name it: their replays look at its touches.
    std::uint32_t queued = 0;    ///< References of commands that the device has and that let go.
    std::uint64_t address = 0;   ///< Of its first byte.
    PoolBlock* block = nullptr;  ///< In the pool; null for a zero-sized or imported one.
    FailurePtr failure;
    TaintMap taint;
    UseMap uses;
  };
  Device device;

private:
  friend class HoldRef;
  friend class WeakHold;

  void add() noexcept { strong_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    // Pairs with itself: whoever takes it to zero must see what the others did with the memory.
    if (strong_.fetch_sub(1, std::memory_order_acq_rel) == 1) owner_->released(*this);
  }
  bool add_unless_gone() noexcept {
    auto count = strong_.load(std::memory_order_relaxed);
    while (count != 0) {
      if (strong_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void add_weak() noexcept { weak_.fetch_add(1, std::memory_order_relaxed); }

public:
  /// Drops the reference that all strong ones hold together; for the owner, after released().
  void forget() noexcept {
    if (weak_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const auto owner = std::move(owner_);  // outlives the record
      owner->destroy(*this);
    }
  }
  bool is_released() const noexcept { return strong_.load(std::memory_order_acquire) == 0; }

private:
  std::shared_ptr<HoldOwner> owner_;
  std::uint64_t size_;
  std::atomic<std::uint32_t> strong_{0};
  std::atomic<std::uint32_t> weak_{1};
};

/// A strong reference: the bytes stay allocated while it lives.
class HoldRef {
public:
  HoldRef() noexcept = default;
  explicit HoldRef(Hold* hold) noexcept : hold_(hold) {
    if (hold_) hold_->add();
  }
  HoldRef(const HoldRef& other) noexcept : HoldRef(other.hold_) {}
  HoldRef(HoldRef&& other) noexcept : hold_(std::exchange(other.hold_, nullptr)) {}
  HoldRef& operator=(HoldRef other) noexcept {
    std::swap(hold_, other.hold_);
    return *this;
  }
  ~HoldRef() {
    if (hold_) hold_->drop();
  }

  /// Owns nothing from here on, but goes on naming the record, which the caller keeps alive by
  /// other means until it takes the reference off by take_off().
  void let_go() const noexcept { hold_->drop(); }
  Hold* take_off() noexcept { return std::exchange(hold_, nullptr); }

  Hold* get() const noexcept { return hold_; }
  Hold* operator->() const noexcept { return hold_; }
  Hold& operator*() const noexcept { return *hold_; }
  explicit operator bool() const noexcept { return hold_ != nullptr; }
  friend bool operator==(const HoldRef&, const HoldRef&) noexcept = default;

private:
  friend class WeakHold;
  Hold* hold_ = nullptr;
};

/// A weak reference: remembers which allocation it was without keeping its bytes.
class WeakHold {
public:
  WeakHold() noexcept = default;
  explicit WeakHold(const HoldRef& hold) noexcept : hold_(hold.get()) {
    if (hold_) hold_->add_weak();
  }
  WeakHold(const WeakHold& other) noexcept : hold_(other.hold_) {
    if (hold_) hold_->add_weak();
  }
  WeakHold(WeakHold&& other) noexcept : hold_(std::exchange(other.hold_, nullptr)) {}
  WeakHold& operator=(WeakHold other) noexcept {
    std::swap(hold_, other.hold_);
    return *this;
  }
  ~WeakHold() {
    if (hold_) hold_->forget();
  }

  /// The allocation if anybody still owns it, else empty.
  HoldRef lock() const noexcept {
    HoldRef strong;
    if (hold_ && hold_->add_unless_gone()) strong.hold_ = hold_;
    return strong;
  }
  /// Names the allocation for comparisons; never dereference it.
  const void* key() const noexcept { return hold_; }

private:
  Hold* hold_ = nullptr;
};

/// Bytes of one allocation.
struct HoldRange {
  HoldRef hold;
  ByteRange range;
};

/// One entry of a command's byte sets.
struct Touch {
  HoldRef hold;
  ByteRange range;
  Access access = Access::none;
};

}  // namespace reprise

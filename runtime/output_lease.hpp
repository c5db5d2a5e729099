// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/buffer.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace reprise {

namespace detail {

/// Which copies of slots are leased, and how often.
///
/// Threads   take() is the device thread's; the rest any thread's.
class LeaseBook {
public:
  /// Throws std::bad_alloc.
  explicit LeaseBook(std::size_t copies)
      : counts_(std::make_unique<std::atomic<std::uint32_t>[]>(copies)) {}

  // Acquire: pairs with give(). What was given back before a submission counts no more when its
  // ticket is served, and whoever writes the copy then comes behind what its holder did.
  std::uint32_t total() const noexcept { return total_.load(std::memory_order_acquire); }
  bool is_leased(std::uint32_t copy) const noexcept {
    return counts_[copy].load(std::memory_order_acquire) != 0;
  }
  void take(std::uint32_t copy) noexcept {
    // Relaxed: who decides by these is this thread.
    total_.fetch_add(1, std::memory_order_relaxed);
    counts_[copy].fetch_add(1, std::memory_order_relaxed);
  }
  void give(std::uint32_t copy) noexcept {
    // Release: pairs with total() and is_leased().
    counts_[copy].fetch_sub(1, std::memory_order_release);
    total_.fetch_sub(1, std::memory_order_release);
  }

private:
  std::atomic<std::uint32_t> total_{0};
  std::unique_ptr<std::atomic<std::uint32_t>[]> counts_;
};

class Rotation;

}  // namespace detail

/// The output of a replay, held: until this is released no replay and no refresh of its graph
/// writes these bytes, or marks them. Other commands may; nothing waits for the holder.
///
/// Lifetime  Dropping it releases it. It keeps the memory, and may outlive graph and device.
/// Threads   One at a time; any thread.
class OutputLease {
public:
  /// Holds nothing.
  OutputLease() noexcept = default;
  OutputLease(OutputLease&& other) noexcept { swap(other); }
  OutputLease& operator=(OutputLease&& other) noexcept {
    OutputLease taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~OutputLease() { release(); }

  explicit operator bool() const noexcept { return book_ != nullptr; }
  /// The bytes, for any verb of a client; empty if it holds nothing. A buffer that was copied from
  /// here keeps the memory longer than this does, but not its contents.
  const Buffer& buffer() const noexcept { return buffer_; }
  /// The same as elements of T. Throws Failure misaligned.
  template <class T>
  Array<T> as() const {
    return buffer_.as<T>();
  }
  /// Lets replays that are submitted from here on write it, behind the reads submitted before.
  void release() noexcept {
    if (book_ == nullptr) return;
    book_->give(copy_);
    book_ = nullptr;
    buffer_ = {};
  }

private:
  friend class detail::Rotation;
  OutputLease(Buffer buffer, std::shared_ptr<detail::LeaseBook> book, std::uint32_t copy) noexcept
      : buffer_(std::move(buffer)), book_(std::move(book)), copy_(copy) {}
  void swap(OutputLease& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(book_, other.book_);
    std::swap(copy_, other.copy_);
  }

  Buffer buffer_;
  std::shared_ptr<detail::LeaseBook> book_;
  std::uint32_t copy_ = 0;
};

}  // namespace reprise

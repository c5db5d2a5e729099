// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/backend.hpp>
#include <reprise/device/host.hpp>
#include <reprise/runtime/completion.hpp>

#include <atomic>
#include <cstdint>

namespace reprise::detail {

/// One word that a thread blocks on until another sets it: spins, helps, then sleeps.
///
/// States: pending → ready, by set(). While pending the waiter may mark itself parked (a futex wake
/// is then owed by set()), and the device may leave an offer of help, which the waiter takes: from
/// then on it runs that stream's commands between its looks. Every move is a read-modify-write of
/// the word.
///
/// Threads  One waiter at a time. set() and offer() on any thread; set() once.
class WaitWord {
public:
  bool is_ready() const noexcept { return word_.load(std::memory_order_acquire) == ready; }
  /// The waiter may be gone as soon as this has changed the word: nothing is touched after it but
  /// the word's address, for a wake that is harmless if nobody sleeps there.
  void set() noexcept;
  /// Offers the waiter to run stream `stream`. False: it sleeps, or has its answer.
  bool offer(StreamIndex stream) noexcept;
  /// Blocks until set(). `backend` may be null: offers are then ignored.
  void wait(Host& host, Backend* backend) noexcept;
  /// The same until `deadline_ns` of the host's clock; false: it passed.
  bool wait_until(Host& host, Backend* backend, std::uint64_t deadline_ns) noexcept;

private:
  static constexpr std::uint32_t pending = 0;
  static constexpr std::uint32_t parked = 1;
  static constexpr std::uint32_t ready = 2;
  static constexpr std::uint32_t first_offer = 3;

  void take_offer(StreamIndex& helping) noexcept;

  std::atomic<std::uint32_t> word_{pending};
};

/// The reply of a blocking verb, on the blocked caller's own stack.
class alignas(64) BlockingReply : public Reply {
public:
  void complete(const FailurePtr& failure) noexcept override {
    failure_ = failure;
    word_.set();
  }
  bool offer_help(StreamIndex stream) noexcept override { return word_.offer(stream); }
  bool has_blocked_caller() const noexcept override { return true; }

  /// Waits and answers the failure, null for success.
  FailurePtr wait(Host& host, Backend* backend) noexcept {
    word_.wait(host, backend);
    return std::move(failure_);
  }

private:
  WaitWord word_;
  FailurePtr failure_;
};

/// Throws Failure would_deadlock if the calling thread is one that others wait for.
void refuse_library_threads(const char* verb);

}  // namespace reprise::detail

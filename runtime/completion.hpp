// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/check.hpp>
#include <reprise/memory/error.hpp>

#include <utility>

namespace reprise {

/// The device's end of one operation: somebody waits for an answer, in whatever way.
///
/// Lifetime  Owned by whoever waits. It stays valid until complete(); after that the device side
///           never touches it again.
/// Threads   start() on the device thread. complete() on the device thread or on the thread that
///           ran the command; it must not block and must not run user code.
class Reply {
public:
  /// The command is taken up. False: the operation was cancelled before; the command is dropped
  /// (its bytes get the mark the design asks for) and complete() follows all the same.
  virtual bool start() noexcept { return true; }
  /// After start() answered false: whether a deadline was why, and not a cancellation.
  virtual bool is_expired() const noexcept { return false; }
  /// The end, exactly once. Null: success.
  virtual void complete(const FailurePtr& failure) noexcept = 0;
  /// The answer will come from stream `stream`: a thread blocked on this reply may run that
  /// stream's commands itself until then. True: it has taken the offer.
  virtual bool offer_help(std::uint32_t /*stream*/) noexcept { return false; }
  /// A thread is blocked on the answer, and likely to be back with another command at once.
  virtual bool has_blocked_caller() const noexcept { return false; }

protected:
  ~Reply() = default;
};

/// A Reply that brings a value. The device side sets `value` before complete().
template <class T>
class ValueReply : public Reply {
public:
  T value{};

protected:
  ~ValueReply() = default;
};

/// The right and the duty to answer one Reply. Dropping it unanswered is a bug of the library.
class Completion {
public:
  Completion() noexcept = default;
  explicit Completion(Reply* reply) noexcept : reply_(reply) {}
  Completion(Completion&& other) noexcept : reply_(std::exchange(other.reply_, nullptr)) {}
  Completion& operator=(Completion&& other) noexcept {
    REPRISE_CHECK(reply_ == nullptr, "a pending completion is overwritten");
    reply_ = std::exchange(other.reply_, nullptr);
    return *this;
  }
  ~Completion() { REPRISE_CHECK(reply_ == nullptr, "a completion was dropped unanswered [I1]"); }

  explicit operator bool() const noexcept { return reply_ != nullptr; }
  Reply* get() const noexcept { return reply_; }
  /// Answers; empty completions ignore it.
  void operator()(const FailurePtr& failure) noexcept {
    if (Reply* reply = std::exchange(reply_, nullptr)) reply->complete(failure);
  }
  /// Gives the duty away.
  Reply* release() noexcept { return std::exchange(reply_, nullptr); }

private:
  Reply* reply_ = nullptr;
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/core.hpp>
#include <reprise/runtime/operation.hpp>

#include <memory>
#include <utility>

namespace reprise::detail {

/// An operation that calls `call(Actor&, Operation&)` when its turn comes, and stands between the
/// actor and the reply: what it tells the reply is `finish(const FailurePtr&)`, which may also set
/// the reply's value. `finish` is noexcept and runs where the operation is answered.
template <class Call, class Finish>
class AnsweredCall final : public Operation {
public:
  AnsweredCall(const char* verb_, Reply* reply, Call call, Finish finish) noexcept
      : Operation(verb_), call_(std::move(call)), answer_(reply, std::move(finish)) {}

  void accept(Actor& actor) override { call_(actor, *this); }
  /// What `accepted` or `finished` is to be.
  Reply* answer() noexcept { return &answer_; }

private:
  class Answer final : public Reply {
  public:
    Answer(Reply* to, Finish finish) noexcept : to_(to), finish_(std::move(finish)) {}

    bool start() noexcept override { return to_->start(); }
    bool is_expired() const noexcept override { return to_->is_expired(); }
    void complete(const FailurePtr& failure) noexcept override { to_->complete(finish_(failure)); }
    bool offer_help(std::uint32_t stream) noexcept override { return to_->offer_help(stream); }
    bool has_blocked_caller() const noexcept override { return to_->has_blocked_caller(); }

  private:
    Reply* const to_;
    Finish finish_;
  };

  Call call_;
  Answer answer_;
};

/// Makes one of the device itself. Throws std::bad_alloc.
template <class Call, class Finish>
auto* make_answered_call(DeviceCore& core, const char* verb, Reply* reply, Call call,
                         Finish finish) {
  return core.make<AnsweredCall<Call, Finish>>(0, verb, reply, std::move(call), std::move(finish));
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/async_operation.hpp>

#include <support/async_fixture.hpp>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace reprise::test {

/// Asynchronous operations in the way of the library's verbs, answered by the test.

/// Yields `value`, by the fixture's device.
template <class T, class Token>
auto async_value(AsyncFixture& fixture, T value, Token&& token, FailurePtr* failure = nullptr) {
  return detail::initiate<T>(
      fixture.context(), std::forward<Token>(token), failure,
      [&fixture, value = std::move(value)](ValueReply<T>* reply) mutable noexcept {
        fixture.answer_with(reply, std::move(value));
      });
}

/// Ends with `record`, by the fixture's device.
template <class T = void, class Token>
auto async_end(AsyncFixture& fixture, FailurePtr record, Token&& token,
               FailurePtr* failure = nullptr) {
  return detail::initiate<T>(fixture.context(), std::forward<Token>(token), failure,
                             [&fixture, record](typename detail::ReplyOf<T>::Type* reply) noexcept {
                               fixture.answer(reply, record);
                             });
}

/// Ends at once, on the initiating thread, as what the caller's side can tell does.
template <class Token>
auto async_early(AsyncFixture& fixture, FailurePtr record, Token&& token,
                 FailurePtr* failure = nullptr) {
  return detail::initiate<void>(fixture.context(), std::forward<Token>(token), failure,
                                [record](Reply* reply) noexcept { reply->complete(record); });
}

/// Stays pending: `out` gets the reply.
template <class T, class Token>
auto async_pending(AsyncFixture& fixture, typename detail::ReplyOf<T>::Type*& out, Token&& token,
                   FailurePtr* failure = nullptr) {
  return detail::initiate<T>(
      fixture.context(), std::forward<Token>(token), failure,
      [&out](typename detail::ReplyOf<T>::Type* reply) noexcept { out = reply; });
}

/// Counts what became of handlers: each is invoked or destroyed uninvoked, once.
class Ledger {
public:
  std::atomic<int> invoked{0};
  std::atomic<int> dropped{0};
  std::atomic<int> on_device{0};  ///< Ends of either kind on threads that must not see user code.

  void note(bool was_invoked) {
    ++(was_invoked ? invoked : dropped);
    if (detail::is_free_of_user_code(this_thread_role())) ++on_device;
  }
};

/// A handler's entry in the ledger. Moves only.
class Entry {
public:
  explicit Entry(Ledger& ledger) : ledger_(&ledger) {}
  Entry(Entry&& other) noexcept : ledger_(std::exchange(other.ledger_, nullptr)) {}
  Entry& operator=(Entry&&) = delete;
  ~Entry() {
    if (ledger_) ledger_->note(false);
  }
  void invoked() { std::exchange(ledger_, nullptr)->note(true); }

private:
  Ledger* ledger_;
};

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Asio of Boost 1.81 needs <utility> before it, which this brings.
#include <reprise/runtime/pending_operation.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/asio/thread_pool.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace reprise::detail {

namespace asio = boost::asio;

/// The PortQueue of one execution context, found through it, and ended with it.
///
/// Lifetime  Made by the first operation whose handler runs there, owned by the context.
class CompletionPort final : public asio::execution_context::service {
public:
  static asio::execution_context::id id;

  explicit CompletionPort(asio::execution_context& context)
      : service(context), queue_(new PortQueue(&context)) {}
  ~CompletionPort();

  PortQueue& queue() noexcept { return *queue_; }

private:
  void shutdown() override { queue_->shut_down(); }

  PortQueue* const queue_;
};

/// Makes an io_context, or a thread_pool, pump its queue.
void post_to_io_context(PortQueue& queue) noexcept;
void post_to_thread_pool(PortQueue& queue) noexcept;

/// Where a finished operation goes: into a queue, or else to a loop.
struct Route {
  PortQueue* queue = nullptr;
  JobLoop* loop = nullptr;
};

template <class E>
inline constexpr bool is_strand = false;
template <class E>
inline constexpr bool is_strand<asio::strand<E>> = true;

template <class E>
inline constexpr bool is_system_executor = false;
template <class... P>
inline constexpr bool is_system_executor<asio::basic_system_executor<P...>> = true;

template <class E>
inline constexpr PortQueue::Post typed_post = nullptr;
template <class A, std::uintptr_t bits>
inline constexpr PortQueue::Post typed_post<asio::io_context::basic_executor_type<A, bits>> =
    &post_to_io_context;
template <class A, unsigned bits>
inline constexpr PortQueue::Post typed_post<asio::thread_pool::basic_executor_type<A, bits>> =
    &post_to_thread_pool;
template <class E>
inline constexpr PortQueue::Post typed_post<asio::strand<E>> = typed_post<E>;

/// Executors that type-erased ones usually hold.
template <class... E>
struct Executors {};
template <class C>
using Tracked = decltype(asio::require(std::declval<typename C::executor_type>(),
                                       asio::execution::outstanding_work.tracked));
using UsualExecutors =
    Executors<asio::io_context::executor_type, Tracked<asio::io_context>,
              asio::strand<asio::io_context::executor_type>, asio::thread_pool::executor_type,
              Tracked<asio::thread_pool>, asio::strand<asio::thread_pool::executor_type>>;

template <class E>
concept ErasedExecutor = requires(const E& executor) {
  executor.target_type();
  executor.template target<asio::system_executor>();
};

/// How to post to the context of `executor`; null if that is not one of the two known kinds.
template <class E>
PortQueue::Post post_for(const E& executor) noexcept;

template <class E, class... Usual>
PortQueue::Post post_for_target(const E& executor, Executors<Usual...>) noexcept {
  PortQueue::Post post = nullptr;
  ((executor.template target<Usual>() != nullptr && (post = typed_post<Usual>)) || ...);
  if (post == nullptr) {
    const auto* strand = executor.template target<asio::strand<asio::any_io_executor>>();
    if (strand != nullptr) post = post_for(strand->get_inner_executor());
  }
  return post;
}

template <class E>
PortQueue::Post post_for(const E& executor) noexcept {
  if constexpr (ErasedExecutor<E>) {
    return post_for_target(executor, UsualExecutors());
  } else if constexpr (is_strand<E>) {
    return post_for(executor.get_inner_executor());
  } else {
    return typed_post<E>;
  }
}

template <class E>
bool holds_system_executor(const E& executor) noexcept {
  if constexpr (ErasedExecutor<E>) {
    return executor.template target<asio::system_executor>() != nullptr;
  } else {
    return is_system_executor<E>;
  }
}

/// The route for handlers that run on `executor`: the queue of its context. Handlers without an
/// executor of their own have the system executor and go to the courier; executors without a
/// context, such as that of asio::use_future, are fed by the completer. Throws std::bad_alloc.
template <class E>
Route route_for(const E& executor, AsyncContext& context) {
  if (holds_system_executor(executor)) return {nullptr, &context.courier};
  if constexpr (asio::can_query<const E&, asio::execution::context_t>::value) {
    asio::execution_context& owner = asio::query(executor, asio::execution::context);
    if (&owner == &asio::query(asio::system_executor(), asio::execution::context)) {
      return {nullptr, &context.completer};
    }
    PortQueue& queue = asio::use_service<CompletionPort>(owner).queue();
    if (queue.post() == nullptr) queue.set_post(post_for(executor));
    if (queue.post() != nullptr) return {&queue, nullptr};
  }
  return {nullptr, &context.completer};
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/async_operation.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/runtime.hpp>

#include <utility>

/// The token forms of the asynchronous verbs. Each takes any of Asio's completion tokens, with the
/// signature void(boost::system::error_code, T) for a result T, void(error_code) for none, and
/// CallOptions before it. The handler runs on its associated executor, once, never inside the call;
/// with no executor of its own it runs on the courier thread.
namespace reprise {

namespace detail {

template <class T, class Handle, class Start, class Token>
auto with_token(const Handle& handle, const char* verb, const CallOptions& options, Start start,
                Token&& token) {
  return initiate<T>(async_context(handle, verb), std::forward<Token>(token), options.failure,
                     deadline_ns(options), std::move(start));
}

}  // namespace detail

template <class Token>
auto Graph::async_replay(const CallOptions& options, Token&& token) const {
  return detail::with_token<void>(
      *this, "async_replay", options,
      [graph = *this](Reply* reply) noexcept { detail::start_replay(graph, {}, reply); },
      std::forward<Token>(token));
}

template <class Token>
requires(!std::is_convertible_v<Token, BindingView>) auto Graph::async_replay(Token&& token) const {
  return async_replay(CallOptions{}, std::forward<Token>(token));
}

template <class Token>
auto Graph::async_replay(BindingView bindings, const CallOptions& options, Token&& token) const {
  return detail::with_token<void>(
      *this, "async_replay", options,
      [graph = *this, kept = detail::KeptBindings(bindings)](Reply* reply) noexcept {
        detail::start_replay(graph, kept.view(), reply);
      },
      std::forward<Token>(token));
}

template <class Token>
auto Graph::async_replay(BindingView bindings, Token&& token) const {
  return async_replay(bindings, CallOptions{}, std::forward<Token>(token));
}

template <class Token>
auto Graph::async_run(const CallOptions& options, Token&& token) const {
  return detail::with_token<void>(
      *this, "async_run", options,
      [graph = *this](Reply* reply) noexcept { detail::start_run(graph, {}, reply); },
      std::forward<Token>(token));
}

template <class Token>
requires(!std::is_convertible_v<Token, BindingView>) auto Graph::async_run(Token&& token) const {
  return async_run(CallOptions{}, std::forward<Token>(token));
}

template <class Token>
auto Graph::async_run(BindingView bindings, const CallOptions& options, Token&& token) const {
  return detail::with_token<void>(
      *this, "async_run", options,
      [graph = *this, kept = detail::KeptBindings(bindings)](Reply* reply) noexcept {
        detail::start_run(graph, kept.view(), reply);
      },
      std::forward<Token>(token));
}

template <class Token>
auto Graph::async_run(BindingView bindings, Token&& token) const {
  return async_run(bindings, CallOptions{}, std::forward<Token>(token));
}

}  // namespace reprise

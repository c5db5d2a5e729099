// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/async_operation.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/graph.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// The token forms of the asynchronous verbs. Each takes any of Asio's completion tokens, with the
/// signature void(boost::system::error_code, T) for a result T, void(error_code) for none. The
/// handler runs on its associated executor, once, never inside the call; with no executor of its
/// own it runs on the courier thread.
namespace reprise {

namespace detail {

template <class T, class Handle, class Token, class Start>
auto with_token(const Handle& handle, const char* verb, Token&& token, FailurePtr* failure,
                Start start) {
  return initiate<T>(async_context(handle, verb), std::forward<Token>(token), failure,
                     std::move(start));
}

template <class... A, class Arguments>
auto launch_with_token(const Client& client, const Kernel<void(A...)>& kernel, const Grid& grid,
                       Arguments&& arguments) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    // Deferred tokens start later: the operation keeps copies of what it is to bind.
    auto start = [client, kernel, grid,
                  bound = std::make_tuple(std::get<I>(arguments)...)](Reply* reply) noexcept {
      post_accepted(reply, "launch", [&] {
        const auto values =
            std::apply([](const auto&... each) { return LaunchArguments<A...>(each...); }, bound);
        return make_launch(client, kernel.definition(), grid, values.view());
      });
    };
    return with_token<void>(client, "async_launch", std::get<sizeof...(A)>(std::move(arguments)),
                            nullptr, std::move(start));
  }
  (std::index_sequence_for<A...>{});
}

}  // namespace detail

template <class Token>
auto Client::async_copy(const Buffer& to, const Buffer& from, Token&& token) const {
  return detail::with_token<void>(
      *this, "async_copy", std::forward<Token>(token), nullptr,
      [client = *this, to, from](Reply* reply) noexcept {
        detail::post_accepted(reply, "copy", [&] { return detail::make_copy(client, to, from); });
      });
}

template <class T, class Token>
auto Client::async_fill(const Array<T>& array, const std::type_identity_t<T>& value,
                        Token&& token) const {
  return detail::with_token<void>(
      *this, "async_fill", std::forward<Token>(token), nullptr,
      [client = *this, array, value](Reply* reply) noexcept {
        detail::post_accepted(reply, "fill", [&] { return client.make_fill(array, value); });
      });
}

template <class Token>
auto Client::async_host_call(const ByteSets& sets, std::function<void()> function,
                             Token&& token) const {
  return detail::with_token<void>(
      *this, "async_host_call", std::forward<Token>(token), nullptr,
      [client = *this, sets, function = std::move(function)](Reply* reply) noexcept {
        detail::post_accepted(reply, "host_call",
                              [&] { return detail::make_host_call(client, sets, function); });
      });
}

template <class T, class Token>
auto Client::async_write(const Array<T>& array, std::span<const std::type_identity_t<T>> values,
                         Token&& token) const {
  return detail::with_token<void>(*this, "async_write", std::forward<Token>(token), nullptr,
                                  [client = *this, array, values](Reply* reply) noexcept {
                                    detail::start_write(client, array, std::as_bytes(values),
                                                        reply);
                                  });
}

template <class T, class Token>
auto Client::async_read(const Array<T>& array, const CallOptions& options, Token&& token) const {
  return detail::with_token<std::vector<T>>(
      *this, "async_read", std::forward<Token>(token), options.failure,
      [client = *this, array](ValueReply<std::vector<T>>* reply) noexcept {
        detail::start_read(client, array, *reply);
      });
}

template <class T, class Token>
auto Client::async_read(const Array<T>& array, Token&& token) const {
  return async_read(array, CallOptions{}, std::forward<Token>(token));
}

template <class Token>
auto Client::async_read(const Buffer& buffer, Token&& token) const {
  return detail::with_token<HostBytes>(
      *this, "async_read", std::forward<Token>(token), nullptr,
      [client = *this, buffer](ValueReply<HostBytes>* reply) noexcept {
        detail::start_read(client, buffer, *reply);
      });
}

template <class Token>
auto Client::async_flush(Token&& token) const {
  return detail::with_token<void>(
      *this, "async_flush", std::forward<Token>(token), nullptr,
      [client = *this](Reply* reply) noexcept { detail::start_flush(client, reply); });
}

template <class Token>
auto Client::async_synchronize(Token&& token) const {
  return detail::with_token<void>(
      *this, "async_synchronize", std::forward<Token>(token), nullptr,
      [client = *this](Reply* reply) noexcept { detail::start_synchronize(client, reply); });
}

template <class Token>
auto Graph::async_replay(Token&& token) const {
  return detail::with_token<void>(
      *this, "async_replay", std::forward<Token>(token), nullptr,
      [graph = *this](Reply* reply) noexcept { detail::start_replay(graph, reply); });
}

template <class Token>
auto Graph::async_run(Token&& token) const {
  return detail::with_token<void>(
      *this, "async_run", std::forward<Token>(token), nullptr,
      [graph = *this](Reply* reply) noexcept { detail::start_run(graph, reply); });
}

}  // namespace reprise

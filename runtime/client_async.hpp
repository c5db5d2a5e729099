// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/client.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// The definitions of the async_ forms of Client, and of Graph where they have a tail; client.hpp
/// brings them.
namespace reprise {

namespace detail {

template <class T, class Build>
void post_made(ValueReply<Array<T>>& reply, const char* verb, Build&& build) noexcept {
  post_accepted(&reply, verb, [&] {
    Buffer made;
    Operation* const operation = build(made);
    reply.value = BufferAccess::array<T>(std::move(made));
    return operation;
  });
}

inline std::vector<Buffer> buffer_list(std::span<const Buffer> buffers) {
  return {buffers.begin(), buffers.end()};
}

/// async_launch with its tail behind the kernel's arguments.
template <class... A, class G, std::size_t... I, std::size_t... J, class Arguments>
auto launch_with_tail(const Client& client, const Kernel<void(A...)>& kernel, const G& grid,
                      std::index_sequence<I...>, std::index_sequence<J...>, Arguments arguments) {
  // Lazy tokens start later: the operation keeps copies of what it is to bind.
  auto start = [client, kernel, grid,
                bound = std::make_tuple(std::get<I>(arguments)...)](Reply* reply) noexcept {
    post_accepted(reply, "launch", [&] {
      const auto values =
          std::apply([](const auto&... each) { return LaunchArguments<A...>(each...); }, bound);
      return make_launch(client, kernel.definition(), launch_grid(grid), values.view());
    });
  };
  return begin_async<void>(client, "async_launch", std::move(start),
                           std::get<sizeof...(A) + J>(std::move(arguments))...);
}

/// async_launch over either kind of grid.
template <class... A, class G, class... X>
auto async_launch(const Client& client, const Kernel<void(A...)>& kernel, const G& grid,
                  X&&... arguments) {
  if constexpr (sizeof...(X) == sizeof...(A)) {
    return future_of<void>(client, "async_launch", [&](Reply* reply) noexcept {
      post_accepted(reply, "launch", [&] {
        LaunchArguments<A...> bound(arguments...);
        return make_launch(client, kernel.definition(), launch_grid(grid), bound.view());
      });
    });
  } else {
    static_assert(sizeof...(X) == sizeof...(A) + 1 || sizeof...(X) == sizeof...(A) + 2,
                  "async_launch takes the kernel's arguments and perhaps a completion token, with "
                  "CallOptions before it");
    return launch_with_tail<A...>(client, kernel, grid, std::index_sequence_for<A...>(),
                                  std::make_index_sequence<sizeof...(X) - sizeof...(A)>(),
                                  std::forward_as_tuple(std::forward<X>(arguments)...));
  }
}

}  // namespace detail

// ---- memory ------------------------------------------------------------------------------------

template <class T, class... Tail>
auto Client::async_empty(std::size_t count, Tail&&... tail) const {
  return detail::begin_async<Array<T>>(
      *this, "async_empty",
      [client = *this, count](ValueReply<Array<T>>* reply) noexcept {
        detail::post_made(*reply, "empty", [&](Buffer& made) {
          return detail::make_empty(client, detail::byte_count<T>("empty", count), made);
        });
      },
      std::forward<Tail>(tail)...);
}

template <class T, class... Tail>
auto Client::async_zeros(std::size_t count, Tail&&... tail) const {
  return detail::begin_async<Array<T>>(
      *this, "async_zeros",
      [client = *this, count](ValueReply<Array<T>>* reply) noexcept {
        detail::post_made(*reply, "zeros", [&](Buffer& made) {
          return detail::make_zeros(client, detail::byte_count<T>("zeros", count), made);
        });
      },
      std::forward<Tail>(tail)...);
}

template <class T, class... Tail>
auto Client::async_create(std::span<const std::type_identity_t<T>> values, Tail&&... tail) const {
  return detail::begin_async<Array<T>>(
      *this, "async_create",
      [client = *this,
       bytes = detail::keep_bytes(std::as_bytes(values))](ValueReply<Array<T>>* reply) noexcept {
        detail::post_made(*reply, "create",
                          [&](Buffer& made) { return detail::make_create(client, bytes, made); });
      },
      std::forward<Tail>(tail)...);
}

template <class T, class... Tail>
auto Client::async_create_many(std::span<const std::size_t> counts, Tail&&... tail) const {
  using Arrays = std::vector<Array<T>>;
  return detail::begin_async<Arrays>(
      *this, "async_create_many",
      [client = *this, counts = std::vector<std::size_t>(counts.begin(), counts.end())](
          ValueReply<Arrays>* reply) noexcept {
        detail::post_accepted(reply, "create_many", [&] {
          const auto bytes = detail::byte_counts<T>("create_many", counts);
          std::vector<Buffer> parts;
          detail::Operation* const operation = detail::make_carved(client, bytes, parts);
          reply->value = detail::typed_parts<T>(std::move(parts));
          return operation;
        });
      },
      std::forward<Tail>(tail)...);
}

// ---- work --------------------------------------------------------------------------------------

template <class... A, class... X>
auto Client::async_launch(const Kernel<void(A...)>& kernel, const Grid& grid,
                          X&&... arguments) const {
  return detail::async_launch(*this, kernel, grid, std::forward<X>(arguments)...);
}

template <class... A, class... X>
auto Client::async_launch(const Kernel<void(A...)>& kernel, const IndirectGrid<>& grid,
                          X&&... arguments) const {
  return detail::async_launch(*this, kernel, grid, std::forward<X>(arguments)...);
}

template <class... Tail>
auto Client::async_copy(const Buffer& to, const Buffer& from, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_copy",
      [client = *this, to, from](Reply* reply) noexcept {
        detail::post_accepted(reply, "copy", [&] { return detail::make_copy(client, to, from); });
      },
      std::forward<Tail>(tail)...);
}

template <class T, class... Tail>
auto Client::async_fill(const Array<T>& array, const std::type_identity_t<T>& value,
                        Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_fill",
      [client = *this, array, value](Reply* reply) noexcept {
        detail::post_accepted(reply, "fill", [&] { return client.make_fill(array, value); });
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_host_call(const ByteSets& sets, std::function<void()> function,
                             Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_host_call",
      [client = *this, sets, function = std::move(function)](Reply* reply) noexcept {
        detail::post_accepted(reply, "host_call",
                              [&] { return detail::make_host_call(client, sets, function); });
      },
      std::forward<Tail>(tail)...);
}

template <class T, class... Tail>
auto Client::async_write(const Array<T>& array, std::span<const std::type_identity_t<T>> values,
                         Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_write",
      [client = *this, array, values](Reply* reply) noexcept {
        detail::start_write(client, array, std::as_bytes(values), reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_write(const Buffer& buffer, HostBytes bytes, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_write",
      [client = *this, buffer, bytes = std::move(bytes)](Reply* reply) mutable noexcept {
        detail::post_accepted(reply, "write",
                              [&] { return detail::make_write(client, buffer, std::move(bytes)); });
      },
      std::forward<Tail>(tail)...);
}

// ---- answers -----------------------------------------------------------------------------------

template <class T, class... Tail>
auto Client::async_read(const Array<T>& array, Tail&&... tail) const {
  return detail::begin_async<std::vector<T>>(
      *this, "async_read",
      [client = *this, array](ValueReply<std::vector<T>>* reply) noexcept {
        detail::start_read(client, array, *reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_read(const Buffer& buffer, Tail&&... tail) const {
  return detail::begin_async<HostBytes>(
      *this, "async_read",
      [client = *this, buffer](ValueReply<HostBytes>* reply) noexcept {
        detail::start_read(client, buffer, *reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_check(std::span<const Buffer> buffers, Tail&&... tail) const {
  return detail::begin_async<Health>(
      *this, "async_check",
      [client = *this, buffers = detail::buffer_list(buffers)](ValueReply<Health>* reply) noexcept {
        detail::start_check(client, buffers, *reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_check(std::initializer_list<Buffer> buffers, Tail&&... tail) const {
  return async_check(std::span<const Buffer>(buffers.begin(), buffers.size()),
                     std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_restore(std::span<const Buffer> buffers, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_restore",
      [client = *this, buffers = detail::buffer_list(buffers)](Reply* reply) noexcept {
        detail::start_restore(client, buffers, reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_restore(std::initializer_list<Buffer> buffers, Tail&&... tail) const {
  return async_restore(std::span<const Buffer>(buffers.begin(), buffers.size()),
                       std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_flush(Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_flush",
      [client = *this](Reply* reply) noexcept { detail::start_flush(client, reply); },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_synchronize(Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_synchronize",
      [client = *this](Reply* reply) noexcept { detail::start_synchronize(client, reply); },
      std::forward<Tail>(tail)...);
}

// ---- events ------------------------------------------------------------------------------------

template <class... Tail>
auto Client::async_record(const EventOptions& options, Tail&&... tail) const {
  return detail::begin_async<Event>(
      *this, "async_record",
      [client = *this, options](ValueReply<Event>* reply) noexcept {
        detail::post_accepted(reply, "record",
                              [&] { return detail::make_record(client, options, reply->value); });
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
requires(!detail::starts_with<EventOptions, Tail...>) auto Client::async_record(
    Tail&&... tail) const {
  return async_record(EventOptions{}, std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_wait(const Event& event, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_wait",
      [client = *this, event](Reply* reply) noexcept {
        detail::post_accepted(reply, "wait", [&] { return detail::make_wait(client, event); });
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_join(const Client& other, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_join",
      [client = *this, other](Reply* reply) noexcept {
        detail::post_accepted(reply, "join", [&] { return detail::make_join(client, other); });
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_replay(const Graph& graph, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_replay",
      [client = *this, graph](Reply* reply) noexcept {
        detail::post_accepted(reply, "replay",
                              [&] { return detail::make_client_replay(client, graph); });
      },
      std::forward<Tail>(tail)...);
}

// ---- capture -----------------------------------------------------------------------------------

template <class F, class... Tail>
auto Client::async_capture(F&& function, const CaptureOptions& options, Tail&&... tail) const {
  return detail::begin_async<Graph>(
      *this, "async_capture",
      [client = *this, function = std::decay_t<F>(std::forward<F>(function)),
       growth = options.growth,
       name = std::string(options.name)](ValueReply<Graph>* reply) mutable noexcept {
        detail::start_capture(client, detail::record_function(function),
                              {.growth = growth, .name = name}, *reply);
      },
      std::forward<Tail>(tail)...);
}

template <class F, class... Tail>
requires(!detail::starts_with<CaptureOptions, Tail...>) auto Client::async_capture(
    F&& function, Tail&&... tail) const {
  return async_capture(std::forward<F>(function), CaptureOptions{}, std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_prepare_capture(const CaptureOptions& options, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_prepare_capture",
      [client = *this, growth = options.growth,
       name = std::string(options.name)](Reply* reply) noexcept {
        detail::start_prepare_capture(client, {.growth = growth, .name = name}, reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
requires(!detail::starts_with<CaptureOptions, Tail...>) auto Client::async_prepare_capture(
    Tail&&... tail) const {
  return async_prepare_capture(CaptureOptions{}, std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_start_capture(Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_start_capture",
      [client = *this](Reply* reply) noexcept { detail::start_start_capture(client, reply); },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_stop_capture(Tail&&... tail) const {
  return detail::begin_async<Graph>(
      *this, "async_stop_capture",
      [client = *this](ValueReply<Graph>* reply) noexcept {
        detail::start_stop_capture(client, *reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Client::async_abort_capture(Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_abort_capture",
      [client = *this](Reply* reply) noexcept { detail::start_abort_capture(client, reply); },
      std::forward<Tail>(tail)...);
}

// ---- graphs ------------------------------------------------------------------------------------

template <std::ranges::contiguous_range Values, class... Tail>
auto Graph::async_refresh(std::string_view slot, const Values& values, Tail&&... tail) const {
  return detail::begin_async<void>(
      *this, "async_refresh",
      [graph = *this, slot = std::string(slot),
       bytes = detail::keep_bytes(std::as_bytes(std::span(values)))](Reply* reply) noexcept {
        detail::start_refresh(graph, slot, {bytes.data.get(), bytes.size},
                              detail::element_of<Values>(), reply);
      },
      std::forward<Tail>(tail)...);
}

template <class... Tail>
auto Graph::async_lease(std::string_view slot, Tail&&... tail) const {
  return detail::begin_async<OutputLease>(
      *this, "async_lease",
      [graph = *this, slot = std::string(slot)](ValueReply<OutputLease>* reply) noexcept {
        detail::start_lease(graph, slot, *reply);
      },
      std::forward<Tail>(tail)...);
}

}  // namespace reprise

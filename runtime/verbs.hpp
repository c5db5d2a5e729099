// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/buffer.hpp>
#include <reprise/runtime/completion.hpp>
#include <reprise/runtime/future.hpp>
#include <reprise/runtime/options.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// What stands between the typed verbs of the handles and the operations they submit: one builder
/// per verb, and one way to submit per form.
namespace reprise {

class Client;
class Device;
class Event;
class Graph;
struct Binding;
struct ByteSets;
struct CaptureOptions;
struct EventOptions;
struct SlotPolicy;
enum class Health : std::uint8_t;

namespace detail {

class DeviceCore;
class LogicalStream;
class Operation;
struct CloseRequest;
struct NodePlace;

/// `count` elements of T in bytes; Failure never_fits if that overflows.
std::uint64_t checked_bytes(const char* verb, std::uint64_t count, std::uint64_t element);
template <class T>
std::uint64_t byte_count(const char* verb, std::uint64_t count) {
  return checked_bytes(verb, count, sizeof(T));
}

template <class T>
std::vector<std::uint64_t> byte_counts(const char* verb, std::span<const std::size_t> counts) {
  std::vector<std::uint64_t> bytes;
  for (const std::size_t count : counts) bytes.push_back(byte_count<T>(verb, count));
  return bytes;
}

// ---- kernel arguments --------------------------------------------------------------------------

/// One buffer argument of a launch.
struct BoundBuffer {
  const Buffer* buffer = nullptr;
  Access access = Access::none;
  std::uint32_t offset = 0;  ///< Of its slot in the argument block.
};

/// The arguments of one launch: a block with scalars and counts filled in, and the buffers whose
/// addresses are not known before the launch's turn comes.
struct ArgumentView {
  std::span<const std::byte> block;
  std::span<const BoundBuffer> buffers;
};

template <class... A>
class LaunchArguments {
public:
  template <class... X>
  explicit LaunchArguments(const X&... arguments) {
    static_assert(sizeof...(X) == sizeof...(A),
                  "a launch takes exactly the arguments that its kernel declares");
    [[maybe_unused]] std::size_t i = 0;
    [[maybe_unused]] std::size_t next = 0;
    (bind<A>(layout[i++], next, arguments), ...);
  }

  ArgumentView view() const noexcept { return {{block_, layout[sizeof...(A)]}, buffers_}; }

private:
  static constexpr auto layout = argument_layout<A...>();
  static constexpr std::size_t buffer_count = (std::size_t{BufferArgument<A>} + ... + 0);

  template <class P, class X>
  void bind(std::uint32_t offset, std::size_t& next, const X& argument) {
    if constexpr (BufferArgument<P>) {
      using Element = typename P::value_type;
      static_assert(std::is_convertible_v<const X&, const Array<Element>&>,
                    "this parameter of the kernel is a buffer: pass an Array of its element type");
      const Array<Element>& array = argument;
      buffers_[next++] = {&array, P::access, offset};
      const BufferSlot slot{nullptr, array.size()};
      std::memcpy(block_ + offset, &slot, sizeof slot);
    } else {
      static_assert(std::is_convertible_v<const X&, P>,
                    "this parameter of the kernel is a scalar of another type");
      const P value = static_cast<P>(argument);
      std::memcpy(block_ + offset, &value, sizeof value);
    }
  }

  alignas(16) std::byte block_[layout[sizeof...(A)] + 1] = {};
  std::array<BoundBuffer, buffer_count> buffers_;
};

/// A grid, and the buffer that says how many of its blocks run, if there is one.
struct LaunchGrid {
  const Grid& grid;
  const Buffer* count = nullptr;
};

// ---- builders ----------------------------------------------------------------------------------
// They check what the calling thread can see and throw Failure. The operation they answer is to be
// submitted exactly once.

/// Host bytes that an operation and others share.
struct KeptBytes {
  std::shared_ptr<const std::byte[]> data;
  std::uint64_t size = 0;
};
/// A copy of `bytes`.
KeptBytes keep_bytes(std::span<const std::byte> bytes);

Operation* make_empty(const Client& client, std::uint64_t bytes, Buffer& made);
/// Find the memory and write it, in one command.
Operation* make_zeros(const Client& client, std::uint64_t bytes, Buffer& made);
Operation* make_create(const Client& client, KeptBytes bytes, Buffer& made);
/// One allocation for `bytes` each.
Operation* make_carved(const Client& client, std::span<const std::uint64_t> bytes,
                       std::vector<Buffer>& parts);
Operation* make_launch(const Client& client, const KernelRef& kernel, const LaunchGrid& grid,
                       const ArgumentView& arguments);
Operation* make_copy(const Client& client, const Buffer& to, const Buffer& from);
Operation* make_fill(const Client& client, const Buffer& buffer, std::uint64_t pattern,
                     std::uint32_t pattern_bytes, const char* verb);
Operation* make_write(const Client& client, const Buffer& buffer, HostBytes bytes);
Operation* make_write(const Client& client, const Buffer& buffer, KeptBytes bytes);
Operation* make_client_replay(const Client& client, const Graph& graph);
Operation* make_host_call(const Client& client, const ByteSets& sets,
                          std::function<void()> function);

// ---- forms -------------------------------------------------------------------------------------

/// The plain posting form.
void post(Operation* operation);
/// The try_ form: false for would_block.
bool try_post(Operation* operation);
/// The async_ form of a posting verb: `reply` answers when it is accepted, or why it was not.
void post_accepted(Reply* reply, Operation* operation) noexcept;
/// Answers `reply` with the exception in flight.
void answer_exception(Reply* reply, const char* verb) noexcept;
template <class Build>
void post_accepted(Reply* reply, const char* verb, Build&& build) noexcept {
  Operation* operation = nullptr;
  try {
    operation = build();
  } catch (...) {
    return answer_exception(reply, verb);
  }
  post_accepted(reply, operation);
}

void post_write(const Client& client, const Buffer& buffer, std::span<const std::byte> bytes);
void start_write(const Client& client, const Buffer& buffer, std::span<const std::byte> bytes,
                 Reply* reply) noexcept;
void read(const Client& client, const Buffer& buffer, std::span<std::byte> into);
void start_read(const Client& client, const Buffer& buffer, std::span<std::byte> into,
                Reply* reply) noexcept;
void start_check(const Client& client, std::span<const Buffer> buffers,
                 ValueReply<Health>& reply) noexcept;
void start_restore(const Client& client, std::span<const Buffer> buffers, Reply* reply) noexcept;
void start_flush(const Client& client, Reply* reply) noexcept;
void start_synchronize(const Client& client, Reply* reply) noexcept;

template <class T>
void start_read(const Client& client, const Array<T>& array,
                ValueReply<std::vector<T>>& reply) noexcept {
  try {
    reply.value.resize(array.size());
  } catch (...) {
    return answer_exception(&reply, "read");
  }
  start_read(client, array, std::as_writable_bytes(std::span<T>(reply.value)), &reply);
}
inline void start_read(const Client& client, const Buffer& buffer,
                       ValueReply<HostBytes>& reply) noexcept {
  try {
    reply.value = HostBytes(buffer.size_bytes());
  } catch (...) {
    return answer_exception(&reply, "read");
  }
  start_read(client, buffer, {reply.value.data(), reply.value.size()}, &reply);
}

template <class T>
std::vector<Array<T>> typed_parts(std::vector<Buffer> parts) {
  std::vector<Array<T>> arrays;
  for (Buffer& part : parts) arrays.push_back(BufferAccess::array<T>(std::move(part)));
  return arrays;
}

// ---- events and captures -----------------------------------------------------------------------

Operation* make_record(const Client& client, const EventOptions& options, Event& made);
Operation* make_wait(const Client& client, const Event& event);
Operation* make_join(const Client& client, const Client& other);

/// Names a buffer a slot of the window.
void post_slot(const Client& client, const Binding& slot, const SlotPolicy& policy);

/// A function of the user's that records, without its type.
struct RecordFunction {
  void (*call)(void* context, Client& client) = nullptr;
  void* context = nullptr;
};
template <class F>
RecordFunction record_function(F& function) {
  static_assert(std::is_invocable_v<F&, Client&>, "capture calls function(Client&)");
  return {[](void* context, Client& client) { (*static_cast<F*>(context))(client); },
          const_cast<void*>(static_cast<const void*>(std::addressof(function)))};
}
Graph capture(const Client& client, RecordFunction function, const CaptureOptions& options);
/// The graph, or null and the reason; a window that did not seal leaves no marks. Throws what
/// `function` throws, unless it is a Failure.
Graph try_capture(const Client& client, RecordFunction function, const CaptureOptions& options,
                  FailurePtr& reason);
/// The same as capture() for a graph by hand: place_next() comes before each command. A failure
/// marks no bytes.
Graph build(const Client& client, RecordFunction function, std::string_view name);
void place_next(const Client& inside, NodePlace place);
/// Calls `function` before it returns.
void start_capture(const Client& client, RecordFunction function, const CaptureOptions& options,
                   ValueReply<Graph>& reply) noexcept;
void start_prepare_capture(const Client& client, const CaptureOptions& options,
                           Reply* reply) noexcept;
void start_start_capture(const Client& client, Reply* reply) noexcept;
void start_stop_capture(const Client& client, ValueReply<Graph>& reply) noexcept;
void start_abort_capture(const Client& client, Reply* reply) noexcept;

// ---- the end of an async_ call -----------------------------------------------------------------

/// What making a Future or an asynchronous operation needs of a device; throws empty_handle.
AsyncContext async_context(const Client& client, const char* verb);
AsyncContext async_context(const CloseRequest& request, const char* verb);
AsyncContext async_context(const Device& device, const char* verb);
AsyncContext async_context(const Event& event, const char* verb);
AsyncContext async_context(const Graph& graph, const char* verb);

template <class T, class Handle, class Start>
Future<T> future_of(const Handle& handle, const char* verb, Start&& start) {
  return make_future<T>(async_context(handle, verb), std::forward<Start>(start));
}
template <class T, class Handle, class Start>
Future<T> future_of(const Handle& handle, Start&& start) {
  return future_of<T>(handle, "async", std::forward<Start>(start));
}

/// Defined in async.hpp.
template <class T, class Handle, class Start, class Token>
auto with_token(const Handle& handle, const char* verb, const CallOptions& options, Start start,
                Token&& token);

/// Whether a tail of arguments begins with Options.
template <class Options, class... Tail>
inline constexpr bool starts_with = false;
template <class Options, class First, class... Rest>
inline constexpr bool starts_with<Options, First, Rest...> =
    std::is_same_v<std::decay_t<First>, Options>;

/// Starts an operation in the form that `tail` asks for: nothing for a Future, a completion token,
/// or CallOptions and a token. `start` is noexcept, is called with the reply to answer, and owns
/// what it needs: with a lazy token it is called later.
template <class T, class Handle, class Start, class... Tail>
auto begin_async(const Handle& handle, const char* verb, Start start, Tail&&... tail) {
  constexpr std::size_t count = sizeof...(Tail);
  if constexpr (count == 0) {
    return future_of<T>(handle, verb, std::move(start));
  } else if constexpr (count == 1) {
    static_assert(!starts_with<CallOptions, Tail...>,
                  "behind CallOptions stands a completion token");
    return with_token<T>(handle, verb, CallOptions{}, std::move(start),
                         std::forward<Tail>(tail)...);
  } else {
    static_assert(count == 2 && starts_with<CallOptions, Tail...>,
                  "what follows is nothing, a completion token, or CallOptions and a token");
    return [&](const CallOptions& options, auto&& token) {
      return with_token<T>(handle, verb, options, std::move(start),
                           std::forward<decltype(token)>(token));
    }(std::forward<Tail>(tail)...);
  }
}

}  // namespace detail
}  // namespace reprise

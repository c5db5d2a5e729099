// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/kernel.hpp>
#include <reprise/runtime/buffer.hpp>
#include <reprise/runtime/completion.hpp>
#include <reprise/runtime/future.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

/// What stands between the typed verbs of the handles and the operations they submit: one builder
/// per verb, and one way to submit per form.
namespace reprise {

class Client;
class Graph;
struct ByteSets;
struct CaptureOptions;

namespace detail {

class DeviceCore;
class LogicalStream;
class Operation;

/// `count` elements of T in bytes; Failure never_fits if that overflows.
std::uint64_t checked_bytes(const char* verb, std::uint64_t count, std::uint64_t element);
template <class T>
std::uint64_t byte_count(const char* verb, std::uint64_t count) {
  return checked_bytes(verb, count, sizeof(T));
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

// ---- builders ----------------------------------------------------------------------------------
// They check what the calling thread can see and throw Failure. The operation they answer is to be
// submitted exactly once.

Operation* make_launch(const Client& client, const KernelRef& kernel, const Grid& grid,
                       const ArgumentView& arguments);
Operation* make_copy(const Client& client, const Buffer& to, const Buffer& from);
Operation* make_fill(const Client& client, const Buffer& buffer, std::uint64_t pattern,
                     std::uint32_t pattern_bytes, const char* verb);
Operation* make_write(const Client& client, const Buffer& buffer, HostBytes bytes);
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

void post_fill(const Client& client, const Buffer& buffer, std::uint64_t pattern,
               std::uint32_t pattern_bytes, const char* verb);
void post_write(const Client& client, const Buffer& buffer, std::span<const std::byte> bytes);
void start_write(const Client& client, const Buffer& buffer, std::span<const std::byte> bytes,
                 Reply* reply) noexcept;
void read(const Client& client, const Buffer& buffer, std::span<std::byte> into);
void start_read(const Client& client, const Buffer& buffer, std::span<std::byte> into,
                Reply* reply) noexcept;
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

/// A function of the user's that records, without its type.
struct RecordFunction {
  void (*call)(void* context, Client& client) = nullptr;
  void* context = nullptr;
};
Graph capture(const Client& client, RecordFunction function, const CaptureOptions& options);

// ---- futures -----------------------------------------------------------------------------------

/// What making a Future or an asynchronous operation needs of a device; throws empty_handle.
AsyncContext async_context(const Client& client, const char* verb);
AsyncContext async_context(const Graph& graph, const char* verb);

template <class T, class Handle, class Start>
Future<T> future_of(const Handle& handle, Start&& start) {
  return make_future<T>(async_context(handle, "async"), std::forward<Start>(start));
}

}  // namespace detail
}  // namespace reprise

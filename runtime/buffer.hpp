// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/hold.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace reprise {

template <class T>
class Array;

namespace detail {
struct BufferAccess;
[[noreturn]] void bad_slice(std::uint64_t offset, std::uint64_t count, std::uint64_t size);
[[noreturn]] void bad_cast(const char* what, std::uint64_t value, std::uint64_t unit);
}  // namespace detail

/// A hold on a range of device memory.
///
/// Copies and slices share the allocation; the last one gives the memory back, once the work that
/// uses it is done. The bytes are on the device: only verbs of a Client touch them.
///
/// Lifetime  Dropping a buffer that queued commands or graphs still use is safe. It may outlive its
///           device; verbs then answer Errc::closed.
/// Threads   As a shared_ptr: distinct objects freely, one object under the caller's lock.
/// Units     Bytes.
class Buffer {
public:
  /// Refers to nothing; verbs answer Errc::empty_handle.
  Buffer() noexcept = default;

  explicit operator bool() const noexcept { return static_cast<bool>(hold_); }
  std::uint64_t size_bytes() const noexcept { return bytes_; }

  /// The `bytes` from `offset` on, sharing the allocation. Failure out_of_range.
  Buffer slice_bytes(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > bytes_ || bytes > bytes_ - offset) detail::bad_slice(offset, bytes, bytes_);
    return Buffer{hold_, offset_ + offset, bytes};
  }
  /// The same bytes as elements of T. Failure misaligned if the offset or the size is no multiple
  /// of T's.
  template <class T>
  Array<T> as() const;

  /// The address of the first byte, for code that works beside the library. Blocks until the memory
  /// was found, not for work on it: wait for that before touching the bytes, and let no command use
  /// them meanwhile; or touch them in a host call that names them.
  ///
  /// Lifetime  Of the address: until the last buffer, command and graph that use the memory are
  ///           gone.
  /// Errors    unsupported (memory that the host cannot see); the reason why there is no memory;
  ///           empty_handle, closed, would_deadlock.
  void* export_native() const;

  /// True if both name the same bytes.
  friend bool operator==(const Buffer&, const Buffer&) noexcept = default;

private:
  friend struct detail::BufferAccess;
  template <class>
  friend class Array;
  Buffer(HoldRef hold, std::uint64_t offset, std::uint64_t bytes) noexcept
      : hold_(std::move(hold)), offset_(offset), bytes_(bytes) {}

  HoldRef hold_;
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;
};

/// A Buffer of elements of T. Zero-sized ones are legal; commands on them do nothing.
///
/// Units  Elements.
template <class T>
class Array : public Buffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "device memory holds trivially copyable elements");

public:
  using value_type = T;

  Array() noexcept = default;

  std::size_t size() const noexcept { return size_bytes() / sizeof(T); }
  bool empty() const noexcept { return size_bytes() == 0; }
  /// `count` elements from `offset` on, sharing the allocation. Failure out_of_range.
  Array slice(std::size_t offset, std::size_t count) const {
    if (offset > size() || count > size() - offset) detail::bad_slice(offset, count, size());
    return Array{slice_bytes(offset * sizeof(T), count * sizeof(T))};
  }

private:
  friend class Buffer;
  friend struct detail::BufferAccess;
  explicit Array(Buffer buffer) noexcept : Buffer(std::move(buffer)) {}
};

template <class T>
Array<T> Buffer::as() const {
  if (offset_ % alignof(T) != 0) detail::bad_cast("offset", offset_, alignof(T));
  if (bytes_ % sizeof(T) != 0) detail::bad_cast("size", bytes_, sizeof(T));
  return Array<T>{*this};
}

/// Owned host memory: what an untyped read yields and what a write may take over.
///
/// Lifetime  Independent of the runtime. A release function of the user's is called on the courier
///           thread if the device dropped the memory, else on the dropping thread.
/// Threads   One at a time.
class HostBytes {
public:
  /// Gives memory back; may be anything that takes a pointer.
  using Release = void (*)(void* context, std::byte* data) noexcept;

  HostBytes() noexcept = default;
  /// `size` bytes of heap memory, zeroed. Throws std::bad_alloc.
  explicit HostBytes(std::size_t size) : owned_(new std::byte[size]()), size_(size) {
    data_ = owned_.get();
  }
  /// Takes over memory of the caller's.
  HostBytes(std::byte* data, std::size_t size, Release release, void* context) noexcept
      : data_(data), size_(size), release_(release), context_(context) {}
  HostBytes(HostBytes&& other) noexcept { swap(other); }
  HostBytes& operator=(HostBytes&& other) noexcept {
    HostBytes taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~HostBytes() {
    if (release_) release_(context_, data_);
  }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  /// True if releasing it calls a function of the user's.
  bool is_foreign() const noexcept { return release_ != nullptr; }

private:
  void swap(HostBytes& other) noexcept {
    std::swap(owned_, other.owned_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(release_, other.release_);
    std::swap(context_, other.context_);
  }

  std::unique_ptr<std::byte[]> owned_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Release release_ = nullptr;
  void* context_ = nullptr;
};

namespace detail {

/// The library's way into buffers.
struct BufferAccess {
  static const HoldRef& hold(const Buffer& buffer) noexcept { return buffer.hold_; }
  static ByteRange range(const Buffer& buffer) noexcept {
    return {buffer.offset_, buffer.offset_ + buffer.bytes_};
  }
  static Buffer make(HoldRef hold, std::uint64_t offset, std::uint64_t bytes) noexcept {
    return Buffer{std::move(hold), offset, bytes};
  }
  template <class T>
  static Array<T> array(Buffer buffer) noexcept {
    return Array<T>{std::move(buffer)};
  }
};

}  // namespace detail
}  // namespace reprise

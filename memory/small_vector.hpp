// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace reprise {

/// A vector that keeps its first N items inside itself.
///
/// It never gives memory back before it is destroyed, so what fitted once fits again without an
/// allocation.
///
/// Lifetime  Growing, moving and splicing invalidate pointers to items.
/// Errors    Growing throws std::bad_alloc and then leaves everything as it was; every other
///           change is noexcept.
template <class T, std::size_t N>
class SmallVector {
  static_assert(N > 0);
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>);

public:
  SmallVector() noexcept {}
  SmallVector(const SmallVector& other) : SmallVector() {
    reserve(other.size_);
    for (const T& item : other) push_back(item);
  }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) *this = SmallVector(other);
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~SmallVector() { release(); }

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return capacity_; }
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  T& back() noexcept { return data_[size_ - 1]; }
  const T& back() const noexcept { return data_[size_ - 1]; }

  /// Makes room for `count` items in all.
  void reserve(std::size_t count) {
    if (count > capacity_) grow(count);
  }

  void push_back(const T& item) {
    if (size_ == capacity_) return push_back(T(item));  // It may be one that growing moves away.
    ::new (static_cast<void*>(data_ + size_)) T(item);
    ++size_;
  }
  void push_back(T&& item) { emplace_back(std::move(item)); }

  /// Makes a new last item of arguments that refer to no item of this vector.
  template <class... A>
  T& emplace_back(A&&... arguments) {
    if (size_ == capacity_) grow(size_ + std::size_t{1});
    T* item = ::new (static_cast<void*>(data_ + size_)) T{std::forward<A>(arguments)...};
    ++size_;
    return *item;
  }

  void clear() noexcept {
    for (std::size_t i = 0; i < size_; ++i) data_[i].~T();
    size_ = 0;
  }

  /// Drops the items [first, last).
  void erase(std::size_t first, std::size_t last) noexcept {
    if (first == last) return;
    for (std::size_t i = last; i < size_; ++i) data_[first + (i - last)] = std::move(data_[i]);
    const std::size_t left = size_ - (last - first);
    for (std::size_t i = left; i < size_; ++i) data_[i].~T();
    size_ = static_cast<std::uint32_t>(left);
  }

  /// Puts `count` items, moved out of `fresh`, in place of the items [first, last). Allocates only
  /// when the result is larger than the capacity, and moves nothing before that.
  void splice(std::size_t first, std::size_t last, T* fresh, std::size_t count) {
    const std::size_t gone = last - first;
    if (count <= gone) {
      for (std::size_t i = 0; i < count; ++i) data_[first + i] = std::move(fresh[i]);
      erase(first + count, last);
      return;
    }
    const std::size_t more = count - gone;
    reserve(size_ + more);
    for (std::size_t i = size_; i-- > last;) place(i + more, std::move(data_[i]));
    for (std::size_t i = 0; i < count; ++i) place(first + i, std::move(fresh[i]));
    size_ = static_cast<std::uint32_t>(size_ + more);
  }

private:
  union Inline {
    Inline() noexcept {}
    ~Inline() {}
    T items[N];
  };

  bool on_heap() const noexcept { return data_ != inline_.items; }

  // Slots below size_ hold an item, moved from or not; those above are raw.
  void place(std::size_t at, T&& item) noexcept {
    if (at < size_) {
      data_[at] = std::move(item);
    } else {
      ::new (static_cast<void*>(data_ + at)) T(std::move(item));
    }
  }

  [[gnu::noinline, gnu::cold]] void grow(std::size_t count) {
    const std::size_t capacity = count > 2 * std::size_t{capacity_} ? count : 2 * capacity_;
    T* data = std::allocator<T>().allocate(capacity);
    for (std::size_t i = 0; i < size_; ++i) {
      ::new (static_cast<void*>(data + i)) T(std::move(data_[i]));
      data_[i].~T();
    }
    if (on_heap()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = data;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }

  void release() noexcept {
    clear();
    if (on_heap()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = inline_.items;
    capacity_ = N;
  }

  // Needs an empty vector without heap memory.
  void take(SmallVector& other) noexcept {
    if (other.on_heap()) {
      data_ = std::exchange(other.data_, other.inline_.items);
      capacity_ = std::exchange(other.capacity_, static_cast<std::uint32_t>(N));
      size_ = std::exchange(other.size_, 0);
      return;
    }
    for (std::size_t i = 0; i < other.size_; ++i) {
      ::new (static_cast<void*>(data_ + i)) T(std::move(other.data_[i]));
    }
    size_ = other.size_;
    other.clear();
  }

  T* data_ = inline_.items;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = N;
  Inline inline_;
};

}  // namespace reprise

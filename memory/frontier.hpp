// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/check.hpp>
#include <reprise/memory/range.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace reprise {

/// The last uses of some bytes: for each backend stream at most one point, the newest. Whoever
/// waits for every point here has waited for every command that touched the bytes.
///
/// Up to three streams are held in place, more on the heap. A point is never dropped or folded
/// into another to save room, since that would lose a wait: a member that needs memory and gets
/// none answers false and changes nothing. Code that may not fail calls reserve() before it starts.
///
/// Threads   One thread at a time.
/// Errors    Nothing throws.
class Frontier {
public:
  static constexpr std::uint32_t inline_points = 3;

  /// Walks the points by value.
  class Iterator {
  public:
    Iterator(const Frontier* frontier, std::uint32_t index) noexcept
        : frontier_(frontier), index_(index) {}
    StreamPoint operator*() const noexcept { return (*frontier_)[index_]; }
    Iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) noexcept = default;

  private:
    const Frontier* frontier_;
    std::uint32_t index_;
  };

  Frontier() noexcept {}
  explicit Frontier(StreamPoint point) noexcept {
    if (point.position != 0) {
      put(size_++, point);
    }
  }
  Frontier(Frontier&& other) noexcept { steal(other); }
  Frontier& operator=(Frontier&& other) noexcept {
    if (this != &other) {
      free_heap();
      steal(other);
    }
    return *this;
  }
  Frontier(const Frontier&) =
      delete;  // A copy may need memory: copy_from() says whether it got it.
  Frontier& operator=(const Frontier&) = delete;
  ~Frontier() { free_heap(); }

  bool empty() const noexcept { return size_ == 0; }
  std::uint32_t size() const noexcept { return size_; }
  std::uint32_t capacity() const noexcept { return capacity_; }
  StreamPoint operator[](std::uint32_t index) const noexcept {
    return on_heap() ? storage_.heap[index]
                     : StreamPoint{storage_.local.streams[index], storage_.local.positions[index]};
  }
  Iterator begin() const noexcept { return {this, 0}; }
  Iterator end() const noexcept { return {this, size_}; }

  /// The newest position on `stream`, 0 if there is none.
  StreamPosition position(StreamIndex stream) const noexcept {
    const std::uint32_t at = find(stream);
    return at == size_ ? 0 : (*this)[at].position;
  }
  /// True when waiting for this frontier has also waited for `point`.
  bool covers(StreamPoint point) const noexcept { return position(point.stream) >= point.position; }

  /// Notes a use. A position of 0 is no use.
  [[nodiscard]] bool add(StreamPoint point) noexcept {
    return add_in_place(point) || (grow(size_ + 1) && add_in_place(point));
  }
  /// The same where that needs no memory; else false.
  [[nodiscard]] bool add_in_place(StreamPoint point) noexcept {
    if (point.position == 0) {
      return true;
    }
    const std::uint32_t at = find(point.stream);
    if (at == capacity_) {
      return false;
    }
    if (at == size_) {
      ++size_;
    } else {
      point.position = std::max(point.position, (*this)[at].position);
    }
    put(at, point);
    return true;
  }

  /// Notes all uses of `other`, or none of them.
  [[nodiscard]] bool merge(const Frontier& other) noexcept {
    std::uint32_t fresh = 0;
    for (const StreamPoint point : other) {
      fresh += find(point.stream) == size_;
    }
    if (!reserve(size_ + fresh)) {
      return false;
    }
    for (const StreamPoint point : other) {
      const bool added = add(point);
      REPRISE_CHECK(added, "room for the points was reserved");
    }
    return true;
  }

  /// Becomes a copy of `other`, or stays as it is.
  [[nodiscard]] bool copy_from(const Frontier& other) noexcept {
    if (this == &other) {
      return true;
    }
    if (!reserve(other.size_)) {
      return false;
    }
    clear();
    return merge(other);
  }

  /// Makes room for `points` points in all, so that add() and merge() up to there cannot fail.
  [[nodiscard]] bool reserve(std::uint32_t points) noexcept {
    return points <= capacity_ || grow(points);
  }

  /// Forgets all points and keeps the room.
  void clear() noexcept { size_ = 0; }

  /// Forgets the use by `stream`, for a caller that is ordered behind it anyway.
  void forget(StreamIndex stream) noexcept {
    const std::uint32_t at = find(stream);
    if (at != size_) {
      put(at, (*this)[--size_]);
    }
  }

  /// Forgets every point for which `finished(point)` holds.
  template <class Finished>
  void prune(Finished&& finished) {
    for (std::uint32_t i = 0; i < size_;) {
      if (finished((*this)[i])) {
        put(i, (*this)[--size_]);
      } else {
        ++i;
      }
    }
  }

private:
  struct Local {
    StreamPosition positions[inline_points];
    StreamIndex streams[inline_points];
  };
  union Storage {
    Storage() noexcept {}
    Local local;
    StreamPoint* heap;
  };

  bool on_heap() const noexcept { return capacity_ != inline_points; }
  std::uint32_t find(StreamIndex stream) const noexcept {
    std::uint32_t at = 0;
    while (at < size_ && (*this)[at].stream != stream) {
      ++at;
    }
    return at;
  }
  void put(std::uint32_t at, StreamPoint point) noexcept {
    if (on_heap()) {
      storage_.heap[at] = point;
    } else {
      storage_.local.streams[at] = point.stream;
      storage_.local.positions[at] = point.position;
    }
  }
  [[gnu::noinline, gnu::cold]] bool grow(std::uint32_t points) noexcept {
    const std::uint32_t capacity = std::max(points, 2 * capacity_);
    auto* heap = new (std::nothrow) StreamPoint[capacity];
    if (heap == nullptr) {
      return false;
    }
    for (std::uint32_t i = 0; i < size_; ++i) {
      heap[i] = (*this)[i];
    }
    free_heap();
    storage_.heap = heap;
    capacity_ = capacity;
    return true;
  }
  void free_heap() noexcept {
    if (on_heap()) {
      delete[] storage_.heap;
    }
  }
  void steal(Frontier& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, inline_points);
    if (on_heap()) {
      storage_.heap = other.storage_.heap;
      return;
    }
    for (std::uint32_t i = 0; i < size_; ++i) {
      storage_.local.streams[i] = other.storage_.local.streams[i];
      storage_.local.positions[i] = other.storage_.local.positions[i];
    }
  }

  Storage storage_;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = inline_points;  // inline_points means: in place.
};

/// Asks whether the device has finished a point. Borrows the callable it is made from, which must
/// not throw; made for parameters, not to be stored.
class FinishedQuery {
public:
  template <class Finished>
  requires(!std::is_same_v<std::remove_cvref_t<Finished>, FinishedQuery>)
      FinishedQuery(Finished&& finished)
  noexcept  // NOLINT: implicit on purpose
      : context_(const_cast<void*>(static_cast<const void*>(std::addressof(finished)))),
        ask_([](void* context, StreamPoint point) noexcept -> bool {
          return (*static_cast<std::remove_reference_t<Finished>*>(context))(point);
        }) {}

  bool operator()(StreamPoint point) const noexcept { return ask_(context_, point); }

private:
  void* context_;
  bool (*ask_)(void*, StreamPoint) noexcept;
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/access.hpp>
#include <reprise/memory/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace reprise {

/// Extents in up to three dimensions.
struct Dim3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;

  constexpr std::uint64_t count() const noexcept { return std::uint64_t{x} * y * z; }
  friend constexpr bool operator==(const Dim3&, const Dim3&) noexcept = default;
};

/// How many blocks a launch has and how many threads each block stands for.
struct GridSize {
  Dim3 blocks;
  Dim3 threads;
  std::uint32_t shared_bytes = 0;  ///< Dynamic shared memory per block, on devices that have it.
};

/// The grid of a launch. One without blocks is legal: such a launch does nothing and writes
/// nothing.
struct Grid : GridSize {
  SourceLocation where;  ///< The line that made the grid, named by failures.

  constexpr Grid(Dim3 blocks_, Dim3 threads_ = {256, 1, 1}, std::uint32_t shared_bytes_ = 0,
                 SourceLocation where_ = SourceLocation::current()) noexcept
      : GridSize{blocks_, threads_, shared_bytes_}, where(where_) {}
  /// `blocks_` blocks in one dimension.
  constexpr Grid(std::uint32_t blocks_,  // NOLINT: implicit on purpose
                 SourceLocation where_ = SourceLocation::current()) noexcept
      : Grid(Dim3{blocks_, 1, 1}, {256, 1, 1}, 0, where_) {}
};

/// The grid that covers `items` items with `per_block` in each block. Failure invalid_argument if
/// that needs more than 2^31 - 1 blocks or `per_block` is 0.
Grid grid_for(std::uint64_t items, std::uint32_t per_block = 256,
              SourceLocation where = SourceLocation::current());

/// Indices from `first` up to `last`, for a range-based for.
struct IndexRange {
  std::size_t first = 0;
  std::size_t last = 0;

  struct Iterator {
    std::size_t at;
    constexpr std::size_t operator*() const noexcept { return at; }
    constexpr Iterator& operator++() noexcept {
      ++at;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) noexcept = default;
  };
  constexpr Iterator begin() const noexcept { return {first}; }
  constexpr Iterator end() const noexcept { return {last}; }
  constexpr std::size_t size() const noexcept { return last - first; }
  constexpr bool empty() const noexcept { return first == last; }
};

/// One block of a running launch, as a CPU body sees it.
struct Block {
  Dim3 index;    ///< Of this block in the grid.
  Dim3 count;    ///< Blocks of the grid.
  Dim3 threads;  ///< Threads a block stands for.

  /// This block's number in x-fastest order.
  constexpr std::uint64_t linear() const noexcept {
    return index.x + std::uint64_t{count.x} * (index.y + std::uint64_t{count.y} * index.z);
  }
  /// The part of [0, n) that belongs to this block when each thread takes one item, in order.
  constexpr IndexRange range(std::size_t n) const noexcept {
    const std::uint64_t per_block = threads.count();
    const std::uint64_t begin = std::min<std::uint64_t>(linear() * per_block, n);
    return {begin, std::min<std::uint64_t>(begin + per_block, n)};
  }
};

namespace detail {
/// What every buffer argument is in an argument block: an address and a count of elements.
struct BufferSlot {
  void* data = nullptr;
  std::size_t count = 0;
};
template <class T, Access mode>
class View {
public:
  using value_type = std::remove_const_t<T>;
  static constexpr Access access = mode;

  View() noexcept = default;
  View(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T& operator[](std::size_t i) const noexcept { return data_[i]; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }

private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};
}  // namespace detail

/// A kernel argument that is read. Its bytes must have been written.
template <class T>
struct In : detail::View<const T, Access::reads> {
  using detail::View<const T, Access::reads>::View;
};
/// A kernel argument whose whole range the kernel writes. It may not read what was there.
template <class T>
struct Out : detail::View<T, Access::must_write> {
  using detail::View<T, Access::must_write>::View;
};
/// A kernel argument that is read and then written whole. Its bytes must have been written.
template <class T>
struct InOut : detail::View<T, Access::reads | Access::must_write> {
  using detail::View<T, Access::reads | Access::must_write>::View;
};
/// A kernel argument of which the kernel writes some bytes: needs none of them written, and success
/// clears no taint. Caches, which start from zeros, are the usual case.
template <class T>
struct Update : detail::View<T, Access::may_write> {
  using detail::View<T, Access::may_write>::View;
};

template <class T>
concept BufferArgument = requires {
  typename T::value_type;
  { T::access } -> std::convertible_to<Access>;
};
template <class T>
concept ScalarArgument = !BufferArgument<T> && std::is_trivially_copyable_v<T> &&
                         !std::is_pointer_v<T> && alignof(T) <= 16;

/// One parameter of a kernel, as validation and other backends see it.
struct KernelParameter {
  bool is_buffer = false;
  Access access = Access::none;
  std::uint32_t offset = 0;        ///< In the argument block.
  std::uint32_t element_size = 0;  ///< Of a buffer's element, or the scalar's own size.
  std::uint32_t element_alignment = 1;
};

/// Runs one block of a CPU body: `callable` is the definition's, `arguments` an argument block.
using CpuBody = void (*)(const void* callable, const std::byte* arguments, const Block& block);

/// A kernel's name, parameters and bodies. Immutable and counted: a queued command keeps it.
class KernelDefinition {
public:
  std::string name;
  std::vector<KernelParameter> parameters;
  std::uint32_t argument_bytes = 0;  ///< Size of an argument block.
  CpuBody cpu = nullptr;             ///< Null without a CPU body.
  std::shared_ptr<const void> callable;

private:
  friend class KernelRef;
  mutable std::atomic<std::uint32_t> references_{0};
};

/// A counted reference to a definition.
class KernelRef {
public:
  KernelRef() noexcept = default;
  explicit KernelRef(const KernelDefinition* definition) noexcept : definition_(definition) {
    if (definition_) definition_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  KernelRef(const KernelRef& other) noexcept : KernelRef(other.definition_) {}
  KernelRef(KernelRef&& other) noexcept : definition_(std::exchange(other.definition_, nullptr)) {}
  KernelRef& operator=(KernelRef other) noexcept {
    std::swap(definition_, other.definition_);
    return *this;
  }
  ~KernelRef() {
    // Pairs with itself: the last owner must see the others' uses end.
    if (definition_ && definition_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete definition_;
    }
  }

  /// Lets go of the definition, unless this is the last reference to it: then it answers false, and
  /// whoever drops it destroys what the user captured.
  bool release_unless_last() noexcept {
    auto count = definition_->references_.load(std::memory_order_relaxed);
    while (count != 1) {
      // Release: the partner is the last owner's destructor.
      if (definition_->references_.compare_exchange_weak(
              count, count - 1, std::memory_order_release, std::memory_order_relaxed)) {
        definition_ = nullptr;
        return true;
      }
    }
    return false;
  }

  const KernelDefinition* get() const noexcept { return definition_; }
  const KernelDefinition* operator->() const noexcept { return definition_; }
  const KernelDefinition& operator*() const noexcept { return *definition_; }
  explicit operator bool() const noexcept { return definition_ != nullptr; }

private:
  const KernelDefinition* definition_ = nullptr;
};

namespace detail {

constexpr std::size_t round_up(std::size_t n, std::size_t to) noexcept {
  return (n + to - 1) / to * to;
}
template <class A>
constexpr std::size_t slot_size = BufferArgument<A> ? sizeof(BufferSlot) : sizeof(A);
template <class A>
constexpr std::size_t slot_align = BufferArgument<A> ? alignof(BufferSlot) : alignof(A);

/// Offsets of the arguments in a block, and its size as the last entry.
template <class... A>
constexpr std::array<std::uint32_t, sizeof...(A) + 1> argument_layout() noexcept {
  std::array<std::uint32_t, sizeof...(A) + 1> offsets{};
  [[maybe_unused]] std::size_t at = 0;
  [[maybe_unused]] std::size_t i = 0;
  ((at = round_up(at, slot_align<A>), offsets[i++] = static_cast<std::uint32_t>(at),
    at += slot_size<A>),
   ...);
  offsets[sizeof...(A)] = static_cast<std::uint32_t>(round_up(at, 16));
  return offsets;
}

template <class A>
A load_argument(const std::byte* at) noexcept {
  if constexpr (BufferArgument<A>) {
    using Element = std::remove_pointer_t<decltype(std::declval<A>().data())>;
    const auto& slot = *std::launder(reinterpret_cast<const BufferSlot*>(at));
    return A{static_cast<Element*>(slot.data), slot.count};
  } else {
    A value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
}

template <class F, class... A>
struct CpuThunk {
  static void run(const void* callable, const std::byte* arguments, const Block& block) {
    call(*static_cast<const F*>(callable), arguments, block, std::index_sequence_for<A...>{});
  }
  template <std::size_t... I>
  static void call(const F& f, [[maybe_unused]] const std::byte* arguments, const Block& block,
                   std::index_sequence<I...>) {
    [[maybe_unused]] constexpr auto layout = argument_layout<A...>();
    f(block, load_argument<A>(arguments + layout[I])...);
  }
};

template <class F>
struct SignatureOf : SignatureOf<decltype(&F::operator())> {};
template <class... A>
struct SignatureOf<void (*)(Block, A...)> {
  using type = void(A...);
};
template <class C, class... A>
struct SignatureOf<void (C::*)(Block, A...) const> {
  using type = void(A...);
};
template <class... A>
struct SignatureOf<void (*)(const Block&, A...)> {
  using type = void(A...);
};
template <class C, class... A>
struct SignatureOf<void (C::*)(const Block&, A...) const> {
  using type = void(A...);
};

}  // namespace detail

/// A typed kernel: a name, an argument list and a body for each kind of device it runs on.
///
///   const reprise::Kernel add_one{"add_one", [](reprise::Block block, reprise::In<float> in,
///                                               reprise::Out<float> out) {
///     for (std::size_t i : block.range(in.size())) out[i] = in[i] + 1;
///   }};
///
/// The CPU body is called once per block; blocks run at once and in any order. A body that throws
/// fails its launch.
///
/// Lifetime  Handles are cheap; queued commands and graphs keep the definition.
/// Threads   A body may run on several threads at once: it must not change what it captured.
template <class Signature>
class Kernel;

template <class... A>
class Kernel<void(A...)> {
  static_assert(((BufferArgument<A> || ScalarArgument<A>)&&...),
                "kernel arguments are In, Out, InOut, Update or trivially copyable scalars");

public:
  static constexpr auto layout = detail::argument_layout<A...>();

  template <class F>
  requires std::invocable<const F&, const Block&, A...> Kernel(std::string_view name, F body) {
    auto definition = std::make_unique<KernelDefinition>();
    definition->name = name;
    definition->argument_bytes = layout[sizeof...(A)];
    [[maybe_unused]] std::size_t i = 0;
    (definition->parameters.push_back(parameter<A>(layout[i++])), ...);
    definition->callable = std::make_shared<const F>(std::move(body));
    definition->cpu = &detail::CpuThunk<F, A...>::run;
    definition_ = KernelRef{definition.release()};
  }

  std::string_view name() const noexcept { return definition_->name; }
  const KernelRef& definition() const noexcept { return definition_; }

private:
  template <class P>
  static constexpr KernelParameter parameter(std::uint32_t offset) noexcept {
    if constexpr (BufferArgument<P>) {
      using Element = typename P::value_type;
      return {true, P::access, offset, sizeof(Element), alignof(Element)};
    } else {
      return {false, Access::none, offset, sizeof(P), alignof(P)};
    }
  }

  KernelRef definition_;
};

template <class F>
Kernel(std::string_view, F) -> Kernel<typename detail::SignatureOf<F>::type>;

}  // namespace reprise

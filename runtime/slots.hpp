// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/buffer.hpp>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace reprise {

/// A slot's name and the buffer that stands for it: in one replay, or in the window that names it.
///
/// Lifetime  Keeps the buffer; the name is the caller's.
struct Binding {
  Binding(std::string_view slot_, const Buffer& buffer_) : slot(slot_), buffer(buffer_) {}
  template <class T>
  Binding(std::string_view slot_, const Array<T>& array)
      : slot(slot_), buffer(array), element(&typeid(T)), alignment(alignof(T)) {}

  std::string_view slot;
  Buffer buffer;
  const std::type_info* element = nullptr;  ///< Of an Array; null: just bytes.
  std::uint32_t alignment = 1;              ///< Of the element type.
};

/// The bindings of one replay, as a list in braces or any contiguous container:
///
///   graph.replay({{"token", token}, {"position", position}});
///
/// Lifetime  Borrows; not to be stored.
class BindingView {
public:
  BindingView() noexcept = default;
  BindingView(std::initializer_list<Binding> list) noexcept  // NOLINT: implicit on purpose
      : list_(list.begin(), list.size()) {}
  BindingView(std::span<const Binding> list) noexcept : list_(list) {}     // NOLINT
  BindingView(const std::vector<Binding>& list) noexcept : list_(list) {}  // NOLINT

  const Binding* begin() const noexcept { return list_.data(); }
  const Binding* end() const noexcept { return list_.data() + list_.size(); }
  std::size_t size() const noexcept { return list_.size(); }
  bool empty() const noexcept { return list_.empty(); }

private:
  std::span<const Binding> list_;
};

/// How a slot takes new contents while replays that use the old ones may be in flight.
struct SlotPolicy {
  /// In place: new contents wait, on the device, for accepted replays that use the old ones.
  static constexpr SlotPolicy wait() noexcept { return {}; }
  /// Over `copies` buffers of the slot's size, the recorded one among them: new contents go into
  /// the next one. For slots that replays only read, or only write and whole. The recorded buffer
  /// is then one copy of several: inputs are replaced by Graph::refresh(), outputs are read through
  /// Graph::lease().
  static constexpr SlotPolicy rotate(std::uint32_t copies) noexcept { return {copies}; }

  static constexpr std::uint32_t most_copies = 64;
  std::uint32_t copies = 1;  ///< From 1 to most_copies.
};

/// A slot of a graph, for those who look at it.
///
/// Lifetime  The name lives as long as the graph.
struct SlotInfo {
  std::string_view name;
  std::uint64_t bytes = 0;
  bool is_input = false;     ///< A replay reads some of it before it has written it.
  bool is_output = false;    ///< A replay may write some of it.
  std::uint32_t copies = 1;  ///< That it rotates over.
};

namespace detail {

/// Bindings that outlive the call they were made for.
class KeptBindings {
public:
  explicit KeptBindings(BindingView bindings) {
    for (const Binding& binding : bindings) names_.emplace_back(binding.slot);
    bindings_.assign(bindings.begin(), bindings.end());
    rename();
  }
  KeptBindings(const KeptBindings& other) : names_(other.names_), bindings_(other.bindings_) {
    rename();
  }
  KeptBindings(KeptBindings&& other) noexcept
      : names_(std::move(other.names_)), bindings_(std::move(other.bindings_)) {}
  KeptBindings& operator=(KeptBindings) = delete;
  ~KeptBindings() = default;

  BindingView view() const noexcept { return bindings_; }

private:
  void rename() noexcept {
    for (std::size_t i = 0; i < names_.size(); ++i) bindings_[i].slot = names_[i];
  }

  std::vector<std::string> names_;  // Moving a vector leaves its elements where they are.
  std::vector<Binding> bindings_;
};

}  // namespace detail
}  // namespace reprise

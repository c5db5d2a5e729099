// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/hold.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/device/command.hpp>
#include <reprise/device/kernel.hpp>
#include <reprise/capture/hazards.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise {

class Recorder;

/// How a node is ordered against the others of its recording.
enum class NodeOrder : std::uint8_t {
  /// By its bytes. Host calls also keep their order among themselves, and a host call or marker
  /// that names no bytes is a barrier: nobody can tell what it depends on.
  automatic,
  bytes,    ///< By its bytes and by RecordedNode::after alone.
  barrier,  ///< After every node before it, before every node behind it.
};

/// One resolved command, as a window hands it to its recorder.
struct RecordedNode {
  Command command;                       ///< Addresses filled in; see Recorder for its pointers.
  std::span<Touch> touches;              ///< Moved from when the node is added.
  KernelRef kernel;                      ///< Of a launch; empty: taken from the command.
  std::string_view name;                 ///< Copied. Empty: the kernel's, or the verb.
  SourceLocation where;                  ///< The caller's line.
  std::shared_ptr<const void> retained;  ///< What else must live as long: host bytes, a callee.
  std::uint64_t retained_bytes = 0;      ///< How much host memory that is.
  NodeOrder order = NodeOrder::automatic;
  std::span<const std::uint32_t> after;  ///< Earlier nodes it follows, whatever the bytes say.
};

namespace detail {

/// Memory that only grows, in chunks that never move.
///
/// Errors  Without host memory the answer is null and nothing has changed.
class Arena {
public:
  Arena() noexcept = default;
  Arena(Arena&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), last_(std::exchange(other.last_, nullptr)),
        at_(std::exchange(other.at_, nullptr)), end_(std::exchange(other.end_, nullptr)) {}
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  /// `alignment` is a power of two of at most 16.
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const std::size_t padding = -reinterpret_cast<std::uintptr_t>(at_) & (alignment - 1);
    if (bytes + padding > static_cast<std::size_t>(end_ - at_)) return allocate_slow(bytes);
    void* result = at_ + padding;
    at_ += padding + bytes;
    return result;
  }
  /// Forgets all that was allocated and keeps the chunks for what comes.
  void rewind() noexcept;

private:
  struct Chunk;
  void* allocate_slow(std::size_t bytes) noexcept;
  void use(Chunk* chunk) noexcept;

  Chunk* first_ = nullptr;
  Chunk* last_ = nullptr;  // The one in use; those behind it are empty.
  std::byte* at_ = nullptr;
  std::byte* end_ = nullptr;
};

/// A node in a recorder.
struct StoredNode {
  Command command;
  KernelRef kernel;
  Touch* touches = nullptr;
  std::uint32_t touch_count = 0;
  Hazards::Order order = Hazards::Order::bytes;
  std::string_view name;
  SourceLocation where;

  std::span<const Touch> touched() const noexcept { return {touches, touch_count}; }
};

/// Nodes by number, at addresses that never change. Owns what they point to.
class NodeStore {
public:
  NodeStore() noexcept = default;
  NodeStore(NodeStore&& other) noexcept;
  NodeStore& operator=(NodeStore&& other) noexcept;
  ~NodeStore();

  std::uint32_t size() const noexcept { return size_; }
  const StoredNode& operator[](std::uint32_t i) const noexcept {
    return chunks_[i / per_chunk][i % per_chunk];
  }
  std::uint64_t retained_bytes() const noexcept { return retained_bytes_; }
  /// What nodes need besides; it is theirs no more.
  std::vector<std::shared_ptr<const void>> take_retained() noexcept {
    retained_bytes_ = 0;
    return std::exchange(retained_, {});
  }
  /// Drops every node and keeps the memory.
  void clear() noexcept;

private:
  friend class reprise::Recorder;
  static constexpr std::uint32_t per_chunk = 64;

  StoredNode* next_slot() noexcept {
    if (size_ % per_chunk != 0 || size_ / per_chunk < chunks_.size()) {
      return &chunks_[size_ / per_chunk][size_ % per_chunk];
    }
    return next_slot_slow();
  }
  StoredNode* next_slot_slow() noexcept;

  Arena arena_;  // Chunks of nodes lie apart from it: they keep their place when it rewinds.
  std::vector<StoredNode*> chunks_;
  std::uint32_t size_ = 0;
  std::vector<std::shared_ptr<const void>> retained_;
  std::uint64_t retained_bytes_ = 0;
};

}  // namespace detail

/// The commands of one window, in the order in which they were recorded. Adding one is cheap: it is
/// moved into an arena, and what the bytes say about order and sets is worked out when asked for.
///
/// What a command points to must live as long as the recording: argument blocks come from
/// copy_arguments(), host bytes and callees go into RecordedNode::retained.
///
/// Lifetime  Holds all memory that its nodes touch strongly, until it is sealed into a Recording,
///           cleared or destroyed.
/// Threads   One thread, the device's.
/// Errors    Errc::out_of_memory changes nothing.
class Recorder {
public:
  /// What add() answers for a command that does nothing.
  static constexpr std::uint32_t no_node = ~std::uint32_t{0};

  Recorder() noexcept = default;
  Recorder(Recorder&&) noexcept = default;
  Recorder& operator=(Recorder&&) noexcept = default;

  /// Adds a command and answers its number. Copies, fills and writes of no bytes and launches of an
  /// empty grid leave no node: their answer is no_node, which is ignored in RecordedNode::after.
  ///
  /// Errc::capture_refused   a read cannot be recorded
  /// Errc::invalid_argument  `after` names a node that is not there yet
  Result<std::uint32_t> add(RecordedNode&& node) noexcept;
  /// A copy of an argument block at an address that lasts, aligned to 16; null without memory.
  std::byte* copy_arguments(std::span<const std::byte> arguments) noexcept;

  std::uint32_t node_count() const noexcept { return store_.size(); }
  /// Host memory that the nodes keep.
  std::uint64_t retained_bytes() const noexcept { return store_.retained_bytes(); }
  /// Whether each byte of `range` may have been written by a node so far. A buffer that was made in
  /// the window must not be read where this is false.
  Result<bool> written_in_window(const Hold& hold, ByteRange range) noexcept;
  /// All that the nodes may write, merged: what a window that does not seal has left undone.
  Result<std::vector<Touch>> write_set() noexcept;
  /// The same, node by node with repetitions, and needing no memory: f(const Touch&).
  template <class F>
  void each_write(F&& f) const {
    for (std::uint32_t i = 0; i < store_.size(); ++i) {
      for (const Touch& touch : store_[i].touched()) {
        if (may_write(touch.access)) f(touch);
      }
    }
  }

  /// Drops every node and keeps the memory for the next window.
  void clear() noexcept;

private:
  friend class Recording;

  Result<void> keep(RecordedNode& node) noexcept;
  bool copy_name(RecordedNode& node) noexcept;
  /// Works out the hazards of the nodes added since the last time.
  Result<void> analyse() noexcept;

  detail::NodeStore store_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> asked_;  // {node, earlier}, by node.
  std::unique_ptr<detail::Hazards> hazards_;
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/recorder.hpp>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace reprise {

namespace detail {

static_assert(std::is_trivially_copyable_v<Command>);

struct alignas(16) Arena::Chunk {
  Chunk* next = nullptr;
  std::size_t bytes = 0;  // Of the memory that follows.

  std::byte* memory() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(at_, other.at_);
  std::swap(end_, other.end_);
  return *this;
}

Arena::~Arena() {
  while (first_) {
    Chunk* chunk = std::exchange(first_, first_->next);
    ::operator delete(chunk);
  }
}

void Arena::use(Chunk* chunk) noexcept {
  last_ = chunk;
  at_ = chunk ? chunk->memory() : nullptr;
  end_ = chunk ? at_ + chunk->bytes : nullptr;
}

void Arena::rewind() noexcept {
  use(first_);
}

void* Arena::allocate_slow(std::size_t bytes) noexcept {
  Chunk* next = last_ ? last_->next : nullptr;
  if (!next || next->bytes < bytes) {
    constexpr std::size_t smallest = 4096 - sizeof(Chunk);
    constexpr std::size_t largest = 65536 - sizeof(Chunk);
    const std::size_t grown = last_ ? std::min(largest, 2 * last_->bytes) : smallest;
    const std::size_t size = std::max(grown, bytes);
    void* memory = ::operator new(sizeof(Chunk) + size, std::nothrow);
    if (!memory) return nullptr;
    next = ::new (memory) Chunk{next, size};
    (last_ ? last_->next : first_) = next;
  }
  use(next);
  at_ += bytes;  // The start of a chunk is aligned to anything.
  return next->memory();
}

NodeStore::NodeStore(NodeStore&& other) noexcept
    : arena_(std::move(other.arena_)), chunks_(std::move(other.chunks_)),
      size_(std::exchange(other.size_, 0)), retained_(std::move(other.retained_)),
      retained_bytes_(std::exchange(other.retained_bytes_, 0)) {
  other.chunks_.clear();
  other.retained_.clear();
}

NodeStore& NodeStore::operator=(NodeStore&& other) noexcept {
  NodeStore taken(std::move(other));
  std::swap(arena_, taken.arena_);
  std::swap(chunks_, taken.chunks_);
  std::swap(size_, taken.size_);
  std::swap(retained_, taken.retained_);
  std::swap(retained_bytes_, taken.retained_bytes_);
  return *this;
}

NodeStore::~NodeStore() {
  clear();
  for (StoredNode* chunk : chunks_) std::allocator<StoredNode>().deallocate(chunk, per_chunk);
}

void NodeStore::clear() noexcept {
  for (std::uint32_t i = 0; i < size_; ++i) {
    StoredNode& node = chunks_[i / per_chunk][i % per_chunk];
    std::destroy_n(node.touches, node.touch_count);
    node.~StoredNode();
  }
  size_ = 0;
  retained_.clear();
  retained_bytes_ = 0;
  arena_.rewind();
}

StoredNode* NodeStore::next_slot_slow() noexcept {
  try {
    chunks_.reserve(chunks_.size() + 1);
    chunks_.push_back(std::allocator<StoredNode>().allocate(per_chunk));
    return chunks_.back();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace detail

namespace {

using detail::Hazards;
using detail::StoredNode;

enum Kind : std::uint8_t { marker, launch, copy, fill, write, read, host_call, run_graph };
static_assert(std::is_same_v<std::variant_alternative_t<launch, Command>, command::Launch> &&
              std::is_same_v<std::variant_alternative_t<read, Command>, command::Read> &&
              std::is_same_v<std::variant_alternative_t<host_call, Command>, command::HostCall> &&
              std::variant_size_v<Command> == run_graph + 1);

bool does_nothing(const Command& command) noexcept {
  switch (command.index()) {
    case launch: return std::get_if<launch>(&command)->grid.blocks.count() == 0;
    case copy: return std::get_if<copy>(&command)->bytes == 0;
    case fill: return std::get_if<fill>(&command)->bytes == 0;
    case write: return std::get_if<write>(&command)->bytes == 0;
    default: return false;
  }
}

Hazards::Order order_of(const RecordedNode& node, std::uint32_t touches) noexcept {
  if (node.order == NodeOrder::bytes) return Hazards::Order::bytes;
  if (node.order == NodeOrder::barrier) return Hazards::Order::barrier;
  const auto kind = node.command.index();
  if (touches == 0 && (kind == host_call || kind == marker)) return Hazards::Order::barrier;
  return kind == host_call ? Hazards::Order::chained : Hazards::Order::bytes;
}

constexpr Error no_memory{Errc::out_of_memory, 0, "no host memory for a recorded node"};

}  // namespace

Result<std::uint32_t> Recorder::add(RecordedNode&& node) noexcept {
  if (does_nothing(node.command)) return no_node;
  if (node.command.index() == read) {
    return Error{Errc::capture_refused, 0, "a read cannot be recorded"};
  }
  // First everything that can fail. An allocation from the arena that is not used is not missed.
  StoredNode* slot = store_.next_slot();
  if (!slot) return no_memory;
  Touch* touches = nullptr;
  if (!node.touches.empty()) {
    touches =
        static_cast<Touch*>(store_.arena_.allocate(node.touches.size_bytes(), alignof(Touch)));
    if (!touches) return no_memory;
  }
  if (!node.name.empty() && !copy_name(node)) return no_memory;
  if (!node.after.empty() || node.retained) {
    if (const Result<void> kept = keep(node); !kept) return kept.error();
  }

  std::uint32_t count = 0;
  for (Touch& touch : node.touches) {
    if (touch.range.empty()) continue;
    REPRISE_CHECK(touch.hold, "bytes belong to an allocation");
    ::new (static_cast<void*>(touches + count++)) Touch(std::move(touch));
  }
  if (node.command.index() == launch && !node.kernel) {
    node.kernel = KernelRef{std::get_if<launch>(&node.command)->kernel};
  }
  const auto order = order_of(node, count);
  ::new (static_cast<void*>(slot)) StoredNode{
      node.command, std::move(node.kernel), touches, count, order, node.name, node.where};
  return store_.size_++;
}

bool Recorder::copy_name(RecordedNode& node) noexcept {
  if (node.kernel && node.name.data() == node.kernel->name.data()) return true;
  auto* copy = static_cast<char*>(store_.arena_.allocate(node.name.size(), 1));
  if (!copy) return false;
  std::memcpy(copy, node.name.data(), node.name.size());
  node.name = {copy, node.name.size()};
  return true;
}

Result<void> Recorder::keep(RecordedNode& node) noexcept {
  const std::uint32_t number = store_.size();
  for (const std::uint32_t earlier : node.after) {
    if (earlier >= number && earlier != no_node) {
      return Error{Errc::invalid_argument, 0, "a node can only follow an earlier one"};
    }
  }
  const std::size_t asked = asked_.size();
  try {
    for (const std::uint32_t earlier : node.after) {
      if (earlier != no_node) asked_.emplace_back(number, earlier);
    }
    if (node.retained) {
      store_.retained_.push_back(std::move(node.retained));
      store_.retained_bytes_ += node.retained_bytes;
    }
  } catch (const std::bad_alloc&) {
    asked_.resize(asked);
    return no_memory;
  }
  return {};
}

std::byte* Recorder::copy_arguments(std::span<const std::byte> arguments) noexcept {
  const std::size_t bytes = std::max<std::size_t>(arguments.size(), 1);
  auto* copy = static_cast<std::byte*>(store_.arena_.allocate(bytes, 16));
  if (copy && !arguments.empty()) std::memcpy(copy, arguments.data(), arguments.size());
  return copy;
}

Result<void> Recorder::analyse() noexcept {
  try {
    if (!hazards_) hazards_ = std::make_unique<Hazards>();
    if (hazards_->size() == store_.size()) return {};
    auto asked = std::lower_bound(asked_.begin(), asked_.end(),
                                  std::pair{hazards_->size(), std::uint32_t{0}});
    std::vector<std::uint32_t> after;
    for (std::uint32_t i = hazards_->size(); i < store_.size(); ++i) {
      after.clear();
      for (; asked != asked_.end() && asked->first == i; ++asked) after.push_back(asked->second);
      hazards_->add(store_[i].touched(), after, store_[i].order);
    }
    return {};
  } catch (const std::bad_alloc&) {
    hazards_.reset();  // Half a node is in it; the next question starts anew.
    return Error{Errc::out_of_memory, 0, "no host memory to order the nodes of a window"};
  }
}

Result<bool> Recorder::written_in_window(const Hold& hold, ByteRange range) noexcept {
  if (const auto analysed = analyse(); !analysed) return analysed.error();
  return hazards_->written(hold, range);
}

Result<std::vector<Touch>> Recorder::write_set() noexcept {
  if (const auto analysed = analyse(); !analysed) return analysed.error();
  try {
    return hazards_->merged().may_write;
  } catch (const std::bad_alloc&) {
    return Error{Errc::out_of_memory, 0, "no host memory for the write set of a window"};
  }
}

void Recorder::clear() noexcept {
  hazards_.reset();
  asked_.clear();
  store_.clear();
}

}  // namespace reprise

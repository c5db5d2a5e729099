// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/sealed_nodes.hpp>

#include <reprise/capture/hazards.hpp>
#include <reprise/capture/recorder.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <variant>

namespace reprise::detail {

namespace {

/// Numbers for pointers, in the order in which they are first met.
class Numbers {
public:
  /// The number of `what`, and whether it is new.
  std::pair<std::uint32_t, bool> of(const void* what) {
    if (what == last_) return {last_number_, false};
    const auto [at, is_new] = known_.emplace(what, static_cast<std::uint32_t>(known_.size()));
    last_ = what;
    last_number_ = at->second;
    return {at->second, is_new};
  }

private:
  std::unordered_map<const void*, std::uint32_t> known_;
  const void* last_ = nullptr;  // Is never asked for.
  std::uint32_t last_number_ = 0;
};

/// What an argument block takes, so that the next one is aligned to 16.
std::size_t block_bytes(const Command& command) noexcept {
  const auto* const launch = std::get_if<command::Launch>(&command);
  if (launch == nullptr || launch->arguments == nullptr) return 0;
  return (launch->kernel->argument_bytes + std::size_t{15}) & ~std::size_t{15};
}

}  // namespace

/// What is only needed while nodes are copied.
class SealedNodes::Packing {
public:
  Packing(SealedNodes& sealed, const NodeStore& store, const Hazards& hazards) : sealed_(sealed) {
    std::size_t touches = 0;
    std::size_t blocks = 0;
    for (std::uint32_t i = 0; i < store.size(); ++i) {
      touches += store[i].touch_count;
      blocks += block_bytes(store[i].command);
    }
    sealed.nodes_.reserve(store.size());
    sealed.touches_.reserve(touches);
    sealed.edges_.reserve(hazards.edge_count());
    if (blocks != 0) sealed.arguments_.reset(new std::byte[blocks]);  // operator new aligns to 16.
    next_block_ = sealed.arguments_.get();
    for (const HoldRef& hold : sealed.holds_) holds_.of(hold.get());
  }

  void add(const StoredNode& stored, std::span<const std::uint32_t> after) {
    for (const Touch& touch : stored.touched()) {
      sealed_.touches_.push_back({touch.range, holds_.of(touch.hold.get()).first, touch.access});
    }
    sealed_.edges_.insert(sealed_.edges_.end(), after.begin(), after.end());
    if (stored.kernel && kernels_.of(stored.kernel.get()).second) {
      sealed_.kernels_.push_back(stored.kernel);
    }
    keep_name(stored);
    sealed_.nodes_.push_back({command_of(stored), stored.where.line, file(stored.where.file),
                              static_cast<std::uint32_t>(sealed_.touches_.size()),
                              static_cast<std::uint32_t>(sealed_.edges_.size())});
  }

private:
  /// With an argument block that lasts.
  Command command_of(const StoredNode& stored) noexcept {
    Command command = stored.command;
    if (const std::size_t bytes = block_bytes(command)) {
      auto& launch = *std::get_if<command::Launch>(&command);
      std::memcpy(next_block_, launch.arguments, launch.kernel->argument_bytes);
      launch.arguments = next_block_;
      next_block_ += bytes;
    }
    return command;
  }

  std::uint32_t file(const char* name) {
    if (name == nullptr) name = "";
    const auto [number, is_new] = files_.of(name);
    if (is_new) sealed_.files_.push_back(name);
    return number;
  }

  void keep_name(const StoredNode& stored) {
    const std::string_view name = stored.name;
    if (name.empty() || (stored.kernel && name.data() == stored.kernel->name.data())) return;
    sealed_.letters_.insert(sealed_.letters_.end(), name.begin(), name.end());
    sealed_.names_.push_back({sealed_.size(), static_cast<std::uint32_t>(sealed_.letters_.size())});
  }

  SealedNodes& sealed_;
  std::byte* next_block_ = nullptr;
  Numbers holds_;
  Numbers kernels_;
  Numbers files_;
};

SealedNodes::SealedNodes(const NodeStore& store, const Hazards& hazards,
                         std::span<const HoldRef> holds)
    : holds_(holds) {
  static_assert(sizeof(Node) == 80 && sizeof(PackedTouch) == 24);
  Packing packing(*this, store, hazards);
  for (std::uint32_t i = 0; i < store.size(); ++i) packing.add(store[i], hazards.after(i));
  names_.shrink_to_fit();
  letters_.shrink_to_fit();
}

void SealedNodes::keep(NodeStore& store) noexcept {
  retained_bytes_ = store.retained_bytes();
  retained_ = store.take_retained();
}

std::string_view SealedNodes::name_of(std::uint32_t index) const noexcept {
  const auto name =
      std::lower_bound(names_.begin(), names_.end(), index,
                       [](const Name& at, std::uint32_t node) { return at.node < node; });
  if (name != names_.end() && name->node == index) {
    const std::uint32_t begin = name == names_.begin() ? 0 : std::prev(name)->end;
    return {letters_.data() + begin, name->end - begin};
  }
  const Command& command = nodes_[index].command;
  const std::string_view kernel = reprise::name_of(command);
  return kernel.empty() ? std::string_view{verb_of(command)} : kernel;
}

PlanNode SealedNodes::node(std::uint32_t index) const noexcept {
  const std::size_t begin = index == 0 ? 0 : nodes_[index - 1].edges_end;
  const Node& node = nodes_[index];
  return {node.command, {edges_.data() + begin, node.edges_end - begin}, name_of(index)};
}

std::span<const PackedTouch> SealedNodes::touches_of(std::uint32_t index) const noexcept {
  const std::size_t begin = index == 0 ? 0 : nodes_[index - 1].touches_end;
  return {touches_.data() + begin, nodes_[index].touches_end - begin};
}

// An address stays as it is from before the sealing on, so any thread may look it up.
void SealedNodes::add_touches(std::uint32_t index, std::vector<NodeTouch>& out) const {
  for (const PackedTouch& touch : touches_of(index)) {
    const std::uint64_t base = holds_[touch.hold]->device.address;
    out.push_back({{base + touch.range.begin, base + touch.range.end}, touch.access});
  }
}

NodeTouches SealedNodes::touches(std::uint32_t index) const noexcept {
  return {touches_of(index), holds_.data()};
}

SourceLocation SealedNodes::where(std::uint32_t index) const noexcept {
  return {files_[nodes_[index].file], nodes_[index].line};
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/kernel.hpp>
#include <reprise/capture/graph_spec.hpp>
#include <reprise/runtime/buffer.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/graph.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise {

class GraphBuilder;

/// A buffer of a GraphBuilder that gets its memory when the graph is instantiated on a device.
///
/// Units  Elements.
template <class T>
class Placeholder {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "device memory holds trivially copyable elements");

public:
  using value_type = T;

  std::size_t size() const noexcept { return count_; }
  /// `count` elements from `offset` on. Failure out_of_range.
  Placeholder slice(std::size_t offset, std::size_t count) const {
    if (offset > count_ || count > count_ - offset) detail::bad_slice(offset, count, count_);
    return {builder_, index_, offset_ + offset, count};
  }

private:
  friend class GraphBuilder;
  friend class GraphOperand;
  friend struct PlaceholderBinding;
  Placeholder(std::uint64_t builder, std::uint32_t index, std::size_t offset,
              std::size_t count) noexcept
      : builder_(builder), index_(index), offset_(offset), count_(count) {}

  std::uint64_t builder_;
  std::uint32_t index_;
  std::size_t offset_;
  std::size_t count_;
};

/// Bytes that a node of a GraphBuilder touches: of a buffer or of a placeholder.
class GraphOperand {
public:
  GraphOperand(const Buffer& buffer) noexcept : buffer_(buffer) {}  // NOLINT: implicit on purpose
  template <class T>
  GraphOperand(const Placeholder<T>& placeholder) noexcept  // NOLINT: implicit on purpose
      : builder_(placeholder.builder_),
        index_(placeholder.index_), range_{placeholder.offset_ * sizeof(T),
                                           (placeholder.offset_ + placeholder.count_) * sizeof(T)} {
  }

  std::uint64_t size_bytes() const noexcept {
    return builder_ != 0 ? range_.size() : buffer_.size_bytes();
  }

private:
  friend class GraphBuilder;
  Buffer buffer_;
  std::uint64_t builder_ = 0;  // 0: `buffer_` it is.
  std::uint32_t index_ = 0;
  ByteRange range_;
};

/// The byte sets of a host node.
struct GraphSets {
  std::vector<GraphOperand> reads = {};
  std::vector<GraphOperand> may_write = {};
  std::vector<GraphOperand> must_write = {};  ///< Implies may_write.
};

/// A node of a GraphBuilder, by its number.
struct GraphNode {
  std::uint32_t index = 0;

  friend bool operator==(GraphNode, GraphNode) noexcept = default;
};

/// What memory a placeholder stands for in one graph.
struct PlaceholderBinding {
  template <class T>
  PlaceholderBinding(const Placeholder<T>& placeholder, const Array<T>& array)
      : builder(placeholder.builder_), index(placeholder.index_), element_bytes(sizeof(T)),
        buffer(array) {}

  std::uint64_t builder;
  std::uint32_t index;
  std::uint64_t element_bytes;
  Buffer buffer;
};

struct GraphBuilderOptions {
  SpecEdges edges = SpecEdges::derived;
  std::string_view name = {};  ///< Of the graphs, in failures and reports.
};

/// A graph by hand: nodes and the order between them, with buffers or placeholders. It needs no
/// device until it is instantiated on one, and may be instantiated many times.
///
///   reprise::GraphBuilder builder;
///   const auto x = builder.placeholder<float>("x", 3);
///   const auto first = builder.add_fill(x, 1.0f);
///   const auto second = builder.add_kernel(scale, reprise::grid_for(3), x, 2.0f);
///   builder.depend(second, first);  // Derived from the bytes here, if it is left out.
///   const reprise::Graph graph = builder.instantiate(client, {{x, client.zeros<float>(3)}});
///
/// Lifetime  Keeps kernels, functions, buffers and child graphs; what it makes keeps them, too. The
///           functions of host nodes are shared by all that is made.
/// Threads   As a vector: several may read or instantiate, one alone may change.
/// Errors    Throws Failure, whose record names the node and whose message the value. A call that
///           failed has changed nothing.
/// Units     Elements where types are given, else bytes.
class GraphBuilder {
public:
  explicit GraphBuilder(const GraphBuilderOptions& options = {});
  /// Of a spec that was made elsewhere, for instance loaded: its buffers are placeholders.
  ///
  /// Errc::unsupported   a host, child or conditional node
  explicit GraphBuilder(GraphSpec spec, std::string_view name = {});

  /// A buffer of `count` elements without memory.
  template <class T>
  Placeholder<T> placeholder(std::string_view name, std::size_t count) {
    return {id_, add_placeholder(name, detail::byte_count<T>("placeholder", count), sizeof(T)), 0,
            count};
  }

  /// The placeholder of that name.
  ///
  /// Errc::invalid_argument   there is none, or more than one
  /// Errc::size_mismatch      its elements are of another size
  template <class T>
  Placeholder<T> find(std::string_view name) const {
    const std::uint32_t index = find_placeholder(name, sizeof(T));
    return {id_, index, 0, static_cast<std::size_t>(spec_.buffer(index).bytes / sizeof(T))};
  }

  // ---- nodes ---------------------------------------------------------------------------------
  // Errc::empty_handle, out_of_range, size_mismatch, misaligned, invalid_argument: a buffer, range
  // or value that does not fit; a placeholder of another builder.

  /// Runs `kernel` over `grid`, with arrays or placeholders for its buffers; the compiler checks
  /// their types.
  template <class... A, class... X>
  GraphNode add_kernel(const Kernel<void(A...)>& kernel, const Grid& grid, const X&... arguments) {
    static_assert(sizeof...(X) == sizeof...(A),
                  "a launch takes exactly the arguments that its kernel declares");
    std::vector<std::byte> block(kernel.layout[sizeof...(A)]);
    std::vector<GraphOperand> operands;
    [[maybe_unused]] std::size_t i = 0;
    (bind<A>(block.data() + kernel.layout[i++], operands, arguments), ...);
    return add_kernel(kernel.definition(), grid, std::move(block), operands, false);
  }
  /// The same over as many blocks of a grid as an array or placeholder says on the device.
  /// Errc::size_mismatch: it has not one element.
  template <class... A, class Count, class... X>
  GraphNode add_kernel(const Kernel<void(A...)>& kernel, const IndirectGrid<Count>& grid,
                       const X&... arguments) {
    static_assert(sizeof...(X) == sizeof...(A),
                  "a launch takes exactly the arguments that its kernel declares");
    static_assert(std::is_same_v<Count, Array<std::uint32_t>> ||
                      std::is_same_v<Count, Placeholder<std::uint32_t>>,
                  "a count is an Array or a Placeholder of std::uint32_t");
    std::vector<std::byte> block(kernel.layout[sizeof...(A)]);
    std::vector<GraphOperand> operands;
    [[maybe_unused]] std::size_t i = 0;
    (bind<A>(block.data() + kernel.layout[i++], operands, arguments), ...);
    operands.emplace_back(grid.count);
    return add_kernel(kernel.definition(), grid.max_grid, std::move(block), operands, true);
  }
  /// Copies `from` to `to`, of the same size and not overlapping.
  GraphNode add_copy(const GraphOperand& to, const GraphOperand& from,
                     SourceLocation where = SourceLocation::current());
  /// Sets every element to `value`.
  template <class T>
  GraphNode add_fill(const Array<T>& array, const std::type_identity_t<T>& value,
                     SourceLocation where = SourceLocation::current()) {
    return add_fill(GraphOperand(array), pattern_of(value), sizeof(T), where);
  }
  template <class T>
  GraphNode add_fill(const Placeholder<T>& placeholder, const std::type_identity_t<T>& value,
                     SourceLocation where = SourceLocation::current()) {
    return add_fill(GraphOperand(placeholder), pattern_of(value), sizeof(T), where);
  }
  /// Calls `function`, on a library thread on which library verbs only post. What it throws fails
  /// the node.
  GraphNode add_host(const GraphSets& sets, std::function<void()> function,
                     SourceLocation where = SourceLocation::current());
  /// Does nothing: a place for edges to meet.
  GraphNode add_empty(SourceLocation where = SourceLocation::current());
  /// Runs `graph` as one node, on the buffers it was recorded with. Errc::empty_graph; unsupported
  /// (slots of it rotate).
  GraphNode add_child(const Graph& graph, SourceLocation where = SourceLocation::current());

  /// Runs `body` as one node if the condition, read on the device when the node's turn comes, is
  /// not 0. As it may do nothing, what it writes counts as written at most: marks on it stay. What
  /// it reads must have been written even if it does nothing. An empty body leaves no node.
  ///
  /// Errc::size_mismatch (no single element), empty_graph, unsupported (slots of it rotate)
  GraphNode add_if(const Array<std::uint32_t>& condition, const Graph& body,
                   SourceLocation where = SourceLocation::current()) {
    return add_conditional(condition, body, GraphRepeat::if_true, 1, where);
  }
  GraphNode add_if(const Placeholder<std::uint32_t>& condition, const Graph& body,
                   SourceLocation where = SourceLocation::current()) {
    return add_conditional(condition, body, GraphRepeat::if_true, 1, where);
  }
  /// The same as long as the condition, read before each run, is not 0, and `at_most` times; then
  /// the graph goes on, whatever the condition says. The first run that fails is the last one. When
  /// the device is aborted, a loop ends before its next run, as failed with operation_aborted.
  ///
  /// Errc::invalid_argument   at most 0 times
  GraphNode add_while(const Array<std::uint32_t>& condition, const Graph& body,
                      std::uint32_t at_most = no_repeat_limit,
                      SourceLocation where = SourceLocation::current()) {
    return add_conditional(condition, body, GraphRepeat::while_true, at_most, where);
  }
  GraphNode add_while(const Placeholder<std::uint32_t>& condition, const Graph& body,
                      std::uint32_t at_most = no_repeat_limit,
                      SourceLocation where = SourceLocation::current()) {
    return add_conditional(condition, body, GraphRepeat::while_true, at_most, where);
  }

  /// Renames a node; graphs made before keep the old name.
  void set_name(GraphNode node, std::string_view name);
  /// `node` runs after `on`. Twice is once. Errc::out_of_range, invalid_argument (after itself).
  void depend(GraphNode node, GraphNode on) { spec_.depend(node.index, on.index); }
  void depend(GraphNode node, std::initializer_list<GraphNode> on) {
    for (const GraphNode each : on) depend(node, each);
  }

  // ---- looking -------------------------------------------------------------------------------

  std::uint32_t node_count() const noexcept { return spec_.node_count(); }
  /// Edges that were given.
  std::size_t edge_count() const noexcept { return spec_.edge_count(); }
  /// All that is known without a device: nodes, order, levels, critical path.
  const GraphSpec& spec() const noexcept { return spec_; }
  std::string to_dot() const { return spec_.to_dot(name_); }

  // ---- graphs --------------------------------------------------------------------------------

  /// Checks and orders the nodes into a graph without a device: it can be looked at, and its replay
  /// fails with Errc::not_initialized.
  ///
  /// Errc::invalid_argument   a cycle, named node by node; with given edges, two nodes that
  ///                          conflict on bytes and are not ordered
  Graph instantiate() const;
  /// The same on the device of `client`, with memory for every placeholder: a graph like one that
  /// was captured. Blocks until it is lowered. Bytes that placeholders share order their nodes as
  /// if they were one buffer. A failure marks no bytes.
  ///
  /// Errc::invalid_argument   also: a placeholder that is not bound, bound twice or another
  ///                          builder's; a grid that the device does not take
  /// Errc::size_mismatch      memory that does not fit its placeholder
  /// Errc::wrong_device       a buffer or child of another device
  /// Errc::no_such_kernel     no body for this device
  /// Errc::not_initialized    a child without a device
  Graph instantiate(const Client& client, std::span<const PlaceholderBinding> bindings) const;
  Graph instantiate(const Client& client,
                    std::initializer_list<PlaceholderBinding> bindings = {}) const {
    return instantiate(client,
                       std::span<const PlaceholderBinding>(bindings.begin(), bindings.size()));
  }

private:
  /// What the spec does not know of a node.
  struct Own {
    std::shared_ptr<std::function<void()>> function;
    Graph child;
  };

  template <class P, class X>
  static void bind(std::byte* at, std::vector<GraphOperand>& operands, const X& argument) {
    if constexpr (BufferArgument<P>) {
      using Element = typename P::value_type;
      static_assert(std::is_convertible_v<const X&, const Array<Element>&> ||
                        std::is_same_v<X, Placeholder<Element>>,
                    "this parameter of the kernel is a buffer: pass an Array or a Placeholder of "
                    "its element type");
      const detail::BufferSlot slot{nullptr, argument.size()};
      std::memcpy(at, &slot, sizeof slot);
      operands.emplace_back(argument);
    } else {
      static_assert(std::is_convertible_v<const X&, P>,
                    "this parameter of the kernel is a scalar of another type");
      const P value = static_cast<P>(argument);
      std::memcpy(at, &value, sizeof value);
    }
  }
  template <class T>
  static std::uint64_t pattern_of(const T& value) {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                  "fill repeats a pattern of 1, 2, 4 or 8 bytes");
    std::uint64_t pattern = 0;
    std::memcpy(&pattern, &value, sizeof value);
    return pattern;
  }

  std::uint32_t find_placeholder(std::string_view name, std::uint32_t element_bytes) const;
  std::uint32_t add_placeholder(std::string_view name, std::uint64_t bytes,
                                std::uint32_t element_bytes);
  GraphNode add_kernel(const KernelRef& kernel, const Grid& grid, std::vector<std::byte> block,
                       std::span<const GraphOperand> operands, bool has_count);
  GraphNode add_fill(const GraphOperand& operand, std::uint64_t pattern,
                     std::uint32_t pattern_bytes, SourceLocation where);
  GraphNode add_conditional(const GraphOperand& condition, const Graph& body, GraphRepeat repeat,
                            std::uint32_t at_most, SourceLocation where);
  void use_child(SpecNode& node, const Graph& graph);
  GraphNode add(SpecNode node, Own own = {});
  SpecUse use_of(const char* verb, const GraphOperand& operand, Access access);
  std::uint32_t buffer_of(const HoldRef& hold);
  std::vector<Buffer> resolve(const Client& client,
                              std::span<const PlaceholderBinding> bindings) const;
  void check_for(const Client& client) const;
  void record(const Client& inside, const SpecOrder& order, std::span<const Buffer> memory) const;

  std::uint64_t id_;
  std::string name_;
  GraphSpec spec_;
  std::vector<Own> own_;                                  // By node.
  std::vector<HoldRef> holds_;                            // By buffer; empty for placeholders.
  std::unordered_map<const Hold*, std::uint32_t> known_;  // Buffers by hold.
};

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/runtime/future.hpp>
#include <reprise/runtime/graph_change.hpp>
#include <reprise/runtime/options.hpp>
#include <reprise/runtime/output_lease.hpp>
#include <reprise/runtime/slots.hpp>
#include <reprise/runtime/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace reprise {

class Graph;

namespace detail {
struct GraphState;
struct GraphAccess;

/// Raw bytes have no type.
template <class Values>
const std::type_info* element_of() noexcept {
  using Element = std::ranges::range_value_t<Values>;
  static_assert(std::is_trivially_copyable_v<Element>, "slots hold trivially copyable elements");
  return std::is_same_v<Element, std::byte> ? nullptr : &typeid(Element);
}
void refresh(const Graph& graph, std::string_view slot, std::span<const std::byte> bytes,
             const std::type_info* element);
bool try_refresh(const Graph& graph, std::string_view slot, std::span<const std::byte> bytes,
                 const std::type_info* element);
}  // namespace detail

/// What a graph has done so far.
struct GraphStatistics {
  std::uint64_t replays = 0;     ///< Accepted.
  std::uint64_t refused = 0;     ///< Not accepted: refused, skipped, closed.
  std::uint64_t failed = 0;      ///< Accepted, and some node failed.
  std::uint64_t bound = 0;       ///< Accepted with bindings.
  std::uint64_t refreshes = 0;   ///< Of slots, accepted.
  std::uint64_t lease_held = 0;  ///< Replays, refreshes and leases refused for leases.
  std::uint64_t leases = 0;      ///< Held now.
};

/// A sealed recording and its executable form on one device: launches, copies, fills, writes and
/// host calls that replay() dispatches again against the buffers they were captured with.
///
/// Client::capture(), stop_capture() and GraphBuilder::instantiate() make one. Names, addresses and
/// order were fixed then, so a replay looks nothing up. It always runs on a logical stream of its
/// own, whoever calls.
///
/// Buffers that the window named with Client::slot() may be other ones in one replay: each form
/// takes bindings. They hold for that replay only, from its place in the order on, and are what it
/// waits for, what carries its failures and what it keeps alive; slots that are not bound are the
/// recorded buffers, or of a slot that rotates the newest copy. Bound or not, ranges that were
/// disjoint when recorded have to be disjoint. As a node of another graph it runs with its recorded
/// buffers, which a graph whose slots rotate cannot.
///
/// Lifetime  A Graph is a handle; copies share one recording. While any copy lives, or any replay
///           is in flight, every byte it touches stays allocated and guarded. Dropping the last
///           copy early is safe.
/// Threads   Any thread may call any member; replays are ordered by the order of the calls.
///           Assigning to one handle from two threads needs the caller's lock, as with shared_ptr.
/// Errors    Plain forms throw Failure; async_ forms deliver the code. Blocking forms throw
///           would_deadlock on the library's own threads.
/// Units     Bytes.
class Graph {
public:
  /// An empty handle. Replaying it fails with Errc::empty_graph.
  Graph() noexcept = default;

  /// True when the handle refers to a recording.
  explicit operator bool() const noexcept { return state_ != nullptr; }

  /// Dispatches the recording once more.
  ///
  /// Returns when the device has accepted the dispatch, not when it has run: it may wait for
  /// in-flight credit, never for its own completion. Reads and writes of the same bytes by any
  /// client, stream or thread are ordered against it.
  ///
  /// Errc::skipped      an input carries a failure; the Failure names its root.
  /// Errc::refused      the backend refused it; the write set carries that until a replay lands.
  /// Errc::lease_held   an output is leased and no copy of it is free; what else it would have
  ///                    written carries that.
  /// Errc::empty_graph, not_initialized (made without a device), closed, device_lost
  void replay() const;
  /// The same with slots bound for this replay. What is wrong with a binding is told on the calling
  /// thread and changes nothing.
  ///
  /// Errc::no_such_slot, size_mismatch, misaligned, wrong_device, empty_handle
  /// Errc::slot_overlap      it would share bytes with another slot or with what the graph names
  ///                         itself.
  /// Errc::invalid_argument  a slot is bound twice, or to elements of another type.
  /// Errc::unsupported       a host call or a graph within the graph uses the slot.
  void replay(BindingView bindings) const;
  /// The same; false if it would have had to wait for room. An enqueue failure then lands on the
  /// memory and in last_failure().
  bool try_replay() const;
  bool try_replay(BindingView bindings) const;
  /// Completes when the dispatch is accepted.
  Future<void> async_replay() const;
  Future<void> async_replay(BindingView bindings) const;
  template <class Token>
  requires(!std::is_convertible_v<Token, BindingView>) auto async_replay(Token&& token) const;
  template <class Token>
  auto async_replay(const CallOptions& options, Token&& token) const;
  template <class Token>
  auto async_replay(BindingView bindings, Token&& token) const;
  template <class Token>
  auto async_replay(BindingView bindings, const CallOptions& options, Token&& token) const;

  /// Replays and waits until the device has finished; throws what a node failed with.
  void run() const;
  void run(BindingView bindings) const;
  /// Completes when the device has finished.
  Future<void> async_run() const;
  Future<void> async_run(BindingView bindings) const;
  template <class Token>
  requires(!std::is_convertible_v<Token, BindingView>) auto async_run(Token&& token) const;
  template <class Token>
  auto async_run(const CallOptions& options, Token&& token) const;
  template <class Token>
  auto async_run(BindingView bindings, Token&& token) const;
  template <class Token>
  auto async_run(BindingView bindings, const CallOptions& options, Token&& token) const;

  /// Replaces the contents of a slot that replays only read, or only write, for all replays that
  /// come after this. A replay before it still finds the old ones: either the device waits for
  /// those replays, or the slot rotates and its next copy is filled, which is then what replays use
  /// that do not bind the slot. The bytes are taken before this returns.
  ///
  /// Like a write it posts, and a failure lives on the bytes; only for a slot that replays write it
  /// blocks until the device has accepted it, to tell lease_held. `values` is any contiguous range,
  /// of the slot's element type or of std::byte.
  ///
  /// Errc::lease_held        every copy is leased; no byte has changed.
  /// Errc::no_such_slot, size_mismatch, empty_graph, closed
  /// Errc::invalid_argument  replays read the slot and write it; elements of another type.
  template <std::ranges::contiguous_range Values>
  void refresh(std::string_view slot, const Values& values) const {
    detail::refresh(*this, slot, std::as_bytes(std::span(values)), detail::element_of<Values>());
  }
  template <class T>
  void refresh(std::string_view slot, std::initializer_list<T> values) const {
    refresh(slot, std::span<const T>(values.begin(), values.size()));
  }
  /// The same; false if it would have had to wait for room. An enqueue failure then lands in
  /// last_failure() and, but for lease_held, on the memory.
  template <std::ranges::contiguous_range Values>
  bool try_refresh(std::string_view slot, const Values& values) const {
    return detail::try_refresh(*this, slot, std::as_bytes(std::span(values)),
                               detail::element_of<Values>());
  }
  /// Completes when the refresh is accepted. The bytes are taken before this returns, too. The tail
  /// is that of Client's asynchronous verbs: nothing, a completion token, or CallOptions and a
  /// token.
  template <std::ranges::contiguous_range Values, class... Tail>
  auto async_refresh(std::string_view slot, const Values& values, Tail&&... tail) const;

  /// Holds what the newest replay or refresh before this put into `slot`, which replays only write.
  /// Until the lease is released they write another copy, if the slot rotates and one is free, and
  /// are else refused with Errc::lease_held; nobody waits for a holder. A replay that binds the
  /// slot writes elsewhere and has nothing to do with it. Blocks until the device has taken the
  /// question.
  ///
  /// Errc::lease_held        the newest contents were to be written and were not, as every copy was
  ///                         leased: what the slot still holds is older.
  /// Errc::no_such_slot, empty_graph, closed
  /// Errc::invalid_argument  the slot is not one that replays only write.
  OutputLease lease(std::string_view slot) const;
  template <class... Tail>
  auto async_lease(std::string_view slot, Tail&&... tail) const;

  /// Gives the launch that is node `node` other scalars: replays that were asked for before keep
  /// the old ones, replays from here on have the new ones. Its buffers stay the bytes they are;
  /// bytes are changed by clone(), the rest by a new graph.
  ///
  /// Blocks until the device has taken it, not until the replays before it have run. If it throws,
  /// nothing has changed.
  ///
  /// Errc::out_of_range      no such node
  /// Errc::invalid_argument  it is no launch of `kernel`
  /// Errc::unsupported       a buffer is not the bytes that it was; the graph was made a node of
  ///                         another one. Nor can a graph that was updated become one; a clone can.
  /// Errc::empty_graph, not_initialized, closed
  template <class... A, class... X>
  void update(std::uint32_t node, const Kernel<void(A...)>& kernel, const X&... arguments) const {
    const detail::LaunchArguments<A...> bound(arguments...);
    update_node(node, kernel.definition(), bound.view());
  }
  /// Gives every launch the scalars that it has in `other`, at once, if nothing else differs; if
  /// something does, changes nothing and the answer says what. `other` may be captured or built.
  ///
  /// Errc::unsupported, empty_graph, not_initialized, closed
  GraphDiff update(const Graph& other) const;
  /// What it would take to make this graph `other`, node by node. Errc::empty_graph.
  GraphDiff diff(const Graph& other) const;
  /// A graph of the same nodes, names, order and slots, with the scalars of now, that has other
  /// buffers in the place of some. Blocks until it is lowered. Host memory and functions are shared
  /// with this one.
  ///
  /// Errc::size_mismatch     two sides of a change
  /// Errc::invalid_argument  buffers that are replaced share bytes; a node names bytes inside and
  ///                         outside of one, or would name bytes twice and write them
  /// Errc::misaligned        an offset that the elements of a kernel do not allow
  /// Errc::unsupported       a host call or a graph within the graph names bytes to be replaced
  /// Errc::wrong_device, empty_handle, empty_graph, not_initialized, closed
  Graph clone(std::span<const BufferChange> changes) const;
  Graph clone(std::initializer_list<BufferChange> changes = {}) const {
    return clone(std::span<const BufferChange>(changes.begin(), changes.size()));
  }

  /// The name given at capture.
  std::string_view name() const noexcept;
  /// Nodes. Zero-byte copies and empty grids are dropped while recording.
  std::uint32_t node_count() const noexcept;
  /// Pairs of nodes of which one must have finished before the other starts, without those that
  /// others imply.
  std::size_t edge_count() const noexcept;
  /// False for an empty handle and for what GraphBuilder::instantiate() made without a device:
  /// replays of the latter fail with Errc::not_initialized.
  bool has_device() const noexcept;
  /// Bytes that stay out of the pool because this recording lives. Overlaps count once.
  std::uint64_t guarded_bytes() const noexcept;
  /// The slots, in the order in which they were named.
  std::vector<SlotInfo> slots() const;
  /// The nodes and their order as a DOT digraph.
  std::string to_dot() const;
  GraphStatistics statistics() const noexcept;
  /// Why the latest replay or refresh that was refused, skipped or failed did not succeed; null if
  /// none.
  FailurePtr last_failure() const;

private:
  friend struct detail::GraphAccess;
  explicit Graph(std::shared_ptr<detail::GraphState> state) noexcept : state_(std::move(state)) {}
  void update_node(std::uint32_t node, const KernelRef& kernel,
                   const detail::ArgumentView& arguments) const;

  std::shared_ptr<detail::GraphState> state_;
};

std::ostream& operator<<(std::ostream& out, const Graph& graph);

namespace detail {
/// Submit a replay; `reply` answers when it is accepted, or when it has finished.
void start_replay(const Graph& graph, BindingView bindings, Reply* reply) noexcept;
void start_run(const Graph& graph, BindingView bindings, Reply* reply) noexcept;
void start_refresh(const Graph& graph, std::string_view slot, std::span<const std::byte> bytes,
                   const std::type_info* element, Reply* reply) noexcept;
void start_lease(const Graph& graph, std::string_view slot,
                 ValueReply<OutputLease>& reply) noexcept;
}  // namespace detail

}  // namespace reprise

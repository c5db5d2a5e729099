// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/runtime/future.hpp>
#include <reprise/runtime/options.hpp>
#include <reprise/runtime/slots.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace reprise {

namespace detail {
struct GraphState;
struct GraphAccess;
}  // namespace detail

/// What a graph has done so far.
struct GraphStatistics {
  std::uint64_t replays = 0;  ///< Accepted.
  std::uint64_t refused = 0;  ///< Not accepted: refused, skipped, closed.
  std::uint64_t failed = 0;   ///< Accepted, and some node failed.
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
/// recorded buffers. Bound or not, ranges that were disjoint when recorded have to be disjoint.
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
  /// Why the latest replay that was refused, skipped or failed did not succeed; null if none.
  FailurePtr last_failure() const;

private:
  friend struct detail::GraphAccess;
  explicit Graph(std::shared_ptr<detail::GraphState> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<detail::GraphState> state_;
};

std::ostream& operator<<(std::ostream& out, const Graph& graph);

namespace detail {
/// Submit a replay; `reply` answers when it is accepted, or when it has finished.
void start_replay(const Graph& graph, BindingView bindings, Reply* reply) noexcept;
void start_run(const Graph& graph, BindingView bindings, Reply* reply) noexcept;
}  // namespace detail

}  // namespace reprise

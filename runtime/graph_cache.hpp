// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/runtime/graph.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace reprise {

/// What a GraphCache is about to do about a key.
enum class GraphCacheEvent : std::uint8_t {
  capture,  ///< Its graph is not there and will be captured.
  evict,    ///< Its graph was not used for longest, and makes room for another one.
};

/// What a GraphCache has done so far.
struct GraphCacheStatistics {
  std::uint64_t hits = 0;
  std::uint64_t captures = 0;
  std::uint64_t evictions = 0;
};

/// Graphs by key, each captured when its key first comes up: one for each batch size or range of
/// context lengths that a server meets, say. At most `capacity` are kept; the one that was not used
/// for longest makes room.
///
///   GraphCache<std::uint32_t> steps(4);
///   steps.get(batch, [&] { return client.capture(...); }).replay();
///
/// A key is looked for among all, the most recently used first: this is for tens of graphs.
///
/// Lifetime  Keeps its graphs. One that leaves is dropped like any handle: replays in flight are
///           finished, and other handles keep it. Between a capture and the eviction for it there
///           is one graph more.
/// Threads   One at a time, as with any container. The functions that it calls leave it alone.
/// Errors    What these functions throw comes out of get(), and everything is as before.
template <class Key>
class GraphCache {
  static_assert(std::is_nothrow_move_constructible_v<Key> && std::is_nothrow_move_assignable_v<Key>,
                "entries move as they are used");

public:
  /// Told before the cache acts. Throwing keeps it from it: a server that has warmed up can make
  /// captures an error.
  using Listener = std::function<void(GraphCacheEvent, const Key&)>;

  /// Throws Failure invalid_argument for a capacity of 0.
  explicit GraphCache(std::size_t capacity, Listener listener = {})
      : capacity_(capacity), listener_(std::move(listener)) {
    if (capacity == 0) {
      throw Failure(Errc::invalid_argument, "graph_cache", "the capacity is 0: it keeps nothing");
    }
  }

  /// The graph of `key`; `capture()`, which answers a Graph, is called if there is none.
  ///
  /// Errc::empty_graph   capture() answered an empty handle.
  template <class Capture>
  Graph get(const Key& key, Capture&& capture) {
    if (const auto at = find(key); at != entries_.end()) {
      ++statistics_.hits;
      std::rotate(entries_.begin(), at, at + 1);
      return entries_.front().graph;
    }
    tell(GraphCacheEvent::capture, key);
    Entry made{key, std::forward<Capture>(capture)()};
    if (!made.graph) {
      throw Failure(Errc::empty_graph, "graph_cache", "the capture function answered no graph");
    }
    if (entries_.size() == capacity_) {
      tell(GraphCacheEvent::evict, entries_.back().key);
      ++statistics_.evictions;
      entries_.back() = std::move(made);
    } else {
      entries_.push_back(std::move(made));
    }
    ++statistics_.captures;
    std::rotate(entries_.begin(), entries_.end() - 1, entries_.end());
    return entries_.front().graph;
  }

  /// Drops the graph of `key`, which is no eviction. False if there is none.
  bool erase(const Key& key) noexcept {
    const auto at = find(key);
    if (at == entries_.end()) return false;
    entries_.erase(at);
    return true;
  }
  void clear() noexcept { entries_.clear(); }

  std::size_t size() const noexcept { return entries_.size(); }
  std::size_t capacity() const noexcept { return capacity_; }
  GraphCacheStatistics statistics() const noexcept { return statistics_; }

private:
  struct Entry {
    Key key;
    Graph graph;
  };

  auto find(const Key& key) noexcept {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&key](const Entry& entry) { return entry.key == key; });
  }
  void tell(GraphCacheEvent event, const Key& key) const {
    if (listener_) listener_(event, key);
  }

  std::size_t capacity_;
  Listener listener_;
  std::vector<Entry> entries_;  // The most recently used first.
  GraphCacheStatistics statistics_;
};

}  // namespace reprise

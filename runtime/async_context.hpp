// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/backend.hpp>
#include <reprise/device/host.hpp>
#include <reprise/runtime/block_cache.hpp>
#include <reprise/runtime/completion.hpp>
#include <reprise/runtime/job_loop.hpp>

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace reprise::detail {

/// What a future or an asynchronous operation needs of the runtime.
///
/// Lifetime  `keep` keeps the others alive, closed or not.
struct AsyncContext {
  Host& host;
  Backend* helper;     ///< Runs work for a thread that waits, if it does so at all.
  JobLoop& courier;    ///< Runs handlers and continuations of the user's.
  JobLoop& completer;  ///< Fulfils futures.
  BlockCache& blocks;
  std::shared_ptr<const void> keep;
};

/// The reply of an operation with result T.
template <class T>
struct ReplyOf {
  using Type = ValueReply<T>;
};
template <>
struct ReplyOf<void> {
  using Type = Reply;
};

/// An S in a block of `blocks`. Throws std::bad_alloc and what the constructor throws.
template <class S, class... A>
S* new_in(BlockCache& blocks, A&&... arguments) {
  static_assert(alignof(S) <= BlockCache::alignment);
  void* const block = blocks.take(sizeof(S));
  try {
    return ::new (block) S(std::forward<A>(arguments)...);
  } catch (...) {
    blocks.give(block, sizeof(S));
    throw;
  }
}

/// True on threads that must not destroy what users gave: those that never run user code.
inline bool is_free_of_user_code(ThreadRole role) noexcept {
  return role == ThreadRole::device || role == ThreadRole::worker || role == ThreadRole::helper;
}

}  // namespace reprise::detail

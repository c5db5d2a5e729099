// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace reprise {

/// Where staging memory comes from: pinned memory of a device, or the heap.
///
/// Threads   Several may call at once.
class StagingSource {
public:
  StagingSource() = default;
  StagingSource(const StagingSource&) = delete;
  StagingSource& operator=(const StagingSource&) = delete;
  virtual ~StagingSource();

  /// Memory of `bytes` bytes, a power of two, aligned to 64 or more; null if there is none.
  virtual void* allocate(std::uint64_t bytes) noexcept = 0;
  virtual void free(void* memory, std::uint64_t bytes) noexcept = 0;
};

/// Units     Bytes.
struct StagingOptions {
  /// Most memory taken from the source at once.
  std::uint64_t limit_bytes = std::uint64_t{64} << 20;
  /// Smallest block, a power of two, 64 or more.
  std::uint64_t least_block = std::uint64_t{4} << 10;
  /// Largest block, rounded down to a power of two; 0 is a quarter of the limit, so that a large
  /// transfer can fill one chunk while others are under way.
  std::uint64_t most_block = 0;
  /// Called on the returning thread, under no lock, when a block comes back and a take() has
  /// answered would_block since the last call. Must not throw.
  void (*on_room)(void* context) = nullptr;
  void* on_room_context = nullptr;
};

/// Exact after every call. reserved = taken + what is idle.
struct StagingStats {
  std::uint64_t reserved = 0;  ///< Held from the source.
  std::uint64_t taken = 0;     ///< In blocks that are out, rounding included.
  std::uint64_t in_use = 0;    ///< Asked for by those who hold blocks.
  std::uint64_t blocks = 0;    ///< Out now.
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;  ///< Requests that were answered with an error.

  friend bool operator==(const StagingStats&, const StagingStats&) noexcept = default;
};

class StagingPool;

/// Host memory on loan from a StagingPool, given back when it goes.
///
/// Lifetime  Goes before its pool.
/// Threads   May be moved to, and dropped on, any thread.
class [[nodiscard]] StagingBlock {
public:
  /// No memory.
  StagingBlock() noexcept = default;
  StagingBlock(StagingBlock&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)), capacity_(std::exchange(other.capacity_, 0)) {}
  StagingBlock& operator=(StagingBlock&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
      capacity_ = std::exchange(other.capacity_, 0);
    }
    return *this;
  }
  ~StagingBlock() { reset(); }

  void reset() noexcept;

  explicit operator bool() const noexcept { return data_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  /// The bytes that were asked for.
  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t capacity() const noexcept { return capacity_; }

private:
  friend class StagingPool;
  StagingBlock(StagingPool& pool, std::byte* data, std::uint64_t size,
               std::uint64_t capacity) noexcept
      : pool_(&pool), data_(data), size_(size), capacity_(capacity) {}

  StagingPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t capacity_ = 0;
};

/// A bounded pool of host blocks for transfers. Sizes are powers of two; blocks that come back are
/// kept and handed out again. Never holds more than its limit: who wants more waits, or sends a
/// larger transfer in chunks of max_block().
///
/// Lifetime  Outlives its blocks; its source outlives it.
/// Threads   Any thread may call any member.
/// Errors    The constructor throws Failure; nothing else throws.
///           Errc::never_fits     larger than max_block().
///           Errc::would_block    the limit is reached; blocks that are out will come back.
///           Errc::out_of_memory  the source has no more, after idle blocks were given back to it.
class StagingPool {
public:
  explicit StagingPool(StagingSource& source, const StagingOptions& options = {});
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;
  ~StagingPool();

  /// A block of at least `bytes` bytes; an empty one for none.
  Result<StagingBlock> take(std::uint64_t bytes) noexcept;

  /// Gives every idle block back to the source; answers the bytes.
  std::uint64_t trim() noexcept;

  std::uint64_t max_block() const noexcept { return most_; }
  std::uint64_t limit() const noexcept { return limit_; }
  StagingStats stats() const noexcept;

private:
  friend class StagingBlock;
  // An idle block holds the link of its list in its own first bytes.
  struct Idle {
    Idle* next;
  };
  static constexpr unsigned classes = 48;

  void give_back(std::byte* data, std::uint64_t size, std::uint64_t capacity) noexcept;
  void* take_idle(std::uint64_t least, std::uint64_t most, std::uint64_t& capacity) noexcept;
  bool make_room(std::uint64_t bytes, Idle* (&evicted)[classes]) noexcept;
  std::uint64_t free_chains(Idle* (&chains)[classes]) noexcept;
  Result<StagingBlock> account(void* memory, std::uint64_t bytes, std::uint64_t capacity) noexcept;
  Error refuse(Errc code, const char* message) noexcept;

  StagingSource& source_;
  const std::uint64_t limit_;
  const std::uint64_t least_;
  const std::uint64_t most_;
  void (*const on_room_)(void*);
  void* const on_room_context_;

  mutable std::mutex mutex_;     // Guards the members below; never held across a call outside.
  Idle* idle_[classes] = {};     // By the logarithm of the size.
  std::uint64_t idle_mask_ = 0;  // Bit k: idle_[k] has a block.
  bool wanted_ = false;          // A take() was refused since on_room_ was called.
  StagingStats stats_;
};

}  // namespace reprise

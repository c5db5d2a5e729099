// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>
#include <reprise/memory/report.hpp>
#include <reprise/memory/staging.hpp>
#include <reprise/device/backend.hpp>
#include <reprise/capture/device_captures.hpp>
#include <reprise/runtime/async_context.hpp>
#include <reprise/runtime/block_cache.hpp>
#include <reprise/runtime/channel.hpp>
#include <reprise/runtime/closer.hpp>
#include <reprise/runtime/job_loop.hpp>
#include <reprise/runtime/operation.hpp>
#include <reprise/runtime/options.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace reprise::detail {

class Actor;
class BlockingReply;

/// What the devices of one runtime share: the threads that run user code, the sink, the options.
///
/// Threads  report() and dispose() from any.
class RuntimeShared {
public:
  /// Starts the courier and the completer. Throws Failure.
  explicit RuntimeShared(RuntimeOptions options);

  /// Tells the error sink, on the courier thread. Cancelled work is no failure to report.
  void report(const FailurePtr& failure, bool skipped) noexcept;
  /// Destroys `object`, which may run user code, on the courier thread.
  template <class T>
  void dispose(T object) noexcept {
    if (auto* const job = new (std::nothrow) Disposal<T>(std::move(object))) courier.post(*job);
  }
  /// Keeps a failure that carries an exception of the user's, so that it dies on the courier.
  void keep(const FailurePtr& failure) noexcept;
  /// Ends the threads. False: one is stuck in user code, and this object must be leaked.
  bool close(std::uint64_t deadline_ns) noexcept;

  const RuntimeOptions options;
  Host& host;
  JobLoop courier;
  JobLoop completer;
  Closers closers;
  /// Reports and handlers that threw on a library thread, or were lost for want of memory.
  std::atomic<std::uint64_t> sink_failures{0};

private:
  template <class T>
  struct Disposal : Job {
    explicit Disposal(T object_) noexcept : object(std::move(object_)) {
      run = [](Job& job) { delete static_cast<Disposal*>(&job); };
      destroy = [](Job& job) noexcept { delete static_cast<Disposal*>(&job); };
    }
    T object;
  };
  static void job_threw(void* self, std::exception_ptr thrown) noexcept;

  std::mutex mutex_;  // guards kept_
  std::vector<FailurePtr> kept_;
};

/// Keeps what a stuck thread may still use until the process ends.
void leave_behind(std::shared_ptr<const void> object);

/// Counters of one device, readable from any thread; each is exact, together they are a snapshot.
struct DeviceCounters {
  std::atomic<std::uint64_t> submitted{0};
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> skipped{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> replays{0};
  std::atomic<std::uint64_t> waits_made{0};
  std::atomic<std::uint64_t> waits_elided{0};
  std::atomic<std::uint64_t> stalled_producers{0};
  std::atomic<std::uint64_t> fallbacks{0};
};

/// Staging memory of a device that reads pageable host memory as fast as any.
class HeapStaging final : public StagingSource {
public:
  void* allocate(std::uint64_t bytes) noexcept override;
  void free(void* memory, std::uint64_t bytes) noexcept override;
};

/// One device as every thread sees it: the channel, the pooled blocks, the way to shut down. The
/// actor behind it is the device thread's alone.
///
/// Lifetime  Kept by every handle of the device. Handles that outlive close() find it closed.
class DeviceCore final : public HoldOwner,
                         public Notice,
                         public WakeTarget,
                         public std::enable_shared_from_this<DeviceCore> {
public:
  DeviceCore(std::shared_ptr<RuntimeShared> shared, std::unique_ptr<Backend> backend,
             DeviceOptions options);
  ~DeviceCore();

  /// Starts backend and device thread. Throws Failure.
  void start();

  // Submission, any thread.

  /// A pooled operation of type Op with `extra` bytes behind it. Throws std::bad_alloc.
  template <class Op, class... A>
  Op* make(std::size_t extra, A&&... arguments) {
    static_assert(alignof(Op) <= 16);
    const std::size_t bytes = round_up(sizeof(Op)) + extra;
    void* const block = blocks_.take(bytes);
    if (block == nullptr) throw std::bad_alloc();
    Op* const operation = ::new (block) Op(std::forward<A>(arguments)...);
    operation->block = block;
    operation->block_bytes = static_cast<std::uint32_t>(bytes);
    return operation;
  }
  /// The same for the device thread, out of blocks that only it uses. Throws std::bad_alloc.
  template <class Op, class... A>
  Op* make_here(A&&... arguments) {
    static_assert(alignof(Op) <= 16 && sizeof(Op) <= block_here);
    void* const block =
        here_ != nullptr ? std::exchange(here_, here_->next) : blocks_.take(block_here);
    Op* const operation = ::new (block) Op(std::forward<A>(arguments)...);
    operation->block = block;
    operation->made_here = true;
    return operation;
  }
  /// Asks for the lines of the block that make_here() will take, which a worker may have used last.
  void expect_make_here() const noexcept {
    if (here_ == nullptr) return;
    const auto* const block = reinterpret_cast<const std::byte*>(here_);
    for (std::size_t at = 0; at < lines_here; at += 64) __builtin_prefetch(block + at, 1);
  }
  /// Where the extra bytes of an operation begin.
  template <class Op>
  static std::byte* extra(Op& operation) noexcept {
    return reinterpret_cast<std::byte*>(&operation) + round_up(sizeof(Op));
  }
  void discard(Operation& operation) noexcept;

  /// Submits; waits only on a full ring or without credit, until the device has taken it. Throws
  /// Failure closed, or channel_full on a library thread that would have to wait.
  void post(Operation* operation);
  /// The same, answering would_block instead of waiting.
  Result<void> try_post(Operation* operation) noexcept;
  /// Submits without ever waiting; refusals arrive in the operation's completions. The caller must
  /// keep whatever the operation's reply refers to alive until then.
  void post_async(Operation* operation) noexcept;
  /// Submits and waits for `reply`, which the operation answers. Throws its failure.
  void call(Operation* operation, BlockingReply& reply);
  /// The same for a replay, whose graph the caller keeps.
  void call(const ReplayRequest& request, BlockingReply& reply);
  /// Brings a node to the device thread: by the control lane, or at once if this is that thread.
  void deliver(ControlNode& node) noexcept;
  /// Posts a node on the control lane, which always goes, and waits for `reply`, which the node
  /// answers; with a null context it answers closed.
  void query(ControlNode& node, BlockingReply& reply);
  /// Staging memory for a write; waits for writes in flight when it is all in use.
  StagingBlock take_staging(std::uint64_t bytes);

  /// A record of ownership for `bytes`, unbound. `on_release` goes to the courier when nobody owns
  /// it any more. Throws std::bad_alloc.
  HoldRef make_hold(std::uint64_t bytes, Job* on_release = nullptr);
  std::shared_ptr<LogicalStream> make_stream(Priority priority);

  /// A failure of `verb` that says the device is closed.
  static FailurePtr closed_failure(const char* verb) noexcept;

  // Shutdown.
  /// Takes no more submissions. With `abort`, what has not started is given up. Waits until the
  /// device thread has ended; Errc::timed_out names what is stuck. Idempotent.
  Result<void> close(bool abort, std::uint64_t deadline_ns, std::string& stuck);
  /// What has not started is given up from here on; close() follows.
  void begin_abort() noexcept {
    aborting_.store(true, std::memory_order_release);
    backend_->end_loops();
  }
  /// The same as close(); nothing if another thread is at it.
  std::optional<Result<void>> try_close(bool abort, std::uint64_t deadline_ns, std::string& stuck);
  bool is_closed() const noexcept { return channel_.is_closed(); }
  /// A shutdown's deadline has passed: the device thread ends, whatever is in flight.
  bool is_giving_up() const noexcept { return giving_up_.load(std::memory_order_acquire); }
  bool is_aborting() const noexcept { return aborting_.load(std::memory_order_acquire); }

  // HoldOwner, Notice, WakeTarget.
  void released(Hold& hold) noexcept override;
  void destroy(Hold& hold) noexcept override;
  void failed(Work& work) noexcept override;
  void progressed() noexcept override;
  void wake() noexcept override;

  const std::string& name() const noexcept { return backend_->properties().name; }
  Backend& backend() noexcept { return *backend_; }
  Backend* helper() noexcept { return options_.help_while_waiting ? backend_.get() : nullptr; }
  Host& host() noexcept { return shared_->host; }
  RuntimeShared& shared() noexcept { return *shared_; }
  const std::shared_ptr<RuntimeShared>& share() const noexcept { return shared_; }
  Channel& channel() noexcept { return channel_; }
  BlockCache& blocks() noexcept { return blocks_; }
  StagingPool& staging() noexcept { return staging_; }
  JobLoop& helper_loop() noexcept { return helper_loop_; }
  AsyncContext async_context() noexcept;
  DeviceCaptures& captures() noexcept { return captures_; }
  const DeviceOptions& options() const noexcept { return options_; }
  DeviceCounters& counters() noexcept { return counters_; }
  /// How often bytes of this device may have become tainted; the device thread's.
  std::uint64_t taint_changes() const noexcept { return taint_changes_; }

private:
  friend class Actor;

  static constexpr std::size_t block_here = BlockCache::large_block;
  static constexpr std::size_t lines_here = 768;  // that an operation of a replay takes
  struct FreeBlock {
    FreeBlock* next;
  };

  static constexpr std::size_t round_up(std::size_t n) noexcept { return (n + 15) / 16 * 16; }
  Admission submit(Operation& operation) noexcept;
  void refuse_closed(Operation& operation) noexcept;
  Result<void> close_locked(bool abort, std::uint64_t deadline_ns, std::string& stuck);

  const std::shared_ptr<RuntimeShared> shared_;
  const DeviceOptions options_;
  std::unique_ptr<Backend> backend_;
  BlockCache blocks_;
  HeapStaging staging_source_;
  StagingPool staging_;
  DeviceCaptures captures_;
  alignas(64) DeviceCounters counters_;
  FreeBlock* here_ = nullptr;        ///< The device thread's.
  std::uint64_t taint_changes_ = 0;  ///< The device thread's; see TaintMap.
  Channel channel_;
  JobLoop helper_loop_;  ///< Lowers recordings.
  std::atomic<StreamId> next_stream_{1};

  // One doorbell: rung at most once until it is served.
  struct Doorbell : ControlNode {
    std::atomic<bool> rung{false};
  };
  Doorbell doorbell_;
  std::atomic<bool> aborting_{false};
  std::atomic<bool> giving_up_{false};

  std::mutex close_mutex_;  // guards ended_, leaked_, stuck_ and makes close() one at a time
  bool ended_ = false;
  bool leaked_ = false;
  std::string stuck_;

  std::unique_ptr<Actor> actor_;
  std::unique_ptr<LoopHandle> thread_;
  // wake() may come before start() has stored the handle.
  std::atomic<LoopHandle*> handle_{nullptr};
};

}  // namespace reprise::detail

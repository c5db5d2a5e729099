// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/async_context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

/// An asynchronous operation between the device and a handler, without the handler's type.
///
/// It is two blocks. The *handler block* (PendingOperation) is made at initiation and belongs to
/// the handler's side. The *device cell* (DeviceCell) is the reply that the device answers. Between
/// them is one pointer, DeviceCell::operation_, which exactly one of completion, cancel and
/// shutdown of the execution context takes:
///
///   completion  the handler block goes to its queue; with it goes the cell, which has the result
///   cancel      the handler block goes to its queue alone; the cell is the device's to dispose of
///   shutdown    the handler block is destroyed; the cell is the device's to dispose of
///
/// Whoever finds the pointer taken leaves the handler block alone.
namespace reprise::detail {

class PendingOperation;
class PortQueue;

/// How a finished operation stands in its queue: by its answered cell, which the device has at hand
/// and the handler's side will read, or by itself if it was cancelled.
struct FinishedLink {
  FinishedLink* next = nullptr;
  PendingOperation* operation = nullptr;
};

/// The device's end. The derived class is the Reply and has the result.
///
/// Lifetime  Until the device has answered and, if the handler side has it then, that is done too.
class DeviceCell {
public:
  const FailurePtr& failure() const noexcept { return failure_; }
  /// Destroys the cell and gives its block back.
  virtual void dispose() noexcept = 0;

protected:
  DeviceCell(BlockCache& blocks, JobLoop& courier) noexcept : blocks_(blocks), courier_(courier) {}
  ~DeviceCell() = default;

  /// Reply::start().
  bool take_up() noexcept;
  /// Reply::complete().
  void finish(const FailurePtr& failure) noexcept;
  BlockCache& blocks() noexcept { return blocks_; }

private:
  friend class PendingOperation;
  friend class PortQueue;

  enum class Phase : std::uint8_t { queued, started, cancelled };

  void orphaned() noexcept;

  struct Disposal : Job {
    DeviceCell* cell = nullptr;
  };

  // With the virtual table's pointer, what the device writes is one line.
  FinishedLink link_;
  std::atomic<PendingOperation*> operation_{nullptr};
  std::atomic<Phase> phase_{Phase::queued};
  FailurePtr failure_;
  PortQueue* queue_ = nullptr;
  BlockCache& blocks_;
  JobLoop& courier_;
  Disposal disposal_;
};

/// The handler's side. As a job, run() hands the handler to its executor and destroy() destroys it
/// uninvoked; one of the two is called, once, and never on a thread of the device.
class PendingOperation : public Job {
public:
  /// Ends the operation, if it is still queued or, with `waiting_too`, at least the wait for it.
  /// On the handler's executor. The handler comes by its queue, not from here.
  void cancel(bool waiting_too) noexcept;

protected:
  explicit PendingOperation(AsyncContext&& context) noexcept : context_(std::move(context)) {}
  ~PendingOperation() = default;

  /// Joins handler block and cell, before the device sees the cell. `queue` null: `loop` takes the
  /// finished operation. False: the execution context is shut down; the two stay apart.
  bool join(DeviceCell& cell, PortQueue* queue, JobLoop* loop) noexcept;

  /// Finished, but `loop` takes nothing more. On any thread.
  virtual void loop_closed(JobLoop& loop) noexcept = 0;

  AsyncContext& context() noexcept { return context_; }
  /// The cell if the device has answered it, null if the operation was cancelled.
  DeviceCell* answered() const noexcept { return cell_; }
  PortQueue* queue() const noexcept { return queue_; }

private:
  friend class DeviceCell;
  friend class PortQueue;

  void abandon() noexcept;
  void send_to_loop() noexcept {
    if (!loop_->try_post(*this)) loop_closed(*loop_);
  }

  AsyncContext context_;
  FinishedLink link_;
  DeviceCell* cell_ = nullptr;
  PortQueue* queue_ = nullptr;
  JobLoop* loop_ = nullptr;
  // In the queue's list of pending operations, guarded by its mutex.
  PendingOperation* newer_ = nullptr;
  PendingOperation* older_ = nullptr;
};

/// The operations of one execution context: those pending, and those finished that wait for the
/// context to run their handlers. Knows the context only by a function that makes it call pump().
///
/// At most one pump is out at a time. `finished_` is null (no pump is out), busy_mark (one is out
/// and has seen everything) or the newest operation that it has not seen. Every move is a
/// read-modify-write; whoever moves it away from null posts the pump.
///
/// The device side touches the context only between enter() and leave(), and shut_down() waits
/// until all have left; so a context can go at any moment. Late cells of cancelled and destroyed
/// operations keep the queue by a reference each.
///
/// Threads   push() by the device's, with enter(); add() by initiating ones; pump() by the
///           context's.
class PortQueue {
public:
  /// Makes the context call pump() soon, on a thread of its own. Called by one thread at a time.
  using Post = void (*)(PortQueue& queue) noexcept;

  explicit PortQueue(void* context) noexcept : context_(context) {}
  PortQueue(const PortQueue&) = delete;
  PortQueue& operator=(const PortQueue&) = delete;

  void* context() const noexcept { return context_; }
  Post post() const noexcept { return post_.load(std::memory_order_acquire); }
  void set_post(Post how) noexcept { post_.store(how, std::memory_order_release); }

  /// Notes a pending operation. False after shut_down().
  bool add(PendingOperation& operation) noexcept;
  /// False: the context is going down and must not be touched. True: leave() follows soon.
  bool enter() noexcept;
  void leave() noexcept;
  /// A finished operation, its pointer taken. Only while entered.
  void push(FinishedLink& finished) noexcept;
  /// Takes one finished operation and sees to it that another pump follows if there are more, so
  /// that handlers run at once where the context has several threads, and one that throws holds up
  /// nobody.
  PendingOperation& pump() noexcept;
  /// Destroys all operations uninvoked and takes no more. Idempotent.
  void shut_down() noexcept;

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop_reference() noexcept;

  /// Room for the one pump that is out.
  static constexpr std::size_t pump_bytes = 48;
  void* pump_room() noexcept { return pump_room_; }

private:
  ~PortQueue() = default;

  static constexpr std::uint32_t closed_bit = 1u << 31;
  static FinishedLink busy_mark;

  PendingOperation* take_pending() noexcept;
  void remove(PendingOperation& operation) noexcept;

  void* const context_;
  std::atomic<Post> post_{nullptr};
  std::atomic<std::uint32_t> references_{1};

  // Lines of their own: of the device's threads, of what goes to the context, of its threads.
  alignas(64) std::atomic<std::uint32_t> entered_{0};  // how many, and closed_bit
  alignas(64) std::atomic<FinishedLink*> finished_{nullptr};
  FinishedLink* ready_ = nullptr;  // oldest first; of whoever runs the pump
  alignas(std::max_align_t) std::byte pump_room_[pump_bytes];

  alignas(64) std::mutex mutex_;  // guards the list of pending operations and shut_
  PendingOperation* pending_ = nullptr;
  bool shut_ = false;
};

}  // namespace reprise::detail

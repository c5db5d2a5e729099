// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/pending_operation.hpp>

#include <thread>
#include <utility>

namespace reprise::detail {

FinishedLink PortQueue::busy_mark;

namespace {

/// Turns a stack, newest first, into a queue.
FinishedLink* oldest_first(FinishedLink* newest) noexcept {
  FinishedLink* oldest = nullptr;
  while (newest != nullptr) {
    FinishedLink* const older = std::exchange(newest->next, oldest);
    oldest = std::exchange(newest, older);
  }
  return oldest;
}

}  // namespace

// ---- the device's side -----------------------------------------------------------------------

bool DeviceCell::take_up() noexcept {
  Phase seen = Phase::queued;
  // With the compare-exchange in cancel(): one of them wins.
  return phase_.compare_exchange_strong(seen, Phase::started, std::memory_order_acq_rel,
                                        std::memory_order_acquire);
}

void DeviceCell::finish(const FailurePtr& failure) noexcept {
  failure_ = failure;
  PortQueue* const queue = queue_;
  const bool entered = queue != nullptr && queue->enter();
  // Release: result and failure, for the handler's side. Acquire: that it has let go.
  PendingOperation* const operation = operation_.exchange(nullptr, std::memory_order_acq_rel);
  if (operation == nullptr) {
    REPRISE_MARK("late_answer");
    if (entered) queue->leave();
    if (queue != nullptr) queue->drop_reference();
    orphaned();
    return;
  }
  // From here on the cell is the operation's.
  if (queue == nullptr) {
    operation->send_to_loop();
  } else if (entered) {
    queue->push(link_);
    queue->leave();
  }
  // Not entered: shut_down() will find the pointer taken and destroy both.
}

void DeviceCell::orphaned() noexcept {
  if (!is_free_of_user_code(this_thread_role())) {
    dispose();
    return;
  }
  // The result may be the user's to destroy.
  disposal_.cell = this;
  disposal_.run = [](Job& job) { static_cast<Disposal&>(job).cell->dispose(); };
  disposal_.destroy = [](Job& job) noexcept { static_cast<Disposal&>(job).cell->dispose(); };
  courier_.post(disposal_);
}

// ---- the handler's side ----------------------------------------------------------------------

bool PendingOperation::join(DeviceCell& cell, PortQueue* queue, JobLoop* loop) noexcept {
  cell_ = &cell;
  queue_ = queue;
  loop_ = loop;
  link_.operation = this;
  cell.link_.operation = this;
  cell.queue_ = queue;
  // Relaxed: the device gets the cell through the channel.
  cell.operation_.store(this, std::memory_order_relaxed);
  if (queue == nullptr || queue->add(*this)) return true;
  cell_ = nullptr;
  return false;
}

void PendingOperation::cancel(bool waiting_too) noexcept {
  DeviceCell* const cell = cell_;
  if (cell == nullptr) return;  // a second cancel
  DeviceCell::Phase seen = DeviceCell::Phase::queued;
  // With take_up(): if this wins, the device drops the command and never touches its arguments.
  const bool was_queued = cell->phase_.compare_exchange_strong(
      seen, DeviceCell::Phase::cancelled, std::memory_order_acq_rel, std::memory_order_acquire);
  if (!was_queued && !waiting_too) return;

  PortQueue* const queue = queue_;
  if (queue != nullptr) {
    if (!queue->enter()) return;
    queue->add_reference();  // the cell's, if it is left behind
  }
  // With the exchange in finish(): if that came first, so does the answer.
  const bool taken = cell->operation_.exchange(nullptr, std::memory_order_acq_rel) != nullptr;
  if (taken) {
    REPRISE_MARK("cancelled_operation");
    cell_ = nullptr;
    // The handler may run, and this be gone, before either returns.
    if (queue != nullptr) {
      queue->push(link_);
    } else {
      send_to_loop();
    }
  }
  if (queue != nullptr) {
    queue->leave();
    if (!taken) queue->drop_reference();
  }
}

void PendingOperation::abandon() noexcept {
  if (cell_ != nullptr) {
    queue_->add_reference();  // the cell's, if it is left behind
    // With the exchange in finish(): if that came first, the answered cell goes with the handler.
    if (cell_->operation_.exchange(nullptr, std::memory_order_acq_rel) != nullptr) {
      cell_ = nullptr;
    } else {
      queue_->drop_reference();
    }
  }
  destroy(*this);
}

// ---- the queue -------------------------------------------------------------------------------

bool PortQueue::add(PendingOperation& operation) noexcept {
  std::lock_guard lock(mutex_);
  if (shut_) return false;
  operation.older_ = pending_;
  if (pending_ != nullptr) pending_->newer_ = &operation;
  pending_ = &operation;
  return true;
}

void PortQueue::remove(PendingOperation& operation) noexcept {
  std::lock_guard lock(mutex_);
  (operation.newer_ != nullptr ? operation.newer_->older_ : pending_) = operation.older_;
  if (operation.older_ != nullptr) operation.older_->newer_ = operation.newer_;
}

bool PortQueue::enter() noexcept {
  std::uint32_t seen = entered_.load(std::memory_order_relaxed);
  do {
    if ((seen & closed_bit) != 0) return false;
    // Acquire, as with a lock that shut_down() takes last.
  } while (!entered_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed));
  return true;
}

void PortQueue::leave() noexcept {
  entered_.fetch_sub(1, std::memory_order_release);  // with the loads in shut_down()
}

void PortQueue::push(FinishedLink& finished) noexcept {
  FinishedLink* newest = finished_.load(std::memory_order_relaxed);
  do {
    finished.next = newest == &busy_mark ? nullptr : newest;
    // Release: hands the operation to pump(). Acquire: takes the pump over from the one before.
  } while (!finished_.compare_exchange_weak(newest, &finished, std::memory_order_acq_rel,
                                            std::memory_order_relaxed));
  if (newest == nullptr) post()(*this);
}

PendingOperation& PortQueue::pump() noexcept {
  if (ready_ == nullptr) {
    // Acquire: pairs with push().
    ready_ = oldest_first(finished_.exchange(&busy_mark, std::memory_order_acquire));
  }
  PendingOperation& operation = *ready_->operation;
  ready_ = ready_->next;
  remove(operation);
  bool more = ready_ != nullptr;
  if (!more) {
    FinishedLink* seen = &busy_mark;
    // Release: gives the pump, and with it ready_ and pump_room_, to the next push().
    more = !finished_.compare_exchange_strong(seen, nullptr, std::memory_order_acq_rel,
                                              std::memory_order_relaxed);
  }
  if (more) post()(*this);
  return operation;
}

PendingOperation* PortQueue::take_pending() noexcept {
  std::lock_guard lock(mutex_);
  shut_ = true;
  PendingOperation* const operation = pending_;
  if (operation == nullptr) return nullptr;
  pending_ = operation->older_;
  if (pending_ != nullptr) pending_->newer_ = nullptr;
  return operation;
}

void PortQueue::shut_down() noexcept {
  std::uint32_t inside = entered_.fetch_or(closed_bit, std::memory_order_acq_rel) & ~closed_bit;
  while (inside != 0) {
    REPRISE_MARK("port_shut_while_entered");
    std::this_thread::yield();
    inside = entered_.load(std::memory_order_acquire) & ~closed_bit;  // with leave()
  }
  // Handlers die here, one by one and outside of the lock: their destruction may come back.
  while (PendingOperation* const operation = take_pending()) operation->abandon();
}

void PortQueue::drop_reference() noexcept {
  // Each owner releases what it did; the last one acquires it.
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

}  // namespace reprise::detail

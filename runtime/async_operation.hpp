// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/async_context.hpp>
#include <reprise/runtime/completion_port.hpp>
#include <reprise/runtime/pending_operation.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/error_condition.hpp>

#include <memory>
#include <type_traits>
#include <utility>

template <>
struct boost::system::is_error_condition_enum<reprise::Errc> : std::true_type {};

namespace reprise {

/// The category of the codes that completions bring: values are those of Errc, conditions too. Only
/// operation_aborted comes as Asio's own code.
const boost::system::error_category& asio_category() noexcept;

/// The code a completion brings for `failure`; null: success.
boost::system::error_code to_asio_code(const FailurePtr& failure) noexcept;

/// Errc as a condition of such codes.
inline boost::system::error_condition make_error_condition(Errc code) noexcept {
  return {static_cast<int>(code), asio_category()};
}

namespace detail {
bool says(const boost::system::error_code& code, Errc condition) noexcept;
}

/// Whether `code`, of a completion or made from Errc in any other way, says `condition`. Preferred
/// over Boost's own comparison, which would take Errc for a code of the standard library.
inline bool operator==(const boost::system::error_code& code, Errc condition) noexcept {
  return detail::says(code, condition);
}

}  // namespace reprise

namespace reprise::detail {

/// Runs a finished operation that finds its loop closed, on a thread of the system executor.
void run_on_system(Job& job, JobLoop& loop, std::shared_ptr<const void> keep) noexcept;

template <class T>
struct CompletionOf {
  using Signature = void(boost::system::error_code, T);
};
template <>
struct CompletionOf<void> {
  using Signature = void(boost::system::error_code);
};

/// The reply of one operation with result T.
template <class T>
class AnswerCell : public DeviceCell, public ReplyOf<T>::Type {
public:
  bool start() noexcept override { return take_up(); }
  void complete(const FailurePtr& failure) noexcept final { finish(failure); }

protected:
  AnswerCell(BlockCache& blocks, JobLoop& courier) noexcept : DeviceCell(blocks, courier) {}
  ~AnswerCell() = default;

  template <class Cell>
  static void dispose_of(Cell* cell) noexcept {
    BlockCache& blocks = cell->blocks();
    std::destroy_at(cell);
    blocks.give(cell, sizeof(Cell));
  }
};

template <class T>
class OperationCell final : public AnswerCell<T> {
public:
  OperationCell(BlockCache& blocks, JobLoop& courier) noexcept : AnswerCell<T>(blocks, courier) {}
  void dispose() noexcept override { this->dispose_of(this); }
};

/// The same with a deadline: a command whose turn comes later is given up.
template <class T>
class ExpiringCell final : public AnswerCell<T> {
public:
  ExpiringCell(BlockCache& blocks, JobLoop& courier, Host& host, std::uint64_t deadline_ns) noexcept
      : AnswerCell<T>(blocks, courier), host_(host), deadline_ns_(deadline_ns) {}

  bool start() noexcept override {
    if (!AnswerCell<T>::start()) return false;
    expired_ = host_.now_ns() >= deadline_ns_;
    return !expired_;
  }
  bool is_expired() const noexcept override { return expired_; }
  void dispose() noexcept override { this->dispose_of(this); }

private:
  Host& host_;
  const std::uint64_t deadline_ns_;
  bool expired_ = false;
};

/// Memory for a handler block: the handler's own allocator or, where that is only the default one,
/// the device's recycled blocks.
template <class Allocator, class Block>
class BlockMemory {
  using Rebound = typename std::allocator_traits<Allocator>::template rebind_alloc<Block>;
  static constexpr bool is_default = std::is_same_v<Rebound, std::allocator<Block>>;

public:
  static Block* take(BlockCache& blocks, const Allocator& allocator) {
    if constexpr (is_default) {
      return static_cast<Block*>(blocks.take(sizeof(Block)));
    } else {
      Rebound rebound(allocator);
      return std::allocator_traits<Rebound>::allocate(rebound, 1);
    }
  }
  static void give(BlockCache& blocks, const Allocator& allocator, Block* block) noexcept {
    if constexpr (is_default) {
      blocks.give(block, sizeof(Block));
    } else {
      Rebound rebound(allocator);
      std::allocator_traits<Rebound>::deallocate(rebound, block, 1);
    }
  }
};

/// The handler block of one operation.
///
/// Threads  Made by the initiating thread, then of the thread that runs the queue or loop, then of
///          the handler's executor.
template <class Handler, class T>
class HandlerOperation final : public PendingOperation {
public:
  using Executor = asio::associated_executor_t<Handler>;
  using Allocator = asio::associated_allocator_t<Handler>;
  using Memory = BlockMemory<Allocator, HandlerOperation>;

  struct Destroy {
    void operator()(HandlerOperation* operation) const noexcept { operation->destroy_block(); }
  };
  using Owner = std::unique_ptr<HandlerOperation, Destroy>;

  template <class H>
  static Owner make(H&& handler, AsyncContext&& context, FailurePtr* failure) {
    const Allocator allocator = asio::get_associated_allocator(handler);
    BlockCache& blocks = context.blocks;  // kept by the initiation's own `start`, too
    HandlerOperation* const block = Memory::take(blocks, allocator);
    try {
      return Owner(::new (static_cast<void*>(block))
                       HandlerOperation(std::forward<H>(handler), std::move(context), failure));
    } catch (...) {
      Memory::give(blocks, allocator, block);
      throw;
    }
  }

  /// Starts the operation: `start` is called with the reply to answer, unless the handler's context
  /// is shut down, which destroys the operation.
  template <class Start>
  static void launch(Owner operation, std::uint64_t deadline_ns, Start& start) {
    AsyncContext& context = operation->context();
    const Route route = route_for(operation->guard_.get_executor(), context);
    AnswerCell<T>* const cell = make_cell(context, deadline_ns);
    std::unique_ptr<AnswerCell<T>, DisposeCell> owned_cell(cell);
    auto slot = asio::get_associated_cancellation_slot(operation->handler_);
    if (slot.is_connected()) slot.assign(Canceller{operation.get()});
    if (!operation->join(*cell, route.queue, route.loop)) {
      if (slot.is_connected()) slot.clear();
      return;
    }
    // The device may answer, and the handler be done, before start() returns.
    operation.release();
    owned_cell.release();
    start(static_cast<typename ReplyOf<T>::Type*>(cell));
  }

private:
  static AnswerCell<T>* make_cell(AsyncContext& context, std::uint64_t deadline_ns) {
    BlockCache& blocks = context.blocks;
    if (deadline_ns == Host::never_ns) {
      return new_in<OperationCell<T>>(blocks, blocks, context.courier);
    }
    return new_in<ExpiringCell<T>>(blocks, blocks, context.courier, context.host, deadline_ns);
  }

  struct DisposeCell {
    void operator()(DeviceCell* cell) const noexcept { cell->dispose(); }
  };

  /// What the cancellation slot calls.
  struct Canceller {
    HandlerOperation* operation;

    void operator()(asio::cancellation_type type) const noexcept {
      using asio::cancellation_type;
      const auto ends_wait = cancellation_type::terminal | cancellation_type::partial;
      const bool waiting_too = (type & ends_wait) != cancellation_type::none;
      if (waiting_too || (type & cancellation_type::total) != cancellation_type::none) {
        operation->cancel(waiting_too);
      }
    }
  };

  /// What the handler's executor is given; destroys the operation if it is destroyed uncalled.
  struct Delivery {
    using allocator_type = Allocator;

    Owner operation;

    allocator_type get_allocator() const noexcept {
      return asio::get_associated_allocator(operation->handler_);
    }
    void operator()() { invoke(std::move(operation)); }
  };

  template <class H>
  HandlerOperation(H&& handler, AsyncContext&& context, FailurePtr* failure)
      : PendingOperation(std::move(context)), guard_(asio::get_associated_executor(handler)),
        handler_(std::forward<H>(handler)), failure_(failure) {
    run = [](Job& job) { submit(Owner(&static_cast<HandlerOperation&>(job))); };
    destroy = [](Job& job) noexcept { static_cast<HandlerOperation&>(job).destroy_block(); };
  }

  static FailurePtr outcome(HandlerOperation& operation) noexcept {
    if (DeviceCell* const cell = operation.answered()) return cell->failure();
    return make_failure(Errc::operation_aborted, "async", {}, "cancelled by its completion token");
  }

  /// On a thread of the handler's context, or of the loop: hands the handler to its executor.
  static void submit(Owner operation) {
    if (operation->failure_ != nullptr) *operation->failure_ = outcome(*operation);
    const Executor executor = operation->guard_.get_executor();
    if constexpr (is_system_executor<Executor>) {
      invoke(std::move(operation));
    } else {
      asio::dispatch(executor, Delivery{std::move(operation)});
    }
  }

  /// On the handler's executor. All memory is given back before the handler runs, so that what it
  /// starts can have it.
  static void invoke(Owner operation) {
    auto slot = asio::get_associated_cancellation_slot(operation->handler_);
    if (slot.is_connected()) slot.clear();
    Handler handler(std::move(operation->handler_));
    const Guard guard(std::move(operation->guard_));
    auto* const cell = static_cast<AnswerCell<T>*>(operation->answered());
    const boost::system::error_code code =
        cell ? to_asio_code(cell->failure()) : boost::asio::error::operation_aborted;
    if constexpr (std::is_void_v<T>) {
      operation.reset();
      std::move(handler)(code);
    } else {
      T value = cell ? std::move(cell->value) : T{};
      operation.reset();
      std::move(handler)(code, std::move(value));
    }
  }

  void destroy_block() noexcept {
    if (DeviceCell* const cell = answered()) cell->dispose();
    const AsyncContext kept = std::move(context());
    const Allocator allocator = asio::get_associated_allocator(handler_);
    std::destroy_at(this);
    Memory::give(kept.blocks, allocator, this);
  }

  void loop_closed(JobLoop& loop) noexcept override { run_on_system(*this, loop, context().keep); }

  using Guard = asio::executor_work_guard<Executor>;

  Guard guard_;
  Handler handler_;
  FailurePtr* const failure_;
};

template <class T>
struct Initiate {
  template <class Handler, class Start>
  void operator()(Handler&& handler, AsyncContext context, FailurePtr* failure,
                  std::uint64_t deadline_ns, Start start) const {
    using Operation = HandlerOperation<std::decay_t<Handler>, T>;
    static_assert(noexcept(start(static_cast<typename ReplyOf<T>::Type*>(nullptr))));
    Operation::launch(Operation::make(std::forward<Handler>(handler), std::move(context), failure),
                      deadline_ns, start);
  }
};

/// Starts an asynchronous operation with result T for any completion token.
///
/// `start` is called once, when the token says so, with the reply that the device is to answer. It
/// is noexcept, owns what it needs (with asio::deferred it outlives this call), and keeps its
/// device alive. `failure`, if not null, receives the record, null for success, before the handler
/// is submitted. A command that is not started by `deadline_ns` of the host's clock is given up.
template <class T, class Token, class Start>
auto initiate(AsyncContext context, Token&& token, FailurePtr* failure, std::uint64_t deadline_ns,
              Start&& start) {
  return asio::async_initiate<Token, typename CompletionOf<T>::Signature>(
      Initiate<T>(), token, std::move(context), failure, deadline_ns, std::forward<Start>(start));
}
template <class T, class Token, class Start>
auto initiate(AsyncContext context, Token&& token, FailurePtr* failure, Start&& start) {
  return initiate<T>(std::move(context), std::forward<Token>(token), failure, Host::never_ns,
                     std::forward<Start>(start));
}

}  // namespace reprise::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/async_context.hpp>
#include <reprise/runtime/reply_cell.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace reprise {

template <class T>
class Future;

namespace detail {

/// What a Future and the operation behind it share, whatever the result.
///
/// States of `continuation_`: null → a job, by attach(); null or a job → finished_mark, by
/// finish().
/// Whoever comes second hands the job to the courier.
class FutureState : public Job {
public:
  bool is_ready() const noexcept { return word_.is_ready(); }
  /// Throws Failure would_deadlock on threads that the answer may depend on.
  void wait(const char* verb);
  bool wait_for(std::int64_t ns);
  /// Once finished, hands `continuation` to the courier; with a closed courier it is destroyed.
  void attach(Job& continuation) noexcept;
  /// Gives one reference up. The last one leads to dispose(), never on a thread of the device.
  void drop() noexcept;
  /// Throws what the operation or continuation ended with, if it failed. Once.
  void rethrow();

  AsyncContext& context() noexcept { return context_; }
  const FailurePtr& failure() const noexcept { return failure_; }
  const std::exception_ptr& thrown() const noexcept { return thrown_; }

protected:
  enum class Source : std::uint8_t { device, courier };

  FutureState(AsyncContext&& context, Source source) noexcept
      : context_(std::move(context)), source_(source) {}
  /// What it ends with has nothing of the user's in it, unless it is a failure.
  void set_inert(bool inert) noexcept { inert_ = inert; }
  ~FutureState() = default;

  /// The end, exactly once: wakes the waiter, hands over the continuation, gives up the reference
  /// of the operation.
  void finish(FailurePtr failure, std::exception_ptr thrown = nullptr) noexcept;
  virtual void dispose() noexcept = 0;
  template <class S>
  static void dispose_of(S* state) noexcept {
    const AsyncContext context = std::move(state->context_);
    std::destroy_at(state);
    context.blocks.give(state, sizeof(S));
  }

  bool offer(StreamIndex stream) noexcept { return word_.offer(stream); }

private:
  Backend* helper() const noexcept;
  void refuse_dependents(const char* verb) const;
  static Job finished_mark;

  AsyncContext context_;
  WaitWord word_;
  const Source source_;
  bool inert_ = false;
  std::atomic<std::uint32_t> references_{2};  // the Future and the operation
  std::atomic<Job*> continuation_{nullptr};
  FailurePtr failure_;
  std::exception_ptr thrown_;
};

/// The same with its result: the reply that the device answers.
template <class T>
class FutureValue : public FutureState, public ReplyOf<T>::Type {
public:
  void complete(const FailurePtr& failure) noexcept final { this->finish(failure); }
  bool offer_help(StreamIndex stream) noexcept final { return this->offer(stream); }

protected:
  using FutureState::FutureState;
  ~FutureValue() = default;
};

template <class T>
class OperationFuture final : public FutureValue<T> {
public:
  explicit OperationFuture(AsyncContext&& context) noexcept
      : FutureValue<T>(std::move(context), FutureState::Source::device) {
    this->set_inert(is_inert);
  }

private:
  static constexpr bool is_inert = [] {
    if constexpr (!std::is_void_v<T>) return std::is_trivially_destructible_v<T>;
    return true;
  }();

  void dispose() noexcept override { this->dispose_of(this); }
};

struct FutureAccess {
  template <class T>
  static Future<T> make(FutureValue<T>* state) noexcept {
    return Future<T>(state);
  }
};

/// How F wants the result of a Future<T>: its value, or the ready future.
template <class T, class F>
struct ContinuationTraits {
  static constexpr bool takes_value = std::is_invocable_v<F, T>;
  using Argument = std::conditional_t<takes_value, T, Future<T>>;
  using Result = std::decay_t<std::invoke_result_t<F, Argument>>;
};
template <class F>
struct ContinuationTraits<void, F> {
  static constexpr bool takes_value = std::is_invocable_v<F>;
  using Result =
      std::decay_t<typename std::conditional_t<takes_value, std::invoke_result<F>,
                                               std::invoke_result<F, Future<void>>>::type>;
};

/// The future of what F makes of the result of another; as a job it calls F on the courier.
template <class T, class F, class R>
class Continuation final : public FutureValue<R> {
public:
  template <class G>
  Continuation(AsyncContext&& context, G&& function) noexcept(std::is_nothrow_constructible_v<F, G>)
      : FutureValue<R>(std::move(context), FutureState::Source::courier),
        function_(std::in_place, std::forward<G>(function)) {
    this->run = [](Job& job) { static_cast<Continuation&>(job).invoke(); };
    this->destroy = [](Job& job) noexcept { static_cast<Continuation&>(job).give_up(); };
  }

  /// Takes over a reference to `source`.
  void follow(FutureValue<T>* source) noexcept {
    source_ = source;
    source->attach(*this);
  }

private:
  void invoke() noexcept;
  void give_up() noexcept {
    function_.reset();
    source_->drop();
    this->finish(make_failure(Errc::closed, "then", {}, "the runtime was shut down"));
  }
  template <class... A>
  void store(A&&... arguments) {
    if constexpr (std::is_void_v<R>) {
      std::move (*function_)(std::forward<A>(arguments)...);
    } else {
      this->value = std::move(*function_)(std::forward<A>(arguments)...);
    }
  }
  void dispose() noexcept override { this->dispose_of(this); }

  FutureValue<T>* source_ = nullptr;
  std::optional<F> function_;
};

}  // namespace detail

/// The result of an asynchronous verb, to come: for plain threads, without Asio.
///
/// Lifetime  Dropping it early is safe: the operation goes on and nobody is told. It may outlive
///           the runtime.
/// Threads   One thread at a time uses a Future. Waiting is refused with would_deadlock where the
///           answer could depend on the calling thread: on device, worker and helper threads, and
///           on the courier for the future that then() answers.
/// Errors    get() throws the Failure that the operation ended with, or what a continuation threw.
template <class T>
class [[nodiscard]] Future {
public:
  /// Refers to nothing; valid() is false.
  Future() noexcept = default;
  Future(Future&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Future& operator=(Future&& other) noexcept {
    Future taken(std::move(other));
    std::swap(state_, taken.state_);
    return *this;
  }
  ~Future() {
    if (state_) state_->drop();
  }

  /// False for a default-made or moved-from future and after get() or then(). The other members
  /// then throw Errc::empty_handle, but ready() answers false.
  bool valid() const noexcept { return state_ != nullptr; }
  /// True once get() would not wait.
  bool ready() const noexcept { return state_ != nullptr && state_->is_ready(); }

  void wait() const { checked("wait").wait("wait"); }
  /// False: `duration` passed first.
  template <class Rep, class Period>
  bool wait_for(std::chrono::duration<Rep, Period> duration) const {
    return checked("wait_for")
        .wait_for(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
  }

  /// Waits and takes the result; once.
  T get() {
    checked("get").wait("get");
    const Future taken(std::move(*this));
    taken.state_->rethrow();
    if constexpr (!std::is_void_v<T>) return std::move(taken.state_->value);
  }

  /// Calls `function` on the courier thread once this is ready and answers a future of what it
  /// returns or throws. A function that takes T is called for success only, a failure then passes
  /// by it; one that takes Future<T> is always called. This future is used up. After the end of
  /// the runtime the function is destroyed uncalled and the answer is Errc::closed.
  template <class F>
  auto then(F&& function)
      -> Future<typename detail::ContinuationTraits<T, std::decay_t<F>>::Result>;

private:
  friend struct detail::FutureAccess;
  template <class, class, class>
  friend class detail::Continuation;
  explicit Future(detail::FutureValue<T>* state) noexcept : state_(state) {}

  detail::FutureValue<T>& checked(const char* verb) const {
    if (!state_) throw Failure(Errc::empty_handle, verb, "this future refers to nothing");
    return *state_;
  }

  detail::FutureValue<T>* state_ = nullptr;
};

template <class T>
template <class F>
auto Future<T>::then(F&& function)
    -> Future<typename detail::ContinuationTraits<T, std::decay_t<F>>::Result> {
  using Function = std::decay_t<F>;
  using R = typename detail::ContinuationTraits<T, Function>::Result;
  using Next = detail::Continuation<T, Function, R>;
  static_assert(std::is_void_v<R> || std::is_default_constructible_v<R>,
                "the result of a continuation needs a default constructor");
  detail::FutureValue<T>& source = checked("then");
  Next* const next = detail::new_in<Next>(
      source.context().blocks, detail::AsyncContext(source.context()), std::forward<F>(function));
  Future<R> answer = detail::FutureAccess::make<R>(next);
  next->follow(std::exchange(state_, nullptr));
  return answer;
}

namespace detail {

template <class T, class F, class R>
void Continuation<T, F, R>::invoke() noexcept {
  Future<T> source = FutureAccess::make<T>(std::exchange(source_, nullptr));
  FailurePtr failure = source.state_->failure();
  std::exception_ptr thrown = source.state_->thrown();
  try {
    if constexpr (!ContinuationTraits<T, F>::takes_value) {
      failure = nullptr;
      thrown = nullptr;
      store(std::move(source));
    } else if (!failure) {
      if constexpr (std::is_void_v<T>) {
        store();
      } else {
        store(std::move(source.state_->value));
      }
    }
  } catch (const Failure& caught) {
    failure = caught.shared_record();
    thrown = std::current_exception();
  } catch (...) {
    thrown = std::current_exception();
    FailureRecord record;
    record.code = Errc::kernel_failed;
    record.verb = "then";
    record.message = "a continuation threw";
    record.exception = thrown;
    failure = make_failure(std::move(record));
  }
  function_.reset();
  source = {};
  this->finish(std::move(failure), std::move(thrown));
}

/// Starts an operation and answers its future. `start` is noexcept, is called once with the reply
/// to answer, and may answer it at once.
template <class T, class Start>
Future<T> make_future(AsyncContext context, Start&& start) {
  BlockCache& blocks = context.blocks;
  auto* const state = new_in<OperationFuture<T>>(blocks, std::move(context));
  Future<T> future = FutureAccess::make<T>(state);
  static_assert(noexcept(start(static_cast<typename ReplyOf<T>::Type*>(state))));
  start(static_cast<typename ReplyOf<T>::Type*>(state));
  return future;
}

}  // namespace detail

}  // namespace reprise

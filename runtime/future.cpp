// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/future.hpp>

namespace reprise::detail {

Job FutureState::finished_mark;

void FutureState::refuse_dependents(const char* verb) const {
  switch (this_thread_role()) {
    case ThreadRole::user:
    case ThreadRole::completer: return;
    // What the device answers does not need the courier; what a continuation answers does.
    case ThreadRole::courier:
      if (source_ == Source::device) return;
      break;
    case ThreadRole::device:
    case ThreadRole::worker:
    case ThreadRole::helper: break;
  }
  throw Failure(Errc::would_deadlock, verb, "a future is waited for on a thread it may depend on");
}

Backend* FutureState::helper() const noexcept {
  // The library's own threads have other things to do than to run kernels.
  return this_thread_role() == ThreadRole::user ? context_.helper : nullptr;
}

void FutureState::wait(const char* verb) {
  if (is_ready()) return;
  refuse_dependents(verb);
  word_.wait(context_.host, helper());
}

bool FutureState::wait_for(std::int64_t ns) {
  if (is_ready()) return true;
  refuse_dependents("wait_for");
  if (ns <= 0) return false;
  const std::uint64_t now = context_.host.now_ns();
  const auto left = static_cast<std::uint64_t>(ns);
  const std::uint64_t deadline = left < Host::never_ns - now ? now + left : Host::never_ns;
  return word_.wait_until(context_.host, helper(), deadline);
}

void FutureState::rethrow() {
  // Taken along, so that an exception dies where it was caught.
  std::exception_ptr thrown = std::move(thrown_);
  FailurePtr failure = std::move(failure_);
  if (thrown) std::rethrow_exception(std::move(thrown));
  if (failure) throw Failure(std::move(failure));
}

void FutureState::finish(FailurePtr failure, std::exception_ptr thrown) noexcept {
  failure_ = std::move(failure);
  thrown_ = std::move(thrown);
  word_.set();
  // Release: the result, for the courier. Acquire: the job, from attach().
  Job* const follower = continuation_.exchange(&finished_mark, std::memory_order_acq_rel);
  if (follower != nullptr) context_.courier.post(*follower);
  drop();
}

void FutureState::attach(Job& continuation) noexcept {
  // Once the job is published the courier may run it and drop this state.
  JobLoop& courier = context_.courier;
  const std::shared_ptr<const void> keep = context_.keep;
  Job* none = nullptr;
  // With the exchange in finish().
  if (continuation_.compare_exchange_strong(none, &continuation, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
    return;
  }
  courier.post(continuation);
}

void FutureState::drop() noexcept {
  // Each owner releases what it did; the last one acquires it.
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (!is_free_of_user_code(this_thread_role()) || (inert_ && !failure_ && !thrown_)) {
    dispose();
    return;
  }
  run = [](Job& job) { static_cast<FutureState&>(job).dispose(); };
  destroy = [](Job& job) noexcept { static_cast<FutureState&>(job).dispose(); };
  context_.courier.post(*this);
}

}  // namespace reprise::detail

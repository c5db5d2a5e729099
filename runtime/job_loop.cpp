// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/job_loop.hpp>

#include <utility>

namespace reprise::detail {

Job JobLoop::parked_mark;
Job JobLoop::closed_mark;

namespace {

/// Turns a stack of jobs, newest first, into a queue.
Job* oldest_first(Job* newest) noexcept {
  Job* oldest = nullptr;
  while (newest != nullptr) {
    Job* const older = std::exchange(newest->next, oldest);
    oldest = std::exchange(newest, older);
  }
  return oldest;
}

void destroy_all(Job* job) noexcept {
  while (job != nullptr) {
    Job* const next = job->next;
    job->destroy(*job);
    job = next;
  }
}

}  // namespace

JobLoop::JobLoop(ExceptionHook hook) noexcept : hook_(hook) {
  closing_job_.loop = this;
  closing_job_.run = [](Job& job) { static_cast<Closing&>(job).loop->closing_ = true; };
  closing_job_.destroy = [](Job&) noexcept {};
}

JobLoop::~JobLoop() {
  REPRISE_CHECK(!thread_ || inbox_.load(std::memory_order_acquire) == &closed_mark,
                "a job loop is destroyed while its thread runs [I32]");
  give_up();
  destroy_all(too_late_.load(std::memory_order_acquire));
}

Result<void> JobLoop::start(Host& host, const LoopOptions& options) {
  host_ = &host;
  auto thread = host.start(*this, options);
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return {};
}

bool JobLoop::try_post(Job& job) noexcept {
  Job* newest = inbox_.load(std::memory_order_relaxed);
  do {
    if (newest == &closed_mark) return false;
    job.next = newest == &parked_mark ? nullptr : newest;
    // Release: hands the job to the exchange in take(). Acquire, for the wake below: parked_mark
    // was set by rest().
  } while (!inbox_.compare_exchange_weak(newest, &job, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  if (newest == &parked_mark) thread_->wake();
  return true;
}

void JobLoop::post(Job& job) noexcept {
  if (try_post(job)) return;
  REPRISE_MARK("job_after_close");
  if (this_thread_role() == ThreadRole::user) {
    job.destroy(job);
    return;
  }
  job.next = too_late_.load(std::memory_order_relaxed);
  // Release: the partner is the load in the destructor.
  while (!too_late_.compare_exchange_weak(job.next, &job, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
}

bool JobLoop::close(std::uint64_t deadline_ns) noexcept {
  if (!thread_) {
    give_up();
    return true;
  }
  if (!std::exchange(close_asked_, true)) try_post(closing_job_);
  if (thread_->join(deadline_ns)) return true;
  give_up();
  if (thread_->join(host_->now_ns() + grace_ns)) return true;
  REPRISE_MARK("job_stuck");
  return false;
}

// What nobody will run any more is destroyed by the caller: the thread is stuck, has ended, or
// never began.
void JobLoop::give_up() noexcept {
  Job* taken;
  Job* posted;
  {
    std::lock_guard lock(mutex_);
    taken = std::exchange(taken_, nullptr);
    posted = inbox_.exchange(&closed_mark, std::memory_order_acq_rel);  // with try_post()
  }
  destroy_all(taken);
  if (posted != &parked_mark && posted != &closed_mark) destroy_all(oldest_first(posted));
}

Job* JobLoop::take() noexcept {
  std::lock_guard lock(mutex_);
  if (taken_ == nullptr) {
    const Job* const newest = inbox_.load(std::memory_order_relaxed);
    if (newest == nullptr || newest == &parked_mark || newest == &closed_mark) return nullptr;
    // Only posters move the word meanwhile, and they only add. Acquire: pairs with try_post().
    taken_ = oldest_first(inbox_.exchange(nullptr, std::memory_order_acquire));
  }
  Job* const job = taken_;
  taken_ = job->next;
  return job;
}

void JobLoop::run_here(Job& job) noexcept {
  try {
    job.run(job);
  } catch (...) {
    exceptions_.fetch_add(1, std::memory_order_relaxed);  // a count, read alone
    if (hook_.call) hook_.call(hook_.self, std::current_exception());
  }
}

bool JobLoop::step() noexcept {
  Job* const job = take();
  if (job == nullptr) return false;
  run_here(*job);
  return true;
}

Rest JobLoop::rest() noexcept {
  Job* seen = nullptr;
  // Release: the word passes to try_post(). Failing, the loop looks again through take().
  const bool moved =
      inbox_.compare_exchange_strong(seen, closing_ ? &closed_mark : &parked_mark,
                                     std::memory_order_acq_rel, std::memory_order_relaxed);
  if (moved) return closing_ ? Rest::done() : Rest::sleep();
  if (seen == &closed_mark) return Rest::done();
  return seen == &parked_mark ? Rest::sleep() : Rest::again();
}

void JobLoop::pause() noexcept {
  __builtin_ia32_pause();
}

}  // namespace reprise::detail

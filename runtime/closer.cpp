// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/closer.hpp>

#include <reprise/runtime/core.hpp>
#include <reprise/runtime/runtime.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace reprise::detail {

namespace {

// How soon to look again whether the device is closed by whoever is at it.
constexpr std::uint64_t look_again_ns = 1'000'000;

}  // namespace

std::uint64_t deadline_after(Host& host, std::chrono::nanoseconds limit) noexcept {
  const std::uint64_t now = host.now_ns();
  const auto left = static_cast<std::uint64_t>(std::max<std::int64_t>(limit.count(), 0));
  return now + std::min(left, ~std::uint64_t{0} / 2 - now);
}

// ---- CloseSteps --------------------------------------------------------------------------------

CloseSteps::CloseSteps(CloseRequest request)
    : request_(std::make_unique<CloseRequest>(std::move(request))),
      deadline_ns_(deadline_after(request_->shared->host, request_->limit)) {
  if (!request_->abort) return;
  // All before the first: a copy between two of them must not wait for what the other gives up.
  for (const auto& core : request_->cores) core->begin_abort();
}

CloseSteps::~CloseSteps() = default;

Host& CloseSteps::host() noexcept {
  return request_->shared->host;
}

void CloseSteps::note(std::size_t at, Errc code, const std::string& stuck) noexcept {
  if (failure_) return;
  const std::string& name = request_->cores[at]->name();
  try {
    failure_ = make_failure(code, request_->verb, {},
                            "'" + name + "' still runs " + (stuck.empty() ? "work" : stuck));
  } catch (const std::bad_alloc&) {
    failure_ = make_failure(code, request_->verb, {}, name);
  }
}

bool CloseSteps::proceed() noexcept {
  for (; next_ < request_->cores.size(); ++next_) {
    std::string stuck;
    const auto closed = request_->cores[next_]->try_close(request_->abort, deadline_ns_, stuck);
    if (!closed) return false;
    if (!*closed) note(next_, closed->error().code, stuck);
  }
  return true;
}

FailurePtr CloseSteps::wait() noexcept {
  for (; next_ < request_->cores.size(); ++next_) {
    std::string stuck;
    const auto closed = request_->cores[next_]->close(request_->abort, deadline_ns_, stuck);
    if (!closed) note(next_, closed.error().code, stuck);
  }
  return failure_;
}

void CloseSteps::forget() noexcept {
  request_->cores.clear();
  request_->shared.reset();
}

// ---- Closer ------------------------------------------------------------------------------------

Closer::Closer(const CloseRequest& request, Reply* reply) : steps_(request), reply_(reply) {}

bool Closer::step() noexcept {
  if (done_) return false;
  Host& host = steps_.host();
  if (!steps_.proceed()) {
    // Only another close of the same device, which has a deadline of its own, holds this up. On a
    // cooperative host it may be further up on this very stack.
    again_ns_ = host.now_ns() + look_again_ns;
    return false;
  }
  done_ = true;
  // The runtime's threads and this closer belong to what is let go here.
  steps_.forget();
  (void)reply_->start();
  reply_->complete(steps_.failure());
  return true;
}

Rest Closer::rest() noexcept {
  return done_ ? Rest::done() : Rest::sleep_until(again_ns_);
}

// ---- Closers -----------------------------------------------------------------------------------

bool Closers::start(Host& host, std::unique_ptr<Closer>& closer, FailurePtr& failure) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  const std::uint64_t now = host.now_ns();
  const auto ended = [now](Running& each) { return each.thread->join(now); };
  running_.erase(std::remove_if(running_.begin(), running_.end(), ended), running_.end());
  running_.reserve(running_.size() + 1);
  auto thread = host.start(*closer, {.name = "rp-closer", .role = ThreadRole::helper});
  if (!thread) {
    failure = make_failure(thread.error().code, "close", {}, "no thread to close a device");
    return false;
  }
  running_.push_back({std::move(closer), std::move(*thread)});
  running_.back().thread->wake();
  return true;
}

bool Closers::close(std::uint64_t deadline_ns) noexcept {
  std::vector<Running> running;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    running.swap(running_);
  }
  bool ended = true;
  for (Running& each : running) ended &= each.thread->join(deadline_ns);
  if (!ended) {
    // What a thread that does not end may use must stay.
    const std::lock_guard lock(mutex_);
    running_.swap(running);
  }
  return ended;
}

}  // namespace reprise::detail

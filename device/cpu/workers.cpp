// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/workers.hpp>

#include <chrono>

namespace reprise::detail {

namespace {

// A worker keeps a stream for so many commands before it looks whether others wait for a worker.
constexpr std::uint32_t works_per_step = 32;

}  // namespace

Worker::Worker(Engine& engine, const std::atomic<bool>& stopping, std::uint32_t number,
               std::uint32_t works)
    : engine_(engine), stopping_(stopping), number_(number), works_per_step_(works),
      name_("reprise-w" + std::to_string(number)) {}

bool Worker::step() noexcept {
  if (stopping_.load(std::memory_order_acquire)) return false;
  Crew& crew = engine_.crew();
  if (!current_) {
    const auto taken = crew.ready.take(last_, searching_);
    if (taken.stream == ReadyWord<>::nobody && !taken.split) {
      if (searching_) return false;
      searching_ = crew.ready.search();
      return !searching_;
    }
    searching_ = false;
    crew.wake_up(taken.wake);
    if (taken.split) {
      engine_.splitter().lend_a_hand();
      return true;
    }
    last_ = taken.stream;
    CpuStream& stream = engine_.stream(taken.stream);
    // Somebody may have taken it meanwhile: a helper, or the worker of an earlier publication.
    if (!stream.inbox.claim()) return true;
    current_ = &stream;
  }
  run_current();
  return true;
}

void Worker::run_current() noexcept {
  if (engine_.run(*current_, works_per_step_, nullptr, true) == Engine::Left::gone) {
    current_ = nullptr;
  } else if (engine_.crew().ready.is_crowded()) {
    REPRISE_MARK("stream_gave_way");
    engine_.hand_over(*std::exchange(current_, nullptr), false);
  }
}

Rest Worker::rest() noexcept {
  Crew& crew = engine_.crew();
  if (stopping_.load(std::memory_order_acquire)) {
    if (std::exchange(searching_, false)) crew.ready.retire();
    return Rest::done();
  }
  // Woken, it searches: whoever moved it off the idle list has counted it.
  return searching_ && crew.ready.park(number_) ? Rest::sleep() : Rest::again();
}

void Worker::pause() noexcept {
  // About 0.3 us between two looks; the word is a line that others write.
  for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
}

Workers::Workers(Engine& engine, Host& host, std::uint32_t count, std::uint64_t spin_ns)
    : engine_(engine), host_(host), spin_ns_(spin_ns) {
  for (std::uint32_t i = 0; i < count; ++i) {
    workers_.push_back(
        std::make_unique<Worker>(engine, stopping_, i, host.is_cooperative() ? 1 : works_per_step));
  }
  engine_.crew().handles.reserve(count);
}

Result<void> Workers::start() noexcept {
  for (const auto& worker : workers_) {
    auto handle = host_.start(*worker, {worker->name(), ThreadRole::worker, spin_ns_});
    if (!handle) {
      (void)stop(Host::never_ns);
      return handle.error();
    }
    engine_.crew().handles.push_back(std::move(handle).value());
  }
  return {};
}

bool Workers::stop(std::uint64_t deadline_ns) noexcept {
  stopping_.store(true, std::memory_order_release);
  auto& handles = engine_.crew().handles;
  for (const auto& handle : handles) handle->wake();
  bool all = true;
  for (const auto& handle : handles) all = handle->join(deadline_ns) && all;
  return all;
}

bool HelperGate::enter() noexcept {
  if ((word_.fetch_add(one, std::memory_order_acq_rel) & closed) == 0) return true;
  leave();
  return false;
}

void HelperGate::leave() noexcept {
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  while ((seen & closed) == 0) {
    if (word_.compare_exchange_weak(seen, seen - one, std::memory_order_acq_rel,
                                    std::memory_order_relaxed)) {
      return;
    }
  }
  std::lock_guard lock(mutex_);
  word_.fetch_sub(one, std::memory_order_acq_rel);
  left_.notify_all();
}

bool HelperGate::close(std::uint64_t deadline_ns) noexcept {
  word_.fetch_or(closed, std::memory_order_acq_rel);
  std::unique_lock lock(mutex_);
  const auto left = [&] { return word_.load(std::memory_order_acquire) / one == 0; };
  if (deadline_ns == Host::never_ns) {
    left_.wait(lock, left);
    return true;
  }
  using Clock = std::chrono::steady_clock;
  const auto deadline = std::chrono::nanoseconds{static_cast<std::int64_t>(deadline_ns)};
  return left_.wait_until(lock, Clock::time_point{deadline}, left);
}

}  // namespace reprise::detail

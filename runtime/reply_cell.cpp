// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/reply_cell.hpp>

#include <reprise/device/futex.hpp>

#include <sched.h>

namespace reprise::detail {

namespace {

// A wake from sleep takes longer than this rarely; spinning through it saves the second wake.
constexpr std::uint64_t spin_ns = 50'000;
// From here on the CPU is offered to others between looks if there are none to spare. Going to
// sleep would be worse: caller, device and worker that take turns on two CPUs may then wake each
// other for ever.
constexpr std::uint64_t certain_ns = 10'000;
// Shorter spinning counts as running: about two microseconds.
constexpr std::uint32_t unregistered_looks = 96;
constexpr std::uint64_t no_deadline = futex_no_deadline;

class UntilReady final : public HelpUntil {
public:
  explicit UntilReady(const WaitWord& word) noexcept : word_(word) {}
  bool done() noexcept override { return word_.is_ready(); }

private:
  const WaitWord& word_;
};

}  // namespace

void WaitWord::set() noexcept {
  // Releases what the setter wrote to the waiter's acquiring load.
  std::atomic<std::uint32_t>* const address = &word_;
  if (word_.exchange(ready, std::memory_order_acq_rel) == parked) futex_wake(address);
}

bool WaitWord::offer(StreamIndex stream) noexcept {
  std::uint32_t expected = pending;
  return word_.compare_exchange_strong(expected, first_offer + stream, std::memory_order_acq_rel,
                                       std::memory_order_relaxed);
}

void WaitWord::take_offer(StreamIndex& helping) noexcept {
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  if (seen < first_offer) return;
  helping = seen - first_offer;
  // Fails if the answer came meanwhile, which is as good.
  word_.compare_exchange_strong(seen, pending, std::memory_order_acq_rel,
                                std::memory_order_relaxed);
}

void WaitWord::wait(Host& host, Backend* backend) noexcept {
  (void)wait_until(host, backend, no_deadline);
}

bool WaitWord::wait_until(Host& host, Backend* backend, std::uint64_t deadline_ns) noexcept {
  if (is_ready()) return true;
  UntilReady until(*this);
  StreamIndex helping = Backend::no_stream;
  const auto help = [&] {
    take_offer(helping);
    if (helping != Backend::no_stream && backend) backend->help(helping, until);
  };
  if (host.is_cooperative()) {
    while (!is_ready()) {
      help();
      if (is_ready()) break;
      if (host.now_ns() >= deadline_ns) return false;
      const bool ran = host.run_one(deadline_ns);
      REPRISE_CHECK(ran || deadline_ns != no_deadline,
                    "a caller waits and nothing can run any more [I34]");
      if (!ran) return is_ready();
    }
    return true;
  }
  // An answer that comes at once costs no clock and no count that other threads share.
  for (std::uint32_t looks = 0; looks < unregistered_looks; ++looks) {
    if (is_ready()) return true;
    help();
    __builtin_ia32_pause();
  }
  const std::uint64_t started = host.now_ns();
  SpinBudget::spinning(SpinBudget::Rank::caller, +1);
  bool answered = false;
  for (std::uint32_t looks = 1; !(answered = is_ready()); ++looks) {
    help();
    __builtin_ia32_pause();
    if (looks % 32 != 0) continue;
    const std::uint64_t spent = host.now_ns() - started;
    if (spent > spin_ns) break;
    if (spent > certain_ns && !SpinBudget::may_spin(SpinBudget::Rank::caller)) sched_yield();
  }
  SpinBudget::spinning(SpinBudget::Rank::caller, -1);
  while (!answered) {
    std::uint32_t expected = pending;
    word_.compare_exchange_strong(expected, parked, std::memory_order_acq_rel,
                                  std::memory_order_acquire);
    if (expected == ready) return true;
    if (expected >= first_offer) {
      help();
      answered = is_ready();
      continue;
    }
    if (deadline_ns != no_deadline && host.now_ns() >= deadline_ns) break;
    futex_wait(word_, parked, deadline_ns);
    answered = is_ready();
  }
  return answered || is_ready();
}

void refuse_library_threads(const char* verb) {
  if (this_thread_role() == ThreadRole::user) return;
  throw Failure(Errc::would_deadlock, verb,
                "a blocking call on a thread of the library, which others wait for");
}

}  // namespace reprise::detail

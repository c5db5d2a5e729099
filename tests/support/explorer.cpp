// SPDX-License-Identifier: Apache-2.0
#include "support/explorer.hpp"

#include <ucontext.h>

#include <algorithm>
#include <exception>
#include <random>
#include <stdexcept>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace reprise::test {
namespace {

constexpr std::size_t stack_bytes = 256 * 1024;

/// Decides who goes on. `allowed` lists tasks, the running one first if it is among them.
class Chooser {
public:
  virtual ~Chooser() = default;
  virtual std::size_t pick(const std::vector<unsigned>& allowed, bool running_is_first) = 0;
  virtual unsigned number(unsigned count) = 0;
};

/// A machine context with a stack of its own, known to the sanitizers. Kept from run to run, since
/// stacks are dear.
class Fiber {
public:
  Fiber() : stack_(new std::byte[stack_bytes]) {}
  ~Fiber() {}
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void prepare(void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = stack_bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

private:
  friend class Run;

  std::unique_ptr<std::byte[]> stack_;
  ucontext_t context_{};
};

/// One run of a scenario under a chooser.
class Run {
public:
  Run(Scenario& scenario, Chooser& chooser, std::vector<std::unique_ptr<Fiber>>& fibers)
      : scenario_(scenario), chooser_(chooser), fibers_(fibers) {}

  static Run* current() { return current_; }

  void go() {
    for (Scenario::Task& task : scenario_.tasks()) {
      if (fibers_.size() == tasks_.size()) fibers_.push_back(std::make_unique<Fiber>());
      fibers_[tasks_.size()]->prepare(&Run::enter);
      tasks_.push_back({std::move(task.body), nullptr, 0, task.may_wait_for_ever});
    }
    current_ = this;
    if (const unsigned first = next(none); first != none) leave_main(first);
    if (failure_.empty()) scenario_.check();
    current_ = nullptr;
  }

  const std::string& failure() const { return failure_; }
  const std::string& schedule() const { return schedule_; }

  bool in_task() const { return running_ != none; }

  void switch_point() {
    if (in_task()) resume(next(running_));
  }

  void wait_for_change(std::uint64_t since) {
    if (!in_task()) return;
    tasks_[running_].since = since;
    tasks_[running_].waits_for_change = true;
    leave_blocked();
  }

  void block_until(std::function<bool()> condition) {
    if (!in_task()) return;
    tasks_[running_].condition = std::move(condition);
    leave_blocked();
  }

  void changed() { ++changes_; }
  std::uint64_t changes() const { return changes_; }

  unsigned choose(unsigned count) {
    const unsigned number = chooser_.number(count);
    schedule_ += char('0' + number);
    return number;
  }

  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
    if (in_task()) to_main();
  }

private:
  struct Task {
    std::function<void()> body;
    std::function<bool()> condition;  // to go on, unless empty
    std::uint64_t since = 0;
    bool may_wait_for_ever = false;
    bool waits_for_change = false;
    bool done = false;
  };

  static constexpr unsigned none = ~0u;

  static void enter() {
    Run& run = *current_;
    run.arrived();
    try {
      run.tasks_[run.running_].body();
    } catch (const std::exception& thrown) {
      run.fail(std::string("a task threw: ") + thrown.what());
    }
    run.tasks_[run.running_].done = true;
    run.changed();
    run.leave_blocked();
  }

  bool can_run(const Task& task) const {
    if (task.done) return false;
    if (task.waits_for_change) return changes_ > task.since;
    return !task.condition || task.condition();
  }

  /// Who goes on after `from`, or none when nobody can.
  unsigned next(unsigned from) {
    allowed_.clear();
    const bool running_can = from != none && can_run(tasks_[from]);
    if (running_can) allowed_.push_back(from);
    for (unsigned t = 0; t < tasks_.size(); ++t)
      if (t != from && can_run(tasks_[t])) allowed_.push_back(t);
    if (allowed_.empty()) return none;
    const unsigned task = allowed_[chooser_.pick(allowed_, running_can)];
    schedule_ += char('a' + task);
    return task;
  }

  void leave_blocked() {
    const unsigned task = next(running_);
    if (task == none) {
      for (const Task& t : tasks_)
        if (!t.done && !t.may_wait_for_ever && failure_.empty()) failure_ = "no task can go on";
      to_main();
    }
    resume(task);
  }

  void resume(unsigned task) {
    tasks_[task].condition = nullptr;
    tasks_[task].waits_for_change = false;
    if (task == running_) return;
    const unsigned left = running_;
    running_ = task;
    Fiber& to = *fibers_[task];
    if (tasks_[left].done) leave_for_good(to.context_, to.stack_.get(), stack_bytes);
    swap(fibers_[left]->context_, to);
    arrived();
  }

  void leave_main(unsigned task) {
    running_ = task;
    swap(main_, *fibers_[task]);
  }

  [[noreturn]] void to_main() {
    running_ = none;
    leave_for_good(main_, main_stack_, main_stack_bytes_);
  }

  /// From a fiber that nobody returns to. Has no locals, and its callers use none afterwards: the
  /// address sanitizer keeps locals in memory that it frees here. It would do so at no other time,
  /// and a fiber has some of it for each run.
  [[noreturn]] static void leave_for_good(ucontext_t& to, [[maybe_unused]] const void* stack,
                                          [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, stack, bytes);
#endif
    setcontext(&to);
    std::terminate();
  }

  void swap(ucontext_t& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, to.stack_.get(), stack_bytes);
#endif
    swapcontext(&from, &to.context_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  /// First thing on a fiber's own stack.
  void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    if (!fresh_[running_]) return;
    fresh_[running_] = false;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (main_stack_ == nullptr) {
      main_stack_ = bottom;
      main_stack_bytes_ = bytes;
    }
#endif
  }

  Scenario& scenario_;
  Chooser& chooser_;
  std::vector<std::unique_ptr<Fiber>>& fibers_;
  std::vector<Task> tasks_;
  std::vector<unsigned> allowed_;
  ucontext_t main_{};
  unsigned running_ = none;
  std::uint64_t changes_ = 0;
  std::string failure_;
  std::string schedule_;
  const void* main_stack_ = nullptr;  // known to the address sanitizer only
  std::size_t main_stack_bytes_ = 0;
#if defined(__SANITIZE_ADDRESS__)
  bool fresh_[32] = {true, true, true, true, true, true, true, true, true, true, true,
                     true, true, true, true, true, true, true, true, true, true, true,
                     true, true, true, true, true, true, true, true, true, true};
#endif

  static inline Run* current_ = nullptr;
};

/// Depth first, by replaying a prefix of decisions and taking the next branch after it.
class Exhaustive final : public Chooser {
public:
  explicit Exhaustive(unsigned preemptions) : bound_(preemptions) {}

  void begin() { at_ = preempted_ = 0; }

  /// Moves on to the next schedule; false when that was the last.
  bool advance() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().count) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

  std::size_t pick(const std::vector<unsigned>& allowed, bool running_is_first) override {
    const bool bound = running_is_first && preempted_ == bound_;
    const std::size_t taken = bound ? 0 : decide(unsigned(allowed.size()));
    if (running_is_first && taken != 0) ++preempted_;
    return taken;
  }

  unsigned number(unsigned count) override { return decide(count); }

private:
  struct Decision {
    unsigned taken;
    unsigned count;
  };

  unsigned decide(unsigned count) {
    if (count == 1) return 0;
    if (at_ == path_.size()) path_.push_back({0, count});
    if (path_[at_].count != count) throw std::logic_error("the scenario is not deterministic");
    return path_[at_++].taken;
  }

  unsigned bound_;
  unsigned preempted_ = 0;
  std::size_t at_ = 0;
  std::vector<Decision> path_;
};

/// Probabilistic concurrency testing: the task of the highest priority runs; at `depth - 1` random
/// steps the running one falls below all others.
class RandomPriorities final : public Chooser {
public:
  RandomPriorities(std::uint64_t seed, unsigned depth, std::uint64_t steps) : random_(seed) {
    for (unsigned i = 0; i + 1 < depth; ++i)
      falls_.push_back(random_() % std::max(steps, std::uint64_t{1}));
    for (unsigned i = 0; i < 32; ++i) priorities_.push_back(100 + i);
    std::shuffle(priorities_.begin(), priorities_.end(), random_);
  }

  std::size_t pick(const std::vector<unsigned>& allowed, bool running_is_first) override {
    if (running_is_first && std::count(falls_.begin(), falls_.end(), steps_) != 0)
      priorities_[allowed[0]] = lowest_--;
    ++steps_;
    const auto best = std::max_element(allowed.begin(), allowed.end(), [&](unsigned a, unsigned b) {
      return priorities_[a] < priorities_[b];
    });
    return std::size_t(best - allowed.begin());
  }

  unsigned number(unsigned count) override { return unsigned(random_() % count); }

  std::uint64_t steps() const { return steps_; }

private:
  std::mt19937_64 random_;
  std::vector<std::uint64_t> falls_;
  std::vector<int> priorities_;
  std::uint64_t steps_ = 0;
  int lowest_ = 99;
};

/// Follows the letters (tasks) and digits (numbers) that a run left behind.
class Replay final : public Chooser {
public:
  explicit Replay(std::string schedule) : schedule_(std::move(schedule)) {}

  std::size_t pick(const std::vector<unsigned>& allowed, bool) override {
    const unsigned task = unsigned(take() - 'a');
    const auto at = std::find(allowed.begin(), allowed.end(), task);
    return at == allowed.end() ? 0 : std::size_t(at - allowed.begin());
  }
  unsigned number(unsigned count) override { return unsigned(take() - '0') % count; }

private:
  char take() { return at_ < schedule_.size() ? schedule_[at_++] : 'a'; }

  std::string schedule_;
  std::size_t at_ = 0;
};

/// Runs once; true when nothing was found.
bool run_once(const MakeScenario& make, Chooser& chooser,
              std::vector<std::unique_ptr<Fiber>>& fibers, Exploration& result) {
  const std::unique_ptr<Scenario> scenario = make();
  Run run(*scenario, chooser, fibers);
  run.go();
  ++result.schedules;
  if (run.failure().empty()) return true;
  result.failure = run.failure();
  result.schedule = run.schedule();
  return false;
}

}  // namespace

Exploration explore_all(const MakeScenario& make, unsigned preemptions,
                        std::uint64_t max_schedules) {
  Exploration result;
  std::vector<std::unique_ptr<Fiber>> fibers;
  Exhaustive chooser(preemptions);
  do {
    if (result.schedules == max_schedules) return result;
    chooser.begin();
    if (!run_once(make, chooser, fibers, result)) return result;
  } while (chooser.advance());
  result.complete = true;
  return result;
}

Exploration explore_random(const MakeScenario& make, std::uint64_t seed, std::uint64_t runs,
                           unsigned depth) {
  Exploration result;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::mt19937_64 seeds(seed);
  std::uint64_t steps = 50;  // of the longest run so far: where a change of priority may fall
  for (std::uint64_t i = 0; i < runs; ++i) {
    RandomPriorities chooser(seeds(), depth, steps);
    if (!run_once(make, chooser, fibers, result)) return result;
    steps = std::max(steps, chooser.steps());
  }
  return result;
}

Exploration replay(const MakeScenario& make, const std::string& schedule) {
  Exploration result;
  std::vector<std::unique_ptr<Fiber>> fibers;
  Replay chooser(schedule);
  run_once(make, chooser, fibers, result);
  return result;
}

void switch_point() {
  if (Run* const run = Run::current()) run->switch_point();
}

void changed() {
  if (Run* const run = Run::current()) run->changed();
}

std::uint64_t changes() {
  const Run* const run = Run::current();
  return run != nullptr ? run->changes() : 0;
}

void wait_for_change(std::uint64_t since) {
  if (Run* const run = Run::current()) run->wait_for_change(since);
}

void block_until(std::function<bool()> condition) {
  if (Run* const run = Run::current()) run->block_until(std::move(condition));
}

unsigned choose(unsigned count) {
  Run* const run = Run::current();
  return run != nullptr ? run->choose(count) : 0;
}

void require(bool condition, const char* what) {
  if (condition) return;
  if (Run* const run = Run::current())
    run->fail(what);
  else
    throw std::logic_error(what);
}

}  // namespace reprise::test

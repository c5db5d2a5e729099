// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/seeded_host.hpp>

#include <reprise/memory/check.hpp>

#include <algorithm>
#include <limits>
#include <sstream>

namespace reprise {

/// One started loop.
///
///   ready     step() next           → idle when it found nothing
///   idle      rest() next           → ready, asleep or done as it answers
///   asleep    until a wake, or until `until` if that is not never_ns → ready
///   done
class SeededHost::Task {
public:
  enum class State : std::uint8_t { ready, idle, asleep, done };

  Task(Loop& loop_, ThreadRole role_, std::uint32_t number_, std::int64_t priority_) noexcept
      : loop(loop_), role(role_), number(number_), priority(priority_) {}

  bool can_run(std::uint64_t now) const noexcept {
    if (inside || state == State::done) return false;
    return state != State::asleep || token || until <= now;
  }

  Loop& loop;
  const ThreadRole role;
  const std::uint32_t number;
  std::int64_t priority;
  State state = State::ready;
  std::uint64_t until = never_ns;
  bool token = false;
  bool inside = false;  // A turn of it is under way; turns may nest, not in one loop.
};

namespace {

std::vector<std::uint32_t> parse(std::string_view schedule) {
  std::vector<std::uint32_t> turns;
  std::istringstream words{std::string(schedule)};
  for (std::string word; words >> word;) {
    const auto star = word.find('*');
    const auto number = static_cast<std::uint32_t>(std::stoul(word));
    const auto count = star == std::string::npos ? 1 : std::stoul(word.substr(star + 1));
    turns.insert(turns.end(), count, number);
  }
  return turns;
}

// Not std::uniform_int_distribution, so that a seed means the same with every standard library.
std::uint64_t below(std::mt19937_64& random, std::uint64_t n) noexcept {
  return random() % n;
}

}  // namespace

SeededHost::SeededHost(const SeededOptions& options)
    : options_(options), random_(options.seed), replay_(parse(options.schedule)) {
  options_.schedule = {};
  if (options_.order != SeededOptions::Order::priorities) return;
  for (std::uint32_t i = 0; i < options_.change_points; ++i) {
    change_at_.push_back(below(random_, std::max<std::uint64_t>(options_.expected_turns, 1)));
  }
}

SeededHost::~SeededHost() = default;

Result<std::unique_ptr<LoopHandle>> SeededHost::start(Loop& loop, const LoopOptions& options) {
  class Handle final : public LoopHandle {
  public:
    Handle(SeededHost& host, std::shared_ptr<Task> task) : host_(host), task_(std::move(task)) {}
    void wake() noexcept override { task_->token = true; }
    bool join(std::uint64_t deadline_ns) noexcept override {
      while (task_->state != Task::State::done) {
        if (host_.now_ns() >= deadline_ns || !host_.run_one(deadline_ns)) return false;
      }
      return true;
    }

  private:
    SeededHost& host_;
    std::shared_ptr<Task> task_;
  };

  if (refuse_in_ != 0 && --refuse_in_ == 0) {
    return Error{Errc::refused, 0, "the seeded host was told to refuse this start"};
  }
  const auto priority =
      static_cast<std::int64_t>(below(random_, std::numeric_limits<std::int64_t>::max()));
  auto task = std::make_shared<Task>(loop, options.role, static_cast<std::uint32_t>(tasks_.size()),
                                     priority);
  tasks_.push_back(task);
  runnable_.reserve(tasks_.size());
  return std::unique_ptr<LoopHandle>{std::make_unique<Handle>(*this, std::move(task))};
}

bool SeededHost::run_one(std::uint64_t until_ns) noexcept {
  if (run_runnable()) return true;
  std::uint64_t next = until_ns;
  for (const auto& task : tasks_) {
    if (task->state == Task::State::asleep) next = std::min(next, task->until);
  }
  if (next == never_ns || next <= now_) return false;
  now_ = next;
  return true;
}

void SeededHost::run_until_idle() noexcept {
  while (run_runnable()) {
  }
}

bool SeededHost::run_runnable() noexcept {
  Task* const task = choose();
  if (!task) return false;
  chosen_.push_back(task->number);
  ++turns_;
  now_ += options_.turn_ns;
  turn(*task);
  return true;
}

SeededHost::Task* SeededHost::choose() noexcept {
  runnable_.clear();
  for (const auto& task : tasks_) {
    if (task->can_run(now_)) runnable_.push_back(task.get());
  }
  if (runnable_.empty()) return nullptr;
  if (turns_ < replay_.size()) {
    for (Task* task : runnable_) {
      if (task->number == replay_[turns_]) return task;
    }
    diverged_ = true;
  }
  switch (options_.order) {
    case SeededOptions::Order::uniform: return runnable_[below(random_, runnable_.size())];
    case SeededOptions::Order::priorities: return choose_by_priority();
    case SeededOptions::Order::round_robin: break;
  }
  const auto after = std::find_if(runnable_.begin(), runnable_.end(),
                                  [&](const Task* task) { return task->number > last_; });
  Task* const task = after == runnable_.end() ? runnable_.front() : *after;
  last_ = task->number;
  return task;
}

SeededHost::Task* SeededHost::choose_by_priority() noexcept {
  const auto lower = [](const Task* a, const Task* b) { return a->priority < b->priority; };
  Task* leader = *std::max_element(runnable_.begin(), runnable_.end(), lower);
  if (std::count(change_at_.begin(), change_at_.end(), turns_) != 0) {
    leader->priority = --lowest_;
    leader = *std::max_element(runnable_.begin(), runnable_.end(), lower);
  }
  return leader;
}

void SeededHost::turn(Task& task) noexcept {
  const RoleScope role(task.role);
  task.inside = true;
  if (task.state == Task::State::asleep) {
    const bool woken = std::exchange(task.token, false);
    task.state = Task::State::ready;
    if (!woken) task.loop.overslept();
  }
  if (task.state == Task::State::ready) {
    if (!task.loop.step()) task.state = Task::State::idle;
  } else {
    const Rest rest = task.loop.rest();
    task.state = Task::State::ready;
    if (rest.kind == Rest::Kind::done) {
      task.state = Task::State::done;
    } else if (rest.kind == Rest::Kind::again) {
      // It waits for others: without this a spinning leader would starve them for ever.
      task.priority = --lowest_;
    } else {
      task.state = Task::State::asleep;
      task.until = rest.kind == Rest::Kind::sleep ? never_ns : rest.until_ns;
    }
  }
  task.inside = false;
}

std::string SeededHost::schedule() const {
  std::ostringstream out;
  for (std::size_t i = 0; i < chosen_.size();) {
    std::size_t end = i + 1;
    while (end < chosen_.size() && chosen_[end] == chosen_[i]) ++end;
    if (i != 0) out << ' ';
    out << chosen_[i];
    if (end - i > 1) out << '*' << end - i;
    i = end;
  }
  return out.str();
}

}  // namespace reprise

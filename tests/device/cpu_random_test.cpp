// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/backend.hpp>

#include <support/cpu_rig.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <deque>
#include <mutex>
#include <random>
#include <vector>

using namespace reprise;
using namespace reprise::test;

namespace {

constexpr std::size_t cells = 12;
constexpr StreamIndex streams = 6;
using Memory = std::array<std::uint64_t, cells>;

/// One random command: mixes some cells into one.
struct Op {
  enum class Fate { runs, throws, skipped };
  StreamIndex stream = 0;
  std::array<std::size_t, 3> from{};
  std::size_t to = 0;
  std::uint64_t salt = 0;
  Fate fate = Fate::runs;

  void apply(Memory& memory) const {
    std::uint64_t value = salt;
    for (std::size_t cell : from) value = (value ^ memory[cell]) * 0x9e3779b97f4a7c15u + 1;
    memory[to] = value;
  }
};

Op random_op(std::mt19937_64& random) {
  Op op;
  op.stream = StreamIndex(random() % streams);
  for (std::size_t& cell : op.from) cell = random() % cells;
  op.to = random() % cells;
  op.salt = random();
  const auto fate = random() % 16;
  op.fate = fate == 0 ? Op::Fate::throws : fate == 1 ? Op::Fate::skipped : Op::Fate::runs;
  return op;
}

/// Who used a cell last, for the waits that keep the order of conflicting commands.
struct CellUse {
  TestWork* writer = nullptr;
  std::vector<TestWork*> readers;
};

/// Enqueues random commands with the waits they need, lets the backend, helpers and the verdicts
/// on failures take random turns, and compares memory with the commands run one by one.
class RandomRun {
public:
  RandomRun(std::uint64_t seed, const CpuOptions& options, Host& host)
      : random_(seed), host_(host), rig_(options, host) {
    rig_.notice.on_failed = [this](Work& work) {
      std::lock_guard lock(mutex_);
      held_.push_back(work.stream);
    };
  }

  void run(int n) {
    for (int i = 0; i < n; ++i) {
      add(random_op(random_));
      if (random_() % 3 == 0) between();
    }
    rig_->kick(Backend::no_stream);
    for (const auto& [op, work] : commands_) finish(*work);
    CHECK(memory_ == expected_);
    for (const auto& [op, work] : commands_) {
      CHECK(work->successes == (op.fate == Op::Fate::runs ? 1 : 0));
      CHECK(bool(work->failure) == (op.fate == Op::Fate::throws));
    }
    CHECK(overlaps_ == 0);
  }

private:
  void add(const Op& op) {
    TestWork& work = rig_.work();
    CellUse& target = uses_[op.to];
    if (target.writer) work.wait_for(*target.writer);
    for (TestWork* reader : target.readers) work.wait_for(*reader);
    for (std::size_t cell : op.from) {
      if (uses_[cell].writer) work.wait_for(*uses_[cell].writer);
    }
    work.skip = op.fate == Op::Fate::skipped;
    work.call([this, op] {
      if (inside_[op.stream].exchange(true)) ++overlaps_;
      if (this_thread_role() != ThreadRole::worker) ++overlaps_;
      if (op.fate == Op::Fate::runs) op.apply(memory_);
      inside_[op.stream] = false;
      if (op.fate == Op::Fate::throws) throw op.salt;
    });
    rig_.enqueue(op.stream, work);
    for (std::size_t cell : op.from) uses_[cell].readers.push_back(&work);
    target = {&work, {}};
    if (op.fate == Op::Fate::runs) op.apply(expected_);
    commands_.push_back({op, &work});
  }

  class After final : public HelpUntil {
  public:
    explicit After(std::uint64_t commands) : left_(commands) {}
    bool done() noexcept override { return left_-- == 0; }

  private:
    std::uint64_t left_;
  };

  void between() {
    const auto stream = StreamIndex(random_() % streams);
    switch (random_() % 5) {
      case 0: rig_->kick(Backend::no_stream); break;
      case 1: {
        rig_->kick(stream);
        After until(random_() % 4);
        rig_->help(stream, until);
        break;
      }
      case 2: judge_one(); break;
      case 3: (void)rig_->arm(stream, rig_->finished(stream) + 1); break;
      default:
        for (auto turns = random_() % 8; turns != 0; --turns) host_.run_one();
    }
  }

  bool judge_one() {
    StreamIndex stream;
    {
      std::lock_guard lock(mutex_);
      if (held_.empty()) return false;
      stream = held_.front();
      held_.pop_front();
    }
    rig_->resume(stream);
    return true;
  }

  void finish(const TestWork& work) {
    while (rig_->finished(work.stream) < work.position) {
      if (judge_one()) continue;
      if (host_.is_cooperative()) {
        REPRISE_CHECK(host_.run_one() || rig_->finished(work.stream) >= work.position,
                      "a random run hangs");
      } else {
        std::this_thread::yield();
      }
    }
  }

  std::mt19937_64 random_;
  Host& host_;
  Memory memory_{};
  Memory expected_{};
  std::array<CellUse, cells> uses_;
  std::array<std::atomic<bool>, streams> inside_{};
  std::atomic<int> overlaps_{0};
  std::mutex mutex_;  // Guards held_.
  std::deque<StreamIndex> held_;
  std::vector<std::pair<Op, TestWork*>> commands_;
  CpuRig rig_;
};

}  // namespace

TEST_CASE("random streams and waits give what one by one gives under every schedule",
          "[device][cpu][seeded][I3][I4][I5][I34]") {
  using Order = SeededOptions::Order;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t seed = test::seed() + i;
    SeededOptions options;
    options.seed = seed;
    options.order = i % 3 == 0   ? Order::priorities
                    : i % 3 == 1 ? Order::round_robin
                                 : Order::uniform;
    SeededHost host(options);
    const auto workers = std::uint32_t(i % 4);
    CAPTURE(seed, workers, int(options.order));
    {
      RandomRun run(seed, small_cpu(workers), host);
      run.run(80);
    }
    REQUIRE_FALSE(host.has_diverged());
  }
}

TEST_CASE("random streams and waits give what one by one gives on real threads",
          "[device][cpu][threads][I3][I4][I5]") {
  for (std::uint64_t i = 0; i < 6; ++i) {
    const std::uint64_t seed = test::seed() + i;
    CpuOptions options = small_cpu(std::uint32_t(1 + i % 3));
    options.worker_spin_ns = i % 2 == 0 ? 0 : 20'000;
    CAPTURE(seed, options.workers);
    RandomRun run(seed, options, real_host());
    run.run(1'000);
  }
}

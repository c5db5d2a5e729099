// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/job_loop.hpp>

#include <reprise/device/seeded_host.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reprise;
using detail::Job;
using detail::JobLoop;

namespace {

/// A job that counts what became of it.
struct Counted : Job {
  explicit Counted(std::function<void()> body = {}) : body_(std::move(body)) {
    run = [](Job& job) {
      auto& self = static_cast<Counted&>(job);
      ++self.runs;
      if (self.body_) self.body_();
    };
    destroy = [](Job& job) noexcept { ++static_cast<Counted&>(job).destroyed; };
  }

  std::atomic<int> runs{0};
  std::atomic<int> destroyed{0};

private:
  std::function<void()> body_;
};

constexpr LoopOptions courier{"courier", ThreadRole::courier, 0};

std::uint64_t far_away() {
  return real_host().now_ns() + 60'000'000'000;
}

}  // namespace

TEST_CASE("a job loop runs jobs in the order of their posting on one thread of its role",
          "[runtime][threads][I1]") {
  JobLoop loop;
  std::vector<int> order;
  std::vector<std::unique_ptr<Counted>> jobs;
  ThreadRole role = ThreadRole::user;
  for (int i = 0; i < 200; ++i) {
    jobs.push_back(std::make_unique<Counted>([&, i] {
      order.push_back(i);
      role = this_thread_role();
    }));
  }
  // Some before the start, some to a running or sleeping loop.
  for (int i = 0; i < 3; ++i) loop.post(*jobs[i]);
  REQUIRE(loop.start(real_host(), courier));
  for (int i = 3; i < 200; ++i) loop.post(*jobs[i]);
  REQUIRE(loop.close(far_away()));

  REQUIRE(order.size() == 200);
  for (int i = 0; i < 200; ++i) CHECK(order[i] == i);
  CHECK(role == ThreadRole::courier);
  for (auto& job : jobs) {
    CHECK(job->runs == 1);
    CHECK(job->destroyed == 0);
  }
}

TEST_CASE("jobs of threads that have ended are not lost", "[runtime][threads][I1][I13]") {
  JobLoop loop;
  REQUIRE(loop.start(real_host(), courier));
  constexpr int threads = 4;
  constexpr int each = 500;
  std::vector<std::vector<std::unique_ptr<Counted>>> jobs(threads);
  std::vector<std::thread> posters;
  for (int t = 0; t < threads; ++t) {
    posters.emplace_back([&mine = jobs[t], &loop] {
      for (int i = 0; i < each; ++i) {
        mine.push_back(std::make_unique<Counted>());
        loop.post(*mine.back());
      }
    });
  }
  for (auto& poster : posters) poster.join();
  REQUIRE(loop.close(far_away()));
  for (auto& some : jobs) {
    for (auto& job : some) {
      REQUIRE(job->runs == 1);
      REQUIRE(job->destroyed == 0);
    }
  }
}

TEST_CASE("a sleeping job loop wakes for one job", "[runtime][threads][I1]") {
  JobLoop loop;
  REQUIRE(loop.start(real_host(), courier));
  for (int i = 0; i < 300; ++i) {
    std::promise<void> ran;
    auto done = ran.get_future();
    Counted job([&] { ran.set_value(); });
    loop.post(job);
    done.wait();
  }
  CHECK(loop.close(far_away()));
}

TEST_CASE("every job is run or destroyed exactly once when posters race with the close",
          "[runtime][threads][I1][I8]") {
  for (int round = 0; round < 40; ++round) {
    auto loop = std::make_unique<JobLoop>();
    REQUIRE(loop->start(real_host(), courier));
    std::vector<std::unique_ptr<Counted>> jobs;
    for (int i = 0; i < 200; ++i) jobs.push_back(std::make_unique<Counted>());
    std::thread poster([&] {
      for (auto& job : jobs) loop->post(*job);
    });
    std::vector<std::unique_ptr<Counted>> more;
    for (int i = 0; i < 200; ++i) more.push_back(std::make_unique<Counted>());
    std::thread library([&] {
      const RoleScope role(ThreadRole::device);
      for (auto& job : more) loop->post(*job);
    });
    REQUIRE(loop->close(far_away()));
    poster.join();
    library.join();
    loop.reset();
    for (auto& job : jobs) REQUIRE(job->runs + job->destroyed == 1);
    for (auto& job : more) REQUIRE(job->runs + job->destroyed == 1);
  }
}

TEST_CASE("a closed job loop destroys a user's job at once and a library thread's job later",
          "[runtime][I8][I2]") {
  auto loop = std::make_unique<JobLoop>();
  REQUIRE(loop->start(real_host(), courier));
  REQUIRE(loop->close(far_away()));
  REQUIRE(loop->close(far_away()));

  Counted refused;
  CHECK_FALSE(loop->try_post(refused));
  CHECK(refused.destroyed == 0);

  Counted mine;
  loop->post(mine);
  CHECK(mine.destroyed == 1);

  Counted theirs;
  {
    const RoleScope role(ThreadRole::device);
    loop->post(theirs);
  }
  CHECK(theirs.destroyed == 0);
  loop.reset();
  CHECK(theirs.destroyed == 1);
  CHECK(theirs.runs + mine.runs + refused.runs == 0);
}

TEST_CASE("a job loop that was never started destroys what it was handed", "[runtime][I8]") {
  Counted job;
  {
    JobLoop loop;
    loop.post(job);
    CHECK(job.destroyed == 0);
    CHECK(loop.close(0));
  }
  CHECK(job.destroyed == 1);
  CHECK(job.runs == 0);
}

TEST_CASE("what a job throws is counted and told to the hook and stops nothing",
          "[runtime][threads][N12]") {
  struct Heard {
    std::vector<std::string> texts;
    ThreadRole role = ThreadRole::user;
  } heard;
  detail::ExceptionHook hook;
  hook.self = &heard;
  hook.call = [](void* self, std::exception_ptr thrown) noexcept {
    auto& all = *static_cast<Heard*>(self);
    all.role = this_thread_role();
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      all.texts.push_back(error.what());
    }
  };
  JobLoop loop(hook);
  REQUIRE(loop.start(real_host(), courier));
  Counted first([] { throw std::runtime_error("one"); });
  Counted second([] { throw std::runtime_error("two"); });
  Counted third;
  loop.post(first);
  loop.post(second);
  loop.post(third);
  REQUIRE(loop.close(far_away()));
  CHECK(heard.texts == std::vector<std::string>{"one", "two"});
  CHECK(heard.role == ThreadRole::courier);
  CHECK(loop.exceptions() == 2);
  CHECK(third.runs == 1);
}

TEST_CASE("closing runs jobs until the deadline and destroys the rest uninvoked",
          "[runtime][I1][I8]") {
  SeededHost host(7);
  JobLoop loop;
  REQUIRE(loop.start(host, courier));
  std::vector<std::unique_ptr<Counted>> jobs;
  for (int i = 0; i < 10; ++i) {
    jobs.push_back(std::make_unique<Counted>([&] { host.advance(1'000'000); }));
    loop.post(*jobs.back());
  }
  CHECK(loop.close(host.now_ns() + 4'500'000));
  int runs = 0;
  for (auto& job : jobs) {
    CHECK(job->runs + job->destroyed == 1);
    runs += job->runs;
  }
  CHECK(runs == 5);
  CHECK(jobs[4]->runs == 1);
  CHECK(jobs[5]->destroyed == 1);
}

TEST_CASE("a job that does not return is reported and those behind it are destroyed",
          "[runtime][threads][I1][I8]") {
  std::atomic<bool> release{false};
  std::atomic<bool> entered{false};
  JobLoop loop;
  REQUIRE(loop.start(real_host(), courier));
  Counted stuck([&] {
    entered = true;
    while (!release) std::this_thread::yield();
  });
  Counted behind;
  Counted further;
  loop.post(stuck);
  loop.post(behind);
  while (!entered) std::this_thread::yield();
  loop.post(further);
  CHECK_FALSE(loop.close(real_host().now_ns()));
  CHECK(behind.destroyed == 1);
  CHECK(further.destroyed == 1);
  CHECK(stuck.destroyed == 0);
  release = true;
  CHECK(loop.close(far_away()));
  CHECK(stuck.runs == 1);
  CHECK(behind.runs + further.runs == 0);
}

TEST_CASE("a job may post to its own loop and destroy itself", "[runtime][I8]") {
  struct Again : Job {
    JobLoop& loop;
    int& left;
    Again(JobLoop& l, int& n) : loop(l), left(n) {
      run = [](Job& job) {
        auto& self = static_cast<Again&>(job);
        if (--self.left > 0) {
          self.loop.post(self);
        } else {
          delete &self;
        }
      };
      destroy = [](Job& job) noexcept { delete static_cast<Again*>(&job); };
    }
  };
  SeededHost host(3);
  JobLoop loop;
  REQUIRE(loop.start(host, courier));
  int left = 5;
  loop.post(*new Again(loop, left));
  host.run_until_idle();
  CHECK(left == 0);
  CHECK(loop.close(host.now_ns() + 1'000'000));
}

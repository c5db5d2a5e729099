// SPDX-License-Identifier: Apache-2.0
#include "support/model_run.hpp"

#include "support/model_world.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace reprise::test::model {

Outcome run(const Sequence& sequence, HostKind host) {
  World world(sequence, host);
  return world.run();
}

Outcome run_together(std::span<const Sequence> sequences) {
  Runtime runtime;
  Device device = runtime.open("cpu:0", options_of(sequences[0].setting));
  Exchange exchange;
  std::vector<Outcome> outcomes(sequences.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    threads.emplace_back([&, i] {
      World world(sequences[i], device, exchange, static_cast<std::uint32_t>(i));
      outcomes[i] = world.run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  (void)exchange.swap({});
  Outcome all;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    all.operations += outcomes[i].operations;
    if (all.problem.empty() && !outcomes[i].problem.empty()) {
      all.problem = "thread " + std::to_string(i) + ", " + outcomes[i].problem;
    }
  }
  device.synchronize();
  const MemoryReport report = device.memory_report();
  if (all.problem.empty() && (report.pool.in_use != 0 || report.pool.guarded != 0)) {
    all.problem = std::to_string(report.pool.in_use) + " bytes are left, " +
                  std::to_string(report.pool.guarded) + " of them guarded";
  }
  return all;
}

Outcome run_apart(const Sequence& sequence) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return run(sequence);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    alarm(20);
    const std::string problem = run(sequence).problem.substr(0, 4000);
    const auto written = write(ends[1], problem.data(), problem.size());
    _exit(written == static_cast<ssize_t>(problem.size()) && problem.empty() ? 0 : 1);
  }
  close(ends[1]);
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    outcome.problem.append(buffer.data(), static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    outcome.problem += "ended by signal " + std::to_string(WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0 && outcome.problem.empty()) {
    outcome.problem = "ended with " + std::to_string(WEXITSTATUS(status));
  }
  return outcome;
}

namespace {

using Fails = std::function<bool(const Sequence&)>;

/// Leaves out chunks of operations, from halves down to single ones.
bool leave_out(Sequence& sequence, const Fails& fails) {
  bool any = false;
  for (std::size_t chunk = std::max<std::size_t>(sequence.ops.size() / 2, 1);; chunk /= 2) {
    for (std::size_t at = 0; at < sequence.ops.size();) {
      Sequence smaller = sequence;
      const auto from = smaller.ops.begin() + static_cast<std::ptrdiff_t>(at);
      const auto count = std::min(chunk, smaller.ops.size() - at);
      smaller.ops.erase(from, from + static_cast<std::ptrdiff_t>(count));
      if (fails(smaller)) {
        sequence = std::move(smaller);
        any = true;
      } else {
        at += chunk;
      }
    }
    if (chunk <= 1) return any;
  }
}

/// Makes one number after the other smaller.
bool lower(Sequence& sequence, const Fails& fails) {
  bool any = false;
  const std::vector<std::uint8_t> start = encode(sequence);
  for (std::size_t i = 0; i < start.size(); ++i) {
    // The code of an operation stays what it is.
    if (i >= 8 && i % 8 == 0) continue;
    for (const int wanted : {0, 1, 2, 4, start[i] / 2, start[i] - 1}) {
      auto bytes = encode(sequence);
      if (wanted < 0 || wanted >= bytes[i]) continue;
      bytes[i] = static_cast<std::uint8_t>(wanted);
      Sequence smaller = decode(bytes);
      if (!fails(smaller)) continue;
      sequence = std::move(smaller);
      any = true;
      break;
    }
  }
  return any;
}

}  // namespace

Sequence shrink(Sequence sequence, const Fails& fails) {
  for (int round = 0; round < 8; ++round) {
    const bool shorter = leave_out(sequence, fails);
    const bool lowered = lower(sequence, fails);
    if (!shorter && !lowered) break;
  }
  return sequence;
}

std::string report(const Sequence& sequence, const std::string& problem) {
  return problem + "\n" + std::to_string(sequence.ops.size()) + " operations:\n" +
         to_text(sequence) + "bytes " + to_hex(sequence) + "\n";
}

}  // namespace reprise::test::model

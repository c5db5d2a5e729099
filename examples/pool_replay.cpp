// SPDX-License-Identifier: Apache-2.0
// Does again what an allocation trace says, on the pool and on other allocators, and compares how
// much memory each needs and how long it takes. With --record it first makes a trace.
#include <pool_replay/record.hpp>
#include <pool_replay/replay.hpp>

#include <reprise/memory/error.hpp>
#include <reprise/memory/report.hpp>

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

namespace {

using namespace pool_replay;

struct Options {
  std::string trace;
  std::string device = "cpu:0";
  bool record = false;
  ReplayOptions replay;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--trace", options.trace, "The trace, comma-separated values")->required();
  app.add_flag("--record", options.record, "First run some work on a device and write the trace");
  app.add_option("--device", options.device, "Device that --record runs on")->capture_default_str();
  app.add_option("--page-size", options.replay.page_size, "Bytes of a page")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{256}, std::uint64_t{1} << 32));
  app.add_option("--alignment", options.replay.alignment, "Of every block, in bytes")
      ->capture_default_str();
  app.add_option("--limit", options.replay.limit, "Most bytes reserved; 0 is no limit")
      ->capture_default_str();
}

std::vector<reprise::MemoryEvent> read(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) {
    throw reprise::Failure(reprise::Errc::io_error, "pool_replay",
                           path + ": " + std::generic_category().message(errno));
  }
  return reprise::read_csv(file);
}

void print(const ReplayResult& result, const Steps& steps) {
  std::cout << std::left << std::setw(24) << result.policy << std::right << std::setw(12)
            << reprise::bytes_text(result.peak_reserved) << std::fixed << std::setprecision(3)
            << std::setw(12)
            << static_cast<double>(result.peak_reserved) /
                   static_cast<double>(std::max<std::uint64_t>(steps.peak_live, 1))
            << std::setprecision(0) << std::setw(10) << result.ns_per_pair << '\n';
}

void run(const Options& options) {
  if (options.record) record(options.device, options.trace);
  const std::vector<reprise::MemoryEvent> events = read(options.trace);
  const Steps steps = steps_of(events);
  std::cout << events.size() << " events, " << steps.blocks << " blocks, " << steps.pairs
            << " of them given back, " << steps.waited << " while still in use; at most "
            << reprise::bytes_text(steps.peak_live) << " live in "
            << reprise::bytes_text(steps.peak_reserved) << " of pages\n\n"
            << "policy                  reserved, peak   / live   ns/pair\n";
  // The first pass brings the books into the caches.
  (void)replay_on_pool(steps, options.replay);
  const ReplayResult pool = replay_on_pool(steps, options.replay);
  print(pool, steps);
  ReplayOptions faster = options.replay;
  faster.growth = 16 * options.replay.page_size;
  print(replay_on_pool(steps, faster), steps);
  for (const ReplayResult& peer : replay_on_peers(steps)) print(peer, steps);
  std::cout << '\n'
            << pool.same_address << " of " << steps.blocks << " blocks lie where they lay; "
            << pool.refused << " requests were refused; at the end "
            << reprise::bytes_text(pool.in_use) << " are in use" << std::endl;
  if (!std::cout) {
    throw reprise::Failure(reprise::Errc::io_error, "pool_replay",
                           "standard output: the results cannot be written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Does again what an allocation trace says, on the pool and on other allocators."};
  declare(app, options);
  try {
    app.parse(argc, argv);
    run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const reprise::Failure& failure) {
    std::cerr << "pool_replay: " << failure.record() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "pool_replay: " << error.what() << '\n';
    return 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include <pool_replay/record.hpp>

#include <support/svg_plot.hpp>

#include <reprise/runtime/allocation_trace.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <vector>

namespace pool_replay {

namespace {

constexpr std::size_t most_kept = 60;
constexpr int rounds = 4000;

void work(const reprise::Device& device) {
  const reprise::Client clients[] = {device.client(), device.client()};
  std::mt19937_64 random(7);
  std::vector<reprise::Buffer> kept;
  for (int i = 0; i < rounds; ++i) {
    const reprise::Client& client = clients[random() % 2];
    if (kept.size() < most_kept && random() % 5 < 3) {
      // From 256 bytes to 512 KiB, small ones as likely as large ones.
      const double exponent = 8 + 11 * static_cast<double>(random() % 1000) / 1000;
      kept.push_back(client.empty<std::byte>(static_cast<std::size_t>(std::exp2(exponent))));
    } else if (!kept.empty()) {
      const std::size_t at = random() % kept.size();
      client.fill(kept[at].as<std::byte>(), std::byte{1});
      std::swap(kept[at], kept.back());
      kept.pop_back();
    }
  }
  device.synchronize();
}

}  // namespace

void record(const std::string& device, const std::filesystem::path& path) {
  examples::ensure_writable(path);
  const auto file = std::make_shared<std::ofstream>(path, std::ios::trunc);
  {
    reprise::Runtime runtime;
    reprise::DeviceOptions options;
    options.allocation_trace = reprise::csv_sink(file);
    work(runtime.open(device, options));
    runtime.drain();
  }
  if (!file->flush()) {
    throw reprise::Failure(reprise::Errc::io_error, "record",
                           path.string() + ": the trace cannot be written");
  }
}

}  // namespace pool_replay

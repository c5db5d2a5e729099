// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/detail/cpu_count.hpp>
#include <reprise/device/host.hpp>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sched.h>
#include <sstream>
#include <thread>

namespace reprise {

namespace detail {

namespace {

constexpr std::uint32_t unbounded = std::numeric_limits<std::uint32_t>::max();

std::uint32_t whole_cpus(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return unbounded;
  // Rounded down: a process that spins over its quota is stopped for the rest of the period.
  return static_cast<std::uint32_t>(std::max(1LL, quota / period));
}

// "max 100000" or "150000 100000".
std::uint32_t version_2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  long long quota = 0;
  long long period = 0;
  return file >> quota >> period ? whole_cpus(quota, period) : unbounded;
}

std::uint32_t version_1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  long long quota = 0;
  long long period = 0;
  return quota_file >> quota && period_file >> period ? whole_cpus(quota, period) : unbounded;
}

std::uint32_t tightest(const std::string& mount, std::string path,
                       std::uint32_t (*read)(const std::string&)) {
  std::uint32_t cpus = unbounded;
  while (path.size() > 1) {
    cpus = std::min(cpus, read(mount + path));
    path.erase(path.find_last_of('/'));
  }
  return std::min(cpus, read(mount));
}

bool names_cpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

std::uint32_t quota_cpus(const std::string& root, const std::string& membership) {
  std::uint32_t cpus = unbounded;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    // hierarchy:controllers:path; version 2 is hierarchy 0 and names no controllers.
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      cpus = std::min(cpus, tightest(root, path, version_2));
    } else if (names_cpu(controllers)) {
      cpus = std::min(cpus, tightest(root + "/cpu", path, version_1));
      cpus = std::min(cpus, tightest(root + '/' + controllers, path, version_1));
    }
  }
  return cpus;
}

namespace {

std::uint32_t count_cpus() {
  std::uint32_t cpus = std::max(1U, std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    cpus = static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  }
  try {
    std::ifstream file("/proc/self/cgroup");
    std::ostringstream membership;
    membership << file.rdbuf();
    cpus = std::min(cpus, quota_cpus("/sys/fs/cgroup", membership.str()));
  } catch (...) {
    // Without memory for a path the affinity has to do.
  }
  return cpus;
}

}  // namespace

}  // namespace detail

std::uint32_t usable_cpus() noexcept {
  static const std::uint32_t cpus = detail::count_cpus();
  return cpus;
}

}  // namespace reprise

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace reprise::detail {

/// Whole CPUs that the control groups of a process leave it, at least 1; ~0 if they set no bound.
/// `root` is where the control groups are mounted, `membership` the text of /proc/self/cgroup. Both
/// versions of control groups are understood; the tightest group on the way to the root counts.
std::uint32_t quota_cpus(const std::string& root, const std::string& membership);

}  // namespace reprise::detail

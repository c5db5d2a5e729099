// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace pool_replay {

/// Takes and drops some thousand buffers of a device, from two clients, and writes what its pool
/// did to `path`.
///
/// Errors  Failure: io_error naming the file, and what opening the device may throw.
void record(const std::string& device, const std::filesystem::path& path);

}  // namespace pool_replay

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples {

/// The bytes of a regular file. Memory is taken for what the file holds, never for what a header in
/// it claims.
///
/// Errors  Failure with Errc::io_error, naming the file: it cannot be opened or read, is no regular
///         file, or holds more than `limit_bytes`.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace examples

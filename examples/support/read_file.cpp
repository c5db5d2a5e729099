// SPDX-License-Identifier: Apache-2.0
#include <support/read_file.hpp>

#include <reprise/memory/error.hpp>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

namespace examples {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw reprise::Failure(reprise::Errc::io_error, "read_file", path.string() + ": " + what);
}

}  // namespace

std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) fail(path, error.message());
  if (!std::filesystem::exists(status)) fail(path, "no such file");
  if (!std::filesystem::is_regular_file(status)) fail(path, "not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(path, error.message());
  if (size > limit_bytes) {
    fail(path, "file size is " + std::to_string(size) + " bytes, at most " +
                   std::to_string(limit_bytes) + " are read");
  }

  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "cannot open: " + std::generic_category().message(errno));
  std::vector<std::byte> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(file.gcount()) != size) {
    fail(path, "only " + std::to_string(file.gcount()) + " of " + std::to_string(size) +
                   " bytes could be read");
  }
  return bytes;
}

}  // namespace examples

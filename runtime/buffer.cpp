// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/buffer.hpp>

#include <reprise/runtime/verbs.hpp>

#include <limits>
#include <string>

namespace reprise::detail {

void bad_slice(std::uint64_t offset, std::uint64_t count, std::uint64_t size) {
  throw Failure(Errc::out_of_range, "slice",
                "offset " + std::to_string(offset) + " and count " + std::to_string(count) +
                    " reach past the size " + std::to_string(size));
}

void bad_cast(const char* what, std::uint64_t value, std::uint64_t unit) {
  throw Failure(Errc::misaligned, "as",
                std::string(what) + " " + std::to_string(value) + " is no multiple of " +
                    std::to_string(unit));
}

std::uint64_t checked_bytes(const char* verb, std::uint64_t count, std::uint64_t element) {
  if (count > std::numeric_limits<std::uint64_t>::max() / 2 / element) {
    throw Failure(Errc::never_fits, verb,
                  std::to_string(count) + " elements of " + std::to_string(element) + " bytes");
  }
  return count * element;
}

}  // namespace reprise::detail

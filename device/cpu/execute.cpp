// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/execute.hpp>

#include <cstring>

namespace reprise::detail {

namespace {

std::byte* at(std::uint64_t address) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

/// `pattern`'s low `bytes` bytes, repeated to fill all eight.
std::uint64_t repeated(std::uint64_t pattern, std::uint32_t bytes) noexcept {
  if (bytes >= 8) return pattern;
  pattern &= (std::uint64_t{1} << (8 * bytes)) - 1;
  for (std::uint32_t width = bytes; width < 8; width *= 2) pattern |= pattern << (8 * width);
  return pattern;
}

}  // namespace

// Sizes of nothing may come with null addresses, which memcpy does not take.

void execute(const command::Copy& copy) noexcept {
  if (copy.bytes != 0) std::memcpy(at(copy.to), at(copy.from), copy.bytes);
}

void execute(const command::Write& write) noexcept {
  if (write.bytes != 0) std::memcpy(at(write.to), write.from, write.bytes);
}

void execute(const command::Read& read) noexcept {
  if (read.bytes != 0) std::memcpy(read.to, at(read.from), read.bytes);
}

void execute(const command::Fill& fill) noexcept {
  const std::uint64_t pattern = repeated(fill.pattern, fill.pattern_bytes);
  std::byte* to = at(fill.to);
  const std::uint64_t whole = fill.bytes / 8;
  if ((pattern & 0xff) * 0x0101010101010101u == pattern) {
    if (fill.bytes != 0) std::memset(to, static_cast<int>(pattern & 0xff), fill.bytes);
    return;
  }
  for (std::uint64_t i = 0; i < whole; ++i) std::memcpy(to + 8 * i, &pattern, 8);
  if (fill.bytes % 8 != 0) std::memcpy(to + 8 * whole, &pattern, fill.bytes % 8);
}

FailurePtr describe(std::string_view verb, std::string_view node,
                    const std::exception_ptr& thrown) noexcept {
  FailureRecord record;
  record.code = Errc::kernel_failed;
  record.exception = thrown;
  try {
    record.verb = verb;
    record.node = node;
    try {
      std::rethrow_exception(thrown);
    } catch (const ChildFailed& child) {
      return child.failure;
    } catch (const std::exception& error) {
      record.message = error.what();
    } catch (...) {
      // Not one of the standard's: the object itself is kept, there is no text.
    }
  } catch (...) {
    // No memory for the texts.
  }
  return make_failure(std::move(record));
}

}  // namespace reprise::detail

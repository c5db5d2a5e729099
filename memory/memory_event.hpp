// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

namespace reprise {

/// What happened to the memory of a device.
enum class MemoryVerb : std::uint8_t {
  allocate,  ///< A request was served from memory whose last users are done.
  reuse,     ///< The same from memory that its last users may still use; the device waits.
  refuse,    ///< A request was not served; no address.
  free,      ///< A block came back and is free.
  release,   ///< A block came back and waits for its last users or a guard.
  map,       ///< Pages were mapped at the address.
  unmap,     ///< Pages were given back.
  trim,      ///< Somebody asked for empty pages to be given back: so many bytes were; no address.
};
std::string_view to_string(MemoryVerb verb) noexcept;

/// One line of an allocation trace.
///
/// Units     Bytes as asked for, addresses from the first one of the pool.
struct MemoryEvent {
  std::uint64_t time_ns = 0;  ///< Of the device's host.
  std::uint64_t client = 0;   ///< The logical stream that asked; 0 if nobody did.
  MemoryVerb verb = MemoryVerb::allocate;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;

  friend bool operator==(const MemoryEvent&, const MemoryEvent&) noexcept = default;
};

/// The first line of a trace as comma-separated values: time_ns,client,verb,bytes,address
std::ostream& write_csv_header(std::ostream& out);
/// A line of it.
std::ostream& operator<<(std::ostream& out, const MemoryEvent& event);
/// Reads a trace to the end of `in`.
///
/// Errors    Failure bad_format, naming the line and the value that is wrong; io_error if `in`
///           fails. Throws std::bad_alloc.
std::vector<MemoryEvent> read_csv(std::istream& in);

}  // namespace reprise

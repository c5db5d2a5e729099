// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/memory_event.hpp>

#include <reprise/memory/error.hpp>

#include <array>
#include <charconv>
#include <istream>
#include <ostream>
#include <string>

namespace reprise {

namespace {

constexpr std::string_view header = "time_ns,client,verb,bytes,address";
constexpr std::array<std::string_view, 5> columns{"time_ns", "client", "verb", "bytes", "address"};
constexpr std::array<std::string_view, 8> verbs{"allocate", "reuse", "refuse", "free",
                                                "release",  "map",   "unmap",  "trim"};
// Longer lines are no trace.
constexpr std::size_t most_columns = 200;

[[noreturn]] void fail(std::uint64_t line, const std::string& what) {
  throw Failure(Errc::bad_format, "read_csv", "line " + std::to_string(line) + ": " + what);
}

/// A value as it may stand in a message.
std::string quoted(std::string_view value) {
  std::string text = "'";
  for (const char c : value.substr(0, 40)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (value.size() > 40 ? "…'" : "'");
}

std::uint64_t number(std::uint64_t line, std::string_view column, std::string_view value) {
  std::uint64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error == std::errc::result_out_of_range) {
    fail(line, std::string(column) + " is " + quoted(value) + ", more than 64 bits hold");
  }
  if (error != std::errc{} || end != value.data() + value.size()) {
    fail(line, std::string(column) + " is " + quoted(value) + ", not a whole number");
  }
  return result;
}

MemoryVerb verb_of(std::uint64_t line, std::string_view value) {
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    if (verbs[i] == value) return static_cast<MemoryVerb>(i);
  }
  fail(line, "verb is " + quoted(value) + ", which is none of a trace");
}

MemoryEvent event_of(std::uint64_t line, std::string_view text) {
  std::array<std::string_view, columns.size()> values;
  std::string_view rest = text;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::size_t comma = rest.find(',');
    const bool last = i + 1 == columns.size();
    if (last != (comma == rest.npos)) {
      fail(line, quoted(text) + (last ? " has more than" : " has less than") + " five values");
    }
    values[i] = rest.substr(0, comma);
    if (!last) rest.remove_prefix(comma + 1);
  }
  MemoryEvent event;
  event.time_ns = number(line, columns[0], values[0]);
  event.client = number(line, columns[1], values[1]);
  event.verb = verb_of(line, values[2]);
  event.bytes = number(line, columns[3], values[3]);
  event.address = number(line, columns[4], values[4]);
  return event;
}

}  // namespace

std::string_view to_string(MemoryVerb verb) noexcept {
  return verbs[static_cast<std::size_t>(verb)];
}

std::ostream& write_csv_header(std::ostream& out) {
  return out << header << '\n';
}

std::ostream& operator<<(std::ostream& out, const MemoryEvent& event) {
  return out << event.time_ns << ',' << event.client << ',' << to_string(event.verb) << ','
             << event.bytes << ',' << event.address << '\n';
}

std::vector<MemoryEvent> read_csv(std::istream& in) {
  std::vector<MemoryEvent> events;
  std::string text;
  std::uint64_t line = 1;
  for (; std::getline(in, text); ++line) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (text.size() > most_columns) fail(line, quoted(text) + " is too long for a line");
    if (line == 1) {
      if (text != header) {
        fail(line,
             quoted(text) + " is not the first line of a trace, '" + std::string(header) + '\'');
      }
    } else {
      events.push_back(event_of(line, text));
    }
  }
  if (in.bad()) throw Failure(Errc::io_error, "read_csv", "the trace cannot be read");
  if (line == 1) fail(1, "there is nothing in it");
  return events;
}

}  // namespace reprise

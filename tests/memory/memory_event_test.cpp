// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/memory_event.hpp>

#include <reprise/memory/error.hpp>

#include <catch2/catch.hpp>

#include <sstream>
#include <string>
#include <vector>

using namespace reprise;

namespace {

const std::string header = "time_ns,client,verb,bytes,address\n";

std::string complaint_about(const std::string& text) {
  std::istringstream in(text);
  try {
    (void)read_csv(in);
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::bad_format);
    return failure.record().message;
  }
  return {};
}

}  // namespace

TEST_CASE("a trace written as text reads back the same", "[memory]") {
  std::vector<MemoryEvent> events;
  for (int verb = 0; verb < 8; ++verb) {
    events.push_back({UINT64_MAX - static_cast<std::uint64_t>(verb), 3,
                      static_cast<MemoryVerb>(verb), 1000, UINT64_MAX});
  }
  std::stringstream text;
  write_csv_header(text);
  for (const MemoryEvent& event : events) text << event;
  CHECK(text.str().substr(0, header.size()) == header);
  CHECK(read_csv(text) == events);
  std::istringstream foreign("time_ns,client,verb,bytes,address\r\n7,1,free,256,0\r\n");
  CHECK(read_csv(foreign) == std::vector<MemoryEvent>{{7, 1, MemoryVerb::free, 256, 0}});
  std::istringstream none(header);
  CHECK(read_csv(none).empty());
}

TEST_CASE("a malformed trace is refused by line and value", "[memory]") {
  const std::string good = header + "1,1,allocate,256,0\n";
  CHECK(complaint_about(good).empty());
  CHECK(complaint_about("") == "line 1: there is nothing in it");
  CHECK(complaint_about("1,1,allocate,256,0\n") ==
        "line 1: '1,1,allocate,256,0' is not the first line of a trace, "
        "'time_ns,client,verb,bytes,address'");
  CHECK(complaint_about(good + "2,1,alocate,256,0\n") ==
        "line 3: verb is 'alocate', which is none of a trace");
  CHECK(complaint_about(good + "2,1,free,-256,0\n") ==
        "line 3: bytes is '-256', not a whole number");
  CHECK(complaint_about(good + "2,1,free,256,0x10\n") ==
        "line 3: address is '0x10', not a whole number");
  CHECK(complaint_about(good + "2,,free,256,0\n") == "line 3: client is '', not a whole number");
  CHECK(complaint_about(good + "18446744073709551616,1,free,256,0\n") ==
        "line 3: time_ns is '18446744073709551616', more than 64 bits hold");
  CHECK(complaint_about(good + "2,1,free,256\n") == "line 3: '2,1,free,256' has less than five "
                                                    "values");
  CHECK(complaint_about(good + "2,1,free,256,0,9\n") ==
        "line 3: '2,1,free,256,0,9' has more than five values");
  CHECK(complaint_about(good + "\n") == "line 3: '' has less than five values");
  CHECK(complaint_about(good + std::string(5000, '9')) ==
        "line 3: '" + std::string(40, '9') + "…' is too long for a line");
  CHECK(complaint_about(good + std::string("2,1,\x01\xff,2,0\n")) ==
        "line 3: verb is '?"
        "?', which is none of a trace");
}

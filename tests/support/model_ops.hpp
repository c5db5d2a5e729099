// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The one format of operations that random tests, the fuzzer and saved sequences share: eight
/// bytes each, of which any value is legal, since numbers are taken modulo what there is.
namespace reprise::test::model {

enum class Code : std::uint8_t {
  // Buffers. There are eight slots for handles.
  empty,
  zeros,
  create,
  carve,
  huge,
  slice,
  share,
  drop,
  // Work.
  write,
  fill,
  copy,
  launch,
  host_call,
  // Answers.
  read,
  async_read,
  check,
  failure,
  restore,
  // Captures.
  capture,
  prepare,
  start,
  stop,
  abort,
  // Graphs. There are three slots.
  replay,
  try_replay,
  async_replay,
  run,
  async_run,
  share_graph,
  drop_graph,
  // Clients. There are four slots.
  fork,
  share_client,
  flush,
  synchronize,
  // Events. There are two slots.
  record,
  wait,
  await_event,
  // The device.
  quiet,
  await_all,
  trim,
  turns,
  // Clients again, behind all that saved sequences know.
  join,
  count,
};
inline constexpr std::size_t code_count = static_cast<std::size_t>(Code::count);

struct Op {
  Code code = Code::empty;
  std::uint8_t who =
      0;  ///< Low bits: a client. 4: not the recording one. 48: the form of the verb.
  std::uint8_t a = 0;
  std::uint8_t b = 0;
  std::uint8_t c = 0;
  std::uint8_t at = 0;
  std::uint8_t n = 0;
  std::uint8_t value = 0;

  friend bool operator==(const Op&, const Op&) noexcept = default;
};

/// What the device is opened with, and what the seeded host draws from.
struct Setting {
  std::uint8_t workers = 0;
  std::uint8_t ring = 0;
  std::uint8_t in_flight = 0;
  std::uint8_t streams = 0;
  std::uint8_t credit = 0;
  std::uint8_t host = 0;  ///< Order of the seeded host; 128: a blocked caller does not help.
  std::uint8_t seed_low = 0;
  std::uint8_t seed_high = 0;
};

struct Sequence {
  Setting setting;
  std::vector<Op> ops;
};

Sequence decode(std::span<const std::uint8_t> bytes);
std::vector<std::uint8_t> encode(const Sequence& sequence);
std::string to_hex(const Sequence& sequence);
/// Whatever is no digit is skipped.
Sequence from_hex(std::string_view text);
/// One line for the setting, one for each operation.
std::string to_text(const Sequence& sequence);
std::string to_text(const Op& op);

/// A random sequence, in which a random part of the operations occurs.
Sequence swarm(std::mt19937_64& random, std::size_t length);

}  // namespace reprise::test::model

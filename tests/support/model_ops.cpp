// SPDX-License-Identifier: Apache-2.0
#include "support/model_ops.hpp"

#include <array>
#include <cctype>

namespace reprise::test::model {

namespace {

struct Word {
  const char* name;
  const char* operands;  // Letters of those that mean something: who, a, b, c, at (@), n, value.
  int weight;            // How often it is drawn when it is.
};

constexpr std::array<Word, code_count> words{{
    {"empty", "wan", 4},
    {"zeros", "wan", 4},
    {"create", "wanv", 8},
    {"carve", "wabn", 2},
    {"huge", "wa", 1},
    {"slice", "ab@n", 8},
    {"share", "ab", 3},
    {"drop", "a", 6},
    {"write", "wa@nv", 10},
    {"fill", "wa@nv", 8},
    {"copy", "wab@n", 8},
    {"launch", "wabc@nv", 40},
    {"host_call", "wabc@nv", 5},
    {"read", "wa@n", 10},
    {"async_read", "wa@n", 6},
    {"check", "wa@n", 4},
    {"failure", "wa@n", 3},
    {"restore", "wa@n", 4},
    {"capture", "wanv", 10},
    {"prepare", "wa", 3},
    {"start", "w", 4},
    {"stop", "wa", 4},
    {"abort", "w", 2},
    {"replay", "a", 8},
    {"try_replay", "a", 5},
    {"async_replay", "a", 4},
    {"run", "a", 6},
    {"async_run", "a", 4},
    {"share_graph", "ab", 1},
    {"drop_graph", "a", 3},
    {"fork", "wa", 2},
    {"share_client", "wa", 2},
    {"flush", "w", 2},
    {"synchronize", "w", 3},
    {"record", "wa", 3},
    {"wait", "wa", 3},
    {"await_event", "a", 3},
    {"quiet", "", 3},
    {"await_all", "", 2},
    {"trim", "", 2},
    {"turns", "n", 12},
    {"join", "wa", 3},
}};

const Word& word_of(Code code) {
  return words[static_cast<std::size_t>(code)];
}

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  return -1;
}

}  // namespace

Sequence decode(std::span<const std::uint8_t> bytes) {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? bytes[i] : std::uint8_t{0}; };
  Sequence sequence;
  sequence.setting = {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
  for (std::size_t i = 8; i < bytes.size(); i += 8) {
    sequence.ops.push_back({static_cast<Code>(at(i) % code_count), at(i + 1), at(i + 2), at(i + 3),
                            at(i + 4), at(i + 5), at(i + 6), at(i + 7)});
  }
  return sequence;
}

std::vector<std::uint8_t> encode(const Sequence& sequence) {
  const Setting& s = sequence.setting;
  std::vector<std::uint8_t> bytes{s.workers, s.ring, s.in_flight, s.streams,
                                  s.credit,  s.host, s.seed_low,  s.seed_high};
  for (const Op& op : sequence.ops) {
    bytes.insert(bytes.end(), {static_cast<std::uint8_t>(op.code), op.who, op.a, op.b, op.c, op.at,
                               op.n, op.value});
  }
  return bytes;
}

std::string to_hex(const Sequence& sequence) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : encode(sequence)) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

Sequence from_hex(std::string_view text) {
  std::vector<std::uint8_t> bytes;
  int high = -1;
  for (const char letter : text) {
    const int digit = digit_of(letter);
    if (digit < 0) continue;
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<std::uint8_t>(high * 16 + digit));
      high = -1;
    }
  }
  return decode(bytes);
}

std::string to_text(const Op& op) {
  const Word& word = word_of(op.code);
  std::string text = word.name;
  const auto add = [&](const char* name, int value) {
    text += std::string(" ") + name + std::to_string(value);
  };
  for (const char* letter = word.operands; *letter != 0; ++letter) {
    switch (*letter) {
      case 'w': add("client ", op.who); break;
      case 'a': add("a ", op.a); break;
      case 'b': add("b ", op.b); break;
      case 'c': add("c ", op.c); break;
      case '@': add("at ", op.at); break;
      case 'n': add("n ", op.n); break;
      default: add("value ", op.value); break;
    }
  }
  return text;
}

std::string to_text(const Sequence& sequence) {
  const Setting& s = sequence.setting;
  std::string text = "workers " + std::to_string(s.workers) + " ring " + std::to_string(s.ring) +
                     " in_flight " + std::to_string(s.in_flight) + " streams " +
                     std::to_string(s.streams) + " credit " + std::to_string(s.credit) + " host " +
                     std::to_string(s.host) + " seed " +
                     std::to_string(s.seed_low | s.seed_high << 8) + "\n";
  for (const Op& op : sequence.ops) text += to_text(op) + "\n";
  return text;
}

Sequence swarm(std::mt19937_64& random, std::size_t length) {
  const auto byte = [&] { return static_cast<std::uint8_t>(random()); };
  Sequence sequence;
  sequence.setting = {byte(), byte(), byte(), byte(), byte(), byte(), byte(), byte()};
  // Memory and launches always occur, or little would happen.
  std::vector<Code> drawn;
  for (std::size_t i = 0; i < code_count; ++i) {
    const auto code = static_cast<Code>(i);
    const bool always = code == Code::create || code == Code::launch || code == Code::read;
    if (!always && random() % 8 >= 5) continue;
    drawn.insert(drawn.end(), static_cast<std::size_t>(words[i].weight), code);
  }
  // Few slots make operations meet.
  const auto slots = static_cast<std::uint8_t>(2 + random() % 7);
  const auto slot = [&] { return static_cast<std::uint8_t>(random() % slots); };
  for (std::size_t i = 0; i < length; ++i) {
    const Code code = i < 3 ? Code::create : drawn[random() % drawn.size()];
    const auto n = static_cast<std::uint8_t>(random() % 3 == 0 ? 0 : random());
    sequence.ops.push_back({code, byte(), slot(), slot(), slot(), byte(), n, byte()});
  }
  return sequence;
}

}  // namespace reprise::test::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <decode_loop/model.hpp>
#include <decode_loop/tokenizer.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::test {

/// The seven fields of a checkpoint's header, as they lie in the file.
using ModelHeader = std::array<std::int32_t, 7>;

inline constexpr ModelHeader tiny_header{8, 12, 2, 4, 2, 270, 32};
inline constexpr std::array<const char*, 7> header_names{
    "dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"};

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}

/// How many floats follow the header, by the format's own rules.
inline std::size_t float_count(const ModelHeader& header) {
  const auto [dim, hidden, layers, heads, kv_heads, vocab, seq_len] = header;
  const std::size_t head_size = static_cast<std::size_t>(dim / heads);
  const auto kv_dim = static_cast<std::int64_t>(head_size) * kv_heads;
  const std::int64_t layer = 2 * dim + 2 * dim * dim + 2 * kv_dim * dim + 3 * dim * hidden;
  const std::int64_t embedding = std::int64_t{std::abs(vocab)} * dim;
  return static_cast<std::size_t>(embedding + layers * layer + dim +
                                  seq_len * static_cast<std::int64_t>(head_size) +
                                  (vocab < 0 ? embedding : 0));
}

/// A checkpoint of random weights.
inline std::vector<std::byte> model_bytes(const ModelHeader& header = tiny_header,
                                          std::uint32_t seed = 1) {
  std::vector<std::byte> bytes;
  for (const std::int32_t field : header) append(bytes, field);
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < float_count(header); ++i) {
    append(bytes, static_cast<float>(random()) / 2147483648.0F - 1.0F);
  }
  return bytes;
}

/// A tokenizer with the special and byte tokens, and these texts after them.
inline std::vector<std::byte> tokenizer_bytes(const std::vector<std::string>& texts) {
  std::vector<std::string> all{"<unk>", "\n<s>\n", "\n</s>\n"};
  const char* const hex = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(std::string("<0x") + hex[byte / 16] + hex[byte % 16] + ">");
  }
  all.insert(all.end(), texts.begin(), texts.end());
  std::vector<std::byte> bytes;
  append(bytes, std::int32_t{16});
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Later texts score worse, as in real vocabularies.
    append(bytes, -static_cast<float>(i));
    append(bytes, static_cast<std::int32_t>(all[i].size()));
    for (const char c : all[i]) bytes.push_back(static_cast<std::byte>(c));
  }
  return bytes;
}

inline const std::vector<std::string> tiny_texts{" ",   "a",  "b",   "c",        "ab", "bc",
                                                 "abc", " a", " ab", "\xc3\xa9", "cc"};
inline constexpr std::uint32_t tiny_vocab = 270;  ///< 3 + 256 + the texts.

/// The folder with the stories260K model, if tests were given one.
inline std::optional<std::filesystem::path> test_data() {
  const char* folder = std::getenv("REPRISE_TEST_DATA");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return folder;
}

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace decode_loop {

using TokenId = std::int32_t;

inline constexpr TokenId begin_of_text = 1;
inline constexpr TokenId end_of_text = 2;

/// True for the tokens after which nothing belongs to the text.
constexpr bool ends_text(TokenId token) noexcept {
  return token == begin_of_text || token == end_of_text;
}

/// Byte-pair tokens of a Llama model: text to tokens and back.
///
/// Lifetime  Movable only: the index views the entries.
/// Threads   Immutable once made.
class Tokenizer {
public:
  struct Entry {
    float score = 0;
    std::string text;
  };

  /// The entry's index is its token. parse_tokenizer() makes checked entries.
  explicit Tokenizer(std::vector<Entry> entries);
  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;

  std::size_t size() const noexcept { return entries_.size(); }

  /// Tokens of `text`, begin_of_text first. The pair of neighbours whose merged token scores best
  /// is merged until none is left; of equal scores the leftmost wins.
  ///
  /// Errors  Failure with Errc::bad_format when the vocabulary has no token for one of the bytes.
  std::vector<TokenId> encode(std::string_view text) const;

  /// The bytes that `token` stands for after `previous`: the space that begins the first word is
  /// not part of the text. `token` must be below size().
  std::string decode(TokenId previous, TokenId token) const;

  /// The text of `tokens`, which begin with begin_of_text.
  std::string decode(std::span<const TokenId> tokens) const;

private:
  TokenId find(std::string_view text) const;
  void append_character(std::string_view character, std::vector<TokenId>& tokens) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, TokenId> by_text_;  // Views into entries_.
};

/// Reads a tokenizer in the llama2.c format: the longest token's length, then `vocab_size` records
/// of score, length and bytes, little endian.
///
/// Errors  Failure, naming file, field and value. Errc::io_error: the file cannot be read.
///         Errc::bad_format: it ends early or late, a length is out of its limits, a score is not a
///         number, or the vocabulary has no room for the special tokens.
Tokenizer load_tokenizer(const std::filesystem::path& path, std::uint32_t vocab_size);

/// The same for bytes already in memory; `name` stands for the file in messages.
Tokenizer parse_tokenizer(std::span<const std::byte> bytes, std::uint32_t vocab_size,
                          std::string_view name);

}  // namespace decode_loop

// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/tokenizer.hpp>

#include <support/read_file.hpp>

#include <reprise/memory/error.hpp>

#include <cmath>
#include <cstring>
#include <queue>
#include <utility>

namespace decode_loop {

namespace {

constexpr std::uint64_t max_file_bytes = std::uint64_t{256} << 20;
constexpr std::int32_t max_token_bytes = 1 << 16;
constexpr TokenId no_token = -1;
constexpr TokenId first_byte_token = 3;

[[noreturn]] void fail(std::string_view name, const std::string& what) {
  throw reprise::Failure(reprise::Errc::bad_format, "load_tokenizer",
                         std::string(name) + ": " + what);
}

// Takes values from the front of a file and says which field was cut off.
class Reader {
public:
  Reader(std::span<const std::byte> bytes, std::string_view name) : rest_(bytes), name_(name) {}

  template <class T>
  T take(const std::string& field) {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T), field).data(), sizeof(T));
    return value;
  }

  std::span<const std::byte> take_bytes(std::size_t count, const std::string& field) {
    if (rest_.size() < count) {
      fail(name_, field + " is cut off: it takes " + std::to_string(count) + " bytes and " +
                      std::to_string(rest_.size()) + " are left");
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::size_t left() const { return rest_.size(); }

private:
  std::span<const std::byte> rest_;
  std::string_view name_;
};

// The first UTF-8 character of `text`; a stray or broken byte counts as one.
std::string_view first_character(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && length < 4 &&
         (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) {
    ++length;
  }
  return text.substr(0, length);
}

// The value of a "<0xHH>" token, or -1.
int byte_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  const int high = digit(text[3]);
  const int low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Merges neighbours, best score first, until no pair makes a token. A doubly linked list of the
// tokens and a heap of candidate pairs: a candidate is stale when one of its tokens has changed.
class Merger {
public:
  Merger(std::span<const Tokenizer::Entry> entries,
         const std::unordered_map<std::string_view, TokenId>& by_text,
         std::span<const TokenId> tokens)
      : entries_(entries), by_text_(by_text) {
    nodes_.reserve(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      nodes_.push_back({tokens[i], i == 0 ? none : i - 1, i + 1 == tokens.size() ? none : i + 1});
    }
  }

  std::vector<TokenId> run() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) propose(i);
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      merge(best);
    }
    std::vector<TokenId> tokens;
    for (std::size_t i = nodes_.empty() ? none : 0; i != none; i = nodes_[i].next) {
      tokens.push_back(nodes_[i].token);
    }
    return tokens;
  }

private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  struct Node {
    TokenId token;
    std::size_t previous;
    std::size_t next;
  };
  struct Candidate {
    float score;
    std::size_t left;
    TokenId left_token;
    TokenId right_token;
    TokenId merged;

    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  void propose(std::size_t left) {
    if (left == none || nodes_[left].next == none) return;
    const TokenId left_token = nodes_[left].token;
    const TokenId right_token = nodes_[nodes_[left].next].token;
    const auto found = by_text_.find(entries_[left_token].text + entries_[right_token].text);
    if (found == by_text_.end()) return;
    candidates_.push({entries_[found->second].score, left, left_token, right_token, found->second});
  }

  void merge(const Candidate& candidate) {
    Node& left = nodes_[candidate.left];
    if (left.token != candidate.left_token || left.next == none ||
        nodes_[left.next].token != candidate.right_token) {
      return;
    }
    Node& right = nodes_[left.next];
    left.token = candidate.merged;
    left.next = right.next;
    if (right.next != none) nodes_[right.next].previous = candidate.left;
    right.token = no_token;
    propose(left.previous);
    propose(candidate.left);
  }

  std::span<const Tokenizer::Entry> entries_;
  const std::unordered_map<std::string_view, TokenId>& by_text_;
  std::vector<Node> nodes_;
  std::priority_queue<Candidate> candidates_;
};

}  // namespace

Tokenizer::Tokenizer(std::vector<Entry> entries) : entries_(std::move(entries)) {
  by_text_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    by_text_.emplace(entries_[i].text, static_cast<TokenId>(i));
  }
}

TokenId Tokenizer::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? no_token : found->second;
}

void Tokenizer::append_character(std::string_view character, std::vector<TokenId>& tokens) const {
  const TokenId whole = find(character);
  if (whole != no_token) {
    tokens.push_back(whole);
    return;
  }
  for (const char byte : character) {
    const TokenId token = first_byte_token + static_cast<unsigned char>(byte);
    if (static_cast<std::size_t>(token) >= entries_.size()) {
      throw reprise::Failure(reprise::Errc::bad_format, "encode",
                             "the vocabulary of " + std::to_string(entries_.size()) +
                                 " tokens has none for byte " +
                                 std::to_string(static_cast<unsigned char>(byte)));
    }
    tokens.push_back(token);
  }
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> pieces;
  if (!text.empty()) append_character(" ", pieces);
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    append_character(character, pieces);
    text.remove_prefix(character.size());
  }
  const std::vector<TokenId> merged = Merger(entries_, by_text_, pieces).run();
  std::vector<TokenId> tokens{begin_of_text};
  tokens.insert(tokens.end(), merged.begin(), merged.end());
  return tokens;
}

std::string Tokenizer::decode(TokenId previous, TokenId token) const {
  std::string_view text = entries_.at(static_cast<std::size_t>(token)).text;
  if (const int byte = byte_value(text); byte >= 0) return std::string(1, static_cast<char>(byte));
  if (previous == begin_of_text && text.starts_with(' ')) text.remove_prefix(1);
  return std::string(text);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens) const {
  std::string text;
  for (std::size_t i = 1; i < tokens.size(); ++i) text += decode(tokens[i - 1], tokens[i]);
  return text;
}

Tokenizer parse_tokenizer(std::span<const std::byte> bytes, std::uint32_t vocab_size,
                          std::string_view name) {
  Reader reader(bytes, name);
  const auto longest = reader.take<std::int32_t>("max_token_length");
  if (longest < 1 || longest > max_token_bytes) {
    fail(name, "max_token_length is " + std::to_string(longest) + ", expected 1 to " +
                   std::to_string(max_token_bytes));
  }
  if (vocab_size <= static_cast<std::uint32_t>(end_of_text)) {
    fail(name, "vocab_size is " + std::to_string(vocab_size) +
                   ", too small for the tokens that begin and end a text");
  }

  std::vector<Tokenizer::Entry> entries;
  for (std::uint32_t i = 0; i < vocab_size; ++i) {
    const std::string token = "token " + std::to_string(i);
    const auto score = reader.take<float>("score of " + token);
    if (!std::isfinite(score)) {
      fail(name, "score of " + token + " is " + std::to_string(score) + ", not finite");
    }
    const auto length = reader.take<std::int32_t>("length of " + token);
    if (length < 1 || length > longest) {
      fail(name, "length of " + token + " is " + std::to_string(length) + ", expected 1 to " +
                     std::to_string(longest));
    }
    const auto text = reader.take_bytes(static_cast<std::size_t>(length), "text of " + token);
    entries.push_back(
        {score, std::string(reinterpret_cast<const char*>(text.data()), text.size())});
  }
  if (reader.left() != 0) {
    fail(name, std::to_string(reader.left()) + " bytes follow the last of " +
                   std::to_string(vocab_size) + " tokens");
  }
  return Tokenizer(std::move(entries));
}

Tokenizer load_tokenizer(const std::filesystem::path& path, std::uint32_t vocab_size) {
  return parse_tokenizer(examples::read_file(path, max_file_bytes), vocab_size, path.string());
}

}  // namespace decode_loop

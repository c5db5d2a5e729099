// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/tokenizer.hpp>

#include <reprise/memory/error.hpp>

#include <examples/tiny_model.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <fstream>
#include <iostream>
#include <limits>
#include <span>

using namespace decode_loop;
using namespace reprise::test;
using reprise::Errc;
using reprise::Failure;

namespace {

constexpr TokenId first_text = 259;
constexpr TokenId space = first_text;
constexpr TokenId a = first_text + 1;
constexpr TokenId b = first_text + 2;
constexpr TokenId c = first_text + 3;
constexpr TokenId ab = first_text + 4;
constexpr TokenId abc = first_text + 6;
constexpr TokenId space_a = first_text + 7;
constexpr TokenId space_ab = first_text + 8;
constexpr TokenId e_acute = first_text + 9;
constexpr TokenId cc = first_text + 10;
constexpr std::size_t first_record = 4;

Tokenizer tiny_tokenizer() {
  return parse_tokenizer(tokenizer_bytes(tiny_texts), tiny_vocab, "tiny.tok");
}

std::string complaint(std::span<const std::byte> bytes, std::uint32_t vocab = tiny_vocab) {
  try {
    parse_tokenizer(bytes, vocab, "tiny.tok");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::bad_format);
    return failure.record().message;
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The rule as it is told: again and again, merge the best pair of all.
std::vector<TokenId> merge_slowly(std::vector<TokenId> tokens,
                                  const std::vector<std::string>& all) {
  while (true) {
    std::size_t best = tokens.size();
    TokenId best_token = 0;
    for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
      const auto text =
          all[static_cast<std::size_t>(tokens[i])] + all[static_cast<std::size_t>(tokens[i + 1])];
      const auto found = std::find(all.begin() + first_text, all.end(), text);
      if (found == all.end()) continue;
      const auto token = static_cast<TokenId>(found - all.begin());
      // Scores fall with the token's number.
      if (best == tokens.size() || token < best_token) {
        best = i;
        best_token = token;
      }
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = best_token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

TEST_CASE("text becomes tokens by merging the best pair first", "[examples]") {
  const Tokenizer tokenizer = tiny_tokenizer();
  CHECK(tokenizer.size() == tiny_vocab);
  CHECK(tokenizer.encode("") == std::vector<TokenId>{begin_of_text});
  CHECK(tokenizer.encode("a") == std::vector<TokenId>{begin_of_text, space_a});
  CHECK(tokenizer.encode("ab") == std::vector<TokenId>{begin_of_text, space_ab});
  // Of a pair with the space, ab and bc, ab scores best; of what is left then, abc does.
  CHECK(tokenizer.encode("abc") == std::vector<TokenId>{begin_of_text, space, abc});
  CHECK(tokenizer.encode("b") == std::vector<TokenId>{begin_of_text, space, b});
  // Of equal pairs the leftmost is merged.
  CHECK(tokenizer.encode("ccc") == std::vector<TokenId>{begin_of_text, space, cc, c});
  CHECK(tokenizer.encode("bab") == std::vector<TokenId>{begin_of_text, space, b, ab});
}

TEST_CASE("characters without a token become their bytes", "[examples]") {
  const Tokenizer tokenizer = tiny_tokenizer();
  CHECK(tokenizer.encode("\xc3\xa9") == std::vector<TokenId>{begin_of_text, space, e_acute});
  CHECK(tokenizer.encode("x") == std::vector<TokenId>{begin_of_text, space, 'x' + 3});
  CHECK(tokenizer.encode("\xe2\x82\xac") ==
        std::vector<TokenId>{begin_of_text, space, 0xe2 + 3, 0x82 + 3, 0xac + 3});
  CHECK(tokenizer.encode("\xff\x80") ==
        std::vector<TokenId>{begin_of_text, space, 0xff + 3, 0x80 + 3});
}

TEST_CASE("any text comes back from its tokens", "[examples]") {
  CAPTURE(seed());
  std::mt19937_64 random(seed());
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::string letters = "abcabcabc x\xc3\xa9\xe2";
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (std::size_t i = random() % 40; i > 0; --i) text += letters[random() % letters.size()];
    CAPTURE(text);
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  }
}

TEST_CASE("merging gives what looking for the best of all pairs each time gives", "[examples]") {
  CAPTURE(seed());
  std::mt19937_64 random(seed());
  const Tokenizer tokenizer = tiny_tokenizer();
  std::vector<std::string> all(static_cast<std::size_t>(first_text));
  all.insert(all.end(), tiny_texts.begin(), tiny_texts.end());
  for (int round = 0; round < 500; ++round) {
    std::string text;
    std::vector<TokenId> tokens{begin_of_text, space};
    for (std::size_t i = 1 + random() % 30; i > 0; --i) {
      const auto letter = static_cast<TokenId>(random() % 4);
      text += all[static_cast<std::size_t>(space + letter)];
      tokens.push_back(space + letter);
    }
    CAPTURE(text);
    CHECK(tokenizer.encode(text) == merge_slowly(tokens, all));
  }
}

TEST_CASE("decoding drops the space of the first word only", "[examples]") {
  const Tokenizer tokenizer = tiny_tokenizer();
  CHECK(tokenizer.decode(begin_of_text, space_ab) == "ab");
  CHECK(tokenizer.decode(a, space_ab) == " ab");
  CHECK(tokenizer.decode(a, 'x' + 3) == "x");
  CHECK(tokenizer.decode(a, 0xff + 3) == "\xff");
}

TEST_CASE("a tokenizer that is cut anywhere names the field that is missing", "[examples]") {
  const auto bytes = tokenizer_bytes(tiny_texts);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string text = complaint(std::span(bytes).first(size));
    CAPTURE(size, text);
    CHECK(contains(text, "tiny.tok: "));
    CHECK(contains(text, "is cut off"));
  }
  CHECK(contains(complaint({}), "max_token_length"));
  CHECK(contains(complaint(std::span(bytes).first(first_record + 2)), "score of token 0"));
  CHECK(contains(complaint(std::span(bytes).first(first_record + 6)), "length of token 0"));
  CHECK(contains(complaint(std::span(bytes).first(first_record + 9)), "text of token 0"));
  auto longer = bytes;
  longer.push_back({});
  CHECK(contains(complaint(longer), "1 bytes follow the last of 270 tokens"));
}

TEST_CASE("fields of a tokenizer out of their limits are refused by name and value", "[examples]") {
  const std::int32_t least = std::numeric_limits<std::int32_t>::min();
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t value : {0, -1, least, most}) {
    auto bytes = tokenizer_bytes(tiny_texts);
    put(bytes, 0, value);
    CHECK(contains(complaint(bytes), "max_token_length is " + std::to_string(value)));
    bytes = tokenizer_bytes(tiny_texts);
    put(bytes, first_record + 4, value);
    CHECK(contains(complaint(bytes), "length of token 0 is " + std::to_string(value)));
  }
  auto bytes = tokenizer_bytes(tiny_texts);
  put(bytes, first_record + 4, std::int32_t{17});
  CHECK(contains(complaint(bytes), "length of token 0 is 17, expected 1 to 16"));
  bytes = tokenizer_bytes(tiny_texts);
  put(bytes, first_record, std::numeric_limits<float>::quiet_NaN());
  CHECK(contains(complaint(bytes), "score of token 0"));
}

TEST_CASE("a tokenizer must have as many tokens as the model", "[examples]") {
  const auto bytes = tokenizer_bytes(tiny_texts);
  CHECK(contains(complaint(bytes, tiny_vocab + 1), "score of token 270 is cut off"));
  CHECK(contains(complaint(bytes, tiny_vocab - 1), "follow the last of 269 tokens"));
  CHECK(contains(complaint(bytes, 2), "vocab_size is 2"));
}

TEST_CASE("a vocabulary without byte tokens refuses text that needs one", "[examples]") {
  std::vector<Tokenizer::Entry> entries{{0, "<unk>"}, {0, "<s>"}, {0, "</s>"}, {0, " "}, {0, "a"}};
  const Tokenizer tokenizer(std::move(entries));
  CHECK(tokenizer.encode("a").size() == 3);
  try {
    tokenizer.encode("b");
    FAIL("b has no token");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::bad_format);
    CHECK(contains(failure.record().message, "byte 98"));
  }
}

TEST_CASE("a tokenizer with random damage is read or refused and then serves any text",
          "[examples]") {
  CAPTURE(seed());
  std::mt19937_64 random(seed());
  const auto bytes = tokenizer_bytes(tiny_texts);
  std::size_t refused = 0;
  for (int round = 0; round < 1000; ++round) {
    auto damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    const std::string text = complaint(damaged);
    refused += text.empty() ? 0 : 1;
    if (!text.empty()) continue;
    const Tokenizer tokenizer = parse_tokenizer(damaged, tiny_vocab, "tiny.tok");
    const auto tokens = tokenizer.encode("abc \xc3\xa9 <0x41> \n</s>\n");
    CHECK_FALSE(tokenizer.decode(tokens).empty());
  }
  CHECK(refused > 100);
}

TEST_CASE("the real tokenizer knows the words of its stories", "[examples][model]") {
  const auto data = test_data();
  if (!data) {
    std::cout << "skipped: REPRISE_TEST_DATA is unset\n";
    SUCCEED();
    return;
  }
  const Tokenizer tokenizer = load_tokenizer(*data / "tok512.bin", 512);
  const auto tokens = tokenizer.encode("Once upon a time");
  CHECK(tokens.size() == 5);
  CHECK(tokenizer.decode(tokens) == "Once upon a time");
}

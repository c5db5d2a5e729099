// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/decoder.hpp>

#include <reprise/memory/error.hpp>

#include <decode_loop/kernels.hpp>

#include <examples/tiny_model.hpp>

#include <catch2/catch.hpp>

#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <stdexcept>

using namespace decode_loop;
using namespace reprise::test;
using reprise::Errc;
using reprise::Failure;

namespace {

template <class View, class T>
View view(std::vector<T>& values) {
  return View{values.data(), values.size()};
}

Block block(std::uint32_t index, std::uint32_t count, std::uint32_t threads) {
  return {{index, 0, 0}, {count, 1, 1}, {threads, 1, 1}};
}

std::vector<float> ramp(std::size_t n, float first, float by) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = first + by * static_cast<float>(i);
  return values;
}

std::string refusal(const Model& model, const Request& request) {
  try {
    check_request(model, request);
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::invalid_argument);
    return failure.record().message;
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a matrix product is the same however its rows are cut into blocks", "[examples]") {
  for (const std::size_t n : {1U, 7U, 8U, 19U}) {
    auto x = ramp(n, 0.5F, 0.25F);
    auto w = ramp(5 * n, -1.0F, 0.125F);
    std::vector<float> whole(5);
    std::vector<float> parts(5);
    matmul_body(block(0, 1, 5), view<In<float>>(x), view<In<float>>(w), view<Out<float>>(whole));
    for (std::uint32_t i = 0; i < 3; ++i) {
      matmul_body(block(i, 3, 2), view<In<float>>(x), view<In<float>>(w), view<Out<float>>(parts));
    }
    CHECK(whole == parts);
    for (std::size_t row = 0; row < 5; ++row) {
      const double exact = std::inner_product(x.begin(), x.end(), w.begin() + row * n, 0.0);
      CHECK(whole[row] == Approx(exact));
    }
  }
}

TEST_CASE("attention looks at the rows so far and at no later one", "[examples]") {
  // Two query heads share one key head of size 2; three positions, of which two are filled.
  const AttentionShape shape{2, 1, 2, 3};
  std::vector<float> q{1, 0, 0, 1};
  std::vector<float> keys{1, 2, 3, 4, 1e30F, 1e30F};
  std::vector<float> values{10, 20, 30, 40, 1e30F, 1e30F};
  std::vector<std::int32_t> position{1};
  std::vector<float> scores(6);
  std::vector<float> out(4);
  attention_body(block(0, 1, 2), view<In<float>>(q), view<In<float>>(keys), view<In<float>>(values),
                 view<In<std::int32_t>>(position), view<Update<float>>(scores),
                 view<Out<float>>(out), shape);
  // Both heads see scores that differ by 2 / sqrt(2).
  const double later = 1 / (1 + std::exp(-2 / std::sqrt(2.0)));
  CHECK(out[0] == Approx(10 + 20 * later));
  CHECK(out[1] == Approx(20 + 20 * later));
  CHECK(out[2] == Approx(out[0]));
  CHECK(out[3] == Approx(out[1]));
}

TEST_CASE("a position or token past the end fails the kernel instead of writing", "[examples]") {
  std::vector<float> k{1, 2};
  std::vector<float> cache(4);
  std::vector<float> other(4);
  for (const std::int32_t bad : {2, -1}) {
    std::vector<std::int32_t> position{bad};
    CHECK_THROWS_AS(store_body(block(0, 1, 2), view<In<float>>(k), view<In<float>>(k),
                               view<In<std::int32_t>>(position), view<Update<float>>(cache),
                               view<Update<float>>(other)),
                    std::out_of_range);
    CHECK_THROWS_AS(embed_body(block(0, 1, 2), view<In<float>>(cache),
                               view<In<std::int32_t>>(position), view<Out<float>>(k)),
                    std::out_of_range);
  }
  CHECK(cache == std::vector<float>(4));
}

TEST_CASE("picking follows the prompt first and then the largest score", "[examples]") {
  std::vector<float> logits{0, 3, 1, 3};
  std::vector<std::int32_t> prompt{1, 9};
  std::vector<std::int32_t> position{0};
  std::vector<std::int32_t> token{1};
  const auto step = [&] {
    pick_body(block(0, 1, 1), view<In<float>>(logits), view<In<std::int32_t>>(prompt),
              view<InOut<std::int32_t>>(position), view<Out<std::int32_t>>(token));
  };
  step();
  CHECK(position[0] == 1);
  CHECK(token[0] == 9);
  step();
  CHECK(position[0] == 2);
  CHECK(token[0] == 1);
}

TEST_CASE("a request that the model cannot serve is refused by value", "[examples]") {
  const Model model = parse_model(model_bytes(), "tiny.bin");
  const std::vector<TokenId> prompt(5, begin_of_text);
  CHECK(refusal(model, {prompt, 32}).empty());
  CHECK(refusal(model, {prompt, 5}).empty());
  CHECK(contains(refusal(model, {prompt, 33}), "steps is 33"));
  CHECK(contains(refusal(model, {prompt, 0}), "steps is 0"));
  CHECK(contains(refusal(model, {prompt, 4}), "prompt has 5 tokens"));
  CHECK(contains(refusal(model, {{}, 4}), "prompt has 0 tokens"));

  Model wide = model;
  wide.config.layers = 1024;
  wide.config.seq_len = 1 << 20;
  CHECK(contains(refusal(wide, {prompt, 1 << 20}), "cache and scores take"));
  wide.config.layers = 1;
  wide.config.dim = 65536;
  wide.config.heads = 32768;
  wide.config.kv_heads = 1;
  CHECK(contains(refusal(wide, {prompt, 1 << 20}), "cache and scores take"));
}

TEST_CASE("decoding begins with the prompt and ends where the model ends", "[examples]") {
  const Model model = parse_model(model_bytes(), "tiny.bin");
  const std::vector<TokenId> prompt{begin_of_text, 260, 261};
  const Decoded decoded = decode_plain(model, {prompt, 20});
  REQUIRE(decoded.tokens.size() >= prompt.size());
  CHECK(decoded.tokens.size() <= 21);
  CHECK(std::equal(prompt.begin(), prompt.end(), decoded.tokens.begin()));
  CHECK(decode_plain(model, {prompt, 20}).tokens == decoded.tokens);

  Decoded ending;
  ending.tokens = {begin_of_text};
  CHECK_FALSE(ending.append({{prompt.data(), 1}, 20}, end_of_text));
  CHECK(ending.tokens.size() == 1);
}

TEST_CASE("the plain loop tells the expected story", "[examples][model]") {
  const auto data = test_data();
  if (!data) {
    std::cout << "skipped: REPRISE_TEST_DATA is unset\n";
    SUCCEED();
    return;
  }
  const Model model = load_model(*data / "stories260K.bin");
  const Tokenizer tokenizer = load_tokenizer(*data / "tok512.bin", model.config.vocab_size);
  const auto prompt = tokenizer.encode("Once upon a time");
  const Decoded decoded = decode_plain(model, {prompt, 256});
  std::ifstream file(*data / "expected-t0-256.txt", std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  CHECK(tokenizer.decode(decoded.tokens) + "\n" == expected);
}

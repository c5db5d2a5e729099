// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/device_decoder.hpp>

#include <reprise/memory/error.hpp>
#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <decode_loop/decoder.hpp>

#include <examples/tiny_model.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <fstream>
#include <iostream>
#include <iterator>

using namespace decode_loop;
using namespace reprise::test;

namespace {

constexpr Mode modes[] = {Mode::eager, Mode::replay};
constexpr Pick picks[] = {Pick::host, Pick::device};

}  // namespace

TEST_CASE("every way of decoding on a device gives the tokens of the plain loop",
          "[examples][I25]") {
  reprise::Runtime runtime;
  reprise::DeviceOptions options;
  options.workers = GENERATE(0U, 1U, 2U);
  const reprise::Device device = runtime.open("cpu:0", options);
  for (const std::uint32_t weights : {1U, 2U, 3U}) {
    const Model model = parse_model(model_bytes(tiny_header, weights), "tiny.bin");
    const std::vector<TokenId> prompt{begin_of_text, 260, 261, 262};
    for (const std::uint32_t steps : {4U, 32U}) {
      const Request request{prompt, steps};
      const std::vector<TokenId> expected = decode_plain(model, request).tokens;
      for (const Mode mode : modes) {
        for (const Pick pick : picks) {
          CAPTURE(weights, steps, mode, pick);
          CHECK(decode(device.client(), model, request, mode, pick).tokens == expected);
        }
      }
    }
  }
}

TEST_CASE("a request that the model cannot serve is refused before the device is asked",
          "[examples]") {
  reprise::Runtime runtime;
  const reprise::Client client = runtime.open("cpu:0").client();
  const Model model = parse_model(model_bytes(), "tiny.bin");
  const std::vector<TokenId> prompt{begin_of_text};
  try {
    decode(client, model, {prompt, 33}, Mode::replay, Pick::host);
    FAIL("the model has 32 positions");
  } catch (const reprise::Failure& failure) {
    CHECK(failure.errc() == reprise::Errc::invalid_argument);
  }
}

TEST_CASE("every way of decoding on a device tells the expected story", "[examples][model]") {
  const auto data = test_data();
  if (!data) {
    std::cout << "skipped: REPRISE_TEST_DATA is unset\n";
    SUCCEED();
    return;
  }
  const Model model = load_model(*data / "stories260K.bin");
  const Tokenizer tokenizer = load_tokenizer(*data / "tok512.bin", model.config.vocab_size);
  const auto prompt = tokenizer.encode("Once upon a time");
  std::ifstream file(*data / "expected-t0-256.txt", std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  reprise::Runtime runtime;
  reprise::DeviceOptions options;
  options.workers = GENERATE(0U, 1U, 2U);
  const reprise::Device device = runtime.open("cpu:0", options);
  for (const Mode mode : modes) {
    for (const Pick pick : picks) {
      CAPTURE(mode, pick);
      const Decoded decoded = decode(device.client(), model, {prompt, 256}, mode, pick);
      CHECK(tokenizer.decode(decoded.tokens) + "\n" == expected);
    }
  }
}

TEST_CASE("the story is the same on a hundred schedules of a simulated machine [D6] [I25]",
          "[examples][model][sim]") {
  const auto data = test_data();
  if (!data) {
    std::cout << "skipped: REPRISE_TEST_DATA is unset\n";
    SUCCEED();
    return;
  }
  const Model model = load_model(*data / "stories260K.bin");
  const Tokenizer tokenizer = load_tokenizer(*data / "tok512.bin", model.config.vocab_size);
  const auto prompt = tokenizer.encode("Once upon a time");
  const Request request{prompt, 24};
  const std::vector<TokenId> expected = decode_plain(model, request).tokens;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t seed = reprise::test::seed() + i;
    CAPTURE(seed);
    reprise::SeededHost host(seed);
    reprise::RuntimeOptions options;
    options.host = &host;
    reprise::Runtime runtime(options);
    reprise::DeviceOptions device_options;
    device_options.workers = static_cast<std::uint32_t>(i % 3);
    device_options.ring_capacity = i % 2 == 0 ? 4 : 1024;
    const reprise::Device device = runtime.open("cpu:0", device_options);
    const Mode mode = i % 5 == 0 ? Mode::eager : Mode::replay;
    REQUIRE(decode(device.client(), model, request, mode, picks[i / 3 % 2]).tokens == expected);
  }
}

// SPDX-License-Identifier: Apache-2.0
// P12: the decoder of examples/decode_loop on a device, against the same kernels in a plain loop.
#include "harness.hpp"
#include "replay_peers.hpp"

#include <decode_loop/device_decoder.hpp>

#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace reprise::bench {
namespace {

namespace example = decode_loop;
using example::Mode;
using example::Pick;

constexpr std::uint32_t steps = 256;
constexpr const char* data_variable = "REPRISE_TEST_DATA";

struct Subject {
  explicit Subject(const std::string& folder)
      : model(example::load_model(folder + "/stories260K.bin")),
        prompt(example::load_tokenizer(folder + "/tok512.bin", model.config.vocab_size)
                   .encode("Once upon a time")),
        tokens(example::decode_plain(model, request()).tokens) {}

  example::Request request() const { return {prompt, steps}; }

  example::Model model;
  std::vector<example::TokenId> prompt;
  std::vector<example::TokenId> tokens;  // what everybody has to decode
};

/// Loaded by the first measurement, since declaring rows must not fail.
const Subject& subject() {
  static const Subject loaded(std::getenv(data_variable));
  return loaded;
}

double speed(const example::Decoded& decoded) {
  if (decoded.tokens != subject().tokens) std::abort();
  return decoded.tokens_per_second();
}

double plain_loop() {
  const OnFirstCore first_core([] {});
  return speed(example::decode_plain(subject().model, subject().request()));
}

Measure on_device(Mode mode, Pick pick, const DeviceOptions& options = {}) {
  return [=] {
    std::unique_ptr<Runtime> runtime;
    Client client;
    const OnFirstCore first_core([&] {
      runtime = std::make_unique<Runtime>();
      client = runtime->open("cpu:0", options).client();
    });
    return speed(example::decode(client, subject().model, subject().request(), mode, pick));
  };
}

const Registration rows{[](Suite& suite) {
  Row& row = suite.row("P12", "decode loop on stories260K", "tokens/s");
  if (std::getenv(data_variable) == nullptr) {
    row.add(std::string("skipped: ") + data_variable + " is not set",
            [] { return std::numeric_limits<double>::quiet_NaN(); });
    return;
  }
  DeviceOptions alone;
  alone.help_while_waiting = false;
  row.limit("plain loop, one thread", plain_loop)
      .add("pick on device", on_device(Mode::replay, Pick::device), {at_least(0.95)})
      .add("pick on host, help_while_waiting", on_device(Mode::replay, Pick::host),
           {at_least(0.90)})
      .add("pick on host, without help", on_device(Mode::replay, Pick::host, alone),
           {at_least(0.75)})
      .add("eager, pick on device", on_device(Mode::eager, Pick::device))
      .add("eager, pick on host", on_device(Mode::eager, Pick::host));
}};

}  // namespace
}  // namespace reprise::bench

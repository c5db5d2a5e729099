// SPDX-License-Identifier: Apache-2.0
// A Llama decoder whose token step, dozens of small launches, is captured for two ranges of
// positions and replayed for every token. Text goes to standard output, speeds to standard error.
#include <decode_loop/device_decoder.hpp>

#include <reprise/memory/error.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace decode_loop;

struct Options {
  std::string device = "cpu:0";
  std::string model;
  std::string tokenizer;
  std::string prompt = "Once upon a time";
  std::uint32_t steps = 256;
  std::uint32_t repeat = 1;
  std::vector<Mode> modes{Mode::eager, Mode::replay};
  Pick pick = Pick::device;
};

void declare(CLI::App& app, Options& options) {
  const std::map<std::string, std::vector<Mode>> modes{
      {"eager", {Mode::eager}}, {"replay", {Mode::replay}}, {"both", {Mode::eager, Mode::replay}}};
  const std::map<std::string, Pick> picks{{"host", Pick::host}, {"device", Pick::device}};

  app.add_option("--device", options.device, "Device to run on")->capture_default_str();
  app.add_option("--model", options.model, "Checkpoint in the llama2.c format")->required();
  app.add_option("--tokenizer", options.tokenizer, "Its tokenizer")->required();
  app.add_option("--prompt", options.prompt, "Text to go on from")->capture_default_str();
  app.add_option("--steps", options.steps, "Positions to run")->capture_default_str();
  app.add_option("--repeat", options.repeat, "Runs of each mode; the best one's speed is printed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option_function<std::string>(
         "--mode", [&options, modes](const std::string& name) { options.modes = modes.at(name); },
         "How steps reach the device (default both)")
      ->check(CLI::IsMember({"eager", "replay", "both"}));
  app.add_option_function<std::string>(
         "--pick", [&options, picks](const std::string& name) { options.pick = picks.at(name); },
         "Who picks the next token (default device)")
      ->check(CLI::IsMember({"host", "device"}));
}

// Runs one way of decoding, says how fast it was, and returns its tokens.
std::vector<TokenId> measure(const char* name, std::uint32_t repeat,
                             const std::function<Decoded()>& run) {
  double best = 0;
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < repeat; ++i) {
    Decoded decoded = run();
    best = std::max(best, decoded.tokens_per_second());
    tokens = std::move(decoded.tokens);
  }
  std::cerr << std::left << std::setw(12) << name << std::right << std::setw(8) << std::fixed
            << std::setprecision(0) << best << " tokens/s\n";
  return tokens;
}

void run(const Options& options) {
  const Model model = load_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(options.tokenizer, model.config.vocab_size);
  const std::vector<TokenId> prompt = tokenizer.encode(options.prompt);
  const Request request{prompt, options.steps};
  check_request(model, request);

  reprise::Runtime runtime;
  const reprise::Device device = runtime.open(options.device);
  const std::vector<TokenId> tokens =
      measure("plain loop", options.repeat, [&] { return decode_plain(model, request); });
  for (const Mode mode : options.modes) {
    const auto decoded = measure(mode == Mode::eager ? "eager" : "replay", options.repeat, [&] {
      return decode(device.client(), model, request, mode, options.pick);
    });
    if (decoded != tokens) {
      throw reprise::Failure(reprise::Errc::kernel_failed, "decode_loop",
                             "the device and the plain loop decode different tokens");
    }
  }
  std::cout << tokenizer.decode(tokens) << std::endl;
  if (!std::cout) {
    throw reprise::Failure(reprise::Errc::io_error, "decode_loop",
                           "standard output: the text cannot be written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Decodes text with a small Llama model, on a device and in a plain loop."};
  declare(app, options);
  try {
    app.parse(argc, argv);
    run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const reprise::Failure& failure) {
    std::cerr << "decode_loop: " << failure.record() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "decode_loop: " << error.what() << '\n';
    return 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Teaches a small network to add two numbers below 100, digits in and digits out. The whole
// training step is captured once and replayed thousands of times. A fifth of all sums is kept from
// it until the end, to see whether it has learned to add or only to remember.
#include <learn_addition/data.hpp>
#include <learn_addition/trainer.hpp>

#include <support/progress.hpp>
#include <support/svg_plot.hpp>

#include <reprise/memory/error.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace learn_addition;

constexpr std::size_t unseen_sums = all_sums / 5;

struct Options {
  std::string device = "cpu:0";
  std::string svg = "out/learn_addition.svg";
  std::uint32_t steps = 4000;
  std::uint64_t seed = 1;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--device", options.device, "Device to run on")->capture_default_str();
  app.add_option("--svg", options.svg, "Where the loss curve goes")->capture_default_str();
  app.add_option("--steps", options.steps, "Training steps")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", options.seed, "Decides the split, the start and the batches")
      ->capture_default_str();
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

// Replays the training step; looks at the loss now and then. Returns the seconds it took.
double train(Trainer& trainer, std::uint32_t steps) {
  examples::Progress progress(std::cerr, examples::stderr_is_terminal(), "training", steps);
  const auto begin = std::chrono::steady_clock::now();
  const std::uint32_t chunk = std::max(steps / 100, 1U);
  for (std::uint32_t done = 0; done < steps;) {
    const std::uint32_t end = std::min(done + chunk, steps);
    for (; done < end; ++done) trainer.step();
    progress.update(done, "loss " + fixed(trainer.losses(done - 1, 1)[0], 4));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void show_some(Trainer& trainer, const std::vector<Sum>& sums) {
  const std::vector<Sum> some(sums.begin(), sums.begin() + 5);
  const std::vector<std::uint32_t> answers = trainer.answers(some);
  for (std::size_t i = 0; i < some.size(); ++i) {
    std::cout << std::setw(4) << some[i] / 100 << " + " << std::setw(2) << some[i] % 100 << " = "
              << answers[i] << (answers[i] == result_of(some[i]) ? "" : "  (wrong)") << '\n';
  }
}

void run(const Options& options) {
  examples::ensure_writable(options.svg);
  reprise::Runtime runtime;
  const reprise::Device device = runtime.open(options.device);

  const Split split = split_sums(options.seed, unseen_sums);
  TrainingOptions training;
  training.seed = options.seed;
  training.learning.steps = options.steps;
  Trainer trainer(device.client(), split.train, training);
  const double before = trainer.accuracy(split.unseen);
  const double seconds = train(trainer, options.steps);

  std::cout << trainer.launches() << " launches, captured once, replayed " << options.steps
            << " times in " << fixed(seconds, 1) << " s (" << fixed(options.steps / seconds, 0)
            << " steps/s)\n";
  show_some(trainer, split.unseen);
  std::cout << "accuracy on " << split.unseen.size()
            << " sums it never saw: " << fixed(100 * trainer.accuracy(split.unseen), 2)
            << " %, before training " << fixed(100 * before, 2) << " %\n";

  const std::vector<float> losses = trainer.losses(0, options.steps);
  examples::write_text(options.svg, examples::render_svg({"Learning to add two-digit numbers",
                                                          "training step", "loss", losses}));
  std::cout << "loss curve: " << options.svg << std::endl;
  if (!std::cout) {
    throw reprise::Failure(reprise::Errc::io_error, "learn_addition",
                           "standard output: the results cannot be written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Trains a small network to add, with the training step captured and replayed."};
  declare(app, options);
  try {
    app.parse(argc, argv);
    run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const reprise::Failure& failure) {
    std::cerr << "learn_addition: " << failure.record() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "learn_addition: " << error.what() << '\n';
    return 1;
  }
  return 0;
}

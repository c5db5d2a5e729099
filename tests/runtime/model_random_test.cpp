// SPDX-License-Identifier: Apache-2.0
#include "support/model_ops.hpp"
#include "support/model_run.hpp"
#include "support/seed.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

// A device against a sequential, naive picture of it, under random operations. What fails is shrunk
// and printed; its bytes, in a file of tests/corpus/model/, stay a test for good.

using namespace reprise;
using namespace reprise::test;
using model::HostKind;
using model::Sequence;

namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

/// Shrinks what failed on a seeded host and says what is left.
std::string explain(const Sequence& sequence, const std::string& problem) {
  const auto fails = [](const Sequence& tried) { return !model::run_apart(tried).problem.empty(); };
  if (!fails(sequence)) return "not again: " + model::report(sequence, problem);
  const Sequence small = model::shrink(sequence, fails);
  return model::report(small, model::run_apart(small).problem);
}

/// Runs random sequences until `wanted` operations have been compared; answers how many.
std::uint64_t run_random(std::uint64_t wanted, HostKind host) {
  const std::uint64_t seed = test::seed();
  std::uint64_t done = 0;
  for (std::uint64_t i = 0; done < wanted; ++i) {
    std::mt19937_64 random(seed + i);
    const Sequence sequence = model::swarm(random, 40 + random() % 160);
    INFO("REPRISE_SEED " << seed + i << ", bytes " << model::to_hex(sequence));
    const model::Outcome outcome = model::run(sequence, host);
    done += std::max<std::uint64_t>(outcome.operations, 1);
    if (outcome.problem.empty()) continue;
    if (host == HostKind::seeded) FAIL(explain(sequence, outcome.problem));
    FAIL(model::report(sequence, outcome.problem));
  }
  return done;
}

}  // namespace

TEST_CASE("random work on a seeded device gives what a sequential model gives",
          "[runtime][model][I3][I4][I6][I14][I15][I20][I21][I22][I23][I24][I25][I26][I27][I28]"
          "[B149]") {
  const std::uint64_t wanted = number("REPRISE_MODEL_OPS", 60'000);
  const std::uint64_t done = run_random(wanted, HostKind::seeded);
  CHECK(done >= wanted);
  std::cout << "model operations on the seeded host: " << done << "\n";
}

TEST_CASE("random work on a device with threads gives what a sequential model gives",
          "[runtime][model][threads][I4][I6][I16][I20][I21][I25]") {
  const std::uint64_t wanted = number("REPRISE_MODEL_OPS", 60'000) / 8;
  const std::uint64_t done = run_random(wanted, HostKind::real);
  CHECK(done >= wanted);
  std::cout << "model operations on the real host: " << done << "\n";
}

TEST_CASE("threads that share a device and leave buffers to each other each get what a model gives",
          "[runtime][model][threads][I3][I4][I6][I14][I20][I25][I28]") {
  const std::uint64_t wanted = number("REPRISE_MODEL_OPS", 60'000) / 8;
  const std::uint64_t seed = test::seed();
  std::uint64_t done = 0;
  for (std::uint64_t i = 0; done < wanted; ++i) {
    std::mt19937_64 random(seed + i);
    std::vector<Sequence> sequences;
    for (std::uint64_t each = 2 + random() % 3; each > 0; --each) {
      sequences.push_back(model::swarm(random, 40 + random() % 160));
    }
    INFO("REPRISE_SEED " << seed + i);
    const model::Outcome outcome = model::run_together(sequences);
    done += std::max<std::uint64_t>(outcome.operations, 1);
    if (!outcome.problem.empty()) FAIL(outcome.problem);
  }
  CHECK(done >= wanted);
  std::cout << "model operations on threads: " << done << "\n";
}

TEST_CASE("every short sequence over a small alphabet gives what a sequential model gives",
          "[runtime][model][I20][I21][I22][I25][I28]") {
  using model::Code;
  using model::Op;
  const std::vector<Op> before{{.code = Code::create, .a = 0, .n = 2, .value = 6},
                               {.code = Code::create, .a = 1, .n = 2, .value = 3},
                               {.code = Code::empty, .a = 2, .n = 2}};
  const std::vector<Op> alphabet{
      {.code = Code::launch, .a = 0, .b = 1, .value = 4},            // a fails into b
      {.code = Code::launch, .who = 1, .a = 1, .b = 2, .value = 0},  // b + 1 to c
      {.code = Code::launch, .a = 2, .b = 1, .value = 2},            // c += 1 in place
      {.code = Code::fill, .who = 2, .a = 1, .at = 1, .n = 1, .value = 9},
      {.code = Code::restore, .a = 1},
      {.code = Code::capture, .n = 1, .value = 1},
      {.code = Code::capture, .n = 2, .value = 0},  // throws
      {.code = Code::replay},
      {.code = Code::read, .who = 3, .a = 2},
      {.code = Code::drop, .a = 1},
  };
  const std::uint64_t depth = number("REPRISE_MODEL_DEPTH", 3);
  std::uint64_t total = 1;
  for (std::uint64_t i = 0; i < depth; ++i) total *= alphabet.size();
  for (std::uint64_t i = 0; i < total; ++i) {
    Sequence sequence{.setting = {.workers = static_cast<std::uint8_t>(i % 3),
                                  .ring = 5,
                                  .in_flight = 23,
                                  .streams = 7,
                                  .credit = 31,
                                  .host = 0,
                                  .seed_low = static_cast<std::uint8_t>(i % 256),
                                  .seed_high = 0},
                      .ops = before};
    for (std::uint64_t rest = i, k = 0; k < depth; ++k, rest /= alphabet.size()) {
      sequence.ops.push_back(alphabet[rest % alphabet.size()]);
    }
    const model::Outcome outcome = model::run(sequence);
    if (!outcome.problem.empty()) FAIL(explain(sequence, outcome.problem));
  }
  CHECK(total >= 1000);
}

TEST_CASE("every saved sequence gives what a sequential model gives",
          "[runtime][model][I5][I16][I20][I22][I26][N7]") {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/corpus/model")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE_FALSE(files.empty());
  for (const auto& file : files) {
    std::ifstream stream(file);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const auto at = text.find("\nbytes ");
    INFO(file.string());
    REQUIRE(at != std::string::npos);
    Sequence sequence = model::from_hex(std::string_view(text).substr(at + 7));
    // The schedule that showed it is not the only one that may.
    for (int seed = 0; seed < 20; ++seed) {
      sequence.setting.seed_high = static_cast<std::uint8_t>(seed);
      const model::Outcome outcome = model::run(sequence);
      if (!outcome.problem.empty()) FAIL(explain(sequence, outcome.problem));
    }
    CHECK(!sequence.ops.empty());
  }
}

TEST_CASE("a sequence given by its bytes is run and shrunk", "[runtime][model]") {
  const char* const text = std::getenv("REPRISE_MODEL_BYTES");
  const Sequence sequence = model::from_hex(text != nullptr ? text : "");
  const model::Outcome outcome = model::run_apart(sequence);
  INFO((outcome.problem.empty() ? "" : explain(sequence, outcome.problem)));
  CHECK(outcome.problem == "");
}

// SPDX-License-Identifier: Apache-2.0
#include <learn_addition/trainer.hpp>

#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <learn_addition/data.hpp>

#include <catch2/catch.hpp>

#include <vector>

using namespace learn_addition;

namespace {

constexpr std::uint32_t steps = 60;

TrainingOptions small_training() {
  TrainingOptions options;
  options.batch = 16;
  options.learning.steps = steps;
  return options;
}

std::vector<float> train(reprise::Client client, std::span<const Sum> sums) {
  Trainer trainer(client, sums, small_training());
  for (std::uint32_t i = 0; i < steps; ++i) trainer.step();
  return trainer.losses(0, steps);
}

}  // namespace

TEST_CASE("replaying the training step lowers the loss and gives the same curve each time",
          "[examples]") {
  reprise::Runtime runtime;
  const reprise::Device device = runtime.open("cpu:0");
  // Few sums, so that few steps suffice to learn them.
  const std::vector<Sum> sums{101, 2345, 9876, 5005};
  const std::vector<float> first = train(device.client(), sums);
  CHECK(first.front() > 5);
  CHECK(first.back() < 0.1F);
  CHECK(train(device.client(), sums) == first);
}

TEST_CASE("a trained network answers what it learned", "[examples]") {
  reprise::Runtime runtime;
  const std::vector<Sum> sums{101, 2345, 9876, 5005};
  Trainer trainer(runtime.open("cpu:0").client(), sums, small_training());
  CHECK(trainer.launches() == 13);
  CHECK(trainer.accuracy(sums) < 0.5);
  for (std::uint32_t i = 0; i < steps; ++i) trainer.step();
  CHECK(trainer.accuracy(sums) == 1.0);
  CHECK(trainer.answers(sums) == std::vector<std::uint32_t>{2, 68, 174, 55});
  CHECK(trainer.accuracy({}) == 0.0);
}

// SPDX-License-Identifier: Apache-2.0
#include <learn_addition/network.hpp>

#include <learn_addition/data.hpp>

#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

using namespace learn_addition;
using reprise::test::seed;

namespace {

constexpr std::uint32_t batch = 6;

template <class View, class T>
View view(std::vector<T>& values) {
  return View{values.data(), values.size()};
}

Block whole(std::size_t items) {
  return {{0, 0, 0}, {1, 1, 1}, {static_cast<std::uint32_t>(items), 1, 1}};
}

// The network with its bodies called in turn.
struct Plain {
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> outputs;
  std::vector<std::vector<float>> output_gradients;
  std::vector<float> questions = std::vector<float>(batch * question_size);
  std::vector<std::uint32_t> answers = std::vector<std::uint32_t>(batch * answer_digits);
  std::vector<float> losses = std::vector<float>(batch);

  Plain() {
    const auto all = initial_parameters(7);
    std::size_t at = 0;
    for (const LayerShape& layer : network) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      parameters.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(layer.parameters()));
      gradients.emplace_back(layer.parameters());
      outputs.emplace_back(batch * layer.outputs);
      output_gradients.emplace_back(batch * layer.outputs);
      at += layer.parameters();
    }
    std::vector<Sum> sums{0, 9999, 2758, 1234, 5005, 905};
    spell_body(whole(batch), view<In<Sum>>(sums), view<Out<float>>(questions),
               view<Out<std::uint32_t>>(answers));
  }

  std::vector<float>& inputs(std::size_t layer) {
    return layer == 0 ? questions : outputs[layer - 1];
  }

  // The mean loss. Summed in double, so that differences of it mean something.
  double forward() {
    for (std::size_t i = 0; i < network.size(); ++i) {
      dense_body(whole(batch), view<In<float>>(inputs(i)), view<In<float>>(parameters[i]),
                 view<Out<float>>(outputs[i]), network[i]);
    }
    loss_body(whole(batch), view<In<float>>(outputs.back()), view<In<std::uint32_t>>(answers),
              view<Out<float>>(losses), view<Out<float>>(output_gradients.back()));
    double sum = 0;
    for (const float loss : losses) sum += loss;
    return sum / batch;
  }

  void backward() {
    for (std::size_t i = network.size(); i-- > 0;) {
      parameter_gradient_body(whole(network[i].inputs + 1), view<In<float>>(inputs(i)),
                              view<In<float>>(output_gradients[i]), view<Out<float>>(gradients[i]),
                              network[i]);
      if (i == 0) return;
      input_gradient_body(whole(batch), view<In<float>>(inputs(i)),
                          view<In<float>>(output_gradients[i]), view<In<float>>(parameters[i]),
                          view<Out<float>>(output_gradients[i - 1]), network[i]);
    }
  }
};

}  // namespace

TEST_CASE("sums are spelled digit by digit", "[examples]") {
  CHECK(digits_of_question(758) == std::array<std::uint32_t, 4>{0, 7, 5, 8});
  CHECK(result_of(758) == 65);
  CHECK(digits_of_answer(758) == std::array<std::uint32_t, 3>{0, 6, 5});
  CHECK(digits_of_answer(9999) == std::array<std::uint32_t, 3>{1, 9, 8});

  std::vector<Sum> sums{758};
  std::vector<float> question(question_size, -1.0F);
  std::vector<std::uint32_t> answer(answer_digits);
  spell_body(whole(1), view<In<Sum>>(sums), view<Out<float>>(question),
             view<Out<std::uint32_t>>(answer));
  for (std::size_t i = 0; i < question.size(); ++i) {
    CAPTURE(i);
    CHECK(question[i] == (i == 0 || i == 17 || i == 25 || i == 38 ? 1.0F : 0.0F));
  }
  CHECK(answer == std::vector<std::uint32_t>{0, 6, 5});
}

TEST_CASE("a split keeps every sum once and the same ones for the same seed", "[examples]") {
  const Split split = split_sums(3, 2000);
  CHECK(split.unseen.size() == 2000);
  CHECK(split.train.size() == 8000);
  std::set<Sum> all(split.train.begin(), split.train.end());
  all.insert(split.unseen.begin(), split.unseen.end());
  CHECK(all.size() == all_sums);
  CHECK(*all.rbegin() == 9999);
  CHECK(split_sums(3, 2000).unseen == split.unseen);
  CHECK(split_sums(4, 2000).unseen != split.unseen);
}

TEST_CASE("batches are drawn from the given sums and differ from step to step", "[examples]") {
  std::vector<Sum> sums{10, 20, 30, 40, 50, 60, 70, 80};
  std::vector<Sum> first(64);
  std::vector<Sum> second(64);
  std::vector<std::uint32_t> step{0};
  draw_body(whole(64), view<In<Sum>>(sums), view<In<std::uint32_t>>(step), view<Out<Sum>>(first));
  step[0] = 1;
  draw_body(whole(64), view<In<Sum>>(sums), view<In<std::uint32_t>>(step), view<Out<Sum>>(second));
  CHECK(first != second);
  CHECK(std::set<Sum>(first.begin(), first.end()).size() == sums.size());
  for (const Sum sum : first) CHECK(std::count(sums.begin(), sums.end(), sum) == 1);
}

TEST_CASE("each gradient is the slope of the loss", "[examples]") {
  CAPTURE(seed());
  std::mt19937_64 random(seed());
  Plain plain;
  plain.forward();
  plain.backward();
  const float step = 1e-2F;
  for (std::size_t layer = 0; layer < network.size(); ++layer) {
    std::size_t steep = 0;
    std::size_t wrong = 0;
    for (int round = 0; round < 200; ++round) {
      // Some biases each time, since they are few.
      const std::size_t outputs = network[layer].outputs;
      const std::size_t count = plain.parameters[layer].size();
      const std::size_t at = round % 4 == 0 ? count - 1 - random() % outputs : random() % count;
      float& parameter = plain.parameters[layer][at];
      const float before = parameter;
      parameter = before + step;
      const double above = plain.forward();
      parameter = before - step;
      const double below = plain.forward();
      parameter = before;
      const double slope = (above - below) / (2 * static_cast<double>(step));
      const double gradient = plain.gradients[layer][at];
      steep += std::abs(slope) > 1e-3 ? 1 : 0;
      // A relu that switches within the step bends the slope, so a few may differ; a wrong formula
      // makes all of the steep ones differ.
      wrong += std::abs(slope - gradient) > 2e-3 + 0.03 * std::abs(slope) ? 1 : 0;
    }
    CAPTURE(layer, steep, wrong);
    CHECK(steep > 20);
    CHECK(wrong <= 15);
  }
}

TEST_CASE("the loss of a sure and right answer is nothing and of no opinion ln 10 a digit",
          "[examples]") {
  std::vector<float> scores(2 * answer_size);
  std::vector<std::uint32_t> answers{1, 2, 3, 1, 2, 3};
  for (std::size_t digit = 0; digit < answer_digits; ++digit) {
    scores[answer_size + digit * digit_values + digit + 1] = 200;
  }
  std::vector<float> losses(2);
  std::vector<float> gradient(2 * answer_size);
  loss_body(whole(2), view<In<float>>(scores), view<In<std::uint32_t>>(answers),
            view<Out<float>>(losses), view<Out<float>>(gradient));
  CHECK(losses[0] == Approx(3 * std::log(10.0)));
  CHECK(losses[1] == Approx(0).margin(1e-6));
  CHECK(gradient[1] == Approx(-0.9 / 2));
  CHECK(gradient[0] == Approx(0.1 / 2));
  CHECK(gradient[answer_size + 1] == Approx(0).margin(1e-6));
}

TEST_CASE("learning moves against the gradient and slower towards the end", "[examples]") {
  Learning learning;
  learning.steps = 10;
  learning.decay = 0;
  std::vector<float> gradient{2, -0.5F, 0};
  const auto moved = [&](std::uint32_t at) {
    std::vector<float> parameters(3);
    std::vector<float> mean(3);
    std::vector<float> variance(3);
    std::vector<std::uint32_t> step{at};
    // The first step of a fresh average, whatever its number.
    adam_body(whole(3), view<In<float>>(gradient), view<In<std::uint32_t>>(step),
              view<InOut<float>>(parameters), view<InOut<float>>(mean),
              view<InOut<float>>(variance), learning);
    return parameters;
  };
  const auto first = moved(0);
  CHECK(first[0] == Approx(-learning.rate));
  CHECK(first[1] == Approx(learning.rate));
  CHECK(first[2] == 0.0F);
  CHECK(std::abs(moved(9)[0]) < std::abs(first[0]) / 5);
  CHECK(moved(10)[0] == 0.0F);
}

TEST_CASE("a step ends by entering its loss and counting on", "[examples]") {
  std::vector<float> losses{1, 2, 6};
  std::vector<std::uint32_t> step{1};
  std::vector<float> curve(2);
  const auto end = [&] {
    end_step_body(whole(1), view<In<float>>(losses), view<InOut<std::uint32_t>>(step),
                  view<Update<float>>(curve));
  };
  end();
  CHECK(curve == std::vector<float>{0, 3});
  CHECK(step[0] == 2);
  CHECK_THROWS_AS(end(), std::out_of_range);
}

TEST_CASE("the best scores spell the number", "[examples]") {
  std::vector<float> scores(answer_size);
  scores[1] = 5;
  scores[10 + 0] = 5;
  scores[20 + 7] = 5;
  std::vector<std::uint32_t> numbers(1);
  decide_body(whole(1), view<In<float>>(scores), view<Out<std::uint32_t>>(numbers));
  CHECK(numbers[0] == 107);
}

// SPDX-License-Identifier: Apache-2.0
#include <learn_addition/network.hpp>

#include <support/vector_math.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace learn_addition {

namespace {

using examples::add_weighted_rows;
using examples::dot;

std::uint32_t likeliest_digit(const float* scores) {
  return static_cast<std::uint32_t>(std::max_element(scores, scores + digit_values) - scores);
}

// Cross entropy of one digit, and its gradient.
float digit_loss(const float* scores, std::uint32_t digit, float scale, float* gradient) {
  const float max = *std::max_element(scores, scores + digit_values);
  float sum = 0;
  for (std::size_t i = 0; i < digit_values; ++i) {
    gradient[i] = std::exp(scores[i] - max);
    sum += gradient[i];
  }
  for (std::size_t i = 0; i < digit_values; ++i) {
    gradient[i] = (gradient[i] / sum - (i == digit ? 1.0F : 0.0F)) * scale;
  }
  return std::log(sum) + max - scores[digit];
}

}  // namespace

std::vector<float> initial_parameters(std::uint64_t seed) {
  std::vector<float> parameters;
  parameters.reserve(network_parameters);
  std::uint64_t state = seed;
  for (const LayerShape& layer : network) {
    // Uniform, with the variance that keeps a layer's outputs as wide as its inputs.
    const float bound = std::sqrt(6.0F / static_cast<float>(layer.inputs));
    for (std::size_t i = 0; i < std::size_t{layer.inputs} * layer.outputs; ++i) {
      state = mix(state);
      const float unit = static_cast<float>(state >> 40) / static_cast<float>(1U << 24);
      parameters.push_back((2 * unit - 1) * bound);
    }
    parameters.insert(parameters.end(), layer.outputs, 0.0F);
  }
  return parameters;
}

void draw_body(Block block, In<Sum> sums, In<std::uint32_t> step, Out<Sum> batch) {
  for (const std::size_t row : block.range(batch.size())) {
    batch[row] = sums[mix(std::uint64_t{step[0]} * batch.size() + row) % sums.size()];
  }
}

void spell_body(Block block, In<Sum> batch, Out<float> questions, Out<std::uint32_t> answers) {
  for (const std::size_t row : block.range(batch.size())) {
    float* question = questions.data() + row * question_size;
    std::fill_n(question, question_size, 0.0F);
    for (const std::uint32_t digit : digits_of_question(batch[row])) {
      question[digit] = 1;
      question += digit_values;
    }
    const auto answer = digits_of_answer(batch[row]);
    std::copy(answer.begin(), answer.end(), answers.data() + row * answer_digits);
  }
}

void dense_body(Block block, In<float> x, In<float> parameters, Out<float> out, LayerShape shape) {
  const std::size_t outputs = shape.outputs;
  const float* biases = parameters.data() + shape.inputs * outputs;
  for (const std::size_t row : block.range(out.size() / outputs)) {
    float* y = out.data() + row * outputs;
    std::copy_n(biases, outputs, y);
    add_weighted_rows({x.data() + row * shape.inputs, 1}, {parameters.data(), outputs},
                      shape.inputs, y, outputs);
    if (!shape.relu) continue;
    for (std::size_t i = 0; i < outputs; ++i) y[i] = std::max(y[i], 0.0F);
  }
}

void loss_body(Block block, In<float> scores, In<std::uint32_t> answers, Out<float> losses,
               Out<float> gradient) {
  const float scale = 1.0F / static_cast<float>(losses.size());
  for (const std::size_t row : block.range(losses.size())) {
    losses[row] = 0;
    for (std::size_t digit = 0; digit < answer_digits; ++digit) {
      const std::size_t at = row * answer_size + digit * digit_values;
      losses[row] += digit_loss(scores.data() + at, answers[row * answer_digits + digit], scale,
                                gradient.data() + at);
    }
  }
}

void parameter_gradient_body(Block block, In<float> x, In<float> out_gradient, Out<float> gradient,
                             LayerShape shape) {
  const std::size_t inputs = shape.inputs;
  const std::size_t outputs = shape.outputs;
  const std::size_t batch = out_gradient.size() / outputs;
  static constexpr float one = 1;
  for (const std::size_t row : block.range(inputs + 1)) {
    float* sum = gradient.data() + row * outputs;
    std::fill_n(sum, outputs, 0.0F);
    // The last row belongs to the biases, whose input is always 1.
    const examples::Strided weights =
        row < inputs ? examples::Strided{x.data() + row, inputs} : examples::Strided{&one, 0};
    add_weighted_rows(weights, {out_gradient.data(), outputs}, batch, sum, outputs);
  }
}

void input_gradient_body(Block block, In<float> x, In<float> out_gradient, In<float> parameters,
                         Out<float> gradient, LayerShape shape) {
  const std::size_t inputs = shape.inputs;
  const std::size_t outputs = shape.outputs;
  for (const std::size_t row : block.range(x.size() / inputs)) {
    for (std::size_t i = 0; i < inputs; ++i) {
      const std::size_t at = row * inputs + i;
      gradient[at] = x[at] > 0 ? dot(out_gradient.data() + row * outputs,
                                     parameters.data() + i * outputs, outputs)
                               : 0.0F;
    }
  }
}

void adam_body(Block block, In<float> gradient, In<std::uint32_t> step, InOut<float> parameters,
               InOut<float> mean, InOut<float> variance, Learning learning) {
  const auto count = static_cast<float>(step[0] + 1);
  const float left = 1.0F - static_cast<float>(step[0]) / static_cast<float>(learning.steps);
  const float rate = learning.rate * std::max(left, 0.0F);
  const float mean_scale = 1.0F / (1.0F - std::pow(learning.beta1, count));
  const float variance_scale = 1.0F / (1.0F - std::pow(learning.beta2, count));
  for (const std::size_t i : block.range(parameters.size())) {
    const float g = gradient[i];
    mean[i] += (1 - learning.beta1) * (g - mean[i]);
    variance[i] += (1 - learning.beta2) * (g * g - variance[i]);
    const float change = mean[i] * mean_scale / (std::sqrt(variance[i] * variance_scale) + 1e-8F);
    parameters[i] -= rate * (change + learning.decay * parameters[i]);
  }
}

void end_step_body(Block, In<float> losses, InOut<std::uint32_t> step, Update<float> curve) {
  if (step[0] >= curve.size()) {
    throw std::out_of_range("step is " + std::to_string(step[0]) + " of " +
                            std::to_string(curve.size()));
  }
  float sum = 0;
  for (const float value : losses) sum += value;
  curve[step[0]] = sum / static_cast<float>(losses.size());
  step[0] += 1;
}

void decide_body(Block block, In<float> scores, Out<std::uint32_t> numbers) {
  for (const std::size_t row : block.range(numbers.size())) {
    const float* digit_scores = scores.data() + row * answer_size;
    numbers[row] = 0;
    for (std::size_t digit = 0; digit < answer_digits; ++digit) {
      numbers[row] = 10 * numbers[row] + likeliest_digit(digit_scores + digit * digit_values);
    }
  }
}

}  // namespace learn_addition

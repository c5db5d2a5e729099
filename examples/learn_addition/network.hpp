// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <learn_addition/data.hpp>

#include <reprise/device/kernel.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace learn_addition {

using reprise::Block;
using reprise::In;
using reprise::InOut;
using reprise::Out;
using reprise::Update;

/// One fully connected layer. Its parameters are `inputs` rows of `outputs` weights, then one row
/// of biases.
struct LayerShape {
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  bool relu = false;  ///< Negative outputs become 0.

  constexpr std::size_t parameters() const noexcept { return (std::size_t{inputs} + 1) * outputs; }
};

inline constexpr std::uint32_t hidden_size = 128;
inline constexpr std::array<LayerShape, 3> network{LayerShape{question_size, hidden_size, true},
                                                   LayerShape{hidden_size, hidden_size, true},
                                                   LayerShape{hidden_size, answer_size, false}};
inline constexpr std::size_t network_parameters =
    network[0].parameters() + network[1].parameters() + network[2].parameters();

/// How the parameters learn: Adam with decoupled weight decay, and a rate that falls in a straight
/// line to nothing at `steps`.
struct Learning {
  float rate = 0.005F;
  float decay = 0.3F;  ///< Share of a parameter that is lost per unit of rate.
  float beta1 = 0.9F;
  float beta2 = 0.99F;
  std::uint32_t steps = 0;
};

/// Random parameters for a start; biases are 0.
std::vector<float> initial_parameters(std::uint64_t seed);

// Bodies. Matrices are row-major; a batch has one row for each question.

/// Draws a batch for `step` from all sums that are learned from.
void draw_body(Block block, In<Sum> sums, In<std::uint32_t> step, Out<Sum> batch);

/// Spells the sums of a batch: one-hot questions, and the digits of the answers.
void spell_body(Block block, In<Sum> batch, Out<float> questions, Out<std::uint32_t> answers);

/// out = the layer's answer to x.
void dense_body(Block block, In<float> x, In<float> parameters, Out<float> out, LayerShape shape);

/// How wrong each row of scores is (cross entropy over its digits), and the gradient of the mean.
void loss_body(Block block, In<float> scores, In<std::uint32_t> answers, Out<float> losses,
               Out<float> gradient);

/// Gradient of a layer's parameters, from that of its outputs.
void parameter_gradient_body(Block block, In<float> x, In<float> out_gradient, Out<float> gradient,
                             LayerShape shape);

/// Gradient of a layer's inputs, which were the outputs of a layer with relu.
void input_gradient_body(Block block, In<float> x, In<float> out_gradient, In<float> parameters,
                         Out<float> gradient, LayerShape shape);

/// One step of learning.
void adam_body(Block block, In<float> gradient, In<std::uint32_t> step, InOut<float> parameters,
               InOut<float> mean, InOut<float> variance, Learning learning);

/// Enters the batch's mean loss as element `step` of the curve and goes on to the next step.
void end_step_body(Block block, In<float> losses, InOut<std::uint32_t> step, Update<float> curve);

/// The numbers that the best scores of each row spell.
void decide_body(Block block, In<float> scores, Out<std::uint32_t> numbers);

inline const reprise::Kernel draw{"draw", draw_body};
inline const reprise::Kernel spell{"spell", spell_body};
inline const reprise::Kernel dense{"dense", dense_body};
inline const reprise::Kernel loss{"loss", loss_body};
inline const reprise::Kernel parameter_gradient{"parameter_gradient", parameter_gradient_body};
inline const reprise::Kernel input_gradient{"input_gradient", input_gradient_body};
inline const reprise::Kernel adam{"adam", adam_body};
inline const reprise::Kernel end_step{"end_step", end_step_body};
inline const reprise::Kernel decide{"decide", decide_body};

}  // namespace learn_addition

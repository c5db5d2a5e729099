// SPDX-License-Identifier: Apache-2.0
#include <learn_addition/trainer.hpp>

#include <utility>

namespace learn_addition {

namespace {

using reprise::grid_for;

// Work for one block. Blocks write different rows, so their number changes no result.
constexpr std::uint32_t rows_per_block = 16;
constexpr std::uint32_t parameters_per_block = 8192;

}  // namespace

Trainer::Rows::Rows(reprise::Client& client, std::uint32_t count_)
    : count(count_), sums(client.empty<Sum>(count)),
      questions(client.empty<float>(count * question_size)),
      answers(client.empty<std::uint32_t>(count * answer_digits)) {
  for (std::size_t i = 0; i < network.size(); ++i) {
    outputs[i] = client.empty<float>(std::size_t{count} * network[i].outputs);
  }
}

Trainer::Trainer(reprise::Client client, std::span<const Sum> sums, const TrainingOptions& options)
    : client_(std::move(client)), learning_(options.learning), sums_(client_.create<Sum>(sums)),
      step_(client_.zeros<std::uint32_t>(1)), batch_(client_, options.batch),
      losses_(client_.empty<float>(options.batch)),
      curve_(client_.zeros<float>(options.learning.steps)),
      parameters_(client_.create<float>(initial_parameters(options.seed))),
      gradient_(client_.empty<float>(network_parameters)),
      mean_(client_.zeros<float>(network_parameters)),
      variance_(client_.zeros<float>(network_parameters)) {
  for (std::size_t i = 0; i < network.size(); ++i) {
    output_gradients_[i] = client_.empty<float>(std::size_t{options.batch} * network[i].outputs);
  }
  step_graph_ = client_.capture([this](reprise::Client& recording) { launch_step(recording); });
}

Trainer::Layers Trainer::by_layer(const Floats& parameters) {
  Layers layers;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < network.size(); ++i) {
    layers[i] = parameters.slice(offset, network[i].parameters());
    offset += network[i].parameters();
  }
  return layers;
}

void Trainer::launch_network(reprise::Client& client, const Rows& rows) const {
  const Layers parameters = by_layer(parameters_);
  const auto grid = grid_for(rows.count, rows_per_block);
  client.launch(spell, grid, rows.sums, rows.questions, rows.answers);
  for (std::size_t i = 0; i < network.size(); ++i) {
    const Floats& inputs = i == 0 ? rows.questions : rows.outputs[i - 1];
    client.launch(dense, grid, inputs, parameters[i], rows.outputs[i], network[i]);
  }
}

void Trainer::launch_step(reprise::Client& client) const {
  const auto grid = grid_for(batch_.count, rows_per_block);
  client.launch(draw, grid, sums_, step_, batch_.sums);
  launch_network(client, batch_);

  const Layers parameters = by_layer(parameters_);
  const Layers gradients = by_layer(gradient_);
  client.launch(loss, grid, batch_.outputs.back(), batch_.answers, losses_,
                output_gradients_.back());
  for (std::size_t i = network.size(); i-- > 0;) {
    const Floats& inputs = i == 0 ? batch_.questions : batch_.outputs[i - 1];
    client.launch(parameter_gradient, grid_for(network[i].inputs + 1, rows_per_block), inputs,
                  output_gradients_[i], gradients[i], network[i]);
    if (i == 0) break;
    client.launch(input_gradient, grid, inputs, output_gradients_[i], parameters[i],
                  output_gradients_[i - 1], network[i]);
  }
  client.launch(adam, grid_for(network_parameters, parameters_per_block), gradient_, step_,
                parameters_, mean_, variance_, learning_);
  client.launch(end_step, grid_for(1), losses_, step_, curve_);
}

std::vector<float> Trainer::losses(std::uint32_t first, std::uint32_t count) {
  return client_.read(curve_.slice(first, count));
}

std::vector<std::uint32_t> Trainer::answers(std::span<const Sum> sums) {
  const Rows rows(client_, static_cast<std::uint32_t>(sums.size()));
  const Integers numbers = client_.empty<std::uint32_t>(sums.size());
  client_.write(rows.sums, sums);
  launch_network(client_, rows);
  client_.launch(decide, grid_for(rows.count, rows_per_block), rows.outputs.back(), numbers);
  return client_.read(numbers);
}

double Trainer::accuracy(std::span<const Sum> sums) {
  if (sums.empty()) return 0;
  const std::vector<std::uint32_t> numbers = answers(sums);
  std::size_t right = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) right += numbers[i] == result_of(sums[i]) ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(sums.size());
}

}  // namespace learn_addition

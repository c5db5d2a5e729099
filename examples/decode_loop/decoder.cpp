// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/decoder.hpp>
#include <decode_loop/token_step.hpp>

#include <support/plain_loop.hpp>

#include <reprise/memory/error.hpp>

#include <chrono>
#include <string>

namespace decode_loop {

namespace {

// Caches and scores grow with products of fields, which the size of the file does not bound.
constexpr std::uint64_t max_state_bytes = std::uint64_t{4} << 30;

[[noreturn]] void fail(const std::string& what) {
  throw reprise::Failure(reprise::Errc::invalid_argument, "decode", what);
}

}  // namespace

bool Decoded::append(const Request& request, TokenId picked) {
  const std::size_t next = tokens.size();
  const TokenId token = next < request.prompt.size() ? request.prompt[next] : picked;
  if (ends_text(token)) return false;
  tokens.push_back(token);
  return true;
}

void check_request(const Model& model, const Request& request) {
  const ModelConfig& config = model.config;
  if (request.steps < 1 || request.steps > config.seq_len) {
    fail("steps is " + std::to_string(request.steps) + ", the model's seq_len allows 1 to " +
         std::to_string(config.seq_len));
  }
  if (request.prompt.empty() || request.prompt.size() > request.steps) {
    fail("prompt has " + std::to_string(request.prompt.size()) +
         " tokens, with the given steps 1 to " + std::to_string(request.steps) + " fit");
  }
  const std::uint64_t per_position =
      std::uint64_t{2} * config.layers * config.kv_dim() + config.heads;
  const std::uint64_t state_bytes = request.steps * per_position * sizeof(float);
  if (state_bytes > max_state_bytes) {
    fail("steps is " + std::to_string(request.steps) + ", whose cache and scores take " +
         std::to_string(state_bytes) + " bytes, more than " + std::to_string(max_state_bytes));
  }
}

Decoded decode_plain(const Model& model, const Request& request) {
  check_request(model, request);
  examples::PlainMemory memory;
  const auto tensors = make_tensors(memory, model, request.steps);
  const In<float> logits{tensors.logits.data(), tensors.logits.size()};

  Decoded decoded;
  decoded.tokens.push_back(request.prompt[0]);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t position = 0; position < request.steps; ++position) {
    tensors.position[0] = static_cast<std::int32_t>(position);
    tensors.token[0] = decoded.tokens.back();
    token_step(examples::PlainLaunch{}, model.config, request.steps, tensors);
    if (!decoded.append(request, likeliest(logits))) break;
  }
  decoded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return decoded;
}

}  // namespace decode_loop

// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/decoder.hpp>
#include <decode_loop/token_step.hpp>

#include <support/plain_loop.hpp>

#include <chrono>

namespace decode_loop {

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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <decode_loop/model.hpp>
#include <decode_loop/tokenizer.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace decode_loop {

/// What a decoding run is asked for.
struct Request {
  std::span<const TokenId> prompt;  ///< Begins with begin_of_text; at most `steps` tokens.
  std::uint32_t steps = 0;          ///< Positions to run, at most the model's seq_len.
};

/// What a run gave.
struct Decoded {
  std::vector<TokenId> tokens;  ///< Begins with the prompt.
  double seconds = 0;           ///< From the first step to the last token, set-up not included.

  /// Appends the prompt's next token, or `picked` after the prompt. False if the text ends there.
  bool append(const Request& request, TokenId picked);

  double tokens_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(tokens.size() - 1) / seconds : 0;
  }
};

/// Decodes on the calling thread, greedily: the bodies of the kernels in a plain loop, without a
/// device. The measure for all other ways.
Decoded decode_plain(const Model& model, const Request& request);

/// Errors  Failure with Errc::invalid_argument, naming the value, unless `model` can serve
///         `request`.
void check_request(const Model& model, const Request& request);

}  // namespace decode_loop

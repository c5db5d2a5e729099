// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <decode_loop/model.hpp>
#include <decode_loop/tokenizer.hpp>

#include <reprise/runtime/client.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace decode_loop {

/// What a decoding run is asked for.
struct Request {
  std::span<const TokenId> prompt;  ///< Begins with begin_of_text; at most `steps` tokens.
  std::uint32_t steps = 0;          ///< Positions to run, at most the model's seq_len.
};

/// How a token step reaches the device.
enum class Mode {
  eager,   ///< Each launch is submitted anew.
  replay,  ///< The step is captured once and replayed.
};

/// Who picks the next token.
enum class Pick {
  host,    ///< The client reads the logits, then writes token and position.
  device,  ///< A kernel at the end of the step; the client reads tokens one step behind.
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

/// Decodes on a device, greedily.
///
/// Errors  Failure: invalid_argument as check_request(), and what the device answers.
Decoded decode(reprise::Client client, const Model& model, const Request& request, Mode mode,
               Pick pick);

/// Decodes on the calling thread: the same kernel bodies in a plain loop, without a device. The
/// measure for the others.
Decoded decode_plain(const Model& model, const Request& request);

/// Errors  Failure with Errc::invalid_argument, naming the value, unless `model` can serve
///         `request`.
void check_request(const Model& model, const Request& request);

}  // namespace decode_loop

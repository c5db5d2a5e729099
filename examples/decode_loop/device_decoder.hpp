// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <decode_loop/decoder.hpp>

#include <reprise/runtime/client.hpp>

namespace decode_loop {

/// How a token step reaches the device.
enum class Mode {
  eager,   ///< Each launch is submitted anew.
  replay,  ///< The step is captured for two ranges of positions and replayed.
};

/// Who picks the next token.
enum class Pick {
  host,    ///< The client reads the logits, then refreshes token and position.
  device,  ///< A kernel at the end of the step; the client reads tokens one step behind.
};

/// Decodes on a device, greedily.
///
/// Errors  Failure: invalid_argument as check_request(), and what the device answers.
Decoded decode(reprise::Client client, const Model& model, const Request& request, Mode mode,
               Pick pick);

}  // namespace decode_loop

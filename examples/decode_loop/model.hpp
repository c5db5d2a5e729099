// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace decode_loop {

/// The shape of a Llama 2 decoder. A loaded one is consistent: every field is positive and within
/// fixed limits, `heads` divides `dim`, `kv_heads` divides `heads`, and a head has an even size.
struct ModelConfig {
  std::uint32_t dim = 0;         ///< Width of the residual stream.
  std::uint32_t hidden_dim = 0;  ///< Width inside the feed-forward part.
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;     ///< Query heads.
  std::uint32_t kv_heads = 0;  ///< Key and value heads; each serves heads / kv_heads query heads.
  std::uint32_t vocab_size = 0;
  std::uint32_t seq_len = 0;       ///< Most positions that the model was trained for.
  bool shared_classifier = false;  ///< The output classifier is the token embedding.

  std::uint32_t head_size() const noexcept { return dim / heads; }
  std::uint32_t kv_dim() const noexcept { return head_size() * kv_heads; }
};

/// One tensor's place among the weights.
///
/// Units  Elements.
struct TensorSlice {
  std::size_t offset = 0;
  std::size_t count = 0;
};

struct LayerLayout {
  TensorSlice rms_att;
  TensorSlice wq;
  TensorSlice wk;
  TensorSlice wv;
  TensorSlice wo;
  TensorSlice rms_ffn;
  TensorSlice w1;
  TensorSlice w2;
  TensorSlice w3;
};

/// Where each tensor lies in Model::weights. Matrices are row-major, one row per output.
struct ModelLayout {
  TensorSlice embedding;
  std::vector<LayerLayout> layers;
  TensorSlice rms_final;
  TensorSlice classifier;
};

/// A checked checkpoint: all weights in one array, and the map to it.
struct Model {
  ModelConfig config;
  ModelLayout layout;
  std::vector<float> weights;

  /// Rotary embedding: cosine and sine in turns, head_size floats for each position.
  std::vector<float> rope_table(std::uint32_t positions) const;
};

/// Reads a checkpoint in the llama2.c format, version 0: seven int32 and then float32 tensors, all
/// little endian.
///
/// Errors  Failure, naming file, field and value. Errc::io_error: the file cannot be read.
///         Errc::bad_format: a header field is out of its limits or contradicts another, the file
///         is not exactly as long as the header asks for, or a weight is not a finite number.
Model load_model(const std::filesystem::path& path);

/// The same for bytes already in memory; `name` stands for the file in messages.
Model parse_model(std::span<const std::byte> bytes, std::string_view name);

}  // namespace decode_loop

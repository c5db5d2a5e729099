// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/op.hpp>

#include <reprise/device/kernel.hpp>

#include <cstdint>

namespace decode_loop {

using examples::Op;
using reprise::Block;
using reprise::In;
using reprise::InOut;
using reprise::Out;
using reprise::Update;

/// How attention reads its cache: one row of kv_heads * head_size floats for each position.
struct AttentionShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_size = 0;
  std::uint32_t positions = 0;  ///< Rows of the cache, and of the scores of one head.
};

// Bodies. Sums run in a fixed order, so every way of running them gives the same bits. The names
// of the arguments are those of the Llama papers.

/// out = the row of `table` that belongs to `token`.
void embed_body(Block block, In<float> table, In<std::int32_t> token, Out<float> out);

/// out = x / rms(x) * weight.
void rmsnorm_body(Block block, In<float> x, In<float> weight, Out<float> out);

/// out = w x, where w has one row for each element of out.
void matmul_body(Block block, In<float> x, In<float> w, Out<float> out);

/// out += w x.
void matmul_add_body(Block block, In<float> x, In<float> w, InOut<float> out);

/// Turns each pair of q and of k by its angle at `position`; `table` is Model::rope_table().
void rope_body(Block block, In<float> table, In<std::int32_t> position, InOut<float> q,
               InOut<float> k, std::uint32_t head_size);

/// Writes k and v as row `position` of the caches.
void store_body(Block block, In<float> k, In<float> v, In<std::int32_t> position,
                Update<float> key_cache, Update<float> value_cache);

/// out = softmax(q K / sqrt(head_size)) V for each head, over the rows up to `position`.
void attention_body(Block block, In<float> q, In<float> key_cache, In<float> value_cache,
                    In<std::int32_t> position, Update<float> scores, Out<float> out,
                    AttentionShape shape);

/// gate = silu(gate) * up.
void swiglu_body(Block block, InOut<float> gate, In<float> up);

/// Steps to the next position. Its token is the prompt's, or the likeliest after the prompt.
void pick_body(Block block, In<float> logits, In<std::int32_t> prompt, InOut<std::int32_t> position,
               Out<std::int32_t> token);

inline const Op embed{"embed", embed_body};
inline const Op rmsnorm{"rmsnorm", rmsnorm_body};
inline const Op matmul{"matmul", matmul_body};
inline const Op matmul_add{"matmul_add", matmul_add_body};
inline const Op rope{"rope", rope_body};
inline const Op store{"store", store_body};
inline const Op attention{"attention", attention_body};
inline const Op swiglu{"swiglu", swiglu_body};
inline const Op pick{"pick", pick_body};

/// The index of the largest value, the first of equal ones.
std::int32_t likeliest(In<float> logits);

}  // namespace decode_loop

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <decode_loop/kernels.hpp>
#include <decode_loop/model.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace decode_loop {

template <class Floats>
struct LayerTensors {
  Floats rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3;
  Floats key_cache, value_cache;
};

/// Everything that a token step touches. `Floats` and `Ints` are arrays of a device, or spans.
template <class Floats, class Ints>
struct Tensors {
  Floats embedding, rms_final, classifier, rope;
  std::vector<LayerTensors<Floats>> layers;
  Floats stream;    ///< The residual stream.
  Floats normed;    ///< Its normalised form.
  Floats q, k, v;   ///< Of the current position.
  Floats scores;    ///< Scratch of attention.
  Floats attended;  ///< What attention found.
  Floats gate, up;  ///< Inside the feed-forward part.
  Floats logits;
  Ints position, token;  ///< One element each: what the step reads first.
};

/// Part of a device's array, or of a span.
template <class Array>
Array part_of(const Array& array, TensorSlice part) {
  if constexpr (requires { array.slice(part.offset, part.count); }) {
    return array.slice(part.offset, part.count);
  } else {
    return array.subspan(part.offset, part.count);
  }
}

/// Makes the tensors of `model`. `Memory` is a reprise::Client or examples::PlainMemory.
template <class Memory>
auto make_tensors(Memory& memory, const Model& model, std::uint32_t positions) {
  using Floats = decltype(memory.template zeros<float>(1));
  using Ints = decltype(memory.template zeros<std::int32_t>(1));
  const ModelConfig& config = model.config;
  const auto create = [&](const std::vector<float>& source) {
    return memory.template create<float>(std::span<const float>(source));
  };
  const auto scratch = [&](std::size_t n) { return memory.template empty<float>(n); };
  const auto cache = [&] {
    return memory.template zeros<float>(std::size_t{positions} * config.kv_dim());
  };
  const Floats weights = create(model.weights);
  const auto part = [&](TensorSlice at) { return part_of(weights, at); };

  Tensors<Floats, Ints> t;
  t.embedding = part(model.layout.embedding);
  t.rms_final = part(model.layout.rms_final);
  t.classifier = part(model.layout.classifier);
  t.rope = create(model.rope_table(positions));
  for (const LayerLayout& layer : model.layout.layers) {
    t.layers.push_back({part(layer.rms_att), part(layer.wq), part(layer.wk), part(layer.wv),
                        part(layer.wo), part(layer.rms_ffn), part(layer.w1), part(layer.w2),
                        part(layer.w3), cache(), cache()});
  }
  t.stream = scratch(config.dim);
  t.normed = scratch(config.dim);
  t.q = scratch(config.dim);
  t.k = scratch(config.kv_dim());
  t.v = scratch(config.kv_dim());
  t.scores = scratch(std::size_t{config.heads} * positions);
  t.attended = scratch(config.dim);
  t.gate = scratch(config.hidden_dim);
  t.up = scratch(config.hidden_dim);
  t.logits = scratch(config.vocab_size);
  t.position = memory.template zeros<std::int32_t>(1);
  t.token = memory.template zeros<std::int32_t>(1);
  return t;
}

/// The same, seen by a step that knows the first `positions` only.
template <class Floats, class Ints>
Tensors<Floats, Ints> first_positions(Tensors<Floats, Ints> t, const ModelConfig& config,
                                      std::uint32_t positions) {
  const auto rows = [positions](const Floats& all, std::size_t row_size) {
    return part_of(all, {0, positions * row_size});
  };
  t.rope = rows(t.rope, config.head_size());
  t.scores = rows(t.scores, config.heads);
  for (LayerTensors<Floats>& layer : t.layers) {
    layer.key_cache = rows(layer.key_cache, config.kv_dim());
    layer.value_cache = rows(layer.value_cache, config.kv_dim());
  }
  return t;
}

/// One token through the model: 68 launches for five layers. `launch(op, items, arguments...)`
/// runs `op` over that many items.
template <class Launch, class Floats, class Ints>
void token_step(const Launch& launch, const ModelConfig& config, std::uint32_t positions,
                const Tensors<Floats, Ints>& t) {
  const AttentionShape shape{config.heads, config.kv_heads, config.head_size(), positions};
  launch(embed, config.dim, t.embedding, t.token, t.stream);
  for (const LayerTensors<Floats>& layer : t.layers) {
    launch(rmsnorm, config.dim, t.stream, layer.rms_att, t.normed);
    launch(matmul, config.dim, t.normed, layer.wq, t.q);
    launch(matmul, config.kv_dim(), t.normed, layer.wk, t.k);
    launch(matmul, config.kv_dim(), t.normed, layer.wv, t.v);
    launch(rope, config.dim / 2, t.rope, t.position, t.q, t.k, config.head_size());
    launch(store, config.kv_dim(), t.k, t.v, t.position, layer.key_cache, layer.value_cache);
    launch(attention, config.heads, t.q, layer.key_cache, layer.value_cache, t.position, t.scores,
           t.attended, shape);
    launch(matmul_add, config.dim, t.attended, layer.wo, t.stream);

    launch(rmsnorm, config.dim, t.stream, layer.rms_ffn, t.normed);
    launch(matmul, config.hidden_dim, t.normed, layer.w1, t.gate);
    launch(matmul, config.hidden_dim, t.normed, layer.w3, t.up);
    launch(swiglu, config.hidden_dim, t.gate, t.up);
    launch(matmul_add, config.dim, t.gate, layer.w2, t.stream);
  }
  launch(rmsnorm, config.dim, t.stream, t.rms_final, t.normed);
  launch(matmul, config.vocab_size, t.normed, t.classifier, t.logits);
}

}  // namespace decode_loop

// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/kernels.hpp>

#include <support/vector_math.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace decode_loop {

namespace {

using examples::add_weighted_rows;
using examples::dot;

// A body that throws fails its launch, so a wrong index cannot touch memory of others.
std::size_t row_of(std::int32_t index, std::size_t rows, const char* what) {
  if (index < 0 || static_cast<std::size_t>(index) >= rows) {
    throw std::out_of_range(std::string(what) + " is " + std::to_string(index) + " of " +
                            std::to_string(rows));
  }
  return static_cast<std::size_t>(index);
}

// Turns `n` scores into weights that add up to one.
void softmax(float* scores, std::size_t n) {
  const float max = *std::max_element(scores, scores + n);
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    scores[i] = std::exp(scores[i] - max);
    sum += scores[i];
  }
  for (std::size_t i = 0; i < n; ++i) scores[i] /= sum;
}

void rotate(float* pair, float cosine, float sine) {
  const float first = pair[0];
  const float second = pair[1];
  pair[0] = first * cosine - second * sine;
  pair[1] = first * sine + second * cosine;
}

}  // namespace

void embed_body(Block block, In<float> table, In<std::int32_t> token, Out<float> out) {
  const std::size_t dim = out.size();
  const std::size_t row = row_of(token[0], table.size() / dim, "token");
  for (const std::size_t i : block.range(dim)) out[i] = table[row * dim + i];
}

void rmsnorm_body(Block block, In<float> x, In<float> weight, Out<float> out) {
  const float mean = dot(x.data(), x.data(), x.size()) / static_cast<float>(x.size());
  const float scale = 1.0F / std::sqrt(mean + 1e-5F);
  for (const std::size_t i : block.range(out.size())) out[i] = weight[i] * (scale * x[i]);
}

void matmul_body(Block block, In<float> x, In<float> w, Out<float> out) {
  const std::size_t n = x.size();
  for (const std::size_t row : block.range(out.size())) {
    out[row] = dot(w.data() + row * n, x.data(), n);
  }
}

void matmul_add_body(Block block, In<float> x, In<float> w, InOut<float> out) {
  const std::size_t n = x.size();
  for (const std::size_t row : block.range(out.size())) {
    out[row] += dot(w.data() + row * n, x.data(), n);
  }
}

void rope_body(Block block, In<float> table, In<std::int32_t> position, InOut<float> q,
               InOut<float> k, std::uint32_t head_size) {
  const std::size_t row = row_of(position[0], table.size() / head_size, "position");
  const float* angles = table.data() + row * head_size;
  for (const std::size_t i : block.range(q.size() / 2)) {
    const std::size_t at = 2 * i;
    const float* angle = angles + at % head_size;
    rotate(q.data() + at, angle[0], angle[1]);
    if (at < k.size()) rotate(k.data() + at, angle[0], angle[1]);
  }
}

void store_body(Block block, In<float> k, In<float> v, In<std::int32_t> position,
                Update<float> key_cache, Update<float> value_cache) {
  const std::size_t dim = k.size();
  const std::size_t row = row_of(position[0], key_cache.size() / dim, "position");
  for (const std::size_t i : block.range(dim)) {
    key_cache[row * dim + i] = k[i];
    value_cache[row * dim + i] = v[i];
  }
}

void attention_body(Block block, In<float> q, In<float> key_cache, In<float> value_cache,
                    In<std::int32_t> position, Update<float> scores, Out<float> out,
                    AttentionShape shape) {
  const std::size_t size = shape.head_size;
  const std::size_t row_size = std::size_t{shape.kv_heads} * size;
  const std::size_t rows = row_of(position[0], shape.positions, "position") + 1;
  const float root = std::sqrt(static_cast<float>(size));

  for (const std::size_t head : block.range(shape.heads)) {
    const std::size_t kv_offset = head / (shape.heads / shape.kv_heads) * size;
    const float* query = q.data() + head * size;
    float* score = scores.data() + head * shape.positions;
    for (std::size_t row = 0; row < rows; ++row) {
      score[row] = dot(query, key_cache.data() + row * row_size + kv_offset, size) / root;
    }
    softmax(score, rows);
    float* result = out.data() + head * size;
    std::fill_n(result, size, 0.0F);
    add_weighted_rows({score, 1}, {value_cache.data() + kv_offset, row_size}, rows, result, size);
  }
}

void swiglu_body(Block block, InOut<float> gate, In<float> up) {
  for (const std::size_t i : block.range(gate.size())) {
    gate[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  }
}

void pick_body(Block, In<float> logits, In<std::int32_t> prompt, InOut<std::int32_t> position,
               Out<std::int32_t> token) {
  position[0] += 1;
  const auto at = static_cast<std::size_t>(position[0]);
  token[0] = at < prompt.size() ? prompt[at] : likeliest(logits);
}

std::int32_t likeliest(In<float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace decode_loop

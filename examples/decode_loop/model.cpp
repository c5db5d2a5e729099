// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/model.hpp>

#include <support/read_file.hpp>

#include <reprise/memory/error.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

namespace decode_loop {

namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little endian");
static_assert(sizeof(float) == 4);

constexpr std::uint64_t max_file_bytes = std::uint64_t{4} << 30;
constexpr std::size_t header_fields = 7;
constexpr std::size_t header_bytes = header_fields * sizeof(std::int32_t);

// Limits keep every product of fields far below 2^64.
constexpr std::int64_t max_width = 1 << 16;
constexpr std::int64_t max_layers = 1 << 10;
constexpr std::int64_t max_vocab = 1 << 20;
constexpr std::int64_t max_positions = 1 << 20;

[[noreturn]] void fail(std::string_view name, const std::string& what) {
  throw reprise::Failure(reprise::Errc::bad_format, "load_model", std::string(name) + ": " + what);
}

std::uint32_t checked(std::string_view name, const char* field, std::int64_t value,
                      std::int64_t max) {
  if (value < 1 || value > max) {
    fail(name, std::string(field) + " is " + std::to_string(value) + ", expected 1 to " +
                   std::to_string(max));
  }
  return static_cast<std::uint32_t>(value);
}

void check_divides(std::string_view name, const char* field, std::uint32_t divisor,
                   const char* whole_field, std::uint32_t whole) {
  if (whole % divisor != 0) {
    fail(name, std::string(field) + " is " + std::to_string(divisor) + ", which does not divide " +
                   whole_field + " " + std::to_string(whole));
  }
}

ModelConfig parse_header(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < header_bytes) {
    fail(name, "file size is " + std::to_string(bytes.size()) + " bytes, the header alone takes " +
                   std::to_string(header_bytes));
  }
  std::array<std::int32_t, header_fields> field{};
  std::memcpy(field.data(), bytes.data(), header_bytes);

  ModelConfig config;
  config.dim = checked(name, "dim", field[0], max_width);
  config.hidden_dim = checked(name, "hidden_dim", field[1], max_width);
  config.layers = checked(name, "n_layers", field[2], max_layers);
  config.heads = checked(name, "n_heads", field[3], max_width);
  config.kv_heads = checked(name, "n_kv_heads", field[4], max_width);
  // The sign of the vocabulary size says whether the classifier is stored apart.
  config.shared_classifier = field[5] > 0;
  if (field[5] < -max_vocab || field[5] > max_vocab || field[5] == 0) {
    fail(name, "vocab_size is " + std::to_string(field[5]) + ", expected 1 to " +
                   std::to_string(max_vocab) + ", or its negative");
  }
  config.vocab_size = static_cast<std::uint32_t>(std::abs(field[5]));
  config.seq_len = checked(name, "seq_len", field[6], max_positions);

  check_divides(name, "n_heads", config.heads, "dim", config.dim);
  check_divides(name, "n_kv_heads", config.kv_heads, "n_heads", config.heads);
  if (config.head_size() % 2 != 0) {
    fail(name, "head size (dim / n_heads) is " + std::to_string(config.head_size()) +
                   ", expected an even number");
  }
  return config;
}

// Hands out consecutive parts of the weights in the order of the file.
class Cursor {
public:
  TensorSlice take(std::uint64_t count) {
    const TensorSlice slice{next_, count};
    next_ += count;
    return slice;
  }
  std::uint64_t next() const { return next_; }

private:
  std::uint64_t next_ = 0;
};

ModelLayout make_layout(const ModelConfig& config, Cursor& cursor) {
  const std::uint64_t dim = config.dim;
  const std::uint64_t hidden = config.hidden_dim;
  const std::uint64_t kv_dim = config.kv_dim();

  ModelLayout layout;
  layout.layers.resize(config.layers);
  const auto take_all = [&](TensorSlice LayerLayout::*tensor, std::uint64_t count) {
    for (LayerLayout& layer : layout.layers) layer.*tensor = cursor.take(count);
  };
  layout.embedding = cursor.take(config.vocab_size * dim);
  take_all(&LayerLayout::rms_att, dim);
  take_all(&LayerLayout::wq, dim * dim);
  take_all(&LayerLayout::wk, kv_dim * dim);
  take_all(&LayerLayout::wv, kv_dim * dim);
  take_all(&LayerLayout::wo, dim * dim);
  take_all(&LayerLayout::rms_ffn, dim);
  take_all(&LayerLayout::w1, hidden * dim);
  take_all(&LayerLayout::w2, dim * hidden);
  take_all(&LayerLayout::w3, hidden * dim);
  layout.rms_final = cursor.take(dim);
  return layout;
}

void check_finite(std::span<const float> weights, std::string_view name) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i])) {
      fail(name,
           "weight " + std::to_string(i) + " is " + std::to_string(weights[i]) + ", not finite");
    }
  }
}

}  // namespace

std::vector<float> Model::rope_table(std::uint32_t positions) const {
  const std::uint32_t head_size = config.head_size();
  std::vector<float> table;
  table.reserve(std::size_t{positions} * head_size);
  for (std::uint32_t position = 0; position < positions; ++position) {
    for (std::uint32_t i = 0; i < head_size; i += 2) {
      const float frequency =
          1.0F / std::pow(10000.0F, static_cast<float>(i) / static_cast<float>(head_size));
      const float angle = static_cast<float>(position) * frequency;
      table.push_back(std::cos(angle));
      table.push_back(std::sin(angle));
    }
  }
  return table;
}

Model parse_model(std::span<const std::byte> bytes, std::string_view name) {
  Model model;
  model.config = parse_header(bytes, name);

  Cursor cursor;
  // Layers are at most 1,024, so the layout is small whatever the header says.
  model.layout = make_layout(model.config, cursor);
  const std::uint64_t before_tables = cursor.next();
  // Two rotary tables that no reader uses any more; they are skipped.
  const std::uint64_t tables = std::uint64_t{model.config.seq_len} * model.config.head_size();
  const bool shared = model.config.shared_classifier;
  model.layout.classifier =
      shared ? model.layout.embedding
             : cursor.take(std::uint64_t{model.config.vocab_size} * model.config.dim);

  const std::uint64_t expected = header_bytes + (cursor.next() + tables) * sizeof(float);
  if (bytes.size() != expected) {
    fail(name, "file size is " + std::to_string(bytes.size()) + " bytes, the header asks for " +
                   std::to_string(expected));
  }
  model.weights.resize(cursor.next());
  const std::byte* source = bytes.data() + header_bytes;
  std::memcpy(model.weights.data(), source, before_tables * sizeof(float));
  if (!shared) {
    std::memcpy(model.weights.data() + before_tables,
                source + (before_tables + tables) * sizeof(float),
                model.layout.classifier.count * sizeof(float));
  }
  check_finite(model.weights, name);
  return model;
}

Model load_model(const std::filesystem::path& path) {
  return parse_model(examples::read_file(path, max_file_bytes), path.string());
}

}  // namespace decode_loop

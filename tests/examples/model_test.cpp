// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/model.hpp>

#include <reprise/memory/error.hpp>

#include <examples/tiny_model.hpp>

#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <fstream>
#include <iostream>
#include <limits>
#include <span>

using namespace decode_loop;
using namespace reprise::test;
using reprise::Errc;
using reprise::Failure;

namespace {

// What parsing answers: the failure's text, or nothing.
std::string complaint(std::span<const std::byte> bytes) {
  try {
    parse_model(bytes, "tiny.bin");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::bad_format);
    return failure.record().message;
  }
  return {};
}

std::string complaint(const ModelHeader& header) {
  std::vector<std::byte> bytes = model_bytes();
  std::memcpy(bytes.data(), header.data(), sizeof header);
  return complaint(bytes);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a checkpoint is read with every tensor in its place", "[examples]") {
  const auto bytes = model_bytes();
  const Model model = parse_model(bytes, "tiny.bin");
  const ModelConfig& config = model.config;
  CHECK(config.dim == 8);
  CHECK(config.hidden_dim == 12);
  CHECK(config.layers == 2);
  CHECK(config.heads == 4);
  CHECK(config.kv_heads == 2);
  CHECK(config.vocab_size == 270);
  CHECK(config.seq_len == 32);
  CHECK(config.shared_classifier);
  CHECK(config.head_size() == 2);
  CHECK(config.kv_dim() == 4);

  const ModelLayout& layout = model.layout;
  CHECK(layout.embedding.offset == 0);
  CHECK(layout.embedding.count == 270 * 8);
  CHECK(layout.classifier.offset == 0);
  REQUIRE(layout.layers.size() == 2);
  // Tensors of one kind lie together, layer by layer.
  CHECK(layout.layers[0].rms_att.offset == 270 * 8);
  CHECK(layout.layers[1].rms_att.offset == 270 * 8 + 8);
  CHECK(layout.layers[0].wq.offset == 270 * 8 + 16);
  CHECK(layout.layers[1].wk.offset == layout.layers[0].wk.offset + 4 * 8);
  CHECK(layout.layers[1].w3.offset + 12 * 8 == layout.rms_final.offset);
  CHECK(layout.rms_final.offset + 8 == model.weights.size());

  float at_final = 0;
  std::memcpy(&at_final, bytes.data() + 28 + 4 * layout.rms_final.offset, sizeof at_final);
  CHECK(model.weights[layout.rms_final.offset] == at_final);
}

TEST_CASE("a negative vocabulary size means a classifier of its own after the tables",
          "[examples]") {
  ModelHeader header = tiny_header;
  header[5] = -270;
  const auto bytes = model_bytes(header);
  const Model model = parse_model(bytes, "tiny.bin");
  CHECK_FALSE(model.config.shared_classifier);
  CHECK(model.config.vocab_size == 270);
  CHECK(model.layout.classifier.offset == model.layout.rms_final.offset + 8);
  CHECK(model.layout.classifier.count == 270 * 8);
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, sizeof last);
  CHECK(model.weights.back() == last);
}

TEST_CASE("a header field out of its limits is refused by name and value", "[examples]") {
  const std::int32_t least = std::numeric_limits<std::int32_t>::min();
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  for (std::size_t field = 0; field < header_names.size(); ++field) {
    for (const std::int32_t value : {0, least, most, (1 << 20) + 1}) {
      ModelHeader header = tiny_header;
      header[field] = value;
      const std::string text = complaint(header);
      CAPTURE(header_names[field], value, text);
      CHECK(contains(text, "tiny.bin: "));
      CHECK(contains(text, std::string(header_names[field]) + " is " + std::to_string(value)));
    }
    if (field == 5) continue;
    ModelHeader header = tiny_header;
    header[field] = -header[field];
    CHECK(contains(complaint(header), header_names[field]));
  }
}

TEST_CASE("header fields that contradict each other are refused", "[examples]") {
  CHECK(contains(complaint(ModelHeader{8, 12, 2, 3, 1, 270, 32}), "n_heads is 3"));
  CHECK(contains(complaint(ModelHeader{8, 12, 2, 4, 3, 270, 32}), "n_kv_heads is 3"));
  CHECK(contains(complaint(ModelHeader{8, 12, 2, 2, 4, 270, 32}), "n_kv_heads is 4"));
  CHECK(contains(complaint(ModelHeader{8, 12, 2, 8, 2, 270, 32}), "head size"));
}

TEST_CASE("every field must fit the size of the file", "[examples]") {
  for (std::size_t field = 0; field < header_names.size(); ++field) {
    ModelHeader header = tiny_header;
    // Legal for each field, heads included, but for another file.
    header[field] = field == 3 ? 2 : field == 4 ? 4 : header[field] * 2;
    CAPTURE(header_names[field]);
    CHECK(contains(complaint(header), "file size is"));
  }
  // Asks for terabytes: answered before any of it is taken.
  const ModelHeader huge{65536, 65536, 1024, 1, 1, -(1 << 20), 1 << 20};
  CHECK(contains(complaint(huge), "file size is"));
}

TEST_CASE("a checkpoint that is cut anywhere is refused", "[examples]") {
  const auto bytes = model_bytes();
  for (std::size_t size = 0; size < bytes.size(); size += size < 64 ? 1 : 37) {
    CAPTURE(size);
    const std::string text = complaint(std::span(bytes).first(size));
    CHECK(contains(text, "file size is " + std::to_string(size)));
  }
  auto longer = bytes;
  longer.push_back({});
  CHECK(contains(complaint(longer), "file size is"));
  CHECK(complaint(bytes).empty());
}

TEST_CASE("a weight that is no finite number is refused with its place", "[examples]") {
  auto bytes = model_bytes();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::memcpy(bytes.data() + 28 + 4 * 123, &bad, sizeof bad);
    CHECK(contains(complaint(bytes), "weight 123 is"));
  }
}

TEST_CASE("a checkpoint with random damage is read or refused", "[examples]") {
  CAPTURE(seed());
  std::mt19937_64 random(seed());
  const auto bytes = model_bytes();
  std::size_t refused = 0;
  for (int round = 0; round < 2000; ++round) {
    auto damaged = bytes;
    for (int i = 0; i < 3; ++i) {
      const std::size_t reach = random() % 2 == 0 ? 28 : damaged.size();
      damaged[random() % reach] = static_cast<std::byte>(random());
    }
    refused += complaint(damaged).empty() ? 0 : 1;
  }
  CHECK(refused > 500);
}

TEST_CASE("files that cannot be read as a checkpoint say which and why", "[examples]") {
  const auto code_of = [](const std::filesystem::path& path) {
    try {
      load_model(path);
    } catch (const Failure& failure) {
      CHECK(contains(failure.record().message, path.string()));
      return failure.errc();
    }
    return Errc::unsupported;
  };
  const auto folder = std::filesystem::temp_directory_path();
  CHECK(code_of(folder / "reprise-no-such-file.bin") == Errc::io_error);
  CHECK(code_of(folder) == Errc::io_error);
  CHECK(code_of("/dev/zero") == Errc::io_error);
}

TEST_CASE("a rotary table begins with no turn and turns the first pair by one radian a step",
          "[examples]") {
  const Model model = parse_model(model_bytes(), "tiny.bin");
  const std::vector<float> table = model.rope_table(3);
  REQUIRE(table.size() == 3 * 2);
  CHECK(table[0] == 1.0F);
  CHECK(table[1] == 0.0F);
  CHECK(table[4] == std::cos(2.0F));
  CHECK(table[5] == std::sin(2.0F));
}

TEST_CASE("the real checkpoint has the shape that it is known for", "[examples][model]") {
  const auto data = test_data();
  if (!data) {
    std::cout << "skipped: REPRISE_TEST_DATA is unset\n";
    SUCCEED();
    return;
  }
  const Model model = load_model(*data / "stories260K.bin");
  CHECK(model.config.dim == 64);
  CHECK(model.config.layers == 5);
  CHECK(model.config.kv_dim() == 32);
  CHECK(model.config.vocab_size == 512);
  CHECK(model.config.shared_classifier);
}

// SPDX-License-Identifier: Apache-2.0
#include <support/svg_plot.hpp>

#include <reprise/memory/error.hpp>

#include <support/progress.hpp>
#include <support/read_file.hpp>
#include <support/vector_math.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

using namespace examples;
using reprise::Errc;
using reprise::Failure;

namespace {

std::string svg_of(const std::vector<float>& values) {
  return render_svg({"A < B & C", "step", "loss", values});
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A folder of its own that goes when the test ends.
class Folder {
public:
  Folder() : path_(std::filesystem::temp_directory_path() / "reprise-support-test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a plot is a whole picture whatever the values are", "[examples]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const float least = std::numeric_limits<float>::denorm_min();
  const float most = std::numeric_limits<float>::max();
  const std::vector<std::vector<float>> all{{},
                                            {1},
                                            {0},
                                            {nan},
                                            {5, 5, 5},
                                            {-1, 0, nan},
                                            {1, nan, 2, infinity, 3},
                                            {least, most},
                                            std::vector<float>(5000, 0.25F)};
  for (const auto& values : all) {
    const std::string svg = svg_of(values);
    CAPTURE(values.size(), svg.substr(svg.size() - std::min<std::size_t>(svg.size(), 600)));
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(count_of(svg, "nan") == 0);
    CHECK(count_of(svg, "inf") == 0);
    CHECK(svg.size() < 100'000);
  }
}

TEST_CASE("a plot escapes its words and follows a dark scheme", "[examples]") {
  const std::string svg = svg_of({3, 2, 1});
  CHECK(count_of(svg, "A &lt; B &amp; C") == 2);
  CHECK(count_of(svg, "prefers-color-scheme: dark") == 1);
  CHECK(count_of(svg, ">loss</text>") == 1);
  CHECK(count_of(svg, ">step</text>") == 1);
}

TEST_CASE("a lower value is drawn lower and a later one further right", "[examples]") {
  const std::string svg = svg_of({10, 1, 0.1F});
  // The axes run from the first decade to the last, the steps from 0 to 2.
  CHECK(count_of(svg, "d=\"M80.0 56.0L428.0 223.0L776.0 390.0\"") == 2);
}

TEST_CASE("a picture goes to a folder that is made for it and unwritable places are named",
          "[examples]") {
  const Folder folder;
  const auto path = folder.path() / "deep" / "er" / "plot.svg";
  ensure_writable(path);
  write_text(path, "one");
  write_text(path, "two");
  ensure_writable(path);
  std::ifstream file(path);
  std::string text;
  file >> text;
  CHECK(text == "two");

  for (const std::filesystem::path& bad :
       {folder.path(), path / "below-a-file.svg", std::filesystem::path("/dev/full")}) {
    CAPTURE(bad);
    try {
      ensure_writable(bad);
      write_text(bad, "text");
      FAIL("it was written");
    } catch (const Failure& failure) {
      CHECK(failure.errc() == Errc::io_error);
      CHECK(failure.record().message.find(bad.string()) != std::string::npos);
    }
  }
}

TEST_CASE("a file is read whole up to the limit and not past it", "[examples]") {
  const Folder folder;
  const auto path = folder.path() / "bytes";
  write_text(path, "12345");
  CHECK(read_file(path, 5).size() == 5);
  CHECK(read_file(path, 5)[4] == std::byte{'5'});
  try {
    read_file(path, 4);
    FAIL("it was read");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::io_error);
    CHECK(failure.record().message.find("file size is 5 bytes") != std::string::npos);
  }
}

TEST_CASE("progress off a terminal is one line for each tenth", "[examples]") {
  std::ostringstream out;
  {
    Progress progress(out, false, "training", 1000);
    for (std::uint64_t i = 1; i <= 1000; ++i) progress.update(i, "loss 1");
    progress.update(5000);
  }
  CHECK(count_of(out.str(), "\n") == 10);
  CHECK(out.str().starts_with("training 10 %  loss 1\n"));
  CHECK(count_of(out.str(), "training 100 %") == 1);
  CHECK(count_of(out.str(), "\r") == 0);
}

TEST_CASE("progress on a terminal is drawn over and ends its line", "[examples]") {
  std::ostringstream out;
  {
    Progress progress(out, true, "training", 10);
    progress.update(5, "a long note");
    progress.update(10, "short");
  }
  const std::string text = out.str();
  CHECK(count_of(text, "\r") == 2);
  CHECK(count_of(text, "\n") == 1);
  CHECK(text.ends_with("short      \n"));
  CHECK(count_of(text, std::string(30, '#')) == 1);
}

TEST_CASE("weighted rows add up in the same order for every width", "[examples]") {
  const std::size_t count = 5;
  std::vector<float> weights{0.1F, 0.7F, -3, 1e6F, -1e6F};
  for (const std::size_t size : {1U, 2U, 7U, 8U, 31U, 32U, 75U}) {
    std::vector<float> rows(count * size);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = 0.3F + 0.01F * static_cast<float>(i);
    std::vector<float> sums(size, 0.5F);
    add_weighted_rows({weights.data(), 1}, {rows.data(), size}, count, sums.data(), size);
    for (std::size_t i = 0; i < size; ++i) {
      float expected = 0.5F;
      for (std::size_t k = 0; k < count; ++k) expected += weights[k] * rows[k * size + i];
      CHECK(sums[i] == expected);
    }
  }
}

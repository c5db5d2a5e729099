// SPDX-License-Identifier: Apache-2.0
#include <support/svg_plot.hpp>

#include <reprise/memory/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

namespace examples {

namespace {

constexpr double width = 800;
constexpr double height = 450;
constexpr double left = 80;
constexpr double right = 24;
constexpr double top = 56;
constexpr double bottom = 60;
constexpr std::size_t max_points = 1000;

constexpr std::string_view style = R"(<style>
  .paper { fill: #ffffff }
  .grid { stroke: #e3e5e8 }
  .axis { stroke: #6b7280 }
  .values { stroke: #9db8e8; stroke-width: 1 }
  .mean { stroke: #1d4ed8; stroke-width: 2.5 }
  .curve { fill: none; stroke-linejoin: round }
  text { fill: #1f2937; font: 14px sans-serif }
  .title { font-size: 18px; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #14171c }
    .grid { stroke: #2c323b }
    .axis { stroke: #8b95a3 }
    .values { stroke: #38548a }
    .mean { stroke: #8ab4ff }
    text { fill: #e5e9f0 }
  }
</style>
)";

bool is_drawn(float value) {
  return std::isfinite(value) && value > 0;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// Where steps and values lie on the paper.
class Scale {
public:
  explicit Scale(std::span<const float> values)
      : steps_(static_cast<double>(std::max<std::size_t>(values.size(), 2) - 1)) {
    std::optional<float> low;
    std::optional<float> high;
    for (const float value : values) {
      if (!is_drawn(value)) continue;
      low = std::min(low.value_or(value), value);
      high = std::max(high.value_or(value), value);
    }
    first_decade_ = static_cast<int>(std::floor(std::log10(low.value_or(1))));
    last_decade_ = static_cast<int>(std::ceil(std::log10(high.value_or(1))));
    if (last_decade_ == first_decade_) ++last_decade_;
  }

  double x(double step) const { return left + step / steps_ * (width - left - right); }
  double y(double value) const {
    const double part = (std::log10(value) - first_decade_) / (last_decade_ - first_decade_);
    return height - bottom - part * (height - top - bottom);
  }
  double steps() const { return steps_; }
  int first_decade() const { return first_decade_; }
  int last_decade() const { return last_decade_; }

private:
  double steps_;
  int first_decade_;
  int last_decade_;
};

// Some 5 to 10 round numbers from 0 to `max`.
double tick_distance(double max) {
  const double decade = std::pow(10, std::floor(std::log10(max)));
  for (const double factor : {0.1, 0.2, 0.5, 1.0}) {
    if (max / (decade * factor) <= 10) return std::max(1.0, decade * factor);
  }
  return std::max(1.0, decade);
}

std::string power_of_ten(int exponent) {
  if (exponent < -6 || exponent > 6) return "1e" + std::to_string(exponent);
  std::ostringstream out;
  out << std::fixed << std::setprecision(std::max(0, -exponent)) << std::pow(10, exponent);
  return out.str();
}

void line(std::ostream& out, const char* kind, double x1, double y1, double x2, double y2) {
  out << "<line class=\"" << kind << "\" x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2
      << "\" y2=\"" << y2 << "\"/>\n";
}

void text(std::ostream& out, double x, double y, const char* attributes, std::string_view words) {
  out << "<text x=\"" << x << "\" y=\"" << y << "\" " << attributes << '>' << escaped(words)
      << "</text>\n";
}

void draw_axes(std::ostream& out, const Scale& scale) {
  const double floor = height - bottom;
  const int decades = scale.last_decade() - scale.first_decade();
  for (int decade = scale.first_decade(); decade <= scale.last_decade();
       decade += 1 + decades / 10) {
    const double y = scale.y(std::pow(10, decade));
    line(out, "grid", left, y, width - right, y);
    text(out, left - 10, y + 5, "text-anchor=\"end\"", power_of_ten(decade));
  }
  const double distance = tick_distance(scale.steps());
  for (double step = 0; step <= scale.steps(); step += distance) {
    const double x = scale.x(step);
    line(out, "axis", x, floor, x, floor + 6);
    text(out, x, floor + 24, "text-anchor=\"middle\"",
         std::to_string(static_cast<std::uint64_t>(step)));
  }
  line(out, "axis", left, floor, width - right, floor);
  line(out, "axis", left, top, left, floor);
}

void draw_words(std::ostream& out, const CurvePlot& plot) {
  const double middle = (top + height - bottom) / 2;
  text(out, left, 32, "class=\"title\"", plot.title);
  text(out, (left + width - right) / 2, height - 12, "text-anchor=\"middle\"", plot.x_label);
  const std::string turned =
      "text-anchor=\"middle\" transform=\"rotate(-90 20 " + std::to_string(middle) + ")\"";
  text(out, 20, middle, turned.c_str(), plot.y_label);
  line(out, "values", width - 180, top + 16, width - 150, top + 16);
  text(out, width - 140, top + 21, "", "each step");
  line(out, "mean", width - 180, top + 38, width - 150, top + 38);
  text(out, width - 140, top + 43, "", "running mean");
}

// A line through `values`, of which every `stride`-th is drawn; gaps break it.
void draw_curve(std::ostream& out, const Scale& scale, const char* kind,
                std::span<const float> values) {
  const std::size_t stride = values.size() / max_points + 1;
  out << "<path class=\"curve " << kind << "\" d=\"";
  char command = 'M';
  for (std::size_t i = 0; i < values.size(); i += stride) {
    if (!is_drawn(values[i])) {
      command = 'M';
      continue;
    }
    out << command << scale.x(static_cast<double>(i)) << ' ' << scale.y(values[i]);
    command = 'L';
  }
  out << "\"/>\n";
}

// The geometric mean of each value and its neighbours on both sides.
std::vector<float> running_mean(std::span<const float> values) {
  const std::size_t reach = values.size() / 100;
  // Sums and counts of all logarithms before an index.
  std::vector<double> sums{0};
  std::vector<std::size_t> counts{0};
  for (const float value : values) {
    sums.push_back(sums.back() + (is_drawn(value) ? std::log(value) : 0));
    counts.push_back(counts.back() + (is_drawn(value) ? 1 : 0));
  }
  std::vector<float> means;
  means.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t begin = i - std::min(i, reach);
    const std::size_t end = std::min(i + reach + 1, values.size());
    const auto count = static_cast<double>(counts[end] - counts[begin]);
    means.push_back(count > 0 ? static_cast<float>(std::exp((sums[end] - sums[begin]) / count))
                              : 0);
  }
  return means;
}

[[noreturn]] void fail(const std::filesystem::path& path) {
  const int code = errno;
  throw reprise::Failure(reprise::Errc::io_error, "write",
                         path.string() + ": " + std::generic_category().message(code));
}

}  // namespace

std::string render_svg(const CurvePlot& plot) {
  const Scale scale(plot.values);
  std::ostringstream out;
  out << std::fixed << std::setprecision(1);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 " << width << ' '
      << height << "\">\n<title>" << escaped(plot.title) << "</title>\n"
      << style << "<rect class=\"paper\" width=\"" << width << "\" height=\"" << height << "\"/>\n";
  draw_axes(out, scale);
  draw_curve(out, scale, "values", plot.values);
  draw_curve(out, scale, "mean", running_mean(plot.values));
  draw_words(out, plot);
  out << "</svg>\n";
  return out.str();
}

void ensure_writable(const std::filesystem::path& path) {
  if (path.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) {
      errno = error.value();
      fail(path);
    }
  }
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) fail(path);
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) fail(path);
}

}  // namespace examples

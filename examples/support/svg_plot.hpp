// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace examples {

/// A curve of one value for each step, drawn on a logarithmic scale.
struct CurvePlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::span<const float> values;  ///< Values that are not positive numbers leave gaps.
};

/// The plot as a complete SVG file: the values, their running mean, axes and labels, in colours
/// that follow the viewer's light or dark scheme.
std::string render_svg(const CurvePlot& plot);

/// Makes sure, before long work, that `path` can be written: creates its folder, and the file if
/// there is none.
///
/// Errors  Failure with Errc::io_error, naming the file.
void ensure_writable(const std::filesystem::path& path);

/// Replaces the file's content.
///
/// Errors  Failure with Errc::io_error, naming the file.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace examples

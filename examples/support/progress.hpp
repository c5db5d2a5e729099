// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace examples {

/// A line that says how far a long operation is: drawn over on a terminal, and one line for each
/// tenth elsewhere.
class Progress {
public:
  /// `total` is at least 1.
  Progress(std::ostream& out, bool is_terminal, std::string label, std::uint64_t total);

  /// Ends the line.
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total`, and a few words beside it.
  void update(std::uint64_t done, std::string_view note = {});

private:
  void draw(std::uint64_t done, std::string_view note);

  std::ostream& out_;
  bool is_terminal_;
  std::string label_;
  std::uint64_t total_;
  std::uint64_t next_tenth_ = 1;
  std::size_t drawn_width_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point drawn_{};
};

/// True when standard error is shown on a terminal.
bool stderr_is_terminal() noexcept;

}  // namespace examples

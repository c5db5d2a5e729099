// SPDX-License-Identifier: Apache-2.0
#include <support/progress.hpp>

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <utility>

#include <unistd.h>

namespace examples {

namespace {

using std::chrono::steady_clock;

constexpr std::size_t bar_width = 30;
constexpr auto redraw_after = std::chrono::milliseconds(80);

}  // namespace

Progress::Progress(std::ostream& out, bool is_terminal, std::string label, std::uint64_t total)
    : out_(out), is_terminal_(is_terminal), label_(std::move(label)), total_(total),
      begin_(steady_clock::now()) {}

Progress::~Progress() {
  if (drawn_width_ > 0) out_ << '\n' << std::flush;
}

void Progress::update(std::uint64_t done, std::string_view note) {
  done = std::min(done, total_);
  if (is_terminal_) {
    const auto now = steady_clock::now();
    if (done < total_ && now - drawn_ < redraw_after) return;
    drawn_ = now;
    draw(done, note);
    return;
  }
  const std::uint64_t tenth = done * 10 / total_;
  if (tenth < next_tenth_) return;
  next_tenth_ = tenth + 1;
  out_ << label_ << ' ' << done * 100 / total_ << " %" << (note.empty() ? "" : "  ") << note
       << '\n';
}

void Progress::draw(std::uint64_t done, std::string_view note) {
  const std::size_t filled = done * bar_width / total_;
  const double seconds = std::chrono::duration<double>(steady_clock::now() - begin_).count();
  std::ostringstream line;
  line << label_ << " [" << std::string(filled, '#') << std::string(bar_width - filled, '.') << "] "
       << std::setw(3) << done * 100 / total_ << " %  " << std::fixed << std::setprecision(1)
       << seconds << " s  " << note;
  std::string text = line.str();
  const std::size_t width = text.size();
  // Spaces cover what a longer line left behind.
  if (width < drawn_width_) text.append(drawn_width_ - width, ' ');
  drawn_width_ = width;
  out_ << '\r' << text << std::flush;
}

bool stderr_is_terminal() noexcept {
  return ::isatty(STDERR_FILENO) == 1;
}

}  // namespace examples

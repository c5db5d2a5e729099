// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <limits>
#include <numeric>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace reprise::bench {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<void (*)(Suite&)>& declarations() {
  static std::vector<void (*)(Suite&)> all;
  return all;
}

std::string number(double x) {
  if (std::isnan(x)) return "-";
  std::ostringstream out;
  out << std::fixed << std::setprecision(x < 10 ? 2 : x < 1000 ? 1 : 0) << x;
  return out.str();
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string json_number(double x) {
  if (!std::isfinite(x)) return "null";
  std::ostringstream out;
  out << std::setprecision(6) << x;
  return out.str();
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

struct Counted {
  double instructions = nan;
  double operations = nan;
};

/// Runs this very program in the mode that does nothing but loop, under a tool, and shows `line`
/// everything that the two print. Answers how many operations that were, NaN if it failed.
template <class F>
double run_under(const char* tool, const std::string& name, int rounds, F&& line) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) return nan;
  const std::string command = std::string(tool) + ' ' + shell_quoted(self.data()) + " --loop " +
                              shell_quoted(name) + " --loop-rounds " + std::to_string(rounds) +
                              " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return nan;
  double operations = nan;
  std::array<char, 512> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    const std::string text = buffer.data();
    if (text.starts_with("operations ")) operations = std::atof(text.c_str() + 11);
    line(text);
  }
  if (pclose(pipe) == 0) return operations;
  static std::set<std::string> told;
  if (told.insert(tool).second) {
    std::fprintf(stderr, "no figures: '%s' is not installed, or failed\n", tool);
  }
  return nan;
}

Counted callgrind(const std::string& name, const std::string& inside, int rounds) {
  std::string tool = "valgrind --tool=callgrind --callgrind-out-file=/dev/null";
  if (!inside.empty()) tool += " --toggle-collect=" + shell_quoted(inside);
  Counted counted;
  counted.operations = run_under(tool.c_str(), name, rounds, [&](const std::string& line) {
    if (const auto at = line.find("Collected : "); at != std::string::npos)
      counted.instructions = std::atof(line.c_str() + at + 12);
  });
  return counted;
}

double instructions_each(const std::string& name, const std::string& inside) {
  const Counted few = callgrind(name, inside, 2);
  const Counted more = callgrind(name, inside, 6);
  return (more.instructions - few.instructions) / (more.operations - few.operations);
}

constexpr int no_process = -271828;  // whose group nobody else asks for

/// Every line with a bracket is a call, except the second half of one that others interrupted.
double system_calls_each(const std::string& name) {
  const std::string mark = "getpgid(" + std::to_string(no_process) + ')';
  bool counting = false;
  int marks = 0;
  double calls = 0;
  const double operations = run_under("strace -f", name, 1, [&](const std::string& line) {
    if (line.find(mark) != std::string::npos) {
      counting = ++marks == 1;
    } else if (counting && line.find('(') != std::string::npos &&
               line.find(" resumed>") == std::string::npos) {
      ++calls;
    }
  });
  return marks == 2 ? calls / operations : nan;
}

/// How far a verdict is from its bar, at least 1 when passed; what the best of several runs is
/// chosen by.
double margin(const Bar& bar, double reached) {
  if (std::isnan(reached)) return 0;
  switch (bar.kind) {
    case Bar::Kind::ratio_at_most:
    case Bar::Kind::added_at_most:
    case Bar::Kind::value_at_most: return reached <= bar.number ? 1 : bar.number / reached;
    default: return reached / bar.number;
  }
}

}  // namespace

std::string Bar::text() const {
  switch (kind) {
    case Kind::ratio_at_most: return "<= " + number_text() + "x limit";
    case Kind::ratio_at_least: return ">= " + number_text() + "x limit";
    case Kind::added_at_most: return "<= limit + " + number_text();
    case Kind::value_at_most: return "<= " + number_text();
    case Kind::value_at_least: return ">= " + number_text();
    case Kind::faster_than: return ">= " + number_text() + "x faster than " + peer;
  }
  return {};
}

std::string Bar::number_text() const {
  std::ostringstream out;
  out << number;
  return out.str();
}

bool Cell::pass() const {
  return std::all_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return v.pass; });
}

std::string Cell::json() const {
  std::ostringstream out;
  out << "{\"row\":" << json_text(row) << ",\"column\":" << json_text(column)
      << ",\"variant\":" << json_text(variant) << ",\"unit\":" << json_text(unit)
      << ",\"median\":" << json_number(median) << ",\"min\":" << json_number(min)
      << ",\"max\":" << json_number(max) << ",\"limit\":" << json_text(limit)
      << ",\"ratio\":" << json_number(ratio) << ",\"bars\":[";
  for (std::size_t i = 0; i < verdicts.size(); ++i)
    out << (i == 0 ? "" : ",") << "{\"bar\":" << json_text(verdicts[i].bar)
        << ",\"reached\":" << json_number(verdicts[i].reached)
        << ",\"pass\":" << (verdicts[i].pass ? "true" : "false") << '}';
  out << "],\"pass\":" << (pass() ? "true" : "false") << '}';
  return out.str();
}

Row::Row(std::string id, std::string column, std::string unit)
    : id_(std::move(id)), column_(std::move(column)), unit_(std::move(unit)) {}

Row& Row::limit(std::string name, Measure measure) {
  limit_ = variants_.size();
  return add(std::move(name), std::move(measure));
}

Row& Row::add(std::string name, Measure measure, std::vector<Bar> bars) {
  variants_.push_back({std::move(name), std::move(measure), std::move(bars)});
  return *this;
}

Row& Row::limit_instructions(std::string name, long (*loop)(int rounds), const char* inside) {
  limit_ = variants_.size();
  return add_instructions(std::move(name), loop, {}, inside);
}

Row& Row::add_instructions(std::string name, long (*loop)(int rounds), std::vector<Bar> bars,
                           const char* inside) {
  std::string full = id_ + '/' + column_ + '/' + name;
  std::string function = inside != nullptr ? inside : "";
  // The count is the same each time, and dear: once is enough.
  auto measure = [full = std::move(full), function = std::move(function),
                  known = std::make_shared<double>(-1.0)] {
    if (*known < 0) *known = instructions_each(full, function);
    return *known;
  };
  variants_.push_back({std::move(name), std::move(measure), std::move(bars), loop});
  return *this;
}

Row& Row::add_system_calls(std::string name, long (*loop)(int rounds), std::vector<Bar> bars) {
  std::string full = id_ + '/' + column_ + '/' + name;
  // Not the same each time, as instructions are: a thread may lose its core and fall asleep.
  auto measure = [full = std::move(full)] { return system_calls_each(full); };
  variants_.push_back({std::move(name), std::move(measure), std::move(bars), loop});
  return *this;
}

Row& Row::add_alone(std::string name, long (*loop)(int rounds), std::vector<Bar> bars) {
  std::string full = id_ + '/' + column_ + '/' + name;
  auto measure = [full = std::move(full)] {
    return run_under("env", full, 1, [](const std::string&) {});
  };
  variants_.push_back({std::move(name), std::move(measure), std::move(bars), loop});
  return *this;
}

std::vector<Cell> Row::run(int rounds, int runs, std::ostream& progress) const {
  std::vector<Cell> best;
  double best_margin = -1;
  for (int run = 0; run < runs; ++run) {
    progress << id_ << ", " << column_ << ": run " << run + 1 << " of at most " << runs << '\n'
             << std::flush;
    std::vector<Cell> cells = run_once(rounds, progress);
    double worst = 1;
    for (std::size_t i = 0; i < cells.size(); ++i)
      for (std::size_t b = 0; b < variants_[i].bars.size(); ++b)
        worst = std::min(worst, margin(variants_[i].bars[b], cells[i].verdicts[b].reached));
    if (worst > best_margin) {
      best_margin = worst;
      best = std::move(cells);
    }
    if (best_margin >= 1) break;
  }
  return best;
}

std::vector<Cell> Row::run_once(int rounds, std::ostream& progress) const {
  std::vector<std::vector<double>> values(variants_.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      const std::size_t at = (i + std::size_t(round)) % variants_.size();
      values[at].push_back(variants_[at].measure());
    }
    progress << '.' << std::flush;
  }
  progress << '\n';
  std::vector<Cell> cells;
  for (std::size_t at = 0; at < variants_.size(); ++at) cells.push_back(judge(at, values));
  return cells;
}

Cell Row::judge(std::size_t at, const std::vector<std::vector<double>>& values) const {
  const auto to = [&](std::size_t other, auto how) {
    std::vector<double> compared;
    for (std::size_t r = 0; r < values[at].size(); ++r)
      compared.push_back(how(values[at][r], values[other][r]));
    return bench::median(std::move(compared));
  };
  const auto ratio_to = [&](std::size_t other) { return to(other, std::divides<>()); };
  Cell cell;
  cell.row = id_;
  cell.column = column_;
  cell.variant = variants_[at].name;
  cell.unit = unit_;
  cell.median = bench::median(values[at]);
  cell.min = quantile(values[at], 0);
  cell.max = quantile(values[at], 1);
  cell.ratio = nan;
  if (limit_ != none) {
    cell.limit = variants_[limit_].name;
    cell.ratio = ratio_to(limit_);
  }
  for (const Bar& bar : variants_[at].bars) {
    double reached = cell.median;
    if (bar.kind == Bar::Kind::ratio_at_most || bar.kind == Bar::Kind::ratio_at_least) {
      reached = cell.ratio;
    } else if (bar.kind == Bar::Kind::added_at_most) {
      reached = to(limit_, std::minus<>());
    } else if (bar.kind == Bar::Kind::faster_than) {
      const auto peer = std::find_if(variants_.begin(), variants_.end(),
                                     [&](const Variant& v) { return v.name == bar.peer; });
      if (peer == variants_.end()) throw std::logic_error("no variant is called " + bar.peer);
      reached = 1 / ratio_to(std::size_t(peer - variants_.begin()));
    }
    cell.verdicts.push_back({bar.text(), reached, margin(bar, reached) >= 1});
  }
  return cell;
}

Row& Suite::row(std::string id, std::string column, std::string unit) {
  rows_.push_back(std::make_unique<Row>(std::move(id), std::move(column), std::move(unit)));
  return *rows_.back();
}

std::vector<const Row*> Suite::select(const std::vector<std::string>& ids) const {
  std::vector<const Row*> selected;
  for (const auto& row : rows_)
    if (ids.empty() || std::find(ids.begin(), ids.end(), row->id()) != ids.end())
      selected.push_back(row.get());
  return selected;
}

long Suite::loop(std::string_view name, int rounds) const {
  for (const auto& row : rows_)
    for (const auto& variant : row->variants_)
      if (variant.loop != nullptr && row->id_ + '/' + row->column_ + '/' + variant.name == name)
        return variant.loop(rounds);
  return -1;
}

Registration::Registration(void (*declare)(Suite&)) {
  declarations().push_back(declare);
}

Suite Registration::all() {
  Suite suite;
  for (const auto declare : declarations()) declare(suite);
  return suite;
}

void print(std::ostream& out, const std::vector<Cell>& cells) {
  if (cells.empty()) return;
  out << "\n### " << cells[0].row << ", " << cells[0].column << " (" << cells[0].unit << ")\n\n"
      << "| variant | median | min..max | ratio | bars |\n|---|---:|---:|---:|---|\n";
  for (const Cell& cell : cells) {
    out << "| " << cell.variant << " | " << number(cell.median) << " | " << number(cell.min) << ".."
        << number(cell.max) << " | " << number(cell.ratio) << " | ";
    for (std::size_t i = 0; i < cell.verdicts.size(); ++i) {
      const Cell::Verdict& v = cell.verdicts[i];
      out << (i == 0 ? "" : "; ") << v.bar << ": " << number(v.reached)
          << (v.pass ? " pass" : " **MISSED**");
    }
    out << " |\n";
  }
  out << std::flush;
}

std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return std::uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

double ns_per_tick() {
  static const double value = [] {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const std::uint64_t first = ticks();
    while (Clock::now() - start < std::chrono::milliseconds(50)) {
    }
    const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
    return passed.count() / double(ticks() - first);
  }();
  return value;
}

void pin(int cpu) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  cpu_set_t set = allowed;
  if (cpu >= 0) {
    int left = cpu % std::max(1, CPU_COUNT(&allowed));
    CPU_ZERO(&set);
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &allowed) && left-- == 0) CPU_SET(c, &set);
  }
  sched_setaffinity(0, sizeof set, &set);
}

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void mark_system_calls() noexcept {
  (void)getpgid(no_process);
}

double quantile(std::vector<double> values, double p) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return nan;
  const auto at = values.begin() + std::ptrdiff_t(p * double(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double trimmed_mean(std::vector<double> values) {
  if (values.empty()) return nan;
  std::sort(values.begin(), values.end());
  values.resize(std::max<std::size_t>(1, values.size() * 9 / 10));
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

void Backoff::wait() {
  if (++idle_ < 200)
    relax();
  else
    sched_yield();
}

}  // namespace reprise::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The measuring harness: rows of variants that take turns in one process and are held against a
/// limit measured in the same round, since on a shared host only ratios mean something.
///
/// A source file declares its rows through a static Registration:
///
///     const Registration rows{[](Suite& suite) {
///       suite.row("P3", "submit, device held")
///           .limit("SPSC ring", [] { return held<SpscRing>(); })
///           .add("channel", [] { return held<Reprise>(); },
///                {at_most(2.2), faster_than("asio::post", 4)})
///           .add("asio::post", [] { return held<AsioPost>(); });
///     }};
namespace reprise::bench {

/// One measurement of one variant, in the unit of its row.
using Measure = std::function<double()>;

/// What a variant has to reach. Ratios are medians of the ratios of each round.
struct Bar {
  enum class Kind : std::uint8_t {
    ratio_at_most,
    value_at_most,
    value_at_least,
    faster_than,
    ratio_at_least,
    added_at_most
  };

  std::string text() const;
  std::string number_text() const;

  Kind kind;
  double number;
  std::string peer = {};
};

inline Bar at_most(double ratio_to_limit) {
  return {Bar::Kind::ratio_at_most, ratio_to_limit};
}
inline Bar at_least(double ratio_to_limit) {
  return {Bar::Kind::ratio_at_least, ratio_to_limit};
}
inline Bar value_at_most(double value) {
  return {Bar::Kind::value_at_most, value};
}
inline Bar value_at_least(double value) {
  return {Bar::Kind::value_at_least, value};
}
/// What the variant takes more than the limit.
inline Bar at_most_added(double to_limit) {
  return {Bar::Kind::added_at_most, to_limit};
}
/// The peer's time is at least `times` that of the variant.
inline Bar faster_than(std::string peer, double times) {
  return {Bar::Kind::faster_than, times, std::move(peer)};
}

/// What one variant of a row came to.
struct Cell {
  struct Verdict {
    std::string bar;
    double reached = 0;
    bool pass = false;
  };

  bool pass() const;
  std::string json() const;

  std::string row;
  std::string column;
  std::string variant;
  std::string unit;
  std::string limit;
  double median = 0;
  double min = 0;
  double max = 0;
  double ratio = 0;  // to the limit; NaN without one
  std::vector<Verdict> verdicts;
};

/// A line of the performance programme, or one column of it.
class Row {
public:
  Row(std::string id, std::string column, std::string unit);

  /// The variant that the ratios refer to.
  Row& limit(std::string name, Measure measure);
  Row& add(std::string name, Measure measure, std::vector<Bar> bars = {});

  /// Variants whose figure is the instructions that one operation takes. `loop` does `rounds`
  /// rounds and answers how many operations that were; it is run under callgrind in a process of
  /// its own, twice, so that the start cancels out. NaN where valgrind is missing. Only those in a
  /// function whose name matches `inside` count, and in what it calls; null: all.
  Row& limit_instructions(std::string name, long (*loop)(int rounds), const char* inside = nullptr);
  Row& add_instructions(std::string name, long (*loop)(int rounds), std::vector<Bar> bars = {},
                        const char* inside = nullptr);

  /// Variants whose figure is the system calls of one operation: those that any thread makes
  /// between the loop's two calls of mark_system_calls(), counted by strace, over what the loop
  /// answers. NaN where strace is missing.
  Row& add_system_calls(std::string name, long (*loop)(int rounds), std::vector<Bar> bars = {});

  /// Variants whose figure is what `loop` answers in a process of its own, in which nothing else
  /// has run before.
  Row& add_alone(std::string name, long (*loop)(int rounds), std::vector<Bar> bars = {});

  /// Measures every variant `rounds` times in turns. A row that misses a bar is measured again, up
  /// to `runs` times in all, and the run that misses least counts.
  std::vector<Cell> run(int rounds, int runs, std::ostream& progress) const;

  const std::string& id() const { return id_; }
  const std::string& column() const { return column_; }

private:
  friend class Suite;

  struct Variant {
    std::string name;
    Measure measure;
    std::vector<Bar> bars;
    long (*loop)(int) = nullptr;
  };

  std::vector<Cell> run_once(int rounds, std::ostream& progress) const;
  Cell judge(std::size_t at, const std::vector<std::vector<double>>& values) const;

  static constexpr std::size_t none = ~std::size_t{0};

  std::string id_;
  std::string column_;
  std::string unit_;
  std::vector<Variant> variants_;
  std::size_t limit_ = none;
};

/// Every row of the program.
class Suite {
public:
  Row& row(std::string id, std::string column, std::string unit = "ns");

  /// The rows with one of these ids; all of them when there are none.
  std::vector<const Row*> select(const std::vector<std::string>& ids) const;

  /// Does `rounds` rounds of the loop of variant "row/column/variant" in this process and
  /// answers how many operations that were; -1 when there is none of that name.
  long loop(std::string_view name, int rounds) const;

private:
  std::vector<std::unique_ptr<Row>> rows_;
};

/// Declares rows when the program starts.
class Registration {
public:
  explicit Registration(void (*declare)(Suite&));

  static Suite all();
};

/// Prints the cells of one row as a table.
void print(std::ostream& out, const std::vector<Cell>& cells);

// ---- tools for measuring ------------------------------------------------------------------------

std::uint64_t ticks() noexcept;
double ns_per_tick();
inline double ns_since(std::uint64_t start) {
  return double(ticks() - start) * ns_per_tick();
}

/// Puts the calling thread on one cpu; negative: on every one it may use.
void pin(int cpu);

void relax() noexcept;  // one pause instruction

/// The p-th quantile, 0 to 1; NaN when there are no values.
double quantile(std::vector<double> values, double p);
inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

/// The mean of all but the largest tenth: the host takes a core away for milliseconds now and then.
double trimmed_mean(std::vector<double> values);

/// ns per call of f(i), as the median of batches.
template <class F>
double median_ns(int calls, F&& f, int batches = 32) {
  std::vector<double> times;
  const int each = calls / batches > 0 ? calls / batches : 1;
  int i = 0;
  for (int k = 0; k < each; ++k) f(i++);
  for (int b = 0; b < batches; ++b) {
    const std::uint64_t start = ticks();
    for (int k = 0; k < each; ++k) f(i++);
    times.push_back(ns_since(start) / each);
  }
  return median(std::move(times));
}

/// Where the counted part of a loop begins, and where it ends.
void mark_system_calls() noexcept;

/// Keeps the compiler from dropping a value.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// Backs off while spinning: pauses, then gives the core away.
class Backoff {
public:
  void reset() { idle_ = 0; }
  void wait();

private:
  int idle_ = 0;
};

}  // namespace reprise::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

/// Invariants, reach marks and planted bugs: what the test programme needs in the code.
///
/// REPRISE_CHECK(condition, "what must hold") is on in every build. It states an invariant of the
/// library itself, never something a caller may get wrong; when it fails the process aborts with
/// the text, the file and the line.
///
/// REPRISE_MARK(name) notes that a rare path was taken. It costs one relaxed store where marks
/// are compiled in (REPRISE_MARKS) and nothing elsewhere.
///
/// REPRISE_PLANT(n) is false unless the build was configured with REPRISE_PLANTED and the
/// environment variable REPRISE_PLANT names that bug; the test named beside it must then fail.
namespace reprise::detail {

[[noreturn]] void check_failed(const char* condition, const char* what, const char* file,
                               int line) noexcept;

/// Whether the environment asks for the bug with this number.
bool is_planted(int number) noexcept;

/// One reach mark; registers itself on first use and lives for ever.
class Mark {
public:
  explicit Mark(const char* name) noexcept;

  void hit() noexcept { hits_.store(1, std::memory_order_relaxed); }
  bool was_hit() const noexcept { return hits_.load(std::memory_order_relaxed) != 0; }
  std::string_view name() const noexcept { return name_; }
  const Mark* next() const noexcept { return next_; }

  /// The marks registered so far, newest first.
  static const Mark* first() noexcept;

private:
  const char* name_;
  Mark* next_ = nullptr;
  std::atomic<std::uint32_t> hits_{0};
};

}  // namespace reprise::detail

#define REPRISE_CHECK(condition, what)                                                             \
  (__builtin_expect(!!(condition), 1)                                                              \
       ? void(0)                                                                                   \
       : ::reprise::detail::check_failed(#condition, what, __FILE__, __LINE__))

#ifdef REPRISE_MARKS
#define REPRISE_MARK(text)                                                                         \
  do {                                                                                             \
    static ::reprise::detail::Mark reprise_mark_{text};                                            \
    reprise_mark_.hit();                                                                           \
  } while (false)
#else
#define REPRISE_MARK(text) void(0)
#endif

#ifdef REPRISE_PLANTED
#define REPRISE_PLANT(n) (::reprise::detail::is_planted(n))
#else
#define REPRISE_PLANT(n) false
#endif

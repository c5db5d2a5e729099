// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/check.hpp>

#include <cstdio>
#include <cstdlib>

namespace reprise::detail {

namespace {
// Marks are only ever added; a mark publishes itself with a release exchange that first() acquires.
std::atomic<Mark*> marks{nullptr};
}  // namespace

void check_failed(const char* condition, const char* what, const char* file, int line) noexcept {
  std::fprintf(stderr, "reprise: invariant broken: %s (%s) at %s:%d\n", what, condition, file,
               line);
  std::fflush(stderr);
  std::abort();
}

bool is_planted(int number) noexcept {
  static const char* const text = std::getenv("REPRISE_PLANT");
  static const int wanted = text != nullptr ? std::atoi(text) : 0;
  return number == wanted;
}

Mark::Mark(const char* name) noexcept : name_(name) {
  next_ = marks.load(std::memory_order_relaxed);
  while (!marks.compare_exchange_weak(next_, this, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
}

const Mark* Mark::first() noexcept {
  return marks.load(std::memory_order_acquire);
}

}  // namespace reprise::detail

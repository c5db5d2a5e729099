// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>

namespace reprise::test {

/// A door that work waits at until a test opens it: how tests hold something open without time.
class Gate {
public:
  /// Counts as an arrival, then waits until the gate is open. The `opening`-th arrival opens it.
  void pass(int opening = 0) {
    std::unique_lock lock(mutex_);
    if (++arrived_ == opening) open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Waits until `n` have come to the gate.
  void wait_for_arrivals(int n = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= n; });
  }
  int arrivals() {
    std::lock_guard lock(mutex_);
    return arrived_;
  }

private:
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/backend.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

namespace reprise::test {

/// An argument block with every address filled in: spans become buffers, the rest scalars.
class ArgumentBlock {
public:
  ArgumentBlock() = default;
  template <class... A, class... V>
  explicit ArgumentBlock(const Kernel<void(A...)>&, V&&... values) {
    static_assert(sizeof...(A) == sizeof...(V));
    constexpr auto layout = Kernel<void(A...)>::layout;
    static_assert(layout[sizeof...(A)] <= sizeof(bytes_));
    [[maybe_unused]] std::size_t i = 0;
    (put<A>(layout[i++], values), ...);
  }
  const std::byte* data() const noexcept { return bytes_; }

private:
  template <class A, class V>
  void put(std::size_t offset, V& value) {
    if constexpr (BufferArgument<A>) {
      std::span<typename A::value_type> span(value);
      const detail::BufferSlot slot{span.data(), span.size()};
      std::memcpy(bytes_ + offset, &slot, sizeof slot);
    } else {
      const A scalar = value;
      std::memcpy(bytes_ + offset, &scalar, sizeof scalar);
    }
  }

  alignas(16) std::byte bytes_[192] = {};
};

/// A command as an actor would make one. It counts how often it succeeded and can do something
/// then.
class TestWork final : public Work {
public:
  explicit TestWork(Command what = command::Marker{}) {
    command = what;
    succeeded = [](Work& work) noexcept {
      auto& self = static_cast<TestWork&>(work);
      self.successes.fetch_add(1);
      if (self.then) self.then();
    };
  }
  TestWork(const TestWork&) = delete;
  TestWork& operator=(const TestWork&) = delete;

  template <class... A, class... V>
  void launch(const Kernel<void(A...)>& kernel, Grid grid, V&&... values) {
    arguments = ArgumentBlock(kernel, values...);
    command = command::Launch{kernel.definition().get(), grid, arguments.data()};
  }
  /// Runs `what` as a host call.
  void call(std::function<void()> what) {
    body = std::move(what);
    command = command::HostCall{[](void* self) { static_cast<TestWork*>(self)->body(); }, this};
  }
  void wait_for(std::initializer_list<StreamPoint> points) {
    points_.assign(points);
    waits = points_;
  }
  void wait_for(const Work& other) {
    points_.push_back({other.stream, other.position});
    waits = points_;
  }

  ArgumentBlock arguments;
  std::function<void()> body;
  std::function<void()> then;
  std::atomic<int> successes{0};

private:
  std::vector<StreamPoint> points_;
};

/// What an actor hears from its backend.
class TestNotice final : public Notice {
public:
  void failed(Work& work) noexcept override {
    {
      std::lock_guard lock(mutex_);
      if (on_failed) on_failed(work);
      failures_.push_back(&work);
    }
    changed_.notify_all();
  }
  void progressed() noexcept override {
    {
      std::lock_guard lock(mutex_);
      ++progressed_;
    }
    changed_.notify_all();
  }

  std::vector<Work*> failures() {
    std::lock_guard lock(mutex_);
    return failures_;
  }
  int progress() {
    std::lock_guard lock(mutex_);
    return progressed_;
  }
  void wait_for_failures(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failures_.size() >= n; });
  }
  void wait_for_progress(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return progressed_ >= n; });
  }

  /// Called inside failed().
  std::function<void(Work&)> on_failed;

private:
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::vector<Work*> failures_;
  int progressed_ = 0;
};

}  // namespace reprise::test

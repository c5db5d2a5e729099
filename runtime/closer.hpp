// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/device/host.hpp>
#include <reprise/runtime/completion.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace reprise::detail {

struct CloseRequest;

/// `limit` from now on the host's clock, not past what that can say.
std::uint64_t deadline_after(Host& host, std::chrono::nanoseconds limit) noexcept;

/// The shutdown of some devices, one after the other, all with one deadline. Each is closed, also
/// if one before it did not end; the first failure is the answer.
class CloseSteps {
public:
  explicit CloseSteps(CloseRequest request);
  ~CloseSteps();

  Host& host() noexcept;
  /// Closes what is left, but returns false where another thread is at it: try again.
  bool proceed() noexcept;
  /// Closes what is left.
  FailurePtr wait() noexcept;
  const FailurePtr& failure() const noexcept { return failure_; }
  /// Lets go of runtime and devices.
  void forget() noexcept;

private:
  void note(std::size_t at, Errc code, const std::string& stuck) noexcept;

  std::unique_ptr<CloseRequest> request_;
  std::uint64_t deadline_ns_;
  std::size_t next_ = 0;
  FailurePtr failure_;
};

/// The thread of an asynchronous drain or abort. It may wait, which neither the device's thread nor
/// the caller's may.
class Closer final : public Loop {
public:
  Closer(const CloseRequest& request, Reply* reply);

  bool step() noexcept override;
  Rest rest() noexcept override;
  void pause() noexcept override {}

private:
  CloseSteps steps_;
  Reply* reply_;
  bool done_ = false;
  std::uint64_t again_ns_ = 0;
};

/// The closers of one runtime.
///
/// Lifetime  Destroyed only after close() has answered true.
/// Threads   Any.
class Closers {
public:
  Closers() = default;
  Closers(const Closers&) = delete;
  Closers& operator=(const Closers&) = delete;

  /// Starts a thread for `closer` and takes it over. False: it did not; then `failure` says why, or
  /// is null after close().
  bool start(Host& host, std::unique_ptr<Closer>& closer, FailurePtr& failure);
  /// Waits for those that run; takes no more. False: one does not end. Idempotent.
  bool close(std::uint64_t deadline_ns) noexcept;

private:
  struct Running {
    std::unique_ptr<Closer> closer;
    std::unique_ptr<LoopHandle> thread;
  };

  std::mutex mutex_;  // guards both
  std::vector<Running> running_;
  bool closed_ = false;
};

}  // namespace reprise::detail

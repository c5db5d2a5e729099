// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/cpu/backend.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace reprise::test {

/// A CPU backend that notes the commands it takes and makes chosen writes go wrong.
class WatchedBackend final : public Backend {
public:
  enum class Fault : std::uint8_t { none, refuse, fail };

  WatchedBackend(Host& host, const CpuOptions& options) : inner_(make_cpu_backend(host, options)) {}

  /// The `nth` write from now on, 1 for the next, is refused or fails while running.
  void arm(Fault fault, int nth) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    left_ = nth;
  }
  /// The commands since the last call.
  std::vector<Command> take_commands() {
    const std::lock_guard lock(mutex_);
    return std::exchange(commands_, {});
  }

  const DeviceProperties& properties() const noexcept override { return inner_->properties(); }
  PageSource& pages() noexcept override { return inner_->pages(); }
  Result<void> start(Notice& notice) override { return inner_->start(notice); }
  bool stop(std::uint64_t deadline_ns, std::string& stuck) noexcept override {
    return inner_->stop(deadline_ns, stuck);
  }
  void end_loops() noexcept override { inner_->end_loops(); }
  Result<void> enqueue(StreamIndex stream, Work& work) noexcept override {
    const std::lock_guard lock(mutex_);
    commands_.push_back(work.command);
    if (std::holds_alternative<command::Write>(work.command) && left_ > 0 && --left_ == 0) {
      if (fault_ == Fault::refuse) return Error{Errc::refused, 0, "the test says no"};
      work.command = command::HostCall{[](void*) { throw std::runtime_error("torn"); }, nullptr};
    }
    return inner_->enqueue(stream, work);
  }
  StreamPosition finished(StreamIndex stream) const noexcept override {
    return inner_->finished(stream);
  }
  void kick(StreamIndex except) noexcept override { inner_->kick(except); }
  bool arm(StreamIndex stream, StreamPosition position) noexcept override {
    return inner_->arm(stream, position);
  }
  void resume(StreamIndex stream) noexcept override { inner_->resume(stream); }
  void help(StreamIndex stream, HelpUntil& until) noexcept override { inner_->help(stream, until); }
  Result<std::unique_ptr<GraphProgram>> lower(const GraphPlan& plan) override {
    return inner_->lower(plan);
  }

private:
  const std::unique_ptr<Backend> inner_;
  std::mutex mutex_;  // Guards what follows.
  std::vector<Command> commands_;
  Fault fault_ = Fault::none;
  int left_ = 0;
};

/// A device on such a backend, with the parts that a Runtime would own.
class WatchedDevice {
public:
  explicit WatchedDevice(std::uint32_t workers, DeviceOptions options = {},
                         RuntimeOptions runtime = {})
      : shared_(std::make_shared<detail::RuntimeShared>(std::move(runtime))) {
    CpuOptions cpu;
    cpu.workers = workers;
    cpu.streams = options.streams;
    auto backend = std::make_unique<WatchedBackend>(shared_->host, cpu);
    backend_ = backend.get();
    core_ = std::make_shared<detail::DeviceCore>(shared_, std::move(backend), std::move(options));
    core_->start();
  }
  ~WatchedDevice() {
    close(true);
    (void)shared_->close(shared_->host.now_ns() + 10'000'000'000);
  }
  void close(bool abort) {
    std::string stuck;
    (void)core_->close(abort, shared_->host.now_ns() + 10'000'000'000, stuck);
  }

  Client client() { return detail::ClientAccess::make(core_->make_stream(Priority::normal)); }
  detail::DeviceCore& core() noexcept { return *core_; }
  /// Valid until the device was closed.
  WatchedBackend& backend() noexcept { return *backend_; }

private:
  std::shared_ptr<detail::RuntimeShared> shared_;
  std::shared_ptr<detail::DeviceCore> core_;
  WatchedBackend* backend_ = nullptr;
};

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/async_context.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace reprise::test {

/// What a runtime gives to futures and asynchronous operations, and a thread that plays the device.
class AsyncFixture {
public:
  explicit AsyncFixture(Host& host = real_host()) : host_(host), state_(std::make_shared<State>()) {
    start(state_->courier, "t-courier", ThreadRole::courier);
    start(state_->completer, "t-completer", ThreadRole::completer);
    start(state_->device, "t-device", ThreadRole::device);
  }
  ~AsyncFixture() { close(); }

  /// What ~Runtime does, without dropping what handles keep.
  void close() {
    if (std::exchange(closed_, true)) return;
    const std::uint64_t deadline = host_.now_ns() + 60'000'000'000;
    REPRISE_CHECK(state_->device.close(deadline), "the test's device is stuck");
    REPRISE_CHECK(state_->courier.close(deadline), "a handler is stuck");
    REPRISE_CHECK(state_->completer.close(deadline), "the completer is stuck");
  }

  detail::AsyncContext context() {
    return {host_, nullptr, state_->courier, state_->completer, state_->blocks, state_};
  }
  detail::JobLoop& courier() { return state_->courier; }
  detail::JobLoop& completer() { return state_->completer; }
  Host& host() { return host_; }
  /// Texts of what jobs threw.
  const std::vector<std::string>& thrown() const { return state_->thrown; }
  std::weak_ptr<void> watch() const { return state_; }

  /// Runs `function` on the device thread.
  void on_device(std::function<void()> function) { post(state_->device, std::move(function)); }
  void on_courier(std::function<void()> function) { post(state_->courier, std::move(function)); }
  void on_completer(std::function<void()> function) {
    post(state_->completer, std::move(function));
  }

  /// Takes `reply` up and answers it on the device thread.
  void answer(Reply* reply, FailurePtr failure = nullptr) {
    on_device([=] {
      const bool started = reply->start();
      reply->complete(started ? failure : make_failure(Errc::operation_aborted, "test", "", ""));
    });
  }
  template <class T>
  void answer_with(ValueReply<T>* reply, T value) {
    auto shared = std::make_shared<T>(std::move(value));
    on_device([=] {
      if (!reply->start()) {
        reply->complete(make_failure(Errc::operation_aborted, "test", "", ""));
        return;
      }
      reply->value = std::move(*shared);
      reply->complete(nullptr);
    });
  }

private:
  struct State {
    detail::JobLoop courier{detail::ExceptionHook{&State::threw, this}};
    detail::JobLoop completer{detail::ExceptionHook{&State::threw, this}};
    detail::JobLoop device;
    BlockCache blocks;
    std::vector<std::string> thrown;  // by one loop a test

    static void threw(void* self, std::exception_ptr exception) noexcept {
      try {
        std::rethrow_exception(exception);
      } catch (const std::exception& error) {
        static_cast<State*>(self)->thrown.push_back(error.what());
      } catch (...) {
        static_cast<State*>(self)->thrown.push_back("?");
      }
    }
  };
  struct Call : detail::Job {
    std::function<void()> function;
  };

  static void post(detail::JobLoop& loop, std::function<void()> function) {
    auto* const call = new Call;
    call->function = std::move(function);
    call->run = [](detail::Job& job) {
      const std::unique_ptr<Call> self(static_cast<Call*>(&job));
      self->function();
    };
    call->destroy = [](detail::Job& job) noexcept { delete static_cast<Call*>(&job); };
    loop.post(*call);
  }
  void start(detail::JobLoop& loop, const char* name, ThreadRole role) {
    REPRISE_CHECK(loop.start(host_, {name, role, 0}), "no thread for a test");
  }

  Host& host_;
  std::shared_ptr<State> state_;
  bool closed_ = false;
};

}  // namespace reprise::test

// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/completion_port.hpp>

#include <boost/asio/execution/allocator.hpp>
#include <boost/asio/execution/blocking.hpp>

#include <cstddef>

namespace reprise::detail {

asio::execution_context::id CompletionPort::id;

CompletionPort::~CompletionPort() {
  // A context that was already going down when this was made did not call shutdown().
  queue_->shut_down();
  queue_->drop_reference();
}

namespace {

/// Gives the pump, of which one is out at a time, the room inside its queue.
template <class T>
class PumpAllocator {
public:
  using value_type = T;

  explicit PumpAllocator(PortQueue& queue) noexcept : queue_(&queue) {}
  template <class U>
  PumpAllocator(const PumpAllocator<U>& other) noexcept : queue_(&other.queue()) {}

  T* allocate([[maybe_unused]] std::size_t count) noexcept {
    REPRISE_CHECK(count * sizeof(T) <= PortQueue::pump_bytes, "the pump outgrew its room");
    return static_cast<T*>(queue_->pump_room());
  }
  void deallocate(T*, std::size_t) noexcept {}

  PortQueue& queue() const noexcept { return *queue_; }
  template <class U>
  bool operator==(const PumpAllocator<U>& other) const noexcept {
    return queue_ == &other.queue();
  }

private:
  PortQueue* queue_;
};

struct Pump {
  PortQueue* queue;

  void operator()() const {
    PendingOperation& operation = queue->pump();
    operation.run(operation);
  }
};

template <class Context>
void post_to(PortQueue& queue) noexcept {
  auto& context = static_cast<Context&>(*static_cast<asio::execution_context*>(queue.context()));
  asio::require(context.get_executor(), asio::execution::blocking.never,
                asio::execution::allocator(PumpAllocator<void>(queue)))
      .execute(Pump{&queue});
}

}  // namespace

void post_to_io_context(PortQueue& queue) noexcept {
  post_to<asio::io_context>(queue);
}

void post_to_thread_pool(PortQueue& queue) noexcept {
  post_to<asio::thread_pool>(queue);
}

}  // namespace reprise::detail

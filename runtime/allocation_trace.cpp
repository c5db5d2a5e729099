// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/allocation_trace.hpp>

#include <reprise/runtime/core.hpp>

#include <array>
#include <new>
#include <ostream>
#include <utility>

namespace reprise {

AllocationSink csv_sink(std::shared_ptr<std::ostream> out) {
  write_csv_header(*out);
  return [out = std::move(out)](std::span<const MemoryEvent> events) {
    for (const MemoryEvent& event : events) *out << event;
    out->flush();
  };
}

namespace detail {

struct AllocationTracer::Batch : Job {
  explicit Batch(std::shared_ptr<const AllocationSink> sink_) noexcept : sink(std::move(sink_)) {
    run = [](Job& job) {
      const std::unique_ptr<Batch> self(static_cast<Batch*>(&job));
      (*self->sink)({self->events.data(), self->size});
    };
    destroy = [](Job& job) noexcept { delete static_cast<Batch*>(&job); };
  }

  std::shared_ptr<const AllocationSink> sink;
  std::size_t size = 0;
  std::array<MemoryEvent, 256> events;
};

AllocationTracer::AllocationTracer(RuntimeShared& shared, PageSource& pages, AllocationSink sink)
    : shared_(shared), pages_(pages),
      sink_(std::make_shared<const AllocationSink>(std::move(sink))) {}

AllocationTracer::~AllocationTracer() {
  flush();
}

Result<Grant> AllocationTracer::allocate(Pool& pool, const PoolRequest& request,
                                         std::uint64_t client, FinishedQuery finished) noexcept {
  const PoolStats& stats = pool.stats();
  const std::uint64_t waits = stats.waits_made + stats.reuses_same_stream;
  client_ = client;
  Result<Grant> grant = pool.allocate(request, finished);
  client_ = 0;
  if (!grant) {
    note(MemoryVerb::refuse, client, request.bytes, 0);
    return grant;
  }
  try {
    clients_[grant->block] = client;
  } catch (const std::bad_alloc&) {
    // It will come back without a name.
  }
  const bool waiting = stats.waits_made + stats.reuses_same_stream != waits;
  note(waiting ? MemoryVerb::reuse : MemoryVerb::allocate, client, request.bytes,
       grant->block->address() - base());
  return grant;
}

void AllocationTracer::release(Pool& pool, PoolBlock* block, const Frontier& last_uses) noexcept {
  std::uint64_t client = 0;
  if (const auto found = clients_.find(block); found != clients_.end()) {
    client = found->second;
    clients_.erase(found);
  }
  const std::uint64_t bytes = block->size();
  const std::uint64_t address = block->address() - base();
  const std::uint64_t waiting = pool.stats().waiting;
  pool.release(block, last_uses);
  note(pool.stats().waiting != waiting ? MemoryVerb::release : MemoryVerb::free, client, bytes,
       address);
}

void AllocationTracer::note_trim(std::uint64_t bytes) noexcept {
  note(MemoryVerb::trim, 0, bytes, 0);
}

Result<void> AllocationTracer::map(std::uint64_t first_page, std::uint64_t count) noexcept {
  Result<void> mapped = pages_.map(first_page, count);
  if (mapped) note(MemoryVerb::map, client_, count * page_size(), first_page * page_size());
  return mapped;
}

Result<void> AllocationTracer::unmap(std::uint64_t first_page, std::uint64_t count) noexcept {
  Result<void> unmapped = pages_.unmap(first_page, count);
  if (unmapped) note(MemoryVerb::unmap, client_, count * page_size(), first_page * page_size());
  return unmapped;
}

void AllocationTracer::note(MemoryVerb verb, std::uint64_t client, std::uint64_t bytes,
                            std::uint64_t address) noexcept {
  if (batch_ == nullptr) {
    batch_ = new (std::nothrow) Batch(sink_);
    if (batch_ == nullptr) {
      // Relaxed: a count, no partner.
      shared_.sink_failures.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  batch_->events[batch_->size++] = {shared_.host.now_ns(), client, verb, bytes, address};
  if (batch_->size == batch_->events.size()) flush();
}

void AllocationTracer::flush() noexcept {
  if (batch_ != nullptr) shared_.courier.post(*std::exchange(batch_, nullptr));
}

}  // namespace detail
}  // namespace reprise

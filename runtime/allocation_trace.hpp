// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/memory_event.hpp>
#include <reprise/memory/pool.hpp>
#include <reprise/runtime/options.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <unordered_map>

namespace reprise {

/// A sink that writes a trace as comma-separated values, its first line at once. read_csv() reads
/// them, and the example pool_replay does again what they say.
///
/// Threads   The sink writes on the courier thread; nobody else writes to `out` meanwhile. After
///           the runtime's end all is written.
AllocationSink csv_sink(std::shared_ptr<std::ostream> out);

namespace detail {

class RuntimeShared;

/// Notes what a pool does and hands it to the sink in batches.
///
/// Lifetime  Outlives the pool that draws from its pages.
/// Threads   The device thread's; the sink runs on the courier thread.
/// Errors    Nothing throws. Events there was no host memory for are left out and counted with the
///           failures of sinks.
class AllocationTracer final : public PageSource {
public:
  AllocationTracer(RuntimeShared& shared, PageSource& pages, AllocationSink sink);
  ~AllocationTracer() override;

  /// Pool::allocate() and Pool::release() with a note.
  Result<Grant> allocate(Pool& pool, const PoolRequest& request, std::uint64_t client,
                         FinishedQuery finished) noexcept;
  void release(Pool& pool, PoolBlock* block, const Frontier& last_uses) noexcept;
  void note_trim(std::uint64_t bytes) noexcept;
  /// Hands over what was noted.
  void flush() noexcept;

  std::uint64_t base() const noexcept override { return pages_.base(); }
  std::uint64_t page_size() const noexcept override { return pages_.page_size(); }
  std::uint64_t address_space() const noexcept override { return pages_.address_space(); }
  Result<void> map(std::uint64_t first_page, std::uint64_t count) noexcept override;
  Result<void> unmap(std::uint64_t first_page, std::uint64_t count) noexcept override;
  bool wants_notice() const noexcept override { return pages_.wants_notice(); }
  void on_grant(ByteRange range) noexcept override { pages_.on_grant(range); }
  void on_free(ByteRange range) noexcept override { pages_.on_free(range); }

private:
  struct Batch;

  void note(MemoryVerb verb, std::uint64_t client, std::uint64_t bytes,
            std::uint64_t address) noexcept;

  RuntimeShared& shared_;
  PageSource& pages_;
  const std::shared_ptr<const AllocationSink> sink_;
  Batch* batch_ = nullptr;
  std::uint64_t client_ = 0;  // Whose request is served.
  std::unordered_map<const PoolBlock*, std::uint64_t> clients_;
};

}  // namespace detail
}  // namespace reprise

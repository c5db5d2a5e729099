// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/page.hpp>

#include <cstddef>
#include <cstdint>

namespace reprise {

/// Units     Bytes.
struct CpuPageSourceOptions {
  /// A power of two, at least the page of the machine.
  std::uint64_t page_size = std::uint64_t{2} << 20;
  /// Addresses to reserve, rounded up to whole pages; 0 is four times the memory of the machine.
  std::uint64_t address_space = 0;
  /// Ask the kernel to back large pages by large pages.
  bool huge_pages = true;
};

/// Host memory for the CPU device. Reserves addresses, which costs no memory, and makes pages of
/// them accessible on demand; touching any other page is a fault. Fresh pages read as zero.
///
/// Under AddressSanitizer, bytes that are not granted are poisoned, so that stale access through
/// the pool is reported.
///
/// Threads   As PageSource.
/// Errors    The constructor throws Failure. map() answers Errc::out_of_memory, with errno.
class CpuPageSource final : public PageSource {
public:
  explicit CpuPageSource(const CpuPageSourceOptions& options = {});
  ~CpuPageSource() override;

  std::uint64_t base() const noexcept override { return base_; }
  std::uint64_t page_size() const noexcept override { return page_size_; }
  std::uint64_t address_space() const noexcept override { return space_; }
  Result<void> map(std::uint64_t first_page, std::uint64_t count) noexcept override;
  Result<void> unmap(std::uint64_t first_page, std::uint64_t count) noexcept override;

  bool wants_notice() const noexcept override;
  void on_grant(ByteRange range) noexcept override;
  void on_free(ByteRange range) noexcept override;

private:
  void* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(base_ + offset));
  }

  std::uint64_t page_size_;
  std::uint64_t space_ = 0;
  std::uint64_t base_ = 0;  // Aligned to page_size_ inside what was reserved.
  std::uint64_t used_ = 0;  // End of the highest page that was ever mapped.
  void* reserved_ = nullptr;
  std::size_t reserved_bytes_ = 0;
};

}  // namespace reprise

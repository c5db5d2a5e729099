// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/page.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace reprise::test {

/// Pages of no memory at all: keeps the books of what is mapped, checks that the pool does too,
/// and fails on request.
class FakePages : public PageSource {
public:
  FakePages(std::uint64_t page_size, std::uint64_t pages, std::uint64_t base = 1u << 30)
      : base_(base), page_size_(page_size), mapped_(pages, false) {}

  std::uint64_t base() const noexcept override { return base_; }
  std::uint64_t page_size() const noexcept override { return page_size_; }
  std::uint64_t address_space() const noexcept override { return mapped_.size() * page_size_; }

  Result<void> map(std::uint64_t first, std::uint64_t count) noexcept override {
    ++maps;
    if (failing_maps > 0) {
      --failing_maps;
      return Error{Errc::out_of_memory, 12, "told to fail"};
    }
    if (pages_mapped() + count > most_pages) {
      return Error{Errc::out_of_memory, 12, "the device is full"};
    }
    set(first, count, true);
    return {};
  }

  Result<void> unmap(std::uint64_t first, std::uint64_t count) noexcept override {
    ++unmaps;
    if (failing_unmaps > 0) {
      --failing_unmaps;
      return Error{Errc::refused, 13, "told to fail"};
    }
    if (before_unmap) before_unmap({first * page_size_, (first + count) * page_size_});
    set(first, count, false);
    return {};
  }

  bool wants_notice() const noexcept override { return static_cast<bool>(before_free); }
  void on_grant(ByteRange range) noexcept override { after_grant(range); }
  void on_free(ByteRange range) noexcept override { before_free(range); }

  std::uint64_t pages_mapped() const {
    return static_cast<std::uint64_t>(std::count(mapped_.begin(), mapped_.end(), true));
  }
  std::uint64_t bytes_mapped() const { return pages_mapped() * page_size_; }
  bool is_mapped(ByteRange range) const {
    for (std::uint64_t at = range.begin / page_size_; at * page_size_ < range.end; ++at) {
      if (!mapped_[at]) return false;
    }
    return true;
  }
  const std::vector<bool>& mapped() const { return mapped_; }

  std::uint64_t most_pages = UINT64_MAX;  ///< What the device has.
  int failing_maps = 0;                   ///< So many calls fail from now on.
  int failing_unmaps = 0;
  int maps = 0;
  int unmaps = 0;
  bool consistent = true;  ///< No page was mapped or unmapped twice.
  std::function<void(ByteRange)> before_unmap;
  std::function<void(ByteRange)> after_grant;
  std::function<void(ByteRange)> before_free;

private:
  void set(std::uint64_t first, std::uint64_t count, bool to) {
    for (std::uint64_t at = first; at < first + count; ++at) {
      consistent = consistent && at < mapped_.size() && mapped_[at] != to;
      if (at < mapped_.size()) mapped_[at] = to;
    }
  }

  std::uint64_t base_;
  std::uint64_t page_size_;
  std::vector<bool> mapped_;
};

/// A device that has finished what it is told: the positions up to done[stream].
struct FakeProgress {
  std::vector<StreamPosition> done = std::vector<StreamPosition>(64, 0);
  std::uint64_t asked = 0;

  bool operator()(StreamPoint point) {
    ++asked;
    return point.position <= done[point.stream];
  }
};

}  // namespace reprise::test

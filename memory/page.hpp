// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/range.hpp>

#include <cstdint>

namespace reprise {

/// Whether a request may change which pages are mapped.
enum class PageUpdate : std::uint8_t {
  forbidden,  ///< Only what is mapped already may serve it.
  add_only,   ///< New pages may be mapped; empty ones are given back under pressure only.
  allow,
};

/// A reserved range of device addresses whose pages are mapped and unmapped on demand: what a Pool
/// carves its blocks from. Each backend has one.
///
/// Lifetime  Outlives the pool that draws from it.
/// Threads   One thread at a time, except that map() and unmap() of pages which the pool has set
///           aside (Pool::begin_growth) may run on another thread meanwhile.
/// Errors    map() and unmap() act on all pages of the call or on none.
/// Units     Addresses and sizes in bytes; pages by their index from base().
class PageSource {
public:
  PageSource() = default;
  PageSource(const PageSource&) = delete;
  PageSource& operator=(const PageSource&) = delete;
  virtual ~PageSource();

  /// The first address; a multiple of page_size() or at least of every alignment that is asked for.
  virtual std::uint64_t base() const noexcept = 0;
  /// A power of two.
  virtual std::uint64_t page_size() const noexcept = 0;
  /// Bytes reserved, a multiple of page_size(). Should be several times what the device can hold:
  /// then a large block never fails for want of neighbouring addresses.
  virtual std::uint64_t address_space() const noexcept = 0;

  virtual Result<void> map(std::uint64_t first_page, std::uint64_t count) noexcept = 0;
  virtual Result<void> unmap(std::uint64_t first_page, std::uint64_t count) noexcept = 0;

  /// True if on_grant() and on_free() are to be called. Asked once, when the pool is built.
  virtual bool wants_notice() const noexcept { return false; }
  /// These bytes, counted from base(), belong to a buffer from now on.
  virtual void on_grant(ByteRange) noexcept {}
  /// Nobody may touch these bytes, counted from base(), until they are granted again.
  virtual void on_free(ByteRange) noexcept {}
};

}  // namespace reprise

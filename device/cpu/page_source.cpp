// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/page_source.hpp>

#include <algorithm>
#include <cerrno>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
// As the sanitizer's own header declares them.
extern "C" void __asan_poison_memory_region(const volatile void* begin, std::size_t size);
extern "C" void __asan_unpoison_memory_region(const volatile void* begin, std::size_t size);
#endif

namespace reprise {

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool poisons = true;
void poison(void* begin, std::uint64_t size) noexcept {
  __asan_poison_memory_region(begin, size);
}
void unpoison(void* begin, std::uint64_t size) noexcept {
  __asan_unpoison_memory_region(begin, size);
}
#else
constexpr bool poisons = false;
void poison(void*, std::uint64_t) noexcept {}
void unpoison(void*, std::uint64_t) noexcept {}
#endif

constexpr std::uint64_t most_space = std::uint64_t{1} << 46;

std::uint64_t machine_page() noexcept {
  return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t machine_memory() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? static_cast<std::uint64_t>(pages) * machine_page() : std::uint64_t{1} << 33;
}

}  // namespace

CpuPageSource::CpuPageSource(const CpuPageSourceOptions& options) : page_size_(options.page_size) {
  if (!is_power_of_two(page_size_) || page_size_ < machine_page() || page_size_ > most_space ||
      options.address_space > most_space) {
    throw Failure(Errc::invalid_argument, "reserve",
                  "the page size must be a power of two, at least the machine's");
  }
  const bool by_memory = options.address_space == 0;
  space_ = by_memory ? std::min(4 * machine_memory(), most_space) : options.address_space;
  space_ = align_up(space_, page_size_);
  for (;; space_ = align_up(space_ / 2, page_size_)) {
    reserved_bytes_ = space_ + page_size_;  // Room to align the base.
    reserved_ = mmap(nullptr, reserved_bytes_, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved_ != MAP_FAILED) {
      break;
    }
    // A limit on addresses may forbid the generous default; a smaller range still works.
    if (!by_memory || space_ <= page_size_) {
      throw Failure(Errc::out_of_memory, "reserve",
                    "no range of " + std::to_string(space_) + " free addresses");
    }
  }
  base_ = align_up(reinterpret_cast<std::uintptr_t>(reserved_), page_size_);
#ifdef MADV_HUGEPAGE
  if (options.huge_pages) {
    madvise(at(0), space_, MADV_HUGEPAGE);  // Advice: a kernel without it changes nothing.
  }
#endif
}

CpuPageSource::~CpuPageSource() {
  unpoison(at(0), used_);  // Others may be given these addresses.
  munmap(reserved_, reserved_bytes_);
}

Result<void> CpuPageSource::map(std::uint64_t first_page, std::uint64_t count) noexcept {
  REPRISE_CHECK(first_page + count <= space_ / page_size_, "pages lie in the address space");
  if (mprotect(at(first_page * page_size_), count * page_size_, PROT_READ | PROT_WRITE) != 0) {
    return Error{Errc::out_of_memory, errno, "the host maps no more pages"};
  }
  used_ = std::max(used_, (first_page + count) * page_size_);
  return {};
}

Result<void> CpuPageSource::unmap(std::uint64_t first_page, std::uint64_t count) noexcept {
  REPRISE_CHECK(first_page + count <= space_ / page_size_, "pages lie in the address space");
  void* const begin = at(first_page * page_size_);
  // Protected first: if that fails, for want of map areas, nothing has changed.
  if (mprotect(begin, count * page_size_, PROT_NONE) != 0) {
    return Error{Errc::out_of_memory, errno, "the host cannot protect the pages"};
  }
  madvise(begin, count * page_size_, MADV_DONTNEED);
  return {};
}

bool CpuPageSource::wants_notice() const noexcept {
  return poisons;
}

void CpuPageSource::on_grant(ByteRange range) noexcept {
  unpoison(at(range.begin), range.size());
}

void CpuPageSource::on_free(ByteRange range) noexcept {
  poison(at(range.begin), range.size());
}

}  // namespace reprise

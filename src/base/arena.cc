#include "base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace mantou {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Arena::Arena(size_t region_bytes) : region_bytes_(region_bytes) {}

Arena::~Arena() { release(); }

Arena::Arena(Arena&& other) noexcept
    : region_bytes_(other.region_bytes_),
      regions_(std::exchange(other.regions_, {})),
      current_(std::exchange(other.current_, 0)),
      offset_(std::exchange(other.offset_, 0)),
      used_(std::exchange(other.used_, 0)),
      reserved_(std::exchange(other.reserved_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  release();
  region_bytes_ = other.region_bytes_;
  regions_ = std::exchange(other.regions_, {});
  current_ = std::exchange(other.current_, 0);
  offset_ = std::exchange(other.offset_, 0);
  used_ = std::exchange(other.used_, 0);
  reserved_ = std::exchange(other.reserved_, 0);
  return *this;
}

std::byte* Arena::allocate(size_t bytes) {
  if (bytes > SIZE_MAX - 2 * kHugePage)
    fail(ErrorCode::kResourceExhausted, "cannot allocate {} bytes of memory", bytes);
  const size_t size = round_up(bytes, kAlignment);
  while (current_ < regions_.size() && regions_[current_].size - offset_ < size) {
    ++current_;
    offset_ = 0;
  }
  if (current_ == regions_.size()) add_region(size);
  std::byte* result = regions_[current_].data + offset_;
  offset_ += size;
  used_ += size;
  return result;
}

void Arena::reset() {
  current_ = 0;
  offset_ = 0;
  used_ = 0;
}

void Arena::add_region(size_t bytes) {
  const size_t size = round_up(std::max(bytes, region_bytes_), kHugePage);
  // One huge page more than needed, so that the start can be aligned to one.
  const size_t mapped = size + kHugePage;
  regions_.reserve(regions_.size() + 1);
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    fail(ErrorCode::kResourceExhausted,
         "cannot allocate {} MiB of memory ({} MiB held already): {}; use a smaller model or free "
         "memory",
         mapped >> 20, reserved_ >> 20, std::strerror(errno));
  const auto aligned = round_up(reinterpret_cast<uintptr_t>(base), kHugePage);
#if defined(MADV_HUGEPAGE)
  madvise(reinterpret_cast<void*>(aligned), size, MADV_HUGEPAGE);  // a wish: small pages also work
#endif
  regions_.push_back(
      {static_cast<std::byte*>(base), mapped, reinterpret_cast<std::byte*>(aligned), size});
  reserved_ += size;
}

void Arena::release() {
  for (const Region& region : regions_) munmap(region.base, region.mapped);
  regions_.clear();
}

}  // namespace mantou

#include "backends/cpu/kv_block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace mantou::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Maps bytes (a multiple of kHugePage) at a multiple of kHugePage; null when the system refuses.
std::byte* map_aligned(size_t bytes) {
  void* mapped =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::byte* start = static_cast<std::byte*>(mapped);
  const size_t skip = -reinterpret_cast<uintptr_t>(start) % kHugePage;
  if (skip > 0) munmap(start, skip);
  if (skip < kHugePage) munmap(start + skip + bytes, kHugePage - skip);
#ifdef MADV_HUGEPAGE
  madvise(start + skip, bytes, MADV_HUGEPAGE);
#endif
  return start + skip;
}

}  // namespace

KvBlock::KvBlock(std::shared_ptr<KvBlockPool> pool, size_t bytes)
    : pool_(std::move(pool)), bytes_(bytes), data_(pool_->take(bytes)) {}

KvBlock::~KvBlock() { pool_->give_back(data_, bytes_); }

KvBlockPool::KvBlockPool(size_t limit_bytes, size_t reserve_bytes)
    : limit_bytes_(limit_bytes), reserve_bytes_(reserve_bytes) {}

KvBlockPool::~KvBlockPool() {
  for (auto& [bytes, size_class] : classes_) {
    for (auto& [base, slab] : size_class.slabs) munmap(slab.base, slab.bytes);
  }
}

std::shared_ptr<KvBlockPool> KvBlockPool::create(size_t limit_bytes, size_t reserve_bytes) {
  return std::shared_ptr<KvBlockPool>(new KvBlockPool(limit_bytes, reserve_bytes));
}

KvBlockPtr KvBlockPool::allocate(size_t bytes) {
  return std::make_shared<KvBlock>(shared_from_this(), bytes);
}

size_t KvBlockPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t KvBlockPool::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

KvBlockPool::Slab& KvBlockPool::add_slab(SizeClass& size_class, size_t bytes) {
  Slab slab;
  slab.bytes = std::bit_ceil(std::max(kHugePage, 8 * bytes));
  slab.capacity = slab.bytes / bytes;
  slab.base = map_aligned(slab.bytes);
  if (slab.base == nullptr) {
    fail(ErrorCode::kResourceExhausted,
         "no memory for the KV cache: the system refused {} MiB beyond {} MiB", slab.bytes >> 20,
         held_bytes_ >> 20);
  }
  held_bytes_ += slab.bytes;
  empty_bytes_ += slab.bytes;
  slab.unused.reserve(slab.capacity);
  for (size_t i = slab.capacity; i-- > 0;) slab.unused.push_back(slab.base + i * bytes);
  return size_class.slabs.emplace(slab.base, std::move(slab)).first->second;
}

std::byte* KvBlockPool::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - used_bytes_) {
    fail(ErrorCode::kResourceExhausted, "the KV cache is full: {} of {} MiB are in use",
         used_bytes_ >> 20, limit_bytes_ >> 20);
  }
  SizeClass& size_class = classes_[bytes];
  if (size_class.open.empty()) {
    size_class.open.reserve(size_class.slabs.size() + 1);  // so that give_back need not allocate
    size_class.open.push_back(&add_slab(size_class, bytes));
  }
  Slab& slab = *size_class.open.back();
  if (slab.unused.size() == slab.capacity) empty_bytes_ -= slab.bytes;
  std::byte* data = slab.unused.back();
  slab.unused.pop_back();
  if (slab.unused.empty()) size_class.open.pop_back();
  used_bytes_ += bytes;
  return data;
}

void KvBlockPool::give_back(std::byte* data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  SizeClass& size_class = classes_.find(bytes)->second;
  Slab& slab = std::prev(size_class.slabs.upper_bound(data))->second;
  if (slab.unused.empty()) size_class.open.push_back(&slab);
  slab.unused.push_back(data);
  used_bytes_ -= bytes;
  if (slab.unused.size() < slab.capacity) return;
  empty_bytes_ += slab.bytes;
  if (empty_bytes_ <= reserve_bytes_) return;
  empty_bytes_ -= slab.bytes;
  std::erase(size_class.open, &slab);
  held_bytes_ -= slab.bytes;
  munmap(slab.base, slab.bytes);
  size_class.slabs.erase(slab.base);
}

}  // namespace mantou::cpu

// Memory of KV blocks. One pool serves all layers of a model; blocks of equal size share slabs of
// huge pages and are reused last in, first out. Blocks keep their pool alive and may be released on
// any thread. A slab whose blocks are all free goes back to the system, except for a reserve that
// spares the next request its page faults.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace mantou::cpu {

class KvBlockPool;

// One block: uninitialised, 64-byte aligned memory, returned to the pool by its last owner.
class KvBlock {
 public:
  KvBlock(std::shared_ptr<KvBlockPool> pool, size_t bytes);
  ~KvBlock();
  KvBlock(const KvBlock&) = delete;
  KvBlock& operator=(const KvBlock&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<KvBlockPool> pool_;
  size_t bytes_;
  std::byte* data_;
};

using KvBlockPtr = std::shared_ptr<KvBlock>;

class KvBlockPool : public std::enable_shared_from_this<KvBlockPool> {
 public:
  // limit_bytes bounds the blocks in use, reserve_bytes the unused memory of empty slabs.
  static std::shared_ptr<KvBlockPool> create(
      size_t limit_bytes = std::numeric_limits<size_t>::max(),
      size_t reserve_bytes = size_t{256} << 20);
  ~KvBlockPool();

  // Error (kResourceExhausted) when the limit or the system's memory is reached.
  KvBlockPtr allocate(size_t bytes);

  size_t used_bytes() const;  // of blocks in use
  size_t held_bytes() const;  // of slabs, from the system

 private:
  friend class KvBlock;
  struct Slab {
    std::byte* base = nullptr;
    size_t bytes = 0;
    size_t capacity = 0;             // blocks
    std::vector<std::byte*> unused;  // blocks not handed out
  };
  struct SizeClass {
    std::map<const std::byte*, Slab> slabs;  // by address
    std::vector<Slab*> open;                 // those with unused blocks
  };

  KvBlockPool(size_t limit_bytes, size_t reserve_bytes);
  std::byte* take(size_t bytes);
  void give_back(std::byte* data, size_t bytes);
  Slab& add_slab(SizeClass& size_class, size_t bytes);

  const size_t limit_bytes_;
  const size_t reserve_bytes_;
  mutable std::mutex mutex_;  // guards all below
  size_t used_bytes_ = 0;
  size_t held_bytes_ = 0;
  size_t empty_bytes_ = 0;               // of slabs without a block in use
  std::map<size_t, SizeClass> classes_;  // by block size
};

}  // namespace mantou::cpu

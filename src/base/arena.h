// Memory in large huge-page regions, handed out by moving a pointer and freed all at once.
//
// Packed weights live in one (a plain read of 2 MiB pages is about a quarter faster than one of 4
// KiB pages), and so do the intermediate values of a step, which reset() recycles. Regions grow on
// demand; pointers stay valid until reset() or the end of the arena. Not thread-safe: its owner
// allocates, others only use the memory.
#pragma once

#include <cstddef>
#include <vector>

namespace mantou {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;  // bytes; a cache line, and a 512-bit vector

  // Memory is taken from the system in regions of at least `region_bytes`, the first when needed.
  explicit Arena(size_t region_bytes = size_t(64) << 20);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  // `bytes` of memory at a multiple of kAlignment. Zero after a fresh start, arbitrary after
  // reset(). Error kResourceExhausted with the sizes when the system refuses.
  std::byte* allocate(size_t bytes);

  // The same for `count` objects of a trivial type.
  template <class T>
  T* allocate_array(size_t count) {
    return reinterpret_cast<T*>(allocate(count * sizeof(T)));
  }

  // Everything handed out so far is free again; the regions are kept.
  void reset();

  size_t used() const { return used_; }          // bytes handed out, with alignment
  size_t reserved() const { return reserved_; }  // bytes taken from the system

 private:
  struct Region {
    std::byte* base;  // start of the mapping
    size_t mapped;    // its length
    std::byte* data;  // aligned to a huge page
    size_t size;      // usable bytes from `data`
  };

  void add_region(size_t bytes);
  void release();

  size_t region_bytes_;
  std::vector<Region> regions_;
  size_t current_ = 0;  // region in use
  size_t offset_ = 0;   // bytes handed out in it
  size_t used_ = 0;
  size_t reserved_ = 0;
};

}  // namespace mantou

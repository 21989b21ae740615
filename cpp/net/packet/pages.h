// Memory of a run: large pieces on pages of 2 MB where the system has them, since a run jumps between all of its ports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace wt::net::packet {

inline constexpr std::size_t kHugePage = std::size_t{1} << 21;

// At least `bytes`, aligned to 64, or to large pages if it is as large as one.
[[nodiscard]] inline void* take_pages(std::size_t bytes) {
  if (bytes < kHugePage) return ::operator new(bytes, std::align_val_t{64});
  void* at = ::operator new(bytes, std::align_val_t{kHugePage});
#if defined(__linux__)
  madvise(at, bytes, MADV_HUGEPAGE);  // a wish: without it the memory works as well
#endif
  return at;
}

inline void free_pages(void* at, std::size_t bytes) { ::operator delete(at, std::align_val_t{bytes < kHugePage ? 64 : kHugePage}); }

template <class T>
struct PageAllocator {
  using value_type = T;
  PageAllocator() = default;
  template <class U>
  explicit PageAllocator(const PageAllocator<U>&) {}
  [[nodiscard]] T* allocate(std::size_t n) { return static_cast<T*>(take_pages(n * sizeof(T))); }
  void deallocate(T* at, std::size_t n) { free_pages(at, n * sizeof(T)); }
  bool operator==(const PageAllocator&) const { return true; }
};

template <class T>
using PageVector = std::vector<T, PageAllocator<T>>;

// What the pools of a run's partitions take their pieces from; they may do so at the same time.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    for (const Region& r : regions_) free_pages(r.at, r.bytes);
  }
  std::byte* take(std::size_t bytes) {
    const std::scoped_lock held(lock_);
    if (regions_.empty() || regions_.back().bytes - used_ < bytes) {
      const std::size_t least = regions_.empty() ? kFirst : std::min(2 * kHugePage, 4 * regions_.back().bytes);
      const std::size_t size = std::max(bytes, least);
      regions_.push_back({take_pages(size), size});
      used_ = 0;
    }
    std::byte* at = static_cast<std::byte*>(regions_.back().at) + used_;
    used_ += bytes;
    return at;
  }

 private:
  static constexpr std::size_t kFirst = std::size_t{1} << 15;
  struct Region {
    void* at;
    std::size_t bytes;
  };
  std::mutex lock_;
  std::vector<Region> regions_;
  std::size_t used_ = 0;
};

}  // namespace wt::net::packet

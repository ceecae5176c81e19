// Memory of large arrays in large pages, where the system has them: a volume in small ones has more than a processor knows.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

template <typename T>
struct Pages {
  using value_type = T;
  static constexpr std::size_t LARGE = std::size_t(1) << 21;

  Pages() = default;
  template <typename Other>
  Pages(const Pages<Other>&) {}

  T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T), unit = bytes < 4 * LARGE ? 64 : LARGE;
    const std::size_t whole = (bytes + unit - 1) / unit * unit;
    void* found = std::aligned_alloc(unit, whole ? whole : unit);
    if (!found) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (unit == LARGE) madvise(found, whole, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(found);
  }
  void deallocate(T* data, std::size_t) { std::free(data); }
  bool operator==(const Pages&) const { return true; }
  bool operator!=(const Pages&) const { return false; }
};

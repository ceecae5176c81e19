// Memory of one shot: fields with a halo, absorbing strips, and the vectors that sweeps work in.
//
// HALF is the number of cells a stencil reaches to each side; it is fixed when this is compiled, so that the loops over
// it unroll. Rows lie along x and are contiguous; rows of one depth z are a plane, which in two dimensions is one row.
// Grids are swept in blocks of R planes and whole vectors: in cells that are there only to fill them the material's factors
// are zero, and so the waves stay zero for ever.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "pages.h"

constexpr int M = HALF;
// Planes updated together: a row of the field is loaded once for all stencils along z. In three dimensions one, for what
// is updated together comes from memory in as many streams, and more of them than processors follow are slow.
#if defined(IN_THREE_DIMENSIONS)
constexpr int R = 1;
#else
constexpr int R = 4;
#endif
enum { Z, Y, X };        // axes
constexpr int TILE = 32;  // rows of a plane that are swept through all planes before the next: what they share stays near

// Strips and rows are whole vectors: the widest ones pay where rows are long, as they are in two dimensions.
#if defined(__AVX512F__) && defined(WIDE_VECTORS)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif

// compilers leave out of line what is used in many places, and vectors would go through memory
#define IN_LINE __attribute__((always_inline)) inline

template <typename T>
struct Lanes {
  typedef T V __attribute__((vector_size(BYTES)));
};
template <typename T>
using Vec = typename Lanes<T>::V;
template <typename T>
constexpr int64_t WIDTH = BYTES / sizeof(T);

template <typename T>
IN_LINE Vec<T> load(const T* from) {
  Vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <typename T>
IN_LINE void store(T* to, Vec<T> v) {
  std::memcpy(to, &v, sizeof v);
}

// Stores what is not read again soon, past the cache where processors can: the line it goes to is not fetched before.
template <typename T>
IN_LINE void store_far(T* to, Vec<T> v) {
#if defined(__AVX512F__) && defined(WIDE_VECTORS)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)v);
#elif defined(__AVX__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)v);
#else
  store(to, v);
#endif
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLES
#endif
#endif

// A number of cells by which one looks aside, known when this is compiled.
template <int m>
using Aside = std::integral_constant<int, m>;

// Calls act(i) for i = FIRST, ..., LAST, each an Aside.
template <int FIRST, int LAST, typename Act>
IN_LINE void unrolled(const Act& act) {
  if constexpr (FIRST <= LAST) act(Aside<FIRST>()), unrolled<FIRST + 1, LAST>(act);
}

// Vectors of a row that begin up to M cells beside x, where a vector of the row begins. As wide as a cache line, they would
// all be loads from two lines; neighbours are put together from the three vectors around instead, which are in registers.
template <typename T>
class Beside {
 public:
  IN_LINE explicit Beside(const T* x) : Beside(x, load(x)) {}
  IN_LINE Beside(const T* x, Vec<T> here) : x(x), here(here) {
    if (SHUFFLED) before = load(x - WIDTH<T>), after = load(x + WIDTH<T>);
  }
  template <int m>
  IN_LINE Vec<T> operator()(Aside<m>) const {
    if constexpr (m == 0) return here;
#if defined(HAS_SHUFFLES)
    constexpr auto lanes = std::make_integer_sequence<int, WIDTH<T>>();
    if constexpr (SHUFFLED && m > 0) return joined<m>(here, after, lanes);
    if constexpr (SHUFFLED && m < 0) return joined<WIDTH<T> + m>(before, here, lanes);
#endif
    return load(x + m);
  }

 private:
#if defined(HAS_SHUFFLES)
  static constexpr bool SHUFFLED = BYTES == 64;
  template <int FROM, int... LANES>
  IN_LINE static Vec<T> joined(Vec<T> one, Vec<T> other, std::integer_sequence<int, LANES...>) {
    return __builtin_shufflevector(one, other, (FROM + LANES)...);
  }
#else
  static constexpr bool SHUFFLED = false;
#endif
  const T* x;
  Vec<T> before, here, after;
};

// A product that is rounded before it is added to another. Compilers join a sum and one of its products into one operation;
// of two products they choose either, here and there differently, and what is computed anew would not be what it was.
template <typename T>
IN_LINE Vec<T> rounded(Vec<T> product) {
#if defined(__AVX512VL__)
  asm("" : "+v"(product));
#elif defined(__SSE2__)
  asm("" : "+x"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#endif
  return product;
}

inline int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Planes of rows between zeros: `around` planes before the first and after the last, `between` rows between planes, M
// cells or more between rows. Without `rows`, planes of one row.
//
// Rows begin with a cache line. Blocks of one size would begin at the same place of a page, where processors take loads
// from one for loads of what was just stored into another: `lag`, in cache lines, moves them apart.
template <typename T>
class Rows {
 public:
  Rows() = default;
  Rows(int64_t planes, int64_t columns, int64_t around, int64_t lag = 0, int64_t rows = 1, int64_t between = 0)
      : pitch(apart(columns)),
        step((rows + between) * pitch),
        data((planes + 2 * around) * step + between * pitch + (lag + 2) * LINE, T(0)) {
    const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data.data()) / sizeof(T)) % LINE;
    origin = around * step + between * pitch + (lag + 2) * LINE - before;
  }
  // numbers from row to row
  static int64_t apart(int64_t columns) { return up(columns + M, LINE); }
  // the first row of a plane
  T* operator[](int64_t plane) { return data.data() + origin + plane * step; }
  const T* operator[](int64_t plane) const { return data.data() + origin + plane * step; }
  void clear() { std::fill(data.begin(), data.end(), T(0)); }
  int64_t pitch = 0, step = 0;  // from row to row, from plane to plane

 private:
  static constexpr int64_t LINE = 64 / sizeof(T);
  std::vector<T, Pages<T>> data;
  int64_t origin = 0;
};

// Fields of several steps, without initial values: a sweep writes all cells that another reads.
template <typename T>
class Fields {
 public:
  Fields(int64_t count, int64_t planes, int64_t step)
      : count(count), size(planes * step), data(Pages<T>().allocate(count * size)) {}
  T* at(int64_t step) { return data.get() + step * size; }
  // whether they are more than a core's share of the last cache
  bool far() const { return count * size * static_cast<int64_t>(sizeof(T)) > (8 << 20); }

 private:
  int64_t count, size;
  struct Release {
    void operator()(T* data) const { Pages<T>().deallocate(data, 0); }
  };
  std::unique_ptr<T[], Release> data;
};

// Where absorbing terms act along an axis: cells [0, low) and [high, n), in whole units; low = n if the two meet.
struct Reach {
  int64_t low, high, n;
  Reach(int64_t cells, int64_t near, int64_t far, int64_t beside, int64_t unit) : n(up(cells, unit)) {
    low = near ? up(near + beside, unit) : 0;
    high = far ? std::max<int64_t>(0, cells - far - beside) / unit * unit : n;
    if (high < low) low = high = n;
  }
  // first cell, and the one after the last, of an end; -1 is what lies between them
  int64_t first(int end) const { return end == 0 ? 0 : end == 1 ? high : low; }
  int64_t last(int end) const { return end == 0 ? low : end == 1 ? n : high; }
  int64_t size(int end) const { return last(end) - first(end); }
};

struct Block {
  int64_t z0, z1, x0, x1;
};

// Calls act(block, end, side) for the parts of rows z0 to z1: end and side say at which ends of the axes a part lies, -1
// between them.
template <typename Act>
void parts(const Reach& rows, const Reach& columns, int64_t z0, int64_t z1, const Act& act) {
  for (int end : {0, -1, 1}) {
    const int64_t begin = std::max(z0, rows.first(end)), stop = std::min(z1, rows.last(end));
    for (int side : {0, -1, 1})
      if (begin < stop && columns.first(side) < columns.last(side))
        act(Block{begin, stop, columns.first(side), columns.last(side)}, end, side);
  }
}

// What a call is given: factors of the material (..., nz, ny, nx), coefficients of the absorbing terms along z, y and x and
// stencils, one after the other, and numbers that fix the scheme. Two dimensions have one row in a plane, and nothing
// along y.
template <typename T>
struct Given {
  const T *material, *along, *stencils;
  int64_t size[3], nt;
  int64_t width[3][2];   // of absorbing layers, by axis and end
  bool mirror;           // free surface: fields above plane 0 are images of those below
  bool physical;         // sources are multiplied by a factor of the material
  const int64_t* kinds;  // of sources and receivers, where there is more than one

  int64_t cells() const { return size[Z] * size[Y] * size[X]; }
  // zero rows that fields have between planes
  int64_t between() const { return size[Y] > 1 ? M : 0; }
  Rows<T> blank(int64_t around, int64_t lag) const {
    return Rows<T>(up(size[Z], R), up(size[X], WIDTH<T>), around, lag, size[Y], between());
  }
  // a field (nz, ny, nx) laid out as a wave's, from a plane on; zero above and in cells that only fill
  Rows<T> filled(const T* field, int64_t from, int64_t lag) const {
    Rows<T> found = blank(0, lag);
    for (int64_t z = from; z < size[Z]; ++z)
      for (int64_t y = 0; y < size[Y]; ++y) {
        const T* row = field + (z * size[Y] + y) * size[X];
        std::copy(row, row + size[X], found[z] + y * found.pitch);
      }
    return found;
  }
  Reach reach(int axis, int64_t beside) const {
    const int64_t unit = axis == Z ? R : axis == Y ? 1 : WIDTH<T>;
    return {size[axis], width[axis][0], width[axis][1], beside, unit};
  }
};

// Memory of one shot: fields with a halo, absorbing strips, and the vectors that sweeps work in.
//
// HALF is the number of cells a stencil reaches to each side; it is fixed when this is compiled, so that the loops over
// it unroll. Rows lie along x and are contiguous. Grids are swept in blocks of R rows and whole vectors: cells that are
// there only to fill them have kappa = 0, and so stay zero for ever.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

constexpr int M = HALF;
constexpr int R = 4;  // rows updated together: a row of the field is loaded once for all stencils that touch it

#if defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif

template <typename T>
struct Lanes {
  typedef T V __attribute__((vector_size(BYTES)));
};
template <typename T>
using Vec = typename Lanes<T>::V;
template <typename T>
constexpr int64_t WIDTH = BYTES / sizeof(T);

template <typename T>
inline Vec<T> load(const T* from) {
  Vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <typename T>
inline void store(T* to, Vec<T> v) {
  std::memcpy(to, &v, sizeof v);
}

inline int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// A block of rows between zeros: `around` rows before the first and after the last, M cells or more between rows.
//
// Rows begin with a cache line. Blocks of one size would begin at the same place of a page, where processors take loads
// from one for loads of what was just stored into another: `lag`, in cache lines, moves them apart.
template <typename T>
class Rows {
 public:
  Rows() = default;
  Rows(int64_t rows, int64_t columns, int64_t around, int64_t lag = 0)
      : pitch(up(columns + M, LINE)), data((rows + 2 * around) * pitch + (lag + 2) * LINE, T(0)) {
    const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data.data()) / sizeof(T)) % LINE;
    origin = around * pitch + (lag + 2) * LINE - before;
  }
  T* operator[](int64_t row) { return data.data() + origin + row * pitch; }
  const T* operator[](int64_t row) const { return data.data() + origin + row * pitch; }
  void clear() { std::fill(data.begin(), data.end(), T(0)); }
  int64_t pitch = 0;

 private:
  static constexpr int64_t LINE = 64 / sizeof(T);
  std::vector<T> data;
  int64_t origin = 0;
};

// Fields of several steps, without initial values: a sweep writes all cells that another reads.
template <typename T>
class Fields {
 public:
  Fields(int64_t count, int64_t rows, int64_t pitch) 
      : size(rows * pitch), data(new T[count * size]) {}
  T* at(int64_t step) { return data.get() + step * size; }

 private:
  int64_t size;
  std::unique_ptr<T[]> data;
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

// Coefficients of the absorbing terms along an axis; zero in cells that only fill.
template <typename T>
struct Profile {
  std::vector<T> a, b, rise, slope, ab;  // rise is 1 + b
  Profile() = default;
  Profile(const T* a_, const T* b_, const T* s_, int64_t cells, int64_t filled)
      : a(filled), b(filled), rise(filled, T(1)), slope(filled), ab(filled) {
    for (int64_t i = 0; i < cells; ++i)
      a[i] = a_[i], b[i] = b_[i], rise[i] = 1 + b_[i], slope[i] = s_[i], ab[i] = a_[i] * b_[i];
  }
};

// What does not change during a call. Edges are top, bottom, left, right.
template <typename T>
struct Setup {
  int64_t nz, nx, nt, width[4];
  bool mirror;    // odd mirror above row 0, where the field is zero
  bool physical;  // sources are multiplied by kappa
  const T* given;  // kappa as given, (nz, nx)
  Rows<T> kappa;
  Profile<T> z, x;
  T cz[M + 1], cx[M + 1], dz[M], dx[M];

  void fill(const T* along_z, const T* along_x, const T* c) {
    const int64_t rows = up(nz, R), columns = up(nx, WIDTH<T>);
    kappa = filled(given);
    z = Profile<T>(along_z, along_z + nz, along_z + 2 * nz, nz, rows);
    x = Profile<T>(along_x, along_x + nx, along_x + 2 * nx, nx, columns);
    std::copy(c, c + M + 1, cz), c += M + 1;
    std::copy(c, c + M + 1, cx), c += M + 1;
    std::copy(c, c + M, dz), c += M;
    std::copy(c, c + M, dx);
  }
  // a field (nz, nx) in rows as the wave's, zero in cells that only fill and on the row of a mirror
  Rows<T> filled(const T* field) const {
    Rows<T> found(up(nz, R), up(nx, WIDTH<T>), 0, 8);
    for (int64_t i = mirror; i < nz; ++i) std::copy(field + i * nx, field + (i + 1) * nx, found[i]);
    return found;
  }
  Reach rows(int64_t beside) const { return {nz, width[0], width[1], beside, R}; }
  Reach columns(int64_t beside) const { return {nx, width[2], width[3], beside, WIDTH<T>}; }
  // numbers in one state: two fields, psi and zeta of each edge
  int64_t carry() const { return 2 * (nz * nx + nx * (width[0] + width[1]) + nz * (width[2] + width[3])); }
};

// Second and first difference of values at cells -M to M; at(m) gives them.
template <typename T, typename At>
inline Vec<T> second(const At& at, const T* c) {
  Vec<T> sum = c[0] * at(0);
  for (int m = 1; m <= M; ++m) sum += c[m] * (at(m) + at(-m));
  return sum;
}
template <typename T, typename At>
inline Vec<T> first(const At& at, const T* d) {
  Vec<T> sum = d[0] * (at(1) - at(-1));
  for (int m = 2; m <= M; ++m) sum += d[m - 1] * (at(m) - at(-m));
  return sum;
}

// The wave of a shot, or its adjoint, at two times that take turns: a step reads turn i and writes over the other.
template <typename T>
struct Wave {
  const Setup<T>& set;
  const Reach rows, columns;
  Rows<T> u[2];

  Wave(const Setup<T>& given, int64_t beside)
      : set(given), rows(given.rows(beside)), columns(given.columns(beside)) {
    for (int i = 0; i < 2; ++i) u[i] = Rows<T>(rows.n, columns.n, M, 16 * i);
  }
  // make the rows above the surface of turn i the odd mirror of those below
  void reflect(int i) {
    if (!set.mirror) return;
    std::fill(u[i][0], u[i][0] + columns.n, T(0));
    for (int m = 1; m <= M; ++m)
      for (int64_t x = 0; x < columns.n; ++x) u[i][-m][x] = -u[i][m][x];
  }
  // Calls act(block, end, side) for the parts of rows z0 to z1: end and side say at which ends of the axes a part lies,
  // -1 between them.
  template <typename Act>
  void parts(int64_t z0, int64_t z1, const Act& act) const {
    for (int end : {0, -1, 1}) {
      const int64_t begin = std::max(z0, rows.first(end)), stop = std::min(z1, rows.last(end));
      for (int side : {0, -1, 1})
        if (begin < stop && columns.first(side) < columns.last(side))
          act(Block{begin, stop, columns.first(side), columns.last(side)}, end, side);
    }
  }
};

// Memory of one shot: fields with a halo, absorbing strips, and the stencils that act on rows.
//
// HALF is the number of cells a stencil reaches to each side; it is fixed when this is compiled, so that the loops over
// it unroll. Rows lie along x and are contiguous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

// no iteration of the loop that follows reads what another writes: compilers do not see it from the pointers alone
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

constexpr int M = HALF;
constexpr int64_t LANES = 8;  // strips along x are whole vectors where they fit: remainders of short loops are slow

// What does not change during a call. Edges are top, bottom, left, right.
template <typename T>
struct Setup {
  int64_t nz, nx, nt, width[4];
  bool mirror;    // odd mirror above row 0, where the field is zero
  bool physical;  // sources are multiplied by kappa
  const T* kappa;
  const T *az, *bz, *sz;  // a, b, b' along z
  const T *ax, *bx, *sx;  // and along x
  T cz[M + 1], cx[M + 1], dz[M], dx[M];

  void coefficients(const T* c) {
    std::copy(c, c + M + 1, cz), c += M + 1;
    std::copy(c, c + M + 1, cx), c += M + 1;
    std::copy(c, c + M, dz), c += M;
    std::copy(c, c + M, dx);
  }
  // numbers in one state: two fields, psi and zeta of each edge
  int64_t carry() const {
    return 2 * (nz * nx + nx * (width[0] + width[1]) + nz * (width[2] + width[3]));
  }
  // columns that the absorbing terms of the left or right edge touch, or more: beyond, their coefficients are zero
  int64_t reach(int edge) const {
    if (!width[edge]) return 0;
    const int64_t need = width[edge] + 2 * M, whole = (need + LANES - 1) / LANES * LANES;
    return 2 * whole <= nx ? whole : need;
  }
  // edge whose absorbing terms touch a row up to `beside` cells from the layer, or -1
  int edge(int64_t z, int64_t beside) const {
    if (width[0] && z < width[0] + beside) return 0;
    return width[1] && z >= nz - width[1] - beside ? 1 : -1;
  }
  int64_t layer(int edge) const { return edge == 0 ? 0 : nz - width[1]; }  // first row of the top or bottom layer
};

// A block of rows between zeros: `around` rows before the first and after the last, M cells or more between rows.
//
// Rows begin with a cache line. Blocks of one size would begin at the same place of a page, where processors take loads
// from one for loads of what was just stored into another: `lag`, in cache lines, moves them apart.
template <typename T>
class Rows {
 public:
  Rows() = default;
  Rows(int64_t rows, int64_t columns, int64_t around, int64_t lag = 0)
      : stride((columns + M + LINE - 1) / LINE * LINE), data((rows + 2 * around) * stride + (lag + 2) * LINE, T(0)) {
    const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data.data()) / sizeof(T)) % LINE;
    origin = around * stride + (lag + 2) * LINE - before;
  }
  T* operator[](int64_t row) { return data.data() + origin + row * stride; }
  const T* operator[](int64_t row) const { return data.data() + origin + row * stride; }
  void clear() { std::fill(data.begin(), data.end(), T(0)); }
  int64_t stride = 0;

 private:
  static constexpr int64_t LINE = 64 / sizeof(T);
  std::vector<T> data;
  int64_t origin = 0;
};

// Points of one shot: cells (n, k) and weights.
template <typename T>
struct Points {
  const int32_t* cells;
  const T* weights;
  int64_t n, k;
};

template <typename T>
inline T second(const T* u, int64_t step, const T* c) {
  T sum = c[0] * u[0];
  for (int m = 1; m <= M; ++m) sum += c[m] * (u[m * step] + u[-m * step]);
  return sum;
}

template <typename T>
inline T first(const T* u, int64_t step, const T* d) {
  T sum = T(0);
  for (int m = 1; m <= M; ++m) sum += d[m - 1] * (u[m * step] - u[-m * step]);
  return sum;
}

// Fields of one shot going forward; going backward they are those of the adjoint.
template <typename T>
struct Shot {
  const Setup<T>& set;
  Rows<T> now, other;               // u[n] and u[n-1]; a step writes u[n+1] over the latter, then they change names
  Rows<T> psi[4], zeta[4];          // of top and bottom: rows of the layer; of left and right: (nz, reach)
  Rows<T> psi_next[2];              // rows are read by their neighbours after they were renewed
  Rows<T> scratch;                  // rows of temporaries
  std::vector<T> a[2], b[2], s[2];  // coefficients along the reach of the left and right edge

  explicit Shot(const Setup<T>& given)
      : set(given), now(given.nz, given.nx, M), other(given.nz, given.nx, M, 16), scratch(4, given.nx + 2 * M, 1) {
    for (int e = 0; e < 2; ++e) {
      for (Rows<T>* rows : {&psi[e], &zeta[e], &psi_next[e]}) *rows = Rows<T>(set.width[e], set.nx, 3 * M);
      const int64_t reach = set.reach(e + 2), from = column(e + 2);
      for (Rows<T>* rows : {&psi[e + 2], &zeta[e + 2]}) *rows = Rows<T>(reach ? set.nz : 0, reach, 0);
      a[e].assign(set.ax + from, set.ax + from + reach);
      b[e].assign(set.bx + from, set.bx + from + reach);
      s[e].assign(set.sx + from, set.sx + from + reach);
      // a reach may touch the other edge's layer in a small model
      for (auto* profile : {&a[e], &b[e], &s[e]})
        for (int64_t i = 0; i < reach; ++i)
          if (!own(e, i)) (*profile)[i] = T(0);
    }
  }
  // whether column i of the reach lies in the edge's layer or the M cells beside it
  bool own(int e, int64_t i) const {
    const int64_t near = set.width[e + 2] + M;
    return e == 0 ? i < near : i >= set.reach(3) - near;
  }
  // first column of the reach of the left or right edge
  int64_t column(int edge) const { return edge == 2 ? 0 : set.nx - set.reach(3); }

  void rest() {
    now.clear(), other.clear();
    for (int e = 0; e < 4; ++e) psi[e].clear(), zeta[e].clear();
  }
  // calls act(pointer, length) on every piece of the state, in one order
  template <typename Act>
  void each(Act act) {
    for (Rows<T>* rows : {&now, &other})
      for (int64_t z = 0; z < set.nz; ++z) act((*rows)[z], set.nx);
    for (int e = 0; e < 2; ++e)
      for (Rows<T>* rows : {&psi[e], &zeta[e]})
        for (int64_t z = 0; z < set.width[e]; ++z) act((*rows)[z], set.nx);
    for (int e = 2; e < 4; ++e)
      for (Rows<T>* rows : {&psi[e], &zeta[e]})
        for (int64_t z = 0; set.width[e] && z < set.nz; ++z)
          act((*rows)[z] + (e == 2 ? 0 : set.reach(3) - set.width[3]), set.width[e]);
  }
  void save(T* to) {
    each([&](T* piece, int64_t n) { std::memcpy(to, piece, n * sizeof(T)), to += n; });
  }
  void load(const T* from) {
    rest();
    each([&](T* piece, int64_t n) { std::memcpy(piece, from, n * sizeof(T)), from += n; });
    reflect(now), reflect(other);
  }
  void reflect(Rows<T>& u) {
    if (!set.mirror) return;
    std::fill(u[0], u[0] + set.nx, T(0));
    for (int m = 1; m <= M; ++m)
      INDEPENDENT for (int64_t x = 0; x < set.nx; ++x) u[-m][x] = -u[m][x];
  }
  void finish() {  // of a step
    for (int e = 0; e < 2; ++e) std::swap(psi[e], psi_next[e]);
    reflect(other);
    std::swap(now, other);
  }
  T& at(Rows<T>& u, int32_t cell) { return u[cell / set.nx][cell % set.nx]; }
};

// Acoustic waves in two or three dimensions (D): what a call fixes, and the wave at two times.
#pragma once

#include "grid.h"

// Coefficients of the absorbing terms in a cell, or in a vector of cells; rise is 1 + b.
template <typename N>
struct Coefficients {
  N a, b, rise, slope;
};

// The same along an axis; zero in cells that only fill.
template <typename T>
struct Profile {
  std::vector<T> a, b, rise, slope;
  Profile() = default;
  Profile(const T* a_, const T* b_, const T* s_, int64_t cells, int64_t filled)
      : a(filled), b(filled), rise(filled, T(1)), slope(filled) {
    for (int64_t i = 0; i < cells; ++i) a[i] = a_[i], b[i] = b_[i], rise[i] = 1 + b_[i], slope[i] = s_[i];
  }
  Coefficients<T> operator[](int64_t i) const { return {a[i], b[i], rise[i], slope[i]}; }
  // returns cell, counted from `from` → coefficients of a vector of cells
  auto vectors(int64_t from = 0) const {
    const T *a_ = a.data() + from, *b_ = b.data() + from, *rise_ = rise.data() + from, *slope_ = slope.data() + from;
    return [=](int64_t x) {
      return Coefficients<Vec<T>>{load(a_ + x), load(b_ + x), load(rise_ + x), load(slope_ + x)};
    };
  }
};

// Second and first differences along every axis, as numbers that a function has for itself: what is stored might be any
// number, so that compilers load again what is not a variable of the function that stores.
template <typename T>
struct Stencils {
  T cz[M + 1], cy[M + 1], cx[M + 1], dz[M], dy[M], dx[M];
  void read(const T* from, int axes) {
    for (T* c : {cz, cy, cx})
      if (axes == 3 || c != cy) std::copy(from, from + M + 1, c), from += M + 1;
    for (T* d : {dz, dy, dx})
      if (axes == 3 || d != dy) std::copy(from, from + M, d), from += M;
  }
};

// What does not change during a call. On the plane of a mirror kappa is zero, and so is the wave.
template <typename T, int D>
struct Setup : Given<T> {
  static constexpr int64_t FACTORS = 1;
  Rows<T> kappa;
  Profile<T> profile[3];
  Stencils<T> stencil;

  explicit Setup(const Given<T>& given) : Given<T>(given), kappa(factors(given.material)) {
    const T* from = given.along;
    for (int axis : {Z, Y, X}) {
      const int64_t n = given.size[axis];
      if (axis == Y && D == 2) continue;
      profile[axis] = Profile<T>(from, from + n, from + 2 * n, n, given.reach(axis, 0).n), from += 3 * n;
    }
    stencil.read(given.stencils, D);
  }
  Rows<T> factors(const T* field) const { return this->filled(field, this->mirror, 8); }
  // numbers in one state: two fields, psi and zeta of each edge
  int64_t carry() const {
    int64_t fields = this->cells();
    for (int axis : {Z, Y, X}) fields += this->cells() / this->size[axis] * (this->width[axis][0] + this->width[axis][1]);
    return 2 * fields;
  }
};

// Second and first difference of values at cells -M to M; at(Aside<m>()) gives them.
template <typename T, typename At>
IN_LINE Vec<T> second(const At& at, const T* c) {
  Vec<T> sum = rounded<T>(c[0] * at(Aside<0>()));
  unrolled<1, M>([&](auto m) { sum += c[m] * (at(m) + at(Aside<-m>())); });
  return sum;
}
template <typename T, typename At>
IN_LINE Vec<T> first(const At& at, const T* d) {
  Vec<T> sum = rounded<T>(d[0] * (at(Aside<1>()) - at(Aside<-1>())));
  unrolled<2, M>([&](auto m) { sum += d[m - 1] * (at(m) - at(Aside<-m>())); });
  return sum;
}

// Calls act with a condition as a constant; where it is not POSSIBLE it is false.
template <bool POSSIBLE = true, typename Act>
void constant(bool condition, const Act& act) {
  if constexpr (POSSIBLE)
    if (condition) return act(std::true_type{});
  act(std::false_type{});
}

// Whole rows: of planes z0 to z1, rows y0 to y1, and at which ends of z and y they lie, -1 between them.
struct Slab {
  int64_t z0, z1, y0, y1;
  int end[2];
};

// The wave of a shot, or its adjoint, at two times that take turns: a step reads turn i and writes over the other.
template <typename T, int D>
struct Wave {
  const Setup<T, D>& set;
  const Reach planes, rows, columns;  // along z, y and x
  Rows<T> u[2];

  Wave(const Setup<T, D>& given, int64_t beside)
      : set(given), planes(given.reach(Z, beside)), rows(given.reach(Y, beside)), columns(given.reach(X, beside)) {
    for (int i = 0; i < 2; ++i) u[i] = given.blank(M, 16 * i);
  }
  // after planes z0 to z1 of turn i: make the planes above the surface the odd mirror of those below, once all are there
  void finish(int i, int64_t z0, int64_t z1) {
    const int64_t last = std::min<int64_t>(M, planes.n - 1);
    if (z0 <= last && last < z1) reflect(i);
  }
  void reflect(int i) {
    if (!set.mirror) return;
    const int64_t n = u[i].step;
    std::fill(u[i][0], u[i][0] + n, T(0));
    for (int m = 1; m <= M; ++m)
      for (int64_t at = 0; at < n; ++at) u[i][-m][at] = -u[i][m][at];
  }
  // cells that the absorbing terms of an end of an axis take
  Rows<T> strip(int axis, int e, int64_t around, int64_t lag, int64_t more = 0) const {
    const Reach* reach[] = {&planes, &rows, &columns};
    int64_t n[3] = {planes.n, rows.n, columns.n};
    n[axis] = reach[axis]->size(e);
    if (n[axis]) n[axis] += more;
    return n[axis] ? Rows<T>(n[Z], n[X], around, lag, n[Y], set.between()) : Rows<T>();
  }
  // calls act(slab, in_z, in_y) for the slabs of planes z0 to z1; constants say whether absorbing terms of an axis act
  template <typename Act>
  void each_slab(int64_t z0, int64_t z1, const Act& act) const {
    for (int front : {0, -1, 1})
      for (int top : {0, -1, 1}) {
        const int64_t begin = std::max(z0, planes.first(top)), end = std::min(z1, planes.last(top));
        if (begin >= end || !rows.size(front)) continue;
        const Slab slab{begin, end, rows.first(front), rows.last(front), {top, front}};
        constant(top >= 0, [&](auto in_z) {
          constant<D == 3>(front >= 0, [&](auto in_y) { act(slab, in_z, in_y); });
        });
      }
  }
  // calls act(z, y) for blocks of R planes and every row, tile by tile, and before(z) before the rows of a tile there
  template <typename Before, typename Act>
  static void walk(const Slab& slab, int64_t tile, const Before& before, const Act& act) {
    for (int64_t begin = slab.y0; begin < slab.y1; begin += tile)
      for (int64_t z = slab.z0; z < slab.z1; z += R) {
        before(z);
        for (int64_t y = begin; y < std::min(slab.y1, begin + tile); ++y) act(z, y);
      }
  }
  // calls act(side, in_x) for the pieces of a row, one after the other: memory comes in the order of rows
  template <typename Act>
  void each_side(const Act& act) const {
    for (int side : {0, -1, 1})
      if (columns.size(side)) constant(side >= 0, [&](auto in_x) { act(side, in_x); });
  }
};

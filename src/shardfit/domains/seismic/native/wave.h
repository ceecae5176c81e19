// Acoustic waves: what a call fixes, and the wave at two times.
#pragma once

#include "grid.h"

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

// What does not change during a call. On the row of a mirror kappa is zero, and so is the wave.
template <typename T>
struct Setup : Given<T> {
  static constexpr int64_t PLANES = 1;
  Rows<T> kappa;
  Profile<T> z, x;
  T cz[M + 1], cx[M + 1], dz[M], dx[M];

  explicit Setup(const Given<T>& given) : Given<T>(given), kappa(factors(given.material)) {
    const int64_t nz = given.nz, nx = given.nx;
    z = Profile<T>(given.along_z, given.along_z + nz, given.along_z + 2 * nz, nz, up(nz, R));
    x = Profile<T>(given.along_x, given.along_x + nx, given.along_x + 2 * nx, nx, up(nx, WIDTH<T>));
    const T* c = given.stencils;
    std::copy(c, c + M + 1, cz), c += M + 1;
    std::copy(c, c + M + 1, cx), c += M + 1;
    std::copy(c, c + M, dz), c += M;
    std::copy(c, c + M, dx);
  }
  Rows<T> factors(const T* field) const { return this->filled(field, this->mirror, 8); }
  // numbers in one state: two fields, psi and zeta of each edge
  int64_t carry() const {
    const auto& w = this->width;
    return 2 * (this->nz * this->nx + this->nx * (w[0] + w[1]) + this->nz * (w[2] + w[3]));
  }
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
};

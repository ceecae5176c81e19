// One step forward: u[n+1] = 2 u[n] - u[n-1] + kappa (L[n] + s[n]), in one pass over the rows.
#pragma once

#include "grid.h"

template <typename T>
class Forward : public Shot<T> {
 public:
  using Shot<T>::Shot;

  void sample(const Points<T>& receivers, T* traces, int64_t n) {
    for (int64_t r = 0; r < receivers.n; ++r) {
      T sum = T(0);
      for (int64_t i = r * receivers.k; i < (r + 1) * receivers.k; ++i)
        sum += receivers.weights[i] * this->at(this->now, receivers.cells[i]);
      traces[r * this->set.nt + n] = sum;
    }
  }

  // drive: (nz, nx) takes L + s, the factor of kappa; not kept if null
  void step(const Points<T>& sources, const T* wavelet, int64_t n, T* drive) {
    const auto& set = this->set;
    for (int64_t z = set.mirror; z < set.nz; ++z) {
      if (drive) sweep<true>(z, drive + z * set.nx);
      else sweep<false>(z, nullptr);
    }
    for (int64_t i = 0; i < sources.n * sources.k; ++i) {
      const int32_t cell = sources.cells[i];
      const T value = sources.weights[i] * wavelet[i / sources.k * set.nt + n];
      this->at(this->other, cell) += set.physical ? set.kappa[cell] * value : value;
      if (drive && set.physical) drive[cell] += value;
    }
    this->finish();
  }

 private:
  template <bool KEEP>
  void sweep(int64_t z, T* g) {
    const auto& set = this->set;
    const int64_t left = set.reach(2), right = set.nx - set.reach(3), st = this->now.stride;
    const T *u = this->now[z], *k = set.kappa + z * set.nx;
    T* p = this->other[z];
    T* along = this->scratch[0];  // the z part of the Laplacian
    T cz[M + 1], cx[M + 1];
    std::copy(set.cz, set.cz + M + 1, cz), std::copy(set.cx, set.cx + M + 1, cx);
    const int edge = set.edge(z, M);
    if (edge < 0) {
      const T centre = cz[0] + cx[0];
      INDEPENDENT for (int64_t x = left; x < right; ++x) {
        T sum = centre * u[x];
        for (int m = 1; m <= M; ++m) sum += cz[m] * (u[x + m * st] + u[x - m * st]) + cx[m] * (u[x + m] + u[x - m]);
        p[x] = 2 * u[x] - p[x] + k[x] * sum;
        if (KEEP) g[x] = sum;
      }
      INDEPENDENT for (int64_t x = 0; x < left; ++x) along[x] = second(u + x, st, cz);
      INDEPENDENT for (int64_t x = right; x < set.nx; ++x) along[x] = second(u + x, st, cz);
    } else {
      absorb_rows(edge, z, along);
      INDEPENDENT for (int64_t x = left; x < right; ++x) {
        const T sum = along[x] + second(u + x, 1, cx);
        p[x] = 2 * u[x] - p[x] + k[x] * sum;
        if (KEEP) g[x] = sum;
      }
    }
    for (int e = 2; e < 4; ++e)
      if (set.width[e]) absorb_columns<KEEP>(e, z, along, g);
  }

  // the z part of the Laplacian in a row of the top or bottom layer, or up to M rows beside it
  void absorb_rows(int edge, int64_t z, T* along) {
    const auto& set = this->set;
    const int64_t r = z - set.layer(edge), su = this->now.stride, sp = this->psi[edge].stride;
    const T a = set.az[z], b = set.bz[z], slope = set.sz[z];
    const T *u = this->now[z], *psi = this->psi[edge][r];
    T c[2 * M + 1], d[M], q[2 * M + 1];  // of u and psi in rows z - M to z + M
    std::copy(set.dz, set.dz + M, d);
    c[M] = (1 + b) * set.cz[0];
    for (int m = 1; m <= M; ++m) {
      c[M + m] = (1 + b) * set.cz[m] + slope * d[m - 1], c[M - m] = (1 + b) * set.cz[m] - slope * d[m - 1];
      q[M + m] = z + m < set.nz ? d[m - 1] * set.az[z + m] : T(0), q[M - m] = z >= m ? -d[m - 1] * set.az[z - m] : T(0);
    }
    const auto inner = [&](int64_t x) {
      T t = c[M] * u[x];
      for (int m = 1; m <= M; ++m) {
        t += c[M + m] * u[x + m * su] + c[M - m] * u[x - m * su];
        t += q[M + m] * psi[x + m * sp] + q[M - m] * psi[x - m * sp];
      }
      return t;
    };
    if (r < 0 || r >= set.width[edge]) {
      INDEPENDENT for (int64_t x = 0; x < set.nx; ++x) along[x] = inner(x);
      return;
    }
    T *next = this->psi_next[edge][r], *zeta = this->zeta[edge][r];
    INDEPENDENT for (int64_t x = 0; x < set.nx; ++x) {
      const T t = inner(x), held = a * zeta[x];
      along[x] = (1 + b) * t + held;
      next[x] = b * first(u + x, su, d) + a * psi[x];
      zeta[x] = b * t + held;
    }
  }

  // the x part of the Laplacian and the update in the left or right strip of a row
  template <bool KEEP>
  void absorb_columns(int edge, int64_t z, const T* along, T* g) {
    const auto& set = this->set;
    const int64_t n = set.reach(edge), from = this->column(edge);
    const T *u = this->now[z] + from, *k = set.kappa + z * set.nx + from;
    const T *a = this->a[edge - 2].data(), *b = this->b[edge - 2].data(),
                          *slope = this->s[edge - 2].data();
    T *p = this->other[z] + from, *held = this->scratch[1];
    T *psi = this->psi[edge][z], *zeta = this->zeta[edge][z];
    T c[M + 1], d[M];
    std::copy(set.cx, set.cx + M + 1, c), std::copy(set.dx, set.dx + M, d);
    for (int m = 1; m <= M; ++m) held[-m] = held[n - 1 + m] = T(0);
    INDEPENDENT for (int64_t x = 0; x < n; ++x) held[x] = a[x] * psi[x];
    INDEPENDENT for (int64_t x = 0; x < n; ++x) {
      const T du = first(u + x, 1, d), kept = a[x] * zeta[x];
      const T t = (1 + b[x]) * second(u + x, 1, c) + slope[x] * du + first(held + x, 1, d);
      const T sum = along[from + x] + (1 + b[x]) * t + kept;
      psi[x] = b[x] * du + held[x];
      zeta[x] = b[x] * t + kept;
      p[x] = 2 * u[x] - p[x] + k[x] * sum;
      if (KEEP) g[from + x] = sum;
    }
  }
};

// One step of the exact transpose, backward in time.
//
// With lambda[n] the derivative with respect to u[n], mu = kappa lambda obeys the same recursion as u:
//   mu[n] = 2 mu[n+1] - mu[n+2] + kappa (L' mu[n+1] + R' r[n]),
// where the transposed absorbing terms of one axis are, with D' = -D and psi, zeta the derivatives from the later step,
//   t = (1 + b) mu + b zeta;  L' mu = DD((1 + b) t) - D(b' t + b psi)
//   psi <- a (psi - D t);     zeta <- a (mu + zeta).
// The derivative with respect to kappa is the sum over steps of mu[n+1] drive[n], divided by kappa at the end.
#pragma once

#include "grid.h"

template <typename T>
class Adjoint : public Shot<T> {
 public:
  explicit Adjoint(const Setup<T>& given) : Shot<T>(given) {
    for (int e = 0; e < 2; ++e) t[e] = Rows<T>(given.width[e], given.nx, 0);
  }

  // derivative with respect to the sources' wavelets at sample n, from mu[n+1]
  void sample(const Points<T>& sources, T* wavelet, int64_t n) {
    const auto& set = this->set;
    for (int64_t j = 0; j < sources.n; ++j) {
      T sum = T(0);
      for (int64_t i = j * sources.k; i < (j + 1) * sources.k; ++i) {
        const int32_t cell = sources.cells[i];
        const T mu = this->at(this->now, cell);
        sum += sources.weights[i] * (set.physical ? mu : mu / set.kappa[cell]);
      }
      wavelet[j * set.nt + n] = sum;
    }
  }

  // drive: (nz, nx) of step n; gradient: (nz, nx), added to; traces: derivative with respect to the traces
  void step(const Points<T>& receivers, const T* traces, int64_t n, const T* drive, T* gradient) {
    const auto& set = this->set;
    for (int e = 0; e < 2; ++e)
      for (int64_t r = 0; r < set.width[e]; ++r) prepare_row(e, r);
    for (int64_t z = set.mirror; z < set.nz; ++z) sweep(z, drive + z * set.nx, gradient + z * set.nx);
    for (int64_t i = 0; i < receivers.n * receivers.k; ++i) {
      const int32_t cell = receivers.cells[i];
      this->at(this->other, cell) += set.kappa[cell] * receivers.weights[i] * traces[i / receivers.k * set.nt + n];
    }
    this->finish();
  }

 private:
  Rows<T> t[2];  // in the layers; elsewhere it is mu

  void prepare_row(int edge, int64_t r) {
    const auto& set = this->set;
    const int64_t z = set.layer(edge) + r;
    const T a = set.az[z], b = set.bz[z];
    const T* mu = this->now[z];
    T *zeta = this->zeta[edge][r], *value = t[edge][r];
    INDEPENDENT for (int64_t x = 0; x < set.nx; ++x) {
      value[x] = (1 + b) * mu[x] + b * zeta[x];
      zeta[x] = a * (mu[x] + zeta[x]);
    }
  }

  void sweep(int64_t z, const T* g, T* gradient) {
    const auto& set = this->set;
    const int64_t left = set.reach(2), right = set.nx - set.reach(3), st = this->now.stride;
    const T *u = this->now[z], *k = set.kappa + z * set.nx;
    T* p = this->other[z];
    T* along = this->scratch[0];  // the transposed z part of the Laplacian
    T cz[M + 1], cx[M + 1];
    std::copy(set.cz, set.cz + M + 1, cz), std::copy(set.cx, set.cx + M + 1, cx);
    const int edge = set.edge(z, 2 * M);
    if (edge < 0) {
      const T centre = cz[0] + cx[0];
      INDEPENDENT for (int64_t x = left; x < right; ++x) {
        T sum = centre * u[x];
        for (int m = 1; m <= M; ++m) sum += cz[m] * (u[x + m * st] + u[x - m * st]) + cx[m] * (u[x + m] + u[x - m]);
        p[x] = 2 * u[x] - p[x] + k[x] * sum;
        gradient[x] += u[x] * g[x];
      }
      INDEPENDENT for (int64_t x = 0; x < left; ++x) along[x] = second(u + x, st, cz);
      INDEPENDENT for (int64_t x = right; x < set.nx; ++x) along[x] = second(u + x, st, cz);
    } else {
      absorb_rows(edge, z, along);
      INDEPENDENT for (int64_t x = left; x < right; ++x) {
        p[x] = 2 * u[x] - p[x] + k[x] * (along[x] + second(u + x, 1, cx));
        gradient[x] += u[x] * g[x];
      }
    }
    for (int e = 2; e < 4; ++e)
      if (set.width[e]) absorb_columns(e, z, along, g, gradient);
  }

  // the transposed z part in a row of the top or bottom layer, or up to 2 M rows beside it
  void absorb_rows(int edge, int64_t z, T* along) {
    const auto& set = this->set;
    const int64_t begin = set.layer(edge), r = z - begin, sp = this->psi[edge].stride;
    const T* rows[2 * M + 1];            // t of rows z - M to z + M
    T c[2 * M + 1], q[2 * M + 1], d[M];  // coefficients of t and psi in these rows
    std::copy(set.dz, set.dz + M, d);
    for (int m = -M; m <= M; ++m) {
      const int64_t i = r + m;
      const bool inside = z + m >= 0 && z + m < set.nz, layer = i >= 0 && i < set.width[edge];
      // beside its own strip an edge must not see the other's coefficients
      const bool near = inside && i >= -M && i < set.width[edge] + M;
      const T diff = m == 0 ? T(0) : m > 0 ? d[m - 1] : -d[-m - 1], b = layer ? set.bz[z + m] : T(0);
      rows[m + M] = layer ? t[edge][i] : this->now[z + m];
      c[m + M] = set.cz[m < 0 ? -m : m] * (1 + b) - (near ? diff * set.sz[z + m] : T(0));
      q[m + M] = -diff * b;
    }
    const T* psi = this->psi[edge][r];
    const auto inner = [&](int64_t x) {
      T sum = c[M] * rows[M][x];
      for (int m = 1; m <= M; ++m) {
        sum += c[M + m] * rows[M + m][x] + c[M - m] * rows[M - m][x];
        sum += q[M + m] * psi[x + m * sp] + q[M - m] * psi[x - m * sp];
      }
      return sum;
    };
    if (r < 0 || r >= set.width[edge]) {
      INDEPENDENT for (int64_t x = 0; x < set.nx; ++x) along[x] = inner(x);
      return;
    }
    const T a = set.az[z];
    T* next = this->psi_next[edge][r];
    INDEPENDENT for (int64_t x = 0; x < set.nx; ++x) {
      T slope = T(0);
      for (int m = 1; m <= M; ++m) slope += d[m - 1] * (rows[M + m][x] - rows[M - m][x]);
      along[x] = inner(x);
      next[x] = a * (psi[x] - slope);
    }
  }

  // the transposed x part and the update in the left or right strip of a row
  void absorb_columns(int edge, int64_t z, const T* along, const T* g, T* gradient) {
    const auto& set = this->set;
    const int64_t n = set.reach(edge), from = this->column(edge);
    const T *mu = this->now[z] + from, *k = set.kappa + z * set.nx + from;
    const T *a = this->a[edge - 2].data(), *b = this->b[edge - 2].data(),
                          *slope = this->s[edge - 2].data();
    T *p = this->other[z] + from, *psi = this->psi[edge][z];
    T *zeta = this->zeta[edge][z], *sum = gradient + from;
    T *value = this->scratch[1], *outer = this->scratch[2], *flux = this->scratch[3];
    T c[M + 1], d[M];
    std::copy(set.cx, set.cx + M + 1, c), std::copy(set.dx, set.dx + M, d);
    for (int m = 1; m <= M; ++m) {  // beyond the reach b = 0 and t = mu, which is zero outside the grid
      value[-m] = outer[-m] = mu[-m], value[n - 1 + m] = outer[n - 1 + m] = mu[n - 1 + m];
      flux[-m] = flux[n - 1 + m] = T(0);
    }
    INDEPENDENT for (int64_t x = 0; x < n; ++x) {
      value[x] = (1 + b[x]) * mu[x] + b[x] * zeta[x];
      outer[x] = (1 + b[x]) * value[x];
      flux[x] = slope[x] * value[x] + b[x] * psi[x];
      zeta[x] = a[x] * (mu[x] + zeta[x]);
    }
    INDEPENDENT for (int64_t x = 0; x < n; ++x) {
      psi[x] = a[x] * (psi[x] - first(value + x, 1, d));
      p[x] = 2 * mu[x] - p[x] + k[x] * (along[from + x] + second(outer + x, 1, c) - first(flux + x, 1, d));
      sum[x] += mu[x] * g[from + x];
    }
  }
};

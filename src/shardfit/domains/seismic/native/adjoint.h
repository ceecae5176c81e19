// One step of the exact transpose, backward in time.
//
// With lambda[n] the derivative with respect to u[n], mu = kappa lambda obeys the same recursion as u:
//   mu[n] = 2 mu[n+1] - mu[n+2] + kappa (L' mu[n+1] + R' r[n]),
// where the transposed absorbing terms of one axis are, with D' = -D and psi, zeta the derivatives from the later step,
//   t = (1 + b) mu + b zeta;  q = (1 + b) t;  f = b' t + b psi;  L' mu = DD q - D f
//   psi <- a (psi - D t);     zeta <- a (mu + zeta).
// t, q and f are made first, cell by cell. The derivative with respect to kappa is the sum over steps of
// mu[n+1] drive[n], divided by kappa at the end.
#pragma once

#include "points.h"
#include "wave.h"

template <typename T>
class Adjoint : public Wave<T> {
  struct Layer {
    Rows<T> psi, zeta;
    Layer() = default;
    Layer(int64_t rows, int64_t columns) : psi(rows, columns, 0, 4), zeta(rows, columns, 0, 12) {}
    void clear() { psi.clear(), zeta.clear(); }
  };
  struct Made {  // with M cells more on the side of the plain grid, where t = q = mu and f = 0
    Rows<T> t, q, f;
    Made() = default;
    Made(int64_t rows, int64_t columns) : t(rows, columns, M, 2), q(rows, columns, M, 10), f(rows, columns, M, 18) {}
  };
  Layer along_z[2], along_x[2];
  Made made_z[2];
  int64_t extra[2];  // rows made before the reach begins

 public:
  explicit Adjoint(const Setup<T>& given) : Wave<T>(given, 2 * M), extra{0, M} {
    for (int e = 0; e < 2; ++e) {
      const int64_t rows = this->rows.size(e), columns = this->columns.size(e);
      along_z[e] = Layer(rows, this->columns.n);
      along_x[e] = Layer(columns ? this->rows.n : 0, columns);
      made_z[e] = Made(rows ? rows + M : 0, this->columns.n);
    }
  }
  // memory of one thread: t, q, f of the R rows of a block at one end
  using Scratch = Rows<T>;
  Scratch scratch() const {
    return Scratch(3 * R, std::max(this->columns.size(0), this->columns.size(1)) + 2 * M, 1);
  }
  void rest() {
    for (int i = 0; i < 2; ++i) this->u[i].clear(), along_z[i].clear(), along_x[i].clear();
  }

  // derivative with respect to the sources' wavelets at sample n, from mu[n+1], which is turn i
  void sample(const Taps<T>& sources, int i, T* wavelet, int64_t n) {
    const auto& set = this->set;
    for (int64_t j = 0; j < sources.count(); ++j)
      wavelet[j * set.nt + n] = set.physical ? sources.read(j, this->u[i]) : T(0);
    if (set.physical) return;
    sources.each(0, this->rows.n, [&](int64_t j, int64_t row, int64_t x, T weight) {
      wavelet[j * set.nt + n] += weight * this->u[i][row][x] / set.material[row * set.nx + x];
    });
  }

  // t, q and f of the top and bottom layers, of rows `from`, `from + by`, ...; before any thread's `step`
  void prepare(int i, int64_t from, int64_t by) {
    const auto& p = this->set.z;
    for (int e = 0; e < 2; ++e) {
      const int64_t n = this->rows.size(e), begin = this->rows.first(e);
      for (int64_t row = from; n && row < n + M; row += by) {
        const int64_t r = row - extra[e], z = begin + r;
        T *t = made_z[e].t[row], *q = made_z[e].q[row], *f = made_z[e].f[row];
        if (r < 0 || r >= n) {
          std::copy(this->u[i][z], this->u[i][z] + this->columns.n, t), std::copy(t, t + this->columns.n, q);
          continue;
        }
        const Coefficients<T> c{p.a[z], p.b[z], p.rise[z], p.slope[z]};
        make(this->u[i][z], along_z[e].psi[r], along_z[e].zeta[r], this->columns.n, t, q, f,
             [c](int64_t) { return c; });
      }
    }
  }

  // Add mu[n+1] drive[n], turn i, to rows z0 to z1 of the gradient, and mu[n+2] drive[n+1], the other turn, if given as
  // `before`. Two steps at a time, for the gradient has to come from memory and go there.
  void correlate(int i, int64_t z0, int64_t z1, const T* drive, const T* before, Rows<T>& gradient) const {
    for (int64_t z = z0; z < z1; ++z) {
      const int64_t o = z * this->u[0].pitch, n = this->columns.n;
      const T *mu = this->u[i][z], *later = this->u[1 - i][z];
      T* total = gradient[z];
      for (int64_t x = 0; x < n; x += WIDTH<T>) {
        Vec<T> sum = load(mu + x) * load(drive + o + x);
        if (before) sum += load(later + x) * load(before + o + x);
        store(total + x, load(total + x) + sum);
      }
    }
  }

  // Rows z0 to z1 of a step back that reads turn i; traces: derivative with respect to the traces.
  void step(const Taps<T>& receivers, const T* traces, int64_t n, int i, int64_t z0, int64_t z1, Scratch& scratch) {
    parts(this->rows, this->columns, z0, z1, [&](const Block& block, int end, int side) {
      if (end < 0 && side < 0) sweep<false, false>(block, 0, 0, i, scratch);
      else if (end < 0) sweep<false, true>(block, 0, side, i, scratch);
      else if (side < 0) sweep<true, false>(block, end, 0, i, scratch);
      else sweep<true, true>(block, end, side, i, scratch);
    });
    const auto value = [&](int64_t receiver) { return traces[receiver * this->set.nt + n]; };
    receivers.add(z0, z1, value, this->set.kappa, this->u[1 - i]);
    if (z0 == 0) this->reflect(1 - i);
  }

 private:
  template <typename N>
  struct Coefficients {
    N a, b, rise, slope;
  };

  template <typename At>
  static void make(const T* mu, const T* psi, T* zeta, int64_t n, T* t, T* q, T* f, const At& at) {
    for (int64_t x = 0; x < n; x += WIDTH<T>) {
      const auto c = at(x);
      const Vec<T> m = load(mu + x), z = load(zeta + x), v = c.rise * m + c.b * z;
      store(t + x, v), store(q + x, c.rise * v), store(f + x, c.slope * v + c.b * load(psi + x));
      store(zeta + x, c.a * (m + z));
    }
  }

  // t, q and f of R rows at the left or right end
  void prepare_end(int side, int64_t z, int i, Scratch& scratch) {
    const auto& p = this->set.x;
    const int64_t n = this->columns.size(side), from = this->columns.first(side);
    const T *a = &p.a[from], *b = &p.b[from], *rise = &p.rise[from], *slope = &p.slope[from];
    for (int r = 0; r < R; ++r) {
      const T* mu = this->u[i][z + r] + from;
      T *t = scratch[3 * r] + M, *q = scratch[3 * r + 1] + M, *f = scratch[3 * r + 2] + M;
      make(mu, along_x[side].psi[z + r], along_x[side].zeta[z + r], n, t, q, f, [=](int64_t x) {
        return Coefficients<Vec<T>>{load(a + x), load(b + x), load(rise + x), load(slope + x)};
      });
      for (int m = 1; m <= M; ++m) {
        t[-m] = q[-m] = mu[-m], t[n - 1 + m] = q[n - 1 + m] = mu[n - 1 + m];
        f[-m] = f[n - 1 + m] = T(0);
      }
    }
  }

  template <bool Z, bool X>
  void sweep(const Block& block, int end, int side, int i, Scratch& scratch) {
    using V = Vec<T>;
    const auto& set = this->set;
    const int64_t st = this->u[0].pitch, top = this->rows.first(end), left = this->columns.first(side);
    const int64_t sx = along_x[side].psi.pitch, ss = 3 * scratch.pitch;
    const T *tx = scratch[0] + M - left, *qx = scratch[1] + M - left, *fx = scratch[2] + M - left, *ax = set.x.a.data();
    T cz[M + 1], cx[M + 1], dz[M], dx[M], az[R];
    std::copy(set.cz, set.cz + M + 1, cz), std::copy(set.cx, set.cx + M + 1, cx);
    std::copy(set.dz, set.dz + M, dz), std::copy(set.dx, set.dx + M, dx);
    for (int64_t z = block.z0; z < block.z1; z += R) {
      if (X) prepare_end(side, z, i, scratch);
      const int64_t row = z - top + extra[end];
      const T *u = this->u[i][z], *k = set.kappa[z];
      T* p = this->u[1 - i][z];
      const T *qz = Z ? made_z[end].q[row] : u, *fz = Z ? made_z[end].f[row] : u, *tz = Z ? made_z[end].t[row] : u;
      T *psi_z = Z ? along_z[end].psi[z - top] : nullptr, *psi_x = X ? along_x[side].psi[z] - left : nullptr;
      for (int r = 0; r < R; ++r) az[r] = set.z.a[z + r];
      for (int64_t x = block.x0; x < block.x1; x += WIDTH<T>) {
        V column[R + 2 * M], sum[R], damp{};
        for (int j = 0; j < R + 2 * M; ++j) column[j] = load(qz + (j - M) * st + x);
        for (int r = 0; r < R; ++r) sum[r] = second<T>([&](int m) { return column[r + M + m]; }, cz);
        if (Z) {
          for (int j = 0; j < R + 2 * M; ++j) column[j] = load(fz + (j - M) * st + x);
          for (int r = 0; r < R; ++r) sum[r] -= first<T>([&](int m) { return column[r + M + m]; }, dz);
          for (int j = 0; j < R + 2 * M; ++j) column[j] = load(tz + (j - M) * st + x);
          for (int r = 0; r < R; ++r) {
            T* psi = psi_z + r * st + x;
            store(psi, az[r] * (load(psi) - first<T>([&](int m) { return column[r + M + m]; }, dz)));
          }
        }
        if (X) damp = load(ax + x);
        for (int r = 0; r < R; ++r) {
          if (X) {
            const int64_t o = r * ss + x;
            T* psi = psi_x + r * sx + x;
            sum[r] += second<T>([&](int m) { return load(qx + o + m); }, cx);
            sum[r] -= first<T>([&](int m) { return load(fx + o + m); }, dx);
            store(psi, damp * (load(psi) - first<T>([&](int m) { return load(tx + o + m); }, dx)));
          } else {
            sum[r] += second<T>([&](int m) { return load(u + r * st + x + m); }, cx);
          }
          const int64_t o = r * st + x;
          const V mu = Z ? load(u + o) : column[r + M];
          store(p + o, 2 * mu - load(p + o) + load(k + o) * sum[r]);
        }
      }
    }
  }
};

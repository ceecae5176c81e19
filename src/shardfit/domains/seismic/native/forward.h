// One step forward: u[n+1] = 2 u[n] - u[n-1] + kappa (L[n] + s[n]), in one pass over the rows.
//
// In the layers, with a psi and a zeta kept instead of psi and zeta:
//   t = (1 + b) DD u + b' D u + D(a psi);  L += (1 + b) t + a zeta
//   a psi <- a b D u + a (a psi);          a zeta <- a b t + a (a zeta)
#pragma once

#include "points.h"
#include "wave.h"

template <typename T>
class Forward : public Wave<T> {
  // a psi, of which neighbours are read, takes turns as the wave does; of an axis end, over all cells across
  struct Layer {
    Rows<T> psi[2], zeta;
    Layer() = default;
    Layer(int64_t rows, int64_t columns) : zeta(rows, columns, 0, 4) {
      for (int i = 0; i < 2; ++i) psi[i] = Rows<T>(rows, columns, M, 8 + 8 * i);
    }
    void clear() { psi[0].clear(), psi[1].clear(), zeta.clear(); }
  };
  Layer along_z[2], along_x[2];

 public:
  explicit Forward(const Setup<T>& given) : Wave<T>(given, M) {
    for (int e = 0; e < 2; ++e) {
      along_z[e] = Layer(this->rows.size(e), this->columns.n);
      along_x[e] = Layer(this->columns.size(e) ? this->rows.n : 0, this->columns.size(e));
    }
  }
  void rest() {
    for (int i = 0; i < 2; ++i) this->u[i].clear(), along_z[i].clear(), along_x[i].clear();
  }
  // the state before a step that reads turn i: u[n], u[n-1], a psi and a zeta, in one order
  void save(T* to, int i) {
    each(i, [&](T* piece, int64_t n) { std::memcpy(to, piece, n * sizeof(T)), to += n; });
  }
  void load_state(const T* from, int i) {
    rest();
    each(i, [&](T* piece, int64_t n) { std::memcpy(piece, from, n * sizeof(T)), from += n; });
    this->reflect(0), this->reflect(1);
  }

  void sample(const Taps<T>& receivers, int i, int64_t from, int64_t by, T* traces, int64_t n) {
    for (int64_t r = from; r < receivers.count(); r += by)
      traces[r * this->set.nt + n] = receivers.read(r, this->u[i]);
  }

  // Rows z0 to z1 of the step that reads turn i. drive takes L + s, the factor of kappa, in rows as the wave's; it is
  // not kept if null.
  void step(const Taps<T>& sources, const T* wavelet, int64_t n, int i, int64_t z0, int64_t z1, T* drive) {
    parts(this->rows, this->columns, z0, z1, [&](const Block& block, int end, int side) {
      if (drive) sweep<true>(block, end, side, i, drive);
      else sweep<false>(block, end, side, i, nullptr);
    });
    sources.each(z0, z1, [&](int64_t source, int64_t row, int64_t x, T weight) {
      const T value = weight * wavelet[source * this->set.nt + n];
      this->u[1 - i][row][x] += this->set.physical ? this->set.kappa[row][x] * value : value;
      if (drive && this->set.physical) drive[row * this->u[0].pitch + x] += value;
    });
    if (z0 == 0) this->reflect(1 - i);
  }

  // Add factor times drive, rows as the wave's, to rows z0 to z1 of what the step that read turn i has written.
  void add(int i, int64_t z0, int64_t z1, const Rows<T>& factor, const T* drive) {
    for (int64_t z = z0; z < z1; ++z) {
      T* p = this->u[1 - i][z];
      for (int64_t x = 0; x < this->columns.n; x += WIDTH<T>)
        store(p + x, load(p + x) + load(factor[z] + x) * load(drive + z * this->u[0].pitch + x));
    }
    if (z0 == 0) this->reflect(1 - i);
  }

 private:
  template <typename Act>
  void each(int turn, const Act& act) {
    const auto& set = this->set;
    for (int i : {turn, 1 - turn})
      for (int64_t z = 0; z < set.nz; ++z) act(this->u[i][z], set.nx);
    for (int e = 0; e < 2; ++e) {  // a single reach holds both ends
      const bool one = this->rows.low == this->rows.n;
      Layer& layer = along_z[one ? 0 : e];
      const int64_t from = e == 0 ? 0 : set.nz - set.width[1] - (one ? 0 : this->rows.high);
      for (Rows<T>* kept : {&layer.psi[turn], &layer.zeta})
        for (int64_t z = 0; z < set.width[e]; ++z) act((*kept)[from + z], set.nx);
    }
    for (int e = 0; e < 2; ++e) {
      const bool one = this->columns.low == this->columns.n;
      Layer& layer = along_x[one ? 0 : e];
      const int64_t from = e == 0 ? 0 : set.nx - set.width[3] - (one ? 0 : this->columns.high);
      for (Rows<T>* kept : {&layer.psi[turn], &layer.zeta})
        for (int64_t z = 0; set.width[e + 2] && z < set.nz; ++z) act((*kept)[z] + from, set.width[e + 2]);
    }
  }

  template <bool KEEP>
  void sweep(const Block& block, int end, int side, int i, T* drive) {
    if (end < 0 && side < 0) sweep<false, false, KEEP>(block, 0, 0, i, drive);
    else if (end < 0) sweep<false, true, KEEP>(block, 0, side, i, drive);
    else if (side < 0) sweep<true, false, KEEP>(block, end, 0, i, drive);
    else sweep<true, true, KEEP>(block, end, side, i, drive);
  }

  // the absorbing terms of one axis; returns their share in L
  template <typename C>
  static Vec<T> absorb(Vec<T> curve, Vec<T> slope, Vec<T> flux, const C& c, const T* psi, T* psi_next, T* zeta) {
    const Vec<T> t = c.rise * curve + c.slope * slope + flux, held = load(zeta);
    store(psi_next, c.ab * slope + c.a * load(psi));
    store(zeta, c.ab * t + c.a * held);
    return c.rise * t + held;
  }
  template <typename N>
  struct Coefficients {
    N a, ab, rise, slope;
  };

  // Z, X: whether the absorbing terms along the axis act here
  template <bool Z, bool X, bool KEEP>
  void sweep(const Block& block, int end, int side, int i, T* drive) {
    using V = Vec<T>;
    // what is stored might be any number, so that compilers load again what is not a variable of this function
    const auto& set = this->set;
    const int64_t st = this->u[0].pitch, top = this->rows.first(end), left = this->columns.first(side);
    T cz[M + 1], cx[M + 1], dz[M], dx[M];
    std::copy(set.cz, set.cz + M + 1, cz), std::copy(set.cx, set.cx + M + 1, cx);
    std::copy(set.dz, set.dz + M, dz), std::copy(set.dx, set.dx + M, dx);
    const T centre = cz[0] + cx[0];
    const T *ax = set.x.a.data(), *abx = set.x.ab.data(), *rise_x = set.x.rise.data(), *slope_x = set.x.slope.data();
    Layer &lz = along_z[end], &lx = along_x[side];
    const int64_t sx = lx.zeta.pitch;
    for (int64_t z = block.z0; z < block.z1; z += R) {
      const T *u = this->u[i][z], *k = set.kappa[z];
      T *p = this->u[1 - i][z], *g = KEEP ? drive + z * st : nullptr;
      const T *psi_z = Z ? lz.psi[i][z - top] : nullptr, *psi_x = X ? lx.psi[i][z] - left : nullptr;
      T *next_z = Z ? lz.psi[1 - i][z - top] : nullptr, *next_x = X ? lx.psi[1 - i][z] - left : nullptr;
      T *zeta_z = Z ? lz.zeta[z - top] : nullptr, *zeta_x = X ? lx.zeta[z] - left : nullptr;
      Coefficients<T> along[R];
      for (int r = 0; Z && r < R; ++r)
        along[r] = {set.z.a[z + r], set.z.ab[z + r], set.z.rise[z + r], set.z.slope[z + r]};
      for (int64_t x = block.x0; x < block.x1; x += WIDTH<T>) {
        V column[R + 2 * M], sum[R];
        for (int j = 0; j < R + 2 * M; ++j) column[j] = load(u + (j - M) * st + x);
        if (Z) {
          V flux[R + 2 * M];
          for (int j = 0; j < R + 2 * M; ++j) flux[j] = load(psi_z + (j - M) * st + x);
          for (int r = 0; r < R; ++r) {
            const auto at = [&](int m) { return column[r + M + m]; };
            const auto kept = [&](int m) { return flux[r + M + m]; };
            const int64_t o = r * st + x;
            sum[r] = absorb(second<T>(at, cz), first<T>(at, dz), first<T>(kept, dz), along[r], psi_z + o, next_z + o,
                            zeta_z + o);
          }
        }
        Coefficients<V> across{};
        if (X) across = {load(ax + x), load(abx + x), load(rise_x + x), load(slope_x + x)};
        for (int r = 0; r < R; ++r) {
          const auto beside = [&](int m) { return m ? load(u + r * st + x + m) : column[r + M]; };
          if (X) {
            const int64_t o = r * sx + x;
            const auto kept = [&](int m) { return load(psi_x + o + m); };
            const V share = absorb(second<T>(beside, cx), first<T>(beside, dx), first<T>(kept, dx), across, psi_x + o,
                                   next_x + o, zeta_x + o);
            sum[r] = share + (Z ? sum[r] : second<T>([&](int m) { return column[r + M + m]; }, cz));
          } else if (Z) {
            sum[r] += second<T>(beside, cx);
          } else {
            sum[r] = centre * column[r + M];
            for (int m = 1; m <= M; ++m)
              sum[r] += cz[m] * (column[r + M + m] + column[r + M - m]) + cx[m] * (beside(m) + beside(-m));
          }
        }
        for (int r = 0; r < R; ++r) {
          const int64_t o = r * st + x;
          store(p + o, 2 * column[r + M] - load(p + o) + load(k + o) * sum[r]);
          if (KEEP) store(g + o, sum[r]);
        }
      }
    }
  }
};

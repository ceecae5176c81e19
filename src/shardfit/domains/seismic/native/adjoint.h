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

template <typename T, int D>
class Adjoint : public Wave<T, D> {
  struct Layer {
    Rows<T> psi, zeta;
  };
  struct Made {  // with M cells more at either end of the layer, where t = q = mu and f = 0
    Rows<T> t, q, f;
  };
  Layer layers[3][2];  // by axis and end
  Made along_z[2];
  int64_t extra[2];  // planes made before the reach begins

 public:
  explicit Adjoint(const Setup<T, D>& given) : Wave<T, D>(given, 2 * M), extra{0, M} {
    for (int e = 0; e < 2; ++e) {
      for (int axis : {Z, Y, X}) layers[axis][e] = {this->strip(axis, e, 0, 4), this->strip(axis, e, 0, 12)};
      along_z[e] = {this->strip(Z, e, M, 2, M), this->strip(Z, e, M, 10, M), this->strip(Z, e, M, 18, M)};
    }
  }
  // memory of one thread: t, q, f of a row in R planes at an end of x, and of the rows in R planes at an end of y
  struct Scratch {
    Rows<T> along_x;
    Made along_y;
  };
  Scratch scratch() const {
    const auto most = [](const Reach& reach) { return std::max(reach.size(0), reach.size(1)); };
    Scratch found{Rows<T>(3 * R, most(this->columns) + 2 * WIDTH<T>, 1), {}};
    for (Rows<T>* made : {&found.along_y.t, &found.along_y.q, &found.along_y.f})
      if (most(this->rows)) *made = Rows<T>(R, this->columns.n, 0, 0, most(this->rows) + M, M);
    return found;
  }
  void rest() {
    this->u[0].clear(), this->u[1].clear();
    for (auto& ends : layers)
      for (Layer& layer : ends) layer.psi.clear(), layer.zeta.clear();
  }

  // derivative with respect to sample n of the wavelets of sources that end in planes z0 to z1, from mu[n+1], turn i
  void sample(const Taps<T>& sources, int i, int64_t z0, int64_t z1, T* wavelet, int64_t n) const {
    const auto& set = this->set;
    sources.ending(z0, z1, [&](int64_t j) {
      T& sum = wavelet[j * set.nt + n] = set.physical ? sources.read(j, this->u[i]) : T(0);
      if (set.physical) return;
      sources.each_of(j, [&](int64_t plane, int64_t at, T weight) {
        const T kappa = set.kappa[plane][at];  // zero on a mirror, where mu is
        if (kappa != T(0)) sum += weight * this->u[i][plane][at] / kappa;
      });
    });
  }

  // t, q and f of planes z0 to z1 of the top and bottom layers; M planes beside are wanted before a plane's `step`
  void prepare(int i, int64_t z0, int64_t z1) {
    for (int e = 0; e < 2; ++e) {
      const int64_t n = this->planes.size(e), begin = this->planes.first(e), from = begin - extra[e];
      for (int64_t z = std::max(z0, from); n && z < std::min(z1, from + n + M); ++z) {
        const int64_t plane = z - from, r = z - begin;
        for (int64_t y = 0; y < this->rows.n; ++y) {
          const int64_t row = y * this->u[i].pitch;
          const T* mu = this->u[i][z] + row;
          T *t = along_z[e].t[plane] + row, *q = along_z[e].q[plane] + row, *f = along_z[e].f[plane] + row;
          if (r < 0 || r >= n) copy(mu, this->columns.n, t, q);
          else make(mu, layers[Z][e], r, row, this->columns.n, t, q, f, same(this->set.profile[Z][z]));
        }
      }
    }
  }

  // Add mu[n+1] drive[n], turn i, to planes z0 to z1 of the gradient, and mu[n+2] drive[n+1], the other turn, if given as
  // `before`. Two steps at a time, for the gradient has to come from memory and go there.
  void correlate(int i, int64_t z0, int64_t z1, const T* drive, const T* before, Rows<T>& gradient) const {
    for (int64_t z = z0; z < z1; ++z)
      for (int64_t y = 0; y < this->rows.n; ++y) {
        const int64_t row = y * this->u[0].pitch, o = z * this->u[0].step + row, n = this->columns.n;
        const T *mu = this->u[i][z] + row, *later = this->u[1 - i][z] + row;
        T* total = gradient[z] + row;
        for (int64_t x = 0; x < n; x += WIDTH<T>) {
          Vec<T> sum = load(mu + x) * load(drive + o + x);
          if (before) sum += load(later + x) * load(before + o + x);
          store(total + x, load(total + x) + sum);
        }
      }
  }

  // Planes z0 to z1 of a step back that reads turn i; traces: derivative with respect to the traces.
  void step(const Taps<T>& receivers, const T* traces, int64_t n, int i, int64_t z0, int64_t z1, Scratch& scratch) {
    this->each_slab(z0, z1, [&](const Slab& slab, auto in_z, auto in_y) {
      const auto before = [&](int64_t z) {
        if (in_y) prepare_y(slab.end[Y], z, i, scratch.along_y);
      };
      // t, q and f of the rows of a layer are made once
      this->walk(slab, in_y ? slab.y1 - slab.y0 : TILE, before, [&](int64_t z, int64_t y) {
        this->each_side([&](int side, auto in_x) {
          if (in_x) prepare_x(side, z, y, i, scratch);
          sweep<in_z, in_y, in_x>({slab.end[Z], slab.end[Y], side}, z, y, i, scratch);
        });
      });
    });
    const auto value = [&](int64_t receiver) { return traces[receiver * this->set.nt + n]; };
    receivers.add(z0, z1, value, this->set.kappa, this->u[1 - i]);
    this->finish(1 - i, z0, z1);
  }

 private:
  // the same coefficients for all cells of a row
  static auto same(const Coefficients<T>& c) {
    return [c](int64_t) { return c; };
  }
  static void copy(const T* mu, int64_t n, T* t, T* q) { std::copy(mu, mu + n, t), std::copy(mu, mu + n, q); }

  // t, q and f of n cells of a row; psi and zeta of the layer begin at a place of a plane
  template <typename At>
  static void make(const T* mu, Layer& layer, int64_t plane, int64_t place, int64_t n, T* t, T* q, T* f, const At& at) {
    const T* psi = layer.psi[plane] + place;
    T* zeta = layer.zeta[plane] + place;
    for (int64_t x = 0; x < n; x += WIDTH<T>) {
      const auto c = at(x);
      const Vec<T> m = load(mu + x), z = load(zeta + x), v = c.rise * m + c.b * z;
      store(t + x, v), store(q + x, c.rise * v), store(f + x, c.slope * v + c.b * load(psi + x));
      store(zeta + x, c.a * (m + z));
    }
  }

  // t, q and f of one row in R planes at the left or right end
  void prepare_x(int side, int64_t z, int64_t y, int i, Scratch& scratch) {
    const int64_t n = this->columns.size(side), from = this->columns.first(side);
    const auto at = this->set.profile[X].vectors(from);
    Layer& layer = layers[X][side];
    for (int r = 0; r < R; ++r) {
      const T* mu = this->u[i][z + r] + y * this->u[i].pitch + from;
      T *t = scratch.along_x[3 * r] + WIDTH<T>, *q = scratch.along_x[3 * r + 1] + WIDTH<T>, *f = scratch.along_x[3 * r + 2] + WIDTH<T>;
      make(mu, layer, z + r, y * layer.psi.pitch, n, t, q, f, at);
      for (int m = 1; m <= M; ++m) {
        t[-m] = q[-m] = mu[-m], t[n - 1 + m] = q[n - 1 + m] = mu[n - 1 + m];
        f[-m] = f[n - 1 + m] = T(0);
      }
    }
  }

  // t, q and f of R planes at the front or back end
  void prepare_y(int e, int64_t z, int i, Made& made) {
    const int64_t rows = this->rows.size(e), from = this->rows.first(e), n = this->columns.n;
    for (int r = 0; r < R; ++r)
      for (int64_t y = -M; y < rows + M; ++y) {
        const int64_t place = y * this->u[i].pitch;
        const T* mu = this->u[i][z + r] + from * this->u[i].pitch + place;
        T *t = made.t[r] + place, *q = made.q[r] + place, *f = made.f[r] + place;
        if (y < 0 || y >= rows) copy(mu, n, t, q), std::fill(f, f + n, T(0));
        else make(mu, layers[Y][e], z + r, place, n, t, q, f, same(this->set.profile[Y][from + y]));
      }
  }

  struct Ends {
    int z, y, x;
  };
  // where a row of t, q, f lies, and psi
  struct Place {
    const T *t = nullptr, *q = nullptr, *f = nullptr;
    T* psi = nullptr;
  };

  // A piece of row y in each of R planes.
  template <bool IN_Z, bool IN_Y, bool IN_X>
  __attribute__((flatten)) void sweep(const Ends& end, int64_t z, int64_t y, int i, Scratch& scratch) {
    using V = Vec<T>;
    const auto& set = this->set;
    const Stencils<T> s = set.stencil;
    const int64_t st = this->u[0].step, sy = this->u[0].pitch, row = y * sy;
    const T *u = this->u[i][z] + row, *k = set.kappa[z] + row, *ax = set.profile[X].a.data();
    T *p = this->u[1 - i][z] + row, az[R], ay = T(0);
    Place in_z, in_y, in_x;
    int64_t ty = 0, py = 0, tx = 0, px = 0;  // from plane to plane
    if (IN_Z) {
      const Made& made = along_z[end.z];
      const int64_t at = z - this->planes.first(end.z), plane = at + extra[end.z];
      in_z = {made.t[plane] + row, made.q[plane] + row, made.f[plane] + row, layers[Z][end.z].psi[at] + row};
      for (int r = 0; r < R; ++r) az[r] = set.profile[Z].a[z + r];
    }
    if (IN_Y) {
      const Made& made = scratch.along_y;
      const int64_t place = (y - this->rows.first(end.y)) * sy;
      Rows<T>& psi = layers[Y][end.y].psi;
      in_y = {made.t[0] + place, made.q[0] + place, made.f[0] + place, psi[z] + place};
      ay = set.profile[Y].a[y], ty = made.t.step, py = psi.step;
    }
    if (IN_X) {
      const int64_t left = this->columns.first(end.x);
      const Rows<T>& made = scratch.along_x;
      Rows<T>& psi = layers[X][end.x].psi;
      const int64_t begin = WIDTH<T> - left;
      in_x = {made[0] + begin, made[1] + begin, made[2] + begin, psi[z] + y * psi.pitch - left};
      tx = 3 * made.step, px = psi.step;
    }
    const int64_t last = this->columns.last(end.x);
    for (int64_t x = this->columns.first(end.x); x < last; x += WIDTH<T>) {
      V column[R + 2 * M], sum[R];
      const auto read = [&](const T* from) {
        unrolled<0, R + 2 * M - 1>([&](auto j) { column[j] = load(from + (j - M) * st + x); });
      };
      const auto each = [&](const auto& act) {
        unrolled<0, R - 1>([&](auto r) { act(r, [&](int m) { return column[r + M + m]; }); });
      };
      read(IN_Z ? in_z.q : u);
      each([&](auto r, const auto& at) { sum[r] = second<T>(at, s.cz); });
      if (IN_Z) {
        read(in_z.f);
        each([&](auto r, const auto& at) { sum[r] -= first<T>(at, s.dz); });
        read(in_z.t);
        each([&](auto r, const auto& at) { damp(in_z.psi + r * st + x, az[r], first<T>(at, s.dz)); });
      }
      unrolled<0, R - 1>([&](auto r) {
        if (IN_Y) {
          const int64_t o = r * ty + x;
          sum[r] += second<T>([&](int m) { return load(in_y.q + o + m * sy); }, s.cy);
          sum[r] -= first<T>([&](int m) { return load(in_y.f + o + m * sy); }, s.dy);
          damp(in_y.psi + r * py + x, ay, first<T>([&](int m) { return load(in_y.t + o + m * sy); }, s.dy));
        } else if (D == 3) {
          sum[r] += second<T>([&](int m) { return load(u + r * st + x + m * sy); }, s.cy);
        }
        const int64_t o = r * st + x;
        const V mu = IN_Z ? load(u + o) : column[r + M];
        if (IN_X) {
          const int64_t made = r * tx + x;
          sum[r] += second<T>(Beside<T>(in_x.q + made), s.cx);
          sum[r] -= first<T>(Beside<T>(in_x.f + made), s.dx);
          damp(in_x.psi + r * px + x, load(ax + x), first<T>(Beside<T>(in_x.t + made), s.dx));
        } else {
          sum[r] += second<T>(Beside<T>(u + o, mu), s.cx);
        }
        store(p + o, 2 * mu - load(p + o) + load(k + o) * sum[r]);
      });
    }
  }
  template <typename N>
  IN_LINE static void damp(T* psi, N a, Vec<T> change) {
    store(psi, a * (load(psi) - change));
  }
};

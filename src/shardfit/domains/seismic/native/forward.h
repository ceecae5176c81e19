// One step forward: u[n+1] = 2 u[n] - u[n-1] + kappa (L[n] + s[n]), in one pass over the planes.
//
// In the layers, with a psi and a zeta kept instead of psi and zeta:
//   t = (1 + b) DD u + b' D u + D(a psi);  L += (1 + b) t + a zeta
//   a psi <- a (b D u + a psi);            a zeta <- a (b t + a zeta)
// No sum has two products that are not rounded, see grid.h.
#pragma once

#include "points.h"
#include "wave.h"

template <typename T, int D>
class Forward : public Wave<T, D> {
  // a psi, of which neighbours are read, takes turns as the wave does
  struct Layer {
    Rows<T> psi[2], zeta;
    void clear() { psi[0].clear(), psi[1].clear(), zeta.clear(); }
  };
  Layer layers[3][2];  // by axis and end
  enum { NOTHING, NEAR, FAR };

 public:
  bool far = false;  // whether a drive that is kept goes past the cache
  explicit Forward(const Setup<T, D>& given) : Wave<T, D>(given, M) {
    for (int axis : {Z, Y, X})
      for (int e = 0; e < 2; ++e) {
        Layer& layer = layers[axis][e];
        layer.zeta = this->strip(axis, e, 0, 4);
        for (int i = 0; i < 2; ++i) layer.psi[i] = this->strip(axis, e, M, 8 + 8 * i);
      }
  }
  void rest() {
    this->u[0].clear(), this->u[1].clear();
    for (auto& ends : layers) ends[0].clear(), ends[1].clear();
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

  // sample n of receivers from, from + by, ..., or of those that end in planes z0 to z1
  void sample(const Taps<T>& receivers, int i, int64_t from, int64_t by, T* traces, int64_t n) const {
    for (int64_t r = from; r < receivers.count(); r += by)
      traces[r * this->set.nt + n] = receivers.read(r, this->u[i]);
  }
  void sample_ending(const Taps<T>& receivers, int i, int64_t z0, int64_t z1, T* traces, int64_t n) const {
    receivers.ending(z0, z1, [&](int64_t r) { traces[r * this->set.nt + n] = receivers.read(r, this->u[i]); });
  }

  // Planes z0 to z1 of the step that reads turn i. drive takes L + s, the factor of kappa, laid out as the wave; it is
  // not kept if null.
  void step(const Taps<T>& sources, const T* wavelet, int64_t n, int i, int64_t z0, int64_t z1, T* drive) {
    this->each_slab(z0, z1, [&](const Slab& slab, auto in_z, auto in_y) {
      this->walk(slab, TILE, [](int64_t) {}, [&](int64_t z, int64_t y) {
        this->each_side([&](int side, auto in_x) {
          const Ends ends{slab.end[Z], slab.end[Y], side};
          if (!drive) sweep<in_z, in_y, in_x, NOTHING>(ends, z, y, i, nullptr);
          else if (far) sweep<in_z, in_y, in_x, FAR>(ends, z, y, i, drive);
          else sweep<in_z, in_y, in_x, NEAR>(ends, z, y, i, drive);
        });
      });
    });
    sources.each(z0, z1, [&](int64_t source, int64_t plane, int64_t at, T weight) {
      const T value = weight * wavelet[source * this->set.nt + n];
      this->u[1 - i][plane][at] += this->set.physical ? this->set.kappa[plane][at] * value : value;
      if (drive && this->set.physical) drive[plane * this->u[0].step + at] += value;
    });
    this->finish(1 - i, z0, z1);
  }

  // Add factor times drive, laid out as the wave, to planes z0 to z1 of what the step that read turn i has written.
  void add(int i, int64_t z0, int64_t z1, const Rows<T>& factor, const T* drive) {
    for (int64_t z = z0; z < z1; ++z)
      for (int64_t y = 0; y < this->rows.n; ++y) {
        const int64_t row = y * this->u[0].pitch;
        const T *f = factor[z] + row, *d = drive + z * this->u[0].step + row;
        T* p = this->u[1 - i][z] + row;
        for (int64_t x = 0; x < this->columns.n; x += WIDTH<T>) store(p + x, load(p + x) + load(f + x) * load(d + x));
      }
    this->finish(1 - i, z0, z1);
  }

 private:
  template <typename Act>
  void each(int turn, const Act& act) {
    const auto& set = this->set;
    const auto pieces = [&](Rows<T>& kept, int axis, int64_t from, int64_t count) {
      int64_t n[3] = {set.size[Z], set.size[Y], set.size[X]}, begin[3] = {};
      n[axis] = count, begin[axis] = from;
      for (int64_t z = 0; count && z < n[Z]; ++z)
        for (int64_t y = 0; y < n[Y]; ++y)
          act(kept[begin[Z] + z] + (begin[Y] + y) * kept.pitch + begin[X], n[X]);
    };
    for (int i : {turn, 1 - turn}) pieces(this->u[i], Z, 0, set.size[Z]);
    const Reach* reach[] = {&this->planes, &this->rows, &this->columns};
    for (int axis : {Z, Y, X})
      for (int e = 0; e < 2; ++e) {
        const bool one = reach[axis]->low == reach[axis]->n;  // a single reach holds both ends
        const int64_t width = set.width[axis][e];
        const int64_t from = e == 0 ? 0 : set.size[axis] - width - (one ? 0 : reach[axis]->high);
        Layer& layer = layers[axis][one ? 0 : e];
        for (Rows<T>* kept : {&layer.psi[turn], &layer.zeta}) pieces(*kept, axis, from, width);
      }
  }

  struct Ends {
    int z, y, x;
  };
  // where a row of a layer lies: a psi, the one to be written, a zeta, and how far it is to the next plane
  struct Place {
    const T* psi = nullptr;
    T *next = nullptr, *zeta = nullptr;
    int64_t step = 0;
  };
  static Place place(Layer& layer, int i, int64_t plane, int64_t at) {
    return {layer.psi[i][plane] + at, layer.psi[1 - i][plane] + at, layer.zeta[plane] + at, layer.zeta.step};
  }

  // the absorbing terms of one axis; returns their share in L
  template <typename C>
  IN_LINE static Vec<T> absorb(Vec<T> curve, Vec<T> slope, Vec<T> flux, const C& c, const Place& place, int64_t o) {
    Vec<T> t = c.rise * curve + flux;
    t += c.slope * slope;
    const Vec<T> held = load(place.zeta + o);
    store(place.next + o, c.a * (c.b * slope + load(place.psi + o)));
    store(place.zeta + o, c.a * (c.b * t + held));
    return c.rise * t + held;
  }

  // A piece of row y in each of R planes. IN_Z, IN_Y, IN_X: whether the absorbing terms along the axis act here.
  template <bool IN_Z, bool IN_Y, bool IN_X, int KEEP>
  __attribute__((flatten)) void sweep(const Ends& end, int64_t z, int64_t y, int i, T* drive) {
    using V = Vec<T>;
    const auto& set = this->set;
    const Stencils<T> s = set.stencil;
    const int64_t st = this->u[0].step, sy = this->u[0].pitch, row = y * sy;
    const T *u = this->u[i][z] + row, *k = set.kappa[z] + row;
    T *p = this->u[1 - i][z] + row, *g = KEEP ? drive + z * st + row : nullptr;
    Place in_z, in_y, in_x;
    Coefficients<T> along_z[R], along_y;
    if (IN_Z) in_z = place(layers[Z][end.z], i, z - this->planes.first(end.z), row);
    if (IN_Y) in_y = place(layers[Y][end.y], i, z, (y - this->rows.first(end.y)) * sy), along_y = set.profile[Y][y];
    if (IN_X) in_x = place(layers[X][end.x], i, z, y * layers[X][end.x].zeta.pitch - this->columns.first(end.x));
    for (int r = 0; IN_Z && r < R; ++r) along_z[r] = set.profile[Z][z + r];
    const auto along = set.profile[X].vectors();
    const T centre = D == 3 ? s.cz[0] + s.cy[0] + s.cx[0] : s.cz[0] + s.cx[0];
    const int64_t last = this->columns.last(end.x);
    for (int64_t x = this->columns.first(end.x); x < last; x += WIDTH<T>) {
      V column[R + 2 * M], sum[R];
      unrolled<0, R + 2 * M - 1>([&](auto j) { column[j] = load(u + (j - M) * st + x); });
      if (IN_Z) {
        V flux[R + 2 * M];
        unrolled<0, R + 2 * M - 1>([&](auto j) { flux[j] = load(in_z.psi + (j - M) * st + x); });
        unrolled<0, R - 1>([&](auto r) {
          const auto at = [&](int m) { return column[r + M + m]; };
          const auto kept = [&](int m) { return flux[r + M + m]; };
          sum[r] = absorb(second<T>(at, s.cz), first<T>(at, s.dz), first<T>(kept, s.dz), along_z[r], in_z, r * st + x);
        });
      }
      Coefficients<V> along_x{};
      if (IN_X) along_x = along(x);
      unrolled<0, R - 1>([&](auto r) {
        const auto above = [&](int m) { return column[r + M + m]; };
        const auto behind = [&](int m) { return m ? load(u + r * st + m * sy + x) : column[r + M]; };
        const Beside<T> beside(u + r * st + x, column[r + M]);
        if (!IN_Z && !IN_Y && !IN_X) {
          sum[r] = rounded<T>(centre * column[r + M]);
          unrolled<1, M>([&](auto m) {
            sum[r] += s.cz[m] * (above(m) + above(-m));
            if (D == 3) sum[r] += s.cy[m] * (behind(m) + behind(-m));
            sum[r] += s.cx[m] * (beside(m) + beside(Aside<-m>()));
          });
          return;
        }
        if (!IN_Z) sum[r] = second<T>(above, s.cz);
        if (IN_Y) {
          const auto kept = [&](int m) { return load(in_y.psi + r * in_y.step + m * sy + x); };
          sum[r] += absorb(second<T>(behind, s.cy), first<T>(behind, s.dy), first<T>(kept, s.dy), along_y, in_y, r * in_y.step + x);
        } else if (D == 3) {
          sum[r] += second<T>(behind, s.cy);
        }
        if (IN_X) {
          const Beside<T> kept(in_x.psi + r * in_x.step + x);
          sum[r] += absorb(second<T>(beside, s.cx), first<T>(beside, s.dx), first<T>(kept, s.dx), along_x, in_x, r * in_x.step + x);
        } else {
          sum[r] += second<T>(beside, s.cx);
        }
      });
      unrolled<0, R - 1>([&](auto r) {
        const int64_t o = r * st + x;
        store(p + o, 2 * column[r + M] - load(p + o) + load(k + o) * sum[r]);
        if (KEEP == NEAR) store(g + o, sum[r]);
        if (KEEP == FAR) store_far(g + o, sum[r]);
      });
    }
  }
};

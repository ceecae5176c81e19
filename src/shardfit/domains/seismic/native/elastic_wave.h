// Elastic waves on Virieux's staggered grid: what a call fixes, the fields of a shot, and half a step of them.
//
// In each half of a step four derivatives are needed, one for either axis at the cells and half a cell on:
//   motion:  vx += light_x (Dx sxx + Dz sxz)        stress:  sxx, szz += bulk (Dx vx + Dz vz) ± shear (Dx vx - Dz vz)
//            vz += light_z (Dx sxz + Dz szz)                 sxz += corner (Dz vx + Dx vz)
// Fields are written in place, for neither half reads what it writes. Under a free surface, stresses are odd about row 0
// and velocities even; there bulk = shear, so that sxx changes by 2 bulk Dx vx, and szz is zero.
//
// Forward, every derivative in the layers becomes D + psi with psi <- a psi + b D.
//
// Backward, the derivatives with respect to the fields, multiplied by the factors of the material (and doubled on row 0
// of a free surface, where a cell is half a cell), obey the same equations with -D: minus one derivative is the transpose
// of the other. In the layers it acts on made = f + b (f + psi) instead of the field f, psi <- a (f + psi).
#pragma once

#include "points.h"

enum { VX, VZ, SXX, SZZ, SXZ, FIELDS };
enum { LIGHT_X, LIGHT_Z, BULK, SHEAR, CORNER };
enum { MOTION, STRESS };  // halves of a step
enum { ALONG_Z, ALONG_X };
enum { AT, BETWEEN };  // where a derivative is wanted along its axis: at the cells, or half a cell on

constexpr int DIFFERENTIATED[2][2][2] = {{{SXZ, SZZ}, {SXZ, SXX}}, {{VZ, VX}, {VX, VZ}}};  // half, axis, place

// Five fields in rows: of the waves, or of the factors of a material.
template <typename T>
struct Five {
  Rows<T> of[FIELDS];
  Rows<T>& operator[](int i) { return of[i]; }
  const Rows<T>& operator[](int i) const { return of[i]; }
};

template <typename T>
struct Solid : Given<T> {
  static constexpr int64_t FACTORS = FIELDS;
  const int64_t nz, nx;
  Five<T> factor;
  std::vector<T> a[2][2], b[2][2];  // by axis and place; zero in cells that only fill
  T c[2][M];

  explicit Solid(const Given<T>& given)
      : Given<T>(given), nz(given.size[Z]), nx(given.size[X]), factor(factors(given.material)) {
    const int64_t cells[2] = {nz, nx}, whole[2] = {up(nz, R), up(nx, WIDTH<T>)};
    const T* from = given.along;
    for (int axis : {ALONG_Z, ALONG_X}) {
      for (int place : {AT, BETWEEN})
        for (auto* to : {&a[axis][place], &b[axis][place]})
          to->assign(whole[axis], T(0)), std::copy(from, from + cells[axis], to->begin()), from += cells[axis];
      std::copy(given.stencils + axis * M, given.stencils + (axis + 1) * M, c[axis]);
    }
  }
  Five<T> factors(const T* planes) const {
    Five<T> found;
    for (int i = 0; i < FIELDS; ++i) found[i] = this->filled(planes + i * nz * nx, 0, 6 * i + 33);
    return found;
  }
  int64_t source() const { return this->kinds[0]; }  // VX, VZ, or SXX for both normal stresses
  int64_t receiver() const { return this->kinds[1]; }
  // cells at an end of an axis where psi is not zero: half a cell on, the far layer begins one cell earlier
  int64_t layer(int axis, int end) const {
    const int64_t width = this->width[axis == ALONG_Z ? Z : X][end];
    return width ? width + end : 0;
  }
  // numbers in one state: five fields, and psi of four derivatives along each axis
  int64_t carry() const {
    const int64_t across[2] = {nx, nz};
    int64_t n = FIELDS * nz * nx;
    for (int axis : {ALONG_Z, ALONG_X}) n += 4 * across[axis] * (layer(axis, 0) + layer(axis, 1));
    return n;
  }
};

// Waves of a shot, or their adjoint (BACK).
template <typename T, bool BACK>
class Elastic {
  struct Layer {
    Rows<T> psi, made;  // made, backward only, has M cells more at both ends of its axis
  };
  Layer layers[2][2][2][2];  // half, axis, place, end

 public:
  const Solid<T>& set;
  const Reach rows, columns;
  Five<T> field;

  explicit Elastic(const Solid<T>& given)
      : set(given), rows(given.reach(Z, BACK ? M + 1 : 1)), columns(given.reach(X, BACK ? M + 1 : 1)) {
    for (int i = 0; i < FIELDS; ++i) field[i] = Rows<T>(rows.n, columns.n, M, 6 * i);
    each_layer([&](Layer& layer, int half, int axis, int place, int end) {
      const int64_t n = axis == ALONG_Z ? rows.size(end) : columns.size(end), lag = 8 * (2 * half + place) + 3;
      if (!n) return;
      const int64_t tall = axis == ALONG_Z ? n : rows.n, wide = axis == ALONG_Z ? columns.n : n;
      layer.psi = Rows<T>(tall, wide, 0, lag);
      if (BACK) layer.made = Rows<T>(tall, axis == ALONG_Z ? wide : wide + 2 * M, M, lag + 4);
    });
  }
  void rest() {
    for (auto& one : field.of) one.clear();
    each_layer([](Layer& layer, int, int, int, int) { layer.psi.clear(), layer.made.clear(); });
  }
  // the state before a step, in one order
  void save(T* to) {
    each([&](T* piece, int64_t n) { std::memcpy(to, piece, n * sizeof(T)), to += n; });
  }
  void load_state(const T* from) {
    rest();
    each([&](T* piece, int64_t n) { std::memcpy(piece, from, n * sizeof(T)), from += n; });
    if (set.mirror) reflect<MOTION>(), reflect<STRESS>();
  }

  // Rows z0 to z1 of half a step. kept takes what the factors of the material multiply, if not null; see `kept_rows`.
  template <int HALF_STEP>
  void sweep(int64_t z0, int64_t z1, Five<T>* kept) {
    parts(rows, columns, z0, z1, [&](const Block& block, int end, int side) {
      if (kept) sweep_part<HALF_STEP, true>(block, end, side, kept);
      else sweep_part<HALF_STEP, false>(block, end, side, nullptr);
    });
  }
  // After rows z0 to z1 of a half are swept, sources or receivers added: images above a surface, and what the other half
  // differentiates in the layers.
  template <int HALF_STEP>
  void finish(int64_t z0, int64_t z1) {
    if (set.mirror && z0 == 0 && HALF_STEP == STRESS) std::fill(field[SZZ][0], field[SZZ][0] + columns.n, T(0));
    if (BACK) make<1 - HALF_STEP>(z0, z1);
    if (set.mirror && z0 <= M && M < z1) reflect<HALF_STEP>();
  }

 private:
  template <typename Act>
  void each_layer(const Act& act) {
    for (int half : {MOTION, STRESS})
      for (int axis : {ALONG_Z, ALONG_X})
        for (int place : {AT, BETWEEN})
          for (int end : {0, 1}) act(layers[half][axis][place][end], half, axis, place, end);
  }
  template <typename Act>
  void each(const Act& act) {
    for (auto& one : field.of)
      for (int64_t z = 0; z < set.nz; ++z) act(one[z], set.nx);
    each_layer([&](Layer&, int half, int axis, int place, int end) {
      const Reach& reach = axis == ALONG_Z ? rows : columns;
      const bool one = reach.low == reach.n;  // a single reach holds both ends
      Rows<T>& psi = layers[half][axis][place][one ? 0 : end].psi;
      const int64_t n = set.layer(axis, end), cells = axis == ALONG_Z ? set.nz : set.nx;
      const int64_t from = end ? cells - n - (one ? 0 : reach.high) : 0;
      if (axis == ALONG_Z)
        for (int64_t z = 0; z < n; ++z) act(psi[from + z], set.nx);
      else
        for (int64_t z = 0; n && z < set.nz; ++z) act(psi[z] + from, n);
    });
  }

  // rows above a free surface of the fields that a half has changed
  template <int HALF_STEP>
  void reflect() {
    const int whole = HALF_STEP == MOTION ? VX : SZZ, between = HALF_STEP == MOTION ? VZ : SXZ;
    const T sign = HALF_STEP == MOTION ? T(1) : T(-1);
    for (int m = 1; m <= M; ++m)
      for (int64_t x = 0; x < columns.n; ++x) {
        field[whole][-m][x] = sign * field[whole][m][x];
        field[between][-m][x] = sign * field[between][m - 1][x];
      }
    for (int place : {AT, BETWEEN}) {  // a layer at the bottom of a low model may reach up here
      Rows<T>& made = layers[1 - HALF_STEP][ALONG_Z][place][1].made;
      const Rows<T>& f = field[DIFFERENTIATED[1 - HALF_STEP][ALONG_Z][place]];
      for (int64_t z = -M; BACK && rows.size(1) && z < 0; ++z)
        if (z - rows.first(1) >= -M) std::copy(f[z], f[z] + columns.n, made[z - rows.first(1)]);
    }
  }

  // what a half differentiates in the layers, of rows z0 to z1
  template <int HALF_STEP>
  void make(int64_t z0, int64_t z1) {
    for (int place : {AT, BETWEEN})
      for (int e : {0, 1}) {
        make_rows(layers[HALF_STEP][ALONG_Z][place][e], field[DIFFERENTIATED[HALF_STEP][ALONG_Z][place]], 1 - place, e, z0, z1);
        make_ends(layers[HALF_STEP][ALONG_X][place][e], field[DIFFERENTIATED[HALF_STEP][ALONG_X][place]], 1 - place, e, z0, z1);
      }
  }
  void make_rows(Layer& layer, const Rows<T>& f, int place, int e, int64_t z0, int64_t z1) {
    const int64_t n = rows.size(e), top = rows.first(e);
    for (int64_t z = std::max(z0, top - M); n && z < std::min(z1, top + n + M); ++z) {
      const int64_t r = z - top;
      if (r < 0 || r >= n) {
        std::copy(f[z], f[z] + columns.n, layer.made[r]);
        continue;
      }
      const T a = set.a[ALONG_Z][place][z], b = set.b[ALONG_Z][place][z];
      T *psi = layer.psi[r], *made = layer.made[r];
      for (int64_t x = 0; x < columns.n; x += WIDTH<T>) {
        const Vec<T> value = load(f[z] + x), sum = value + load(psi + x);
        store(made + x, value + b * sum), store(psi + x, a * sum);
      }
    }
  }
  void make_ends(Layer& layer, const Rows<T>& f, int place, int e, int64_t z0, int64_t z1) {
    const int64_t n = columns.size(e), left = columns.first(e);
    if (!n) return;
    const T *a = &set.a[ALONG_X][place][left], *b = &set.b[ALONG_X][place][left];
    for (int64_t z = z0; z < z1; ++z) {
      const T* from = f[z] + left;
      T *psi = layer.psi[z], *made = layer.made[z] + M;
      for (int64_t x = 0; x < n; x += WIDTH<T>) {
        const Vec<T> value = load(from + x), sum = value + load(psi + x);
        store(made + x, value + load(b + x) * sum), store(psi + x, load(a + x) * sum);
      }
      for (int m = 1; m <= M; ++m) made[-m] = from[-m], made[n - 1 + m] = from[n - 1 + m];
    }
  }

  template <int HALF_STEP, bool KEEP>
  void sweep_part(const Block& block, int end, int side, Five<T>* kept) {
    if (end < 0 && side < 0) sweep_cells<HALF_STEP, KEEP, false, false>(block, 0, 0, kept);
    else if (end < 0) sweep_cells<HALF_STEP, KEEP, false, true>(block, 0, side, kept);
    else if (side < 0) sweep_cells<HALF_STEP, KEEP, true, false>(block, end, 0, kept);
    else sweep_cells<HALF_STEP, KEEP, true, true>(block, end, side, kept);
  }

  // Σ_m c_m (u[i + m] - u[i - 1 - m]), at(m) gives u[i + m]
  template <typename At>
  static Vec<T> difference(const At& at, const T* c) {
    Vec<T> sum = c[0] * (at(0) - at(-1));
    for (int m = 1; m < M; ++m) sum += c[m] * (at(m) - at(-1 - m));
    return sum;
  }
  template <typename C>
  static Vec<T> absorb(Vec<T> d, C a, C b, T* psi) {
    const Vec<T> after = a * load(psi) + b * d;
    store(psi, after);
    return d + after;
  }

  // IN_Z, IN_X: whether the absorbing terms along the axis act here
  template <int HALF_STEP, bool KEEP, bool IN_Z, bool IN_X>
  void sweep_cells(const Block& block, int end, int side, Five<T>* kept) {
    using V = Vec<T>;
    const int64_t top = rows.first(end), left = columns.first(side);
    const auto& which = DIFFERENTIATED[HALF_STEP];
    T cz[M], cx[M];
    for (int m = 0; m < M; ++m) cz[m] = BACK ? -set.c[ALONG_Z][m] : set.c[ALONG_Z][m];
    for (int m = 0; m < M; ++m) cx[m] = BACK ? -set.c[ALONG_X][m] : set.c[ALONG_X][m];
    for (int64_t z = block.z0; z < block.z1; ++z) {
      const int64_t st = field[0].pitch;
      const T *from_z[2], *from_x[2], *ax[2], *bx[2];
      T *psi_z[2], *psi_x[2], az[2], bz[2];
      for (int place : {AT, BETWEEN}) {
        Layer &lz = layers[HALF_STEP][ALONG_Z][place][end], &lx = layers[HALF_STEP][ALONG_X][place][side];
        from_z[place] = (BACK && IN_Z ? lz.made[z - top] : field[which[ALONG_Z][place]][z]) + place * st;
        from_x[place] = (BACK && IN_X ? lx.made[z] + M - left : field[which[ALONG_X][place]][z]) + place;
        psi_z[place] = IN_Z && !BACK ? lz.psi[z - top] : nullptr;
        psi_x[place] = IN_X && !BACK ? lx.psi[z] - left : nullptr;
        az[place] = set.a[ALONG_Z][place][z], bz[place] = set.b[ALONG_Z][place][z];
        ax[place] = set.a[ALONG_X][place].data(), bx[place] = set.b[ALONG_X][place].data();
      }
      const auto write = writer<HALF_STEP, KEEP>(z, kept);
      for (int64_t x = block.x0; x < block.x1; x += WIDTH<T>) {
        V dz[2], dx[2];
        for (int place : {AT, BETWEEN}) {
          dz[place] = difference([&](int m) { return load(from_z[place] + m * st + x); }, cz);
          dx[place] = difference([&](int m) { return load(from_x[place] + m + x); }, cx);
          if (IN_Z && !BACK) dz[place] = absorb(dz[place], az[place], bz[place], psi_z[place] + x);
          if (IN_X && !BACK) dx[place] = absorb(dx[place], load(ax[place] + x), load(bx[place] + x), psi_x[place] + x);
        }
        write(x, dz, dx);
      }
    }
  }

  // Returns (x, derivatives along z, along x) → the fields of row z changed there.
  template <int HALF_STEP, bool KEEP>
  auto writer(int64_t z, Five<T>* kept) {
    using V = Vec<T>;
    const auto row = [&](Five<T>& five, int i) { return five[i][z]; };
    const auto factor = [&](int i) { return set.factor[i][z]; };
    if constexpr (HALF_STEP == MOTION) {
      T *vx = row(field, VX), *vz = row(field, VZ);
      const T *lx = factor(LIGHT_X), *lz = factor(LIGHT_Z);
      T *ex = KEEP ? row(*kept, LIGHT_X) : nullptr, *ez = KEEP ? row(*kept, LIGHT_Z) : nullptr;
      return [=](int64_t x, const V* dz, const V* dx) {
        const V along_x = dx[BETWEEN] + dz[AT], along_z = dx[AT] + dz[BETWEEN];
        store(vx + x, load(vx + x) + load(lx + x) * along_x);
        store(vz + x, load(vz + x) + load(lz + x) * along_z);
        if (KEEP) store(ex + x, along_x), store(ez + x, along_z);
      };
    } else {
      T *sxx = row(field, SXX), *szz = row(field, SZZ), *sxz = row(field, SXZ);
      const T *b = factor(BULK), *s = factor(SHEAR), *c = factor(CORNER);
      T *em = KEEP ? row(*kept, BULK) : nullptr, *eh = KEEP ? row(*kept, SHEAR) : nullptr;
      T* ec = KEEP ? row(*kept, CORNER) : nullptr;
      return [=](int64_t x, const V* dz, const V* dx) {
        const V sum = dx[AT] + dz[AT], rest = dx[AT] - dz[AT], turn = dx[BETWEEN] + dz[BETWEEN];
        const V mean = load(b + x) * sum, half = load(s + x) * rest;
        store(sxx + x, load(sxx + x) + (mean + half));
        store(szz + x, load(szz + x) + (mean - half));
        store(sxz + x, load(sxz + x) + load(c + x) * turn);
        if (KEEP) store(em + x, sum), store(eh + x, rest), store(ec + x, turn);
      };
    }
  }
};

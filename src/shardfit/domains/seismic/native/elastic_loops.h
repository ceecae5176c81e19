// Whole time loops of elastic waves of one shot, and their exact transpose, walked by all members of a team.
#pragma once

#include <memory>

#include "elastic_wave.h"
#include "team.h"

// Both halves of a step over a member's rows, each a function of rows z0 to z1. A member alone lets stress follow motion
// by one block of rows, which is as far as stencils reach, while the rows are in the cache.
template <typename Motion, typename Stress>
void both_halves(const Share& share, Team& team, const Motion& motion, const Stress& stress) {
  static_assert(M <= R, "a block of rows is at least as high as stencils reach");
  if (team.size > 1) {
    motion(share.begin, share.end);
    team.meet();
    stress(share.begin, share.end);
    return;
  }
  for (int64_t z = share.begin; z < share.end + R; z += R) {
    if (z < share.end) motion(z, z + R);
    if (z > share.begin) stress(z - R, z);
  }
}

// Add sample n of the sources to rows z0 to z1 of what a half has changed, and to what is kept of it.
template <int HALF_STEP, typename T>
void inject(Elastic<T, false>& waves, const Shot<T>& shot, const T* wavelet, int64_t n, int64_t z0, int64_t z1,
            Five<T>* kept) {
  const auto& set = waves.set;
  if ((set.source() == SXX) != (HALF_STEP == STRESS)) return;
  const int name = static_cast<int>(set.source());
  shot.sources.each(z0, z1, [&](int64_t source, int64_t row, int64_t x, T weight) {
    const T value = weight * wavelet[source * set.nt + n];
    if (name == SXX) {
      waves.field[SXX][row][x] += value, waves.field[SZZ][row][x] += value;
      return;
    }
    const int light = name == VX ? LIGHT_X : LIGHT_Z;
    waves.field[name][row][x] += set.physical ? set.factor[light][row][x] * value : value;
    if (kept && set.physical) (*kept)[light][row][x] += value;
  });
}

// Add to the traces what receivers read. Pressure is read before step n; a velocity, known half a step before and after
// n dt, after it, and counts half in two samples.
template <typename T>
void sample_pressure(const Elastic<T, false>& waves, const Taps<T>& receivers, int64_t n, T* traces, const Team& team,
                     int64_t member) {
  if (waves.set.receiver() != SXX) return;
  for (int64_t r = member; r < receivers.count(); r += team.size)
    traces[r * waves.set.nt + n] = receivers.read(r, waves.field[SXX]) + receivers.read(r, waves.field[SZZ]);
}
template <typename T>
void sample_velocity(const Elastic<T, false>& waves, const Taps<T>& receivers, int64_t n, T* traces, const Team& team,
                     int64_t member) {
  const int64_t name = waves.set.receiver(), nt = waves.set.nt;
  if (name == SXX) return;
  for (int64_t r = member; r < receivers.count(); r += team.size) {
    const T half = receivers.read(r, waves.field[name]) / 2;
    traces[r * nt + n] = n ? traces[r * nt + n] + half : half;
    if (n + 1 < nt) traces[r * nt + n + 1] = half;
  }
}

template <int HALF_STEP, typename T>
void advance(Elastic<T, false>& waves, const Shot<T>& shot, int64_t n, int64_t z0, int64_t z1, Five<T>* kept) {
  waves.template sweep<HALF_STEP>(z0, z1, kept);
  inject<HALF_STEP>(waves, shot, shot.wavelet, n, z0, z1, kept);
  waves.template finish<HALF_STEP>(z0, z1);
}

template <typename T>
void step(Elastic<T, false>& waves, const Shot<T>& shot, int64_t n, const Share& share, Team& team, Five<T>* kept) {
  both_halves(
      share, team, [&](int64_t z0, int64_t z1) { advance<MOTION>(waves, shot, n, z0, z1, kept); },
      [&](int64_t z0, int64_t z1) { advance<STRESS>(waves, shot, n, z0, z1, kept); });
}

// traces are written; kept: states at steps segment, 2 segment, ..., null for none
template <typename T>
void record(Elastic<T, false>& waves, const Shot<T>& shot, T* traces, T* kept, int64_t segment, Team& team,
            int64_t member) {
  const auto& set = waves.set;
  const Share share(waves.rows.n, member, team.size);
  if (member == 0) waves.rest();
  team.meet();
  for (int64_t n = 0; n < set.nt; ++n) {
    if (kept && n && n % segment == 0) {
      if (member == 0) waves.save(kept + (n / segment - 1) * set.carry());
      team.meet();
    }
    sample_pressure(waves, shot.receivers, n, traces, team, member);
    step(waves, shot, n, share, team, static_cast<Five<T>*>(nullptr));
    sample_velocity(waves, shot.receivers, n, traces, team, member);
    team.meet();
  }
}

// Rows z0 to z1 of: each of the fields of a half += what its factors multiply, times a change of the factors.
template <int HALF_STEP, typename T>
void add_change(Elastic<T, false>& change, const Five<T>& factor_dot, const Five<T>& kept, int64_t z0, int64_t z1) {
  const auto product = [&](int i, int64_t z, int64_t x) { return load(factor_dot[i][z] + x) * load(kept[i][z] + x); };
  const auto add = [&](int name, int64_t z, int64_t x, Vec<T> value) {
    T* to = change.field[name][z] + x;
    store(to, load(to) + value);
  };
  for (int64_t z = z0; z < z1; ++z)
    for (int64_t x = 0; x < change.columns.n; x += WIDTH<T>) {
      if (HALF_STEP == MOTION) {
        add(VX, z, x, product(LIGHT_X, z, x)), add(VZ, z, x, product(LIGHT_Z, z, x));
        continue;
      }
      const Vec<T> mean = product(BULK, z, x), half = product(SHEAR, z, x);
      add(SXX, z, x, mean + half), add(SZZ, z, x, mean - half), add(SXZ, z, x, product(CORNER, z, x));
    }
}

template <typename T>
Five<T> blank(const Elastic<T, false>& waves) {
  Five<T> found;
  for (int i = 0; i < FIELDS; ++i) found[i] = Rows<T>(waves.rows.n, waves.columns.n, 0, 6 * i + 30);
  return found;
}

// What a linearised walk needs: the waves, and their change.
template <typename T>
struct LinearisedElastic {
  Elastic<T, false> waves, change;
  Five<T> kept;
  explicit LinearisedElastic(const Solid<T>& set) : waves(set), change(set), kept(blank(waves)) {}
};

// Change of the traces (receivers, nt), written, for changes of the factors and of the wavelet (sources, nt).
template <typename T>
void push(LinearisedElastic<T>& l, const Shot<T>& shot, const Five<T>& factor_dot, const T* wavelet_dot, T* traces_dot,
          Team& team, int64_t member) {
  const Share share(l.waves.rows.n, member, team.size);
  if (member == 0) l.waves.rest(), l.change.rest();
  team.meet();
  for (int64_t n = 0; n < l.waves.set.nt; ++n) {
    sample_pressure(l.change, shot.receivers, n, traces_dot, team, member);
    const auto half = [&](auto which, int64_t z0, int64_t z1) {
      constexpr int HALF_STEP = decltype(which)::value;
      advance<HALF_STEP>(l.waves, shot, n, z0, z1, &l.kept);
      l.change.template sweep<HALF_STEP>(z0, z1, nullptr);
      inject<HALF_STEP>(l.change, shot, wavelet_dot, n, z0, z1, static_cast<Five<T>*>(nullptr));
      add_change<HALF_STEP>(l.change, factor_dot, l.kept, z0, z1);
      l.change.template finish<HALF_STEP>(z0, z1);
    };
    both_halves(
        share, team, [&](int64_t z0, int64_t z1) { half(std::integral_constant<int, MOTION>(), z0, z1); },
        [&](int64_t z0, int64_t z1) { half(std::integral_constant<int, STRESS>(), z0, z1); });
    sample_velocity(l.change, shot.receivers, n, traces_dot, team, member);
    team.meet();
  }
}

// What a backward walk needs besides the arrays of its shot.
template <typename T>
struct BackwardElastic {
  Elastic<T, false> waves;
  Elastic<T, true> adjoint;
  std::vector<Five<T>> kept;  // of every step of a segment, what the factors multiply
  Five<T> gradient;

  BackwardElastic(const Solid<T>& set, int64_t segment, int64_t) : waves(set), adjoint(set), gradient(blank(waves)) {
    for (int64_t i = 0; i < std::min(segment, set.nt); ++i) kept.push_back(blank(waves));
  }

  // Rows z0 to z1 of the adjoint's fields of a half, times what the factors of that half multiplied.
  template <int HALF_STEP>
  void correlate(const Five<T>& with, int64_t z0, int64_t z1) {
    const auto& f = adjoint.field;
    const auto add = [&](int i, int64_t z, int64_t x, Vec<T> value) {
      T* to = gradient[i][z] + x;
      store(to, load(to) + value * load(with[i][z] + x));
    };
    for (int64_t z = z0; z < z1; ++z)
      for (int64_t x = 0; x < adjoint.columns.n; x += WIDTH<T>) {
        if (HALF_STEP == MOTION) {
          add(LIGHT_X, z, x, load(f[VX][z] + x)), add(LIGHT_Z, z, x, load(f[VZ][z] + x));
          continue;
        }
        const Vec<T> xx = load(f[SXX][z] + x), zz = load(f[SZZ][z] + x);
        add(BULK, z, x, xx + zz), add(SHEAR, z, x, xx - zz), add(CORNER, z, x, load(f[SXZ][z] + x));
      }
  }
};

// Derivative with respect to sample n of the wavelets, from the adjoint's fields, which factors have multiplied. It is
// zero where the factor is: nothing that a source does there leaves its cell.
template <typename T>
void sample_sources(const Elastic<T, true>& adjoint, const Taps<T>& sources, int64_t n, T* wavelet) {
  const auto& set = adjoint.set;
  const int name = static_cast<int>(set.source());
  const auto& factor = set.factor[name == SXX ? BULK : name == VX ? LIGHT_X : LIGHT_Z];
  for (int64_t j = 0; j < sources.count(); ++j) wavelet[j * set.nt + n] = T(0);
  sources.each(0, adjoint.rows.n, [&](int64_t j, int64_t row, int64_t x, T weight) {
    T value = adjoint.field[name][row][x];
    if (name == SXX) value = (value + adjoint.field[SZZ][row][x]) / 2;
    const bool plain = name != SXX && set.physical;
    if (factor[row][x] != T(0)) wavelet[j * set.nt + n] += weight * (plain ? value : value / factor[row][x]);
  });
}

// One step back; traces: derivative with respect to them.
template <typename T>
void step_back(BackwardElastic<T>& b, const Taps<T>& receivers, const T* traces, int64_t n, const Five<T>& kept,
               const Share& share, Team& team) {
  const auto& set = b.adjoint.set;
  auto& field = b.adjoint.field;
  const int name = static_cast<int>(set.receiver());
  const auto pressure = [&](int64_t r) { return 2 * traces[r * set.nt + n]; };
  const auto velocity = [&](int64_t r) {
    return (traces[r * set.nt + n] + (n + 1 < set.nt ? traces[r * set.nt + n + 1] : T(0))) / 2;
  };
  both_halves(
      share, team,
      [&](int64_t z0, int64_t z1) {
        b.template correlate<STRESS>(kept, z0, z1);
        b.adjoint.template sweep<MOTION>(z0, z1, nullptr);
        if (name != SXX) receivers.add(z0, z1, velocity, set.factor[name == VX ? LIGHT_X : LIGHT_Z], field[name]);
        b.adjoint.template finish<MOTION>(z0, z1);
        b.template correlate<MOTION>(kept, z0, z1);
      },
      [&](int64_t z0, int64_t z1) {
        b.adjoint.template sweep<STRESS>(z0, z1, nullptr);
        if (name == SXX)
          for (int stress : {SXX, SZZ}) receivers.add(z0, z1, pressure, set.factor[BULK], field[stress]);
        b.adjoint.template finish<STRESS>(z0, z1);
      });
}

// traces: derivative with respect to them; factors_bar (5, nz, nx), wavelet_bar (sources, nt): written
template <typename T>
void pull(BackwardElastic<T>& b, const Shot<T>& shot, const T* traces, const T* states, int64_t segment, T* factors_bar,
          T* wavelet_bar, Team& team, int64_t member) {
  const auto& set = b.waves.set;
  const Share share(b.waves.rows.n, member, team.size);
  Taps<T> receivers = shot.receivers, sources = shot.sources;
  // on row 0 of a free surface the adjoint of fields at the cells is doubled
  if (set.mirror && set.receiver() != VZ) receivers.scale(0, T(2));
  if (set.mirror && set.source() != VZ) sources.scale(0, T(0.5));
  if (member == 0) {
    b.adjoint.rest();
    for (auto& one : b.gradient.of) one.clear();
  }
  for (int64_t j = (set.nt - 1) / segment; j >= 0; --j) {
    const int64_t begin = j * segment, end = std::min(set.nt, begin + segment);
    if (member == 0 && j) b.waves.load_state(states + (j - 1) * set.carry());
    else if (member == 0) b.waves.rest();
    team.meet();
    for (int64_t n = begin; n < end; ++n) {
      step(b.waves, shot, n, share, team, &b.kept[n - begin]);
      team.meet();
    }
    for (int64_t n = end - 1; n >= begin; --n) {
      if (member == 0 && set.source() == SXX) sample_sources(b.adjoint, sources, n, wavelet_bar);
      step_back(b, receivers, traces, n, b.kept[n - begin], share, team);
      if (member == 0 && set.source() != SXX) sample_sources(b.adjoint, sources, n, wavelet_bar);
      team.meet();
    }
  }
  for (int i = 0; i < FIELDS; ++i)
    for (int64_t z = share.begin; z < std::min(share.end, set.nz); ++z)
      for (int64_t x = 0; x < set.nx; ++x) {
        // a factor of zero stays zero to first order, whatever the medium: see `material` in elastic_wave.py
        const T factor = (i == BULK || i == SHEAR ? 2 : 1) * set.factor[i][z][x];
        const bool doubled = set.mirror && z == 0 && i != LIGHT_Z && i != CORNER;
        const T sum = doubled ? b.gradient[i][z][x] / 2 : b.gradient[i][z][x];
        factors_bar[(i * set.nz + z) * set.nx + x] = factor != T(0) ? sum / factor : T(0);
      }
  team.meet();
}

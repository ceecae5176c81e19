// Whole time loops of one shot, and their exact transpose, walked by all members of a team.
#pragma once

#include <memory>

#include "adjoint.h"
#include "forward.h"
#include "team.h"

// How many steps a member takes in one walk over the planes, each `lag` planes behind the step before it: near planes are
// in the cache then for all of them. No number changes by it, for a cell is computed from the same numbers.
struct Pace {
  static constexpr int64_t NEAR = 3 << 18, MOST = 8;  // bytes that stay in a core's own cache; steps
  int64_t depth, lag;

  // behind: planes that a step has to stay behind; fields: read and written. Members of a team take one step, for they wait
  // for each other after it; in three dimensions planes are too large.
  template <typename T, int D>
  Pace(const Wave<T, D>& wave, const Team& team, int64_t behind, int64_t fields) : lag(up(behind, R)) {
    const int64_t bytes = lag * wave.u[0].step * fields * static_cast<int64_t>(sizeof(T));
    depth = D == 3 || team.size > 1 ? 1 : std::max<int64_t>(1, std::min(MOST, NEAR / bytes));
  }
};

// Calls step(n, z0, z1), n = 0, ..., steps - 1, over the planes of a member.
template <typename Step>
void march(const Pace& pace, int64_t steps, const Share& share, Team& team, const Step& step) {
  for (int64_t n = 0; n < steps; n += pace.depth, team.meet()) {
    const int64_t count = std::min(pace.depth, steps - n);
    if (count == 1) {
      step(n, share.begin, share.end);
      continue;
    }
    for (int64_t front = share.begin; front < share.end + (count - 1) * pace.lag; front += R)
      for (int64_t i = 0, z = front; i < count; ++i, z -= pace.lag)
        if (z >= share.begin && z < share.end) step(n + i, z, z + R);
  }
}

// traces are written; kept: states at steps segment, 2 segment, ..., null for none
template <typename T, int D>
void record(Forward<T, D>& wave, const Shot<T>& shot, T* traces, T* kept, int64_t segment, Team& team, int64_t member) {
  const auto& set = wave.set;
  const Share share(wave.planes.n, member, team.size);
  // what receivers read is overwritten two steps later
  const Pace pace(wave, team, std::max<int64_t>(M, shot.receivers.height()), 3);
  const int64_t length = kept ? segment : set.nt;
  if (member == 0) wave.rest();
  team.meet();
  for (int64_t begin = 0; begin < set.nt; begin += length) {
    if (begin && member == 0) wave.save(kept + (begin / length - 1) * set.carry(), begin % 2);
    if (begin) team.meet();
    march(pace, std::min(length, set.nt - begin), share, team, [&](int64_t i, int64_t z0, int64_t z1) {
      const int64_t n = begin + i;
      if (team.size > 1) wave.sample(shot.receivers, n % 2, member, team.size, traces, n);
      else wave.sample_ending(shot.receivers, n % 2, z0, z1, traces, n);
      wave.step(shot.sources, shot.wavelet, n, n % 2, z0, z1, nullptr);
    });
  }
}

// What a linearised walk needs: the wave, and its change.
template <typename T, int D>
struct Linearised {
  Forward<T, D> wave, change;
  Fields<T> drive;
  explicit Linearised(const Setup<T, D>& set) : wave(set), change(set), drive(1, wave.planes.n, wave.u[0].step) {}
};

// Change of the traces (receivers, nt), written, for changes of kappa (laid out as the wave) and the wavelet (sources, nt).
template <typename T, int D>
void push(Linearised<T, D>& l, const Shot<T>& shot, const Rows<T>& kappa_dot, const T* wavelet_dot, T* traces_dot,
          Team& team, int64_t member) {
  const Share share(l.wave.planes.n, member, team.size);
  if (member == 0) l.wave.rest(), l.change.rest();
  team.meet();
  for (int64_t n = 0; n < l.wave.set.nt; ++n) {
    const int turn = n % 2;
    l.change.sample(shot.receivers, turn, member, team.size, traces_dot, n);
    l.wave.step(shot.sources, shot.wavelet, n, turn, share.begin, share.end, l.drive.at(0));
    l.change.step(shot.sources, wavelet_dot, n, turn, share.begin, share.end, nullptr);
    l.change.add(turn, share.begin, share.end, kappa_dot, l.drive.at(0));
    team.meet();
  }
}

// What a backward walk needs besides the arrays of its shot.
template <typename T, int D>
struct Backward {
  Forward<T, D> wave;
  Adjoint<T, D> adjoint;
  Fields<T> drive;  // laid out as the wave
  Rows<T> gradient;
  std::vector<typename Adjoint<T, D>::Scratch> scratch;

  Backward(const Setup<T, D>& set, int64_t segment, int64_t members)
      : wave(set),
        adjoint(set),
        drive(std::min(segment, set.nt), wave.planes.n, wave.u[0].step),
        gradient(set.blank(0, 24)) {
    wave.far = drive.far();
    for (int64_t i = 0; i < members; ++i) scratch.push_back(adjoint.scratch());
  }
};

// traces: derivative with respect to them; kappa_bar (nz, ny, nx), wavelet_bar (sources, nt): written
template <typename T, int D>
void pull(Backward<T, D>& b, const Shot<T>& shot, const T* traces, const T* kept, int64_t segment, T* kappa_bar,
          T* wavelet_bar, Team& team, int64_t member) {
  const auto& set = b.wave.set;
  const Share share(b.wave.planes.n, member, team.size);
  const Pace onward(b.wave, team, M, 4), back(b.adjoint, team, std::max<int64_t>(2 * M, shot.sources.height()), 5);
  if (member == 0) b.adjoint.rest(), b.gradient.clear();
  for (int64_t j = (set.nt - 1) / segment; j >= 0; --j) {
    const int64_t begin = j * segment, steps = std::min(set.nt - begin, segment);
    if (member == 0 && j) b.wave.load_state(kept + (j - 1) * set.carry(), begin % 2);
    else if (member == 0) b.wave.rest();
    team.meet();
    march(onward, steps, share, team, [&](int64_t i, int64_t z0, int64_t z1) {
      b.wave.step(shot.sources, shot.wavelet, begin + i, (begin + i) % 2, z0, z1, b.drive.at(i));
    });
    march(back, steps, share, team, [&](int64_t later, int64_t z0, int64_t z1) {
      const int64_t i = steps - 1 - later, n = begin + i;
      const int turn = n % 2;
      if (turn == 0) {  // segments are even, so that the same steps go together however long they are
        const T* before = later ? b.drive.at(i + 1) : nullptr;
        b.adjoint.correlate(turn, z0, z1, b.drive.at(i), before, b.gradient);
      }
      b.adjoint.sample(shot.sources, turn, z0, z1, wavelet_bar, n);
      b.adjoint.prepare(turn, z0 ? z0 + M : 0, z1 + M);
      if (team.size > 1) team.meet();
      b.adjoint.step(shot.receivers, traces, n, turn, z0, z1, b.scratch[member]);
    });
  }
  for (int64_t z = share.begin; z < std::min(share.end, set.size[Z]); ++z)
    for (int64_t y = 0; y < set.size[Y]; ++y) {
      const int64_t o = (z * set.size[Y] + y) * set.size[X];
      const T* row = b.gradient[z] + y * b.gradient.pitch;
      for (int64_t x = 0; x < set.size[X]; ++x) kappa_bar[o + x] = row[x] / set.material[o + x];
    }
  team.meet();
}

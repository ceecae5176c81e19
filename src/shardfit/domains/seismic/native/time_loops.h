// Whole time loops of one shot, and their exact transpose, walked by all members of a team.
#pragma once

#include <memory>

#include "adjoint.h"
#include "forward.h"
#include "team.h"

// traces are written; kept: states at steps segment, 2 segment, ..., null for none
template <typename T, int D>
void record(Forward<T, D>& wave, const Shot<T>& shot, T* traces, T* kept, int64_t segment, Team& team, int64_t member) {
  const auto& set = wave.set;
  const Share share(wave.planes.n, member, team.size);
  if (member == 0) wave.rest();
  team.meet();
  for (int64_t n = 0; n < set.nt; ++n) {
    const int turn = n % 2;
    if (kept && n && n % segment == 0) {
      if (member == 0) wave.save(kept + (n / segment - 1) * set.carry(), turn);
      team.meet();
    }
    wave.sample(shot.receivers, turn, member, team.size, traces, n);
    wave.step(shot.sources, shot.wavelet, n, turn, share.begin, share.end, nullptr);
    team.meet();
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
    for (int64_t i = 0; i < members; ++i) scratch.push_back(adjoint.scratch());
  }
};

// traces: derivative with respect to them; kappa_bar (nz, ny, nx), wavelet_bar (sources, nt): written
template <typename T, int D>
void pull(Backward<T, D>& b, const Shot<T>& shot, const T* traces, const T* kept, int64_t segment, T* kappa_bar,
          T* wavelet_bar, Team& team, int64_t member) {
  const auto& set = b.wave.set;
  const Share share(b.wave.planes.n, member, team.size);
  if (member == 0) b.adjoint.rest(), b.gradient.clear();
  for (int64_t j = (set.nt - 1) / segment; j >= 0; --j) {
    const int64_t begin = j * segment, end = std::min(set.nt, begin + segment);
    if (member == 0 && j) b.wave.load_state(kept + (j - 1) * set.carry(), begin % 2);
    else if (member == 0) b.wave.rest();
    team.meet();
    for (int64_t n = begin; n < end; ++n) {
      b.wave.step(shot.sources, shot.wavelet, n, n % 2, share.begin, share.end, b.drive.at(n - begin));
      team.meet();
    }
    for (int64_t n = end - 1; n >= begin; --n) {
      const int turn = n % 2;
      if (turn == 0) {  // segments are even, so that the same steps go together however long they are
        const T* before = n + 1 < end ? b.drive.at(n + 1 - begin) : nullptr;
        b.adjoint.correlate(turn, share.begin, share.end, b.drive.at(n - begin), before, b.gradient);
      }
      if (member == 0) b.adjoint.sample(shot.sources, turn, wavelet_bar, n);
      b.adjoint.prepare(turn, member, team.size);
      team.meet();
      b.adjoint.step(shot.receivers, traces, n, turn, share.begin, share.end, b.scratch[member]);
      team.meet();
    }
  }
  for (int64_t z = share.begin; z < std::min(share.end, set.size[Z]); ++z)
    for (int64_t y = 0; y < set.size[Y]; ++y) {
      const int64_t o = (z * set.size[Y] + y) * set.size[X];
      const T* row = b.gradient[z] + y * b.gradient.pitch;
      for (int64_t x = 0; x < set.size[X]; ++x) kappa_bar[o + x] = row[x] / set.material[o + x];
    }
  team.meet();
}

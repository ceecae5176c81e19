// Sources or receivers of one shot as runs along rows, each of up to 8 neighbouring cells; made once per call.
//
// Cells are named by their plane and where they lie in it, which is the same in all fields of a shot. Where planes z0 to z1
// are asked for, those without points cost nothing: a step may be swept in many short pieces.
#pragma once

#include "grid.h"

template <typename T>
class Taps {
 public:
  static constexpr int LONG = 8;  // cells along an axis that a position between cells is spread over

  // cells, weights: (n, k), cells numbered in the grid
  Taps(const int32_t* cells, const T* weights, int64_t n, int64_t k, const Given<T>& given) : starts(1, 0) {
    const int64_t ny = given.size[Y], nx = given.size[X], columns = up(nx, WIDTH<T>), pitch = Rows<T>::apart(columns);
    for (int64_t point = 0; point < n; ++point, starts.push_back(static_cast<int64_t>(runs.size()))) {
      int64_t first = INT64_MAX, last = 0;
      for (int64_t i = point * k; i < (point + 1) * k; ++i) {
        const int64_t row = cells[i] / nx, plane = row / ny, begin = row % ny * pitch;
        if (weights[i] == T(0)) continue;
        add(plane, begin + cells[i] % nx, begin + columns - LONG, weights[i]);
        first = std::min(first, plane), last = std::max(last, plane);
      }
      ends.push_back({last, point}), highest = std::max(highest, last - std::min(first, last));
    }
    std::sort(ends.begin(), ends.end());
  }
  int64_t count() const { return static_cast<int64_t>(starts.size()) - 1; }
  bool within(int64_t z0, int64_t z1) const { return first_plane < z1 && last_plane >= z0; }
  // from the first plane of a point to its last, of the point with most
  int64_t height() const { return highest; }
  // calls act(point) for the points whose last plane is one of z0 to z1; a point without cells has plane 0
  template <typename Act>
  void ending(int64_t z0, int64_t z1, const Act& act) const {
    if (ends.empty() || ends.front().first >= z1 || ends.back().first < z0) return;
    auto at = std::lower_bound(ends.begin(), ends.end(), std::make_pair(z0, int64_t(0)));
    for (; at != ends.end() && at->first < z1; ++at) act(at->second);
  }
  // multiplies the weights of one plane
  Taps& scale(int64_t plane, T factor) {
    for (Run& run : runs)
      for (int lane = 0; run.plane == plane && lane < LONG; ++lane) run.weights[lane] *= factor;
    return *this;
  }

  T read(int64_t point, const Rows<T>& u) const {
    Wide sum{};
    T alone = T(0);
    bool wide = false;
    for (int64_t i = starts[point]; i < starts[point + 1]; ++i) {
      const Run& run = runs[i];
      const T* cell = u[run.plane] + run.at;
      if (run.only >= 0) {
        alone += run.weights[run.only] * cell[run.only];
        continue;
      }
      Wide values, weights;
      std::memcpy(&values, cell, sizeof values), std::memcpy(&weights, run.weights, sizeof weights);
      sum += values * weights, wide = true;
    }
    for (int lane = 0; wide && lane < LONG; ++lane) alone += sum[lane];
    return alone;
  }
  // adds weight times factor times value(point) to the cells of u in planes z0 to z1
  template <typename Value>
  void add(int64_t z0, int64_t z1, const Value& value, const Rows<T>& factor, Rows<T>& u) const {
    if (!within(z0, z1)) return;
    for (int64_t point = 0; point < count(); ++point) {
      const T given = value(point);
      for (int64_t i = starts[point]; i < starts[point + 1]; ++i) {
        const Run& run = runs[i];
        if (run.plane < z0 || run.plane >= z1) continue;
        T* cell = u[run.plane] + run.at;
        const T* times = factor[run.plane] + run.at;
        if (run.only >= 0) {
          cell[run.only] += times[run.only] * run.weights[run.only] * given;
          continue;
        }
        Wide values, weights, factors;
        std::memcpy(&values, cell, sizeof values), std::memcpy(&weights, run.weights, sizeof weights);
        std::memcpy(&factors, times, sizeof factors);
        values += factors * weights * given;
        std::memcpy(cell, &values, sizeof values);
      }
    }
  }
  // calls act(plane, at, weight) for every cell of a point in planes z0 to z1
  template <typename Act>
  void each_of(int64_t point, const Act& act, int64_t z0 = 0, int64_t z1 = INT64_MAX) const {
    for (int64_t i = starts[point]; i < starts[point + 1]; ++i) {
      const Run& run = runs[i];
      if (run.plane < z0 || run.plane >= z1) continue;
      if (run.only >= 0) act(run.plane, run.at + run.only, run.weights[run.only]);
      else
        for (int lane = 0; lane < LONG; ++lane)
          if (run.weights[lane] != T(0)) act(run.plane, run.at + lane, run.weights[lane]);
    }
  }
  // calls act(point, plane, at, weight) for every cell in planes z0 to z1
  template <typename Act>
  void each(int64_t z0, int64_t z1, const Act& act) const {
    if (!within(z0, z1)) return;
    for (int64_t point = 0; point < count(); ++point)
      each_of(point, [&](int64_t plane, int64_t at, T weight) { act(point, plane, at, weight); }, z0, z1);
  }

 private:
  typedef T Wide __attribute__((vector_size(LONG * sizeof(T))));
  struct Run {
    int64_t plane, at;
    int only;  // lane of the only weight, -1 if there are more
    T weights[LONG];
  };
  std::vector<Run> runs;
  std::vector<int64_t> starts;
  std::vector<std::pair<int64_t, int64_t>> ends;  // last planes and points, in order
  int64_t first_plane = INT64_MAX, last_plane = -1, highest = 0;

  // last: where the last run of the row may begin
  void add(int64_t plane, int64_t at, int64_t last, T weight) {
    const bool first = static_cast<int64_t>(runs.size()) == starts.back();
    if (first || runs.back().plane != plane || at < runs.back().at || at >= runs.back().at + LONG)
      runs.push_back({plane, std::min(at, last), -2, {}});
    first_plane = std::min(first_plane, plane), last_plane = std::max(last_plane, plane);
    Run& run = runs.back();
    const int lane = static_cast<int>(at - run.at);
    run.only = run.only == -2 || run.only == lane ? lane : -1;
    run.weights[lane] += weight;
  }
};

// What a shot is made of: its points, its wavelet (sources, nt), its traces (receivers, nt).
template <typename T>
struct Shot {
  Taps<T> sources, receivers;
  const T* wavelet;
};

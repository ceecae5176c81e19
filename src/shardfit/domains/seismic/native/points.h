// Sources or receivers of one shot as runs along rows, each of up to 8 neighbouring cells; made once per call.
//
// Where rows z0 to z1 are asked for, those without points cost nothing: a step may be swept in many short pieces.
#pragma once

#include "grid.h"

template <typename T>
class Taps {
 public:
  static constexpr int LONG = 8;  // cells along an axis that a position between cells is spread over

  // cells, weights: (n, k), cells numbered in a grid of nx columns; columns: those a row of the fields has
  Taps(const int32_t* cells, const T* weights, int64_t n, int64_t k, int64_t nx, int64_t columns) : starts(1, 0) {
    for (int64_t point = 0; point < n; ++point, starts.push_back(static_cast<int64_t>(runs.size())))
      for (int64_t i = point * k; i < (point + 1) * k; ++i)
        if (weights[i] != T(0)) add(cells[i] / nx, cells[i] % nx, weights[i], columns);
  }
  int64_t count() const { return static_cast<int64_t>(starts.size()) - 1; }
  bool within(int64_t z0, int64_t z1) const { return first_row < z1 && last_row >= z0; }
  // multiplies the weights of one row
  Taps& scale(int64_t row, T factor) {
    for (Run& run : runs)
      for (int lane = 0; run.row == row && lane < LONG; ++lane) run.weights[lane] *= factor;
    return *this;
  }

  T read(int64_t point, const Rows<T>& u) const {
    Wide sum{};
    T alone = T(0);
    for (int64_t i = starts[point]; i < starts[point + 1]; ++i) {
      const Run& run = runs[i];
      const T* cell = u[run.row] + run.x;
      if (run.only >= 0) {
        alone += run.weights[run.only] * cell[run.only];
        continue;
      }
      Wide values, weights;
      std::memcpy(&values, cell, sizeof values), std::memcpy(&weights, run.weights, sizeof weights);
      sum += values * weights;
    }
    for (int lane = 0; lane < LONG; ++lane) alone += sum[lane];
    return alone;
  }
  // adds weight times factor times value(point) to the cells of u in rows z0 to z1
  template <typename Value>
  void add(int64_t z0, int64_t z1, const Value& value, const Rows<T>& factor, Rows<T>& u) const {
    if (!within(z0, z1)) return;
    for (int64_t point = 0; point < count(); ++point) {
      const T given = value(point);
      for (int64_t i = starts[point]; i < starts[point + 1]; ++i) {
        const Run& run = runs[i];
        if (run.row < z0 || run.row >= z1) continue;
        T* cell = u[run.row] + run.x;
        const T* times = factor[run.row] + run.x;
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
  // calls act(point, row, x, weight) for every cell in rows z0 to z1
  template <typename Act>
  void each(int64_t z0, int64_t z1, const Act& act) const {
    if (!within(z0, z1)) return;
    for (int64_t point = 0; point < count(); ++point)
      for (int64_t i = starts[point]; i < starts[point + 1]; ++i) {
        const Run& run = runs[i];
        if (run.row < z0 || run.row >= z1) continue;
        if (run.only >= 0) act(point, run.row, run.x + run.only, run.weights[run.only]);
        else
          for (int lane = 0; lane < LONG; ++lane)
            if (run.weights[lane] != T(0)) act(point, run.row, run.x + lane, run.weights[lane]);
      }
  }

 private:
  typedef T Wide __attribute__((vector_size(LONG * sizeof(T))));
  struct Run {
    int64_t row, x;
    int only;  // lane of the only weight, -1 if there are more
    T weights[LONG];
  };
  std::vector<Run> runs;
  std::vector<int64_t> starts;
  int64_t first_row = INT64_MAX, last_row = -1;

  void add(int64_t row, int64_t column, T weight, int64_t columns) {
    const bool first = static_cast<int64_t>(runs.size()) == starts.back();
    if (first || runs.back().row != row || column < runs.back().x || column >= runs.back().x + LONG)
      runs.push_back({row, std::min(column, columns - LONG), -2, {}});
    first_row = std::min(first_row, row), last_row = std::max(last_row, row);
    Run& run = runs.back();
    const int lane = static_cast<int>(column - run.x);
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

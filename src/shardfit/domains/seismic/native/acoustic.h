// Acoustic waves as a kind of wave. Stencils: second along each axis (M + 1 each), first (M each); along an axis: a, b, b'.
#pragma once

#include "calls.h"
#include "time_loops.h"

template <typename T, int D>
struct Acoustic {
  static constexpr int AXES = D;
  using Number = T;
  using Setup = ::Setup<T, D>;
  using Forward = ::Forward<T, D>;
  using Backward = ::Backward<T, D>;
  using Linearised = ::Linearised<T, D>;
};

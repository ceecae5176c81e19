// Acoustic waves as foreign calls. Stencils: second z, x (M + 1 each), first z, x (M each); along an axis: a, b, b'.
#include "calls.h"
#include "time_loops.h"

template <typename T>
struct Acoustic {
  using Number = T;
  using Setup = ::Setup<T>;
  using Forward = ::Forward<T>;
  using Backward = ::Backward<T>;
  using Linearised = ::Linearised<T>;
};

DEFINE_CALLS(Acoustic<float>, Acoustic<double>);

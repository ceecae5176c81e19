// Elastic waves as foreign calls. Stencils: staggered z, x (M each); along an axis: a, b at the cells, a, b between them.
// Kinds: of sources, of receivers.
#include "calls.h"
#include "elastic_loops.h"

template <typename T>
struct ElasticCalls {
  static constexpr int AXES = 2;
  using Number = T;
  using Setup = Solid<T>;
  using Forward = Elastic<T, false>;
  using Backward = BackwardElastic<T>;
  using Linearised = LinearisedElastic<T>;
};

DEFINE_CALLS(ElasticCalls<float>, ElasticCalls<double>);

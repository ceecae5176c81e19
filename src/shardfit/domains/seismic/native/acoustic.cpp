// Acoustic waves in two dimensions as foreign calls.
#define WIDE_VECTORS
#include "acoustic.h"

using Float32 = Acoustic<float, 2>;
using Float64 = Acoustic<double, 2>;
DEFINE_CALLS(Float32, Float64);

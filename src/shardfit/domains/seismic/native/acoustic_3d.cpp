// Acoustic waves in three dimensions as foreign calls.
#define IN_THREE_DIMENSIONS
#include "acoustic.h"

using Float32 = Acoustic<float, 3>;
using Float64 = Acoustic<double, 3>;
DEFINE_CALLS(Float32, Float64);

// Acoustic waves in three dimensions as foreign calls.
#include "acoustic.h"

using Float32 = Acoustic<float, 3>;
using Float64 = Acoustic<double, 3>;
DEFINE_CALLS(Float32, Float64);

// Foreign calls of a kind of wave, behind XLA's interface: traces of a block of shots, their exact transpose, their change.
//
// A kind is a class that names its number, its axes, and the types Setup, Forward, Backward and Linearised, over which there are
// the time loops `record`, `pull` and `push`.
#pragma once

#include "points.h"
#include "team.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// what every call is given
template <ffi::DataType D, typename T>
struct Arguments {
  ffi::Buffer<D> material, along, stencils, wavelet;
  ffi::Buffer<ffi::S32> source_cells;
  ffi::Buffer<D> source_weights;
  ffi::Buffer<ffi::S32> receiver_cells;
  ffi::Buffer<D> receiver_weights;

  int64_t shots() const { return wavelet.dimensions()[0]; }
  int64_t inputs() const { return wavelet.dimensions()[1] * nt(); }
  int64_t samples() const { return receiver_cells.dimensions()[1] * nt(); }
  int64_t nt() const { return wavelet.dimensions()[2]; }

  Given<T> given(int axes, ffi::Span<const int64_t> widths, ffi::Span<const int64_t> kinds, bool mirror,
                 bool physical) const {
    Given<T> found{material.typed_data(), along.typed_data(), stencils.typed_data(), {1, 1, 1}, nt(), {}};
    const int64_t *size = material.dimensions().end() - axes, *width = widths.begin();
    for (int axis : {Z, Y, X}) {
      if (axis == Y && axes == 2) continue;
      found.size[axis] = *size++;
      for (int64_t& each : found.width[axis]) each = *width++;
    }
    found.mirror = mirror, found.physical = physical, found.kinds = kinds.begin();
    return found;
  }
  // every member of a team makes its own: they are small, and none waits for another
  Shot<T> shot(const Given<T>& s, int64_t i) const {
    return {taps(s, source_cells, source_weights, i), taps(s, receiver_cells, receiver_weights, i),
            wavelet.typed_data() + i * inputs()};
  }

 private:
  Taps<T> taps(const Given<T>& s, const ffi::Buffer<ffi::S32>& cells, const ffi::Buffer<D>& weights, int64_t i) const {
    const int64_t n = cells.dimensions()[1], k = cells.dimensions()[2];
    return {cells.typed_data() + i * n * k, weights.typed_data() + i * n * k, n, k, s};
  }
};

ffi::Error ended(const std::string& failed) {
  return failed.empty() ? ffi::Error::Success() : ffi::Error::Internal("seismic kernel: " + failed);
}

#define MATERIAL_AND_SHOTS                                                                                            \
  ffi::Buffer<D> material, ffi::Buffer<D> along, ffi::Buffer<D> stencils, ffi::Buffer<D> wavelet,                     \
      ffi::Buffer<ffi::S32> source_cells, ffi::Buffer<D> source_weights, ffi::Buffer<ffi::S32> receiver_cells,        \
      ffi::Buffer<D> receiver_weights
#define ATTRIBUTES \
  ffi::Span<const int64_t> widths, ffi::Span<const int64_t> kinds, bool mirror, bool physical, int64_t threads, int64_t segment
#define PREPARE                                                                                                       \
  using T = typename Kind::Number;                                                                                    \
  const Arguments<D, T> given{material,     along,          stencils,       wavelet,                                  \
                              source_cells, source_weights, receiver_cells, receiver_weights};                        \
  const typename Kind::Setup s(given.given(Kind::AXES, widths, kinds, mirror, physical));                             \
  const int64_t most = Share::most(up(s.size[Z], R))

// segment: steps between checkpoints; those of shot i are checkpoints[i], the first one at step `segment`
template <ffi::DataType D, typename Kind>
ffi::Error forward(MATERIAL_AND_SHOTS, ffi::Result<ffi::Buffer<D>> traces, ffi::Result<ffi::Buffer<D>> checkpoints,
                   ATTRIBUTES) {
  PREPARE;
  using Wave = typename Kind::Forward;
  const int64_t kept = checkpoints->dimensions()[1];
  return ended(deal<Wave>(
      given.shots(), threads, most, [&](int64_t) { return std::make_unique<Wave>(s); },
      [&](Wave& wave, int64_t i, Team& team, int64_t member) {
        T* states = kept ? checkpoints->typed_data() + i * kept * s.carry() : nullptr;
        record(wave, given.shot(s, i), traces->typed_data() + i * given.samples(), states, segment, team, member);
      }));
}

template <ffi::DataType D, typename Kind>
ffi::Error backward(MATERIAL_AND_SHOTS, ffi::Buffer<D> checkpoints, ffi::Buffer<D> traces,
                    ffi::Result<ffi::Buffer<D>> material_bar, ffi::Result<ffi::Buffer<D>> wavelet_bar, ATTRIBUTES) {
  PREPARE;
  using Memory = typename Kind::Backward;
  const int64_t kept = checkpoints.dimensions()[1], factors = Kind::Setup::FACTORS * s.cells();
  return ended(deal<Memory>(
      given.shots(), threads, most,
      [&](int64_t members) { return std::make_unique<Memory>(s, segment, members); },
      [&](Memory& memory, int64_t i, Team& team, int64_t member) {
        pull(memory, given.shot(s, i), traces.typed_data() + i * given.samples(),
             checkpoints.typed_data() + i * kept * s.carry(), segment, material_bar->typed_data() + i * factors,
             wavelet_bar->typed_data() + i * given.inputs(), team, member);
      }));
}

template <ffi::DataType D, typename Kind>
ffi::Error linearised(MATERIAL_AND_SHOTS, ffi::Buffer<D> material_dot, ffi::Buffer<D> wavelet_dot,
                      ffi::Result<ffi::Buffer<D>> traces_dot, ATTRIBUTES) {
  PREPARE;
  using Waves = typename Kind::Linearised;
  const auto change = s.factors(material_dot.typed_data());
  return ended(deal<Waves>(
      given.shots(), threads, most, [&](int64_t) { return std::make_unique<Waves>(s); },
      [&](Waves& waves, int64_t i, Team& team, int64_t member) {
        push(waves, given.shot(s, i), change, wavelet_dot.typed_data() + i * given.inputs(),
             traces_dot->typed_data() + i * given.samples(), team, member);
      }));
}

template <ffi::DataType D>
auto common() {
  return ffi::Ffi::Bind()
      .template Arg<ffi::Buffer<D>>()          // factors of the material, over (nz, nx) or (nz, ny, nx)
      .template Arg<ffi::Buffer<D>>()          // coefficients of the absorbing terms along z, y and x
      .template Arg<ffi::Buffer<D>>()          // stencils, one after the other
      .template Arg<ffi::Buffer<D>>()          // wavelet (shots, sources, nt)
      .template Arg<ffi::Buffer<ffi::S32>>()   // cells of sources (shots, sources, k)
      .template Arg<ffi::Buffer<D>>()          // weights
      .template Arg<ffi::Buffer<ffi::S32>>()   // cells of receivers (shots, receivers, k)
      .template Arg<ffi::Buffer<D>>();         // weights
}

template <typename Binding>
auto attributes(Binding binding) {
  return std::move(binding)
      .template Attr<ffi::Span<const int64_t>>("widths")
      .template Attr<ffi::Span<const int64_t>>("kinds")
      .template Attr<bool>("mirror")
      .template Attr<bool>("physical")
      .template Attr<int64_t>("threads")
      .template Attr<int64_t>("segment");
}

template <ffi::DataType D>
auto forward_binding() {
  return attributes(common<D>().template Ret<ffi::Buffer<D>>().template Ret<ffi::Buffer<D>>());
}

template <ffi::DataType D>
auto backward_binding() {
  return attributes(common<D>()
                        .template Arg<ffi::Buffer<D>>()  // checkpoints (shots, kept, carry)
                        .template Arg<ffi::Buffer<D>>()  // derivative with respect to the traces
                        .template Ret<ffi::Buffer<D>>()
                        .template Ret<ffi::Buffer<D>>());
}

template <ffi::DataType D>
auto linearised_binding() {
  return attributes(common<D>()
                        .template Arg<ffi::Buffer<D>>()  // change of the material's factors
                        .template Arg<ffi::Buffer<D>>()  // change of the wavelet (shots, sources, nt)
                        .template Ret<ffi::Buffer<D>>());
}

}  // namespace

#define DEFINE_CALL(NAME, TYPE, D, KIND) \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME##_##TYPE, (NAME<D, KIND>), NAME##_binding<D>())
#define DEFINE_CALLS(KIND_FLOAT32, KIND_FLOAT64)                \
  DEFINE_CALL(forward, float32, ffi::F32, KIND_FLOAT32);        \
  DEFINE_CALL(forward, float64, ffi::F64, KIND_FLOAT64);        \
  DEFINE_CALL(backward, float32, ffi::F32, KIND_FLOAT32);       \
  DEFINE_CALL(backward, float64, ffi::F64, KIND_FLOAT64);       \
  DEFINE_CALL(linearised, float32, ffi::F32, KIND_FLOAT32);     \
  DEFINE_CALL(linearised, float64, ffi::F64, KIND_FLOAT64)

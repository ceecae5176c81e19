// Time loops of a block of shots behind XLA's foreign function interface: traces, and their exact transpose.
#include "time_loops.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

ffi::Error ended(const std::string& failed) {
  return failed.empty() ? ffi::Error::Success() : ffi::Error::Internal("seismic kernel: " + failed);
}

template <typename T, typename Buffer>
void fill(Setup<T>& s, Buffer& kappa, Buffer& along_z, Buffer& along_x, Buffer& coefficients, Buffer& wavelet,
          ffi::Span<const int64_t> widths, bool mirror, bool physical) {
  s.nz = kappa.dimensions()[0], s.nx = kappa.dimensions()[1], s.nt = wavelet.dimensions()[2];
  std::copy(widths.begin(), widths.end(), s.width);
  s.mirror = mirror, s.physical = physical, s.given = kappa.typed_data();
  s.fill(along_z.typed_data(), along_x.typed_data(), coefficients.typed_data());
}

template <typename T, typename Cells, typename Buffer>
Taps<T> taps(const Setup<T>& s, Cells& cells, Buffer& weights, int64_t shot) {
  const int64_t n = cells.dimensions()[1], k = cells.dimensions()[2];
  return {cells.typed_data() + shot * n * k, weights.typed_data() + shot * n * k, n, k, s.nx, up(s.nx, WIDTH<T>)};
}

// every member of a team makes its own: they are small, and none waits for another
template <typename T, typename Buffer, typename Cells>
Shot<T> shot_of(const Setup<T>& s, Buffer& wavelet, Cells& source_cells, Buffer& source_weights, Cells& receiver_cells,
                Buffer& receiver_weights, int64_t i) {
  return {taps<T>(s, source_cells, source_weights, i), taps<T>(s, receiver_cells, receiver_weights, i),
          wavelet.typed_data() + i * wavelet.dimensions()[1] * s.nt};
}

// segment: steps between checkpoints; those of shot i are checkpoints[i], the first one at step `segment`
template <ffi::DataType D, typename T>
ffi::Error forward(ffi::Buffer<D> kappa, ffi::Buffer<D> along_z, ffi::Buffer<D> along_x, ffi::Buffer<D> coefficients,
                   ffi::Buffer<D> wavelet, ffi::Buffer<ffi::S32> source_cells, ffi::Buffer<D> source_weights,
                   ffi::Buffer<ffi::S32> receiver_cells, ffi::Buffer<D> receiver_weights,
                   ffi::Result<ffi::Buffer<D>> traces, ffi::Result<ffi::Buffer<D>> checkpoints,
                   ffi::Span<const int64_t> widths, bool mirror, bool physical, int64_t threads, int64_t segment) {
  Setup<T> s;
  fill(s, kappa, along_z, along_x, coefficients, wavelet, widths, mirror, physical);
  const int64_t shots = wavelet.dimensions()[0], kept = checkpoints->dimensions()[1];
  const int64_t samples = receiver_cells.dimensions()[1] * s.nt;
  return ended(deal<Forward<T>>(
      shots, threads, Share::most(up(s.nz, R), R), [&](int64_t) { return std::make_unique<Forward<T>>(s); },
      [&](Forward<T>& wave, int64_t i, Team& team, int64_t member) {
        const auto shot = shot_of(s, wavelet, source_cells, source_weights, receiver_cells, receiver_weights, i);
        T* states = kept ? checkpoints->typed_data() + i * kept * s.carry() : nullptr;
        record(wave, shot, traces->typed_data() + i * samples, states, segment, team, member);
      }));
}

template <ffi::DataType D, typename T>
ffi::Error backward(ffi::Buffer<D> kappa, ffi::Buffer<D> along_z, ffi::Buffer<D> along_x, ffi::Buffer<D> coefficients,
                    ffi::Buffer<D> wavelet, ffi::Buffer<ffi::S32> source_cells, ffi::Buffer<D> source_weights,
                    ffi::Buffer<ffi::S32> receiver_cells, ffi::Buffer<D> receiver_weights, ffi::Buffer<D> checkpoints,
                    ffi::Buffer<D> traces, ffi::Result<ffi::Buffer<D>> kappa_bar,
                    ffi::Result<ffi::Buffer<D>> wavelet_bar, ffi::Span<const int64_t> widths, bool mirror,
                    bool physical, int64_t threads, int64_t segment) {
  Setup<T> s;
  fill(s, kappa, along_z, along_x, coefficients, wavelet, widths, mirror, physical);
  const int64_t shots = wavelet.dimensions()[0], kept = checkpoints.dimensions()[1];
  const int64_t samples = receiver_cells.dimensions()[1] * s.nt, inputs = wavelet.dimensions()[1] * s.nt;
  return ended(deal<Backward<T>>(
      shots, threads, Share::most(up(s.nz, R), R),
      [&](int64_t members) { return std::make_unique<Backward<T>>(s, segment, members); },
      [&](Backward<T>& memory, int64_t i, Team& team, int64_t member) {
        const auto shot = shot_of(s, wavelet, source_cells, source_weights, receiver_cells, receiver_weights, i);
        pull(memory, shot, traces.typed_data() + i * samples, checkpoints.typed_data() + i * kept * s.carry(), segment,
             kappa_bar->typed_data() + i * s.nz * s.nx, wavelet_bar->typed_data() + i * inputs, team, member);
      }));
}

template <ffi::DataType D, typename T>
ffi::Error linearised(ffi::Buffer<D> kappa, ffi::Buffer<D> along_z, ffi::Buffer<D> along_x, ffi::Buffer<D> coefficients,
                      ffi::Buffer<D> wavelet, ffi::Buffer<ffi::S32> source_cells, ffi::Buffer<D> source_weights,
                      ffi::Buffer<ffi::S32> receiver_cells, ffi::Buffer<D> receiver_weights, ffi::Buffer<D> kappa_dot,
                      ffi::Buffer<D> wavelet_dot, ffi::Result<ffi::Buffer<D>> traces_dot,
                      ffi::Span<const int64_t> widths, bool mirror, bool physical, int64_t threads, int64_t segment) {
  Setup<T> s;
  fill(s, kappa, along_z, along_x, coefficients, wavelet, widths, mirror, physical);
  const Rows<T> change = s.filled(kappa_dot.typed_data());
  const int64_t samples = receiver_cells.dimensions()[1] * s.nt, inputs = wavelet.dimensions()[1] * s.nt;
  return ended(deal<Linearised<T>>(
      wavelet.dimensions()[0], threads, Share::most(up(s.nz, R), R),
      [&](int64_t) { return std::make_unique<Linearised<T>>(s); },
      [&](Linearised<T>& waves, int64_t i, Team& team, int64_t member) {
        const auto shot = shot_of(s, wavelet, source_cells, source_weights, receiver_cells, receiver_weights, i);
        push(waves, shot, change, wavelet_dot.typed_data() + i * inputs, traces_dot->typed_data() + i * samples, team,
             member);
      }));
}

template <ffi::DataType D>
auto common() {
  return ffi::Ffi::Bind()
      .template Arg<ffi::Buffer<D>>()          // kappa (nz, nx)
      .template Arg<ffi::Buffer<D>>()          // a, b, b' along z (3, nz)
      .template Arg<ffi::Buffer<D>>()          // and along x (3, nx)
      .template Arg<ffi::Buffer<D>>()          // stencils: second z, x (M + 1 each), first z, x (M each)
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
                        .template Arg<ffi::Buffer<D>>()  // change of kappa (nz, nx)
                        .template Arg<ffi::Buffer<D>>()  // change of the wavelet (shots, sources, nt)
                        .template Ret<ffi::Buffer<D>>());
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(forward_float32, (forward<ffi::F32, float>), forward_binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(forward_float64, (forward<ffi::F64, double>), forward_binding<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(backward_float32, (backward<ffi::F32, float>), backward_binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(backward_float64, (backward<ffi::F64, double>), backward_binding<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(linearised_float32, (linearised<ffi::F32, float>), linearised_binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(linearised_float64, (linearised<ffi::F64, double>), linearised_binding<ffi::F64>());

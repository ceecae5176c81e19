// Whole time loops behind XLA's foreign function interface: traces of a block of shots, and their exact transpose.
//
// Shots are dealt to threads in a fixed order and never share a sum, so results do not depend on the number of threads.
#include <exception>
#include <memory>
#include <string>
#include <thread>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "adjoint.h"
#include "forward.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// Waves that have hardly arrived are denormal numbers, which are slow: flush them to zero, on this thread only.
class FlushDenormals {
#if defined(__SSE__)
 public:
  FlushDenormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }

 private:
  unsigned before;
#endif
};

template <typename Work>
ffi::Error deal(int64_t shots, int64_t threads, const Work& work) {
  threads = std::max<int64_t>(1, std::min(threads, shots));
  std::vector<std::string> failed(threads);
  auto run = [&](int64_t thread) {
    FlushDenormals flush;
    try {
      work(thread, threads);
    } catch (const std::exception& error) {
      failed[thread] = error.what();
    }
  };
  std::vector<std::thread> helpers;
  for (int64_t i = 1; i < threads; ++i) helpers.emplace_back(run, i);
  run(0);
  for (auto& helper : helpers) helper.join();
  for (auto& text : failed)
    if (!text.empty()) return ffi::Error::Internal("seismic kernel: " + text);
  return ffi::Error::Success();
}

template <typename T, typename Cells, typename Weights>
Points<T> points_of(Cells& cells, Weights& weights, int64_t shot) {
  auto shape = cells.dimensions();
  const int64_t n = shape[1], k = shape[2];
  return {cells.typed_data() + shot * n * k, weights.typed_data() + shot * n * k, n, k};
}

template <typename T, typename Buffer>
Setup<T> setup(Buffer& kappa, Buffer& along_z, Buffer& along_x, Buffer& coefficients, int64_t nt,
               ffi::Span<const int64_t> widths, bool mirror, bool physical) {
  Setup<T> s;
  s.nz = kappa.dimensions()[0], s.nx = kappa.dimensions()[1], s.nt = nt;
  std::copy(widths.begin(), widths.end(), s.width);
  s.mirror = mirror, s.physical = physical, s.kappa = kappa.typed_data();
  s.az = along_z.typed_data(), s.bz = s.az + s.nz, s.sz = s.bz + s.nz;
  s.ax = along_x.typed_data(), s.bx = s.ax + s.nx, s.sx = s.bx + s.nx;
  s.coefficients(coefficients.typed_data());
  return s;
}

// segment: steps between checkpoints; those of shot i are checkpoints[i], the first one at step `segment`
template <ffi::DataType D, typename T>
ffi::Error forward(ffi::Buffer<D> kappa, ffi::Buffer<D> along_z, ffi::Buffer<D> along_x, ffi::Buffer<D> coefficients,
                   ffi::Buffer<D> wavelet, ffi::Buffer<ffi::S32> source_cells, ffi::Buffer<D> source_weights,
                   ffi::Buffer<ffi::S32> receiver_cells, ffi::Buffer<D> receiver_weights,
                   ffi::Result<ffi::Buffer<D>> traces, ffi::Result<ffi::Buffer<D>> checkpoints,
                   ffi::Span<const int64_t> widths, bool mirror, bool physical, int64_t threads, int64_t segment) {
  const int64_t shots = wavelet.dimensions()[0], nt = wavelet.dimensions()[2], kept = checkpoints->dimensions()[1];
  const auto s = setup<T>(kappa, along_z, along_x, coefficients, nt, widths, mirror, physical);
  return deal(shots, threads, [&](int64_t thread, int64_t stride) {
    Forward<T> wave(s);
    for (int64_t i = thread; i < shots; i += stride) {
      const auto sources = points_of<T>(source_cells, source_weights, i);
      const auto receivers = points_of<T>(receiver_cells, receiver_weights, i);
      wave.rest();
      for (int64_t n = 0; n < nt; ++n) {
        if (kept && n && n % segment == 0)
          wave.save(checkpoints->typed_data() + (i * kept + n / segment - 1) * s.carry());
        wave.sample(receivers, traces->typed_data() + i * receivers.n * nt, n);
        wave.step(sources, wavelet.typed_data() + i * sources.n * nt, n, nullptr);
      }
    }
  });
}

template <ffi::DataType D, typename T>
ffi::Error backward(ffi::Buffer<D> kappa, ffi::Buffer<D> along_z, ffi::Buffer<D> along_x, ffi::Buffer<D> coefficients,
                    ffi::Buffer<D> wavelet, ffi::Buffer<ffi::S32> source_cells, ffi::Buffer<D> source_weights,
                    ffi::Buffer<ffi::S32> receiver_cells, ffi::Buffer<D> receiver_weights, ffi::Buffer<D> checkpoints,
                    ffi::Buffer<D> traces, ffi::Result<ffi::Buffer<D>> kappa_bar,
                    ffi::Result<ffi::Buffer<D>> wavelet_bar, ffi::Span<const int64_t> widths, bool mirror,
                    bool physical, int64_t threads, int64_t segment) {
  const int64_t shots = wavelet.dimensions()[0], nt = wavelet.dimensions()[2], kept = checkpoints.dimensions()[1];
  const auto s = setup<T>(kappa, along_z, along_x, coefficients, nt, widths, mirror, physical);
  const int64_t area = s.nz * s.nx;
  return deal(shots, threads, [&](int64_t thread, int64_t stride) {
    Forward<T> wave(s);
    Adjoint<T> adjoint(s);
    std::unique_ptr<T[]> drive(new T[std::min(segment, nt) * area]);
    for (int64_t i = thread; i < shots; i += stride) {
      const auto sources = points_of<T>(source_cells, source_weights, i);
      const auto receivers = points_of<T>(receiver_cells, receiver_weights, i);
      T* gradient = kappa_bar->typed_data() + i * area;
      std::fill(gradient, gradient + area, T(0));
      adjoint.rest();
      for (int64_t j = (nt - 1) / segment; j >= 0; --j) {
        const int64_t begin = j * segment, end = std::min(nt, begin + segment);
        if (j) wave.load(checkpoints.typed_data() + (i * kept + j - 1) * s.carry());
        else wave.rest();
        for (int64_t n = begin; n < end; ++n)
          wave.step(sources, wavelet.typed_data() + i * sources.n * nt, n, drive.get() + (n - begin) * area);
        for (int64_t n = end - 1; n >= begin; --n) {
          adjoint.sample(sources, wavelet_bar->typed_data() + i * sources.n * nt, n);
          adjoint.step(receivers, traces.typed_data() + i * receivers.n * nt, n, drive.get() + (n - begin) * area,
                       gradient);
        }
      }
      for (int64_t c = 0; c < area; ++c) gradient[c] /= s.kappa[c];
    }
  });
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

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(forward_float32, (forward<ffi::F32, float>), forward_binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(forward_float64, (forward<ffi::F64, double>), forward_binding<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(backward_float32, (backward<ffi::F32, float>), backward_binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(backward_float64, (backward<ffi::F64, double>), backward_binding<ffi::F64>());

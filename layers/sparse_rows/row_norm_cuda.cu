// SPDX-License-Identifier: Apache-2.0
// row_norm_cuda.cu: sums over rows [n,C] for each channel, and the output of batch norm.
//
// Method    Neighbouring threads have neighbouring channels, so they read neighbouring elements.
//           Rows are cut into pieces (row_sums.h). One thread adds up one channel of one piece and
//           writes the sums to memory; a second launch adds the sums of all pieces in order. No
//           thread waits for another, and two runs give the same bits.
// Numerics  Sums are taken in double, and the variance is taken around the mean, as in
//           row_norm_cpu.cpp.
// Read next row_norm_cpu.cpp, which processes the same pieces one after the other
#include "framework/cuda/launch.cuh"
#include "layers/sparse_rows/row_norm.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// The terms of each element: at most two sums.
template <class T>
struct Values {
  static constexpr int kSums = 1;
  const T* x;
  __device__ void add(Index i, Index, double* sums) const { sums[0] += static_cast<double>(x[i]); }
};
template <class T>
struct Squares {
  static constexpr int kSums = 1;
  const T* x;
  const double* mean;
  __device__ void add(Index i, Index c, double* sums) const {
    const double off = static_cast<double>(x[i]) - mean[c];
    sums[0] += off * off;
  }
};
template <class T>
struct Gradients {
  static constexpr int kSums = 2;
  const T *dy, *x;
  const double* mean;
  __device__ void add(Index i, Index c, double* sums) const {
    const auto g = static_cast<double>(dy[i]);
    sums[0] += g;
    sums[1] += g * (static_cast<double>(x[i]) - mean[c]);
  }
};

// Writes `parts` [pieces, sums, C]; there is one thread for each piece and channel.
template <class Terms>
__global__ void piece_sums(Terms terms, RowPieces pieces, Index channels, double* parts) {
  for (Index i = global_thread(); i < pieces.count * channels; i += global_threads()) {
    const Index piece = i / channels, c = i - piece * channels;
    const Index begin = piece * pieces.size;
    const Index end = begin + pieces.size < pieces.rows ? begin + pieces.size : pieces.rows;
    double sums[Terms::kSums] = {};
    for (Index row = begin; row < end; ++row) terms.add(row * channels + c, c, sums);
    for (int s = 0; s < Terms::kSums; ++s) {
      parts[(piece * Terms::kSums + s) * channels + c] = sums[s];
    }
  }
}

// Computes to[c] = scale times the total of sum number `s` over all pieces; each piece has `sums`
// sums.
__global__ void add_pieces(const double* parts, Index pieces, Index channels, int sums, int s,
                           double scale, double* to) {
  for (Index c = global_thread(); c < channels; c += global_threads()) {
    double sum = 0;
    for (Index piece = 0; piece < pieces; ++piece) sum += parts[(piece * sums + s) * channels + c];
    to[c] = sum * scale;
  }
}

template <class Terms>
void add_up(const Terms& terms, const Tensor& x, double scale, const Tensor& first,
            const Tensor& second = {}) {
  const Index channels = x.dim(1);
  const RowPieces pieces(x.dim(0));
  const Tensor parts =
      Tensor::empty({pieces.count, Terms::kSums, channels}, DType::f64, x.device());
  launch(piece_sums<Terms>, grid_for(pieces.count * channels), terms, pieces, channels,
         parts.data<double>());
  for (int s = 0; s < Terms::kSums; ++s) {
    launch(add_pieces, grid_for(channels), parts.data<double>(), pieces.count, channels,
           Terms::kSums, s, scale, (s == 0 ? first : second).data<double>());
  }
}

template <class Body>
void with_type(const Tensor& x, const Body& body) {
  if (x.dtype() == DType::f64) return body(double{});
  body(float{});
}

void sums_cuda(const Tensor& x, const Tensor& sums) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    add_up(Values<T>{x.data<T>()}, x, 1, sums);
  });
}

void moments_cuda(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const double scale = 1 / static_cast<double>(x.dim(0));
    add_up(Values<T>{x.data<T>()}, x, scale, mean);
    add_up(Squares<T>{x.data<T>(), mean.data<double>()}, x, scale, variance);
  });
}

template <class T>
__global__ void apply_kernel(const T* x, const double* mean, const double* factor,
                             const double* shift, Index channels, Index count, T* y) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index c = i % channels;
    y[i] = static_cast<T>((static_cast<double>(x[i]) - mean[c]) * factor[c] + shift[c]);
  }
}

void apply_cuda(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& shift,
                const Tensor& y) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    launch(apply_kernel<T>, grid_for(x.numel()), x.data<T>(), mean.data<double>(),
           factor.data<double>(), shift.data<double>(), x.dim(1), x.numel(), y.data<T>());
  });
}

void gradient_sums_cuda(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& sum_dy,
                        const Tensor& sum_dy_x) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    add_up(Gradients<T>{dy.data<T>(), x.data<T>(), mean.data<double>()}, x, 1, sum_dy, sum_dy_x);
  });
}

template <class T>
__global__ void gradient_kernel(const T* dy, const T* x, const double* mean, const double* a,
                                const double* b, const double* d, Index channels, Index count,
                                T* dx) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index c = i % channels;
    dx[i] = static_cast<T>(a[c] * static_cast<double>(dy[i]) +
                           b[c] * (static_cast<double>(x[i]) - mean[c]) + d[c]);
  }
}

void gradient_cuda(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& a,
                   const Tensor& b, const Tensor& d, const Tensor& dx) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    launch(gradient_kernel<T>, grid_for(x.numel()), dy.data<T>(), x.data<T>(), mean.data<double>(),
           a.data<double>(), b.data<double>(), d.data<double>(), x.dim(1), x.numel(), dx.data<T>());
  });
}

}  // namespace

CONVSCOPE_KERNEL(row_sums_kernel, cuda, sums_cuda)
CONVSCOPE_KERNEL(row_moments_kernel, cuda, moments_cuda)
CONVSCOPE_KERNEL(row_apply_kernel, cuda, apply_cuda)
CONVSCOPE_KERNEL(row_gradient_sums_kernel, cuda, gradient_sums_cuda)
CONVSCOPE_KERNEL(row_gradient_kernel, cuda, gradient_cuda)

}  // namespace convscope

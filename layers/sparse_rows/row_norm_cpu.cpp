// SPDX-License-Identifier: Apache-2.0
// row_norm_cpu.cpp: sums over rows [n,C] for each channel, and the output of batch norm.
//
// Method    Rows are cut into pieces. Each piece is read once, and its sums are a row of doubles
//           that stays in L1. The sums of the pieces are added in order. All inner loops run along
//           the channels, which are contiguous.
// Read next batch_norm2d_cpu.cpp, where the numbers of a channel are contiguous
#include <algorithm>
#include <array>
#include <vector>

#include "framework/parallel.h"
#include "layers/sparse_rows/row_norm.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {
namespace {

using Index = std::int64_t;
constexpr Index kRows = 256;  // that one thread writes at a time

template <class Body>
void with_type(const Tensor& x, const Body& body) {
  if (x.dtype() == DType::f64) return body(double{});
  body(float{});
}

// Computes out[c] = sum over rows of term(row, c), piece by piece, for kSums kinds of terms at
// once.
template <Index kSums, class AddRow>
void add_up(Index rows, Index channels, const std::array<double*, kSums>& out,
            const AddRow& add_row) {
  const RowPieces pieces(rows);
  std::vector<double> parts(static_cast<std::size_t>(pieces.count * kSums * channels));
  const ShortLoops here(4.0 * static_cast<double>(rows * channels));
  parallel_chunks(pieces.count, [&](Index piece, int) {
    double* const sums = parts.data() + piece * kSums * channels;
    const Index begin = piece * pieces.size, end = std::min(rows, begin + pieces.size);
    for (Index row = begin; row < end; ++row) add_row(row, sums);
  });
  for (Index s = 0; s < kSums; ++s) {
    double* const to = out[static_cast<std::size_t>(s)];
    for (Index c = 0; c < channels; ++c) to[c] = 0;
    for (Index piece = 0; piece < pieces.count; ++piece) {
      const double* const from = parts.data() + (piece * kSums + s) * channels;
      for (Index c = 0; c < channels; ++c) to[c] += from[c];
    }
  }
}

void sums_cpu(const Tensor& x, const Tensor& sums) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const Index channels = x.dim(1);
    const T* const from = x.data<T>();
    add_up<1>(x.dim(0), channels, {sums.data<double>()}, [&](Index row, double* to) {
      const T* const v = from + row * channels;
      for (Index c = 0; c < channels; ++c) to[c] += static_cast<double>(v[c]);
    });
  });
}

void moments_cpu(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const Index rows = x.dim(0), channels = x.dim(1);
    const T* const from = x.data<T>();
    double *const m = mean.data<double>(), *const var = variance.data<double>();
    sums_cpu(x, mean);
    for (Index c = 0; c < channels; ++c) m[c] /= static_cast<double>(rows);
    add_up<1>(rows, channels, {var}, [&](Index row, double* to) {
      const T* const v = from + row * channels;
      for (Index c = 0; c < channels; ++c) {
        const double off = static_cast<double>(v[c]) - m[c];
        to[c] += off * off;
      }
    });
    for (Index c = 0; c < channels; ++c) var[c] /= static_cast<double>(rows);
  });
}

// Calls body(index, channel) for all elements of [rows, channels].
template <class Body>
void for_elements(Index rows, Index channels, const Body& body) {
  const ShortLoops here(3.0 * static_cast<double>(rows * channels));
  parallel_for(rows, kRows, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      for (Index c = 0; c < channels; ++c) body(row * channels + c, c);
    }
  });
}

void apply_cpu(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& shift,
               const Tensor& y) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    const double *const m = mean.data<double>(), *const f = factor.data<double>(),
                        *const s = shift.data<double>();
    for_elements(x.dim(0), x.dim(1), [=](Index i, Index c) {
      to[i] = static_cast<T>((static_cast<double>(from[i]) - m[c]) * f[c] + s[c]);
    });
  });
}

void gradient_sums_cpu(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& sum_dy,
                       const Tensor& sum_dy_x) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const Index channels = x.dim(1);
    const T *const from = x.data<T>(), *const gradient = dy.data<T>();
    const double* const m = mean.data<double>();
    add_up<2>(x.dim(0), channels, {sum_dy.data<double>(), sum_dy_x.data<double>()},
              [&](Index row, double* to) {
                const T *const v = from + row * channels, *const d = gradient + row * channels;
                for (Index c = 0; c < channels; ++c) {
                  const auto g = static_cast<double>(d[c]);
                  to[c] += g;
                  to[channels + c] += g * (static_cast<double>(v[c]) - m[c]);
                }
              });
  });
}

void gradient_cpu(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& a,
                  const Tensor& b, const Tensor& d, const Tensor& dx) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const T *const from = x.data<T>(), *const gradient = dy.data<T>();
    T* const to = dx.data<T>();
    const double *const m = mean.data<double>(), *const dy_coefficients = a.data<double>();
    const double *const x_coefficients = b.data<double>(), *const constants = d.data<double>();
    for_elements(x.dim(0), x.dim(1), [=](Index i, Index c) {
      to[i] =
          static_cast<T>(dy_coefficients[c] * static_cast<double>(gradient[i]) +
                         x_coefficients[c] * (static_cast<double>(from[i]) - m[c]) + constants[c]);
    });
  });
}

}  // namespace

CONVSCOPE_KERNEL(row_sums_kernel, cpu, sums_cpu)
CONVSCOPE_KERNEL(row_moments_kernel, cpu, moments_cpu)
CONVSCOPE_KERNEL(row_apply_kernel, cpu, apply_cpu)
CONVSCOPE_KERNEL(row_gradient_sums_kernel, cpu, gradient_sums_cpu)
CONVSCOPE_KERNEL(row_gradient_kernel, cpu, gradient_cpu)

}  // namespace convscope

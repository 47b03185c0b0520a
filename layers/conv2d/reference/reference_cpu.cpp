// SPDX-License-Identifier: Apache-2.0
// reference_cpu.cpp: the convolution exactly as its formula, seven loops with double sums. It is
// slow, and every test compares results with it.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                q stride_w - pad_left + s dilation_w] w[k,c,r,s],  g = k / (K/G)
// Textbook   for n, k, p, q:
//              sum = b[k]
//              for c, r, s: sum += x[n][g*C/G+c][p*stride_h-pad_top+r*dilation_h][..] w[k][c][r][s]
//              y[n][k][p][q] = sum
// Method     no tiles, no packing. Each thread takes some pairs of image and channel, or some
//            kernels.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], b [K], y [N,K,P,Q], row-major, f32 or f64; sums in f64
// Supports   f32 and f64; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = x, w, y once if the caches hold them;
//            no workspace; bound by scalar arithmetic and address computation
// Numerics   each product of two f32 is exact in f64, so a result is wrong by at most half a unit
//            in the last place plus 2^-29 of the sum of magnitudes; same bits on each run; exact on
//            integers
// Backward   dx gathers: pixel (h,w) adds the shares of every (p,r), (q,s) with p stride_h -
//            pad_top + r dilation_h = h, and likewise for w. dx is assigned; dw is assigned or
//            added to.
// Choices    none
// Source     V. Dumoulin, F. Visin: A guide to convolution arithmetic for deep learning, 2016,
//            arXiv 1603.07285
// Read next  direct_lesson_cpu.cpp, the same products scattered instead of gathered;
//            im2col_gemm_cpu.cpp, the same sums as a matrix product.
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {
namespace {

Conv2dSupport supports(const Conv2dProblem& problem, Direction) {
  if (problem.dtype == DType::f32 || problem.dtype == DType::f64) return {};
  return Conv2dSupport::no(
      cat("expects elements of type f32 or f64, got ", name_of(problem.dtype)));
}

Conv2dCost cost(const Conv2dProblem& problem, Direction) {
  return {.flops = problem.nominal_flops(),
          .bytes = problem.nominal_bytes(),
          .issued = problem.nominal_flops()};
}

std::size_t workspace_bytes(const Conv2dProblem&, Direction) { return 0; }

template <class T>
void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const T* const x = static_cast<const T*>(args.x);
  const T* const w = static_cast<const T*>(args.w);
  const T* const b = static_cast<const T*>(args.b);
  T* const y = static_cast<T*>(args.y);
  parallel_for(z.n * z.k, 1, [&](std::int64_t begin, std::int64_t) {
    const std::int64_t n = begin / z.k;
    const std::int64_t k = begin % z.k;
    const std::int64_t g = k / z.k_per_group();
    for (std::int64_t p = 0; p < z.p(); ++p) {
      for (std::int64_t q = 0; q < z.q(); ++q) {
        double sum = b != nullptr ? static_cast<double>(b[k]) : 0.0;
        for (std::int64_t c = 0; c < z.c_per_group(); ++c) {
          const T* const image = x + (n * z.c + g * z.c_per_group() + c) * z.h * z.w;  // [H,W]
          const T* const kernel = w + (k * z.c_per_group() + c) * z.r * z.s;           // [R,S]
          for (std::int64_t r = 0; r < z.r; ++r) {
            const std::int64_t h = p * z.stride_h - z.pad_top + r * z.dilation_h;
            if (h < 0 || h >= z.h) continue;
            for (std::int64_t s = 0; s < z.s; ++s) {
              const std::int64_t col = q * z.stride_w - z.pad_left + s * z.dilation_w;
              if (col < 0 || col >= z.w) continue;
              sum += static_cast<double>(image[h * z.w + col]) *
                     static_cast<double>(kernel[r * z.s + s]);
            }
          }
        }
        y[((n * z.k + k) * z.p() + p) * z.q() + q] = static_cast<T>(sum);
      }
    }
  });
}

template <class T>
void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const T* const dy = static_cast<const T*>(args.dy);
  const T* const w = static_cast<const T*>(args.w);
  T* const dx = static_cast<T*>(args.dx);
  parallel_for(z.n * z.c, 1, [&](std::int64_t begin, std::int64_t) {
    const std::int64_t n = begin / z.c;
    const std::int64_t g = begin % z.c / z.c_per_group();
    const std::int64_t c = begin % z.c % z.c_per_group();
    for (std::int64_t h = 0; h < z.h; ++h) {
      for (std::int64_t col = 0; col < z.w; ++col) {
        double sum = 0;
        for (std::int64_t r = 0; r < z.r; ++r) {
          const std::int64_t down = h + z.pad_top - r * z.dilation_h;  // = p stride_h
          if (down < 0 || down % z.stride_h != 0 || down / z.stride_h >= z.p()) continue;
          for (std::int64_t s = 0; s < z.s; ++s) {
            const std::int64_t right = col + z.pad_left - s * z.dilation_w;  // = q stride_w
            if (right < 0 || right % z.stride_w != 0 || right / z.stride_w >= z.q()) continue;
            const std::int64_t at = down / z.stride_h * z.q() + right / z.stride_w;
            for (std::int64_t k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
              sum += static_cast<double>(dy[(n * z.k + k) * z.p() * z.q() + at]) *
                     static_cast<double>(w[((k * z.c_per_group() + c) * z.r + r) * z.s + s]);
            }
          }
        }
        dx[(begin * z.h + h) * z.w + col] = static_cast<T>(sum);
      }
    }
  });
}

template <class T>
void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const T* const x = static_cast<const T*>(args.x);
  const T* const dy = static_cast<const T*>(args.dy);
  T* const dw = static_cast<T*>(args.dw);
  parallel_for(z.k * z.c_per_group(), 1, [&](std::int64_t begin, std::int64_t) {
    const std::int64_t k = begin / z.c_per_group();
    const std::int64_t c = begin % z.c_per_group() + k / z.k_per_group() * z.c_per_group();
    for (std::int64_t r = 0; r < z.r; ++r) {
      for (std::int64_t s = 0; s < z.s; ++s) {
        double sum = 0;
        for (std::int64_t n = 0; n < z.n; ++n) {
          for (std::int64_t p = 0; p < z.p(); ++p) {
            const std::int64_t h = p * z.stride_h - z.pad_top + r * z.dilation_h;
            if (h < 0 || h >= z.h) continue;
            for (std::int64_t q = 0; q < z.q(); ++q) {
              const std::int64_t col = q * z.stride_w - z.pad_left + s * z.dilation_w;
              if (col < 0 || col >= z.w) continue;
              sum += static_cast<double>(x[((n * z.c + c) * z.h + h) * z.w + col]) *
                     static_cast<double>(dy[((n * z.k + k) * z.p() + p) * z.q() + q]);
            }
          }
        }
        T& to = dw[(begin * z.r + r) * z.s + s];
        to = static_cast<T>(args.accumulate ? static_cast<double>(to) + sum : sum);
      }
    }
  });
}

const Conv2dAlgorithm kAlgorithm{
    .name = "reference",
    .device = DeviceType::cpu,
    .idea = "the formula as seven loops with double sums; the oracle of the tests",
    .paper = "Dumoulin, Visin 2016: A guide to convolution arithmetic, arXiv 1603.07285",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 1,
    .exact_on_integers = true,
    .auto_ok = false,
    .forward =
        [](const Conv2dForwardArgs& args) {
          args.problem.dtype == DType::f64 ? forward<double>(args) : forward<float>(args);
        },
    .backward_data =
        [](const Conv2dBackwardDataArgs& args) {
          args.problem.dtype == DType::f64 ? backward_data<double>(args)
                                           : backward_data<float>(args);
        },
    .backward_weight =
        [](const Conv2dBackwardWeightArgs& args) {
          args.problem.dtype == DType::f64 ? backward_weight<double>(args)
                                           : backward_weight<float>(args);
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)

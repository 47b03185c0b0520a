// SPDX-License-Identifier: Apache-2.0
// depthwise_lesson_cpu.cpp: depthwise convolution, which has no sum over channels: each plane of y
// is one plane of x convolved with one small kernel.
//
// Formula    y[n,k,p,q] = b[k] + sum over r, s of w[k,0,r,s] x[n, k / M, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], M = K/C, x = 0 outside
// Textbook   for n, k, p, q:
//              y[n,k,p,q] = b[k] + sum over r, s of w[k,0,r,s] * x[n,k/M,p*stride-pad+r,..]
//
//              x[n]: C planes      w: K kernels      y[n]: K planes
//              [ c0 ] ---------------- * k0 --------> [ k0 ]
//              [ c1 ] ---------------- * k1 --------> [ k1 ]       M = 1: one line for each plane;
//              [ c2 ] ---------------- * k2 --------> [ k2 ]       a full layer has K C of them
//
// Method     The planes are computed one after another. Each x is used for R S outputs; a full
//            convolution would use it K R S times. With so few products for each byte, a fast
//            algorithm is bound by memory, and a matrix product would not be faster.
// Shapes     x [N,C,H,W], w [K,1,R,S], b [K], y [N,K,P,Q], row-major, f32; sums in f32
// Supports   f32 with C/G = 1; every kernel, stride, dilation, padding and multiplier M
// Cost       FLOPs = 2 N K P Q R S; bytes = the three tensors once; no workspace; bound by border
//            tests and one scalar sum, far from the memory bandwidth
// Numerics   a sum of R S terms (dw: N P Q), one after another: errors of random sign grow like the
//            square root of their number; same bits on each run; exact on integers below 2^24
// Backward   dx assigned: each dy adds R S terms to the pixels that it came from; dw added to
// Choices    none
// Source     L. Sifre: Rigid-Motion Scattering for Image Classification, 2014 (thesis)
// Read next  direct_lesson_cpu.cpp, with the sum over channels; depthwise_cpu.cpp, where a vector
//            holds neighbouring pixels and borders need no test
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// Returns the row of x for row r of the kernel and row p of y; outside the image when < 0 or >= H.
Index row_of(const Conv2dProblem& z, Index p, Index r) {
  return p * z.stride_h - z.pad_top + r * z.dilation_h;
}
Index column_of(const Conv2dProblem& z, Index q, Index s) {
  return q * z.stride_w - z.pad_left + s * z.dilation_w;
}

struct Lesson {
  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board) {
    for (Index n = 0; n < z.n; ++n) {
      for (Index k = 0; k < z.k; ++k) {
        board.step("one plane of y");
        const auto plane = x[n][k / z.k_per_group()];  // [H, W]
        const auto kernel = w[k][0];                   // [R, S]
        const auto out = y[n][k];                      // [P, Q]
        for (Index p = 0; p < z.p(); ++p) {
          for (Index q = 0; q < z.q(); ++q) {
            auto sum = b.or_zero(k);
            for (Index r = 0; r < z.r; ++r) {
              for (Index s = 0; s < z.s; ++s) {
                sum += kernel(r, s) * plane.or_zero(row_of(z, p, r), column_of(z, q, s));
              }
            }
            out(p, q) = sum;
          }
        }
      }
    }
  }

  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    dx.fill(0);
    for (Index n = 0; n < z.n; ++n) {
      for (Index k = 0; k < z.k; ++k) {  // the M kernels of a channel add to the same plane
        board.step("one plane of dy");
        const auto plane = dx[n][k / z.k_per_group()];
        const auto kernel = w[k][0];
        const auto in = dy[n][k];
        for (Index p = 0; p < z.p(); ++p) {
          for (Index q = 0; q < z.q(); ++q) {
            for (Index r = 0; r < z.r; ++r) {
              for (Index s = 0; s < z.s; ++s) {
                const Index h = row_of(z, p, r), column = column_of(z, q, s);
                if (plane.has(h, column)) plane(h, column) += kernel(r, s) * in(p, q);
              }
            }
          }
        }
      }
    }
  }

  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    for (Index k = 0; k < z.k; ++k) {
      board.step("one kernel of dw");
      for (Index r = 0; r < z.r; ++r) {
        for (Index s = 0; s < z.s; ++s) {
          auto sum = dw.zero();  // over all pixels where this weight is used
          for (Index n = 0; n < z.n; ++n) {
            const auto plane = x[n][k / z.k_per_group()];
            const auto gradients = dy[n][k];
            for (Index p = 0; p < z.p(); ++p) {
              for (Index q = 0; q < z.q(); ++q) {
                sum += gradients(p, q) * plane.or_zero(row_of(z, p, r), column_of(z, q, s));
              }
            }
          }
          dw(k, 0, r, s) += sum;
        }
      }
    }
  }
};

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.dtype != DType::f32) return lesson_takes(z.dtype);
  if (z.c_per_group() != 1) {
    return Conv2dSupport::no(cat("expects one input channel for each group, got ", z.c_per_group(),
                                 " in each of ", z.groups));
  }
  return {};
}

const Conv2dAlgorithm kAlgorithm = lesson_algorithm<Lesson>({
    .name = "depthwise_lesson",
    .idea = "lesson: one plane under one small kernel, and no sum over channels",
    .paper = "Sifre 2014: Rigid-Motion Scattering for Image Classification (thesis)",
    .supports = supports,
    .cost = textbook_cost,
    .error_growth = 8,
    .exact_on_integers = true,
});

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson,
                        "n=1,c=3,h=5,w=5,k=3,r=3,s=3,pad=1,groups=3")

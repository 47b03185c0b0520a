// SPDX-License-Identifier: Apache-2.0
// gemm_1x1_lesson_cpu.cpp: convolution with a 1x1 kernel. An image whose planes are rows is the
// matrix that im2col would write, so three plain loops are enough.
//
// Formula    y[n,k,(p,q)] = b[k] + sum over c < C/G of w[k,c] x[n, g C/G + c, (p,q)]
// Textbook   for each image: y = w x + b         # [K, P Q] = [K, C] [C, P Q]
//                            dx = w^T dy         # [C, P Q] = [C, K] [K, P Q]
//                            dw += dy x^T        # [K, C]   = [K, P Q] [P Q, C]
//
//              w [K,C]        x[n] [C, P Q]: one plane in each row      y[n] [K, P Q]
//              k0 . . .       c0 ------------------------------         k0 --------#-----
//              k1 # # #   *   c1 --------|---------------------   =     k1 --------------
//                             c2 --------|---------------------
//                                       pixel: a column, C numbers at a distance of P Q
//
// Method     one result at a time, each from a row of w and a column of x
// Shapes     x [N,C,H,W], w [K,C/G,1,1], b [K], y [N,K,P,Q], row-major, f32; f32 accumulators
// Supports   f32; a 1x1 kernel with stride 1 and no padding; every number of groups
// Cost       FLOPs = 2 N K P Q C/G; bytes = the three tensors once if all reuse hits the caches; no
//            workspace; bound by one scalar sum, because the numbers of a column of x are on
//            different cache lines
// Numerics   a sum of C/G terms (dx: K/G, dw: P Q), one after another: errors of random sign grow
//            like the square root of their number; same bits on each run; exact on integers below
//            2^24
// Backward   dx = w^T dy, assigned; dw = dy x^T, added to
// Choices    none
// Source     M. Lin, Q. Chen, S. Yan: Network In Network, 2013, arXiv 1312.4400
// Read next  im2col_gemm_lesson_cpu.cpp, for kernels of any size; gemm_1x1_cpu.cpp, with a tile of
//            accumulators
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

struct Lesson {
  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board) {
    const Index pixels = z.h * z.w;                                // = P Q
    const auto in = x.as(z.n, z.groups, z.c_per_group(), pixels);  // planes are rows
    const auto out = y.as(z.n, z.groups, z.k_per_group(), pixels);
    const auto weights = w.as(z.groups, z.k_per_group(), z.c_per_group());
    board.step("y = w x + b");
    for (Index n = 0; n < z.n; ++n) {
      for (Index g = 0; g < z.groups; ++g) {
        for (Index k = 0; k < z.k_per_group(); ++k) {
          for (Index pixel = 0; pixel < pixels; ++pixel) {
            auto sum = b.or_zero(g * z.k_per_group() + k);
            for (Index c = 0; c < z.c_per_group(); ++c) {
              sum += weights(g, k, c) * in(n, g, c, pixel);
            }
            out(n, g, k, pixel) = sum;
          }
        }
      }
    }
  }

  // Computes the same product as forward, with w^T instead of w. The reduction is over the channels
  // of y.
  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    const Index pixels = z.h * z.w;
    const auto in = dy.as(z.n, z.groups, z.k_per_group(), pixels);
    const auto out = dx.as(z.n, z.groups, z.c_per_group(), pixels);
    const auto weights = w.as(z.groups, z.k_per_group(), z.c_per_group());
    board.step("dx = w^T dy");
    for (Index n = 0; n < z.n; ++n) {
      for (Index g = 0; g < z.groups; ++g) {
        for (Index c = 0; c < z.c_per_group(); ++c) {
          for (Index pixel = 0; pixel < pixels; ++pixel) {
            auto sum = out.zero();
            for (Index k = 0; k < z.k_per_group(); ++k) {
              sum += weights(g, k, c) * in(n, g, k, pixel);
            }
            out(n, g, c, pixel) = sum;
          }
        }
      }
    }
  }

  // Each weight is used by every pixel of every image, so the sum runs over all pixels, row by row.
  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    const Index pixels = z.h * z.w;
    const auto in = x.as(z.n, z.groups, z.c_per_group(), pixels);
    const auto gradients = dy.as(z.n, z.groups, z.k_per_group(), pixels);
    const auto sums = dw.as(z.groups, z.k_per_group(), z.c_per_group());
    board.step("dw += dy x^T");
    for (Index n = 0; n < z.n; ++n) {
      for (Index g = 0; g < z.groups; ++g) {
        for (Index k = 0; k < z.k_per_group(); ++k) {
          for (Index c = 0; c < z.c_per_group(); ++c) {
            auto sum = sums.zero();
            for (Index pixel = 0; pixel < pixels; ++pixel) {
              sum += gradients(n, g, k, pixel) * in(n, g, c, pixel);
            }
            sums(g, k, c) += sum;
          }
        }
      }
    }
  }
};

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32) return lesson_takes(z.dtype);
  if (z.r != 1 || z.s != 1) return no("expects a kernel of 1x1, got ", z.r, "x", z.s);
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, because only then x in memory is the matrix, got ", z.stride_h,
              "x", z.stride_w);
  }
  if (z.pad_top + z.pad_bottom + z.pad_left + z.pad_right != 0) {
    return no("expects no padding, because only then x in memory is the matrix, got ", z.pad_top,
              "x", z.pad_bottom, "x", z.pad_left, "x", z.pad_right);
  }
  return {};
}

const Conv2dAlgorithm kAlgorithm = lesson_algorithm<Lesson>({
    .name = "gemm_1x1_lesson",
    .idea = "lesson: for a 1x1 kernel an image is already a matrix: three loops multiply",
    .paper = "Lin, Chen, Yan 2013: Network In Network, arXiv 1312.4400",
    .supports = supports,
    .cost = textbook_cost,
    .error_growth = 8,
    .exact_on_integers = true,
});

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson, "n=1,c=3,h=4,w=4,k=4")

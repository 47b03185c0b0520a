// SPDX-License-Identifier: Apache-2.0
// im2col_gemm_lesson_cpu.cpp: convolution as a matrix product: write the inputs of each output
// pixel into one column, and the sums of all pixels and kernels are one product of two matrices.
//
// Formula    y[k,(p,q)] = b[k] + sum over (c,r,s) of w[k,(c,r,s)] columns[(c,r,s),(p,q)],
//            columns[(c,r,s),(p,q)] = x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                                     q stride_w - pad_left + s dilation_w], or 0
// Textbook   for each image: columns = im2col(x)          # [C/G R S, P Q]
//                            y = w columns + b            # [K/G, C/G R S] [C/G R S, P Q]
//            columns = w^T dy;  dx = col2im(columns);  dw += dy columns^T
//
//              x, one channel      columns, R = S = 2, one output pixel in each column
//              a b c               (r,s) = (0,0)   a b d e
//              d e f         ->            (0,1)   b c e f     b occurs twice, e four times:
//              g h i                       (1,0)   d e g h     the matrix has R S numbers for each
//                                          (1,1)   e f h i     number of x
//
// Method     processes one image and one group at a time. It writes the whole matrix of columns;
//            then three loops read the matrix. w is stored as a matrix [K, C/G R S] already.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], b [K], y [N,K,P,Q], row-major, f32;
//            columns [C/G R S, P Q]; sums in f32
// Supports   f32; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = the tensors, and the columns, written once and
//            read K/G times; workspace = columns of one image and group; bound by one scalar sum
// Numerics   the C/G R S terms of a sum (in dw: P Q terms) are added one after the other: errors of
//            random sign grow like the root of the number of terms; same bits on each run; exact on
//            integers below 2^24
// Backward   dx = col2im(w^T dy): each element of a column is added to the pixel that it came from;
//            dx is assigned. dw = dy columns^T is added to
// Choices    none
// Source     K. Chellapilla, S. Puri, P. Simard: High Performance Convolutional Neural Networks for
//            Document Processing, 2006, hal inria-00112631
// Read next  reference_cpu.cpp, which sums without a matrix; im2col_gemm_eigen_cpu.cpp, where a
//            library multiplies; im2col_gemm_cpu.cpp, where the matrix never exists as a whole
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

struct Lesson {
  // Calls visit(row, pixel, c, h, column) for each element of the matrix of columns. The element is
  // the pixel x(n, c, h, column), or 0 when that pixel is outside of the image.
  static void for_each_element(const Conv2dProblem& z, Index g, auto visit) {
    for (Index c = 0; c < z.c_per_group(); ++c) {
      for (Index r = 0; r < z.r; ++r) {
        for (Index s = 0; s < z.s; ++s) {
          for (Index p = 0; p < z.p(); ++p) {
            for (Index q = 0; q < z.q(); ++q) {
              visit((c * z.r + r) * z.s + s, p * z.q() + q, g * z.c_per_group() + c,
                    p * z.stride_h - z.pad_top + r * z.dilation_h,
                    q * z.stride_w - z.pad_left + s * z.dilation_w);
            }
          }
        }
      }
    }
  }

  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board) {
    const Index depth = z.c_per_group() * z.r * z.s, pixels = z.p() * z.q();
    const auto columns = board.array("columns", depth, pixels);
    const auto weights = w.as(z.k, depth);        // the same elements as a matrix
    const auto outputs = y.as(z.n, z.k, pixels);  // [N, K, P Q]
    for (Index n = 0; n < z.n; ++n) {
      for (Index g = 0; g < z.groups; ++g) {
        board.step("im2col");
        for_each_element(z, g, [&](Index row, Index pixel, Index c, Index h, Index column) {
          columns(row, pixel) = x.or_zero(n, c, h, column);
        });
        board.step("y = w columns + b");
        for (Index k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
          for (Index pixel = 0; pixel < pixels; ++pixel) {
            auto sum = b.or_zero(k);
            for (Index row = 0; row < depth; ++row) sum += weights(k, row) * columns(row, pixel);
            outputs(n, k, pixel) = sum;
          }
        }
      }
    }
  }

  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    const Index depth = z.c_per_group() * z.r * z.s, pixels = z.p() * z.q();
    const auto columns = board.array("columns", depth, pixels);
    const auto weights = w.as(z.k, depth);
    const auto gradients = dy.as(z.n, z.k, pixels);
    dx.fill(0);
    for (Index n = 0; n < z.n; ++n) {
      for (Index g = 0; g < z.groups; ++g) {
        board.step("columns = w^T dy");
        for (Index row = 0; row < depth; ++row) {
          for (Index pixel = 0; pixel < pixels; ++pixel) {
            auto sum = columns.zero();
            for (Index k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
              sum += weights(k, row) * gradients(n, k, pixel);
            }
            columns(row, pixel) = sum;
          }
        }
        board.step("col2im");  // a pixel of x is in several columns: add the gradients of them all
        for_each_element(z, g, [&](Index row, Index pixel, Index c, Index h, Index column) {
          if (dx.has(n, c, h, column)) dx(n, c, h, column) += columns(row, pixel);
        });
      }
    }
  }

  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    const Index depth = z.c_per_group() * z.r * z.s, pixels = z.p() * z.q();
    const auto columns = board.array("columns", depth, pixels);
    const auto gradients = dy.as(z.n, z.k, pixels);
    const auto sums = dw.as(z.k, depth);
    for (Index n = 0; n < z.n; ++n) {
      for (Index g = 0; g < z.groups; ++g) {
        board.step("im2col");
        for_each_element(z, g, [&](Index row, Index pixel, Index c, Index h, Index column) {
          columns(row, pixel) = x.or_zero(n, c, h, column);
        });
        board.step("dw += dy columns^T");
        for (Index k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
          for (Index row = 0; row < depth; ++row) {
            auto sum = columns.zero();
            for (Index pixel = 0; pixel < pixels; ++pixel) {
              sum += gradients(n, k, pixel) * columns(row, pixel);
            }
            sums(k, row) += sum;
          }
        }
      }
    }
  }
};

const Conv2dAlgorithm kAlgorithm = lesson_algorithm<Lesson>({
    .name = "im2col_gemm_lesson",
    .idea = "lesson: the inputs of each output pixel in one column, then one product of matrices",
    .paper = "Chellapilla, Puri, Simard 2006: High Performance CNNs, hal inria-00112631",
    // Each addition waits for the previous one: 2 FLOPs in 4 cycles, where a core can do 32 in each
    // cycle.
    .cost =
        [](const Conv2dProblem& z, Direction) {
          const double columns = z.nominal_flops() / 2 / static_cast<double>(z.k_per_group());
          return Conv2dCost{
              .flops = z.nominal_flops(),
              .bytes = z.nominal_bytes() + 2 * columns * static_cast<double>(size_of(z.dtype)),
              .issued = z.nominal_flops()};
        },
    .workspace_bytes =
        [](const Conv2dProblem& z, Direction) {
          return static_cast<std::size_t>(z.c_per_group() * z.r * z.s * z.p() * z.q()) *
                 size_of(z.dtype);
        },
    .error_growth = 8,
    .exact_on_integers = true,
});

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson, "n=1,c=2,h=5,w=5,k=3,r=3,s=3")

// SPDX-License-Identifier: Apache-2.0
// direct_lesson_cpu.cpp: computes a convolution one product after another, and shows why all three
// directions are one loop nest.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of w[k,c,r,s] x[n,g C/G + c,h,v],
//            h = p stride_h - pad_top + r dilation_h, v = q stride_w - pad_left + s dilation_w
// Textbook   for each product w[k,c,r,s] x[n,gC/G+c,h,v] that belongs to y[n,k,p,q]:
//              forward            y[n,k,p,q]       += w[k,c,r,s]  * x[n,gC/G+c,h,v]
//              backward_data      dx[n,gC/G+c,h,v] += w[k,c,r,s]  * dy[n,k,p,q]
//              backward_weight    dw[k,c,r,s]      += dy[n,k,p,q] * x[n,gC/G+c,h,v]
//
//              x                w            y          The derivative of a product by x is w,
//              . . . . .        . . .        . o .      and by w it is x. So each product of the
//              . * . . .    x   * . .   ->   . . .      forward pass also passes a gradient from
//              . . . . .        . . .                   y back to x, and one to w.
//              . . . . .
//
// Method     seven loops over (n,k,p,q,c,r,s); each product loads two numbers and adds to a third.
//            No register is reused: x is read K/G R S times, w N P Q times. The faster algorithms
//            compute the same products in an order that keeps accumulators in registers.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], b [K], y [N,K,P,Q], row-major, f32; f32 accumulators
// Supports   f32; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = the three tensors once if all reuse hits the
//            caches; no workspace; bound by loads, border tests and dependent additions
// Numerics   sums one term after another: errors of random sign grow like the square root of the
//            number of terms; same bits on each run; exact on integers below 2^24
// Backward   dx assigned (set to 0, then added to); dw added to
// Choices    none
// Source     V. Dumoulin, F. Visin: A guide to convolution arithmetic for deep learning, 2016,
//            arXiv 1603.07285
// Read next  reference_cpu.cpp, where each element gathers its own sum; direct_cpu.cpp, with a tile
//            of accumulators; im2col_gemm_lesson_cpu.cpp, a matrix product
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// One product of the convolution: the indices of its elements of y, w and x.
struct Product {
  Index n, k, p, q;  // y[n,k,p,q]
  Index c, r, s;     // w[k,c,r,s]
  Index from, h, v;  // x[n,from,h,v]; v runs along the row: w is the kernel
};

// Calls visit(product) for each product whose x is inside the image; in the padding x is 0.
void for_each_product(const Conv2dProblem& z, auto visit) {
  for (Index n = 0; n < z.n; ++n) {
    for (Index k = 0; k < z.k; ++k) {
      const Index g = k / z.k_per_group();  // output channel k reads its group's channels
      for (Index p = 0; p < z.p(); ++p) {
        for (Index q = 0; q < z.q(); ++q) {
          for (Index c = 0; c < z.c_per_group(); ++c) {
            for (Index r = 0; r < z.r; ++r) {
              const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
              if (h < 0 || h >= z.h) continue;
              for (Index s = 0; s < z.s; ++s) {
                const Index v = q * z.stride_w - z.pad_left + s * z.dilation_w;
                if (v < 0 || v >= z.w) continue;
                visit(Product{n, k, p, q, c, r, s, g * z.c_per_group() + c, h, v});
              }
            }
          }
        }
      }
    }
  }
}

struct Lesson {
  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board) {
    board.step("y = b");
    for (Index n = 0; n < z.n; ++n) {
      for (Index k = 0; k < z.k; ++k) y[n][k].fill(b.or_zero(k));
    }
    board.step("y += w x");
    for_each_product(z, [&](const Product& i) {
      y(i.n, i.k, i.p, i.q) += w(i.k, i.c, i.r, i.s) * x(i.n, i.from, i.h, i.v);
    });
  }

  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    board.step("dx = 0");
    dx.fill(0);
    board.step("dx += w dy");
    for_each_product(z, [&](const Product& i) {
      dx(i.n, i.from, i.h, i.v) += w(i.k, i.c, i.r, i.s) * dy(i.n, i.k, i.p, i.q);
    });
  }

  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    board.step("dw += dy x");
    for_each_product(z, [&](const Product& i) {
      dw(i.k, i.c, i.r, i.s) += dy(i.n, i.k, i.p, i.q) * x(i.n, i.from, i.h, i.v);
    });
  }
};

const Conv2dAlgorithm kAlgorithm{
    .name = "direct_lesson",
    .device = DeviceType::cpu,
    .idea = "lesson: one product after the other; three directions, one loop nest",
    .paper = "Dumoulin, Visin 2016: A guide to convolution arithmetic, arXiv 1603.07285",
    .supports = [](const Conv2dProblem& z, Direction) { return lesson_takes(z.dtype); },
    .cost = textbook_cost,
    .workspace_bytes = empty_blackboard,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .auto_ok = false,
    .forward = unwatched<Lesson>,
    .backward_data = unwatched<Lesson>,
    .backward_weight = unwatched<Lesson>,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson,
                        "n=1,c=2,h=5,w=5,k=2,r=3,s=3,pad=1")

// SPDX-License-Identifier: Apache-2.0
// block_sparse_lesson_cpu.cpp: a convolution that loops over a list of the kept weights, instead of
// over all weights.
//
// Formula    y[n,k,p,q] = b[k] + sum over the (k,c,r,s) that a block holds of w[k,c,r,s]
//            x[n, g C/G + c, p stride_h - pad_top + r dilation_h, q stride_w - pad_left +
//            s dilation_w], or 0
// Textbook   for each kept block, for each weight (k,c,r,s) in it, for n, p, q:
//              forward            y[n,k,p,q]       += w[weight] * x[n,gC/G+c,h,v]
//              backward_data      dx[n,gC/G+c,h,v] += w[weight] * dy[n,k,p,q]
//              backward_weight    dw[weight]       += dy[n,k,p,q] * x[n,gC/G+c,h,v]
//
//          w as a matrix, blocks of 4 x 1:      row_begin  0 2 3      where a row's blocks begin
//                (c,r,s) ->                      columns    1 4 2      the column of each block
//             k  . # . . # .                     values     4 numbers of each block
//             |  . # . . # .
//                . # . . # .     A dense loop visits 24 weights, the list names 12. A pruned weight
//                . # . . # .     takes no memory and no time. dw has the elements that w has,
//                . . # . . .     so the gradient of a pruned weight is not computed.
//                ...
//
// Method     The outer loop is over weights, the inner loop over pixels, so each weight is read
//            once. The fast algorithm block_sparse exchanges the two loops: a tile of pixels stays
//            in registers while the inner loop reads the list.
// Shapes     x [N,C,H,W], w blocks [blocks,rows,columns], b [K], y [N,K,P,Q], row-major, f32; f32
//            accumulators
// Supports   f32 with block-sparse weights; every shape of blocks, stride, dilation, padding and
//            number of groups
// Cost       FLOPs = 2 N P Q times the stored weights; bytes = one pass over y (forward) for each
//            weight; no workspace; bound by loads and stores
// Numerics   sums one term after another: errors of random sign grow like the square root of the
//            number of terms; same bits on each run; exact on integers below 2^24
// Backward   dx assigned (set to 0, then added to); dw of the stored blocks assigned or added to
// Choices    none
// Source     compressed rows, of blocks: R. Nishtala et al.: When cache blocking of sparse matrix
//            vector multiply works and why, AAECC 2007, doi 10.1007/s00200-007-0038-9
// Read next  direct_lesson_cpu.cpp, the same loops without a list; block_sparse_cpu.cpp, where
//            tiles of pixels read the list
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// One stored weight: its position in its block, and its indices in the dense w.
struct Weight {
  Index block, row, column;
  Index k, c, r, s;
};

// Calls visit(weight) for each weight of each kept block.
void for_each_weight(const Conv2dProblem& z, const BlockSparseView& w, auto visit) {
  for (Index row = 0; row < z.k / w.block_rows; ++row) {
    for (Index block = w.row_begin[row]; block < w.row_begin[row + 1]; ++block) {
      for (Index i = 0; i < w.block_rows; ++i) {
        for (Index j = 0; j < w.block_columns; ++j) {
          const Index column = w.columns[block] * w.block_columns + j;  // of [K, C/G R S]
          visit(Weight{block, i, j, row * w.block_rows + i, column / (z.r * z.s),
                       column / z.s % z.r, column % z.s});
        }
      }
    }
  }
}

// Calls visit(n, c, h, v, p, q) for all products of one weight that are inside the image.
void for_each_product(const Conv2dProblem& z, const Weight& weight, auto visit) {
  const Index c = weight.k / z.k_per_group() * z.c_per_group() + weight.c;
  for (Index n = 0; n < z.n; ++n) {
    for (Index p = 0; p < z.p(); ++p) {
      const Index h = p * z.stride_h - z.pad_top + weight.r * z.dilation_h;
      if (h < 0 || h >= z.h) continue;
      for (Index q = 0; q < z.q(); ++q) {
        const Index v = q * z.stride_w - z.pad_left + weight.s * z.dilation_w;
        if (v >= 0 && v < z.w) visit(n, c, h, v, p, q);
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
    board.step("y += w x along the list");
    for_each_weight(z, board.blocks(), [&](const Weight& i) {
      const auto weight = w.value(i.block, i.row, i.column, 0);
      for_each_product(z, i, [&](Index n, Index c, Index h, Index v, Index p, Index q) {
        y(n, i.k, p, q) += weight * x(n, c, h, v);
      });
    });
  }

  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    board.step("dx = 0");
    dx.fill(0);
    board.step("dx += w dy along the list");
    for_each_weight(z, board.blocks(), [&](const Weight& i) {
      const auto weight = w.value(i.block, i.row, i.column, 0);
      for_each_product(z, i, [&](Index n, Index c, Index h, Index v, Index p, Index q) {
        dx(n, c, h, v) += weight * dy(n, i.k, p, q);
      });
    });
  }

  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    board.step("dw += dy x of the weights in the list");
    for_each_weight(z, board.blocks(), [&](const Weight& i) {
      for_each_product(z, i, [&](Index n, Index c, Index h, Index v, Index p, Index q) {
        dw(i.block, i.row, i.column, 0) += dy(n, i.k, p, q) * x(n, c, h, v);
      });
    });
  }
};

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const Conv2dSupport type = lesson_takes(z.dtype);
  if (type.yes && z.weight_format.is_dense()) {
    return Conv2dSupport::no("expects block-sparse weights, got dense");
  }
  return type;
}

Conv2dCost cost(const Conv2dProblem& z, Direction) {
  const double weights = static_cast<double>(z.weight_format.stored_elements());
  const double flops = std::max(1.0, 2 * static_cast<double>(z.n * z.p() * z.q()) * weights);
  return {.flops = flops, .bytes = z.nominal_bytes(), .issued = flops};
}

const Conv2dAlgorithm kAlgorithm = lesson_algorithm<Lesson>({
    .name = "block_sparse_lesson",
    .idea = "lesson: a list of the kept weights instead of loops over all weights",
    .paper = "Nishtala et al. 2007: When cache blocking of sparse matrix vector multiply works",
    .supports = supports,
    .cost = cost,
    .error_growth = 8,
    .exact_on_integers = true,
    .takes_sparse_weights = true,
});

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson,
                        "n=1,c=2,h=5,w=5,k=4,r=3,s=3,weights=blocks4x1:6")

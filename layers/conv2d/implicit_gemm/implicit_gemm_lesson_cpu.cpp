// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_lesson_cpu.cpp: the GPU's lesson on one core, block after block and thread after
// thread, so that the reader can watch which element each thread loads into shared memory.
//
// Formula    Y[i,j] = sum over d of A[i,d] B[d,j]; forward: i = k, j = (n,p,q), d = (c,r,s),
//            A = w, B[(c,r,s),(n,p,q)] = x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                                q stride_w - pad_left + s dilation_w], or 0
// Textbook   for each tile of 16 x 16 elements of Y:          # a block; a thread for each element
//              for d0 = 0, 16, ..:
//                a = A[rows of the tile, d0 .. d0 + 16)       # 256 threads load one number each
//                b = B[d0 .. d0 + 16, columns of the tile]    # gathered: the index says which x
//                sum += a[my row] * b[my column]              # 16 products from 2 loads
//
//                         B   [ b ]               Thread (i,j) of a block owns Y[i,j]: it loads
//                             [   ]  16 x 16      a[i,j] and b[i,j] for all, and sums row i of a
//              A              [   ]               times column j of b. Elements beyond the edge
//              [ a ][   ]     [ Y ]  <- a block   of a matrix are 0 in its tile.
//
// Method     Loops replace the blocks and threads of a GPU. Between two barriers the threads of a
//            GPU run in any order; here each thread runs a line of code, then the next thread runs
//            the same line.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], b [K], y [N,K,P,Q], row-major, f32; a, b, sum [16,16];
//            sums in f32
// Supports   f32; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S, rounded up to whole tiles; bytes = x and w once for each
//            16 rows or columns of Y; workspace = three tiles; bound by loads and stores
// Numerics   all terms d are added one after the other: errors of random sign grow like the root of
//            the number of terms; same bits on each run; exact on integers below 2^24
// Backward   dx: i = c, j = (n,h,v), d = (k,r,s), B = dy of the output that tap (r,s) connects, or
//            0; assigned. dw: i = k, j = (c,r,s), d = (n,p,q), A = dy, B = x; added to
// Choices    16 x 16: as on the GPU, where this makes a block of 256 threads
// Source     S. Chetlur et al.: cuDNN: Efficient Primitives for Deep Learning, 2014, arXiv
//            1410.0759
// Read next  implicit_gemm_lesson_cuda.cu, where blocks and threads run in parallel;
//            im2col_gemm_lesson_cpu.cpp, the same product with a stored matrix
#include "framework/int_math.h"
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

constexpr Index kTile = 16;

struct Size {
  Index groups, rows, columns, depth;  // of each group's product
};

void for_each_thread(auto visit) {
  for (Index i = 0; i < kTile; ++i) {
    for (Index j = 0; j < kTile; ++j) visit(i, j);
  }
}

struct Lesson {
  // a_at(g, row, d) and b_at(g, d, column) read an element of A and of B; put(g, row, column, sum)
  // writes an element of Y.
  static void product(const Size& size, auto a_at, auto b_at, auto put, auto& board) {
    const auto a = board.shared_array("a", kTile, kTile);  // [row, d]
    const auto b = board.shared_array("b", kTile, kTile);  // [d, column]
    const auto sum = board.registers("sum", kTile, kTile);
    const Index down = ceil_div(size.rows, kTile), right = ceil_div(size.columns, kTile);
    for (Index block = 0; block < size.groups * down * right; ++block) {
      const Index g = block / right / down;
      const Index top = block / right % down * kTile, left = block % right * kTile;
      board.step("a block: sum = 0");
      sum.fill(0);
      for (Index d = 0; d < size.depth; d += kTile) {
        board.step("each thread loads a number of A and one of B");
        for_each_thread([&](Index i, Index j) {
          const bool in_a = top + i < size.rows && d + j < size.depth;
          const bool in_b = d + i < size.depth && left + j < size.columns;
          a(i, j) = in_a ? a_at(g, top + i, d + j) : a.zero();
          b(i, j) = in_b ? b_at(g, d + i, left + j) : b.zero();
        });
        board.step("sum += a b");  // on a GPU: a barrier before and after this step
        for (Index t = 0; t < kTile; ++t) {
          for_each_thread([&](Index i, Index j) { sum(i, j) += a(i, t) * b(t, j); });
        }
      }
      board.step("each thread stores its sum");
      for_each_thread([&](Index i, Index j) {
        const bool inside = top + i < size.rows && left + j < size.columns;
        if (inside) put(g, top + i, left + j, sum.value(i, j));
      });
    }
  }

  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board) {
    const Index depth = z.c_per_group() * z.r * z.s, pixels = z.p() * z.q();
    product(
        {z.groups, z.k_per_group(), z.n * pixels, depth},
        [&](Index g, Index k, Index d) {
          return w.as(z.k, depth).value(g * z.k_per_group() + k, d);
        },
        [&](Index g, Index d, Index pixel) { return image_at(z, x, g, d, pixel); },
        [&](Index g, Index row, Index pixel, auto sum) {
          const Index k = g * z.k_per_group() + row;
          y.as(z.n, z.k, pixels)(pixel / pixels, k, pixel % pixels) = sum + b.or_zero(k);
        },
        board);
  }

  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    const Index depth = z.k_per_group(), pixels = z.h * z.w;
    product(
        {z.groups, z.c_per_group(), z.n * pixels, depth * z.r * z.s},
        [&](Index g, Index c, Index d) {
          return w.value(g * depth + d / z.s / z.r, c, d / z.s % z.r, d % z.s);
        },
        [&](Index g, Index d, Index pixel) {  // the stride skips rows and columns of dx
          const Index h = pixel / z.w % z.h + z.pad_top - d / z.s % z.r * z.dilation_h;
          const Index v = pixel % z.w + z.pad_left - d % z.s * z.dilation_w;
          const bool meets = h >= 0 && v >= 0 && h % z.stride_h == 0 && v % z.stride_w == 0;
          const Index p = meets ? h / z.stride_h : -1, q = meets ? v / z.stride_w : -1;
          return dy.or_zero(pixel / pixels, g * depth + d / z.s / z.r, p, q);
        },
        [&](Index g, Index c, Index pixel, auto sum) {
          const auto planes = dx.as(z.n, z.c, pixels);
          planes(pixel / pixels, g * z.c_per_group() + c, pixel % pixels) = sum;
        },
        board);
  }

  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    const Index taps = z.c_per_group() * z.r * z.s, pixels = z.p() * z.q();
    product(
        {z.groups, z.k_per_group(), taps, z.n * pixels},
        [&](Index g, Index k, Index pixel) {
          const auto planes = dy.as(z.n, z.k, pixels);
          return planes.value(pixel / pixels, g * z.k_per_group() + k, pixel % pixels);
        },
        [&](Index g, Index pixel, Index tap) { return image_at(z, x, g, tap, pixel); },
        [&](Index g, Index k, Index tap, auto sum) {
          dw.as(z.k, taps)(g * z.k_per_group() + k, tap) += sum;
        },
        board);
  }

  // Returns x at tap (c,r,s) of output pixel (n,p,q): an element of the matrix that im2col writes.
  static auto image_at(const Conv2dProblem& z, auto x, Index g, Index tap, Index pixel) {
    const Index c = tap / z.s / z.r, r = tap / z.s % z.r, s = tap % z.s;
    const Index n = pixel / z.q() / z.p(), p = pixel / z.q() % z.p(), q = pixel % z.q();
    return x.or_zero(n, g * z.c_per_group() + c, p * z.stride_h - z.pad_top + r * z.dilation_h,
                     q * z.stride_w - z.pad_left + s * z.dilation_w);
  }
};

const Conv2dAlgorithm kAlgorithm = lesson_algorithm<Lesson>({
    .name = "implicit_gemm_lesson",
    .idea = "lesson: the blocks and threads of a GPU with tiles of 16 x 16, simulated in turns",
    .paper = "Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759",
    .cost = textbook_cost,
    .workspace_bytes =
        [](const Conv2dProblem& z, Direction) {
          return static_cast<std::size_t>(3 * kTile * kTile) * size_of(z.dtype);
        },
    .error_growth = 8,
    .exact_on_integers = true,
});

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson,
                        "n=1,c=4,h=4,w=4,k=8,r=2,s=2,pad=1x0x1x0")

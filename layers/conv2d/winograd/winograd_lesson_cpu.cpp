// SPDX-License-Identifier: Apache-2.0
// winograd_lesson_cpu.cpp: 3x3 convolution by Winograd's F(2x2,3x3), its matrices written out: 4
// outputs of a channel pair from 16 multiplications, where the textbook takes 36.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T d[c] B) ] A + b[k], tile by tile: 2x2
//            outputs from d, the 4x4 inputs around them, 0 outside; "." is element by element
// Textbook   for each k, c:  U[k,c] = G w[k,c] G^T                               # 3x3 -> 4x4
//            for each tile:
//              for each c:   V[c] = B^T d[c] B                                   # 4x4 -> 4x4
//              for each k:   M = sum over c of U[k,c] . V[c]                     # 16 products
//                            y_tile = A^T M A + b[k]                             # 4x4 -> 2x2
//            In one dimension, two outputs from 4 products instead of 6:
//              y0 = d0 g0 + d1 g1 + d2 g2 = m1 + m2 + m3    m1 = (d0 - d2) g0
//              y1 = d1 g0 + d2 g1 + d3 g2 = m2 - m3 - m4    m2 = (d1 + d2) (g0 + g1 + g2) / 2
//                                     m4 = (d1 - d3) g2     m3 = (d2 - d1) (g0 - g1 + g2) / 2
// Method     U once; then tile after tile. B^T d B is computed once for all K kernels, A^T M A once
//            for all C channels: with many of both, products dominate.
// Shapes     x [N,C,H,W], w [K,C/G,3,3], b [K], y [N,K,P,Q], row-major, f32, sums too
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding and number of groups
// Cost       FLOPs = 2 (16 K C/G + 256 C + 64 K) tiles + 2 * 144 K C/G: products, V, y, U; bytes =
//            the tensors once; workspace = U, V; bound by scalar sums
// Numerics   ||A^T|| ||G|| ||B^T|| = 3 * 1.5 * 2 in one dimension at worst, squared in two; errors
//            are near those of direct sums. Same bits on each run. Not promised on integers.
// Backward   dx = the same with dy, padding 2 - pad, w flipped and transposed; assigned.
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T d B)] G, added to
// Choices    tiles of 2x2: the points 0, 1, -1, infinity keep all constants at 1 and 1/2
// Source     A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015, arXiv
//            1509.09308, section 4.1; S. Winograd: Arithmetic Complexity of Computations, 1980
// Read next  winograd_matrices.h (their origin), winograd_cpu.cpp (points as products)
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {
using Index = std::int64_t;

constexpr float kBt[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
constexpr float kG[4][3] = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}};
constexpr float kAt[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
// Used in backward: the columns of G in reverse order flip the kernel; A and G^T turn dy into dw.
constexpr float kGRotated[4][3] = {{0, 0, 1}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {1, 0, 0}};
constexpr float kA[4][2] = {{1, 0}, {1, 1}, {1, -1}, {0, -1}};
constexpr float kGt[3][4] = {{1, 0.5f, 0.5f, 0}, {0, 0.5f, -0.5f, 0}, {0, 0.5f, 0.5f, 1}};

// Computes out = m in m^T: columns and rows of `in` go through the same matrix.
template <int kRows, int kColumns>
void transform(const float (&m)[kRows][kColumns], auto in, auto out) {
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kRows; ++j) {
      auto sum = out.zero();
      for (int a = 0; a < kColumns; ++a) {
        for (int b = 0; b < kColumns; ++b) sum += m[i][a] * in(a, b) * m[j][b];
      }
      out(i, j) = sum;
    }
  }
}

// Copies into `tile` the part of `plane` from row `top` and column `left` on, 0 outside.
void cut(auto plane, Index top, Index left, auto tile) {
  for (Index i = 0; i < tile.size(0); ++i) {
    for (Index j = 0; j < tile.size(1); ++j) tile(i, j) = plane.or_zero(top + i, left + j);
  }
}

struct Lesson {
  // Computes out = b + in * U, U [channels of out, channels of a group of in, 16 points].
  static void convolve(Index groups, auto in, auto u, auto b, auto out, Index pad_top,
                       Index pad_left, auto& board) {
    const Index channels = in.size(1), depth = channels / groups, kernels = out.size(1);
    const auto v = board.array("V", channels, 4, 4);
    const auto d = board.array("d", 4, 4), m = board.array("M", 4, 4);
    const auto tile = board.array("tile", 2, 2);
    for (Index n = 0; n < out.size(0); ++n) {
      for (Index p = 0; p < out.size(2); p += 2) {
        for (Index q = 0; q < out.size(3); q += 2) {
          board.step("V = B^T d B");
          for (Index c = 0; c < channels; ++c) {
            cut(in[n][c], p - pad_top, q - pad_left, d);
            transform(kBt, d, v[c]);
          }
          for (Index k = 0; k < kernels; ++k) {
            board.step("M = sum of U . V");
            const auto group_v = v.as(groups, depth, 16)[k / (kernels / groups)];
            for (Index point = 0; point < 16; ++point) {
              auto sum = out.zero();
              for (Index c = 0; c < depth; ++c) sum += u(k, c, point) * group_v(c, point);
              m.as(16)(point) = sum;
            }
            board.step("y = A^T M A + b");
            transform(kAt, m, tile);
            const auto plane = out[n][k];
            for (Index i = p; i < p + 2; ++i) {
              for (Index j = q; j < q + 2; ++j) {  // beyond an odd last row or column: dropped
                if (plane.has(i, j)) plane(i, j) = tile(i - p, j - q) + b.or_zero(k);
              }
            }
          }
        }
      }
    }
  }

  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board) {
    const auto u = board.array("U", z.k, z.c_per_group(), 4, 4);
    board.step("U = G w G^T");
    for (Index k = 0; k < z.k; ++k) {
      for (Index c = 0; c < z.c_per_group(); ++c) transform(kG, w[k][c], u[k][c]);
    }
    convolve(z.groups, x, u.as(z.k, z.c_per_group(), 16), b, y, z.pad_top, z.pad_left, board);
  }

  // dx[h] = sum over r of dy[h + pad - r] w[r]: with r' = 2 - r, a forward pass of padding 2 - pad.
  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    const Index depth = z.k_per_group();
    const auto u = board.array("U", z.c, depth, 4, 4);
    board.step("U = G w G^T");
    for (Index c = 0; c < z.c; ++c) {
      const auto kernels = w.as(z.groups, depth, z.c_per_group(), 9)[c / z.c_per_group()];
      for (Index k = 0; k < depth; ++k) {
        transform(kGRotated, kernels[k][c % z.c_per_group()].as(3, 3), u[c][k]);
      }
    }
    convolve(z.groups, dy, u.as(z.c, depth, 16), w.as(0), dx, 2 - z.pad_top, 2 - z.pad_left, board);
  }

  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    const auto m = board.array("M", z.k, z.c_per_group(), 16);
    const auto v = board.array("V", z.c, 4, 4);
    const auto d = board.array("d", 4, 4);
    const auto tile = board.array("tile", 2, 2);
    const auto e = board.array("E", 4, 4), taps = board.array("taps", 3, 3);
    const Index depth = z.c_per_group() * 16;  // the points of all channels of a group
    m.fill(0);
    for (Index n = 0; n < z.n; ++n) {
      for (Index p = 0; p < z.p(); p += 2) {
        for (Index q = 0; q < z.q(); q += 2) {
          board.step("V = B^T d B");
          for (Index c = 0; c < z.c; ++c) {
            cut(x[n][c], p - z.pad_top, q - z.pad_left, d);
            transform(kBt, d, v[c]);
          }
          board.step("M += (A dy A^T) . V");
          for (Index k = 0; k < z.k; ++k) {
            cut(dy[n][k], p, q, tile);
            transform(kA, tile, e);
            const auto sums = m.as(z.k, depth)[k],
                       points = v.as(z.groups, depth)[k / z.k_per_group()];
            for (Index i = 0; i < depth; ++i) sums(i) += e.as(16)(i % 16) * points(i);
          }
        }
      }
    }
    board.step("dw += G^T M G");
    const Index planes = z.k * z.c_per_group();
    for (Index i = 0; i < planes; ++i) {
      transform(kGt, m.as(planes, 4, 4)[i], taps);
      for (Index tap = 0; tap < 9; ++tap) dw.as(planes, 9)(i, tap) += taps.as(9)(tap);
    }
  }
};

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const bool dense = z.stride_h == 1 && z.stride_w == 1 && z.dilation_h == 1 && z.dilation_w == 1;
  if (z.dtype != DType::f32) return lesson_takes(z.dtype);
  if (dense && z.r == 3 && z.s == 3) return {};
  return Conv2dSupport::no(
      cat("expects a kernel of 3x3 with stride 1 and dilation 1, got ", z.text()));
}

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_lesson",
    .device = DeviceType::cpu,
    .idea = "lesson: F(2x2,3x3), 4 outputs from 16 products in place of 36, matrices written out",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports,
    .cost =
        [](const Conv2dProblem& z, Direction d) {
          const Index w = z.k * z.c_per_group(), in = d == Direction::backward_data ? z.k : z.c;
          const Index each = 16 * w + 64 * (z.c + z.k) + 192 * in;
          const auto tiles = static_cast<double>(z.n * ((z.p() + 1) / 2) * ((z.q() + 1) / 2));
          const double fmas = tiles * static_cast<double>(each) + static_cast<double>(144 * w);
          return Conv2dCost{.flops = 2 * fmas, .bytes = z.nominal_bytes(), .issued = 2 * fmas};
        },
    .workspace_bytes =
        [](const Conv2dProblem& z, Direction) {  // U or M; V; memory for the small tiles
          return 64 * static_cast<std::size_t>(z.k * z.c_per_group() + std::max(z.c, z.k) + 4);
        },
    .error_growth = 16,
    .one_chain = true,
    .auto_ok = false,
    .forward = unwatched<Lesson>,
    .backward_data = unwatched<Lesson>,
    .backward_weight = unwatched<Lesson>,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson, "n=1,c=2,h=6,w=6,k=2,r=3,s=3")

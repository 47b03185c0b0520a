// SPDX-License-Identifier: Apache-2.0
// winograd_lesson_cuda.cu: the simplest version of Winograd's F(2x2,3x3) on a GPU: a thread
// computes one tile of 2x2 outputs of one channel, from reading x to writing y.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T d[c] B) ] A + b[k], tile by tile: 2x2
//            outputs from d, the 4x4 inputs around them, 0 outside; "." is element by element
// Textbook   U[k,c] = G w[k,c] G^T                          # a thread for each (k,c), once
//            for each image, k and tile:                    # a thread
//              M = sum over c of U[k,c] . (B^T d[c] B)      # 16 accumulators in registers
//              y_tile = A^T M A + b[k]
// Method     nothing is shared: the K threads of a tile each transform the same d, which takes 32
//            additions for 16 products. Neighbouring threads have neighbouring tiles, so that a
//            warp reads whole cache lines of x and the same U. backward_weight: a thread for each
//            (k,c) walks over all tiles of all images.
// Shapes     x [N,C,H,W], w [K,C/G,3,3], b [K], y [N,K,P,Q], row-major, f32; U [K C/G,16]; sums f32
// Supports   f32 (tf32 is computed as f32); kernel 3x3, stride 1, dilation 1; every padding and
//            number of groups
// Cost       FLOPs = 2 * 16 tiles K C/G and 32 additions for each of the K C/G tiles transformed;
//            bytes = x R S/2 times, mostly from L1; workspace = U. Bound by the transforms
// Numerics   ||A^T|| ||G|| ||B^T|| = 3 * 1.5 * 2 in one dimension at worst, squared in two; errors
//            are near those of direct sums. Same bits on each run. Not promised on integers.
// Backward   dx = the same with dy, padding 2 - pad, w flipped and transposed; assigned.
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T d B)] G, assigned or added to
// Choices    16 accumulators, 16 numbers of d and 16 of B^T d B stay in a thread's registers
// Source     A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015, arXiv
//            1509.09308, section 4.1
// Read next  winograd_lesson_cpu.cpp, with the matrices in one dimension; winograd_cuda.cu,
//            where tiles and kernels are transformed once and each point is a matrix product
#include "layers/conv2d/shared/lesson.cuh"

namespace convscope {
namespace {

using namespace lesson;  // NOLINT(google-build-using-namespace): sizes and views of all lessons

// Computes out = m in m^T: columns and rows of `in` go through the same matrix.
template <int kRows, int kColumns>
__device__ void transform(const float (&m)[kRows][kColumns], const float (&in)[kColumns][kColumns],
                          float (&out)[kRows][kRows]) {
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kRows; ++j) {
      out[i][j] = 0;
      for (int a = 0; a < kColumns; ++a) {
        for (int b = 0; b < kColumns; ++b) out[i][j] += m[i][a] * in[a][b] * m[j][b];
      }
    }
  }
}

// Computes V = B^T d B of the 4x4 numbers of a plane from (top, left) on, 0 outside.
__device__ void transform_tile(const In plane, Index top, Index left, float (&v)[4][4]) {
  const float bt[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
  float d[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) d[i][j] = plane.or_zero(top + i, left + j);
  }
  transform(bt, d, v);
}

// Computes U [channels of out, channels of a group of in, 16]. For dx the kernel is flipped, and
// the channels of x are those of `out`.
__global__ void kernel_kernel(const ConvShape z, const In w, bool for_dx, float* u) {
  const float g[4][3] = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}};
  for (Index i = global_thread(); i < z.k * z.c_group; i += global_threads()) {
    const Index k = i / z.c_group, c = i % z.c_group, group = k / z.k_group;
    const Index to = for_dx ? (group * z.c_group + c) * z.k_group + k % z.k_group : i;
    float taps[3][3], points[4][4];
    for (int r = 0; r < 3; ++r) {
      for (int s = 0; s < 3; ++s) taps[r][s] = for_dx ? w(k, c, 2 - r, 2 - s) : w(k, c, r, s);
    }
    transform(g, taps, points);
    for (int point = 0; point < 16; ++point) u[to * 16 + point] = points[point / 4][point % 4];
  }
}

// Computes out [N,Out,..] = bias + in [N,G depth,..] * U; a thread for each tile of `out`.
__global__ void tile_kernel(Index groups, const In in, const float* u, const In bias, const Out out,
                            Index pad_top, Index pad_left) {
  const float at[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
  const Index down = (out.size(2) + 1) / 2, across = (out.size(3) + 1) / 2;
  const Index depth = in.size(1) / groups, group_channels = out.size(1) / groups;
  const Index count = out.size(0) * out.size(1) * down * across;
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index q = i % across * 2, p = i / across % down * 2;
    const Index k = i / across / down % out.size(1), n = i / across / down / out.size(1);
    float m[4][4] = {};
    for (Index c = 0; c < depth; ++c) {
      float v[4][4];
      transform_tile(in[n][k / group_channels * depth + c], p - pad_top, q - pad_left, v);
      for (int point = 0; point < 16; ++point) {
        m[point / 4][point % 4] += u[(k * depth + c) * 16 + point] * v[point / 4][point % 4];
      }
    }
    float tile[2][2];
    transform(at, m, tile);
    for (int j = 0; j < 4; ++j) {  // outputs beyond an odd last row or column are dropped
      if (!out.has(n, k, p + j / 2, q + j % 2)) continue;
      out(n, k, p + j / 2, q + j % 2) = tile[j / 2][j % 2] + bias.or_zero(k);
    }
  }
}

__global__ void weight_kernel(const ConvShape z, const In x, const In dy, bool accumulate,
                              const Out dw) {
  const float a[4][2] = {{1, 0}, {1, 1}, {1, -1}, {0, -1}};
  const float gt[3][4] = {{1, 0.5f, 0.5f, 0}, {0, 0.5f, -0.5f, 0}, {0, 0.5f, 0.5f, 1}};
  for (Index i = global_thread(); i < z.k * z.c_group; i += global_threads()) {
    const Index k = i / z.c_group, c = i % z.c_group;
    float m[4][4] = {};
    for (Index n = 0; n < z.n; ++n) {
      const In plane = x[n][k / z.k_group * z.c_group + c], gradients = dy[n][k];
      for (Index p = 0; p < z.p; p += 2) {
        for (Index q = 0; q < z.q; q += 2) {
          float v[4][4], e[4][4], d[2][2];
          transform_tile(plane, p - z.pad_top, q - z.pad_left, v);
          for (int j = 0; j < 4; ++j) d[j / 2][j % 2] = gradients.or_zero(p + j / 2, q + j % 2);
          transform(a, d, e);
          for (int j = 0; j < 16; ++j) m[j / 4][j % 4] += e[j / 4][j % 4] * v[j / 4][j % 4];
        }
      }
    }
    float taps[3][3];
    transform(gt, m, taps);
    for (int r = 0; r < 3; ++r) {
      for (int s = 0; s < 3; ++s) {
        dw(k, c, r, s) = accumulate ? dw(k, c, r, s) + taps[r][s] : taps[r][s];
      }
    }
  }
}

// Runs forward or backward_data: transforms the weights to U, then computes the tiles.
void convolve(const ConvShape& z, bool for_dx, const In in, const In w, const In bias,
              const Out out, void* workspace) {
  auto* const u = static_cast<float*>(workspace);
  launch(kernel_kernel, grid_for(z.k * z.c_group), z, w, for_dx, u);
  const Index tiles = out.size(0) * out.size(1) * ((out.size(2) + 1) / 2) * ((out.size(3) + 1) / 2);
  launch(tile_kernel, grid_for(tiles), z.groups, in, u, bias, out,
         for_dx ? 2 - z.pad_top : z.pad_top, for_dx ? 2 - z.pad_left : z.pad_left);
}

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.dtype != DType::f32) return takes(z.dtype);
  const bool dense = z.stride_h == 1 && z.stride_w == 1 && z.dilation_h == 1 && z.dilation_w == 1;
  if (dense && z.r == 3 && z.s == 3) return {};
  return Conv2dSupport::no(
      cat("expects a kernel of 3x3 with stride 1 and dilation 1, got ", z.text()));
}

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_lesson",
    .device = DeviceType::cuda,
    .idea = "lesson: F(2x2,3x3), a thread for each tile of 2x2 outputs of one channel",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports,
    .cost =
        [](const Conv2dProblem& z, Direction direction) {
          // A tile has 16 FMAs and 32 additions for 36 FMAs of the textbook. The lesson multiplies
          // with the whole matrices: 256 products of three numbers for a tile of x, 64 for dy.
          const double textbook = z.nominal_flops();
          const bool weight = direction == Direction::backward_weight;
          return Conv2dCost{.flops = textbook * 32 / 36,
                            .bytes = z.nominal_bytes(),
                            .issued = textbook * (16 + 512 + (weight ? 128 : 0)) / 36,
                            .cached = textbook * 4 * 32 / 72,
                            .launches = weight ? 1.0 : 2.0};
        },
    .workspace_bytes =
        [](const Conv2dProblem& z, Direction direction) {
          return direction == Direction::backward_weight
                     ? 0
                     : static_cast<std::size_t>(z.k * z.c_per_group() * 16) * sizeof(float);
        },
    .error_growth = 16,
    .one_chain = true,
    .auto_ok = false,
    .forward =
        [](const Conv2dForwardArgs& a) {
          const ConvShape z(a.problem);
          convolve(z, false, z.x(a.x), z.weights(a.w), z.bias(a.b), z.y(a.y), a.workspace);
        },
    .backward_data =
        [](const Conv2dBackwardDataArgs& a) {
          const ConvShape z(a.problem);
          convolve(z, true, z.y(a.dy), z.weights(a.w), z.bias(nullptr), z.x(a.dx), a.workspace);
        },
    .backward_weight =
        [](const Conv2dBackwardWeightArgs& a) {
          const ConvShape z(a.problem);
          launch(weight_kernel, grid_for(z.k * z.c_group), z, z.x(a.x), z.y(a.dy), a.accumulate,
                 z.weights(a.dw));
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)

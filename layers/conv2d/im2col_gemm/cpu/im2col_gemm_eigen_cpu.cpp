// SPDX-License-Identifier: Apache-2.0
// im2col_gemm_eigen_cpu.cpp: im2col_gemm with Eigen's matrix product, the shortest complete
// convolution.
//
// Formula    y[k,(n,p,q)] = b[k] + sum over (c,r,s) of w[k,(c,r,s)] col[(c,r,s),(n,p,q)],
//            col[(c,r,s),(n,p,q)] = x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                                   q stride_w - pad_left + s dilation_w], or 0
// Textbook   for each image: col = im2col(x)      # [C/G R S, P Q]
//                            y = w * col + b      # [K/G, P Q]
//            dcol = w^T * dy; dx = col2im(dcol);  dw += dy * col^T
// Method     as the textbook, but only for a panel of pixels (forward, backward_weight) or a few
//            channels (backward_data) at a time, so the columns stay in the cache. Threads take
//            images, or blocks of kernel rows in backward_weight.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q], f32 row-major, any alignment; sums in f32
// Supports   f32; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = the three tensors once; workspace = one panel
//            for each thread (Eigen packs it once more). Compute-bound, but Eigen is compiled for
//            baseline x86-64 here: SSE2, four lanes and no FMA.
// Numerics   Eigen sums each element in f32, in chains whose length depends on its cache sizes.
//            With the same terms, the error was 259 eps on one machine and 82 eps on another. So
//            the algorithm does not promise short chains (`one_chain`). Its error is 8 sqrt(terms /
//            160) eps where roundings have random signs (measured: 11.7 eps for 11,200 terms), and
//            at most terms / 2 eps on any data. Same bits on each run and for any number of
//            threads; exact on integers below 2^24
// Backward   dx = col2im(w^T dy), assigned; dw = dy col^T, assigned or added to
// Choices    kPanelFloats 64 Ki: 256 KiB of columns, a quarter of a 1 MiB L2
// Source     K. Chellapilla, S. Puri, P. Simard: High Performance Convolutional Neural Networks for
//            Document Processing, 2006, hal inria-00112631; Eigen 3, https://eigen.tuxfamily.org
// Read next  reference_cpu.cpp, without a matrix; im2col_gemm_cpu.cpp, with a custom product
#include <algorithm>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "framework/ops/gemm/gemm.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/shared/columns.h"

namespace convscope {
namespace {

using Index = std::int64_t;

constexpr Index kPanelFloats = 64 * 1024;

// Shape of one group, and how many pixels, channels or kernel rows fill a panel.
struct EigenTiling {
  explicit EigenTiling(const Conv2dProblem& z)
      : channels(z.c_per_group()),
        kernels(z.k_per_group()),
        taps(z.r * z.s),
        depth(channels * taps),
        plane(z.p() * z.q()),
        pixels(std::clamp<Index>(kPanelFloats / depth, 16, plane < 16 ? 16 : plane)),
        channels_at_once(std::clamp<Index>(kPanelFloats / (taps * plane), 1, channels)),
        rows_at_once(std::clamp<Index>(64 / z.s, 1, channels * z.r)),
        row_pixels(std::min<Index>(plane, 1024)) {}

  Index channels, kernels, taps, depth, plane;
  Index pixels;            // forward: columns [C/G R S, pixels]
  Index channels_at_once;  // backward_data: columns [channels_at_once R S, plane]
  Index rows_at_once;      // backward_weight: columns [rows_at_once S, row_pixels]
  Index row_pixels;

  Index panel_floats(Direction direction, Index s) const {
    if (direction == Direction::forward) return depth * pixels;
    if (direction == Direction::backward_data) return channels_at_once * taps * plane;
    return rows_at_once * s * row_pixels;
  }
};

std::size_t panel_bytes(const Conv2dProblem& problem, Direction direction) {
  const auto floats =
      static_cast<std::size_t>(EigenTiling(problem).panel_floats(direction, problem.s));
  return ScratchArena::round_up(floats * sizeof(float));
}

float* panel_of(void* workspace, const Conv2dProblem& problem, Direction direction, int thread) {
  return static_cast<float*>(workspace) +
         static_cast<std::size_t>(thread) * (panel_bytes(problem, direction) / sizeof(float));
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const EigenTiling z(problem);
  const ColumnMap map(problem);
  const auto* const b = static_cast<const float*>(args.b);
  parallel_chunks(problem.n * problem.groups, [&](Index image, int thread) {  // n G + g
    const Index g = image % problem.groups;
    const float* x = static_cast<const float*>(args.x) + g * z.channels * map.channel_step;
    const float* w = static_cast<const float*>(args.w) + g * z.kernels * z.depth;
    float* y = static_cast<float*>(args.y) + image * z.kernels * z.plane;  // [K/G, P Q]
    float* columns = panel_of(args.workspace, problem, Direction::forward, thread);
    for (Index k = 0; k < z.kernels; ++k) {
      std::fill_n(y + k * z.plane, z.plane, b == nullptr ? 0.0f : b[g * z.kernels + k]);
    }
    for (Index pixel = 0; pixel < z.plane; pixel += z.pixels) {
      const Index count = std::min(z.pixels, z.plane - pixel);
      column_kernels.get().pack(map, x, image / problem.groups * z.plane + pixel, count, 0,
                                z.channels * problem.r, columns, z.pixels);
      gemm_eigen(false, false, z.kernels, count, z.depth, w, z.depth, columns, z.pixels, y + pixel,
                 z.plane, /*accumulate=*/true);
    }
  });
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const EigenTiling z(problem);
  const ColumnMap map(problem);
  parallel_chunks(problem.n * problem.groups, [&](Index image, int thread) {  // n G + g
    const float* w =
        static_cast<const float*>(args.w) + image % problem.groups * z.kernels * z.depth;
    const float* dy = static_cast<const float*>(args.dy) + image * z.kernels * z.plane;
    float* dx = static_cast<float*>(args.dx) + image * z.channels * map.channel_step;
    float* columns = panel_of(args.workspace, problem, Direction::backward_data, thread);
    for (Index c = 0; c < z.channels; c += z.channels_at_once) {
      const Index count = std::min(z.channels_at_once, z.channels - c);
      gemm_eigen(true, false, count * z.taps, z.plane, z.kernels, w + c * z.taps, z.depth, dy,
                 z.plane, columns, z.plane, /*accumulate=*/false);
      column_kernels.get().unpack(map, columns, z.plane, count, dx + c * map.channel_step);
    }
  });
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const EigenTiling z(problem);
  const ColumnMap map(problem);
  const Index rows = z.channels * problem.r;
  const Index blocks = (rows + z.rows_at_once - 1) / z.rows_at_once;
  parallel_chunks(problem.groups * blocks, [&](Index chunk, int thread) {
    const Index g = chunk / blocks;
    const Index row = chunk % blocks * z.rows_at_once;
    const Index row_end = std::min(row + z.rows_at_once, rows);
    const float* x = static_cast<const float*>(args.x) + g * z.channels * map.channel_step;
    float* dw = static_cast<float*>(args.dw) + g * z.kernels * z.depth + row * problem.s;
    float* columns = panel_of(args.workspace, problem, Direction::backward_weight, thread);
    if (!args.accumulate) {
      for (Index k = 0; k < z.kernels; ++k) {
        std::fill_n(dw + k * z.depth, (row_end - row) * problem.s, 0.0f);
      }
    }
    for (Index n = 0; n < problem.n; ++n) {
      const float* dy =
          static_cast<const float*>(args.dy) + (n * problem.groups + g) * z.kernels * z.plane;
      for (Index pixel = 0; pixel < z.plane; pixel += z.row_pixels) {
        const Index count = std::min(z.row_pixels, z.plane - pixel);
        column_kernels.get().pack(map, x, n * z.plane + pixel, count, row, row_end, columns,
                                  z.row_pixels);
        gemm_eigen(false, true, z.kernels, (row_end - row) * problem.s, count, dy + pixel, z.plane,
                   columns, z.row_pixels, dw, z.depth, /*accumulate=*/true);
      }
    }
  });
}

Conv2dSupport supports(const Conv2dProblem& problem, Direction) {
  if (problem.dtype == DType::f32) return {};
  return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(problem.dtype)));
}

// Eigen packs both operands of each product, and computes tiles of four rows and columns.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const EigenTiling t(z);
  const double columns = number(z.n * z.p() * z.q()) * number(z.c * z.r * z.s);
  const double images = number(z.n * z.groups);
  const double weights = number(z.w_shape().numel());
  Conv2dCost out{.flops = z.nominal_flops(),
                 .bytes = z.nominal_bytes(),
                 .copied = columns,
                 .transposed = columns,
                 .listed = number(z.n * z.p() * z.c * z.r * z.s),
                 .chunks = images,
                 .schedule = z.stride_w > 1 ? "strided" : ""};
  const auto product = [](Index rows, Index columns_of_product, Index terms) {
    return 2 * number(round_up(rows, 4)) * number(round_up(columns_of_product, 4)) * number(terms);
  };
  switch (direction) {
    case Direction::forward: {
      const double products = images * number(ceil_div(t.plane, t.pixels));
      out.tiles = products;
      out.issued = images * product(t.kernels, t.plane, t.depth);
      out.transposed += products / number(z.groups) * weights;
      break;
    }
    case Direction::backward_data:
      out.tiles = images * number(ceil_div(t.channels, t.channels_at_once));
      out.transposed = number(z.n) * weights +
                       out.tiles / number(z.groups) * number(z.y_shape().numel()) / number(z.n);
      out.issued = images * product(t.depth, t.plane, t.kernels);
      break;
    case Direction::backward_weight: {
      const double blocks = number(ceil_div(t.channels * z.r, t.rows_at_once));
      out.chunks = number(z.groups) * blocks;
      out.tiles = images * blocks * number(ceil_div(t.plane, t.row_pixels));
      out.issued = images * blocks * product(t.kernels, t.rows_at_once * z.s, t.plane);
      out.transposed += blocks * number(z.y_shape().numel());
      out.cached = out.tiles / blocks / number(z.groups) * weights * 2 * sizeof(float);
      break;
    }
  }
  return out;
}

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  return static_cast<std::size_t>(num_threads()) * panel_bytes(problem, direction);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "im2col_gemm_eigen",
    .device = DeviceType::cpu,
    .idea =
        "columns of inputs times weights by Eigen's matrix product (SSE2): short, for comparison",
    .paper = "Chellapilla, Puri, Simard 2006: High Performance CNNs for Document Processing",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)

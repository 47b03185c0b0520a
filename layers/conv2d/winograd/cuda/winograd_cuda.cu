// SPDX-License-Identifier: Apache-2.0
// winograd_cuda.cu: 3x3 convolution by Winograd's F(M x M, 3x3) for M = 2 and 4: 4 outputs of a
// channel pair from 16 multiplications instead of 36, or 16 from 36 instead of 144, through
// transforms of inputs, kernels and outputs.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: M x M
//            outputs from the T x T inputs around them, T = M + 2, 0 outside the image;
//            winograd_matrices.h defines A, B, G
// Textbook   for each tile, k:  m[T,T] = 0
//              for each c:      m += (G * w[k,c] * G^T) . (B^T * x_tile[c] * B)   # elementwise
//              y_tile[k] = A^T * m * A + b[k]
// Method     The sum over c at each of the P = T T points is a separate matrix product, [K, C]
//            times [C, tiles]. Each (point, group) is one matrix of a batched product of cuBLAS,
//            because all these matrices have equal strides. Before this call, one kernel makes V =
//            B^T x B; after it, another makes y from M (winograd_kernels.cuh). U = G w G^T is made
//            before the call of the algorithm (prepare_weights).
//              forward          V [P][C][tiles] of x,  U [P][K][C/G],  M [P][K][tiles] = U V
//              backward_data    V [P][K][tiles] of dy, U [P][K][C/G] of flipped w,
//                               M [P][C][tiles] = U^T V
//                               Long sums over channels are made in parts, each with its own M:
//                               rounding errors of sums grow with their length, and the last
//                               transform enlarges them
//              backward_weight  V of x and D [P][K][tiles] of dy are cut into slots, groups of
//                               tiles: [slot][P][..][..]. S [slot][P][K][C/G] = D V^T; one kernel
//                               adds the slots and makes dw
//            A thread transforms one tile of one channel in registers. The 32 tiles of a warp are
//            neighbours, so loads share cache lines, and V and M are read and written in whole
//            lines.
// Shapes     x [N,C,H,W], w [K,C/G,3,3], y [N,K,P,Q], f32 row-major, any alignment
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding and number of groups. A problem
//            in tf32 is computed in f32, because the transforms would lose the digits of tf32
// Cost       FLOPs = 2 P tiles K C/G: 4/9 of the textbook's for M = 2, a quarter for M = 4; bytes =
//            V and M written and read, 4 or 2.25 times the bytes of x and y each way; workspace = V
//            and M of one chunk of tiles. Compute-bound from about 256 (M = 2) or 128 channels on;
//            with fewer channels V and M take as long
// Numerics   Each transform adds and subtracts terms larger than their result: in one dimension a
//            rounding error may grow by ||A^T|| ||G|| ||B^T|| = 3 * 1.5 * 2 (M = 2) or 7.4 * 1.5 *
//            5.1 (M = 4; largest row sums), in two dimensions by the square of that. Errors of
//            random sign stay far below that: near those of direct sums (M = 2), and a relative L2
//            error of about twice that of direct sums, below 2e-6 (M = 4, tests). Same bits on each
//            run on one GPU. Not exact on integers: 1/4 of large sums may round (M = 2), and
//            sqrt(2) is irrational (M = 4). A NaN spreads over its tile.
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    kChunkBytes 400 MiB: size of V and M of a chunk. Smaller chunks would fit the L2
//            cache, but cost more in launches and partly filled waves than they save
//            kMaxSum 256 channels, slots of 128 to 512 tiles: sums in parts keep rounding errors
//            small, and the copies of the sums are a quarter of V
// Source     S. Winograd: Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray: Fast
//            Algorithms for Convolutional Neural Networks, 2015, arXiv 1509.09308; points: S. A.
//            Alam et al. 2022, arXiv 2201.10369, and ncnn
// Read next  winograd_kernels.cuh; winograd_transforms.cuh; winograd_f4x3_fp16x3_cuda.cu, products
//            on the tensor cores
#include <algorithm>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/shared/cuda/blas_cost.h"
#include "layers/conv2d/winograd/cuda/winograd_kernels.cuh"

namespace convscope::winograd {
namespace {

// ---- how a problem is cut ----------------------------------------------------------------------

template <int M>
struct WinogradCudaTiling {
  static constexpr Index kPoints = (M + 2) * (M + 2);

  WinogradCudaTiling(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        for_dw(direction == Direction::backward_weight),
        forward(direction != Direction::backward_data),
        depth(forward ? z.c : z.k),     // channels of all groups in the reduction
        channels(forward ? z.k : z.c),  // channels computed
        in(forward ? Planes(M, z.n, z.c, z.h, z.w, z.p(), z.q(), -z.pad_top, -z.pad_left)
                   : Planes(M, z.n, z.k, z.p(), z.q(), z.h, z.w, z.pad_top - 2, z.pad_left - 2)),
        weights(z.k * z.c_per_group()) {
    const Index all = std::max<Index>(1, ceil_div(in.tiles, kTileStep)) * kTileStep;
    if (!for_dw) parts = parts_of(depth / z.groups);
    const Index tile_bytes = kPoints * (depth + channels * parts) * Index(sizeof(float));
    const Index most = std::max<Index>(1, kChunkBytes / (tile_bytes * kTileStep)) * kTileStep;
    chunk = round_up(ceil_div(all, ceil_div(all, most)), kTileStep);
    slot = chunk;
    if (for_dw) {
      // S weighs a quarter of V and D: K C / ((K + C) slot).
      const Index k = z.k_per_group();
      const Index c = z.c_per_group();
      const Index wanted = std::clamp<Index>(4 * k * c / (k + c), 128, 512);
      slots = ceil_div(chunk, wanted);
      slot = round_up(ceil_div(chunk, slots), kTileStep);
      chunk = slot * slots;
    }
  }

  // Returns the least number of equal parts of at most kMaxSum terms each, or 1 if `sum` has no
  // suitable divisor.
  static Index parts_of(Index sum) {
    for (Index n = ceil_div(sum, kMaxSum); n <= 2 * ceil_div(sum, kMaxSum); ++n) {
      if (sum % n == 0) return n;
    }
    return 1;
  }

  Index v_floats() const { return kPoints * depth * chunk; }
  Index m_floats() const { return kPoints * channels * parts * chunk; }
  Index u_floats() const { return kPoints * weights * slots; }
  // Returns the size of the workspace. It contains V and M, and in backward_weight also S, which is
  // as large as U. The other directions get U from prepare_weights().
  std::size_t bytes() const {
    return piece(v_floats()) + piece(m_floats()) + (for_dw ? piece(u_floats()) : 0);
  }
  std::size_t prepared_bytes() const { return piece(u_floats()); }
  static std::size_t piece(Index floats) {
    return ScratchArena::round_up(static_cast<std::size_t>(floats) * sizeof(float));
  }
  Index chunks() const { return ceil_div(in.tiles, chunk); }

  const Conv2dProblem& z;
  bool for_dw, forward;
  Index depth, channels;
  Planes in;
  Index weights;                         // K C/G
  Index parts = 1;                       // of a sum over channels
  Index chunk = 0, slots = 1, slot = 0;  // tiles at a time; chunk = slots * slot
};

// Computes U of all weights, once for many calls.
template <int M>
void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const WinogradCudaTiling<M> plan(z, args.direction);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(plan.weights, 128))),
                          .block = dim3(128)};
  launch(weights_kernel<M>, shape, static_cast<const float*>(args.w), plan.weights,
         int(z.k_per_group()), int(z.c_per_group()), plan.forward ? int(plan.parts) : 1,
         !plan.forward, static_cast<float*>(args.prepared));
}

template <int M>
class Passes {
 public:
  Passes(const Conv2dProblem& problem, Direction direction, void* workspace)
      : z_(problem),
        plan_(problem, direction),
        v_(static_cast<float*>(workspace)),
        m_(behind(v_, plan_.v_floats())),
        s_(behind(m_, plan_.m_floats())) {}

  // Computes y or dx; u: the result of prepare_weights().
  void convolve(const void* in, const void* u, const void* b, const Conv2dEpilogue& epilogue,
                void* out) const {
    const Index rows = plan_.channels / z_.groups;
    const Index depth = plan_.depth / z_.groups / plan_.parts;
    const Index chunk = plan_.chunk;
    Planes made = plan_.in;
    made.channels = int(plan_.channels);
    const auto address = reinterpret_cast<std::uintptr_t>(out);
    const bool aligned = made.out_w % M == 0 && address % (M * sizeof(float)) == 0;
    for (Index first = 0; first < plan_.in.tiles; first += chunk) {
      transform_tiles<MatrixB<M>>(plan_.in, first, in, v_);
      blas_gemm(BlasGemm{.m = rows,
                         .n = chunk,
                         .k = depth,
                         .a = static_cast<const float*>(u),
                         .b = v_,
                         .c = m_,
                         .lda = plan_.forward ? depth : rows,
                         .ldb = chunk,
                         .ldc = chunk,
                         .transpose_a = !plan_.forward,
                         .batch = kPoints * z_.groups * plan_.parts,
                         .stride_a = rows * depth,
                         .stride_b = depth * chunk,
                         .stride_c = rows * chunk});
      launch(output_kernel<M>, tiles_by_channels(plan_.channels), made, first, int(chunk),
             int(rows), int(plan_.parts), m_, static_cast<const float*>(b),
             static_cast<const float*>(epilogue.residual), epilogue.relu, aligned,
             static_cast<float*>(out));
    }
  }

  void gradient(const void* x, const void* dy, bool accumulate, void* dw) const {
    const Index kernels = z_.k_per_group();
    const Index channels = z_.c_per_group();
    const Index slot = plan_.slot;
    const Planes dy_planes(M, z_.n, z_.k, z_.p(), z_.q(), z_.p(), z_.q(), 0, 0);
    for (Index first = 0; first < plan_.in.tiles; first += plan_.chunk) {
      transform_tiles<MatrixB<M>>(plan_.in, first, x, v_);
      transform_tiles<MatrixA<M>>(dy_planes, first, dy, m_);
      blas_gemm(BlasGemm{.m = kernels,
                         .n = channels,
                         .k = slot,
                         .a = m_,
                         .b = v_,
                         .c = s_,
                         .lda = slot,
                         .ldb = slot,
                         .ldc = channels,
                         .transpose_b = true,
                         .beta = first == 0 ? 0.0 : 1.0,
                         .batch = plan_.slots * kPoints * z_.groups,
                         .stride_a = kernels * slot,
                         .stride_b = channels * slot,
                         .stride_c = kernels * channels});
    }
    const Index slots = plan_.in.tiles == 0 ? 0 : plan_.slots;  // no image: dw = 0, or unchanged
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(plan_.weights, 32))),
                            .block = dim3(32, kGradientWarps)};
    if (slots > 0 && plan_.weights >= kManyWeights) {
      launch(gradient_of_many_kernel<M>, threads(plan_.weights), s_, int(slots), plan_.weights,
             accumulate, static_cast<float*>(dw));
      return;
    }
    launch(gradient_kernel<M>, shape, s_, int(slots), plan_.weights, accumulate,
           static_cast<float*>(dw));
  }

 private:
  static constexpr Index kPoints = WinogradCudaTiling<M>::kPoints;

  static float* behind(float* piece, Index floats) {
    return piece + WinogradCudaTiling<M>::piece(floats) / sizeof(float);
  }
  static LaunchShape threads(Index count) {
    return {.grid = dim3(static_cast<unsigned>(ceil_div(count, 128))), .block = dim3(128)};
  }
  LaunchShape tiles_by_channels(Index channels) const {
    return {.grid = dim3(static_cast<unsigned>(plan_.chunk / 32),
                         static_cast<unsigned>(
                             std::min<Index>(ceil_div(channels, kChannelsOfBlock), 65535))),
            .block = dim3(32, kChannelsOfBlock)};
  }
  template <class Matrix>
  void transform_tiles(const Planes& planes, Index first, const void* in, float* out) const {
    launch(transform_kernel<M, Matrix>, tiles_by_channels(planes.channels), planes, first,
           int(plan_.chunk), int(plan_.slot), static_cast<const float*>(in), out);
  }

  const Conv2dProblem& z_;
  const WinogradCudaTiling<M> plan_;
  float* const v_;
  float* const m_;
  float* const s_;  // backward_weight only
};

// ---- the algorithms
// ------------------------------------------------------------------------------

// Counts the products, which read V and U and write M (or read V and D and write S), and the
// transforms before and after them.
template <int M>
Conv2dCost cost_of(const Conv2dProblem& z, Direction direction) {
  const WinogradCudaTiling<M> plan(z, direction);
  const double points = number(plan.kPoints), chunks = number(plan.chunks());
  const double tiles = chunks * number(plan.chunk);
  const double v = 4 * points * tiles * number(plan.depth);
  const double m = 4 * points * tiles * number(plan.channels * plan.parts);
  const double u = 4 * points * number(plan.weights * plan.slots);
  const double images = 4 * (number(z.x_shape().numel()) + number(z.y_shape().numel()));
  const double weights = 4 * number(z.w_shape().numel());
  const Index g = z.groups;
  using blas_cost::Products;
  const Products products =
      plan.for_dw
          ? Products{z.k_per_group(), z.c_per_group(), plan.slot, plan.slots * plan.kPoints * g}
          : Products{plan.channels / g, plan.chunk, plan.depth / g / plan.parts,
                     plan.kPoints * g * plan.parts};
  Cost cost = blas_cost::counts_of(products, blas_cost::Operands::f32,
                                   cuda_device_facts().multiprocessors, chunks);
  cost.flops = 2 * points * tiles * number(plan.weights);
  cost.bytes = v + m + u;
  cost.pass_bytes += images + v + m;
  cost.launches += 2 * chunks;  // transforms
  if (plan.for_dw) {
    cost.pass_bytes += u + weights;
    cost.launches += 1;
  } else {
    cost.prepared_bytes = weights + u;
    cost.prepare_launches = 1;
  }
  return cost;
}

// The functions of a Conv2dAlgorithm, one for each direction, with M x M outputs in a tile.
template <int M>
void forward(const Conv2dForwardArgs& args) {
  Passes<M>(args.problem, Direction::forward, args.workspace)
      .convolve(args.x, args.prepared, args.b, args.epilogue, args.y);
}
template <int M>
void backward_data(const Conv2dBackwardDataArgs& args) {
  Passes<M>(args.problem, Direction::backward_data, args.workspace)
      .convolve(args.dy, args.prepared, nullptr, {}, args.dx);
}
template <int M>
void backward_weight(const Conv2dBackwardWeightArgs& args) {
  Passes<M>(args.problem, Direction::backward_weight, args.workspace)
      .gradient(args.x, args.dy, args.accumulate, args.dw);
}

template <int M>
std::size_t bytes_of(const Conv2dProblem& z, Direction direction) {
  return WinogradCudaTiling<M>(z, direction).bytes();
}

template <int M>
std::size_t prepared_bytes_of(const Conv2dProblem& z, Direction direction) {
  return WinogradCudaTiling<M>(z, direction).prepared_bytes();
}

const Conv2dAlgorithm kF2x3{
    .name = "winograd_f2x3",
    .device = DeviceType::cuda,
    .idea = "2x2 outputs from 16 multiplications instead of 36, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports_3x3,
    .cost = cost_of<2>,
    .workspace_bytes = bytes_of<2>,
    .prepared_bytes = prepared_bytes_of<2>,
    .prepare_weights = prepare_weights<2>,
    .error_growth = 16,
    .one_chain = true,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .forward = forward<2>,
    .backward_data = backward_data<2>,
    .backward_weight = backward_weight<2>,
};
const Conv2dAlgorithm kF4x3{
    .name = "winograd_f4x3",
    .device = DeviceType::cuda,
    .idea = "4x4 outputs from 36 multiplications instead of 144, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports_3x3,
    .cost = cost_of<4>,
    .workspace_bytes = bytes_of<4>,
    .prepared_bytes = prepared_bytes_of<4>,
    .prepare_weights = prepare_weights<4>,
    .error_growth = 16,
    .one_chain = true,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .forward = forward<4>,
    .backward_data = backward_data<4>,
    .backward_weight = backward_weight<4>,
};

}  // namespace
}  // namespace convscope::winograd

// The registration declares the same name for each tile size.
namespace convscope::winograd::f2x3 {
CONVSCOPE_CONV2D_ALGORITHM(kF2x3)
}
namespace convscope::winograd::f4x3 {
CONVSCOPE_CONV2D_ALGORITHM(kF4x3)
}

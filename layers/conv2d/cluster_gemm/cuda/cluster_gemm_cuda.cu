// SPDX-License-Identifier: Apache-2.0
// cluster_gemm_cuda.cu: convolution of few images in one launch. The blocks of a thread-block
// cluster split the K dimension, and the kernel reads the weights without preparation.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of w[k,c,r,s] x[n, c, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w]
// Textbook   for each tile of positions and output channels:       # a cluster of blocks
//              for each chunk of the input channels:               # a block: a part of the sum
//                part = weights of the chunk x pixels of the chunk
//              y = the parts, added in their order                 # through shared memory
// Method     Schedule of implicit_gemm: the loop nest of implicit_gemm_lesson_cuda.cu. It adds a
//            reduction over the blocks of a cluster.
//            cluster_gemm_plan.h chooses tile, columns, chunks and units; cluster_gemm_kernel.cuh
//            is the kernel. Other algorithms pack the weights in a first launch, write partial sums
//            in a second and add them in a third. Each launch takes one to two microseconds,
//            although the products of one image take less than one.
// Shapes     x, dx [N,1,H,W,Cp], y, dy [N,1,P,Q,Kp] fp16/bf16 or f32 (tf32), 16-byte aligned; w
//            [K,C,R,S], b [K] f32; f32 accumulators
// Supports   layout nhwc with fp16/bf16, or f32 with precision tf32; weights of f32; one
//            group; kernels of at most 49 taps; strides of dx up to 4; sm_90 (clusters)
// Cost       FLOPs = 2 N K P Q C R S; bytes = x, y, w; no workspace. A block waits about 1.2 us for
//            its first bytes, a cluster 0.8 us for its reduction; the products of small layers add
//            little
// Numerics   operands rounded to fp16/bf16 or tf32 (to nearest), accumulated in f32 by the tensor
//            cores, which round towards zero. Same bits on each run; exact on integers up to 2^8
//            (bf16) or 2^11 (f16, tf32) while sums stay below 2^24
// Backward   dx assigned, by phases of the stride without zero taps; no backward_weight
// Choices    see cluster_gemm_plan.h and cluster_gemm_kernel.cuh
// Source     NVIDIA: CUDA Programming Guide, "Thread Block Clusters"; S. Chetlur et al. 2014:
//            cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759; own work (the kernel)
// Read next  ../../implicit_gemm/implicit_gemm_lesson_cuda.cu, a simpler kernel for the same
//            product
#include <algorithm>
#include <memory>
#include <type_traits>

#include "framework/cuda/carveout.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/cluster_gemm/cuda/cluster_gemm_kernel.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope {
namespace {

namespace cluster = cluster_gemm;
using cluster::ClusterGemmTiling;

std::shared_ptr<const ClusterGemmTiling> plan_of(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<ClusterGemmTiling> kept;
  return kept.get(z, direction, [&] {
    const CudaDeviceFacts& facts = cuda_device_facts();
    return cluster::plan_of(
        z, direction,
        {.multiprocessors = facts.multiprocessors, .shared_bytes = facts.shared_bytes_per_block});
  });
}

template <int kValue>
using Number = std::integral_constant<int, kValue>;

void run(const Conv2dProblem& z, Direction direction, const void* x, const void* w,
         const void* bias, const Conv2dEpilogue& epilogue, void* y) {
  const auto plan = plan_of(z, direction);
  const cluster::ClusterGemmParams& s = plan->sizes;
  const bool aligned = reinterpret_cast<std::uintptr_t>(w) % 16 == 0 && s.run_apart % 4 == 0;
  with_stored_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    const cluster::Finish<T> end{static_cast<const float*>(bias),
                                 static_cast<const T*>(epilogue.residual), epilogue.relu};
    const auto run_as = [&](auto rows, auto columns) {
      launch_beside_others(
          cluster::cluster_kernel<T, rows(), columns()>,
          {.grid = dim3(static_cast<unsigned>(s.blocks), static_cast<unsigned>(s.column_jobs()),
                        static_cast<unsigned>(s.tiles())),
           .block = dim3(cluster::kBlockThreads),
           .shared_bytes = static_cast<std::size_t>(plan->shared_bytes),
           .overlaps_previous = true,
           .cluster = static_cast<unsigned>(s.blocks)},
          s, static_cast<const uint4*>(x), static_cast<const float*>(w), aligned, end,
          static_cast<T*>(y));
    };
    const auto with_rows = [&](auto rows) {
      plan->column_tiles == 2 ? run_as(rows, Number<2>{}) : run_as(rows, Number<1>{});
    };
    plan->row_tiles == 2 ? with_rows(Number<2>{}) : with_rows(Number<1>{});
  });
}

void forward(const Conv2dForwardArgs& args) {
  run(args.problem, Direction::forward, args.x, args.w, args.b, args.epilogue, args.y);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  run(args.problem, Direction::backward_data, args.dy, args.w, nullptr, {}, args.dx);
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const bool tf32 = z.dtype == DType::f32 && z.math == MathMode::tf32;
  const OperandTypes types{.x = z.dtype, .w = DType::f32, .accumulator = DType::f32, .y = z.dtype};
  if (z.layout != ActivationLayout::nhwc || (!is_half(z.dtype) && !tf32) ||
      z.operand_types() != types) {
    return Conv2dSupport::no(cat("expects fp16/bf16, or f32 with precision tf32, in NHWC and f32 ",
                                 "weights, got ", z.operand_types().text(), " with layout ",
                                 name_of(z.layout)));
  }
  if (cuda_device_facts().major < 9) {
    return Conv2dSupport::no(cat("expects a GPU of compute capability 9.0 or higher, for its ",
                                 "clusters of blocks, got ", cuda_device_facts().major, ".",
                                 cuda_device_facts().minor));
  }
  if (z.groups != 1) {
    return Conv2dSupport::no(cat("expects one group of channels, got ", z.groups));
  }
  if (z.r * z.s > cluster::kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", cluster::kMaxTaps,
                                 " taps, because each is a parameter of the launch, got ", z.r, "x",
                                 z.s));
  }
  if (direction == Direction::backward_data &&
      std::max(z.stride_h, z.stride_w) > cluster::kMaxStride) {
    return Conv2dSupport::no(cat("expects strides of at most ", cluster::kMaxStride,
                                 " in backward_data, one phase each, got ", z.stride_h, "x",
                                 z.stride_w));
  }
  const std::int64_t side = std::max({z.h, z.w, z.p(), z.q()}) + z.pad_top + z.pad_left;
  const std::int64_t pixels = z.n * std::max(z.h * z.w, z.p() * z.q());
  if (side > 32000 || std::max(z.dilation_h * z.r, z.dilation_w * z.s) > 32000 ||
      pixels * ceil_div(std::max(z.c, z.k), std::int64_t{cluster::kOctet}) > 0x7fff0000 ||
      z.w_shape().numel() > 0x7fff0000) {
    return Conv2dSupport::no(
        "expects images of at most 32000x32000 with padding and fewer than 2^31 octets of channels "
        "in a tensor, because places in them have 32 bits");
  }
  Conv2dProblem with_images = z;
  with_images.n = std::max(z.n, std::int64_t{1});
  if (!plan_of(with_images, direction)->exists()) {
    return Conv2dSupport::no(cat("expects an eighth of the input channels, with all taps, that ",
                                 "fits into shared memory next to a patch of the image, got ",
                                 direction == Direction::forward ? z.c : z.k,
                                 " channels and a kernel of ", z.r, "x", z.s));
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) { return plan_of(z, direction)->cost; }

std::size_t workspace_bytes(const Conv2dProblem&, Direction) { return 0; }

const Conv2dAlgorithm kAlgorithm{
    .name = "cluster_gemm",
    .device = DeviceType::cuda,
    .idea = "few images in one launch: blocks of a cluster share the reduction",
    .paper = "NVIDIA: CUDA Programming Guide, Thread Block Clusters; the kernel is own work",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 32,  // the same as implicit_gemm_tma; tensor cores round towards zero
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nhwc = true,
    .forward = forward,
    .backward_data = backward_data,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)

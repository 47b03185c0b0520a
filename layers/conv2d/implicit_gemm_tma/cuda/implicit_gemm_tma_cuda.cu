// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_cuda.cu: convolution of halves with their channels last: the copy engine of the
// GPU brings patches of the image, and the tensor cores read them where they lie, once for each
// tap.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//                         x[n, c, p stride_h - pad_top + r dilation_h, ...] w[k,c,r,s]
// Textbook   for tile = (n, p.., q..):                  # 128 or 256 output pixels, 64..256
//            channels k
//              for c0 = 0, 64, 128 ..:
//                patch = x[n, p0 - pad .., q0 - pad .., c0 .. c0 + 63]     # zeros outside: no ifs
//                for r, s:
//                  sums[pixel][k] += patch[pixel + r pitch + s][c] w[k][r,s][c]
//            dx: the same with dy for x and w read across; strides by phases
//            dw: sums[k][c] of a tap += dy[pixel][k] patch[pixel + r pitch + s][c], over all pixels
// Plan       weights once as halves [K][R S][C] for both directions (prepare_weights)
//            one warp asks for patches, one for weights (tensor maps, mbarriers), as far ahead as
//            shared memory holds; two warp groups multiply (wgmma); blocks are persistent. A patch
//            in shared memory is rows of 128 bytes (32 or 64 where channels are few), one for each
//            pixel. A tap begins some rows further, so nine taps need one patch in place of nine.
//            The last pixels of each line then belong to no output: of 30 rows 28 count. Where
//            that, or a stride, costs more than it saves, a row of taps shares a patch, or none
//            does (implicit_gemm_tma_taps.h) few tiles: the sum is cut into parts, and a pass adds
//            the parts in their order backward_weight: a block keeps up to 9 taps x 64 k x 64 c in
//            registers; both factors lie with the depth outer. Boxes of dy are as long as those of
//            x; what is outside is zeros. Where one part is enough, the blocks turn and store dw.
// Shapes     x [N,1,H,W,Cp], y [N,1,P,Q,Kp], Cp and Kp channels rounded up to 8, 16-byte aligned,
//            f16 or bf16, as dx and dy; w, dw [K,C,R,S], b [K] f32, or of the half type; sums in
//            f32. tf32: all of them f32; factors are f16 times a power of two (half_factors.h),
//            given or made in front of the product, and the sums are brought back
// Supports   layout channels_last; f16, bf16, or w and sums in f32 beside them; tf32; one group;
//            kernels up to 15x15; strides up to 8, in backward_data up to 4; every padding and
//            dilation up to 127; GPUs of compute capability 9.0
// Cost       FLOPs = 2 N K P Q C R S; bytes = the tensors; workspace = the parts. Compute-bound
//            above about 64 channels, where a tile's bytes from the second cache take less time
//            than its products. tf32: where the factors are not given, two passes over each image
// Numerics   products of halves are exact, sums f32, which the tensor cores round towards zero: one
//            chain. Same bits on each run: parts are added in their order. Exact on integers while
//            sums stay below 2^24; tf32: on integers up to 2^11. There numbers below 2^-27 of their
//            image's largest lose bits, and NaN and infinities stay
// Backward   dx assigned; dw assigned or added to, in w's type
// Choices    64 halves: one swizzled row of 128 bytes. 256 x 128 sums are 128 registers of each of
//            256 threads; the producers give theirs away (setmaxnreg). Tiles: the lowest time of a
//            small model (implicit_gemm_tma_plan.cpp)
// Source     S. Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv
//            1410.0759; PTX ISA, cp.async.bulk.tensor and wgmma. There is an im2col mode of the
//            copy engine, too; plain boxes are used here, because they can be shared between taps
// Read next  ../../implicit_gemm/cuda/implicit_gemm_cuda.cu, which runs on every GPU;
//            implicit_gemm_tma_taps.h, implicit_gemm_tma_gather.cuh, implicit_gemm_tma_weight.cuh,
//            implicit_gemm_tma_scaled.cuh
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "framework/cuda/launch.cuh"
#include "framework/machine/ceilings.h"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"
#include "layers/conv2d/shared/cuda/device_time.cuh"
#include "layers/plan/forward_moments.h"

namespace convscope {
namespace {

using namespace implicit_gemm_tma;  // NOLINT(google-build-using-namespace): this file's own parts

Machine machine() {
  const CudaDeviceFacts& facts = cuda_device_facts();
  return {.multiprocessors = facts.multiprocessors, .shared_bytes = facts.shared_bytes_per_block};
}

// The search takes longer than a small kernel, so plans are kept: the last ones that were asked
// for.
struct Plans {
  Conv2dProblem problem;
  Conv2dProblem as_run;
  Direction direction;
  GatherPlan gather;
  WeightPlan weight;
};
std::shared_ptr<const Plans> plans_of(const Conv2dProblem& z, Direction direction) {
  constexpr std::size_t kKept = 512;
  static std::mutex mutex;
  static std::vector<std::shared_ptr<const Plans>> kept;
  static std::size_t next = 0;
  const std::lock_guard lock(mutex);
  for (const auto& plans : kept) {
    if (plans->direction == direction && plans->problem == z) return plans;
  }
  auto made = std::make_shared<Plans>(Plans{z, as_one_line(z), direction, {}, {}});
  if (direction == Direction::backward_weight) {
    made->weight = plan_weight(made->as_run, machine());
  } else {
    made->gather = plan_gather(made->as_run, direction, machine());
  }
  if (kept.size() < kKept) {
    kept.push_back(made);
  } else {
    kept[next++ % kKept] = made;
  }
  return made;
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) { return packed_bytes(z); }

void prepare_weights(const Conv2dPrepareArgs& args) {
  pack_weights(args.problem, args.w, args.prepared);
}

// The parts of the sums, and of f32 images a block of half factors for each image.
struct Work {
  float* parts = nullptr;
  void* x_block = nullptr;
  void* dy_block = nullptr;
  std::size_t bytes = 0;
};
Work work_in(const Conv2dProblem& z, Direction direction, const Plans& plans, void* memory) {
  const bool weight = direction == Direction::backward_weight;
  Work work;
  const auto take = [&](std::size_t bytes) {
    void* const at = memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + work.bytes;
    work.bytes += ScratchArena::round_up(bytes);
    return at;
  };
  const auto images = [&](const Shape& shape) {
    return take(half_factors_bytes(stored_shape(shape, z.layout).numel()));
  };
  work.parts = static_cast<float*>(take(
      sizeof(float) * static_cast<std::size_t>(weight ? weight_parts(z, plans.weight)
                                                      : gather_parts(z, direction, plans.gather))));
  if (!is_scaled(z)) return work;
  if (direction != Direction::backward_data) work.x_block = images(z.x_shape());
  if (direction != Direction::forward) work.dy_block = images(z.y_shape());
  return work;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return work_in(z, direction, *plans_of(z, direction), nullptr).bytes;
}

// moments: null, or what forward_moments.h says.
void run_forward(const Conv2dForwardArgs& args, float* moments) {
  const Conv2dProblem& z = args.problem;
  const auto plans = plans_of(z, Direction::forward);
  const Work work = work_in(z, Direction::forward, *plans, args.workspace);
  HalfFactors x{args.x, nullptr};
  if (is_scaled(z)) x = factors_of_image(args.x_factors, args.x, z.x_shape(), work.x_block);
  run_gather(plans->as_run, Direction::forward, plans->gather,
             {.in = x.halves,
              .in_scale = x.scale,
              .packed = args.prepared,
              .out = args.y,
              .bias = args.b,
              .residual = args.epilogue.residual,
              .relu = args.epilogue.relu,
              .parts = work.parts,
              .moments = moments});
}

void forward(const Conv2dForwardArgs& args) { run_forward(args, nullptr); }

std::int64_t parts_of_moments(const Conv2dProblem& z) {
  const auto plans = plans_of(z, Direction::forward);
  return moment_parts(plans->as_run, plans->gather);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const auto plans = plans_of(z, Direction::backward_data);
  const Work work = work_in(z, Direction::backward_data, *plans, args.workspace);
  HalfFactors dy{args.dy, nullptr};
  if (is_scaled(z)) dy = factors_of_image(args.dy_factors, args.dy, z.y_shape(), work.dy_block);
  run_gather(plans->as_run, Direction::backward_data, plans->gather,
             {.in = dy.halves,
              .in_scale = dy.scale,
              .packed = args.prepared,
              .out = args.dx,
              .parts = work.parts});
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const auto plans = plans_of(z, Direction::backward_weight);
  const Work work = work_in(z, Direction::backward_weight, *plans, args.workspace);
  Factors at{{args.x, nullptr}, {args.dy, nullptr}};
  if (is_scaled(z)) {
    at = factors_of_images(z, {args.x_factors, args.dy_factors}, args.x, args.dy, work.x_block,
                           work.dy_block);
  }
  run_weight(plans->as_run, plans->weight, at.x, at.dy, work.parts, args.dw, args.accumulate);
}

// ---- card --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  if (z.layout != ActivationLayout::channels_last) {
    return Conv2dSupport::no(
        cat("expects images with their channels last, because the copy engine ",
            "brings whole rows of channels, got layout ", name_of(z.layout)));
  }
  const bool tf32 = z.dtype == DType::f32 && z.math == MathMode::tf32;
  if (!is_half(z.dtype) && !tf32) {
    return Conv2dSupport::no(cat("expects images of f16 or bf16, or of f32 with precision tf32, ",
                                 "because the tensor cores multiply halves, got ",
                                 name_of(z.dtype)));
  }
  const OperandTypes types = z.operand_types();
  if (types.x != z.dtype || types.y != z.dtype || types.accumulator != DType::f32 ||
      (types.w != z.dtype && types.w != DType::f32)) {
    return Conv2dSupport::no(cat("expects x and y of ", name_of(z.dtype), ", w of ",
                                 name_of(z.dtype), " or f32 and sums in f32, got types ",
                                 types.text()));
  }
  const CudaDeviceFacts& facts = cuda_device_facts();
  if (facts.major != 9 || facts.minor != 0) {
    return Conv2dSupport::no(
        cat("expects a GPU of compute capability 9.0, for its copy engine and ",
            "products of warp groups, got ", facts.major, ".", facts.minor));
  }
  if (z.groups > 1) {
    return Conv2dSupport::no(cat("expects groups 1, got groups ", z.groups));
  }
  if (z.r > kMostTaps || z.s > kMostTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", kMostTaps, "x", kMostTaps,
                                 ", because all taps are parameters of one launch, got ", z.r, "x",
                                 z.s));
  }
  const std::int64_t stride = std::max(z.stride_h, z.stride_w);
  const std::int64_t most_stride = direction == Direction::backward_data ? 4 : 8;
  if (stride > most_stride) {
    return Conv2dSupport::no(cat("expects strides of at most ", most_stride, " in ",
                                 name_of(direction), ", got ", z.stride_h, "x", z.stride_w));
  }
  const std::int64_t around =
      std::max({z.pad_top, z.pad_bottom, z.pad_left, z.pad_right, z.dilation_h, z.dilation_w});
  if (around > 127) {
    return Conv2dSupport::no(cat("expects padding and dilation of at most 127, got ", around));
  }
  const std::int64_t side = std::max({z.h, z.w, z.p(), z.q()});
  const std::int64_t channels = std::max(z.c, z.k);
  const std::int64_t pixels = z.n * std::max(z.h * z.w, z.p() * z.q());
  if (side > 32000 || z.n > 0x7fff0000 || z.k > 65535 || pixels > 0x7fff0000 ||
      channels > 0x7ff000 || z.k * ((z.c + 7) / 8 * 8) * z.r * z.s > 0x7fff0000) {
    return Conv2dSupport::no(
        "expects images of at most 32000x32000, at most 65535 output channels, fewer than 2^31 "
        "pixels and fewer than 2^31 weights, because their numbers have 32 bits");
  }
  return {};
}

// To pack the weights of forward and backward_data: launches, of few weights and of many, and bytes
// of each weight.
constexpr double kFewLaunches = 0.6, kPackLaunches = 1.25, kPackBytes = 4;

// The plan's own estimate, said as a share of the tensor cores' peak. Of f32 images the factors are
// given, as in a planned step.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const auto plans = plans_of(z, direction);
  const bool weight = direction == Direction::backward_weight;
  const double launch_us = weight ? plans->weight.launch_us : plans->gather.launch_us;
  const double us = (weight ? plans->weight.us : plans->gather.us) - launch_us;
  const bool scaled = is_scaled(z);
  // f32 is measured by the peak of TF32, which halves run at twice the rate of.
  const double flops = z.nominal_flops() * (scaled ? 0.5 : 1);
  const double peak = scaled ? kUnmeasuredGpu.tf32_flops : kUnmeasuredGpu.half_flops;
  const Conv2dCost cost{
      .flops = flops,
      .bytes = z.nominal_bytes(),
      .peak_share = std::clamp(flops / (peak * std::max(us, 0.1) * 1e-6), 1e-9, 1.0),
      .launches = launch_us * 1e-6 / kUnmeasuredGpu.launch_seconds,
      .tensor_cores = true};
  if (weight) return cost;
  return device_time::with_preparation(
      cost, peak, kPackBytes * static_cast<double>(z.w_shape().numel()),
      packed_count(z) < kFewWeights ? kFewLaunches : kPackLaunches);
}

const Conv2dAlgorithm kCard{
    .name = "implicit_gemm_tma",
    .device = DeviceType::cuda,
    .idea =
        "patches of the image that the copy engine brings, read once for each tap by the tensor "
        "cores",
    .paper = "Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 32,  // as implicit_gemm; the tensor cores round towards zero
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_channels_last = true,
    .takes_half_factors = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

const ForwardMoments kMoments{.parts = parts_of_moments, .run = run_forward};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kCard)
CONVSCOPE_CONV2D_FORWARD_MOMENTS(convscope::kCard, convscope::kMoments)

// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_cuda.cu: convolution of fp16/bf16 images in NHWC: TMA loads patches of the
// image, and the tensor cores read the patches from shared memory, once for each tap.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//                         x[n, c, p stride_h - pad_top + r dilation_h, ...] w[k,c,r,s]
// Textbook   for tile = (n, p.., q..), channels k:       # 128 or 256 pixels of y, 64..256 channels
//              for c0 = 0, 64, 128 ..:
//                patch = x[n, p0 - pad .., q0 - pad .., c0 .. c0 + 63]     # zeros outside: no ifs
//                for r, s:
//                  sums[pixel][k] += patch[pixel + r pitch + s][c] w[k][r,s][c]
//            dx: the same loops with dy for x and w transposed; with a stride, for each phase of dx
//            dw: sums[k][c] of a tap += dy[pixel][k] patch[pixel + r pitch + s][c], over all pixels
// Method     Schedule of implicit_gemm: the loop nest of implicit_gemm_lesson_cuda.cu. It adds
//            loads by TMA and patches that all taps share.
//            prepare_weights packs w once as fp16/bf16 [K][R S][C] for both directions.
//            One warp loads patches, another loads weights (tensor maps, mbarriers), as far ahead
//            as shared memory allows; two warp groups multiply (wgmma); blocks are persistent. A
//            patch in shared memory has a row of 128 bytes (32 or 64 with few channels) for each
//            pixel. Another tap begins some rows later, so nine taps need one patch instead of
//            nine. The last pixels of each image row then belong to no output: of 30 pixels, 28
//            count. Where these pixels or a stride cost more than sharing saves, only a row of taps
//            shares a patch, or no taps do (implicit_gemm_tma_taps.h).
//            With few tiles the reduction is split, and a pass adds the parts in order.
//            backward_weight: a block keeps up to 9 taps x 64 k x 64 c in registers; pixels are the
//            outer dimension of both operands. Boxes of dy are as long as those of x, with zeros
//            outside. Without a split the blocks transpose and store dw themselves.
//            tf32: the operands are f16 times a power of two (half_operands.h), passed by the
//            caller or made before the product, and the sums are scaled back. If they are not
//            passed in, TMA may round f32 to tf32 instead
// Shapes     x, dx [N,1,H,W,Cp], y, dy [N,1,P,Q,Kp], where Cp and Kp are the channels rounded up
//            to 8; f16 or bf16, 16-byte aligned; w, dw [K,C,R,S], b [K] in f32 or in x's type; sums
//            in f32. tf32: all tensors are f32
// Supports   layout NHWC; f16, bf16, also with w and accumulators in f32; tf32; one group; kernels
//            up to 15x15; strides up to 8, in backward_data up to 4; every padding and dilation up
//            to 127; GPUs of compute capability 9.0
// Cost       FLOPs = 2 N K P Q C R S; bytes = the tensors; workspace = the parts. Compute-bound
//            above about 64 channels, where loading a tile from L2 takes less time than its
//            products. tf32 adds two passes over each image whose fp16 operands are not passed in
// Numerics   products of fp16/bf16 are exact. Sums are f32, in one chain, which the tensor cores
//            round towards zero. Same bits on each run: parts are added in order. Exact on integers
//            while sums stay below 2^24; tf32: on integers up to 2^11. In tf32, numbers below 2^-27
//            of their image's largest magnitude lose bits, and NaN and infinities are kept
// Backward   dx assigned; dw assigned or added to, in w's type
// Choices    64 channels make one swizzled row of 128 bytes. 256 x 128 accumulators are 128
//            registers of each of 256 threads; the producer warps release their registers
//            (setmaxnreg). The cost model chooses the tiles (implicit_gemm_tma_plan.cpp)
// Source     S. Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv
//            1410.0759; PTX ISA, cp.async.bulk.tensor and wgmma. TMA also has an im2col mode; plain
//            boxes are used here, because taps can share them
// Read next  ../../implicit_gemm/cuda/implicit_gemm_cuda.cu, which runs on every GPU;
//            implicit_gemm_tma_taps.h, implicit_gemm_tma_gather.cuh, implicit_gemm_tma_weight.cuh,
//            implicit_gemm_tma_scaled.cuh
#include <algorithm>
#include <memory>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"
#include "layers/conv2d/shared/cuda/blas_cost.h"
#include "layers/conv2d/shared/kept_plans.h"
#include "layers/conv2d/shared/cuda/reads_f32.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/layout/half_operands_cost.h"
#include "layers/plan/forward_moments.h"

namespace convscope {
namespace {

using namespace implicit_gemm_tma;  // NOLINT(google-build-using-namespace): this file's own parts

Machine machine() {
  const CudaDeviceFacts& facts = cuda_device_facts();
  return {.multiprocessors = facts.multiprocessors, .shared_bytes = facts.shared_bytes_per_block};
}

struct Plans {
  Conv2dProblem as_run;
  GatherPlan gather;
  TmaWeightTiling weight;
  // For f32 images: `from_f32` is a tiling whose kernels read f32 directly. Its products have half
  // the rate of fp16 products, but no pass has to make fp16 operands. `reads_f32` tells whether
  // `from_f32` is estimated to take less time when the caller passes no fp16 operands.
  GatherPlan from_f32;
  bool reads_f32 = false;
};

double stored_elements(const Conv2dProblem& z, const Shape& image) {
  return number(stored_shape(image, z.layout).numel());
}
// Adds the passes that make the fp16 operands of the image.
Cost with_operands(Cost cost, const Conv2dProblem& z, Direction direction) {
  const Shape image = direction == Direction::forward ? z.x_shape() : z.y_shape();
  add_half_operands(cost, stored_elements(z, image));
  return cost;
}

std::shared_ptr<const Plans> plans_of(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<Plans> kept;
  return kept.get(z, direction, [&] {
    Plans made{.as_run = as_one_line(z), .gather = {}, .weight = {}, .from_f32 = {}};
    if (direction == Direction::backward_weight) {
      made.weight = plan_weight(made.as_run, machine());
      return made;
    }
    made.gather = plan_gather(made.as_run, direction, machine());
    if (is_scaled(z)) {
      made.from_f32 = plan_gather(made.as_run, direction, machine(), true);
      Cheapest<bool> reads({"conv2d", "implicit_gemm_tma", direction}, DeviceType::cuda, z.dtype);
      reads.offer(false, with_operands(made.gather.cost, z, direction));
      reads.offer(true, made.from_f32.cost);
      made.reads_f32 = reads.found();
    }
    return made;
  });
}

// Returns the bytes of the packed weights; for f32 images, transposed f32 weights follow them.
std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return packed_bytes(z) +
         (is_scaled(z) ? static_cast<std::size_t>(transposed_count(z, direction)) * 4 : 0);
}
float* transposed_in(const Conv2dProblem& z, const void* prepared) {
  return reinterpret_cast<float*>(const_cast<std::byte*>(static_cast<const std::byte*>(prepared)) +
                                  packed_bytes(z));
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  pack_weights(z, args.w, args.prepared);
  if (is_scaled(z)) {
    transpose_weights(z, args.direction, static_cast<const float*>(args.w),
                      transposed_in(z, args.prepared));
  }
}
// Returns false for f32 images: prepared weights are two copies, fp16 and f32, of which a single
// call needs only one and makes it itself.
bool prepares_for_one_call(const Conv2dProblem& z, Direction) { return !is_scaled(z); }

// The workspace holds the parts of a split reduction and, for f32 images, the fp16 operands of each
// image. In a call without prepared weights it also holds the packed weights.
struct Work {
  float* parts = nullptr;
  void* x_block = nullptr;
  void* dy_block = nullptr;
  void* weights = nullptr;
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
    return take(half_operands_bytes(stored_shape(shape, z.layout).numel()));
  };
  std::int64_t parts =
      weight ? weight_parts(z, plans.weight) : gather_parts(z, direction, plans.gather);
  if (plans.reads_f32) parts = std::max(parts, gather_parts(z, direction, plans.from_f32));
  work.parts = static_cast<float*>(take(sizeof(float) * static_cast<std::size_t>(parts)));
  if (!is_scaled(z)) return work;
  if (!weight) work.weights = take(prepared_bytes(z, direction));
  if (plans.reads_f32) return work;
  if (direction != Direction::backward_data) work.x_block = images(z.x_shape());
  if (direction != Direction::forward) work.dy_block = images(z.y_shape());
  return work;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return work_in(z, direction, *plans_of(z, direction), nullptr).bytes;
}

// The operands of the product, and its tiling.
struct Factor {
  const GatherPlan& plan;
  HalfOperands image;  // x or dy; without a scale: f32, read directly
  const void* weights;
};
Factor factor_of(const Conv2dProblem& z, Direction direction, const Plans& plans, const void* image,
                 const HalfOperands& given, const void* w, const void* prepared, const Work& work) {
  if (!is_scaled(z)) return {plans.gather, {image, nullptr}, prepared};
  if (plans.reads_f32 && !given.given()) {
    if (prepared != nullptr) return {plans.from_f32, {image, nullptr}, transposed_in(z, prepared)};
    auto* const transposed = static_cast<float*>(work.weights);
    transpose_weights(z, direction, static_cast<const float*>(w), transposed);
    return {plans.from_f32, {image, nullptr}, transposed};
  }
  if (prepared == nullptr) pack_weights(z, w, work.weights);
  const bool forward = direction == Direction::forward;
  const HalfOperands operands = operands_of_image(given, image, forward ? z.x_shape() : z.y_shape(),
                                              forward ? work.x_block : work.dy_block);
  return {plans.gather, operands, prepared != nullptr ? prepared : work.weights};
}

// Returns true where a gradient is one cuBLAS product that needs no pass before it. With a 1x1
// kernel, no stride and no padding, f32 images are matrices [pixels][channels], and w is a matrix,
// too. The forward pass does not use cuBLAS: its results must not depend on the epilogue.
bool is_one_product(const Conv2dProblem& z) {
  return is_scaled(z) && as_one_line(z).h == 1 && z.r == 1 && z.s == 1 && z.c % 8 == 0 &&
         z.k % 8 == 0 && z.stride_h == 1 && z.stride_w == 1 && z.p() == z.h && z.q() == z.w;
}
BlasGemm product_of(const Conv2dProblem& z) {
  BlasGemm gemm;
  gemm.math = MathMode::tf32;
  gemm.m = z.n * z.h * z.w;
  return gemm;
}

// `moments` is null, or a buffer as described in forward_moments.h.
void run_forward(const Conv2dForwardArgs& args, float* moments) {
  const Conv2dProblem& z = args.problem;
  const auto plans = plans_of(z, Direction::forward);
  const Work work = work_in(z, Direction::forward, *plans, args.workspace);
  // The workspace of the statistics is sized for the tiling with fp16 operands. It may be too small
  // for the tiling that reads f32.
  CONVSCOPE_CHECK(moments == nullptr || !plans->reads_f32 || args.x_half.given(),
                  "implicit_gemm_tma",
                  "expected x in fp16 or bf16 where statistics of y are requested");
  const Factor x =
      factor_of(z, Direction::forward, *plans, args.x, args.x_half, args.w, args.prepared, work);
  run_gather(plans->as_run, Direction::forward, x.plan,
             {.in = x.image.fp16,
              .in_scale = x.image.scale,
              .packed = x.weights,
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
  if (is_one_product(z) && !args.dy_half.given()) {
    BlasGemm dx = product_of(z);  // [pixels][C] = dy w; transposed weights are [C][K]
    dx.n = dx.ldc = z.c;
    dx.k = dx.lda = z.k;
    dx.a = args.dy;
    dx.transpose_b = args.prepared != nullptr;
    dx.ldb = dx.transpose_b ? z.k : z.c;
    dx.b = dx.transpose_b ? transposed_in(z, args.prepared) : args.w;
    dx.c = args.dx;
    return blas_gemm(dx);
  }
  const auto plans = plans_of(z, Direction::backward_data);
  const Work work = work_in(z, Direction::backward_data, *plans, args.workspace);
  const Factor dy = factor_of(z, Direction::backward_data, *plans, args.dy, args.dy_half, args.w,
                              args.prepared, work);
  run_gather(plans->as_run, Direction::backward_data, dy.plan,
             {.in = dy.image.fp16,
              .in_scale = dy.image.scale,
              .packed = dy.weights,
              .out = args.dx,
              .parts = work.parts});
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (is_one_product(z) && !args.x_half.given() && !args.dy_half.given()) {
    BlasGemm dw = product_of(z);  // [K][C] = dy^T x
    dw.k = dw.m;
    dw.m = dw.lda = z.k;
    dw.n = dw.ldb = dw.ldc = z.c;
    dw.transpose_a = true;
    dw.a = args.dy;
    dw.b = args.x;
    dw.c = args.dw;
    dw.beta = args.accumulate ? 1 : 0;
    return blas_gemm(dw);
  }
  const auto plans = plans_of(z, Direction::backward_weight);
  const Work work = work_in(z, Direction::backward_weight, *plans, args.workspace);
  ImageOperands at{{args.x, nullptr}, {args.dy, nullptr}};
  if (is_scaled(z)) {
    at = operands_of_images(z, {args.x_half, args.dy_half}, args.x, args.dy, work.x_block,
                           work.dy_block);
  }
  run_weight(
      plans->as_run, plans->weight,
      {.x = at.x, .dy = at.dy, .parts = work.parts, .dw = args.dw, .accumulate = args.accumulate});
}

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  if (z.layout != ActivationLayout::nhwc) {
    return Conv2dSupport::no(
        cat("expects images in NHWC, because TMA copies whole rows of channels, ", "got layout ",
            name_of(z.layout)));
  }
  const bool tf32 = z.dtype == DType::f32 && z.math == MathMode::tf32;
  if (!is_half(z.dtype) && !tf32) {
    return Conv2dSupport::no(cat("expects images of f16 or bf16, or of f32 with precision tf32, ",
                                 "because the tensor cores multiply fp16/bf16, got ",
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
        cat("expects a GPU of compute capability 9.0, for TMA and ",
            "products of warp groups, got ", facts.major, ".", facts.minor));
  }
  if (z.groups > 1) {
    return Conv2dSupport::no(cat("expects groups 1, got groups ", z.groups));
  }
  if (z.r > kMaxTaps || z.s > kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", kMaxTaps, "x", kMaxTaps,
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

// Counts one product of cuBLAS, which reads the weights as they are stored.
Conv2dCost cost_of_product(const Conv2dProblem& z, Direction direction) {
  const std::int64_t pixels = z.n * z.h * z.w;
  const bool weight = direction == Direction::backward_weight;
  const blas_cost::Products products =
      weight ? blas_cost::Products{.m = z.k, .n = z.c, .k = pixels, .apart = 8}
             : blas_cost::Products{.m = pixels, .n = z.c, .k = z.k, .apart = 8};
  Cost cost = blas_cost::counts_of(products, blas_cost::operands_of(z),
                                   cuda_device_facts().multiprocessors);
  cost.flops = z.nominal_flops();
  cost.bytes = z.nominal_bytes();
  return cost;
}

// Returns whether a call without fp16 operands reads f32 images.
bool reads_f32(const Conv2dProblem& z, Direction direction) {
  if (!supports(z, direction).yes || !is_scaled(z)) return false;
  return (direction != Direction::forward && is_one_product(z)) ||
         plans_of(z, direction)->reads_f32;
}

// Counts a call without fp16 operands: for f32 images it includes the passes that make them.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  if (direction != Direction::forward && is_one_product(z)) return cost_of_product(z, direction);
  const auto plans = plans_of(z, direction);
  if (direction == Direction::backward_weight) {
    Cost cost = plans->weight.cost;
    if (is_scaled(z)) {
      add_half_operands(cost, stored_elements(z, z.x_shape()) + stored_elements(z, z.y_shape()));
    }
    return cost;
  }
  const double weights = number(z.w_shape().numel());
  if (plans->reads_f32) {  // w is transposed
    Cost cost = plans->from_f32.cost;
    cost.prepared_bytes = 2 * sizeof(float) * weights;
    cost.prepare_launches = 1;
    return cost;
  }
  if (is_scaled(z)) {  // f32 weights are read twice, as an image is
    Cost cost = with_operands(plans->gather.cost, z, direction);
    cost.prepared_bytes = (2 * sizeof(float) + 2) * weights;
    cost.prepare_launches = 2;
    return cost;
  }
  Cost cost = plans->gather.cost;
  cost.prepared_bytes = (size_of(weight_type(z)) + 2) * weights;
  cost.prepare_launches = 1;
  return cost;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "implicit_gemm_tma",
    .device = DeviceType::cuda,
    .idea =
        "image patches that TMA loads, read once for each tap by the tensor "
        "cores",
    .paper = "Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .prepares_for_one_call = prepares_for_one_call,
    .error_growth = 32,  // the same bound as implicit_gemm; the tensor cores round towards zero
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nhwc = true,
    .takes_half_operands = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

const ForwardMoments kMoments{.parts = parts_of_moments, .run = run_forward};

}  // namespace
CONVSCOPE_KERNEL(conv2d_reads_f32_kernel, cuda, reads_f32)
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_FORWARD_MOMENTS(convscope::kAlgorithm, convscope::kMoments)

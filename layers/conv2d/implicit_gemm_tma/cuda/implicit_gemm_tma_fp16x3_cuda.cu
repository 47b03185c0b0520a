// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_fp16x3_cuda.cu: convolution of f32 in full precision by TMA and the tensor
// cores: three fp16 products replace each f32 product, and all taps share patches of the image.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//                         x[n, c, p stride_h - pad_top + r dilation_h, ...] w[k,c,r,s]
//            dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p stride_h - pad_top + ..]
// Textbook   x = 2^-e (high + low), w likewise                 # two numbers of 11 bits each
//            for tile = (n, p.., q..), channels k:             # 256 pixels of y, 32 or 64 channels
//              for c0 = 0, 32, 64 ..:
//                patch = high and low of x[n, p0 - pad .., q0 - pad .., c0 ..]     # zeros outside
//                for r, s:
//                  sums[pixel][k] += low high + high low + high high
//            dx: the same loops with dy for x and w transposed; with a stride, for each phase of dx
//            dw: a block sums 64 k x 64 c of some taps over pixels, in registers
// Method     Schedule of implicit_gemm: the loop nest of implicit_gemm_lesson_cuda.cu, as
//            implicit_gemm_tma, with two planes of each operand.
//            1 finds the largest magnitude of the image, for its scale; 2 writes the image as two
//            fp16 planes [2][N][H][W][C]; 3 runs the kernel of implicit_gemm_tma_gather.cuh with
//            two planes of patches and of weights, which writes planes [N,C,H,W]. prepare_weights
//            makes the weights before the call: their scale, then [2][K][R S][C], for dx [2][C][R
//            S][K].
//            dw: steps 1 and 2 treat x and dy at once. Then implicit_gemm_tma_weight.cuh runs with
//            two planes of x and of dy, and a pass adds the parts of a split sum
// Shapes     x [N,C,H,W], w [K,C,R,S], y [N,K,P,Q] row-major f32, any alignment; sums in f32
// Supports   f32 in full precision; kernels of 2 to 225 taps, up to 15x15; in backward_weight also
//            1x1; one group; strides up to 8, in backward_data up to 4; padding and dilation up to
//            127; GPUs of compute capability 9.0
// Cost       FLOPs = 6 N K P Q C R S in fp16; bytes = the tensors and the packed images; workspace
//            = the packed images, and the weights of a single call or the parts of dw. Bound by the
//            tensor cores from about 5x5 on, in backward_weight from 3x3 on
// Numerics   as implicit_gemm in f32: 22 bits of each product. The tensor cores round sums towards
//            zero, so after 256 terms the sums are added to separate f32 sums. Numbers below 2^-27
//            of their tensor's largest magnitude lose bits. Same bits on each run; exact on
//            integers up to 2^11, sums below 2^24
// Backward   dx assigned, dw assigned or added to
// Choices    A tile has 32 or 64 channels: the tensor cores' accumulators and as many in f32 take
//            128 of 232 registers. With 32 channels, high and low weights are columns of one
//            product, so that the patch is read twice, not three times: 3 to 14 % less time. Where
//            two planes of a patch of 64 channels exceed shared memory, chunks have 32 channels
// Source     S. Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv
//            1410.0759; H. Ootomo, R. Yokota 2022: Recovering single precision accuracy from Tensor
//            Cores, arXiv 2203.03341
// Read next  ../../implicit_gemm/cuda/implicit_gemm_cuda.cu, the same product with copies by
//            threads; implicit_gemm_tma_gather.cuh, implicit_gemm_tma_fp16x3.cuh
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_gather.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_fp16x3.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"
#include "layers/conv2d/shared/cuda/half_pack_launch.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope {
namespace implicit_gemm_tma {
namespace {

template <int... kShape>
auto fp16x3_kernel_of(int shape, std::integer_sequence<int, kShape...>) {
  static constexpr void (*kKernels[])(Gather) = {
      gather_kernel<GatherVariant<Float16, 2, kFp16x3Shapes[kShape].columns, 1,
                                  kFp16x3Shapes[kShape].chunk, false, float, 2>>...};
  return kKernels[shape];
}

}  // namespace

void (*fp16x3_kernel(int shape))(Gather) {
  return fp16x3_kernel_of(shape, std::make_integer_sequence<int, kFp16x3ShapeCount>{});
}

}  // namespace implicit_gemm_tma

namespace {

using namespace implicit_gemm_tma;  // NOLINT(google-build-using-namespace): this file's own parts

int narrow(std::int64_t value) { return static_cast<int>(value); }

std::shared_ptr<const GatherPlan> plan_of(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<GatherPlan> kept;
  return kept.get(z, direction, [&] {
    const CudaDeviceFacts& facts = cuda_device_facts();
    return plan_fp16x3(
        z, direction,
        {.multiprocessors = facts.multiprocessors, .shared_bytes = facts.shared_bytes_per_block});
  });
}

// Tiling of backward_weight. A 1x1 kernel without stride and padding is tiled as one row of pixels.
struct WeightPlans {
  Conv2dProblem as_run;
  TmaWeightTiling plan;
};
std::shared_ptr<const WeightPlans> weight_plan_of(const Conv2dProblem& z) {
  static KeptPlans<WeightPlans> kept;
  return kept.get(z, Direction::backward_weight, [&] {
    const CudaDeviceFacts& facts = cuda_device_facts();
    const Conv2dProblem as_run = as_one_line(z);
    return WeightPlans{as_run,
                       plan_weight_fp16x3(as_run, {.multiprocessors = facts.multiprocessors,
                                                   .shared_bytes = facts.shared_bytes_per_block})};
  });
}

// Lays out memory for f32 data as high and low parts, or only counts its bytes.
struct Fp16Planes {
  Fp16Planes(void* memory, std::int64_t numbers, std::int64_t packed) {
    ScratchArena arena(memory, std::numeric_limits<std::size_t>::max() / 2);
    const auto take = [&](std::size_t size) {
      bytes += ScratchArena::round_up(size);
      return arena.take<std::byte>(size);
    };
    unscale = reinterpret_cast<float2*>(take(sizeof(float2)));
    maxima = {reinterpret_cast<unsigned*>(take(2 * 4 * half_tiles::kMaximaBlocks)),
              half_tiles::maxima_blocks(numbers)};
    plane = packed / half_tiles::kPieceElements;
    fp16 = reinterpret_cast<uint4*>(take(static_cast<std::size_t>(packed) * 4));
  }
  std::size_t bytes = 0;
  float2* unscale = nullptr;
  half_tiles::Maxima maxima;
  std::int64_t plane = 0;  // 16-byte pieces of a plane
  uint4* fp16 = nullptr;
};

Fp16Planes weights_in(const Conv2dProblem& z, Direction direction, const void* prepared) {
  return {const_cast<void*>(prepared), z.w_shape().numel(), transposed_count(z, direction)};
}
Fp16Planes planes_of_image(const Shape& image, void* memory) {
  const std::int64_t channels = image[1];
  return {
      memory, image.numel(),
      image.numel() / std::max<std::int64_t>(1, channels) * round_up(channels, std::int64_t{8})};
}
Fp16Planes image_in(const Conv2dProblem& z, Direction direction, void* workspace) {
  return planes_of_image(direction == Direction::forward ? z.x_shape() : z.y_shape(), workspace);
}

std::byte* behind(void* memory, std::size_t bytes) {
  return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bytes;
}

// Workspace of forward and backward_data: the packed image and, unless prepared, the packed
// weights. If both are in the workspace, their maxima are adjacent, so that one launch finds the
// maxima.
struct GatherWork {
  GatherWork(const Conv2dProblem& z, Direction direction, const void* prepared, void* memory)
      : image(image_in(z, direction, memory)),
        weights(
            weights_in(z, direction, prepared != nullptr ? prepared : behind(memory, image.bytes))),
        bytes(image.bytes + weights.bytes) {
    if (prepared == nullptr) weights.maxima.bits = image.maxima.bits + image.maxima.count;
  }
  Fp16Planes image, weights;
  std::size_t bytes;
};

// Workspace of backward_weight: x, dy, and the parts of the sum.
struct WeightWork {
  WeightWork(const Conv2dProblem& z, const TmaWeightTiling& plan, void* memory)
      : x(planes_of_image(z.x_shape(), memory)),
        dy(planes_of_image(z.y_shape(), behind(memory, x.bytes))),
        parts(reinterpret_cast<float*>(behind(memory, x.bytes + dy.bytes))),
        bytes(x.bytes + dy.bytes +
              ScratchArena::round_up(static_cast<std::size_t>(weight_parts(z, plan)) * 4)) {
    dy.maxima.bits = x.maxima.bits + x.maxima.count;
  }
  Fp16Planes x, dy;
  float* parts;
  std::size_t bytes;
};

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return weights_in(z, direction, nullptr).bytes;
}
std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction == Direction::backward_weight) {
    const std::shared_ptr<const WeightPlans> kept = weight_plan_of(z);
    return WeightWork(z, kept->plan, nullptr).bytes;
  }
  return GatherWork(z, direction, nullptr, nullptr).bytes;
}

// Finds the largest magnitude of one tensor, or of two tensors in one launch.
void find_maxima(const Fp16Planes& of, const float* numbers, std::int64_t count,
                 const float* others = nullptr, std::int64_t other_count = 0,
                 int other_blocks = 0) {
  launch(half_tiles::maxima_kernel<half_tiles::kMaximaThreads>,
         {.grid = dim3(static_cast<unsigned>(of.maxima.count + other_blocks)),
          .block = dim3(half_tiles::kMaximaThreads),
          .overlaps_previous = true},
         numbers, count, of.maxima.count, others, other_count,
         const_cast<unsigned*>(of.maxima.bits));
}

TransposeFp16x3 transpose_of(const Conv2dProblem& z, Direction direction, const Fp16Planes& to,
                             const void* w) {
  return {.w = static_cast<const float*>(w),
          .out = to.fp16,
          .plane = to.plane,
          .maxima = to.maxima,
          .shape = TransposeShape(narrow(z.k), narrow(z.c), narrow(z.r * z.s),
                             direction == Direction::backward_data, 32)};
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Fp16Planes to = weights_in(z, args.direction, args.prepared);
  find_maxima(to, static_cast<const float*>(args.w), z.w_shape().numel());
  const TransposeFp16x3 transpose = transpose_of(z, args.direction, to, args.w);
  launch(transpose_fp16x3_kernel,
         {.grid = dim3(static_cast<unsigned>(transpose.shape.blocks_of_c()),
                       static_cast<unsigned>(transpose.shape.blocks_of_k())),
          .block = dim3(kTransposeThreads),
          .overlaps_previous = true},
         transpose);
}
// Returns false: a single call splits both operands in one launch.
bool prepares_for_one_call(const Conv2dProblem&, Direction) { return false; }

half_tiles::PackPixels pack_of(const Fp16Planes& to, const Fp16Planes& other, const Shape& shape,
                               const void* from) {
  const int channels = narrow(shape[1]);
  return {.from = from,
          .to = to.fp16,
          .plane = to.plane,
          .channels = channels,
          .pieces = half_tiles::pieces_of(channels),
          .area = narrow(shape[2] * shape[3]),
          .channels_log2 = half_tiles::pack_channels_log2(channels),
          .maxima = to.maxima,
          .other_maxima = other.maxima,
          .unscale = to.unscale};
}
void pack_and_transpose(const half_tiles::PackPixels& image, std::int64_t images,
                   const TransposeFp16x3& weights) {
  const std::int64_t image_blocks = half_tiles::blocks_of(image, images);
  const std::int64_t all = image_blocks + static_cast<std::int64_t>(weights.shape.blocks_of_c()) *
                                          weights.shape.blocks_of_k();
  half_tiles::with_channels_log2(image.channels_log2, [&](auto log2) {
    launch(pack_and_transpose_kernel<decltype(log2)::value>,
           {.grid = dim3(static_cast<unsigned>(all)),
            .block = dim3(kTransposeThreads),
            .overlaps_previous = true},
           image, narrow(image_blocks), weights);
  });
}

// Reads `w` only where `prepared` is null.
void convolve(const Conv2dProblem& z, Direction direction, const void* from, const void* w,
              const void* prepared, void* workspace, const void* bias, const Conv2dEpilogue& behind,
              void* out) {
  const GatherWork work(z, direction, prepared, workspace);
  const auto& [image, weights, bytes] = work;
  const Shape shape = direction == Direction::forward ? z.x_shape() : z.y_shape();
  const half_tiles::PackPixels packed = pack_of(image, weights, shape, from);
  const auto* const numbers = static_cast<const float*>(from);
  if (prepared != nullptr) {
    find_maxima(image, numbers, shape.numel());
    half_tiles::launch_pack<float, 2>(packed, z.n);
  } else {
    find_maxima(image, numbers, shape.numel(), static_cast<const float*>(w), z.w_shape().numel(),
                weights.maxima.count);
    pack_and_transpose(packed, z.n, transpose_of(z, direction, weights, w));
  }
  run_gather(z, direction, *plan_of(z, direction),
             {.in = image.fp16,
              .packed = weights.fp16,
              .out = out,
              .bias = bias,
              .residual = behind.residual,
              .relu = behind.relu,
              .unscale = image.unscale});
}

void forward(const Conv2dForwardArgs& args) {
  convolve(args.problem, Direction::forward, args.x, args.w, args.prepared, args.workspace, args.b,
           args.epilogue, args.y);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  convolve(args.problem, Direction::backward_data, args.dy, args.w, args.prepared, args.workspace,
           nullptr, {}, args.dx);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const std::shared_ptr<const WeightPlans> kept = weight_plan_of(z);
  const WeightWork work(z, kept->plan, args.workspace);
  find_maxima(work.x, static_cast<const float*>(args.x), z.x_shape().numel(),
              static_cast<const float*>(args.dy), z.y_shape().numel(), work.dy.maxima.count);
  half_tiles::PackPixels dy = pack_of(work.dy, work.x, z.y_shape(), args.dy);
  dy.unscale = nullptr;  // the pass over x writes dy's factor
  half_tiles::launch_pack_two<float, 2>(pack_of(work.x, work.dy, z.x_shape(), args.x), dy, z.n);
  run_weight(kept->as_run, kept->plan,
             {.x = {work.x.fp16, nullptr},
              .dy = {work.dy.fp16, nullptr},
              .low_x = work.x.fp16 + work.x.plane,
              .low_dy = work.dy.fp16 + work.dy.plane,
              .unscale = work.x.unscale,
              .parts = work.parts,
              .dw = args.dw,
              .accumulate = args.accumulate});
}

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32 || z.math != MathMode::f32) {
    return no(
        "expects f32 in full precision, because it splits each number into two fp16 numbers, got ",
        z.dtype == DType::f32 ? "tf32" : name_of(z.dtype));
  }
  const CudaDeviceFacts& facts = cuda_device_facts();
  if (facts.major != 9 || facts.minor != 0) {
    return no("expects a GPU of compute capability 9.0, for TMA and products of warp ",
              "groups, got ", facts.major, ".", facts.minor);
  }
  if (z.groups > 1) return no("expects groups 1, got groups ", z.groups);
  const bool weight = direction == Direction::backward_weight;
  if ((z.r * z.s < 2 && !weight) || z.r > kMaxTaps || z.s > kMaxTaps) {
    return no("expects a kernel of ", weight ? "" : "at least 2 taps, which share a patch, and ",
              "at most ", kMaxTaps, "x", kMaxTaps, ", got ", z.r, "x", z.s);
  }
  const std::int64_t most_stride = direction == Direction::backward_data ? 4 : 8;
  if (std::max(z.stride_h, z.stride_w) > most_stride) {
    return no("expects strides of at most ", most_stride, " in ", name_of(direction), ", got ",
              z.stride_h, "x", z.stride_w);
  }
  const std::int64_t around =
      std::max({z.pad_top, z.pad_bottom, z.pad_left, z.pad_right, z.dilation_h, z.dilation_w});
  if (around > 127) return no("expects padding and dilation of at most 127, got ", around);
  const std::int64_t side = std::max({z.h, z.w, z.p(), z.q()});
  const std::int64_t channels = std::max(z.c, z.k);
  const std::int64_t area = std::max(z.h * z.w, z.p() * z.q());
  if (side > 32000 || channels > 65535 || z.n * area > 0x7fff0000 ||
      z.k * round_up(z.c, std::int64_t{8}) * z.r * z.s > 0x7fff0000) {
    return no("expects images of at most 32000x32000, at most 65535 channels, fewer than 2^31 ",
              "pixels and fewer than 2^31 weights, because their numbers have 32 bits");
  }
  return {};
}

// Counts the product and the two kernels before it: one finds maxima, one writes two fp16 planes.
// Each reads the f32 numbers. Without prepared weights the same two
// kernels also treat the weights.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  constexpr double kPackedBytes = 2 * sizeof(float) + 2 * 2;  // for each number
  const double x = number(z.x_shape().numel()), y = number(z.y_shape().numel());
  const bool weight = direction == Direction::backward_weight;
  Cost cost = weight ? weight_plan_of(z)->plan.cost : plan_of(z, direction)->cost;
  const double packed = weight ? x + y : direction == Direction::forward ? x : y;
  cost.pass_bytes += kPackedBytes * packed;
  cost.launches += 2;
  if (!weight) cost.prepared_bytes = kPackedBytes * number(z.w_shape().numel());
  return cost;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "implicit_gemm_tma_fp16x3",
    .device = DeviceType::cuda,
    .idea =
        "f32 by three fp16 products, from patches that TMA loads once for all "
        "taps",
    .paper = "Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .prepares_for_one_call = prepares_for_one_call,
    .error_growth = 32,  // as implicit_gemm
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)

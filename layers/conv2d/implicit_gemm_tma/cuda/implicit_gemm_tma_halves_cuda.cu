// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_halves_cuda.cu: convolution of f32 in full precision by the copy engine and the
// tensor cores: three products of halves for each product, from patches of the image that all taps
// share.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//                         x[n, c, p stride_h - pad_top + r dilation_h, ...] w[k,c,r,s]
// Textbook   x = 2^-e (high + low), w likewise                 # two halves of 11 bits each
//            for tile = (n, p.., q..), channels k:             # 256 pixels of y, 32 or 64 channels
//              for c0 = 0, 32, 64 ..:
//                patch = high and low of x[n, p0 - pad .., q0 - pad .., c0 ..]     # zeros outside
//                for r, s:
//                  sums[pixel][k] += low high + high low + high high
//            dx: the same with dy for x and w turned over; strides by phases
// Plan       1 the largest magnitude of the image, for its scale; 2 the image as two planes of
//            halves [2][N][H][W][C]; 3 the kernel of implicit_gemm_tma_gather.cuh with two planes
//            of patches and of weights, which writes planes [N,C,H,W]. Weights before the call
//            (prepare_weights): their scale, then [2][K][R S][C], for dx [2][C][R S][K]
// Shapes     x [N,C,H,W], w [K,C,R,S], y [N,K,P,Q] row-major f32, any alignment; sums in f32
// Supports   f32 in full precision; kernels of 2 to 225 taps, up to 15x15; one group; strides up to
//            8, in backward_data up to 4; padding and dilation up to 127; GPUs of compute
//            capability 9.0; no backward_weight
// Cost       FLOPs = 6 N K P Q C R S of halves; bytes = the tensors and the packed image; workspace
//            = the packed image. Bound by the tensor cores from about 5x5 on
// Numerics   as implicit_gemm in f32: 22 bits of each product; the tensor cores round sums towards
//            zero, so after 256 depths they go to an f32 of their own. Numbers below 2^-27 of their
//            tensor's largest lose bits. Same bits on each run; exact on integers up to 2^11, sums
//            below 2^24
// Backward   dx assigned
// Choices    32 and 64 channels of a tile: its sums twice, the tensor cores' own and whole ones,
//            are 128 of 232 registers. Chunks of 32 channels where two planes of a patch of 64
//            are more than shared memory holds
// Source     S. Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv
//            1410.0759;
//            H. Ootomo, R. Yokota 2022: Recovering single precision accuracy from Tensor Cores,
//            arXiv 2203.03341
// Read next  ../../implicit_gemm/cuda/implicit_gemm_cuda.cu, the same product by copies of threads;
//            implicit_gemm_tma_gather.cuh, implicit_gemm_tma_halves.cuh
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "framework/machine/ceilings.h"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_gather.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_halves.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"
#include "layers/conv2d/shared/cuda/device_time.cuh"
#include "layers/conv2d/shared/cuda/kept_plans.h"

namespace convscope {
namespace implicit_gemm_tma {
namespace {

template <int... kShape>
auto halves_kernel_of(int shape, std::integer_sequence<int, kShape...>) {
  static constexpr void (*kKernels[])(Gather) = {
      gather_kernel<GatherVariant<Float16, 2, kHalvesShapes[kShape].columns, 1,
                                  kHalvesShapes[kShape].chunk, false, float, 2>>...};
  return kKernels[shape];
}

}  // namespace

void (*halves_kernel(int shape))(Gather) {
  return halves_kernel_of(shape, std::make_integer_sequence<int, kHalvesShapeCount>{});
}

}  // namespace implicit_gemm_tma

namespace {

using namespace implicit_gemm_tma;  // NOLINT(google-build-using-namespace): this file's own parts

int narrow(std::int64_t value) { return static_cast<int>(value); }

std::shared_ptr<const GatherPlan> plan_of(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<GatherPlan> kept;
  return kept.get(z, direction, [&] {
    const CudaDeviceFacts& facts = cuda_device_facts();
    return plan_halves(
        z, direction,
        {.multiprocessors = facts.multiprocessors, .shared_bytes = facts.shared_bytes_per_block});
  });
}

// A block of memory for numbers of f32 as two halves, or only its size.
struct Halves {
  Halves(void* memory, std::int64_t numbers, std::int64_t packed) {
    ScratchArena arena(memory, std::numeric_limits<std::size_t>::max() / 2);
    const auto take = [&](std::size_t size) {
      bytes += ScratchArena::round_up(size);
      return arena.take<std::byte>(size);
    };
    unscale = reinterpret_cast<float2*>(take(sizeof(float2)));
    maxima = {reinterpret_cast<unsigned*>(take(4 * half_tiles::kMaximaBlocks)),
              half_tiles::maxima_blocks(numbers)};
    plane = packed / half_tiles::kPieceHalves;
    halves = reinterpret_cast<uint4*>(take(static_cast<std::size_t>(packed) * 4));
  }
  std::size_t bytes = 0;
  float2* unscale = nullptr;
  half_tiles::Maxima maxima;
  std::int64_t plane = 0;  // pieces
  uint4* halves = nullptr;
};

Halves weights_in(const Conv2dProblem& z, Direction direction, const void* prepared) {
  return {const_cast<void*>(prepared), z.w_shape().numel(), turned_count(z, direction)};
}
Halves image_in(const Conv2dProblem& z, Direction direction, void* workspace) {
  const Shape image = direction == Direction::forward ? z.x_shape() : z.y_shape();
  const std::int64_t channels = image[1];
  return {
      workspace, image.numel(),
      image.numel() / std::max<std::int64_t>(1, channels) * round_up(channels, std::int64_t{8})};
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return weights_in(z, direction, nullptr).bytes;
}
std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return image_in(z, direction, nullptr).bytes;
}

void find_maxima(const Halves& of, const float* numbers, std::int64_t count) {
  launch(half_tiles::maxima_kernel<half_tiles::kMaximaThreads>,
         {.grid = dim3(static_cast<unsigned>(of.maxima.count)),
          .block = dim3(half_tiles::kMaximaThreads),
          .overlaps_previous = true},
         numbers, count, of.maxima.count, static_cast<const float*>(nullptr), std::int64_t{0},
         const_cast<unsigned*>(of.maxima.bits));
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Halves to = weights_in(z, args.direction, args.prepared);
  const auto* const w = static_cast<const float*>(args.w);
  find_maxima(to, w, z.w_shape().numel());
  const TurnShape shape(narrow(z.k), narrow(z.c), narrow(z.r * z.s),
                        args.direction == Direction::backward_data, 32);
  launch(turn_halves_kernel,
         {.grid = dim3(static_cast<unsigned>(shape.blocks_of_c()),
                       static_cast<unsigned>(shape.blocks_of_k())),
          .block = dim3(kTurnThreads),
          .overlaps_previous = true},
         w, shape, to.maxima, to.halves, to.plane);
}

template <int kChannelsLog2>
void launch_pack(const half_tiles::PackPixels& pack, std::int64_t images) {
  launch(half_tiles::pack_pixels_kernel<float, 2, kChannelsLog2>,
         {.grid = dim3(static_cast<unsigned>(images * ceil_div(pack.area, pack.pixels())),
                       static_cast<unsigned>(pack.channel_blocks())),
          .block = dim3(256),
          .overlaps_previous = true},
         pack);
}

void convolve(const Conv2dProblem& z, Direction direction, const void* from, const void* prepared,
              void* workspace, const void* bias, const Conv2dEpilogue& behind, void* out) {
  const Halves weights = weights_in(z, direction, prepared);
  const Halves image = image_in(z, direction, workspace);
  const Shape shape = direction == Direction::forward ? z.x_shape() : z.y_shape();
  const int channels = narrow(shape[1]);
  find_maxima(image, static_cast<const float*>(from), shape.numel());
  const half_tiles::PackPixels pack{.from = from,
                                    .to = image.halves,
                                    .plane = image.plane,
                                    .channels = channels,
                                    .pieces = half_tiles::pieces_of(channels),
                                    .area = narrow(shape[2] * shape[3]),
                                    .channels_log2 = half_tiles::pack_channels_log2(channels),
                                    .maxima = image.maxima,
                                    .other_maxima = weights.maxima,
                                    .unscale = image.unscale};
  pack.channels_log2 == 3   ? launch_pack<3>(pack, z.n)
  : pack.channels_log2 == 4 ? launch_pack<4>(pack, z.n)
  : pack.channels_log2 == 5 ? launch_pack<5>(pack, z.n)
                            : launch_pack<6>(pack, z.n);
  run_gather(z, direction, *plan_of(z, direction),
             {.in = image.halves,
              .packed = weights.halves,
              .out = out,
              .bias = bias,
              .residual = behind.residual,
              .relu = behind.relu,
              .unscale = image.unscale});
}

void forward(const Conv2dForwardArgs& args) {
  convolve(args.problem, Direction::forward, args.x, args.prepared, args.workspace, args.b,
           args.epilogue, args.y);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  convolve(args.problem, Direction::backward_data, args.dy, args.prepared, args.workspace, nullptr,
           {}, args.dx);
}

// ---- card --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32 || z.math != MathMode::f32) {
    return no(
        "expects f32 in full precision, because it multiplies two halves of each number, got ",
        z.dtype == DType::f32 ? "tf32" : name_of(z.dtype));
  }
  const CudaDeviceFacts& facts = cuda_device_facts();
  if (facts.major != 9 || facts.minor != 0) {
    return no("expects a GPU of compute capability 9.0, for its copy engine and products of warp ",
              "groups, got ", facts.major, ".", facts.minor);
  }
  if (z.groups > 1) return no("expects groups 1, got groups ", z.groups);
  if (z.r * z.s < 2 || z.r > kMostTaps || z.s > kMostTaps) {
    return no("expects a kernel of at least 2 taps, which share a patch, and at most ", kMostTaps,
              "x", kMostTaps, ", got ", z.r, "x", z.s);
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
      z.k * z.c * z.r * z.s > 0x7fff0000) {
    return no("expects images of at most 32000x32000, at most 65535 channels, fewer than 2^31 ",
              "pixels and fewer than 2^31 weights, because their numbers have 32 bits");
  }
  return {};
}

// Fitted to 44 times of one H200, batch 1 and 32: where multiprocessors have more tiles than one,
// those behind the first take twice as long as the plan says.
constexpr double kLaterTiles = 2;
// Of a stride of backward_data, whose outputs lie apart.
constexpr double kPhasesTimes = 1.6;

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  using device_time::number;
  const std::shared_ptr<const GatherPlan> kept = plan_of(z, direction);
  const GatherPlan& plan = *kept;
  const double waves = std::max(
      1.0, std::ceil(number(plan.row_tiles) * plan.column_tiles / device_time::processors()));
  const double us = std::max(1.0, plan.us - plan.launch_us) * (1 + kLaterTiles * (waves - 1)) /
                    waves * (plan.taps.phases > 1 ? kPhasesTimes : 1);
  const Shape image = direction == Direction::forward ? z.x_shape() : z.y_shape();
  const double flops = z.nominal_flops() * 1.5;  // halves run at twice the rate of TF32
  const double peak = kUnmeasuredGpu.tf32_flops;
  // The image is read for its largest magnitude, read again, written and read as two halves.
  const double passes = 16 * number(image.numel());
  const Conv2dCost cost{.flops = flops,
                        .bytes = z.nominal_bytes(),
                        .peak_share = device_time::share_of(flops, us, peak),
                        .pass_bytes = device_time::passed(passes),
                        .launches = 3,
                        .tensor_cores = true};
  return device_time::with_preparation(cost, peak, 16 * number(z.w_shape().numel()), 2);
}

const Conv2dAlgorithm kCard{
    .name = "implicit_gemm_tma_halves",
    .device = DeviceType::cuda,
    .idea =
        "f32 by three products of halves, from patches that the copy engine brings once for all "
        "taps",
    .paper = "Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 32,  // as implicit_gemm
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kCard)

// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_run_cuda.cu: turns tilings into kernel parameters: tensor maps, sizes, grids.
// Read next  implicit_gemm_tma_gather.cuh
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_f32_weights.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_pack.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_scaled.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_summed_moments.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_weight.cuh"

namespace convscope::implicit_gemm_tma {
namespace {

int narrow(std::int64_t value) { return static_cast<int>(value); }
std::int64_t eights(std::int64_t channels) { return round_up(channels, std::int64_t{8}); }

const Kernels& kernels_of(const Conv2dProblem& z) {
  return is_scaled(z) ? tf32_kernels() : z.dtype == DType::bf16 ? bf16_kernels() : f16_kernels();
}

// Returns the number of blocks that run at once. With moments all tiles of a block need the same
// columns, so the number is a multiple of the column tiles.
int gather_blocks(const GatherPlan& plan, bool with_moments) {
  const int at_once = cuda_device_facts().multiprocessors * shape_of(plan).blocks;
  const int most = with_moments ? at_once / plan.column_tiles * plan.column_tiles : at_once;
  return std::min(plan.row_tiles * plan.splits * plan.column_tiles, most);
}

// Returns a walk over the pieces of y.
WalkOf<float> walk_over_y(const Conv2dProblem& z) {
  return WalkOf<float>(stored_shape(z.y_shape(), ActivationLayout::nhwc));
}

template <class Body>
void with_half(const Conv2dProblem& z, Body&& body) {
  z.dtype == DType::bf16 ? body(BFloat16{}) : body(Float16{});
}

// Describes images [N,H,W,C] and a box of them.
TensorMapShape images_shape(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t channels) {
  const std::int64_t c = eights(channels);
  return {.sizes = {c, w, 1, h, n}, .strides = {1, c, c, w * c, h * w * c}};
}

void pack_scaled_weights(const Conv2dProblem& z, const float* w, void* block) {
  const half_tiles::Maxima maxima = half_tiles::find_maxima(w, z.w_shape().numel(), block);
  const int channels = narrow(eights(z.c)), kernel = narrow(z.r * z.s);
  const int width = transposed_channels(channels, kernel);
  launch(
      pack_scaled_weights_kernel<kThreads>,
      {.grid = dim3(static_cast<unsigned>(ceil_div(channels, width)), static_cast<unsigned>(z.k)),
       .block = dim3(kThreads),
       .overlaps_previous = true},
      w, channels, narrow(z.c), kernel, width, maxima, static_cast<float*>(block),
      static_cast<uint4*>(const_cast<void*>(half_operands_in(block).fp16)));
}

}  // namespace

HalfOperands operands_of_image(const HalfOperands& given, const void* image, const Shape& shape,
                             void* block) {
  if (given.given()) return given;
  return half_tiles::pack_half_operands(static_cast<const float*>(image),
                                       stored_shape(shape, ActivationLayout::nhwc).numel(),
                                       block);
}

ImageOperands operands_of_images(const Conv2dProblem& z, const ImageOperands& given, const void* x,
                          const void* dy, void* x_block, void* dy_block) {
  if (given.x.given() || given.dy.given()) {
    return {operands_of_image(given.x, x, z.x_shape(), x_block),
            operands_of_image(given.dy, dy, z.y_shape(), dy_block)};
  }
  const auto [first, second] = half_tiles::pack_half_operands(
      static_cast<const float*>(x), stored_shape(z.x_shape(), z.layout).numel(), x_block,
      static_cast<const float*>(dy), stored_shape(z.y_shape(), z.layout).numel(), dy_block);
  return {first, second};
}

void pack_weights(const Conv2dProblem& z, const void* w, void* packed) {
  if (is_scaled(z)) return pack_scaled_weights(z, static_cast<const float*>(w), packed);
  const PackShape shape(narrow(z.k), narrow(z.c), narrow(eights(z.c)), narrow(z.r * z.s),
                        reinterpret_cast<std::uintptr_t>(w) % 16 == 0);
  with_half(z, [&](auto half) {
    using Half = decltype(half);
    with_float_type(weight_type(z), [&](auto in) {
      using In = decltype(in);
      if (const std::int64_t count = packed_count(z); count < kFewWeights) {
        LaunchShape each = grid_for(count);
        each.overlaps_previous = true;
        return launch(pack_few_weights_kernel<In, Half>, each, static_cast<const In*>(w), count,
                      shape.channels, shape.real_channels, shape.kernel,
                      static_cast<Half*>(packed));
      }
      if (shape.kernel >= kManyTaps) {
        const ManyTapsShape many(shape.real_channels, shape.channels, shape.kernel);
        return launch(pack_many_taps_kernel<In, Half>,
                      {.grid = dim3(static_cast<unsigned>(many.blocks_of_channels()),
                                    static_cast<unsigned>(shape.k)),
                       .block = dim3(kManyThreads),
                       .overlaps_previous = true},
                      static_cast<const In*>(w), many, static_cast<Half*>(packed));
      }
      launch(pack_weights_kernel<In, Half>,
             {.grid = dim3(static_cast<unsigned>(shape.blocks_of_channels()),
                           static_cast<unsigned>(shape.blocks_of_rows())),
              .block = dim3(kPackThreads),
              .overlaps_previous = true},
             static_cast<const In*>(w), shape, static_cast<Half*>(packed));
    });
  });
}

std::int64_t transposed_count(const Conv2dProblem& z, Direction direction) {
  return z.r * z.s * (direction == Direction::forward ? z.k * eights(z.c) : z.c * eights(z.k));
}

void transpose_weights(const Conv2dProblem& z, Direction direction, const float* w,
                       float* transposed) {
  const TransposeShape shape(narrow(z.k), narrow(z.c), narrow(z.r * z.s),
                        direction == Direction::backward_data);
  launch(transpose_weights_kernel,
         {.grid = dim3(static_cast<unsigned>(shape.blocks_of_c()),
                       static_cast<unsigned>(shape.blocks_of_k())),
          .block = dim3(kTransposeThreads),
          .overlaps_previous = true},
         w, shape, transposed);
}

std::int64_t gather_parts(const Conv2dProblem& z, Direction direction, const GatherPlan& plan) {
  if (plan.splits == 1) return 0;
  return plan.splits * z.n *
         (direction == Direction::forward ? z.p() * z.q() * eights(z.k) : z.h * z.w * eights(z.c));
}

// Returns 0 for fp16/bf16: y stays in L2 until the batch norm reads y, and that takes no longer
// than computing the statistics here.
std::int64_t moment_parts(const Conv2dProblem& z, const GatherPlan& plan) {
  constexpr std::int64_t kMaxCounted = 1 << 24;  // counts are f32
  if (!is_scaled(z) || z.n * z.p() * z.q() > kMaxCounted) return 0;
  if (plan.splits > 1) {
    return walk_over_y(z).splits;
  }
  if (tf32_moment_kernels().gather[plan.shape] == nullptr) return 0;
  return gather_blocks(plan, true) / plan.column_tiles;
}

void run_gather(const Conv2dProblem& z, Direction direction, const GatherPlan& plan,
                const GatherOperands& operands) {
  const bool forward = direction == Direction::forward;
  const GatherShape& shape = shape_of(plan);
  const bool fp16x3 = plan.planes == 2;  // f32 as two planes
  const Geometry geometry(z, direction);
  Gather gather;
  TensorMapShape pixels =
      forward ? images_shape(z.n, z.h, z.w, z.c) : images_shape(z.n, z.p(), z.q(), z.k);
  gather.step_h = geometry.high[0].step;
  gather.step_w = geometry.wide[0].step;
  if (fp16x3) {
    pixels.sizes[2] = 2;
    pixels.strides[2] = pixels.strides[4] * z.n;
  }
  pixels.f32 = plan.from_f32;
  pixels.box[0] = plan.from_f32 ? shape.chunk / 2 : shape.chunk;
  pixels.box[1] = plan.patch_w;
  pixels.box[3] = plan.patch_h;
  pixels.box[4] = plan.images;
  pixels.steps[1] = gather.step_w;
  pixels.steps[3] = gather.step_h;
  gather.pixels = encode_tensor_map(operands.in, pixels);
  // [k][taps][c]; transposed for backward_data: [c][taps][k].
  const bool swapped = (plan.from_f32 || fp16x3) && !forward;
  const std::int64_t c = eights(swapped ? z.k : z.c), k = swapped ? z.c : z.k;
  TensorMapShape weights{.sizes = {c, z.r * z.s, 1, k, 1},
                         .strides = {1, c, c, z.r * z.s * c, k * z.r * z.s * c}};
  if (fp16x3) {
    weights.sizes[2] = 2;
    weights.strides[2] = weights.strides[4];
  }
  weights.f32 = plan.from_f32;
  weights.box[0] = plan.from_f32 ? shape.chunk / 2 : forward || fp16x3 ? shape.chunk : 64;
  weights.box[3] = plan.from_f32 || forward || fp16x3 ? shape.columns : shape.chunk;
  const bool scaled = is_scaled(z) && !plan.from_f32 && !fp16x3;
  const HalfOperands w = half_operands_in(operands.packed);
  gather.weights = encode_tensor_map(scaled ? w.fp16 : operands.packed, weights);
  gather.pixels_scale = operands.in_scale;
  gather.weights_scale = scaled ? w.scale : nullptr;
  gather.out = operands.out;
  gather.parts = operands.parts;
  gather.bias = operands.bias;
  gather.bias_is_f32 = weight_type(z) == DType::f32;
  gather.bias_channels = narrow(z.k);
  gather.residual = operands.residual;
  gather.relu = operands.relu;
  gather.images = narrow(z.n);
  gather.out_h = narrow(forward ? z.p() : z.h);
  gather.out_w = narrow(forward ? z.q() : z.w);
  gather.out_channels = narrow(fp16x3 ? forward ? z.k : z.c : eights(forward ? z.k : z.c));
  gather.unscale = static_cast<const float2*>(operands.unscale);
  gather.out_count =
      z.n * gather.out_h * gather.out_w * static_cast<std::int64_t>(gather.out_channels);
  gather.every_h = geometry.high[0].every;
  gather.every_w = geometry.wide[0].every;
  gather.depth = narrow(eights(forward ? z.c : z.k));
  gather.width = plan.width;
  gather.height = plan.height;
  gather.tile_images = plan.images;
  gather.patch_bytes = plan.patch_w * plan.patch_h * plan.images * shape.chunk * 2;
  gather.patch_stage_bytes = plan.patch_stage_bytes;
  gather.patch_stages = plan.patch_stages;
  gather.weight_stages = plan.weight_stages;
  gather.resident_taps = plan.weights_stay ? plan.taps.taps : 0;
  gather.zeros_behind = plan.zeros_behind;
  gather.splits = plan.splits;
  gather.column_tiles = plan.column_tiles;
  gather.tiles = plan.row_tiles * plan.splits * plan.column_tiles;
  gather.by_column_tiles = FastDivisor(plan.column_tiles);
  gather.by_splits = FastDivisor(plan.splits);
  gather.by_pitch = FastDivisor(plan.pitch);
  gather.by_lines = FastDivisor(plan.lines);
  gather.taps = plan.taps;
  gather.moments = operands.moments;
  const bool with_moments = operands.moments != nullptr && plan.splits == 1;
  const Kernels& kernels = plan.from_f32 ? f32_kernels() : kernels_of(z);
  launch(fp16x3         ? fp16x3_kernel(plan.shape)
         : with_moments ? tf32_moment_kernels().gather[plan.shape]
                        : kernels.gather[forward ? 0 : 1][plan.shape],
         {.grid = dim3(static_cast<unsigned>(gather_blocks(plan, with_moments))),
          .block = dim3(kGatherThreads),
          .shared_bytes = plan.shared_bytes,
          .overlaps_previous = true},
         gather);
  if (plan.splits == 1) return;
  if (operands.moments != nullptr) {
    const auto walk = walk_over_y(z);
    return launch(sum_with_moments_kernel, walk.shape(), gather, walk);
  }
  LaunchShape sums = grid_for(gather.out_count / (is_scaled(z) ? 4 : 8));
  sums.overlaps_previous = true;
  if (is_scaled(z)) return launch(sum_gathered_floats_kernel<float>, sums, gather);
  with_half(z, [&](auto half) { launch(sum_gathered_kernel<decltype(half)>, sums, gather); });
}

std::int64_t weight_parts(const Conv2dProblem& z, const TmaWeightTiling& plan) {
  return plan.direct ? 0 : plan.splits * packed_count(z);
}

void run_weight(const Conv2dProblem& z, const TmaWeightTiling& plan,
                const WeightOperands& operands) {
  const auto& [x, dy, low_x, low_dy, unscale, parts, dw, accumulate] = operands;
  const bool fp16x3 = plan.planes == 2;  // f32 as two planes
  const WeightShape& shape = shape_of(plan);
  const Geometry geometry(z, Direction::backward_weight);
  WeightGather gather;
  const std::int64_t k = eights(z.k), p = z.p(), q = z.q();
  TensorMapShape errors = images_shape(z.n, p, q, z.k);
  if (plan.columns_apart) {
    errors.sizes[1] = plan.width;
    errors.sizes[2] = q / plan.width;
    errors.strides[2] = plan.width * k;
  }
  errors.box[1] = plan.errors_w;
  errors.box[3] = plan.errors_h;
  errors.box[4] = plan.images;
  gather.errors = encode_tensor_map(dy.fp16, errors);
  gather.step_h = geometry.high[0].step;
  gather.step_w = geometry.wide[0].step;
  TensorMapShape pixels = images_shape(z.n, z.h, z.w, z.c);
  pixels.box[1] = plan.patch_w;
  pixels.box[3] = plan.patch_h;
  pixels.box[4] = plan.images;
  pixels.steps[1] = gather.step_w;
  pixels.steps[3] = gather.step_h;
  pixels.box[0] = shape.columns;
  gather.pixels = encode_tensor_map(x.fp16, pixels);
  if (fp16x3) {
    gather.low_errors = encode_tensor_map(low_dy, errors);
    gather.low_pixels = encode_tensor_map(low_x, pixels);
  }
  gather.parts = parts;
  gather.pixels_scale = x.scale;
  gather.errors_scale = dy.scale;
  gather.unscale = static_cast<const float2*>(unscale);
  gather.k = narrow(z.k);
  gather.channels = narrow(eights(z.c));
  gather.kernel = narrow(z.r * z.s);
  if (plan.direct) {
    gather.dw = dw;
    gather.dw_is_f32 = weight_type(z) == DType::f32;
    gather.accumulate = accumulate;
    gather.real_channels = narrow(z.c);
    gather.store_pitch = plan.store_pitch;
    gather.dw_in_fours = z.c * z.r * z.s % 4 == 0 && reinterpret_cast<std::uintptr_t>(dw) % 16 == 0;
  }
  gather.splits = plan.splits;
  gather.steps = plan.tiles_w * plan.tiles_h * plan.tiles_n;
  gather.k_blocks = plan.k_blocks;
  gather.c_blocks = plan.c_blocks;
  gather.tap_count = plan.tap_count;
  gather.k_tiles = ceil_div(narrow(k), 64 * plan.k_blocks);
  gather.c_tiles = ceil_div(gather.channels, shape.columns * plan.c_blocks);
  gather.tap_tiles = ceil_div(plan.taps.taps, plan.tap_count);
  gather.tiles_w = plan.tiles_w;
  gather.tiles_h = plan.tiles_h;
  gather.width = plan.width;
  gather.height = plan.height;
  gather.images = plan.images;
  gather.columns_apart = plan.columns_apart ? 1 : 0;
  gather.depth = plan.depth;
  gather.errors_bytes = plan.errors_w * plan.errors_h * plan.images * 128;
  gather.pixels_bytes = plan.patch_w * plan.patch_h * plan.images * shape.columns * 2;
  gather.pixels_stage_bytes = plan.pixels_stage_bytes;
  gather.stage_bytes = plan.stage_bytes;
  gather.stages = plan.stages;
  gather.barriers_at = plan.barriers_at;
  gather.taps = plan.taps;
  launch(fp16x3 ? fp16x3_weight_kernel(plan.shape) : kernels_of(z).weight[plan.shape],
         {.grid = dim3(static_cast<unsigned>(gather.k_tiles * gather.c_tiles * gather.tap_tiles),
                       static_cast<unsigned>(plan.splits)),
          .block = dim3(kWeightThreads),
          .shared_bytes = plan.shared_bytes,
          .overlaps_previous = true},
         gather);
  if (plan.direct) return;
  const std::int64_t count = packed_count(z);
  const int width = plan.sum_width;
  with_float_type(weight_type(z), [&](auto out) {
    using Out = decltype(out);
    launch(sum_weights_kernel<Out>,
           {.grid = dim3(static_cast<unsigned>(ceil_div(gather.channels, width)),
                         static_cast<unsigned>(z.k)),
            .block = dim3(kSumThreads),
            .overlaps_previous = true},
           static_cast<const float*>(parts), plan.splits, count, gather.channels, narrow(z.c),
           gather.kernel, width, accumulate, static_cast<Out*>(dw));
  });
}

}  // namespace convscope::implicit_gemm_tma

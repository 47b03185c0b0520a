// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_run.h: the launches of the three directions, and the table of kernels.
#pragma once

#include <cstdint>
#include <iterator>

#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope::implicit_gemm_tma {

struct Gather;
struct WeightGather;

// The kernels of one element type.
struct Kernels {
  void (*gather[2][kGatherShapeCount])(Gather);  // forward, backward_data
  void (*weight[std::size(kWeightShapes)])(WeightGather);
};
const Kernels& f16_kernels();
const Kernels& bf16_kernels();
const Kernels& tf32_kernels();  // scaled f16 operands, f32 results
const Kernels& f32_kernels();   // f32 operands and results; no backward_weight

// The forward kernel of each shape that also stores mean and spread of y's channels, or null.
struct MomentKernels {
  void (*gather[kGatherShapeCount])(Gather);
};
const MomentKernels& tf32_moment_kernels();

inline DType weight_type(const Conv2dProblem& z) { return z.operand_types().w; }
// Returns the number of elements of packed w [K][R S][C rounded up].
inline std::int64_t packed_count(const Conv2dProblem& z) {
  return z.k * z.r * z.s * ((z.c + 7) / 8 * 8);
}
// Below this number, weights are packed one by one.
inline constexpr std::int64_t kFewWeights = 1 << 17;
// Returns whether the operands of a problem are scaled f16 (half_operands.h).
inline bool is_scaled(const Conv2dProblem& z) { return z.dtype == DType::f32; }
// Returns the bytes of packed weights, for f32 images including a scale.
inline std::size_t packed_bytes(const Conv2dProblem& z) {
  return is_scaled(z) ? half_operands_bytes(packed_count(z))
                      : static_cast<std::size_t>(packed_count(z)) * 2;
}
void pack_weights(const Conv2dProblem& problem, const void* w, void* packed);
// Returns how many f32 elements the transposed weights have, for products that read f32 directly.
std::int64_t transposed_count(const Conv2dProblem& problem, Direction direction);
void transpose_weights(const Conv2dProblem& problem, Direction direction, const float* w,
                       float* transposed);
// Returns the fp16 operands of an f32 image: `given` if it is set, else operands made in `block`.
HalfOperands operands_of_image(const HalfOperands& given, const void* image, const Shape& shape,
                               void* block);
struct ImageOperands {
  HalfOperands x, dy;
};
ImageOperands operands_of_images(const Conv2dProblem& problem, const ImageOperands& given,
                                 const void* x, const void* dy, void* x_block, void* dy_block);

struct GatherOperands {
  const void* in = nullptr;  // x or dy; for f32 images their fp16 operands, unless from_f32
  const float* in_scale = nullptr;
  const void* packed = nullptr;  // by pack_weights(), or by transpose_weights() if from_f32
  void* out = nullptr;           // y or dx
  const void* bias = nullptr;
  const void* residual = nullptr;
  bool relu = false;
  float* parts = nullptr;
  const void* unscale = nullptr;  // float2, for two planes
  // Destination of the statistics of y, for a forward pass without residual and ReLU: f32
  // [moment_parts()][4][channels] (framework/cuda/channel_moments.cuh). Null: no statistics.
  float* moments = nullptr;
};
void (*fp16x3_kernel(int shape))(Gather);  // index into kFp16x3Shapes
std::int64_t gather_parts(const Conv2dProblem& z, Direction direction, const GatherPlan& plan);
// Returns the number of parts of the statistics, or 0 where forward computes no statistics.
std::int64_t moment_parts(const Conv2dProblem& z, const GatherPlan& plan);
void run_gather(const Conv2dProblem& problem, Direction direction, const GatherPlan& plan,
                const GatherOperands& operands);

struct WeightOperands {
  HalfOperands x, dy;  // as the kernels read them; scale null: not scaled
  // For two planes: the low planes, and the factor (float2) that undoes the scales of x and dy.
  const void* low_x = nullptr;
  const void* low_dy = nullptr;
  const void* unscale = nullptr;
  float* parts = nullptr;  // [weight_parts()]
  void* dw = nullptr;
  bool accumulate = false;
};
void (*fp16x3_weight_kernel(int shape))(WeightGather);  // index into kFp16x3WeightShapes
std::int64_t weight_parts(const Conv2dProblem& problem, const TmaWeightTiling& plan);
void run_weight(const Conv2dProblem& problem, const TmaWeightTiling& plan,
                const WeightOperands& operands);

}  // namespace convscope::implicit_gemm_tma

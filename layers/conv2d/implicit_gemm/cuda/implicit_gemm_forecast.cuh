// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_forecast.cuh: corrects the estimated time for storing the sums of backward_weight,
// for packing w, and for the bytes read. The corrections are fitted to times of one H200 on listed
// and random layers. A fit to either half of the layers gave similar numbers.
// Read next  implicit_gemm_cuda.cu: cost()
#pragma once

#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_choice.cuh"
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_pack.cuh"
#include "layers/conv2d/shared/cuda/seen_pixels.h"

namespace convscope::implicit_gemm {

// Constants of backward_weight without packing. kLastGrid: ratio of the grid's measured time to its
// estimate. kLastStoreUs: time to store an element of dw if the kernel has at most kTransposeTaps
// taps. kLastApartUs: the same with more taps, where the elements of a thread are farther apart.
// kSixteenPartsUs: time for each 16 parts, which a thread reads at once.
inline constexpr double kLastGrid = 0.87, kLastStoreUs = 8.4e-6, kLastApartUs = 12.5e-6;
inline constexpr double kLastSumUs = 1.1, kSixteenPartsUs = 0.77;
inline double last_weight_us(const ImplicitGemmTiling& plan) {
  const auto numbers = static_cast<double>(plan.out_count);
  const double sums_us = 2 * 4 * numbers * plan.splits / kPartBytesPerUs;
  const double grid_us = plan.us - numbers / kWeightPerUs - kPartsUs - sums_us;
  const bool apart = plan.z.r * plan.z.s > kTransposeTaps;
  return kLastGrid * grid_us + (apart ? kLastApartUs : kLastStoreUs) * numbers + sums_us +
         kLastSumUs + kSixteenPartsUs * ceil_div(plan.splits, 16);
}

// Returns how many bytes a plain copy moves in the time in which one byte of w is packed. The
// number depends on the taps, and on whether w is read in order or as single, distant elements.
inline double pack_bytes(const ImplicitGemmTiling& plan, Direction direction) {
  const bool forward = direction == Direction::forward;
  const bool few = plan.z.r * plan.z.s <= kTransposeTaps;
  if (!plan.is_packed()) return forward && few ? 0.8 : 1.5;
  return !few ? 6 : forward && plan.z.w_shape().numel() >= kTransposeLeast ? 1.65 : 3.2;
}

// Constants for NHWC fp16/bf16, fitted to the forward times of two sets of random layers with 1, 8
// and 32 images and checked on two other sets. kGapsTimes: reading taps whose pixels are not
// adjacent takes longer. Prepared weights save the packing itself. They also save kFewBlocksUs
// where some SMs have no block, and kSummedUs where parts are added.
inline constexpr double kGapsTimes = 1.09, kFewBlocksUs = 0.8, kSummedUs = 0.5;
inline double gaps_times(const ImplicitGemmTiling& plan, Direction direction) {
  const Conv2dProblem& z = plan.z;
  const bool gaps =
      std::max({z.stride_h, z.stride_w, z.dilation_h, z.dilation_w}) > 1 && z.r * z.s > 1;
  return plan.is_packed() && direction == Direction::forward && gaps ? kGapsTimes : 1;
}
inline double prepared_us(const ImplicitGemmTiling& plan) {
  return (plan.blocks <= cuda_device_facts().multiprocessors ? kFewBlocksUs : 0) +
         (plan.splits > 1 ? kSummedUs : 0);
}

// Returns the bytes of the tensors that the call reads or writes. Pixels of x that no tap reads do
// not count, unless x is packed, because packing reads all of x.
inline double seen_bytes(const ImplicitGemmTiling& plan, Direction direction) {
  const Conv2dProblem& z = plan.z;
  if (!plan.is_packed() || direction == Direction::backward_data) return z.nominal_bytes();
  return z.nominal_bytes() - (1 - seen_part_of_x(z)) * static_cast<double>(z.x_shape().numel()) *
                                 static_cast<double>(size_of(z.dtype));
}

}  // namespace convscope::implicit_gemm

// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_forecast.cuh: what the card forecasts beside the plan's own estimate: the sums of
// backward_weight, packing w, and the bytes that are read. Fitted to times of one H200: layers of
// the lists and of random draws; halves of them gave similar numbers.
// Read next  implicit_gemm_cuda.cu: cost()
#pragma once

#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_choice.cuh"
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_pack.cuh"
#include "layers/conv2d/shared/cuda/seen_pixels.h"

namespace convscope::implicit_gemm {

// backward_weight where nothing is packed: its grid, beside the plan's estimate; to store a number,
// of at most kTurnTaps taps and of more, which lie apart; and to sum parts, of which a thread reads
// sixteen at a time.
inline constexpr double kLastGrid = 0.87, kLastStoreUs = 8.4e-6, kLastApartUs = 12.5e-6;
inline constexpr double kLastSumUs = 1.1, kSixteenPartsUs = 0.77;
inline double last_weight_us(const Plan& plan) {
  const auto numbers = static_cast<double>(plan.out_count);
  const double sums_us = 2 * 4 * numbers * plan.splits / kPartBytesPerUs;
  const double grid_us = plan.us - numbers / kWeightPerUs - kPartsUs - sums_us;
  const bool apart = plan.z.r * plan.z.s > kTurnTaps;
  return kLastGrid * grid_us + (apart ? kLastApartUs : kLastStoreUs) * numbers + sums_us +
         kLastSumUs + kSixteenPartsUs * ceil_div(plan.splits, 16);
}

// Bytes of a copy for each byte of w to pack: in its order, or by single numbers that lie apart,
// of few taps and of many.
inline double pack_bytes(const Plan& plan, Direction direction) {
  const bool forward = direction == Direction::forward;
  const bool few = plan.z.r * plan.z.s <= kTurnTaps;
  if (!plan.is_packed()) return forward && few ? 0.8 : 1.5;
  return !few ? 6 : forward && plan.z.w_shape().numel() >= kTurnLeast ? 1.65 : 3.2;
}

// Of halves with channels last, fitted to forward of two draws of random layers with 1, 8 and 32
// images, and seen on two others. Taps whose pixels lie apart are read with gaps, which takes
// longer. With weights that are prepared a call takes less than without, beside packing: where not
// every multiprocessor has a block, and where parts are summed.
inline constexpr double kGapsTimes = 1.09, kFewBlocksUs = 0.8, kSummedUs = 0.5;
inline double gaps_times(const Plan& plan, Direction direction) {
  const Conv2dProblem& z = plan.z;
  const bool gaps = z.stride_h * z.stride_w * z.dilation_h * z.dilation_w > 1 && z.r * z.s > 1;
  return plan.is_packed() && direction == Direction::forward && gaps ? kGapsTimes : 1;
}
inline double prepared_us(const Plan& plan) {
  return (plan.blocks <= cuda_device_facts().multiprocessors ? kFewBlocksUs : 0) +
         (plan.splits > 1 ? kSummedUs : 0);
}

// Bytes of the problem that are read or written. What is packed is read as a whole.
inline double seen_bytes(const Plan& plan, Direction direction) {
  const Conv2dProblem& z = plan.z;
  if (!plan.is_packed() || direction == Direction::backward_data) return z.nominal_bytes();
  return z.nominal_bytes() - (1 - seen_part_of_x(z)) * static_cast<double>(z.x_shape().numel()) *
                                 static_cast<double>(size_of(z.dtype));
}

}  // namespace convscope::implicit_gemm

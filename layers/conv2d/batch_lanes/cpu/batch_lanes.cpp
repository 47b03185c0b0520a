// SPDX-License-Identifier: Apache-2.0
// batch_lanes.cpp: the buffer sizes of a convolution with SAMPLES IN THE VECTOR LANES, for networks
// of few channels (LeNet), and the copies between NCHW and lanes.
#include "layers/conv2d/batch_lanes/cpu/batch_lanes.h"

#include <algorithm>

#include "framework/check.h"
#include "framework/ops/gemm/gemm_kernels.h"

namespace convscope {

constinit IsaTable<LanesKernels> lanes_kernels;

const char* LanesConv::refusal(const Conv2dProblem& problem, int lanes) {
  if (problem.dtype != DType::f32) return "expects elements of type f32";
  if (problem.groups != 1) return "expects groups 1";
  if (problem.dilation_h != 1 || problem.dilation_w != 1) return "expects dilation 1";
  if (lanes != 4 && lanes != 8 && lanes != 16) return "expects 4, 8 or 16 lanes";
  if (lanes != 16 && problem.stride_w != 1) return "expects horizontal stride 1 or 16 lanes";
  return "";
}

LanesConv::LanesConv(const Conv2dProblem& problem, int lane_count, bool with_relu, bool with_pool)
    : c(problem.c),
      h(problem.h),
      w(problem.w),
      k(problem.k),
      r(problem.r),
      s(problem.s),
      stride_h(problem.stride_h),
      stride_w(problem.stride_w),
      pad_top(problem.pad_top),
      pad_left(problem.pad_left),
      lanes(lane_count),
      relu(with_relu),
      pool2x2(with_pool),
      padded(problem.pad_top != 0 || problem.pad_bottom != 0 || problem.pad_left != 0 ||
             problem.pad_right != 0) {
  const char* const reason = refusal(problem, lanes);
  CONVSCOPE_CHECK(reason[0] == 0, "conv2d", reason, " because samples are in the lanes, got ",
                  problem.text(), " and ", lanes, " lanes");
  y_p = pool2x2 ? problem.p() / 2 : problem.p();
  y_q = pool2x2 ? problem.q() / 2 : problem.q();
  CONVSCOPE_CHECK(y_p >= 1 && y_q >= 1, "max_pool2d",
                  "expected an image of at least 2x2 pixels, got ", problem.p(), "x", problem.q());
  conv_p = pool2x2 ? 2 * y_p : y_p;
  conv_q = pool2x2 ? 2 * y_q : y_q;
  padded_h = (conv_p - 1) * stride_h + r;
  padded_w = (conv_q - 1) * stride_w + s;
  x_floats = c * h * w * lanes;
  y_floats = k * y_p * y_q * lanes;
  winner_bytes = pool2x2 ? y_floats : 0;
  gradient_floats = k * conv_p * conv_q * lanes;
  weight_floats = k * c * r * s;
  sums_floats = (weight_floats + k) * 16;
  const std::int64_t copy = padded ? c * padded_h * padded_w * lanes : 0;
  // A row shorter than one vector is convolved into scratch memory first and pooled afterwards.
  forward_scratch_floats = copy + (pool2x2 && conv_q * lanes < 16 ? gradient_floats : 0);
  backward_data_scratch_floats = k * (h + r - 1) * (w + s - 1) * lanes;
  backward_weight_scratch_floats = copy;
  split_floats = (y_q * lanes + 15) / 16 * 16 + (s / 2 + 1) * lanes;
  backward_scratch_floats =
      gradient_floats + std::max({backward_data_scratch_floats, backward_weight_scratch_floats,
                                  pool2x2 && lanes < 16 ? 2 * c * padded_h * split_floats : 0});
}

void samples_to_lanes(const float* from, std::int64_t samples, std::int64_t size, int lanes,
                      float* to) {
  const auto own = lanes_kernels.get().to_lanes;
  if (own != nullptr) return own(from, samples, size, lanes, to);
  if (samples < lanes) std::fill_n(to, size * lanes, 0.0f);
  gemm_kernels.get().transpose(from, size, samples, size, to, lanes);
}

void lanes_to_samples(const float* from, std::int64_t samples, std::int64_t size, int lanes,
                      float* to) {
  const auto own = lanes_kernels.get().from_lanes;
  if (own != nullptr) return own(from, samples, size, lanes, to);
  gemm_kernels.get().transpose(from, lanes, size, samples, to, size);
}

}  // namespace convscope

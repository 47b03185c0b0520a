// SPDX-License-Identifier: Apache-2.0
// fft_depthwise.h: depthwise convolution by FFT, one channel with one kernel; the card of
// fft_cpu.cpp calls it.
#pragma once

#include <cstddef>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.h"
#include "layers/conv2d/fft/cpu/fft_plan.h"

namespace convscope::fft {

std::size_t depthwise_bytes(const Plan& plan);
// The spectra of all kernels, for depthwise_pass().
std::size_t depthwise_prepared_bytes(const Plan& plan);
void depthwise_prepare(const Plan& plan, const float* w, float* prepared, float* workspace);
// forward and backward_data, from `in` to `out`.
void depthwise_pass(const Plan& plan, const void* in, const void* prepared, const void* b,
                    void* out, void* workspace, const FusedEpilogue& epilogue);
void depthwise_weights(const Plan& plan, const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::fft

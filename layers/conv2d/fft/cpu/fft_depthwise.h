// SPDX-License-Identifier: Apache-2.0
// fft_depthwise.h: depthwise convolution by FFT, with one kernel for each channel; called by
// fft_cpu.cpp.
#pragma once

#include <cstddef>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/fft/cpu/fft_plan.h"
#include "layers/conv2d/shared/data_pass.h"

namespace convscope::fft {

std::size_t depthwise_bytes(const FftTiling& plan);
// Returns the bytes of the spectra of all kernels, which depthwise_pass() reads.
std::size_t depthwise_prepared_bytes(const FftTiling& plan);
void depthwise_prepare(const FftTiling& plan, const float* w, float* prepared, float* workspace);
// Computes forward and backward_data.
void depthwise_pass(const FftTiling& plan, const DataPass& data);
void depthwise_weights(const FftTiling& plan, const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::fft

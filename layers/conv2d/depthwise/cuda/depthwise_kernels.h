// SPDX-License-Identifier: Apache-2.0
// depthwise_kernels.h: launch functions of depthwise_*_cuda.cu, called by depthwise_cuda.cu.
#pragma once

#include <cstddef>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/depthwise/cuda/depthwise_tiling.h"

namespace convscope::depthwise {

// Tells whether the kernels with tiles in shared memory support the problem. They need square
// kernels of 3, 5 or 7, stride 1 or 2, no dilation, no multiplier, and planes that are narrow
// enough.
bool fits_tiles(const Conv2dProblem& problem, Direction direction);

// Computes y = relu(b + x * w + residual).
void forward_by_tiles(const Conv2dForwardArgs& args);
// Computes dx of stride 1 by the forward kernel, from dy and the kernel rotated by 180 degrees.
void backward_data_as_forward(const Conv2dBackwardDataArgs& args);
// Computes dx of stride 2: one load of dy is used for all four parities of (row, column).
void backward_data_by_parities(const Conv2dBackwardDataArgs& args);
// Computes partial[K R S][slices], the weight gradient of each slice of the batch.
void backward_weight_by_tiles(const Conv2dBackwardWeightArgs& args);
int weight_slices_by_tiles(const Conv2dProblem& problem);
// Returns the tiling of these kernels for aligned operands, for costs.
DepthwiseTiling tiling_of_forward(const Conv2dProblem& problem, Direction direction);
DepthwiseTiling tiling_of_parities(const Conv2dProblem& problem);
DepthwiseTiling tiling_of_weight(const Conv2dProblem& problem);

// Tells whether to use the kernels without tiles, which load a window of x from memory to
// registers. They are used for 3x3 with stride 2, and when planes are so few that one thread for
// each 4 or 2 results does not fill the device. Rows must be aligned and a multiple of 4 or 2
// elements.
bool fits_window(const Conv2dProblem& problem, Direction direction, const void* source,
                 const void* target, const void* residual);
void forward_by_window(const Conv2dForwardArgs& args);
void backward_data_by_window(const Conv2dBackwardDataArgs& args);
// Tells whether to use the kernel without tiles for dw. It serves channels with few pixels, in one
// launch without slices.
bool fits_window_weight(const Conv2dProblem& problem, const void* x, const void* dy);
void backward_weight_by_window(const Conv2dBackwardWeightArgs& args);

// Tells whether planes are 7x7 or 14x14, so that whole rows fit registers. backward_data needs
// stride 1.
bool fits_small_planes(const Conv2dProblem& problem, const void* source, const void* target);
void forward_of_small_planes(const Conv2dForwardArgs& args);
void backward_data_of_small_planes(const Conv2dBackwardDataArgs& args);
void backward_weight_of_small_planes(const Conv2dBackwardWeightArgs& args);
int weight_slices_of_small_planes(const Conv2dProblem& problem);

// Tells whether the kernels for many taps support the problem: up to 63x63 taps, strides of 1 to 3,
// no dilation, no multiplier, any float type. They add rows to accumulators in registers.
bool fits_large(const Conv2dProblem& problem, Direction direction);
void forward_of_large_kernels(const Conv2dForwardArgs& args);
void backward_data_of_large_kernels(const Conv2dBackwardDataArgs& args);
void backward_weight_of_large_kernels(const Conv2dBackwardWeightArgs& args);
int weight_slices_of_large_kernels(const Conv2dProblem& problem);

// Tells whether to use the kernels that split a large kernel over threads: strides of 2, or few
// planes.
bool fits_split(const Conv2dProblem& problem, Direction direction);
void forward_by_split(const Conv2dForwardArgs& args);
void backward_data_by_split(const Conv2dBackwardDataArgs& args);
// Tells whether dw needs so few products that one launch without slices is faster.
bool fits_split_weight(const Conv2dProblem& problem);
void backward_weight_by_split(const Conv2dBackwardWeightArgs& args);

// Computes one element per thread, for any kernel, stride, dilation, multiplier and float type.
void forward_by_elements(const Conv2dForwardArgs& args);
void backward_data_by_elements(const Conv2dBackwardDataArgs& args);
void backward_weight_by_elements(const Conv2dBackwardWeightArgs& args);
int weight_slices_by_elements(const Conv2dProblem& problem);

// Adds up partial[K R S][slices] over the slices in a fixed order, and assigns the sums to dw or
// adds them to it.
void sum_slices(const Conv2dBackwardWeightArgs& args, int slices);

}  // namespace convscope::depthwise

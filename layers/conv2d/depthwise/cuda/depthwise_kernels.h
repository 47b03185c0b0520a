// SPDX-License-Identifier: Apache-2.0
// depthwise_kernels.h: the launchers of depthwise_*_cuda.cu, called by depthwise_cuda.cu.
#pragma once

#include <cstddef>

#include "layers/conv2d/algorithm.h"

namespace convscope::depthwise {

// Returns whether tiles in shared memory support it: square kernels of 3, 5 or 7 with stride 1 or
// 2, no dilation and no multiplier, planes narrow enough.
bool fits_tiles(const Conv2dProblem& problem, Direction direction);

// Computes y = relu(b + x * w + residual).
void forward_by_tiles(const Conv2dForwardArgs& args);
// Computes dx of stride 1: a forward pass over dy with the kernel rotated by 180 degrees.
void backward_data_as_forward(const Conv2dBackwardDataArgs& args);
// Computes dx of stride 2: the four parities of (row, column) from the same loads of dy.
void backward_data_by_parities(const Conv2dBackwardDataArgs& args);
// Computes partial[K R S][slices]: the gradient of w over each slice of the batch.
void backward_weight_by_tiles(const Conv2dBackwardWeightArgs& args);
int weight_slices_by_tiles(const Conv2dProblem& problem);

// Returns whether windows from memory to registers are used instead of tiles: 3x3 with stride 2, or
// too few planes to fill the device with a thread for each 4 or 2 results. Rows are whole, aligned
// units.
bool fits_window(const Conv2dProblem& problem, Direction direction, const void* source,
                 const void* target, const void* residual);
void forward_by_window(const Conv2dForwardArgs& args);
void backward_data_by_window(const Conv2dBackwardDataArgs& args);
// Returns the same for dw of few pixels for each channel: no slices, one launch.
bool fits_window_weight(const Conv2dProblem& problem, const void* x, const void* dy);
void backward_weight_by_window(const Conv2dBackwardWeightArgs& args);

// Returns whether planes are 7x7 or 14x14: whole rows in registers. backward_data: stride 1.
bool fits_small_planes(const Conv2dProblem& problem, const void* source, const void* target);
void forward_of_small_planes(const Conv2dForwardArgs& args);
void backward_data_of_small_planes(const Conv2dBackwardDataArgs& args);
void backward_weight_of_small_planes(const Conv2dBackwardWeightArgs& args);
int weight_slices_of_small_planes(const Conv2dProblem& problem);

// Returns whether the kernel is up to 63x63, strides of 1 to 3, no dilation and no multiplier, any
// float type: rows are added to accumulators in registers.
bool fits_large(const Conv2dProblem& problem, Direction direction);
void forward_of_large_kernels(const Conv2dForwardArgs& args);
void backward_data_of_large_kernels(const Conv2dBackwardDataArgs& args);
void backward_weight_of_large_kernels(const Conv2dBackwardWeightArgs& args);
int weight_slices_of_large_kernels(const Conv2dProblem& problem);

// Returns whether a large kernel has strides up to 2, or few planes: small pieces in a thread.
bool fits_split(const Conv2dProblem& problem, Direction direction);
void forward_by_split(const Conv2dForwardArgs& args);
void backward_data_by_split(const Conv2dBackwardDataArgs& args);
// Returns whether dw has few products: no slices, one launch.
bool fits_split_weight(const Conv2dProblem& problem);
void backward_weight_by_split(const Conv2dBackwardWeightArgs& args);

// Computes any kernel, stride, dilation, multiplier and float type: one thread for each element.
void forward_by_elements(const Conv2dForwardArgs& args);
void backward_data_by_elements(const Conv2dBackwardDataArgs& args);
void backward_weight_by_elements(const Conv2dBackwardWeightArgs& args);
int weight_slices_by_elements(const Conv2dProblem& problem);

// Computes dw = or += the sum of partial[K R S][slices] over the slices, in a fixed order.
void sum_slices(const Conv2dBackwardWeightArgs& args, int slices);

}  // namespace convscope::depthwise

// SPDX-License-Identifier: Apache-2.0
#include "layers/conv2d/depthwise/cuda/depthwise_backward.h"

namespace convscope {

constinit KernelSlot<const DepthwiseBackward&()> depthwise_backward_kernel{"conv2d backward"};

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// deform_backward.h: the backward directions of fused deformable convolution.
#pragma once

#include "layers/deform_conv2d/algorithm.h"

namespace convscope::deform {

std::size_t data_bytes(const DeformConv2dProblem& problem);  // of workspace
std::size_t data_prepared_bytes(const DeformConv2dProblem& problem);
void prepare_data_weights(const PrepareArgs<DeformConv2dProblem>& args);
void fused_backward_data(const DeformConv2dBackwardDataArgs& args);

std::size_t weight_bytes(const DeformConv2dProblem& problem);
void fused_backward_weight(const DeformConv2dBackwardWeightArgs& args);

}  // namespace convscope::deform

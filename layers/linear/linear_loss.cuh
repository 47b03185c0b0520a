// SPDX-License-Identifier: Apache-2.0
// linear_loss.cuh: linear_loss_cuda.cu, for the table in linear_fused_cuda.cu.
#pragma once

#include "layers/linear/linear_fused.h"

namespace convscope {

LinearLoss linear_loss_on_cuda();

}  // namespace convscope

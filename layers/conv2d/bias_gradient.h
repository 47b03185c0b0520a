// SPDX-License-Identifier: Apache-2.0
// bias_gradient.h: db[k] = sum over n, p, q of dy[n,k,p,q], for all algorithms.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Computes db [K] from dy [N,K,P,Q]: added to when `accumulate`, assigned otherwise. Supports f32
// and f64; on the CPU also f32 dy [N,K/16,P,Q,16]; on a GPU also fp16/bf16 dy [N,1,P,Q,Kp] with f32
// db.
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const Tensor& db, bool accumulate)>
    conv2d_bias_gradient_kernel;

}  // namespace convscope

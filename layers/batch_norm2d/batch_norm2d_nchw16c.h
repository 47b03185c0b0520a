// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_nchw16c.h: the kernels of batch norm on images stored as [N,C/16,H,W,16], f32. C is
// the number of elements of the weight; lanes after the last channel are read as 0 and written as
// 0.
#pragma once

#include "layers/batch_norm2d/batch_norm2d_fused.h"

namespace convscope {

void nchw16c_batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& factor,
                              const Tensor& shift, const Tensor& y);
void nchw16c_batch_norm_train(const BatchNormTrainArgs& args);
void nchw16c_batch_norm_train_gradient(const BatchNormTrainGradientArgs& args);

}  // namespace convscope

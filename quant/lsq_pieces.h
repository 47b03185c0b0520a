// SPDX-License-Identifier: Apache-2.0
// lsq_pieces.h: the f32 quantiser of lsq.h on a part of its values (a piece), in the calling
// thread, for callers that process a piece while it is in cache. All values share one step, on the
// CPU.
#pragma once

#include "quant/lsq.h"

namespace convscope {

void lsq_forward_piece(const Tensor& step, const LsqRule& rule, const float* v, float* y,
                       std::int64_t count);
// Returns the sum of dy d(v_hat)/ds over the piece; dv as in lsq.h.
double lsq_backward_piece(const Tensor& step, const LsqRule& rule, const float* dy, const float* v,
                          float* dv, std::int64_t count);
// Returns the gradient of the step's parameter from the sum over all values.
double lsq_step_gradient(const Tensor& step, const LsqRule& rule, double sum);

}  // namespace convscope

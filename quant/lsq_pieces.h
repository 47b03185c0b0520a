// SPDX-License-Identifier: Apache-2.0
// lsq_pieces.h: the f32 quantiser of lsq.h for a contiguous part (piece) of a tensor that has one
// step size. It runs in the calling thread on the CPU, for callers that process a piece while it is
// in cache.
#pragma once

#include "quant/lsq.h"

namespace convscope {

void lsq_forward_piece(const Tensor& step, const LsqRule& rule, const float* v, float* y,
                       std::int64_t count);
// Assigns dv as in lsq.h, and returns the sum of dy d(v_hat)/ds over the piece.
double lsq_backward_piece(const Tensor& step, const LsqRule& rule, const float* dy, const float* v,
                          float* dv, std::int64_t count);
// Returns the gradient of the parameter (s or log s). `sum` is the sum of dy d(v_hat)/ds over all
// pieces.
double lsq_step_gradient(const Tensor& step, const LsqRule& rule, double sum);

}  // namespace convscope

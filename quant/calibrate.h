// SPDX-License-Identifier: Apache-2.0
// calibrate.h: a first step size from the values that will be rounded.
//
// Rules       max_abs     s = max|v| / Qp: nothing is clipped
//             mean_abs    s = 2 mean|v| / sqrt(Qp), the paper's start
//             mse         the s with the least sum of (v_hat - v)^2, of 100 multiples of
//                         max|v| / (100 Qp)
//             percentile  as max_abs, with the given percentile of |v| for the maximum
//             On an unsigned grid |v| means max(v, 0). With skip_zeros the mean and the percentile
//             are those of the other values: of a pruned weight, whose zeros no step has to fit.
// Shapes      v [K,...] -> s [1], or [K] by channel
// Numerics    sums in double in one fixed order; only mse uses threads (one candidate each)
#pragma once

#include "framework/tensor.h"
#include "quant/integer_grid.h"

namespace convscope {

enum class StepRule { max_abs, mean_abs, mse, percentile };

// A row of zeros gets the largest step of the other rows; zeros alone get 1 / Qp. NaN or infinity
// in v is an error.
CONVSCOPE_API Tensor calibrated_step(const Tensor& v, const IntegerGrid& grid, StepRule rule,
                                     bool by_channel = false, double percentile = 99.9,
                                     bool skip_zeros = false);

// The sum of (v_hat - v)^2 when the first row's step, or that of all, is s.
CONVSCOPE_API double rounding_error(const Tensor& v, const IntegerGrid& grid, double s);

}  // namespace convscope

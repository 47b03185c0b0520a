// SPDX-License-Identifier: Apache-2.0
// calibrate.h: computes an initial step size from the values that will be rounded.
//
// Rules       max_abs     s = max|v| / Qp: nothing is clipped
//             mean_abs    s = 2 mean|v| / sqrt(Qp), the initial value of the paper
//             mse         the s with the least sum of (v_hat - v)^2, of 100 multiples of
//                         max|v| / (100 Qp)
//             percentile  max_abs with the given percentile of |v| in place of the maximum
//             On an unsigned grid |v| means max(v, 0). skip_zeros excludes zeros from the mean and
//             the percentile: the zeros of a pruned weight must not make the step size smaller.
// Shapes      v [K,...] -> s [1], or [K] by channel
// Numerics    sums in double in one fixed order; only mse uses threads (one candidate each)
#pragma once

#include "framework/tensor.h"
#include "quant/integer_grid.h"

namespace convscope {

enum class StepRule { max_abs, mean_abs, mse, percentile };

// Returns the step sizes. With several rows (channels), a row of zeros gets the largest step size
// of the other rows. If all values are 0, the step size is 1 / Qp. Throws an error if v contains
// NaN or infinity.
CONVSCOPE_API Tensor calibrated_step(const Tensor& v, const IntegerGrid& grid, StepRule rule,
                                     bool by_channel = false, double percentile = 99.9,
                                     bool skip_zeros = false);

// Returns the sum of (v_hat - v)^2 over all values of v, for the step size s.
CONVSCOPE_API double rounding_error(const Tensor& v, const IntegerGrid& grid, double s);

}  // namespace convscope

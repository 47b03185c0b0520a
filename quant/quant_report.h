// SPDX-License-Identifier: Apache-2.0
// quant_report.h: writes the rows of quant.csv, which show the step sizes and the share of clipped
// values in the last observed forward pass.
//
//   step, epoch        completed training steps; their epoch, from 1
//   layer, tensor      "c1"; weight or input. For sums of residual blocks "layer2.0"; input or
//                      shortcut
//   bits, signed       of the grid (integer_grid.h); signed is 0 or 1
//   step_size_*        s: the least, the mean and the largest of all channels
//   saturated_percent  share of values outside the grid, v / s < -Qn or > Qp: of the weights that
//                      are not masked, or of the last batch's inputs
#pragma once

#include <string>
#include <vector>

#include "quant/quantize_network.h"

namespace convscope {

CONVSCOPE_API std::string quant_csv_header();
// Returns one line for each tensor that has been observed, with newlines.
CONVSCOPE_API std::string quant_csv_rows(const std::vector<QuantizedTensor>& tensors,
                                         std::int64_t step, std::int64_t epoch);

}  // namespace convscope

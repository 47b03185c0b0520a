// SPDX-License-Identifier: Apache-2.0
// layer_table.h: what a network consists of: layers.csv, and the words about it in a report.
#pragma once

#include <string>

#include "framework/device.h"
#include "layers/module.h"

namespace convscope {

struct LayerTable {
  std::string csv;           // a row for each layer
  std::string kernel_sizes;  // of the convolutions, each once, first layer first: "5", "7/3", "3x1"
  std::string algorithms;    // of the convolutions: "im2col_gemm"; directions joined by '+'
};

// `input` is the shape of a batch. The algorithms are those that run in a planned training step, or
// with `plans` false those that the policies choose.
CONVSCOPE_API LayerTable layer_table(Module& model, const Shape& input, Device device,
                                     bool plans = true);

}  // namespace convscope

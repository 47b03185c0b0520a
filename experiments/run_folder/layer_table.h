// SPDX-License-Identifier: Apache-2.0
// layer_table.h: what a network consists of: layers.csv, and the words about it in a report.
#pragma once

#include <string>

#include "experiments/run_folder/layer_costs.h"
#include "experiments/run_folder/step_kernels.h"
#include "framework/device.h"
#include "layers/module.h"

namespace convscope {

struct LayerTable {
  std::string csv;           // a row for each layer
  std::string kernel_sizes;  // of the convolutions, each once, first layer first: "5", "7/3", "3x1"
  std::string algorithms;    // of the convolutions: "lanes_chain"; directions joined by '+'
};

// `input` is the shape of a batch, `kernels` are those of a step. The column `step` says how each
// layer's step runs: planned, recorded or dynamic.
// costs: of a training step; null: not known yet. Then forward_ms, backward_ms and kept_mib are
// empty. They are also empty for a layer that runs inside the kernels of another, which
// `timed_with` names. What is timed and is no layer, such as the loss, has a row at the end.
// Where a kernel came out of a plug-in, the column `plugins` names its file. The last one,
// `layout`, says how the images of its kernels lie in a training step.
// inference: the kernels of an inference, for the column of that name, or null: not known yet.
CONVSCOPE_API LayerTable layer_table(Module& model, const Shape& input, const StepKernels& kernels,
                                     const LayerCosts* costs = nullptr,
                                     const StepKernels* inference = nullptr);
// Of a training step; with `plans` false one that runs as a dynamic graph.
CONVSCOPE_API LayerTable layer_table(Module& model, const Shape& input, Device device,
                                     bool plans = true);

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// layer_table.h: the layers of a network: layers.csv, and texts about them in a report.
#pragma once

#include <string>

#include "experiments/run_folder/layer_costs.h"
#include "experiments/run_folder/step_kernels.h"
#include "framework/device.h"
#include "layers/module.h"

namespace convscope {

struct LayerTable {
  std::string csv;           // one row per layer
  std::string kernel_sizes;  // of the convolutions, each once, in layer order: "5", "7/3", "3x1"
  std::string algorithms;    // of the convolutions: "lanes_chain"; directions joined by '+'
};

// Returns the table of layers.csv. `input` is the shape of a batch. `kernels` and `costs` belong to
// a training step, `inference` to the inference at the end of a run. The column `step` is planned,
// recorded or dynamic for each layer. forward_ms, backward_ms and kept_mib come from `costs` and
// are empty if it is null. They are also empty for a layer that another layer's kernels compute;
// `timed_with` names that other layer. `plugins` names the plug-in file of a kernel. The column
// `inference` is empty if the argument `inference` is null. `layout`, the last column, is the image
// layout of the kernels in a training step, or those of x and y (nchw:nchw16c). Timed work outside
// of layers, such as the loss, has a row at the end.
CONVSCOPE_API LayerTable layer_table(Module& model, const Shape& input, const StepKernels& kernels,
                                     const LayerCosts* costs = nullptr,
                                     const StepKernels* inference = nullptr);
// Returns the table of a training step that has not run. If `plans` is false, the step is a dynamic
// graph.
CONVSCOPE_API LayerTable layer_table(Module& model, const Shape& input, Device device,
                                     bool plans = true, const Loss& loss = Loss());

// Returns the FLOPs of a forward pass of a layer with several algorithms, or of a linear layer; 0
// for others.
CONVSCOPE_API double forward_flops(const Module& layer, const Shape& input);

}  // namespace convscope

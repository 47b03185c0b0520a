// SPDX-License-Identifier: Apache-2.0
// sparsity_report.h: counts the weights that the masks really leave, layer by layer. The schedule
// only has a target.
//
//   zeros         pruned weights
//   alive         outputs (filters, units) on a path from the image to the classes
//   flops         FLOPs of one image: 2 for each weight and output position; biases are not counted
//   flops_left    FLOPs without pruned weights, as executed if every zero is skipped. A masked
//                 dense execution executes `flops`.
#pragma once

#include <string>
#include <vector>

#include "sparsity/connectivity.h"

namespace convscope {

struct LayerSparsity {
  std::string name;
  bool pruned = false;  // false: excluded
  std::int64_t weights = 0, zeros = 0;
  std::int64_t outputs = 0, alive = 0;
  double flops = 0, flops_left = 0;  // 0 when the sizes of the images are unknown
  double density() const {
    return weights == 0 ? 1 : 1 - static_cast<double>(zeros) / static_cast<double>(weights);
  }
};

struct SparsityReport {
  std::int64_t step = 0;  // completed training steps
  double wanted = 0;      // share of zeros by the schedule
  std::vector<LayerSparsity> layers;
  LayerSparsity total;   // of all convolutions and linear layers; name "total"
  LayerSparsity pruned;  // of those that are not excluded; name "pruned"
  std::string cut_at;    // layer that nothing passes through; "" when the network is connected
};

// Counts what the masks leave. If masks[l] is undefined, layer l is dense. pruned[l] is false if
// layer l is excluded from pruning.
CONVSCOPE_API SparsityReport sparsity_report(const PrunableNetwork& network,
                                             const std::vector<Tensor>& masks,
                                             const std::vector<bool>& pruned, std::int64_t step,
                                             double wanted);
CONVSCOPE_API std::string sparsity_csv_header();
// Returns one line for each layer, then the total, with newlines.
CONVSCOPE_API std::string sparsity_csv_rows(const SparsityReport& report);
// Returns a table for people, with a final newline.
CONVSCOPE_API std::string sparsity_text(const SparsityReport& report);

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// sparsity_report.h: what the masks have really left, layer by layer: counted, not intended.
//
//   zeros         weights that are out
//   alive         outputs (filters, units) that lie on a path from the image to the classes
//   flops         of one image, 2 for each weight and output position; biases are not counted
//   flops_left    the same without the weights that are out: what an execution that skips every
//                 zero would do. A masked dense execution does them all.
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
  double flops = 0, flops_left = 0;  // 0 when the sizes of the images are not known
  double density() const {
    return weights == 0 ? 1 : 1 - static_cast<double>(zeros) / static_cast<double>(weights);
  }
};

struct SparsityReport {
  std::int64_t step = 0;  // training steps that are done
  double wanted = 0;      // share of zeros that the schedule asks for
  std::vector<LayerSparsity> layers;
  LayerSparsity total;   // of all convolutions and linear layers; name "total"
  LayerSparsity pruned;  // of those that are not excluded; name "pruned"
  std::string cut_at;    // layer that nothing passes; "" when the network is whole
};

// masks[l] undefined: a dense layer. pruned[l]: not excluded.
CONVSCOPE_API SparsityReport sparsity_report(const PrunableNetwork& network,
                                             const std::vector<Tensor>& masks,
                                             const std::vector<bool>& pruned, std::int64_t step,
                                             double wanted);
CONVSCOPE_API std::string sparsity_csv_header();
// One line for each layer, then the total, with newlines.
CONVSCOPE_API std::string sparsity_csv_rows(const SparsityReport& report);
// A table for people, with a final newline.
CONVSCOPE_API std::string sparsity_text(const SparsityReport& report);

}  // namespace convscope

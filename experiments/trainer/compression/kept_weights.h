// SPDX-License-Identifier: Apache-2.0
// kept_weights.h: tells the quantisers of pruned weights how many weights the masks keep. The
// number is needed because only kept weights share a step size (Quantizer::set_kept).
#pragma once

#include <vector>

#include "quant/quantize_network.h"
#include "sparsity/mask.h"

namespace convscope {

struct PrunedQuantizer {
  Quantizer* quantizer;
  const Mask* mask;  // of the same weight
};

CONVSCOPE_API std::vector<PrunedQuantizer> pruned_quantizers(Module& model);
// Counts the kept values. Must be called again when masks have changed.
CONVSCOPE_API void count_kept(const std::vector<PrunedQuantizer>& pruned);

}  // namespace convscope

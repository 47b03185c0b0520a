// SPDX-License-Identifier: Apache-2.0
// kept_weights.h: tells the quantisers of pruned weights how many weights the masks keep. The
// number is needed because only kept weights share a step size (Quantizer::set_kept).
#pragma once

#include "layers/module.h"

namespace convscope {

// Counts the kept values. Must be called again when masks have changed.
CONVSCOPE_API void count_kept(Module& model);

}  // namespace convscope

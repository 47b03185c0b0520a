// SPDX-License-Identifier: Apache-2.0
// weight_size.h: bytes of a trained network's parameters: those that were really stored, and those
// that its bits and zeros would need.
#pragma once

#include "experiments/report/run_data.h"

namespace convscope {

struct WeightSize {
  // Of a quantised run that has ended its model file of integer codes, as large as it is on disk
  // (quant/quantized_file.h), of a pruned one its file of the weights that are left
  // (sparsity/file/sparse_file.h). Else the parameters in the checkpoint, as they lie there.
  // Without these files weight_bytes of summary.json, which was taken from them when the run
  // ended. NaN: not known.
  double stored_bytes = 0;
  // Weights that are not pruned times their bits (quant.csv; 32 without), and all other parameters
  // in 32 bits, in bytes. Without step sizes and without the places of the zeros. NaN: not known.
  double nominal_bytes = 0;
};

CONVSCOPE_API WeightSize weight_size(const RunData& run);

}  // namespace convscope

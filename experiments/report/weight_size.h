// SPDX-License-Identifier: Apache-2.0
// weight_size.h: bytes of a trained network's parameters: as stored, and as its bits and zeros
// would need.
#pragma once

#include "experiments/report/run_data.h"

namespace convscope {

struct WeightSize {
  // The size of the model file on disk for a finished quantised run (quant/quantized_file.h) or
  // pruned run (sparsity/file/sparse_file.h), else of the parameters in the checkpoint. Without
  // these files: weight_bytes of summary.json, which had these sizes when the run ended. NaN:
  // unknown.
  double stored_bytes = 0;
  // Unpruned weights times their bits (quant.csv; 32 without), and all other parameters in 32 bits,
  // in bytes. Step sizes and indices of zeros are not counted. NaN: unknown.
  double nominal_bytes = 0;
};

CONVSCOPE_API WeightSize weight_size(const RunData& run);

}  // namespace convscope

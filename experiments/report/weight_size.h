// SPDX-License-Identifier: Apache-2.0
// weight_size.h: bytes of a trained network's parameters: as stored, and the nominal size, which
// counts unpruned weights with their bits.
#pragma once

#include "experiments/report/run_data.h"

namespace convscope {

struct WeightSize {
  // The size of the model file on disk for a finished quantised run (quant/quantized_file.h) or
  // pruned run (sparsity/file/sparse_file.h), else of the parameters in the checkpoint. Without
  // these files: weight_bytes of summary.json, which had these sizes when the run ended. NaN:
  // unknown.
  double stored_bytes = 0;
  // Nominal bytes: each unpruned weight counts its bits (quant.csv; 32 without it), each other
  // parameter 32 bits. Step sizes and indices of zeros are not counted. NaN: unknown.
  double nominal_bytes = 0;
};

CONVSCOPE_API WeightSize weight_size(const RunData& run);

}  // namespace convscope

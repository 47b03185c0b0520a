// SPDX-License-Identifier: Apache-2.0
// weight_size.h: bytes of a trained network's parameters: as stored, and the nominal size, which
// counts unpruned weights with their bits.
#pragma once

#include "experiments/report/run_data.h"

namespace convscope {

struct WeightSize {
  // Size on disk of the quantised (quant/quantized_file.h) or sparse (sparsity/file/sparse_file.h)
  // model file. Without a model file, it is the size of the parameters in the checkpoint. Without a
  // checkpoint, it is weight_bytes of summary.json, which was measured when the run ended. NaN
  // means unknown.
  double stored_bytes = 0;
  // Bytes of the unpruned weights with the bits in quant.csv (without it 32), plus the bytes of all
  // other parameters. Step sizes and indices of zeros are not counted. NaN means unknown.
  double nominal_bytes = 0;
};

CONVSCOPE_API WeightSize weight_size(const RunData& run);

}  // namespace convscope

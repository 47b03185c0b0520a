// SPDX-License-Identifier: Apache-2.0
// weight_size.h: bytes of a trained network's parameters, both as stored and as a nominal size. In
// the nominal size, each unpruned weight takes its quantised bits.
#pragma once

#include "experiments/report/run_data.h"

namespace convscope {

struct WeightSize {
  // Size on disk of the quantised (quant/quantized_file.h) or sparse (sparsity/file/sparse_file.h)
  // model file. Without a model file, it is the size of the parameters in the checkpoint. Without a
  // checkpoint, it is weight_bytes of summary.json, which was measured when the run ended. NaN
  // means unknown.
  double stored_bytes = 0;
  // Bytes of the unpruned weights, each with its bits in quant.csv (32 bits if the file is
  // missing), plus the bytes of all other parameters. Quantiser step sizes and the indices of
  // sparse weights are not counted. NaN means unknown.
  double nominal_bytes = 0;
};

CONVSCOPE_API WeightSize weight_size(const RunData& run);

}  // namespace convscope

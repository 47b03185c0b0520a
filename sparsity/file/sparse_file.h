// SPDX-License-Identifier: Apache-2.0
// sparse_file.h: a trained pruned network without the weights that its masks leave out, in a
// safetensors file (framework/io/safetensors.h).
//
//   tensor                  type  shape
//   "c1.weight.values"      F32   [kept weights]
//   "c1.weight.bits"        U8    [ceil(pieces / 8)]: which pieces are kept; or
//   "c1.weight.row_begin"   I32   [rows of pieces + 1]: where each begins in columns
//   "c1.weight.columns"     I32   [kept pieces]: the column of each, ascending in its row
//   "c1.weight"             F32   that of the weight, where leaving out saves no bytes
//   "c1.bias", "bn1.running_mean"  F32  all other parameters and buffers, as in the network
//   metadata
//   "format"                "convscope-sparse-1"
//   "sparse"                JSON, for each weight without some of its values: {"c1.weight":
//                           {"shape": [16,6,5,5], "piece": [16,1], "index": "bits"}, ...}
//   "version" "config" "progress" "crc32"  as in a checkpoint (experiments/trainer/checkpoint.h)
//
// Pieces      a weight is a matrix [K, C R S] of pieces [a,b] (those at the edges are cut short):
//             16x1 of block masks, 1x1 of single weights, whole rows of filters. A piece is kept or
//             it is out
// Values      of the kept pieces, row of pieces by row of pieces, inside a piece row by row
// Bits        of the pieces in the same order, the first in the lowest bit of a byte; unused bits
//             of the last byte are 0. `columns` are smaller below one piece in 32
// Choice      for each weight the pieces and the index that take the fewest bytes
// Loading     fills a network that the config builds, masks included: what is out is 0, so it
//             computes the same bits
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/safetensors.h"
#include "layers/module.h"

namespace convscope {

// The tensors and the metadata "format" and "sparse" of a network with masks. Masks themselves are
// not in it.
CONVSCOPE_API SafetensorsFile to_sparse_file(Module& network);

// Whether it is one, of whatever version.
CONVSCOPE_API bool is_sparse_file(const SafetensorsFile& file);
inline constexpr std::string_view kSparseFormats = "convscope-sparse-";

// Fills parameters, buffers and masks. An error of kind kData when the file is of another version,
// or does not hold exactly what the network has. `path` is for the sentence.
CONVSCOPE_API void load_sparse_file(const SafetensorsFile& file, const std::string& path,
                                    Module& network);

// Of a file, what was left out: for a table.
struct SparseWeightFacts {
  std::string name;  // "c1.weight"
  std::int64_t weights = 0, kept = 0;
  std::int64_t piece_rows = 0, piece_columns = 0;  // 0: the weight is stored as it is
  std::string index;                               // "bits", "columns" or "dense"
  std::int64_t bytes = 0;                          // of values and index
};
CONVSCOPE_API std::vector<SparseWeightFacts> sparse_weight_facts(const SafetensorsFile& file,
                                                                 Module& network);

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// sparse_file.h: a trained pruned network without its pruned weights, in a safetensors file
// (framework/io/safetensors.h).
//
//   tensor                  type  shape
//   "c1.weight.values"      F32   [kept weights]
//   "c1.weight.bits"        U8    [ceil(pieces / 8)]: which pieces are kept; or
//   "c1.weight.row_begin"   I32   [rows of pieces + 1]: where each row begins in columns
//   "c1.weight.columns"     I32   [kept pieces]: the column of each piece, ascending in its row
//   "c1.weight"             F32   shape of the weight, where omitting zeros saves no bytes
//   "c1.bias", "bn1.running_mean"  F32  all other parameters and buffers, as in the network
//   metadata
//   "format"                "convscope-sparse-1"
//   "sparse"                JSON, for each weight with omitted values: {"c1.weight":
//                           {"shape": [16,6,5,5], "piece": [16,1], "index": "bits"}, ...}
//   "version" "config" "progress" "crc32"  as in a checkpoint (experiments/trainer/checkpoint.h)
//
// Pieces      a weight is a matrix [K, C R S] of pieces [a,b] (those at the edges are cut short):
//             16x1 for block masks, 1x1 for single weights, whole rows for filters. A piece is kept
//             or pruned as a whole
// Values      of the kept pieces, by rows of pieces; row-major inside a piece
// Bits        of the pieces in the same order, the first in the lowest bit of a byte; unused bits
//             of the last byte are 0. `columns` takes fewer bytes if less than one piece in 32 is
//             kept
// Choice      each weight is stored with the piece size and the index that take the fewest bytes
// Loading     fills a network that the config builds, masks included. Pruned weights are 0, so it
//             computes the same bits
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/safetensors.h"
#include "layers/module.h"

namespace convscope {

// Returns the tensors of a network with masks, and the metadata "format" and "sparse". The masks
// themselves are not stored.
CONVSCOPE_API SafetensorsFile to_sparse_file(Module& network);

// Returns whether `file` is a sparse network, of any version.
CONVSCOPE_API bool is_sparse_file(const SafetensorsFile& file);
inline constexpr std::string_view kSparseFormats = "convscope-sparse-";

// Fills parameters, buffers and masks. Throws kind kData when the file has another version, or its
// contents do not match the network. `path` is for the message.
CONVSCOPE_API void load_sparse_file(const SafetensorsFile& file, const std::string& path,
                                    Module& network);

// The storage of one weight in a file, for tables.
struct SparseWeightFacts {
  std::string name;  // "c1.weight"
  std::int64_t weights = 0, kept = 0;
  std::int64_t piece_rows = 0, piece_columns = 0;  // 0: the weight is stored dense
  std::string index;                               // "bits", "columns" or "dense"
  std::int64_t bytes = 0;                          // of values and index
};
CONVSCOPE_API std::vector<SparseWeightFacts> sparse_weight_facts(const SafetensorsFile& file,
                                                                 Module& network);

}  // namespace convscope

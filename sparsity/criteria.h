// SPDX-License-Identifier: Apache-2.0
// criteria.h: selects the weights that are pruned. The method divides a layer's weights into pieces
// (single weights or blocks). A piece is kept or dropped as a whole, and the weakest pieces are
// dropped.
//
//   magnitude       a piece is one weight, its strength |w|
//   block b1 x b2   a piece is a tile of [K, C R S], its strength ||tile||_2. Tiles at the lower
//                   and right edge may be smaller, and each counts as one tile
//   n_m             of each m neighbouring weights in a row, the n with the largest |w| stay. The
//                   last group of a row may have only r < m weights; then min(n, r) stay
//
// Textbook    sort the pieces by strength; drop the first round(s pieces)
// Ties        of equally strong pieces the first one is dropped first, so results are the same
//             everywhere
// Global      pieces of different layers are compared by their root mean square
// Source      S. Han et al.: Learning both Weights and Connections, 2015, arXiv 1506.02626;
//             A. Mishra et al.: Accelerating Sparse Deep Neural Networks, 2021, arXiv 2104.08378
//             (2:4). Blocks are ranked as blocks because dropping single weights at 80 % leaves a
//             nonzero weight in 97 % of all 16x1 blocks
#pragma once

#include <vector>

#include "sparsity/prunable_network.h"
#include "sparsity/sparsity_options.h"

namespace convscope {

// The strength and the number of elements (`sizes`) of each piece of a layer.
struct PieceScores {
  std::vector<float> strength;
  std::vector<std::int64_t> sizes;
};
CONVSCOPE_API PieceScores block_scores(const Tensor& weight, std::int64_t rows,
                                       std::int64_t columns, std::int64_t block_rows,
                                       std::int64_t block_cols);
// Returns keep[i] = 0 for the `drop` weakest pieces, 1 for all others.
CONVSCOPE_API std::vector<std::uint8_t> drop_weakest(const std::vector<float>& strength,
                                                     std::int64_t drop);

// Returns the masks (1 keeps, 0 drops; shape of the weight, on the CPU) of `layers` at the given
// sparsity, for the methods magnitude, block and n_m.
CONVSCOPE_API std::vector<Tensor> weakest_masks(const std::vector<const PrunableLayer*>& layers,
                                                const SparsityOptions& options, double sparsity);
// Throws an error if the weight of one of the layers is a single piece, because pruning could then
// only keep or drop the whole layer.
CONVSCOPE_API void check_pieces(const std::vector<const PrunableLayer*>& layers,
                                const SparsityOptions& options);

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// distribution.h: how many weights each layer may keep.
//
// Formula   uniform zeros_l = s n_l: every layer has the same share
//           erk      density_l = e (K + C + R + S) / (K C R S): small layers stay denser. A layer
//                    whose density would exceed 1 stays dense, and the other layers lose more
//           global   one ranking over all layers: the layers have no fixed shares
//           Shares are rounded to whole weights. Every layer is within one weight of its share, and
//           the total is within one weight of s n. To this end the sum of the shares up to each
//           layer is rounded, and a layer gets the difference of two such sums.
// Source    T. Mocanu et al.: Scalable training with adaptive sparse connectivity, 2018, and
//           U. Evci et al.: Rigging the Lottery, 2020, arXiv 1911.11134 (ERK)
#pragma once

#include <vector>

#include "sparsity/prunable_network.h"
#include "sparsity/sparsity_options.h"

namespace convscope {

// Returns the share of zeros of each layer, for uniform and erk.
CONVSCOPE_API std::vector<double> layer_sparsities(const std::vector<const PrunableLayer*>& layers,
                                                   SparsityDistribution distribution,
                                                   double sparsity);
// Returns the number of zeros of each layer out of counts[l] weights, rounded as above.
CONVSCOPE_API std::vector<std::int64_t> rounded_zeros(const std::vector<std::int64_t>& counts,
                                                      const std::vector<double>& sparsities);

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// sparse_pool.h: pools over the existing sites.
//
// Shapes      sparse_max_pool, sparse_avg_pool: x [n,C] -> y [m,C], a row for each pixel of the
//             coarse grid whose window contains a site; sparse_global_pool: x [n,C] -> y [N,C]
// Formula     max: the largest element of the sites in the window. mean: the sum of the sites in
//             the window divided by their number, not by the size of the window. (A dense average
//             pool counts empty places as zeros.) A sample without sites gives 0 in a global pool
// Parameters  kernel_size  places: one number or one for each axis, required
//             stride       kernel_size  size of the window: one number or one for each axis,
//                          required
//             padding      default 0; dilation, default 1
//             mode         sparse_global_pool only: max or avg, default avg
// Gradient    max: to the chosen site, the first of equal ones; mean: equal shares
// Sites       a pool is a strided step like sparse_conv. With the same kernel, a pool and a
//             sparse_conv lead to the same sites, and sparse_inverse_conv can undo either
// Usage       {type: sparse_max_pool, kernel_size: 2}
#pragma once

#include <string>

#include "layers/sparse_rows/neighbour_lists.h"
#include "layers/sparse_rows/row_layers.h"

namespace convscope {

enum class PoolMode { max, avg };

// Pools x [n,C] -> y [m,C] over the lists.
CONVSCOPE_API Variable pool_rows(const Variable& x, const PoolLists& lists, PoolMode mode);
CONVSCOPE_API Variable sparse_pool(const Variable& x, const SparseMap& map, PoolMode mode);
CONVSCOPE_API Variable sparse_global_pool(const Variable& x, const SparseSites& sites,
                                          PoolMode mode);

class CONVSCOPE_API SparsePool final : public Module {
 public:
  SparsePool(PoolMode mode, SharedLevels levels, int to);
  std::string kind() const override;
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  PoolMode mode_;
  SharedLevels levels_;
  int to_;
};

class CONVSCOPE_API SparseGlobalPool final : public Module {
 public:
  SparseGlobalPool(PoolMode mode, SharedLevels levels, int level);
  std::string kind() const override { return "sparse_global_pool"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  PoolMode mode_;
  SharedLevels levels_;
  int level_;
};

}  // namespace convscope

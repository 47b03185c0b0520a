// SPDX-License-Identifier: Apache-2.0
// neighbour_lists.h: lists on a device that say which rows of x contribute to each row of y, and
// the kernels of all sparse pools, which compute the maximum or the mean over each list.
//
//   begin [m+1], at [pairs], i32:   list i = at[begin[i]], ..., at[begin[i+1] - 1], ascending
//
// Kernels gather in both directions: the backward pass visits, for each row of x, the lists that
// contain this row. So no two threads write to one row, and the bits are the same on each run.
#pragma once

#include "framework/kernel_slot.h"
#include "layers/sparse_conv/map.h"

namespace convscope {

struct NeighbourLists {
  Tensor begin, at;
  std::int64_t count() const { return begin.dim(0) - 1; }
};

// The lists of a pool, seen from its outputs and from its inputs.
struct PoolLists {
  NeighbourLists by_output, by_input;
};
CONVSCOPE_API PoolLists pool_lists(const SparseMap& map, Device device);
// Returns one list for each sample, with all sites of the sample.
CONVSCOPE_API PoolLists sample_lists(const SparseSites& sites, Device device);

// Kernels; x [n,C], y [m,C], f32 or f64, with at least one element. `arg` i32 [m,C] receives the
// row of x that has the maximum, and the first such row if several are equal. A NaN counts as the
// largest. For an empty list, y is 0 and arg -1.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const NeighbourLists& by_output,
                                     const Tensor& y, const Tensor& arg)>
    list_max_kernel;
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& x, const NeighbourLists& by_output, const Tensor& y)>
        list_mean_kernel;
// dx [n,C] is assigned.
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const NeighbourLists& by_input,
                                     const Tensor& arg, const Tensor& dx)>
    list_max_gradient_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const PoolLists& lists, const Tensor& dx)>
    list_mean_gradient_kernel;

}  // namespace convscope

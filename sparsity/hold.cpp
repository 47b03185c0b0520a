// SPDX-License-Identifier: Apache-2.0
// hold.cpp: keeps weights that are out as they are.
#include "sparsity/hold.h"

namespace convscope {

KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> put_back_kernel("put_back");
KernelSlot<void(const Tensor&, const Tensor&)> clear_masked_kernel("clear_masked");

void put_back(const Tensor& keep, const Tensor& held, const Tensor& w) {
  CONVSCOPE_CHECK(keep.numel() == w.numel() && held.numel() == w.numel(), "put_back",
                  "expected mask and held values of ", w, ", got ", keep, " and ", held);
  put_back_kernel.get(w.device())(keep, held, w);
}

void clear_masked(const Tensor& keep, const Tensor& state) {
  CONVSCOPE_CHECK(keep.numel() == state.numel(), "clear_masked", "expected a mask of ", state,
                  ", got ", keep);
  clear_masked_kernel.get(state.device())(keep, state);
}

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// hold_cuda.cu: sets the pruned weights of all tensors back to their held values, in one kernel
// launch with one pass over the elements; memory-bound.
#include "framework/cuda/map_rows.cuh"
#include "sparsity/hold.h"

namespace convscope {
namespace {

struct Rest {  // keep, value, held
  __device__ float operator()(const float* x) const { return x[0] != 0 ? x[1] : x[2]; }
};

void rest_cuda(const RestedTensor* all, int count) {
  for (int begin = 0; begin < count; begin += kMaxMapRows) {
    MapRows<3> rows;
    for (int i = begin; i < count && i < begin + kMaxMapRows; ++i) {
      const RestedTensor& a = all[i];
      float* const value = a.value.data<float>();
      const float* const held = a.held.defined() ? a.held.data<float>() : nullptr;
      rows.add({{a.keep.data<float>(), value, held}, value, a.value.numel()});
    }
    map_rows(Rest{}, rows);
  }
}

}  // namespace
CONVSCOPE_KERNEL(rest_kernel, cuda, rest_cuda)
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// mask_cuda.cu: products of weights and masks, all tensors in one launch.
#include "framework/cuda/map_rows.cuh"
#include "sparsity/mask.h"

namespace convscope {
namespace {

struct Keep {  // x, keep
  __device__ float operator()(const float* x) const { return x[0] * x[1]; }
};

void mask_cuda(const MaskedTensor* all, int count) {
  for (int begin = 0; begin < count; begin += kMaxMapRows) {
    MapRows<2> rows;
    for (int i = begin; i < count && i < begin + kMaxMapRows; ++i) {
      rows.add({{all[i].x.data<float>(), all[i].keep.data<float>()},
                all[i].y.data<float>(),
                all[i].y.numel()});
    }
    map_rows(Keep{}, rows);
  }
}

}  // namespace
CONVSCOPE_KERNEL(mask_kernel, cuda, mask_cuda)
}  // namespace convscope

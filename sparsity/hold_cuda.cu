// SPDX-License-Identifier: Apache-2.0
// hold_cuda.cu: one pass over the elements; bound by memory.
#include "framework/cuda/map.cuh"
#include "sparsity/hold.h"

namespace convscope {
namespace {

struct PutBack {  // keep, w, held
  __device__ float operator()(const float* x) const { return x[0] != 0 ? x[1] : x[2]; }
};
struct ClearMasked {  // keep, state
  __device__ float operator()(const float* x) const { return x[0] != 0 ? x[1] : 0.0f; }
};

void put_back_cuda(const Tensor& keep, const Tensor& held, const Tensor& w) {
  float* const to = w.data<float>();
  map<3, float>(PutBack{}, {{keep.data<float>(), to, held.data<float>()}}, to, w.numel());
}

void clear_masked_cuda(const Tensor& keep, const Tensor& state) {
  float* const to = state.data<float>();
  map<2, float>(ClearMasked{}, {{keep.data<float>(), to}}, to, state.numel());
}

}  // namespace
CONVSCOPE_KERNEL(put_back_kernel, cuda, put_back_cuda)
CONVSCOPE_KERNEL(clear_masked_kernel, cuda, clear_masked_cuda)
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// epilogue_cuda.cu: y = relu(y + residual) in one pass, for algorithms that do not fuse it.
// Read next  epilogue.cuh, used by kernels that fuse it
#include "framework/cuda/half_piece.cuh"
#include "framework/precision.h"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/epilogue.h"

namespace convscope {
namespace {

template <class T, bool kResidual, bool kRelu>
struct Finish {
  __device__ T operator()(const T* x) const {
    T sum = x[0];
    if constexpr (kResidual) sum += x[1];
    return finished(sum, kRelu);
  }
};

template <class T>
void apply_typed(const Conv2dEpilogue& epilogue, const Tensor& y) {
  T* const to = y.data<T>();
  const auto* const residual = static_cast<const T*>(epilogue.residual);
  const std::int64_t n = y.numel();
  if (residual == nullptr) {
    if (epilogue.relu) map<1, T>(Finish<T, false, true>{}, {{to}}, to, n);
    return;
  }
  if (epilogue.relu) return map<2, T>(Finish<T, true, true>{}, {{to, residual}}, to, n);
  map<2, T>(Finish<T, true, false>{}, {{to, residual}}, to, n);
}

void apply_half(const Conv2dEpilogue& epilogue, const Tensor& y) {
  void* const to = y.raw_data();
  const std::int64_t n = y.numel();
  if (epilogue.residual == nullptr) {
    if (epilogue.relu) map_half<1>(y.dtype(), Finish<float, false, true>{}, {{to}}, to, n);
    return;
  }
  const MapInputs<void, 2> both{{to, epilogue.residual}};
  if (epilogue.relu) return map_half<2>(y.dtype(), Finish<float, true, true>{}, both, to, n);
  map_half<2>(y.dtype(), Finish<float, true, false>{}, both, to, n);
}

void apply_cuda(const Conv2dEpilogue& epilogue, const Tensor& y) {
  if (is_half(y.dtype())) return apply_half(epilogue, y);
  if (y.dtype() == DType::f64) return apply_typed<double>(epilogue, y);
  apply_typed<float>(epilogue, y);
}

}  // namespace
CONVSCOPE_KERNEL(conv2d_epilogue_kernel, cuda, apply_cuda)
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// gelu_cuda.cu: the forward and backward kernels of gelu.h. A thread processes one element at a
// time; memory-bound.
#include "framework/cuda/map.cuh"
#include "layers/gelu.h"

namespace convscope {
namespace {

template <class T>
__device__ T normal_distribution(T x) {
  return T(0.5) * (T(1) + ::erf(x * T(0.70710678118654752440)));
}

template <class T>
struct Forward {
  __device__ T operator()(const T* x) const { return x[0] * normal_distribution(x[0]); }
};

template <class T>
struct Gradient {  // of x, dy
  __device__ T operator()(const T* in) const {
    const T v = in[0];
    const T size = v < T(0) ? -v : v;
    const T density = size < T(40) ? T(0.39894228040143267794) * ::exp(T(-0.5) * v * v) : T(0);
    return in[1] * (normal_distribution(v) + (density == T(0) ? T(0) : v * density));
  }
};

void forward_cuda(const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) {
    return map<1>(Forward<double>{}, {{x.data<double>()}}, y.data<double>(), x.numel());
  }
  map<1>(Forward<float>{}, {{x.data<float>()}}, y.data<float>(), x.numel());
}

void gradient_cuda(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  if (x.dtype() == DType::f64) {
    return map<2>(Gradient<double>{}, {{x.data<double>(), dy.data<double>()}}, dx.data<double>(),
                  x.numel());
  }
  map<2>(Gradient<float>{}, {{x.data<float>(), dy.data<float>()}}, dx.data<float>(), x.numel());
}

}  // namespace
CONVSCOPE_KERNEL(gelu_kernel, cuda, forward_cuda)
CONVSCOPE_KERNEL(gelu_gradient_kernel, cuda, gradient_cuda)
}  // namespace convscope

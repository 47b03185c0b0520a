// SPDX-License-Identifier: Apache-2.0
// activations_cuda.cu: the kernels of activations.h. A thread processes one element at a time;
// memory-bound.
#include <convscope/activations.h>

#include "framework/cuda/map.cuh"
#include "layers/activations/activations.h"

namespace convscope {
namespace {

template <class T>
struct DeviceMath {
  using Value = T;
  static __device__ T number(double x) { return static_cast<T>(x); }
  static __device__ T sigmoid(T x) { return T(1) / (T(1) + ::exp(-x)); }
  static __device__ T choose(bool condition, T a, T b) { return condition ? a : b; }
};

template <class Activation, class T>
struct Forward {
  __device__ T operator()(const T* x) const {
    return Activation::template value<DeviceMath<T>>(x[0]);
  }
};

template <class Activation, class T>
struct Gradient {  // of x, dy
  __device__ T operator()(const T* in) const {
    return in[1] * Activation::template slope<DeviceMath<T>>(in[0]);
  }
};

template <class T>
void forward_typed(int index, const Tensor& x, const Tensor& y) {
  visit_activation(Activations{}, index, [&]<class A>() {
    map<1>(Forward<A, T>{}, {{x.data<T>()}}, y.data<T>(), x.numel());
  });
}

template <class T>
void gradient_typed(int index, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  visit_activation(Activations{}, index, [&]<class A>() {
    map<2>(Gradient<A, T>{}, {{x.data<T>(), dy.data<T>()}}, dx.data<T>(), x.numel());
  });
}

void forward_cuda(int index, const Tensor& x, const Tensor& y) {
  (x.dtype() == DType::f64 ? forward_typed<double> : forward_typed<float>)(index, x, y);
}

void gradient_cuda(int index, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  (x.dtype() == DType::f64 ? gradient_typed<double> : gradient_typed<float>)(index, x, dy, dx);
}

}  // namespace
CONVSCOPE_KERNEL(activation_kernel, cuda, forward_cuda)
CONVSCOPE_KERNEL(activation_gradient_kernel, cuda, gradient_cuda)
}  // namespace convscope

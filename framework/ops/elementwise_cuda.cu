// SPDX-License-Identifier: Apache-2.0
// elementwise_cuda.cu: element-wise operations; all are memory-bound.
//
// Operands of one shape, or a tensor and a single element, use a plain map (map.cuh). For other
// broadcasts, the kernel computes each operand's offset from the index of y, for four elements at a
// time where the innermost axis permits. fp16/bf16 operands must have one shape. For these, the
// kernel computes in f32 and rounds the result once.
#include <cmath>

#include "framework/cuda/half_piece.cuh"
#include "framework/ops/accumulate.h"
#include "framework/ops/broadcast.h"
#include "framework/ops/elementwise.h"
#include "framework/precision.h"

namespace convscope {
namespace {

template <class T>
struct Binary {
  BinaryOp op;
  __device__ T of(T a, T b) const {
    switch (op) {
      case BinaryOp::add:
        return a + b;
      case BinaryOp::sub:
        return a - b;
      case BinaryOp::mul:
        return a * b;
      case BinaryOp::div:
        return a / b;
    }
    return T{0};
  }
  __device__ T operator()(const T* x) const { return of(x[0], x[1]); }
};

// An operation in which one operand is a single element in device memory.
template <class T, bool kFirst>
struct BinaryWithOne {
  Binary<T> binary;
  const T* one;
  __device__ T operator()(const T* x) const {
    return kFirst ? binary.of(*one, x[0]) : binary.of(x[0], *one);
  }
};

// Index has 32 bits where possible, because a 32-bit division takes a third of the time.
template <int kWidth, class Index, class T>
__global__ void __launch_bounds__(kThreads)
    broadcast_kernel(Binary<T> op, BroadcastWalk walk, const T* a, const T* b, T* y,
                     std::int64_t packs) {
  using P = Pack<T, kWidth>;
  const int inner = walk.rank - 1;
  for (std::int64_t pack = global_thread(); pack < packs; pack += global_threads()) {
    auto rest = static_cast<Index>(pack * kWidth);
    std::int64_t at_a = 0;
    std::int64_t at_b = 0;
    for (int axis = inner; axis >= 0; --axis) {
      const auto size = static_cast<Index>(walk.size[axis]);
      const Index left = rest / size;
      const auto i = static_cast<std::int64_t>(rest - left * size);
      at_a += i * walk.stride_a[axis];
      at_b += i * walk.stride_b[axis];
      rest = left;
    }
    P va, vb, out;
    if (walk.stride_a[inner] != 0) {
      va = *reinterpret_cast<const P*>(a + at_a);
    } else {
#pragma unroll
      for (int l = 0; l < kWidth; ++l) va.v[l] = a[at_a];
    }
    if (walk.stride_b[inner] != 0) {
      vb = *reinterpret_cast<const P*>(b + at_b);
    } else {
#pragma unroll
      for (int l = 0; l < kWidth; ++l) vb.v[l] = b[at_b];
    }
#pragma unroll
    for (int l = 0; l < kWidth; ++l) out.v[l] = op.of(va.v[l], vb.v[l]);
    reinterpret_cast<P*>(y)[pack] = out;
  }
}

template <class T>
void binary_typed(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) {
  const BroadcastWalk walk(a.shape(), b.shape(), y.shape());
  const T* const pa = a.data<T>();
  const T* const pb = b.data<T>();
  T* const py = y.data<T>();
  const std::int64_t count = y.numel();
  if (count == 0) return;
  const int inner = walk.rank - 1;
  const bool steps_a = walk.stride_a[inner] != 0;
  const bool steps_b = walk.stride_b[inner] != 0;
  const Binary<T> binary{op};
  if (walk.rank == 1) {
    if (steps_a && steps_b) return map<2, T>(binary, {{pa, pb}}, py, count);
    if (steps_a) return map<1, T>(BinaryWithOne<T, false>{binary, pb}, {{pa}}, py, count);
    if (steps_b) return map<1, T>(BinaryWithOne<T, true>{binary, pa}, {{pb}}, py, count);
  }
  constexpr int kWidth = kPackWidth<T>;
  const bool packed = walk.size[inner] % kWidth == 0 && is_aligned(py, 16) &&
                      (!steps_a || is_aligned(pa, 16)) && (!steps_b || is_aligned(pb, 16));
  const bool small = count < (std::int64_t{1} << 31);
  const std::int64_t packs = packed ? count / kWidth : count;
  const auto kernel =
      packed
          ? (small ? broadcast_kernel<kWidth, std::uint32_t, T>
                   : broadcast_kernel<kWidth, std::uint64_t, T>)
          : (small ? broadcast_kernel<1, std::uint32_t, T> : broadcast_kernel<1, std::uint64_t, T>);
  launch(kernel, grid_of_packs(packs), binary, walk, pa, pb, py, packs);
}

void binary_cuda(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (y.dtype() == DType::f64) return binary_typed<double>(op, a, b, y);
  if (is_half(y.dtype())) {
    CONVSCOPE_CHECK(a.shape() == y.shape() && b.shape() == y.shape(), "elementwise",
                    "expected fp16 or bf16 tensors of one shape, got ", a.str(), " and ", b.str());
    return map_half<2>(y.dtype(), Binary<float>{op}, {{a.raw_data(), b.raw_data()}}, y.raw_data(),
                         y.numel());
  }
  binary_typed<float>(op, a, b, y);
}

__device__ float exp_of(float x) { return ::expf(x); }
__device__ double exp_of(double x) { return ::exp(x); }
__device__ float log_of(float x) { return ::logf(x); }
__device__ double log_of(double x) { return ::log(x); }
__device__ float sqrt_of(float x) { return ::sqrtf(x); }
__device__ double sqrt_of(double x) { return ::sqrt(x); }
__device__ float tanh_of(float x) { return ::tanhf(x); }
__device__ double tanh_of(double x) { return ::tanh(x); }

template <class T, UnaryOp kOp>
struct Unary {
  __device__ T operator()(const T* p) const {
    const T x = p[0];
    switch (kOp) {
      case UnaryOp::neg:
        return -x;
      case UnaryOp::exp:
        return exp_of(x);
      case UnaryOp::log:
        return log_of(x);
      case UnaryOp::sqrt:
        return sqrt_of(x);
      case UnaryOp::relu:
        return x <= T{0} ? T{0} : x;  // NaN passes through
      case UnaryOp::tanh:
        return tanh_of(x);
      case UnaryOp::sigmoid:
        return T{1} / (T{1} + exp_of(-x));
    }
    return x;
  }
};

template <UnaryOp kOp>
void unary_of(const Tensor& x, const Tensor& y) {
  const std::int64_t n = x.numel();
  if (is_half(x.dtype())) {
    return map_half<1>(x.dtype(), Unary<float, kOp>{}, {{x.raw_data()}}, y.raw_data(), n);
  }
  if (x.dtype() == DType::f64) {
    return map<1, double>(Unary<double, kOp>{}, {{x.data<double>()}}, y.data<double>(), n);
  }
  map<1, float>(Unary<float, kOp>{}, {{x.data<float>()}}, y.data<float>(), n);
}

void unary_cuda(UnaryOp op, const Tensor& x, const Tensor& y) {
  switch (op) {
    case UnaryOp::neg:
      return unary_of<UnaryOp::neg>(x, y);
    case UnaryOp::exp:
      return unary_of<UnaryOp::exp>(x, y);
    case UnaryOp::log:
      return unary_of<UnaryOp::log>(x, y);
    case UnaryOp::sqrt:
      return unary_of<UnaryOp::sqrt>(x, y);
    case UnaryOp::relu:
      return unary_of<UnaryOp::relu>(x, y);
    case UnaryOp::tanh:
      return unary_of<UnaryOp::tanh>(x, y);
    case UnaryOp::sigmoid:
      return unary_of<UnaryOp::sigmoid>(x, y);
  }
}

template <class T, GradientOp kOp>
struct Gradient {
  __device__ T operator()(const T* p) const {
    const T y = p[0];
    const T dy = p[1];
    switch (kOp) {
      case GradientOp::sqrt:
        return T(0.5) * dy / y;
      case GradientOp::relu:
        return y <= T{0} ? T{0} : dy;
      case GradientOp::tanh:
        return dy * (T{1} - y * y);
      case GradientOp::sigmoid:
        return dy * (y * (T{1} - y));
    }
    return dy;
  }
};

template <GradientOp kOp>
void gradient_of(const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  const std::int64_t n = dy.numel();
  if (is_half(dy.dtype())) {
    return map_half<2>(dy.dtype(), Gradient<float, kOp>{}, {{saved.raw_data(), dy.raw_data()}},
                         dx.raw_data(), n);
  }
  if (dy.dtype() == DType::f64) {
    return map<2, double>(Gradient<double, kOp>{}, {{saved.data<double>(), dy.data<double>()}},
                          dx.data<double>(), n);
  }
  map<2, float>(Gradient<float, kOp>{}, {{saved.data<float>(), dy.data<float>()}}, dx.data<float>(),
                n);
}

void gradient_cuda(GradientOp op, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  switch (op) {
    case GradientOp::sqrt:
      return gradient_of<GradientOp::sqrt>(saved, dy, dx);
    case GradientOp::relu:
      return gradient_of<GradientOp::relu>(saved, dy, dx);
    case GradientOp::tanh:
      return gradient_of<GradientOp::tanh>(saved, dy, dx);
    case GradientOp::sigmoid:
      return gradient_of<GradientOp::sigmoid>(saved, dy, dx);
  }
}

template <class T>
struct Scale {
  T factor;
  __device__ T operator()(const T* x) const { return factor * x[0]; }
};

void scale_cuda(double factor, const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) {
    return map<1, double>(Scale<double>{factor}, {{x.data<double>()}}, y.data<double>(), x.numel());
  }
  map<1, float>(Scale<float>{static_cast<float>(factor)}, {{x.data<float>()}}, y.data<float>(),
                x.numel());
}

template <class T>
void accumulate_typed(const Tensor& to, const Tensor& from) {
  T* const y = to.data<T>();
  map<2, T>(Binary<T>{BinaryOp::add}, {{y, from.data<T>()}}, y, to.numel());
}

void accumulate_cuda(const Tensor& to, const Tensor& from) {
  if (to.dtype() == DType::f64) return accumulate_typed<double>(to, from);
  if (is_half(to.dtype())) {
    return map_half<2>(to.dtype(), Binary<float>{BinaryOp::add},
                         {{to.raw_data(), from.raw_data()}}, to.raw_data(), to.numel());
  }
  CONVSCOPE_CHECK(to.dtype() == DType::f32, "accumulate", "expected f32, f64, fp16 or bf16, got ",
                  to.str());
  accumulate_typed<float>(to, from);
}

}  // namespace
CONVSCOPE_KERNEL(binary_kernel, cuda, binary_cuda)
CONVSCOPE_KERNEL(unary_kernel, cuda, unary_cuda)
CONVSCOPE_KERNEL(gradient_kernel, cuda, gradient_cuda)
CONVSCOPE_KERNEL(scale_kernel, cuda, scale_cuda)
CONVSCOPE_KERNEL(accumulate_kernel, cuda, accumulate_cuda)
}  // namespace convscope

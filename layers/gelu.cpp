// SPDX-License-Identifier: Apache-2.0
// gelu.cpp: an elementwise activation that is smooth where a ReLU has its corner.
#include "layers/gelu.h"

#include <cmath>
#include <numbers>

#include "framework/graph/simple_operation.h"
#include "framework/parallel.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&)> gelu_kernel{"gelu"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> gelu_gradient_kernel{
    "gelu"};

namespace {

constexpr std::int64_t kGrain = 1 << 12;  // an erf takes about 10 ns

class GeluOperation final : public SimpleOperation {
 public:
  GeluOperation() : SimpleOperation("gelu", {.nchw16c = true, .nhwc = false}) {}  // gelu(0) = 0
  Keeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
  void run(const Forward& a) const override { gelu_kernel.get(a.device())(a.x[0], a.y); }
  void run(const Backward& a) const override {
    gelu_gradient_kernel.get(a.device())(a.x[0], a.dy, a.dx[0]);
  }
};

template <class T>
T normal_distribution(T x) {
  return T(0.5) * (T(1) + std::erf(x * (std::numbers::sqrt2_v<T> / T(2))));
}

template <class T>
void forward_typed(const Tensor& x, const Tensor& y) {
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  parallel_for(x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = from[i] * normal_distribution(from[i]);
  });
}

void forward_cpu(const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) return forward_typed<double>(x, y);
  forward_typed<float>(x, y);
}

template <class T>
void gradient_typed(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const T* const from = x.data<T>();
  const T* const g = dy.data<T>();
  T* const to = dx.data<T>();
  constexpr T kPeak = std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;  // phi(0)
  parallel_for(x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T v = from[i];
      // Beyond 40 the density is 0; there v * v could overflow to infinity.
      const T density = std::abs(v) < T(40) ? kPeak * std::exp(T(-0.5) * v * v) : T(0);
      to[i] = g[i] * (normal_distribution(v) + (density == T(0) ? T(0) : v * density));
    }
  });
}

void gradient_cpu(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  if (x.dtype() == DType::f64) return gradient_typed<double>(x, dy, dx);
  gradient_typed<float>(x, dy, dx);
}

}  // namespace

CONVSCOPE_KERNEL(gelu_kernel, cpu, forward_cpu)
CONVSCOPE_KERNEL(gelu_gradient_kernel, cpu, gradient_cpu)

Variable gelu(const Variable& x) { return apply(std::make_unique<GeluOperation>(), {x}); }

CONVSCOPE_REGISTER_LAYER("gelu", {.doc = "x times the normal distribution at x",
                                  .fields = {},
                                  .build = [](const Options&, const Shape&,
                                              LayerContext&) -> std::shared_ptr<Module> {
                                    return std::make_shared<Gelu>();
                                  },
                                  .takes_rows = true})

}  // namespace convscope

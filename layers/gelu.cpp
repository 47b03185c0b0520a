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
constinit IsaTable<GeluLoops> gelu_loops;

namespace {

constexpr std::int64_t kGrain = 1 << 14;

class GeluOperation final : public SimpleOperation {
 public:
  GeluOperation() : SimpleOperation("gelu", {.nchw16c = true, .nhwc = false}) {}  // gelu(0) = 0
  Keeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
  void run(const Forward& a) const override { gelu_kernel.get(a.device())(a.x[0], a.y); }
  void run(const Backward& a) const override {
    gelu_gradient_kernel.get(a.device())(a.x[0], a.dy, a.dx[0]);
  }
};

double normal_distribution(double x) { return 0.5 * (1 + std::erf(x * (std::numbers::sqrt2 / 2))); }

void forward_cpu(const Tensor& x, const Tensor& y) {
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype() == DType::f32) {
      return gelu_loops.get().forward(x.data<float>() + begin, y.data<float>() + begin,
                                      end - begin);
    }
    const double* const from = x.data<double>();
    for (std::int64_t i = begin; i < end; ++i) {
      y.data<double>()[i] = from[i] * normal_distribution(from[i]);
    }
  });
}

void gradient_cpu(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype() == DType::f32) {
      return gelu_loops.get().gradient(x.data<float>() + begin, dy.data<float>() + begin,
                                       dx.data<float>() + begin, end - begin);
    }
    constexpr double kPeak = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // phi(0)
    for (std::int64_t i = begin; i < end; ++i) {
      const double v = x.data<double>()[i];
      // Beyond 40 the density is 0; there v * v could overflow to infinity.
      const double density = std::abs(v) < 40 ? kPeak * std::exp(-0.5 * v * v) : 0;
      dx.data<double>()[i] =
          dy.data<double>()[i] * (normal_distribution(v) + (density == 0 ? 0 : v * density));
    }
  });
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

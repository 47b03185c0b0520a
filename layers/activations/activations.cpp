// SPDX-License-Identifier: Apache-2.0
// activations.cpp: a layer type and an operation for each activation of the list, and the loops on
// a CPU.
#include "layers/activations/activations.h"

#include <convscope/activations.h>

#include <cmath>

#include "framework/graph/simple_operation.h"
#include "framework/parallel.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(int, const Tensor&, const Tensor&)> activation_kernel{"activation"};
constinit KernelSlot<void(int, const Tensor&, const Tensor&, const Tensor&)>
    activation_gradient_kernel{"activation"};
constinit IsaTable<ActivationKernels> activation_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements of a chunk

class ActivationOperation final : public SimpleOperation {
 public:
  ActivationOperation(const char* name, int index)
      : SimpleOperation(name, {.nchw16c = true, .nhwc = false}), index_(index) {}
  Keeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
  void run(const Forward& a) const override {
    activation_kernel.get(a.device())(index_, a.x[0], a.y);
  }
  void run(const Backward& a) const override {
    activation_gradient_kernel.get(a.device())(index_, a.x[0], a.dy, a.dx[0]);
  }

 private:
  int index_;
};

class ActivationModule final : public Module {
 public:
  ActivationModule(const char* name, int index) : name_(name), index_(index) {}
  std::string kind() const override { return name_; }
  Variable forward(const Variable& x) override {
    return convscope::apply(std::make_unique<ActivationOperation>(name_, index_), {x});
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  const char* name_;
  int index_;
};

struct DoubleMath {
  using Value = double;
  static double number(double x) { return x; }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double choose(bool condition, double a, double b) { return condition ? a : b; }
};

void forward_cpu(int index, const Tensor& x, const Tensor& y) {
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype() == DType::f32) {
      return activation_kernels.get().forward[index](x.data<float>() + begin,
                                                     y.data<float>() + begin, end - begin);
    }
    visit_activation(Activations{}, index, [&]<class A>() {
      for (std::int64_t i = begin; i < end; ++i) {
        y.data<double>()[i] = A::template value<DoubleMath>(x.data<double>()[i]);
      }
    });
  });
}

void gradient_cpu(int index, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype() == DType::f32) {
      return activation_kernels.get().gradient[index](
          x.data<float>() + begin, dy.data<float>() + begin, dx.data<float>() + begin, end - begin);
    }
    visit_activation(Activations{}, index, [&]<class A>() {
      for (std::int64_t i = begin; i < end; ++i) {
        dx.data<double>()[i] =
            dy.data<double>()[i] * A::template slope<DoubleMath>(x.data<double>()[i]);
      }
    });
  });
}

template <class... All>
bool register_activations(ActivationList<All...>) {
  int index = 0;
  const auto add = [&]<class A>() {
    LayerType type{.doc = A::kDoc, .fields = {}, .build = {}, .takes_rows = true};
    type.build = [i = index++](const Options&, const Shape&,
                               LayerContext&) -> std::shared_ptr<Module> {
      return std::make_shared<ActivationModule>(A::kName, i);
    };
    layer_types().add(A::kName, type, __FILE__);
  };
  (add.template operator()<All>(), ...);
  return true;
}

[[maybe_unused]] const bool registered_activations = register_activations(Activations{});

template <class... All>
int index_of(ActivationList<All...>, std::string_view name) {
  int index = 0, found = -1;
  ((name == All::kName ? void(found = index++) : void(index++)), ...);
  return found;
}

}  // namespace

CONVSCOPE_KERNEL(activation_kernel, cpu, forward_cpu)
CONVSCOPE_KERNEL(activation_gradient_kernel, cpu, gradient_cpu)

Variable activation(std::string_view name, const Variable& x) {
  const int index = index_of(Activations{}, name);
  CONVSCOPE_CHECK(index >= 0, "activation",
                  "expected an activation of layers/activations/rules, got '", name, "'");
  Variable y;
  visit_activation(Activations{}, index, [&]<class A>() {
    y = convscope::apply(std::make_unique<ActivationOperation>(A::kName, index), {x});
  });
  return y;
}

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
#include "layers/dropout.h"

#include "layers/layer_types.h"
#include "layers/plan/plan_builder.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const DropoutMask&, const Tensor&)> dropout_kernel{
    "dropout"};

namespace {

Tensor masked(const Tensor& x, const DropoutMask& mask) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dropout_kernel.get(x.device())(x, mask, y);
  return y;
}

}  // namespace

Variable dropout(const Variable& x, const DropoutMask& mask) {
  CONVSCOPE_CHECK(mask.p >= 0 && mask.p < 1, "dropout", "expected p in [0,1), got ", mask.p);
  CONVSCOPE_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, "dropout",
                  "expected x of type f32 or f64, got ", x.value().str());
  return record("dropout", masked(x.value(), mask), {x},
                [mask](const Tensor& dy, GradientSink& out) { out.add(0, masked(dy, mask)); });
}

Dropout::Dropout(double p, std::uint64_t seed, std::uint64_t stream)
    : mask_{.seed = seed, .stream = stream, .step = 0, .base_step = nullptr, .p = p} {
  CONVSCOPE_CHECK(p >= 0 && p < 1, "dropout", "expected p in [0,1), got ", p);
}

Variable Dropout::forward(const Variable& x) {
  if (!is_training() || mask_.p == 0) return x;
  mask_.step = step();
  return dropout(x, mask_);
}

namespace {

// The mask is drawn from the layer's step, which the trainer sets before each step.
class DropoutOp final : public PlanOp {
 public:
  DropoutOp(const Module& module, const DropoutMask& mask) : module_(module), mask_(mask) {}
  std::string text() const override { return "dropout"; }

  void forward(PlanBuilder& builder) override {
    emit(builder, builder.value(inputs[0]), builder.value(output));
  }
  void backward(PlanBuilder& builder) override {
    builder.assign_gradient(inputs[0],
                            [&](const Tensor& dx) { emit(builder, builder.gradient(output), dx); });
  }

 private:
  void emit(PlanBuilder& builder, const Tensor& from, const Tensor& to) const {
    builder.call([run = dropout_kernel.get(builder.device()), &module = module_, mask = mask_,
                  clock = builder.clock(), from, to]() mutable {
      mask.step = clock->base != nullptr ? clock->offset : module.step();
      mask.base_step = clock->base;
      run(from, mask, to);
    });
  }
  const Module& module_;
  DropoutMask mask_;
};

}  // namespace

int Dropout::describe(PlanGraph& graph, int x) {
  if (!graph.training() || mask_.p == 0) return x;
  return graph.add(std::make_unique<DropoutOp>(*this, mask_), {x}, graph.shape(x));
}

CONVSCOPE_REGISTER_LAYER("dropout",
                         {.doc = "sets a random part of the elements to zero while training",
                          .fields = {{.name = "p",
                                      .type = OptionType::number,
                                      .default_value = 0.5,
                                      .doc = "probability of dropping an element, below 1",
                                      .min = 0,
                                      .max = 0.999999}},
                          .build = [](const Options& options, const Shape&,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            return std::make_shared<Dropout>(options.number("p"), context.seed,
                                                             context.next_stream++);
                          }})

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// dropout.cpp: sets random elements, or all elements of random images, to zero in training.
#include "layers/dropout.h"

#include "framework/graph/simple_operation.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const DropoutMask&, const Tensor&)> dropout_kernel{
    "dropout"};

namespace {

const char* kind_of(DropUnit unit) {
  return unit == DropUnit::element ? "dropout" : "stochastic_depth";
}

void check_probability(double p, DropUnit unit) {
  CONVSCOPE_CHECK(p >= 0 && p < 1, kind_of(unit), "expected ",
                  unit == DropUnit::element ? "p" : "probability", " in [0,1), got ", p);
}

class DropoutOperation final : public Operation {
 public:
  // `module` provides the number of the training step when a call runs; null: mask.step.
  DropoutOperation(const DropoutMask& mask, const Module* module)
      : Operation(kind_of(mask.unit)), mask_(mask), module_(module) {}
  // The number of an element depends on the layout, the number of an image does not.
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    const bool any = mask_.unit != DropUnit::element;
    return SimpleOperation::Layouts{.nchw16c = any, .nhwc = any}.format(layout);
  }
  void forward(Emitter& emitter) override {
    emit(emitter, emitter.value(inputs[0]), emitter.value(output()));
  }
  // The mask is drawn again, so nothing is saved.
  void backward(Emitter& emitter) override {
    emitter.assign_gradient(
        inputs[0], [&](const Tensor& dx) { emit(emitter, emitter.gradient(output()), dx); });
  }

 private:
  void emit(Emitter& emitter, const Tensor& from, const Tensor& to) const {
    emitter.call([run = dropout_kernel.get(emitter.device()), mask = mask_, module = module_,
                  state = emitter.state(), from, to]() mutable {
      if (module != nullptr) mask.step = module->step();
      if (state->clock.base != nullptr) {
        mask.base_step = state->clock.base;
        mask.step = state->clock.offset;
      }
      run(from, mask, to);
    });
  }
  DropoutMask mask_;
  const Module* module_;
};

}  // namespace

Variable dropout(const Variable& x, const DropoutMask& mask) {
  check_probability(mask.p, mask.unit);
  return apply(std::make_unique<DropoutOperation>(mask, nullptr), {x});
}

Dropout::Dropout(double p, std::uint64_t seed, std::uint64_t stream, DropUnit unit)
    : mask_{.seed = seed, .stream = stream, .step = 0, .base_step = nullptr, .p = p, .unit = unit} {
  check_probability(p, unit);
}

Variable Dropout::forward(const Variable& x) {
  if (!trains_on(x) || mask_.p == 0) return x;
  mask_.step = step();
  const Module* const steps = x.graph() != nullptr ? this : nullptr;
  return apply(std::make_unique<DropoutOperation>(mask_, steps), {x});
}

CONVSCOPE_REGISTER_LAYER("dropout",
                         {.doc = "sets a random part of the elements to zero while training",
                          .fields = {{.name = "p",
                                      .type = OptionType::number,
                                      .default_value = 0.5,
                                      .doc = "probability that an element is dropped, below 1",
                                      .min = 0,
                                      .max = 0.999999}},
                          .build = [](const Options& options, const Shape&,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            return std::make_shared<Dropout>(options.number("p"), context.seed,
                                                             context.next_stream++);
                          },
                          .takes_rows = true})

CONVSCOPE_REGISTER_LAYER(
    "stochastic_depth",
    {.doc = "sets whole images, or the whole batch, to zero at random while training",
     .fields = {{.name = "probability",
                 .type = OptionType::number,
                 .default_value = 0.2,
                 .doc = "probability that an image is dropped, below 1",
                 .min = 0,
                 .max = 0.999999},
                {.name = "mode",
                 .type = OptionType::text,
                 .default_value = std::string("row"),
                 .doc = "row: each image is dropped or kept; batch: all images together",
                 .choices = {"row", "batch"}}},
     .build = [](const Options& options, const Shape&,
                 LayerContext& context) -> std::shared_ptr<Module> {
       const DropUnit unit = options.text("mode") == "row" ? DropUnit::row : DropUnit::batch;
       return std::make_shared<Dropout>(options.number("probability"), context.seed,
                                        context.next_stream++, unit);
     }})

}  // namespace convscope

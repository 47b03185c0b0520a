// SPDX-License-Identifier: Apache-2.0
// dropout.cpp: sets a random part of the elements to zero in training, so that the network does not
// depend on single elements.
#include "layers/dropout.h"

#include "layers/layer_types.h"
#include "layers/plan/operation_op.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const DropoutMask&, const Tensor&)> dropout_kernel{
    "dropout"};

namespace {

class DropoutOperation final : public Operation {
 public:
  explicit DropoutOperation(const DropoutMask& mask) : mask_(mask) {}
  const char* name() const override { return "dropout"; }
  void forward(const OperationForward& a) const override { run(a.x[0], a.step, a.y); }
  // The mask is drawn again, so nothing is saved.
  void backward(const OperationBackward& a) const override { run(a.dy, a.step, a.dx[0]); }

 private:
  void run(const Tensor& from, const OperationStep& step, const Tensor& to) const {
    DropoutMask mask = mask_;
    mask.step = step.offset;
    mask.base_step = step.base;
    dropout_kernel.get(to.device())(from, mask, to);
  }
  DropoutMask mask_;
};

}  // namespace

Variable dropout(const Variable& x, const DropoutMask& mask) {
  CONVSCOPE_CHECK(mask.p >= 0 && mask.p < 1, "dropout", "expected p in [0,1), got ", mask.p);
  return apply(make_ref<DropoutOperation>(mask), {x}, mask.step);
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

int Dropout::describe(Graph& graph, int x) {
  if (!graph.training() || mask_.p == 0) return x;
  return describe_operation(graph, *this, make_ref<DropoutOperation>(mask_), {x});
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

}  // namespace convscope

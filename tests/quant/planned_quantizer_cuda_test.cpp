// SPDX-License-Identifier: Apache-2.0
// planned_quantizer_cuda_test.cpp: tests that a compiled step on a GPU computes the masks of all
// weights in one kernel launch, and the quantisers of all weights in another
// (layers/plan/operation_group.cpp). The results must stay the same.
#include <cmath>

#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "quant/quantizer.h"
#include "sparsity/mask.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::cuda;
using PlannedQuantizerOnCuda = testing::CudaTest;

const Shape kInput{5, 1, 8, 8};

struct Compression {
  bool masks = false, rounds = false;
  const char* observes = "";  // the layer whose mask stores its gradient
};

std::shared_ptr<Module> network(const Compression& how) {
  LayerContext context;
  context.seed = 7;
  context.device = cuda();
  Options conv, linear, last;
  conv.set("out_channels", std::int64_t{3});
  conv.set("kernel_size", std::vector<std::int64_t>{3});
  linear.set("out_features", std::int64_t{9});
  last.set("out_features", std::int64_t{4});
  const auto model = build_layers({{.type = "conv2d", .name = "c1", .options = conv},
                                   {.type = "relu", .name = "r1", .options = {}},
                                   {.type = "flatten", .name = "flat", .options = {}},
                                   {.type = "linear", .name = "f2", .options = linear},
                                   {.type = "relu", .name = "r2", .options = {}},
                                   {.type = "linear", .name = "f3", .options = last}},
                                  kInput, context);
  for (const NamedModule& part : model->modules()) {
    if (!part.module->weight().defined()) continue;
    // Only weights are quantised. The compiled step uses other kernels than the dynamic graph, so
    // the value of an activation near the border of two codes could round to the other code.
    if (how.rounds) {
      part.module->add_weight_transform(
          "weight_quantizer", std::make_shared<Quantizer>(QuantizerOptions{
                                  .channels = part.module->weight().dim(0), .device = cuda()}));
    }
    if (!how.masks) continue;
    const auto mask = std::make_shared<Mask>(part.module->weight().value());
    Tensor keep = Tensor::full(mask->keep().shape(), 1.0);
    for (std::int64_t i = 0; i < keep.numel(); i += 3) keep.data<float>()[i] = 0;
    mask->set_keep(keep.to(cuda()));
    mask->observe_gradient(part.name == how.observes);
    part.module->add_weight_transform("mask", mask, /*first=*/true);
  }
  return model;
}

void dynamic_step(Module& model, const Tensor& x, const Tensor& labels) {
  model.zero_grad();
  softmax_cross_entropy(model.forward(Variable(x)), labels).backward();
}

int count(const std::string& text, const std::string& word) {
  int out = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++out;
  return out;
}

TEST_F(PlannedQuantizerOnCuda, runs_the_weights_of_all_layers_together) {
  const Tensor x = testing::normal(kInput, DType::f32, 1).to(cuda());
  const Tensor labels = Tensor::zeros({5}, DType::i32).to(cuda());
  const struct {
    Compression how;
    int groups, masks_alone;
  } cases[] = {{{.masks = true, .rounds = false}, 1, 0},
               {{.masks = false, .rounds = true}, 1, 0},
               {{.masks = true, .rounds = true}, 2, 0},
               {{.masks = true, .rounds = true, .observes = "f2"}, 2, 1}};
  for (const auto& one : cases) {
    const auto planned = network(one.how), dynamic = network(one.how);
    for (Module* model : {planned.get(), dynamic.get()}) dynamic_step(*model, x, labels);
    std::string why;
    const auto plan = StepPlan::make(*planned, kInput, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_EQ(count(plan->text(), "in one launch: "), one.groups) << plan->text();
    EXPECT_EQ(count(plan->text(), "f2.mask  mask"), one.masks_alone) << plan->text();
    dynamic_step(*dynamic, x, labels);
    plan->forward(x, labels);
    plan->backward();
    const auto a = planned->parameters(), b = dynamic->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE(a[i].name);
      // In each of three layers, up to 108 products are summed in another order. So the error is 3
      // * 108 * 2^-24 of the sum over magnitudes, which is up to ten times as large as the sum
      // itself if the sum is not near 0.
      EXPECT_TRUE(testing::near(a[i].variable.grad().to(Device{}),
                                b[i].variable.grad().to(Device{}), 2e-4, 2e-4));
    }
  }
}

}  // namespace
}  // namespace convscope

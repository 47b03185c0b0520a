// SPDX-License-Identifier: Apache-2.0
// planned_mask_test.cpp: tests that a masked network has the same bits in a compiled and in a
// dynamic step, and that a compiled step uses a mask that has changed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "sparsity/mask.h"
#include "tests/sparsity/networks.h"

namespace convscope {
namespace {

struct Masked {
  std::shared_ptr<Module> model;
  std::vector<std::shared_ptr<Mask>> masks;
};

Masked masked(const Shape& input) {
  LayerContext context;
  context.seed = 7;
  context.conv_policy = [](const std::string&) {
    return Conv2dPolicy{"direct", "direct", "direct", "nchw"};
  };
  Options conv, linear;
  conv.set("out_channels", std::int64_t{24});
  conv.set("kernel_size", std::vector<std::int64_t>{3});
  linear.set("out_features", std::int64_t{7});
  Masked out{.model = build_layers({{.type = "conv2d", .name = "c1", .options = conv},
                                    {.type = "relu", .name = "r1", .options = {}},
                                    {.type = "flatten", .name = "flat", .options = {}},
                                    {.type = "linear", .name = "f", .options = linear}},
                                   input, context),
             .masks = {}};
  for (const NamedModule& part : out.model->modules()) {
    if (!part.module->weight().defined()) continue;
    out.masks.push_back(std::make_shared<Mask>(part.module->weight().value()));
    part.module->add_weight_transform("mask", out.masks.back(), /*first=*/true);
  }
  return out;
}

// Keeps one weight in `every`.
void prune_every(const Masked& network, std::int64_t every) {
  for (const auto& mask : network.masks) {
    const Tensor keep = Tensor::zeros(mask->keep().shape());
    for (std::int64_t i = 0; i < keep.numel(); i += every) keep.data<float>()[i] = 1;
    mask->set_keep(keep);
  }
}

TEST(PlannedMask, gives_the_bits_of_the_dynamic_graph_and_sees_the_mask_of_now) {
  const Shape input{5, 20, 9, 9};
  const Masked planned = masked(input);
  const Masked dynamic = masked(input);
  std::string why;
  const auto plan = StepPlan::make(*planned.model, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find("c1.mask  mask"), std::string::npos) << plan->text();
  const Tensor x = Tensor::empty(input);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  }
  const Tensor labels = Tensor::zeros({5}, DType::i32);
  for (const std::int64_t every : {1, 10, 3}) {
    prune_every(planned, every);
    prune_every(dynamic, every);
    EXPECT_TRUE(plan->is_current());
    dynamic.model->zero_grad();
    const Variable loss = softmax_cross_entropy(dynamic.model->forward(Variable(x)), labels);
    loss.backward();
    EXPECT_EQ(plan->forward(x, labels), loss.value().item());
    plan->backward();
    const auto a = planned.model->parameters();
    const auto b = dynamic.model->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Tensor& da = a[i].variable.grad();
      const Tensor& db = b[i].variable.grad();
      EXPECT_EQ(
          std::memcmp(da.raw_data(), db.raw_data(), static_cast<std::size_t>(da.size_bytes())), 0)
          << a[i].name << " one in " << every;
    }
  }
}

TEST(PlannedMask, that_observes_or_trains_pruned_weights_is_another_plan) {
  const Shape input{5, 20, 9, 9};
  const Masked network = masked(input);
  const auto plan = StepPlan::make(*network.model, input, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  network.masks[0]->observe_gradient(true);
  EXPECT_FALSE(plan->is_current());
  network.masks[0]->observe_gradient(false);
  EXPECT_TRUE(plan->is_current());
  network.masks[0]->set_dense_gradient(true);
  EXPECT_FALSE(plan->is_current());
}

}  // namespace
}  // namespace convscope

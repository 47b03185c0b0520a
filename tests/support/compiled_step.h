// SPDX-License-Identifier: Apache-2.0
// compiled_step.h: compares a compiled training step with the same step in eager execution.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "tests/support/numbers.h"

namespace convscope::testing {

// Builds a network of `layers`, a flatten layer and a linear layer twice. Expects the same loss and
// the same gradients from a compiled step and an eager step: the same bits, or errors of at most
// `relative` times the largest element. Returns the operations of the compiled step. `place` gives
// the device and the precision.
inline std::string expect_compiled_like_eager(std::vector<LayerSpec> layers, const Shape& input,
                                              const Conv2dPolicy& policy = {}, double relative = 0,
                                              const LayerContext& place = {}) {
  Options classes;
  classes.set("out_features", std::int64_t{7});
  layers.push_back({.type = "flatten", .name = "flat", .options = {}});
  layers.push_back({.type = "linear", .name = "f", .options = classes});
  const auto network = [&] {
    LayerContext context = place;
    context.seed = 5;
    context.conv_policy = [&](const std::string&) { return policy; };
    return build_layers(layers, input, context);
  };
  const auto compiled = network(), eager = network();
  std::string why;
  ::setenv("CONVSCOPE_OVERWRITE_DEAD_MEMORY", "1", 1);
  const auto plan = StepPlan::make(*compiled, input, PlanMode::training, &why);
  if (plan == nullptr) {
    ADD_FAILURE() << why;
    return "";
  }
  const Tensor x = normal(input, DType::f32, 5).to(place.device);
  const Tensor labels = Tensor::zeros({input[0]}, DType::i32, place.device);
  const Variable loss = softmax_cross_entropy(eager->forward(Variable(x)), labels);
  loss.backward();
  EXPECT_NEAR(plan->forward(x, labels), loss.value().item(), relative * loss.value().item());
  plan->backward();
  const auto a = compiled->parameters(), b = eager->parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].variable.grad().defined() || !b[i].variable.grad().defined()) {
      ADD_FAILURE() << a[i].name << " has no gradient";
      continue;
    }
    const Tensor da = a[i].variable.grad().to(Device{}), db = b[i].variable.grad().to(Device{});
    double largest = 0;
    for (std::int64_t j = 0; j < db.numel(); ++j) largest = std::fmax(largest, std::abs(db.at(j)));
    EXPECT_GT(largest, 0) << a[i].name;
    EXPECT_TRUE(relative == 0 ? same_bits(da, db) : near(da, db, relative * largest, 0))
        << a[i].name;
  }
  return plan->text();
}

}  // namespace convscope::testing

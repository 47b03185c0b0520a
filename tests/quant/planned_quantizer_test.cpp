// SPDX-License-Identifier: Apache-2.0
// planned_quantizer_test.cpp: tests networks with fake quantisers. Compiled and dynamic steps have
// the same bits. Only in a chain that holds one sample per vector lane, they differ by the
// summation order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

std::shared_ptr<Module> quantised(const Shape& input, std::int64_t channels,
                                  const std::string& algorithm, bool per_channel = false) {
  LayerContext context;
  context.seed = 7;
  context.conv_policy = [&](const std::string&) {
    return Conv2dPolicy{algorithm, algorithm, algorithm, "nchw"};
  };
  const auto conv = [](std::int64_t k) {
    Options out;
    out.set("out_channels", k);
    out.set("kernel_size", std::vector<std::int64_t>{3});
    return out;
  };
  Options pool, linear;
  pool.set("kernel_size", std::vector<std::int64_t>{2});
  linear.set("out_features", std::int64_t{7});
  const auto model = build_layers({{.type = "conv2d", .name = "c1", .options = conv(channels)},
                                   {.type = "relu", .name = "r1", .options = {}},
                                   {.type = "max_pool2d", .name = "p1", .options = pool},
                                   {.type = "conv2d", .name = "c2", .options = conv(channels + 4)},
                                   {.type = "relu", .name = "r2", .options = {}},
                                   {.type = "flatten", .name = "flat", .options = {}},
                                   {.type = "linear", .name = "f", .options = linear}},
                                  input, context);
  QuantConfig config;
  config.w_bits = config.a_bits = 4;
  config.per_channel = per_channel;
  apply_quantization(*model, config, Device{});
  return model;
}

Tensor waves(const Shape& shape, double phase) {
  const Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + phase));
  }
  return x;
}

double dynamic_step(Module& model, const Tensor& x, const Tensor& labels) {
  model.zero_grad();
  const Variable loss = softmax_cross_entropy(model.forward(Variable(x)), labels);
  loss.backward();
  return loss.value().item();
}

// Returns the largest difference between compiled and dynamic gradients, relative to the largest
// gradient of the parameter.
double largest_difference(Module& planned, Module& dynamic) {
  double largest = 0;
  const auto a = planned.parameters();
  const auto b = dynamic.parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor& da = a[i].variable.grad();
    const Tensor& db = b[i].variable.grad();
    double scale = 1e-20, difference = 0;
    for (std::int64_t j = 0; j < da.numel(); ++j) {
      scale = std::max(scale, std::abs(db.at(j)));
      difference = std::max(difference, std::abs(da.at(j) - db.at(j)));
    }
    largest = std::max(largest, difference / scale);
  }
  return largest;
}

TEST(PlannedQuantizer, gives_the_bits_of_the_dynamic_graph) {
  const Shape input{6, 20, 12, 12};
  for (const bool per_channel : {false, true}) {
    const auto planned = quantised(input, 24, "direct", per_channel);
    const auto dynamic = quantised(input, 24, "direct", per_channel);
    const Tensor labels = Tensor::zeros({6}, DType::i32);
    std::string why;
    EXPECT_EQ(StepPlan::make(*planned, input, PlanMode::training, &why), nullptr);
    EXPECT_NE(why.find("it calibrates in this step"), std::string::npos) << why;
    for (Module* model : {planned.get(), dynamic.get()})
      dynamic_step(*model, waves(input, 0), labels);
    planned->zero_grad();
    const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    for (int step = 1; step < 3; ++step) {
      const double expected = dynamic_step(*dynamic, waves(input, step), labels);
      EXPECT_EQ(plan->forward(waves(input, step), labels), expected);
      plan->backward();
      EXPECT_EQ(largest_difference(*planned, *dynamic), 0) << "step " << step;
      // The next step uses other quantiser steps, within their bounds.
      for (Module* model : {planned.get(), dynamic.get()}) {
        for (NamedParameter& p : model->parameters()) {
          Tensor value = p.variable.value();
          for (std::int64_t i = 0; i < value.numel(); ++i) {
            value.data<float>()[i] -= 0.3f * p.variable.grad().data<float>()[i];
          }
        }
      }
    }
  }
}

TEST(PlannedQuantizer, rounds_inside_a_chain_of_the_lanes) {
  const Shape input{37, 1, 14, 14};
  // Named, because on some CPUs `auto` chooses other algorithms.
  const auto planned = quantised(input, 6, "direct_batch_lanes");
  const auto dynamic = quantised(input, 6, "direct_batch_lanes");
  const Tensor labels = Tensor::zeros({37}, DType::i32);
  for (Module* model : {planned.get(), dynamic.get()})
    dynamic_step(*model, waves(input, 0), labels);
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  bool chained = false;
  for (const RanKernel& ran : plan->kernels()) chained |= ran.kernel == "lanes_chain: c1+c2";
  EXPECT_TRUE(chained) << plan->text();
  const double expected = dynamic_step(*dynamic, waves(input, 1), labels);
  EXPECT_NEAR(plan->forward(waves(input, 1), labels), expected, 1e-4);
  plan->backward();
  // A sum near the border of two codes may round to either code. Then one value changes by one step
  // size.
  EXPECT_LT(largest_difference(*planned, *dynamic), 2e-2);
}

TEST(PlannedQuantizer, that_counts_or_begins_makes_another_plan) {
  const Shape input{6, 20, 12, 12};
  const auto model = quantised(input, 24, "direct");
  dynamic_step(*model, waves(input, 0), Tensor::zeros({6}, DType::i32));
  const auto plan = StepPlan::make(*model, input, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  Quantizer* const quantizer = quantized_tensors(*model).front().quantizer;
  quantizer->observe(true);
  EXPECT_FALSE(plan->is_current());
  quantizer->observe(false);
  EXPECT_TRUE(plan->is_current());
  quantizer->set_kept(3);
  EXPECT_FALSE(plan->is_current());
}

}  // namespace
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// deform_layer_test.cpp: tests the layer: its initial state, a compiled step with the same bits as
// the dynamic graph, learning, and refused arguments.
#include <gtest/gtest.h>

#include "framework/ops/elementwise.h"
#include "layers/deform_conv2d/deform_conv2d.h"
#include "layers/dispatch/operator_use.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "optim/optimizer.h"
#include "tests/layers/deform_conv2d/deform_network.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.size_bytes())), 0)
      << what;
}

// Runs two steps of training and an inference.
void expect_same_steps(const std::vector<LayerSpec>& specs, const Shape& input,
                       const char* in_text) {
  const auto planned = network(specs, input), dynamic = network(specs, input);
  move_branches(*planned);
  move_branches(*dynamic);
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find(in_text), std::string::npos) << plan->text();
  const Tensor y = labels(input[0]);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = normal(input, DType::f32, step + 1);
    dynamic->zero_grad();
    const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), y);
    loss.backward();
    EXPECT_EQ(plan->forward(x, y), loss.value().item());
    plan->backward();
    const auto a = planned->parameters(), b = dynamic->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      expect_same_bits(a[i].variable.grad(), b[i].variable.grad(), a[i].name);
    }
  }
  const auto inference = StepPlan::make(*planned, input, PlanMode::inference, &why);
  ASSERT_NE(inference, nullptr) << why;
  inference->prepare();
  const NoGrad no_grad;
  const Tensor x = normal(input, DType::f32, 3);
  expect_same_bits(inference->infer(x), dynamic->forward(Variable(x)).value(), "logits");
}

TEST(DeformLayer, PlannedGivesTheBitsOfTheDynamicGraph) {
  const Shape images{6, 8, 9, 10};
  const LayerSpec conv =
      layer("conv2d", "c", {{"out_channels", std::int64_t{20}}, {"kernel_size", Ints{3}}});
  expect_same_steps(ending({deform("d", 12), layer("relu", "r")}), images, "d  deform_conv2d");
  expect_same_steps(ending({conv, layer("relu", "r"), deform("d", 12)}), images,
                    "d  channels 18 to 26");
  expect_same_steps(ending({conv, deform("d", 12, {{"mask", false}}), layer("relu", "r")}), images,
                    "d  deform_conv2d");
  expect_same_steps(ending({conv, deform("d", 12,
                                         {{"groups", std::int64_t{2}},
                                          {"offset_groups", std::int64_t{5}},
                                          {"stride", Ints{2, 1}},
                                          {"bias", false}})}),
                    images, "d.branch  conv2d direct");
  expect_same_steps(ending({deform("d", 12, {{"algorithm", std::string("check:fused,reference")}}),
                            deform("e", 4, {{"algorithm", std::string("im2col_gemm")}})}),
                    images, "d  deform_conv2d fused checked by reference");
}

TEST(DeformLayer, BeginsAsHalfAConvolutionWithTheSameNumbers) {
  const Shape input{2, 3, 8, 8};
  const auto whole = network(ending({deform("d", 4)}), input);
  LayerSpec plain = deform("d", 4);
  plain.type = "conv2d";
  const auto conv = network(ending({plain}), input);
  const auto a = whole->parameters(), b = conv->parameters();
  ASSERT_EQ(a.size(), b.size() + 2);
  expect_same_bits(a[0].variable.value(), b[0].variable.value(), "weight");
  expect_same_bits(a[1].variable.value(), b[1].variable.value(), "bias");
  expect_same_bits(a[4].variable.value(), b[2].variable.value(), "of the layer behind");
  auto& layer = dynamic_cast<DeformConv2d&>(whole->layer(0));
  const DeformConv2d::Places at = layer.places(Variable(normal(input, DType::f32)));
  EXPECT_TRUE(near(at.offset.value(), Tensor::zeros({2, 18, 8, 8}), 0, 0));
  EXPECT_TRUE(near(at.mask.value(), Tensor::full({2, 9, 8, 8}, 0.5), 0, 0));
}

TEST(DeformLayer, SaysWhatItAsksFor) {
  const Shape input{2, 3, 8, 8};
  const auto model = network({deform("d", 4)}, input);
  std::vector<std::string> said;
  model->walk({input}, [&](Module& part, const Shapes& arrives) {
    said.push_back(cat(part.operator_use(arrives[0])->operation(), " ", arrives[0]));
  });
  EXPECT_EQ(said, (std::vector<std::string>{"conv2d [2,3,8,8]", "deform_conv2d [2,3,8,8]"}));
  const auto& d = dynamic_cast<const DeformConv2d&>(model->layer(0));
  EXPECT_EQ(d.operator_use(input)->problem(), d.problem(input).text());
  EXPECT_EQ(d.output_shape(input), (Shape{2, 4, 8, 8}));
  const std::vector<NamedParameter> parameters = model->parameters();
  const auto scale_of = [&](const std::string& name) {
    return std::ranges::find(parameters, name, &NamedParameter::name)->lr_scale;
  };
  EXPECT_EQ(scale_of("d.weight"), 1.0);
  EXPECT_EQ(scale_of("d.branch.weight"), 0.1);
  EXPECT_EQ(scale_of("d.branch.bias"), 0.1);
}

TEST(Module, MultipliesTheLearningRatesOfModulesInsideEachOther) {
  const auto model = network({deform("d", 4)}, {2, 3, 8, 8});
  model->scale_learning_rate(0.5);
  EXPECT_EQ(model->parameters()[0].lr_scale, 0.5);
  EXPECT_EQ(model->parameters()[2].lr_scale, 0.05);
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a factor on the learning rate of at least 0, got -1",
               model->scale_learning_rate(-1));
}

TEST(DeformLayer, FitsABatchInThirtySteps) {
  const Shape input{8, 2, 8, 8};
  const auto model = network(
      ending({deform("d", 8), layer("relu", "r"), deform("e", 8, {{"mask", false}})}), input);
  const Variable x(normal(input, DType::f32));
  const double loss = loss_after(30, *model, [&] {
    const Variable now = softmax_cross_entropy(model->forward(x), labels(8));
    now.backward();
    return now.value().item();
  });
  EXPECT_LT(loss, 0.05);
  for (const NamedParameter& parameter : model->parameters()) {  // the branches have learnt, too
    if (parameter.name.find(".branch.weight") == std::string::npos) continue;
    EXPECT_FALSE(near(parameter.variable.value(), Tensor::zeros(parameter.variable.shape()), 0, 0));
  }
}

TEST(DeformLayer, RefusesWhatItCannotDo) {
  const auto build = [](Pairs keys, const Shape& input) {
    LayerContext context;
    context.layer_name = "d";
    const LayerSpec spec = deform("d", 4, std::move(keys));
    return build_layer("deform_conv2d", spec.options, input, context);
  };
  const Shape input{1, 6, 8, 8};
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[deform_conv2d] expected offset_groups to divide the input channels, got 4 "
               "offset_groups and 6 input channels",
               build({{"offset_groups", std::int64_t{4}}}, input));
  EXPECT_ERROR(ErrorKind::kInvalid, "[deform_conv2d] expected groups to divide both",
               build({{"groups", std::int64_t{3}}}, input));
  EXPECT_ERROR(ErrorKind::kInvalid, "[deform_conv2d] expected x of rank 4", build({}, {1, 6}));
  EXPECT_ERROR(ErrorKind::kUnavailable, "winograd_f4x3",
               build({{"algorithm", std::string("winograd_f4x3")}}, input));
  EXPECT_ERROR(ErrorKind::kInvalid, "[deform_conv2d] expected 'stride' to be one number",
               build({{"stride", Ints{1, 1, 1}}}, input));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected x with 6 channels",
               build({}, input)->forward(Variable(Tensor::zeros({1, 5, 8, 8}))));
}

}  // namespace
}  // namespace convscope::testing

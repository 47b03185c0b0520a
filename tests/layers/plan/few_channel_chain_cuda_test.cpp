// SPDX-License-Identifier: Apache-2.0
// few_channel_chain_cuda_test.cpp: tests that a compiled step on a GPU fuses the convolutions of a
// LeNet with their activations and poolings. Loss and gradients agree with the dynamic graph on the
// CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::options;
using FewChannelChainPlan = testing::CudaTest;

std::shared_ptr<Module> lenet5(const Options& chosen, const Shape& input,
                               ComputePrecision precision = ComputePrecision::f32) {
  LayerContext context;
  context.seed = 2;
  context.precision = precision;
  const ModelType& type = model_types().get("lenet5");
  return type.build(complete_options(type.fields, chosen, "lenet5"), input, 10, context);
}

void move_to(Module& model, Device device) {
  for (const NamedParameter& parameter : model.parameters()) {
    Variable variable = parameter.variable;
    variable.set_value(variable.value().to(device));
  }
}

Tensor labels(std::int64_t n) {
  const Tensor out = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) out.data<std::int32_t>()[i] = static_cast<int>(i * 3 % 10);
  return out;
}

// Gradients are sums over the batch and over pixels. Another summation order changes them by a few
// hundred eps of the largest element (lanes_chain_test.cpp explains the bound).
constexpr double kBound = 200 * 1.2e-7;

void expect_same_as_dynamic(const Options& chosen, std::int64_t n, const Shape& image,
                            const char* text) {
  const Shape input{n, image[0], image[1], image[2]};
  const auto dynamic = lenet5(chosen, input);
  const auto planned = lenet5(chosen, input);
  move_to(*planned, cuda());
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find(text), std::string::npos) << plan->text();
  const Tensor x = testing::normal(input, DType::f32);
  const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels(n));
  loss.backward();
  const Tensor images = x.to(cuda());
  for (int run = 0; run < 2; ++run) {  // the second run reuses memory
    EXPECT_NEAR(plan->forward(images, labels(n).to(cuda())), loss.value().item(), 1e-5);
    plan->backward();
    const auto a = planned->parameters();
    const auto b = dynamic->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Tensor got = a[i].variable.grad().to(Device{});
      const Tensor& want = b[i].variable.grad();
      double largest = 0;
      for (std::int64_t j = 0; j < want.numel(); ++j) {
        largest = std::max(largest, std::abs(want.at(j)));
      }
      EXPECT_TRUE(testing::near(got, want, kBound * largest, 0)) << a[i].name << " batch " << n;
    }
  }
}

// The batches are so large that many thread blocks write partial gradients, which another kernel
// must add.
TEST_F(FewChannelChainPlan, adds_the_pieces_of_many_blocks) {
  for (const std::int64_t n : {20, 70}) {
    expect_same_as_dynamic(options({{"kernel_size", std::int64_t{3}}}), n, {1, 20, 20},
                           "in one kernel:");
  }
}

TEST_F(FewChannelChainPlan, joins_both_convolutions_of_a_lenet) {
  const char* const text =
      "in one kernel: c1 conv2d direct_sample + relu + max_pool2d; c2 conv2d direct_sample + relu "
      "+ max_pool2d;";
  expect_same_as_dynamic(options({}), 5, {1, 28, 28}, text);
  expect_same_as_dynamic(options({{"kernel_size", std::int64_t{7}}}), 2, {3, 32, 32}, text);
  expect_same_as_dynamic(options({{"kernel_size", std::int64_t{3}}, {"padding", std::int64_t{1}}}),
                         3, {2, 17, 19}, text);
}

// Compares half precision with f32. Rounding makes some ReLUs and some pooling windows choose
// differently, and the share of such switches grows with the unit of the type. All switches change
// a gradient by about the same amount, so the norm of the difference grows with the root of the
// unit.
TEST_F(FewChannelChainPlan, joins_them_in_half_precision_too) {
  const Shape input{5, 1, 28, 28};
  const Tensor x = testing::normal(input, DType::f32);
  const auto exact = lenet5(options({}), input);
  const Variable loss = softmax_cross_entropy(exact->forward(Variable(x)), labels(5));
  loss.backward();
  for (const ComputePrecision precision : {ComputePrecision::bf16, ComputePrecision::f16}) {
    SCOPED_TRACE(name_of(precision));
    const auto planned = lenet5(options({}), input, precision);
    move_to(*planned, cuda());
    std::string why;
    const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_EQ(plan->why_not_recordable(), "");
    EXPECT_NE(plan->text().find(cat("c2 conv2d direct_sample + relu + max_pool2d; operands in ",
                                    name_of(precision))),
              std::string::npos)
        << plan->text();
    const double unit = precision == ComputePrecision::bf16 ? 0x1p-8 : 0x1p-11;
    EXPECT_NEAR(plan->forward(x.to(cuda()), labels(5).to(cuda())), loss.value().item(), unit);
    plan->backward();
    for (std::size_t i = 0; i < planned->parameters().size(); ++i) {
      const Tensor got = planned->parameters()[i].variable.grad().to(Device{});
      const Tensor want = exact->parameters()[i].variable.grad();
      double error = 0, size = 0;
      for (std::int64_t j = 0; j < want.numel(); ++j) {
        error += std::pow(got.at(j) - want.at(j), 2);
        size += std::pow(want.at(j), 2);
      }
      EXPECT_LT(std::sqrt(error / size), 4 * std::sqrt(unit)) << planned->parameters()[i].name;
      EXPECT_GT(std::sqrt(error / size), unit / 1000) << planned->parameters()[i].name;
    }
  }
}

TEST_F(FewChannelChainPlan, takes_a_tanh_with_it) {
  expect_same_as_dynamic(
      options({{"activation", std::string("tanh")}}), 3, {1, 28, 28},
      "c1 conv2d direct_sample + tanh + max_pool2d; c2 conv2d direct_sample + tanh");
}

TEST_F(FewChannelChainPlan, leaves_large_images_to_the_algorithms) {
  const Shape input{1, 3, 200, 200};
  const auto model = lenet5(options({}), input);
  move_to(*model, cuda());
  std::string why;
  const auto plan = StepPlan::make(*model, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_EQ(plan->text().find("in one kernel"), std::string::npos) << plan->text();
}

TEST_F(FewChannelChainPlan, infers_without_gradients) {
  const Shape input{4, 1, 28, 28};
  const auto dynamic = lenet5(options({}), input);
  const auto planned = lenet5(options({}), input);
  move_to(*planned, cuda());
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::inference, &why);
  ASSERT_NE(plan, nullptr) << why;
  const Tensor x = testing::normal(input, DType::f32);
  const Tensor got = plan->infer(x.to(cuda())).to(Device{});
  EXPECT_TRUE(testing::near(got, dynamic->forward(Variable(x)).value(), 1e-5, 1e-5));
}

}  // namespace
}  // namespace convscope

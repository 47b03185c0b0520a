// SPDX-License-Identifier: Apache-2.0
// lenet5_test.cpp: LeNet-5: its numbers, its options, its gradients.
#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "layers/losses/cross_entropy.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::normal;
using testing::on_every_machine;
using testing::options;

std::shared_ptr<Module> lenet5(const Options& given, const Shape& input, std::uint64_t seed = 1) {
  LayerContext context;
  context.seed = seed;
  const ModelType& type = model_types().get("lenet5");
  return type.build(complete_options(type.fields, given, "lenet5"), input, 10, context);
}

Shape shape_of(Module& network, const std::string& parameter) {
  for (const NamedParameter& p : network.parameters()) {
    if (p.name == parameter) return p.variable.shape();
  }
  return {};
}

TEST(LeNet5, HasTheNumbersOfTheTextbook) {
  const auto mnist = lenet5({}, {1, 1, 28, 28});
  EXPECT_EQ(mnist->kind(), "lenet5");
  EXPECT_EQ(shape_of(*mnist, "c1.weight"), (Shape{6, 1, 5, 5}));
  EXPECT_EQ(shape_of(*mnist, "c2.weight"), (Shape{16, 6, 5, 5}));
  EXPECT_EQ(shape_of(*mnist, "f3.weight"), (Shape{120, 256}));
  EXPECT_EQ(shape_of(*mnist, "f5.bias"), (Shape{10}));
  EXPECT_EQ(mnist->parameter_count(), 44426);
  const auto padded = lenet5(options({{"padding", std::int64_t{2}}}), {1, 1, 28, 28});
  EXPECT_EQ(padded->parameter_count(), 61706);  // the well-known count: 28x28 with padding 2
  const auto cifar = lenet5({}, {1, 3, 32, 32});
  EXPECT_EQ(shape_of(*cifar, "f3.weight"), (Shape{120, 400}));
}

TEST(LeNet5, EveryOptionGivesANetworkThatRuns) {
  for (const std::int64_t kernel : {3, 5, 7}) {
    for (const char* activation : {"relu", "tanh"}) {
      for (const char* pool : {"max", "avg"}) {
        const auto network = lenet5(options({{"kernel_size", kernel},
                                             {"activation", std::string(activation)},
                                             {"pool", std::string(pool)}}),
                                    {1, 3, 32, 32});
        const Variable y = network->forward(Variable(normal({2, 3, 32, 32}, DType::f32)));
        EXPECT_EQ(y.shape(), (Shape{2, 10}));
        EXPECT_EQ(y.shape(), network->output_shape({2, 3, 32, 32}));
      }
    }
  }
}

TEST(LeNet5, AnEmptyBatchGoesThrough) {
  const auto network = lenet5({}, {1, 1, 28, 28});
  EXPECT_EQ(network->forward(Variable(Tensor::empty({0, 1, 28, 28}))).shape(), (Shape{0, 10}));
}

// Compares the slope of the loss along the gradient of each parameter with a finite difference
// in f32.
TEST(LeNet5, GradientsOfTheWholeNetworkMatchDifferences) {
  const auto network = lenet5(
      options({{"activation", std::string("tanh")}, {"pool", std::string("avg")}}), {1, 1, 28, 28});
  const Variable x(normal({4, 1, 28, 28}, DType::f32));
  const Tensor labels = Tensor::zeros({4}, DType::i32);
  for (int i = 0; i < 4; ++i) labels.data<std::int32_t>()[i] = 3 * i;
  const auto loss = [&] { return softmax_cross_entropy(network->forward(x), labels); };
  loss().backward();
  for (const NamedParameter& p : network->parameters()) {
    const Tensor gradient = p.variable.grad();
    const Tensor value = p.variable.value();
    double square = 0;
    for (std::int64_t i = 0; i < gradient.numel(); ++i) square += gradient.at(i) * gradient.at(i);
    ASSERT_GT(square, 0) << p.name;
    const Tensor before = value.clone();
    const auto moved = [&](double step) {
      for (std::int64_t i = 0; i < value.numel(); ++i) {
        value.data<float>()[i] = static_cast<float>(before.at(i) + step * gradient.at(i));
      }
      const NoGrad no_grad;
      return loss().value().item();
    };
    // The step changes the loss by about 0.02, so that rounding (1e-6) and curvature have little
    // effect.
    const double step = 0.01 / square;
    const double slope = (moved(step) - moved(-step)) / (2 * step);
    value.copy_from(before);
    EXPECT_NEAR(slope / square, 1, 0.01) << p.name;
  }
}

TEST(LeNet5, OneAndTwoThreadsGiveTheSameBitsOfEveryGradient) {
  const auto network = lenet5({}, {1, 1, 28, 28});
  const Tensor x = normal({64, 1, 28, 28}, DType::f32);
  const Tensor labels = Tensor::zeros({64}, DType::i32);
  on_every_machine(
      [&] {
        network->zero_grad();
        softmax_cross_entropy(network->forward(Variable(x)), labels).backward();
        Tensor all = Tensor::empty({network->parameter_count()});
        std::int64_t at = 0;
        for (const NamedParameter& p : network->parameters()) {
          const Tensor gradient = p.variable.grad();
          all.slice_rows(at, gradient.numel()).copy_from(gradient.reshape({gradient.numel()}));
          at += gradient.numel();
        }
        return all;
      },
      [](const Tensor&) {});
}

TEST(LeNet5, ErrorsSayHowLargeTheImageMustBe) {
  EXPECT_EQ(
      error_of([] {
        lenet5({}, {1, 1, 15, 28});
      }),
      "[lenet5] expected images of at least 16x16 pixels because kernel_size is 5 and padding "
      "is 0, got 15x28");
  EXPECT_EQ(lenet5({}, {1, 1, 16, 16})->output_shape({1, 1, 16, 16}), (Shape{1, 10}));
  EXPECT_NE(error_of([] {
              lenet5(options({{"kernel_size", std::int64_t{4}}}), {1, 1, 28, 28});
            }).find("expected a kernel_size of 3, 5 or 7, got 4"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              lenet5({}, {1, 784});
            }).find("expected images [N,C,H,W], got [1,784]"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope

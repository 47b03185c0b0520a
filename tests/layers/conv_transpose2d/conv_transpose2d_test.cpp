// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d_test.cpp: the transposed convolution against plain loops over its formula, for
// every algorithm, its gradients, and the compiled step.
#include "layers/conv_transpose2d/conv_transpose2d.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "framework/autograd/gradcheck.h"
#include "tests/support/compiled_step.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

struct Case {
  Shape x, w;
  ConvTranspose2dParams params;
};

std::vector<Case> cases() {
  const Padding2d one{1, 1, 1, 1}, uneven{0, 1, 2, 1};
  return {
      {{2, 3, 4, 5}, {3, 4, 3, 3}, {}},
      {{2, 6, 5, 4}, {6, 2, 2, 2}, {.conv = {.stride_h = 2, .stride_w = 2, .groups = 2}}},
      {{1, 5, 3, 4},
       {5, 7, 3, 2},
       {.conv = {.stride_h = 3, .stride_w = 2, .padding = one},
        .output_padding_h = 2,
        .output_padding_w = 1}},
      {{3, 4, 5, 6},
       {4, 3, 3, 3},
       {.conv = {.stride_h = 2, .padding = uneven, .dilation_h = 2, .dilation_w = 3, .groups = 2},
        .output_padding_h = 1}},
      // An output padding above the stride takes rows and columns from the padding.
      {{2, 3, 4, 5},
       {3, 2, 3, 3},
       {.conv = {.padding = {2, 2, 3, 3}, .dilation_h = 3, .dilation_w = 3},
        .output_padding_h = 2,
        .output_padding_w = 1}},
      {{2, 16, 6, 6}, {16, 32, 3, 3}, {.conv = {.stride_h = 2, .stride_w = 2, .padding = one}}},
  };
}

const std::map<std::string, Algorithm<ConvTranspose2dProblem>>& algorithms() {
  return Operator<ConvTranspose2dProblem>::algorithms(DeviceType::cpu).entries();
}

// Returns y in f64, and the sums of |products|, to which errors are relative.
struct Result {
  Tensor y, magnitudes;
};
Result plain_loops(const Case& z, const Tensor& x, const Tensor& w, const Tensor& b) {
  const ConvTranspose2dProblem problem = conv_transpose2d_problem(z.x, z.w, z.params);
  const Conv2dParams& conv = z.params.conv;
  Result out{Tensor::zeros(problem.y_shape(), DType::f64),
             Tensor::zeros(problem.y_shape(), DType::f64)};
  const std::int64_t groups = conv.groups, per_group = z.w[1], in_group = z.x[1] / groups;
  const auto at = [](const Tensor& t, std::int64_t i, std::int64_t j, std::int64_t k,
                     std::int64_t l) -> std::int64_t {
    const Shape& s = t.shape();
    return ((i * s[1] + j) * s[2] + k) * s[3] + l;
  };
  for (std::int64_t n = 0; n < z.x[0]; ++n)
    for (std::int64_t c = 0; c < z.x[1]; ++c)
      for (std::int64_t h = 0; h < z.x[2]; ++h)
        for (std::int64_t i = 0; i < z.x[3]; ++i)
          for (std::int64_t k = 0; k < per_group; ++k)
            for (std::int64_t r = 0; r < z.w[2]; ++r)
              for (std::int64_t s = 0; s < z.w[3]; ++s) {
                const std::int64_t p = h * conv.stride_h - conv.padding.top + r * conv.dilation_h;
                const std::int64_t q = i * conv.stride_w - conv.padding.left + s * conv.dilation_w;
                if (p < 0 || q < 0 || p >= problem.p() || q >= problem.q()) continue;
                const std::int64_t to = at(out.y, n, c / in_group * per_group + k, p, q);
                const double product = x.at(at(x, n, c, h, i)) * w.at(at(w, c, k, r, s));
                out.y.data<double>()[to] += product;
                out.magnitudes.data<double>()[to] += std::abs(product);
              }
  const std::int64_t plane = problem.p() * problem.q();
  for (std::int64_t j = 0; j < out.y.numel(); ++j) {
    const double bias = b.at(j / plane % problem.k);
    out.y.data<double>()[j] += bias;
    out.magnitudes.data<double>()[j] += std::abs(bias);
  }
  return out;
}

// The f32 data have an offset. A sum of up to 16 x 9 terms errs by at most 150 eps of the sum of
// magnitudes; transforms (Winograd, FFT) err relative to the largest sum, hence the second term.
TEST(ConvTranspose2d, EqualsItsFormulaForEveryAlgorithm) {
  int runs = 0;
  for (const Case& z : cases()) {
    Tensor x = testing::normal(z.x, DType::f32, 1);
    for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += 2;
    const Tensor w = testing::normal(z.w, DType::f32, 2);
    const std::int64_t k = z.w[1] * z.params.conv.groups;
    const Tensor b = testing::normal({k}, DType::f32, 3);
    const Result want = plain_loops(z, x, w, b);
    double largest = 0;
    for (std::int64_t i = 0; i < want.y.numel(); ++i) {
      largest = std::max(largest, want.magnitudes.at(i));
    }
    const ConvTranspose2dProblem problem = conv_transpose2d_problem(z.x, z.w, z.params);
    std::vector<std::string> names{"auto"};
    for (const auto& [name, algorithm] : algorithms()) {
      if (support_of(algorithm, problem, Direction::forward).yes) names.push_back(name);
    }
    for (const std::string& name : names) {
      const Tensor y =
          conv_transpose2d(Variable(x), Variable(w), Variable(b), z.params, {.forward = name})
              .value();
      ASSERT_EQ(y.shape(), want.y.shape());
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        ASSERT_NEAR(y.at(i), want.y.at(i), 6e-8 * (150 * want.magnitudes.at(i) + 64 * largest))
            << name << " " << problem.text() << " at " << i;
      }
      ++runs;
    }
  }
  EXPECT_GE(runs, 20);
}

// The gradients in f32 of every algorithm against those of f64, which are checked below. dx is a
// sum of up to 32 x 9 terms, dw of up to 3 x 6 x 6 terms.
TEST(ConvTranspose2d, HasTheGradientsOfF64ForEveryAlgorithm) {
  int runs = 0;
  for (const Case& z : cases()) {
    const Tensor x = testing::normal(z.x, DType::f64, 1), w = testing::normal(z.w, DType::f64, 2);
    const ConvTranspose2dProblem problem = conv_transpose2d_problem(z.x, z.w, z.params);
    const Tensor dy = testing::normal(problem.y_shape(), DType::f64, 4);
    const auto gradients = [&](DType type, const Conv2dPolicy& policy) {
      Variable of_x(x.to(type).clone(), true), of_w(w.to(type).clone(), true);
      conv_transpose2d(of_x, of_w, Variable(), z.params, policy).backward(dy.to(type));
      return std::pair(of_x.grad(), of_w.grad());
    };
    const auto [dx, dw] = gradients(DType::f64, {});
    const auto expect_near = [&](const Tensor& got, const Tensor& want, const std::string& name) {
      double largest = 0;
      for (std::int64_t i = 0; i < want.numel(); ++i) {
        largest = std::max(largest, std::abs(want.at(i)));
      }
      EXPECT_TRUE(testing::near(got.to(DType::f64), want, 300 * 6e-8 * largest, 0))
          << name << " " << problem.text();
      ++runs;
    };
    for (const auto& [name, algorithm] : algorithms()) {
      if (support_of(algorithm, problem, Direction::backward_data).yes) {
        expect_near(gradients(DType::f32, {.backward_data = name}).first, dx, name);
      }
      if (support_of(algorithm, problem, Direction::backward_weight).yes) {
        expect_near(gradients(DType::f32, {.backward_weight = name}).second, dw, name);
      }
    }
  }
  EXPECT_GE(runs, 40);
}

TEST(ConvTranspose2d, HasTheGradientsOfItsFormula) {
  for (const Case& z : cases()) {
    if (z.x[1] > 8) continue;  // too many finite differences
    const std::int64_t k = z.w[1] * z.params.conv.groups;
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& v) {
          return conv_transpose2d(v[0], v[1], v[2], z.params);
        },
        {Variable(testing::normal(z.x, DType::f64, 1), true),
         Variable(testing::normal(z.w, DType::f64, 2), true),
         Variable(testing::normal({k}, DType::f64, 3), true)});
    EXPECT_TRUE(result.ok) << result.str();
  }
}

// The layer before it makes the step compute dx. Its bias sums in another order.
TEST(ConvTranspose2d, IsCompiledWithTheSameNumbers) {
  Options before, up;
  before.set("out_channels", std::int64_t{3});
  before.set("kernel_size", std::vector<std::int64_t>{1});
  up.set("out_channels", std::int64_t{5});
  up.set("kernel_size", std::vector<std::int64_t>{3});
  up.set("stride", std::vector<std::int64_t>{2});
  up.set("output_padding", std::vector<std::int64_t>{1, 0});
  const std::string text = testing::expect_compiled_like_eager(
      {{.type = "conv2d", .name = "c", .options = before},
       {.type = "conv_transpose2d", .name = "up", .options = up},
       {.type = "relu", .name = "r", .options = {}}},
      {4, 3, 6, 5}, {}, 1e-6);
  EXPECT_NE(text.find("up  conv_transpose2d "), std::string::npos) << text;
}

// Algorithms that prepare weights do so when the weights change, not in each inference.
TEST(ConvTranspose2d, InfersWithTheWeightsOfTheLastPreparation) {
  Options up;
  up.set("out_channels", std::int64_t{5});
  up.set("kernel_size", std::vector<std::int64_t>{3});
  int preparing = 0;
  for (const auto& [name, algorithm] : algorithms()) {
    LayerContext context;
    context.conv_policy = [&](const std::string&) { return Conv2dPolicy{.forward = name}; };
    const Shape input{2, 3, 6, 5};
    const auto layer =
        build_layers({{.type = "conv_transpose2d", .name = "up", .options = up}}, input, context);
    const ConvTranspose2dProblem problem = conv_transpose2d_problem(input, {3, 5, 3, 3}, {});
    if (!support_of(algorithm, problem, Direction::forward).yes) continue;
    preparing += algorithm.prepared_size(problem, Direction::forward) > 0;
    layer->eval();
    std::string why;
    const auto plan = StepPlan::make(*layer, input, PlanMode::inference, &why);
    ASSERT_NE(plan, nullptr) << why;
    const Tensor x = testing::normal(input, DType::f32, 1);
    for (const double value : {0.5, -2.0}) {
      layer->parameters()[0].variable.value().fill(value);
      plan->prepare();
      const NoGrad no_grad;
      EXPECT_TRUE(testing::near(plan->infer(x), layer->forward(Variable(x)).value(), 1e-4, 0))
          << name;
    }
  }
  EXPECT_GE(preparing, 2);
}

TEST(ConvTranspose2d, NamesWhatIsExpected) {
  const Variable x(Tensor::zeros({1, 3, 4, 4})), w(Tensor::zeros({3, 2, 3, 3}));
  EXPECT_ERROR(ErrorKind::kInvalid,
               "expected an output_padding below the stride or the dilation, got 1x0 with stride "
               "1x1 and dilation 1x1",
               conv_transpose2d(x, w, Variable(), {.output_padding_h = 1}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected x [N,C,H,W] and w [C,K/G,R,S], got x [1,3,4,4]",
               conv_transpose2d(x, Variable(Tensor::zeros({2, 3, 3, 3})), Variable()));
  EXPECT_ERROR(
      ErrorKind::kInvalid, "expected an output_padding below the stride, or padding of",
      conv_transpose2d(x, w, Variable(), {.conv = {.dilation_h = 2}, .output_padding_h = 1}));
  const Padding2d wide{9, 9, 9, 9};
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a result of at least one pixel",
               conv_transpose2d(x, w, Variable(), {.conv = {.padding = wide}}));
}

TEST(ConvTranspose2d, ParsesTheTextOfItsProblem) {
  const std::string text =
      "n=1,c=12,h=6,w=5,k=18,r=3,s=2,stride=3x2,pad=1x0,dilation=1x2,groups=3,opad=2x1";
  const ConvTranspose2dProblem problem = ConvTranspose2dProblem::parse(text);
  EXPECT_EQ(problem.text(), text);
  EXPECT_EQ(problem.y_shape(), Shape({1, 18, 18, 12}));
  EXPECT_EQ(problem.w_shape(), Shape({12, 6, 3, 2}));
  EXPECT_DOUBLE_EQ(problem.nominal_flops(), 2.0 * 12 * 6 * 5 * 6 * 3 * 2);
  EXPECT_ERROR(ErrorKind::kInvalid, "there is no key 'opadd'",
               ConvTranspose2dProblem::parse("n=1,c=2,h=3,w=3,k=4,opadd=1"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected 'opad' of a problem to be a number or HxW, got '1x'",
               ConvTranspose2dProblem::parse("n=1,c=2,h=3,w=3,k=4,stride=2,opad=1x"));
}

// This algorithm inserts zeros between the pixels of x, so its cost counts the products with them.
TEST(ConvTranspose2d, CountsTheProductsWithInsertedZeros) {
  for (const std::int64_t stride : {1, 2, 3}) {
    ConvTranspose2dProblem problem =
        ConvTranspose2dProblem::parse("n=64,c=32,h=7,w=7,k=16,r=3,s=3,pad=1");
    problem.stride_h = problem.stride_w = stride;
    problem.output_pad_h = problem.output_pad_w = stride - 1;
    const double executed =
        algorithms().at("direct_batch_lanes").cost(problem, Direction::forward).flops;
    EXPECT_DOUBLE_EQ(executed / problem.nominal_flops(), static_cast<double>(stride * stride));
  }
}

TEST(ConvTranspose2d, OffersNoAlgorithmOfIntegersOrPrunedWeights) {
  EXPECT_TRUE(algorithms().contains("im2col_gemm"));
  EXPECT_FALSE(algorithms().contains("int8_direct"));
  EXPECT_FALSE(algorithms().contains("block_sparse"));
}

}  // namespace
}  // namespace convscope

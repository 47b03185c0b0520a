// SPDX-License-Identifier: Apache-2.0
// norm_test.cpp: layer norm and group norm: values, gradients, layouts, compiled steps.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/elementwise.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/norm/group_norm.h"
#include "layers/norm/layer_norm.h"
#include "layers/norm/layer_scale.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/compiled_step.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::build_layer;
using testing::normal;
using testing::options;

// Numbers with an offset, which costs digits where the variance is computed in one pass.
Tensor offset_numbers(const Shape& shape, DType dtype, std::uint64_t seed) {
  return elementwise(BinaryOp::add, normal(shape, dtype, seed), Tensor::full({1}, 30.0, dtype));
}

// Calls body() with each instruction set of this CPU.
template <class Body>
void on_each_isa(const Body& body) {
  const Isa before = current_isa();
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    body();
  }
  set_isa(before);
}

// The formula, with the mean and variance over the elements e of x for which group(e) is the same.
template <class Group>
std::vector<double> normalised(const Tensor& x, const Tensor& weight, const Tensor& bias,
                               double eps, std::int64_t groups, const Group& group) {
  std::vector<double> sum(static_cast<std::size_t>(groups)), squares = sum, count = sum;
  const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(group(i)); };
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    sum[at(i)] += x.at(i);
    count[at(i)] += 1;
  }
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double d = x.at(i) - sum[at(i)] / count[at(i)];
    squares[at(i)] += d * d;
  }
  const std::int64_t plane = x.numel() / (x.dim(0) * x.dim(1));
  std::vector<double> y;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t c = i / plane % x.dim(1);
    const double u =
        (x.at(i) - sum[at(i)] / count[at(i)]) / std::sqrt(squares[at(i)] / count[at(i)] + eps);
    y.push_back(u * weight.at(c) + bias.at(c));
  }
  return y;
}

const Shape kShapes[] = {{2, 5, 3, 4}, {3, 16, 1, 1}, {1, 40, 9, 9},   {2, 1, 3, 3},
                         {5, 7},       {70, 96},      {2, 130, 7, 10}, {1, 3, 1, 200}};

TEST(LayerNorm, HasTheValuesOfItsFormula) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.str());
    const Tensor x = offset_numbers(shape, DType::f32, 1);
    const Tensor weight = normal({shape[1]}, DType::f32, 2),
                 bias = normal({shape[1]}, DType::f32, 3);
    const std::int64_t plane = x.numel() / (shape[0] * shape[1]);
    const std::vector<double> want =
        normalised(x, weight, bias, 1e-3, shape[0] * plane,
                   [&](std::int64_t i) { return i / (plane * shape[1]) * plane + i % plane; });
    on_each_isa([&] {
      const Tensor y = layer_norm(Variable(x), Variable(weight), Variable(bias), 1e-3).value();
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        // x - mean errs by eps |mean|, the division multiplies the error by at most 1 / sqrt(eps).
        ASSERT_NEAR(y.at(i), want[static_cast<std::size_t>(i)],
                    1e-4 + 2e-5 * std::abs(want[static_cast<std::size_t>(i)]))
            << i;
      }
    });
  }
}

GradcheckResult gradcheck_norm(const Shape& shape, bool by_group, std::int64_t groups) {
  return gradcheck(
      [&](const std::vector<Variable>& v) {
        return by_group ? group_norm(v[0], v[1], v[2], groups, 1e-2)
                        : layer_norm(v[0], v[1], v[2], 1e-2);
      },
      {Variable(normal(shape, DType::f64, 1), true),
       Variable(normal({shape[1]}, DType::f64, 2), true),
       Variable(normal({shape[1]}, DType::f64, 3), true)});
}

TEST(LayerNorm, HasTheGradientsOfItsFormula) {
  for (const Shape& shape : {Shape{2, 5, 3, 2}, Shape{3, 4, 1, 1}, Shape{4, 6}}) {
    const GradcheckResult result = gradcheck_norm(shape, false, 0);
    EXPECT_TRUE(result.ok) << shape.str() << ": " << result.str();
  }
}

using NormFunction = Variable (*)(const Variable& x, const Variable& weight, const Variable& bias);

// Expects gradients of f32 near those of f64, and the same bits with any number of threads.
void expect_gradients_of_f64(const Shape& shape, NormFunction norm) {
  SCOPED_TRACE(shape.str());
  const auto gradients = [&](DType dtype) {
    std::vector<Variable> leaves;
    for (int i = 0; i < 3; ++i) {
      leaves.emplace_back(normal(i == 0 ? shape : Shape{shape[1]}, DType::f32, 1 + i).to(dtype),
                          true);
    }
    norm(leaves[0], leaves[1], leaves[2]).backward(normal(shape, DType::f32, 9).to(dtype));
    return std::vector<Tensor>{leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  const std::vector<Tensor> exact = gradients(DType::f64);
  on_each_isa([&] {
    const std::vector<Tensor> single = gradients(DType::f32);
    for (std::size_t i = 0; i < 3; ++i) {
      double largest = 0;
      for (std::int64_t j = 0; j < exact[i].numel(); ++j) {
        largest = std::fmax(largest, std::abs(exact[i].at(j)));
      }
      for (std::int64_t j = 0; j < exact[i].numel(); ++j) {
        ASSERT_NEAR(single[i].at(j), exact[i].at(j), 2e-6 * largest) << "gradient " << i;
      }
    }
    const int before = num_threads();
    set_num_threads(3);
    const std::vector<Tensor> again = gradients(DType::f32);
    set_num_threads(before);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(testing::same_bits(single[i], again[i]));
  });
}

TEST(LayerNorm, HasTheGradientsOfF64) {
  for (const Shape& shape : kShapes) {
    if (shape[1] == 1) continue;  // the gradient of x is 0
    expect_gradients_of_f64(shape, [](const Variable& x, const Variable& w, const Variable& b) {
      return layer_norm(x, w, b, 1e-3);
    });
  }
}

TEST(LayerNorm, IsCompiledWithTheSameBits) {
  const Options conv =
      options({{"out_channels", std::int64_t{24}}, {"kernel_size", std::vector<std::int64_t>{3}}});
  const std::string text =
      testing::expect_compiled_like_eager({{.type = "conv2d", .name = "c", .options = conv},
                                           {.type = "layer_norm", .name = "n", .options = {}}},
                                          {6, 20, 8, 8}, {"reference", "reference", "reference"});
  EXPECT_NE(text.find("n  layer_norm"), std::string::npos) << text;
}

// Sums over channels have another order in NCHW16c. 20 channels leave 12 unused lanes.
TEST(LayerNorm, TakesBlockedImages) {
  const Options conv =
      options({{"out_channels", std::int64_t{20}}, {"kernel_size", std::vector<std::int64_t>{3}}});
  const std::string text = testing::expect_compiled_like_eager(
      {{.type = "conv2d", .name = "c1", .options = conv},
       {.type = "layer_norm", .name = "n", .options = {}},
       {.type = "conv2d", .name = "c2", .options = conv}},
      {6, 24, 9, 9}, {testing::kDirect, testing::kDirect, testing::kDirect, "nchw16c"}, 64 * 6e-8);
  EXPECT_NE(text.find("nchw16c"), std::string::npos) << text;
}

TEST(LayerNorm, TakesAnEmptyBatch) {
  Variable x(Tensor::empty({0, 3, 2, 2}), true), w(normal({3}, DType::f32, 1), true);
  Variable b(normal({3}, DType::f32, 1), true);
  layer_norm(x, w, b).backward(Tensor::empty({0, 3, 2, 2}));
  EXPECT_EQ(w.grad().at(1), 0);
}

TEST(LayerNorm, NamesWhatIsExpected) {
  const Variable w(normal({3}, DType::f32, 1));
  EXPECT_ERROR(
      ErrorKind::kInvalid,
      "[layer_norm] expected x [N,3,H,W] or [N,3] because weight has 3 elements, got [2,4]",
      layer_norm(Variable(normal({2, 4}, DType::f32, 1)), w, w));
  EXPECT_ERROR(ErrorKind::kConfig, "eps: expected 0 to 1, got -1",
               build_layer("layer_norm", options({{"eps", -1.0}}), {1, 4}));
}

TEST(GroupNorm, HasTheValuesOfItsFormula) {
  for (const Shape& shape : {Shape{2, 6, 3, 4}, Shape{3, 12}, Shape{1, 18, 9, 9}}) {
    for (const std::int64_t groups : {1, 3, 6}) {
      SCOPED_TRACE(cat(shape, " ", groups));
      const Tensor x = offset_numbers(shape, DType::f32, 1);
      const Tensor weight = normal({shape[1]}, DType::f32, 2);
      const Tensor bias = normal({shape[1]}, DType::f32, 3);
      const std::int64_t each = x.numel() / (shape[0] * groups);
      const std::vector<double> want = normalised(x, weight, bias, 1e-3, shape[0] * groups,
                                                  [&](std::int64_t i) { return i / each; });
      const Tensor y =
          group_norm(Variable(x), Variable(weight), Variable(bias), groups, 1e-3).value();
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        ASSERT_NEAR(y.at(i), want[static_cast<std::size_t>(i)],
                    1e-4 + 2e-5 * std::abs(want[static_cast<std::size_t>(i)]));
      }
    }
  }
}

TEST(GroupNorm, HasTheGradientsOfItsFormula) {
  for (const Shape& shape : {Shape{2, 6, 3, 2}, Shape{4, 6}}) {
    for (const std::int64_t groups : {1, 2}) {
      const GradcheckResult result = gradcheck_norm(shape, true, groups);
      EXPECT_TRUE(result.ok) << shape.str() << ": " << result.str();
    }
  }
  for (const Shape& shape : {Shape{3, 24, 5, 7}, Shape{40, 32}}) {
    expect_gradients_of_f64(shape, [](const Variable& x, const Variable& w, const Variable& b) {
      return group_norm(x, w, b, 8, 1e-3);
    });
  }
}

TEST(GroupNorm, IsCompiledWithTheSameBits) {
  const Options conv =
      options({{"out_channels", std::int64_t{24}}, {"kernel_size", std::vector<std::int64_t>{3}}});
  const std::string text = testing::expect_compiled_like_eager(
      {{.type = "conv2d", .name = "c", .options = conv},
       {.type = "group_norm", .name = "n", .options = options({{"groups", std::int64_t{4}}})}},
      {6, 20, 8, 8}, {"reference", "reference", "reference"});
  EXPECT_NE(text.find("n  group_norm"), std::string::npos) << text;
}

TEST(GroupNorm, NamesWhatIsExpected) {
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[group_norm] expected groups to divide the channels of x, got 4 groups and x "
               "[1,6,2,2]",
               build_layer("group_norm", options({{"groups", std::int64_t{4}}}), {1, 6, 2, 2}));
}

TEST(LayerScale, MultipliesChannelsByTheirFactor) {
  for (const Shape& shape : {Shape{2, 5, 3, 4}, Shape{3, 4}}) {
    const Tensor x = normal(shape, DType::f32, 1), w = normal({shape[1]}, DType::f32, 2);
    const Tensor y = layer_scale(Variable(x), Variable(w)).value();
    const std::int64_t plane = x.numel() / (shape[0] * shape[1]);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const auto c = static_cast<std::size_t>(i / plane % shape[1]);
      ASSERT_EQ(y.data<float>()[i], x.data<float>()[i] * w.data<float>()[c]);
    }
    const GradcheckResult result =
        gradcheck([&](const std::vector<Variable>& v) { return layer_scale(v[0], v[1]); },
                  {Variable(x.to(DType::f64), true), Variable(w.to(DType::f64), true)});
    EXPECT_TRUE(result.ok) << result.str();
  }
}

// In NCHW16c the sum of the gradient of weight has another order.
TEST(LayerScale, IsCompiledLikeEagerExecution) {
  const Options conv =
      options({{"out_channels", std::int64_t{20}}, {"kernel_size", std::vector<std::int64_t>{3}}});
  for (const bool blocked : {false, true}) {
    const std::string layout = blocked ? "nchw16c" : "nchw";
    const std::string text = testing::expect_compiled_like_eager(
        {{.type = "conv2d", .name = "c1", .options = conv},
         {.type = "layer_scale", .name = "s", .options = options({{"init", 0.5}})},
         {.type = "conv2d", .name = "c2", .options = conv}},
        {6, 24, 9, 9}, {testing::kDirect, testing::kDirect, testing::kDirect, layout},
        blocked ? 64 * 6e-8 : 0);
    EXPECT_NE(text.find("s  layer_scale"), std::string::npos) << text;
    EXPECT_EQ(text.find("nchw16c") != std::string::npos, blocked) << text;
  }
}

TEST(LayerScale, NamesWhatIsExpected) {
  EXPECT_ERROR(ErrorKind::kInvalid, "[layer_scale] expected x [N,C,H,W] or [N,C], got [1,4,2]",
               build_layer("layer_scale", {}, {1, 4, 2}));
}

}  // namespace
}  // namespace convscope

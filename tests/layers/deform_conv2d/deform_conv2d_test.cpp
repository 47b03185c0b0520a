// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_test.cpp: tests the deformable convolution as a differentiable operation: gradients
// against finite differences, gradients computed only on request, empty batches, and refused
// arguments.
#include "layers/deform_conv2d/deform_conv2d.h"

#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/elementwise.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

struct Case {
  const char* name;
  Shape x, w;
  DeformConv2dParams params;
  bool mask;
};

const Case kCases[] = {
    {"plain", {2, 3, 5, 6}, {4, 3, 3, 3}, {.conv = {.padding = {1, 1, 1, 1}}}, true},
    {"version_1", {2, 3, 5, 6}, {4, 3, 3, 3}, {.conv = {.padding = {1, 1, 1, 1}}}, false},
    {"strides_dilation",
     {1, 2, 7, 8},
     {3, 2, 3, 2},
     {.conv = {.stride_h = 2,
               .stride_w = 3,
               .padding = {2, 1, 0, 1},
               .dilation_h = 2,
               .dilation_w = 1}},
     true},
    {"groups", {2, 4, 4, 4}, {6, 2, 2, 2}, {.conv = {.groups = 2}, .offset_groups = 4}, true},
};

// Returns offsets: an integer from -2 to 2 plus a fraction between 0.2 and 0.8. So a finite
// difference with step 1e-5 never crosses a pixel, where the derivative jumps. Some samples are
// outside the image.
Tensor offsets(const Shape& shape, DType dtype) {
  const Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(3, 5);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const auto whole = static_cast<float>(random.below(5)) - 2.0f;
    out.data<float>()[i] = whole + random.uniform(0.2f, 0.8f);
  }
  return out.to(dtype);
}

struct Inputs {
  Variable x, offset, mask, w, b;
};
Inputs inputs(const Case& one, DType dtype) {
  const DeformConv2dProblem z = deform_conv2d_problem(one.x, one.w, one.params, one.mask, dtype);
  return {leaf(normal(one.x, dtype, 1)), leaf(offsets(z.offset_shape(), dtype)),
          one.mask ? leaf(uniform(z.mask_shape(), 0.1f, 1.0f, dtype, 2)) : Variable(),
          leaf(normal(one.w, dtype, 3)), leaf(normal({one.w[0]}, dtype, 4))};
}

Variable run(const Case& one, const Inputs& in, const AlgorithmPolicy& policy = {}) {
  return deform_conv2d(in.x, in.offset, in.mask, in.w, in.b, one.params, policy);
}

TEST(DeformConv2d, HasTheGradientsOfItsFormula) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    const Inputs in = inputs(one, DType::f64);
    std::vector<Variable> leaves{in.x, in.offset, in.w, in.b};
    if (one.mask) leaves.push_back(in.mask);
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& v) {
          return deform_conv2d(v[0], v[1], one.mask ? v[4] : Variable(), v[2], v[3], one.params);
        },
        leaves);
    EXPECT_TRUE(result.ok) << result.str();
  }
}

// Each output is a sum in double of 27 products of a few units each; 27 roundings are about 30 eps.
TEST(DeformConv2d, WithoutOffsetsIsAConvolution) {
  const Case& one = kCases[1];
  Inputs in = inputs(one, DType::f64);
  in.offset = Variable(Tensor::zeros(in.offset.shape(), DType::f64));
  const Variable plain = conv2d(in.x, in.w, in.b, one.params.conv);
  EXPECT_TRUE(near(run(one, in).value(), plain.value(), 2e-13, 0));
}

// If only one gradient is requested, it has the same bits as when all are requested, and no other
// gradient is computed.
TEST(DeformConv2d, ComputesOnlyTheGradientsAskedFor) {
  for (const char* algorithm : {"fused", "im2col_gemm", "reference", "check:fused,reference"}) {
    SCOPED_TRACE(algorithm);
    const AlgorithmPolicy policy{algorithm, algorithm, algorithm};
    const Case& one = kCases[0];
    const Inputs all = inputs(one, DType::f32);
    const Variable y = run(one, all, policy);
    const Tensor dy = normal(y.shape(), DType::f32, 9);
    y.backward(dy);
    const std::vector<Variable> full{all.x, all.offset, all.mask, all.w, all.b};
    for (std::size_t wanted = 0; wanted < full.size(); ++wanted) {
      SCOPED_TRACE(wanted);
      std::vector<Variable> v;
      for (std::size_t i = 0; i < full.size(); ++i) {
        v.emplace_back(full[i].value(), /*requires_grad=*/i == wanted);
      }
      deform_conv2d(v[0], v[1], v[2], v[3], v[4], one.params, policy).backward(dy);
      for (std::size_t i = 0; i < v.size(); ++i) {
        if (i != wanted) {
          EXPECT_FALSE(v[i].grad().defined());
        } else {
          EXPECT_TRUE(same_bits(v[i].grad(), full[i].grad()));
        }
      }
    }
  }
}

// Adding the same sum twice doubles the number without a rounding.
TEST(DeformConv2d, AddsToTheGradientsOfParameters) {
  const Case& one = kCases[0];
  const Inputs in = inputs(one, DType::f32);
  const Tensor dy = normal(run(one, in).shape(), DType::f32, 9);
  run(one, in).backward(dy);
  const Tensor once = in.b.grad().clone();
  run(one, in).backward(dy);
  EXPECT_TRUE(near(in.b.grad(), scale(Variable(once), 2).value(), 0, 0));
  EXPECT_TRUE(in.w.grad().defined());
}

TEST(DeformConv2d, OfAnEmptyBatchIsEmpty) {
  Case one = kCases[0];
  one.x = {0, 3, 5, 6};
  const Inputs in = inputs(one, DType::f32);
  const Variable y = run(one, in);
  EXPECT_EQ(y.shape(), (Shape{0, 4, 5, 6}));
  y.backward(Tensor::empty(y.shape()));
  EXPECT_TRUE(same_bits(in.w.grad(), Tensor::zeros(one.w)));
  EXPECT_TRUE(same_bits(in.b.grad(), Tensor::zeros({4})));
  EXPECT_EQ(in.offset.grad().shape(), (Shape{0, 18, 5, 6}));
}

TEST(DeformConv2d, RefusesWhatDoesNotFit) {
  const Case& one = kCases[0];
  const Inputs in = inputs(one, DType::f32);
  const auto refused = [&](const char* sentence, auto&& change) {
    Inputs other = in;
    DeformConv2dParams params = one.params;
    change(other, params);
    EXPECT_ERROR(ErrorKind::kInvalid, sentence,
                 deform_conv2d(other.x, other.offset, other.mask, other.w, other.b, params));
  };
  refused("[deform_conv2d] expected x with 6 channels because w is [4,3,3,3] with groups 2",
          [](Inputs&, DeformConv2dParams& p) { p.conv.groups = 2; });
  refused("[deform_conv2d] expected offset to say where to sample, got none",
          [](Inputs& i, DeformConv2dParams&) { i.offset = {}; });
  refused("[deform_conv2d] expected offset [2,18,5,6] of the type of x",
          [](Inputs& i, DeformConv2dParams&) { i.offset = i.mask; });
  refused("[deform_conv2d] expected mask [2,9,5,6] of the type of x",
          [](Inputs& i, DeformConv2dParams&) { i.mask = i.offset; });
  refused("[deform_conv2d] expected offset groups that divide the input channels, got 2 offset",
          [](Inputs&, DeformConv2dParams& p) { p.offset_groups = 2; });
  refused("[deform_conv2d] expected b [4] of the type of x",
          [](Inputs& i, DeformConv2dParams&) { i.b = i.w; });
  EXPECT_ERROR(ErrorKind::kUnavailable, "'fused' expects",
               run(one, inputs(one, DType::f64), {"fused", "fused", "fused"}));
}

}  // namespace
}  // namespace convscope::testing

// SPDX-License-Identifier: Apache-2.0
// first_layer_layouts_test.cpp: tests the layouts of a first layer: x is NCHW, as users pass it,
// while y and dy are NCHW16c. algorithms_test.cpp compares every algorithm that accepts these
// layouts with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

constexpr ActivationLayout kNchw = ActivationLayout::nchw;
constexpr ActivationLayout kNchw16c = ActivationLayout::nchw16c;

const Conv2dAlgorithm& algorithm(const char* name) {
  return conv2d_algorithms(DeviceType::cpu).get(name);
}

TEST(NchwToNchw16c, GivesEachTensorItsLayout) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=3,h=5,w=5,k=8,layout=nchw:nchw16c");
  EXPECT_EQ(problem.layout, kNchwToNchw16c);
  EXPECT_EQ(Conv2dProblem::parse(problem.text()), problem);
  const OperandSpecs forward = problem.operands(Direction::forward);
  EXPECT_EQ(forward.inputs[0].desc.layout, kNchw);
  EXPECT_EQ(forward.inputs[1].desc.layout, kNchw);
  EXPECT_EQ(forward.outputs[0].desc.layout, kNchw16c);
  const OperandSpecs weight = problem.operands(Direction::backward_weight);
  EXPECT_EQ(weight.inputs[0].desc.layout, kNchw);
  EXPECT_EQ(weight.inputs[1].desc.layout, kNchw16c);
  EXPECT_EQ(weight.outputs[0].desc.layout, kNchw);
  const Operands all = random_operands(forward, Device{});
  EXPECT_EQ(all.in[0].values.shape(), (Shape{2, 3, 5, 5}));
  EXPECT_EQ(all.out[0].values.shape(), (Shape{2, 1, 5, 5, 16}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected x and y in one layout, got nchw:nchw16c",
               stored_shape(problem.x_shape(), problem.layout));
}

TEST(NchwToNchw16c, AreTakenInTheTwoDirectionsOfAFirstLayer) {
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=2,c=3,h=8,w=8,k=24,r=3,s=3,pad=1,layout=nchw:nchw16c");
  int takers = 0;
  for (const auto& [name, one] : conv2d_algorithms(DeviceType::cpu).entries()) {
    EXPECT_FALSE(support_of(one, problem, Direction::backward_data).yes) << name;
    if (one.takes_nchw_x) {
      ++takers;
      continue;
    }
    EXPECT_EQ(support_of(one, problem, Direction::forward).reason,
              "expects x and y in one layout, got layout nchw:nchw16c")
        << name;
  }
  EXPECT_GE(takers, 2);
  EXPECT_TRUE(support_of(algorithm("direct_nchw16c"), problem, Direction::forward).yes);
  EXPECT_TRUE(support_of(algorithm("direct_nchw16c"), problem, Direction::backward_weight).yes);
  EXPECT_EQ(support_of(algorithm("direct_nchw16c"), problem, Direction::backward_data).reason,
            "expects dx in the layout of dy, got layout nchw:nchw16c");
  Conv2dProblem other = problem;
  other.layout = {ActivationLayout::nhwc, kNchw};
  EXPECT_EQ(support_of(algorithm("direct_nchw16c"), other, Direction::forward).reason,
            "expects x and y in one layout, got layout nhwc:nchw");
}

// x is followed by NaN in memory. A kernel that loads a fourth number for a tap of 3 channels would
// read this NaN. Both kinds of x add the same products in the same order, so
// their results have the same bits.
TEST(NchwToNchw16c, GivesTheBitsOfNchw16cImagesAndReadsNothingBehindX) {
  for (const char* text :
       {"n=2,c=3,h=15,w=30,k=20,r=7,s=7,stride=2,pad=3", "n=1,c=3,h=9,w=11,k=40,r=3,s=3,pad=1",
        "n=2,c=1,h=1,w=1,k=5", "n=2,c=16,h=6,w=7,k=16,r=3,s=3,stride=2,pad=1",
        "n=1,c=5,h=4,w=9,k=17", "n=1,c=6,h=12,w=13,k=9,r=4,s=3,stride=1x2,pad=2x0,dilation=2x1",
        "n=1,c=2,h=9,w=31,k=33,r=2,s=5,stride=4x3,pad=1x4,dilation=1x2",
        "n=2,c=32,h=6,w=7,k=64,r=3,s=3,pad=1,groups=2"}) {
    Conv2dProblem problem = Conv2dProblem::parse(text);
    const Tensor x = testing::normal(problem.x_shape(), DType::f32, 1);
    const Tensor w = testing::normal(problem.w_shape(), DType::f32, 2);
    const Tensor room = Tensor::empty({x.numel() + 4096});
    std::fill_n(room.data<float>(), room.numel(), std::numeric_limits<float>::quiet_NaN());
    std::copy_n(x.data<float>(), x.numel(), room.data<float>());
    const auto run = [&](const ImageLayouts& layout, const void* images) {
      problem.layout = layout;
      const Tensor y = Tensor::empty(stored_shape(problem.y_shape(), kNchw16c));
      const auto bytes = [](std::size_t count) {
        return Tensor::empty({static_cast<std::int64_t>(count / sizeof(float)) + 1});
      };
      const Tensor prepared =
          bytes(algorithm("direct_nchw16c").prepared_size(problem, Direction::forward));
      const Tensor scratch =
          bytes(algorithm("direct_nchw16c").workspace_bytes(problem, Direction::forward));
      algorithm("direct_nchw16c")
          .prepare_weights(
              {problem, Direction::forward, w.raw_data(), prepared.raw_data(), scratch.raw_data()});
      algorithm("direct_nchw16c")
          .forward({problem,
                    images,
                    nullptr,
                    nullptr,
                    y.raw_data(),
                    scratch.raw_data(),
                    {},
                    prepared.raw_data()});
      EXPECT_TRUE(has_clean_lanes(y, problem.y_shape(), kNchw16c)) << text;
      return y;
    };
    const Tensor stored = stored_images(x, kNchw16c);
    EXPECT_TRUE(
        testing::same_bits(run(kNchwToNchw16c, room.raw_data()), run(kNchw16c, stored.raw_data())))
        << text;
  }
}

// Lanes after the last channel must be 0, even where x is NaN (0 times NaN is not 0).
TEST(NchwToNchw16c, KeepsLanesCleanBesideNaN) {
  const testing::MachineScope scope;
  Conv2dProblem problem =
      Conv2dProblem::parse("n=1,c=3,h=9,w=11,k=21,r=3,s=3,pad=1,layout=nchw:nchw16c");
  const Tensor x = testing::normal(problem.x_shape(), DType::f32, 1);
  x.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Tensor w = testing::normal(problem.w_shape(), DType::f32, 2);
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    const Tensor y = Tensor::empty(stored_shape(problem.y_shape(), kNchw16c));
    run_algorithm(algorithm("direct_nchw16c"), problem, Direction::forward,
                  {.in = {x, w}, .out = {y}});
    EXPECT_TRUE(has_clean_lanes(y, problem.y_shape(), kNchw16c));
    EXPECT_TRUE(std::isnan(y.data<float>()[0]));
  }
}

// Tests groups, and images with fewer rows than the kernel. The shapes files have no such problem
// in NCHW16c.
TEST(NchwToNchw16c, SumsGroupsAndLowImages) {
  for (const char* text : {"n=2,c=32,h=6,w=7,k=64,r=3,s=3,pad=1,groups=2,layout=nchw:nchw16c",
                           "n=3,c=3,h=2,w=9,k=18,r=7,s=5,stride=2,pad=3,layout=nchw:nchw16c"}) {
    testing::ConvolutionCase one(Conv2dProblem::parse(text), testing::Tier::bounded);
    EXPECT_EQ(one.check(algorithm("direct_nchw16c"), Direction::forward), "");
    EXPECT_EQ(one.check(algorithm("direct_nchw16c"), Direction::backward_weight), "");
  }
}

}  // namespace
}  // namespace convscope

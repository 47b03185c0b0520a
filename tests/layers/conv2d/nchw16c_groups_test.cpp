// SPDX-License-Identifier: Apache-2.0
// nchw16c_groups_test.cpp: tests direct_small_groups: NCHW16c images with groups of 2, 4 and 8
// channels. Cases: rows of every width, all loops over taps, partial blocks and tiles, NaN.
// algorithms_test.cpp tests the problems of experiments/shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/isa_checks.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using testing::check_on_each_isa;
using testing::MachineScope;
using testing::Tier;

constexpr ActivationLayout kNchw16c = ActivationLayout::nchw16c;

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cpu).get("direct_small_groups");
}

// Returns a problem with `groups` groups; each group has `channels` input channels and `channels`
// kernels.
Conv2dProblem nchw16c(std::string_view text, std::int64_t groups, std::int64_t channels) {
  Conv2dProblem problem = Conv2dProblem::parse(text);
  problem.groups = groups;
  problem.k = problem.c = groups * channels;
  problem.layout = kNchw16c;
  return problem;
}

// Rows have every width up to 33. So the tiles of a row touch the left border of the image, the
// right one, both, or neither.
TEST(Nchw16cGroups, AgreeOnRowsOfEveryWidth) {
  const MachineScope scope;
  for (const std::int64_t channels : {2, 4, 8}) {
    for (const std::int64_t stride : {1, 2}) {
      for (std::int64_t width = 1; width <= 33; ++width) {
        for (const std::int64_t pad : {1, 0}) {
          if (width + 2 * pad < 3) continue;
          Conv2dProblem problem = nchw16c("n=1,h=3,w=3,r=3,s=3", 3, channels);
          problem.h = width % 4 + 3;
          problem.w = width;
          problem.stride_h = problem.stride_w = stride;
          problem.pad_top = problem.pad_bottom = problem.pad_left = problem.pad_right = pad;
          check_on_each_isa(algorithm(), problem, Tier::exact);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Nchw16cGroups, AgreeWhereBlocksKernelsAndBordersEnd) {
  const char* const kTexts[] = {
      "n=2,h=1,w=1,r=3,s=3,pad=1",  // a single pixel, and padding around it
      "n=1,h=2,w=2,r=3,s=3,pad=2",  // as much padding as taps that may be outside
      "n=1,h=2,w=3,r=3,s=3,pad=4",  // pixels that read only padding
      "n=1,h=2,w=3,r=3,s=3,pad=7,stride=2",
      "n=1,h=6,w=7,r=3,s=3,pad=0x1x2x3",
      "n=1,h=9,w=8,r=3,s=3,pad=0x1x0x1,stride=2",
      "n=1,h=9,w=8,r=3,s=3,pad=1x0x2x0,stride=2",
      "n=2,h=9,w=8,r=3,s=3,stride=2x1,pad=1",
      "n=2,h=9,w=8,r=3,s=3,stride=1x2,pad=1",
      "n=2,h=11,w=12,r=3,s=3,stride=3,pad=1",
      "n=2,h=11,w=12,r=3,s=3,stride=5x4,pad=1",  // pixels of dx that no output reads
      "n=2,h=12,w=14,r=3,s=3,pad=2,dilation=2",
      "n=2,h=12,w=14,r=3,s=3,pad=2,dilation=2,stride=2",
      "n=2,h=13,w=17,r=3,s=3,pad=3,dilation=3,stride=2",
      "n=2,h=13,w=17,r=3,s=4,pad=2,dilation=4x6,stride=6x4",
      "n=1,h=9,w=10,r=1,s=1",
      "n=1,h=9,w=10,r=1,s=1,stride=2",
      "n=2,h=9,w=17,r=2,s=2",  // pairs of taps
      "n=2,h=9,w=17,r=4,s=4,pad=1,stride=2",
      "n=2,h=9,w=17,r=5,s=5,pad=2,stride=2",
      "n=2,h=9,w=17,r=5,s=5,pad=2",
      "n=2,h=9,w=20,r=1,s=6,pad=0x2,stride=1x2",
      "n=1,h=9,w=30,r=1,s=7,pad=0x3",
      "n=1,h=9,w=10,r=7,s=1,pad=3x0",
      "n=1,h=40,w=6,r=40,s=3,pad=1",      // chains that end between rows of the kernel
      "n=1,h=3,w=200,r=3,s=170,pad=1x9",  // a row of taps longer than a chain
      "n=1,h=5,w=300,r=3,s=3,pad=1",      // dw: a row longer than a chain
      "n=40,h=5,w=6,r=3,s=3,pad=1",       // dw: slices of several images
      "n=1,h=70,w=40,r=3,s=3,pad=1",      // dw: several strips of an image
      "n=2,h=61,w=39,r=3,s=3,pad=1,stride=2",
  };
  const MachineScope scope;
  std::int64_t turn = 0;
  for (const char* text : kTexts) {
    for (const std::int64_t channels : {2, 4, 8}) {
      // The channels leave lanes of the only block unused, fill one block of 16 channels, or need
      // more than one block.
      const std::int64_t groups =
          std::initializer_list<std::int64_t>{3, 16 / channels, 9}.begin()[turn++ % 3];
      for (const Tier tier : {Tier::exact, Tier::bounded}) {
        check_on_each_isa(algorithm(), nchw16c(text, groups, channels), tier);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Nchw16cGroups, AgreeOnRandomProblemsWithOneAndTwoThreads) {
  const auto count = testing::number_from_environment("CONVSCOPE_TEST_RANDOM_PROBLEMS", 150);
  const MachineScope scope;
  for (std::int64_t turn = 0; turn < count; ++turn) {
    const auto i = static_cast<std::uint64_t>(turn);
    Conv2dProblem problem = testing::random_problem(78, i);
    problem.groups = 2 + turn % 11;
    problem.k = problem.c = problem.groups * (std::int64_t{2} << turn % 3);
    problem.layout = kNchw16c;
    check_on_each_isa(algorithm(), testing::shrunk(problem, 4e5),
                      testing::kRoundedTiers[i % testing::kRoundedTierCount], {1, 2});
    if (HasFatalFailure()) return;
  }
}

// Sums of one sign; dw of 25,000 pixels.
TEST(Nchw16cGroups, HoldTheirBoundOnLongSums) {
  const MachineScope scope;
  for (const char* text :
       {"n=8,h=56,w=56,r=3,s=3,pad=1", "n=1,h=24,w=24,r=13,s=13,pad=6", "n=40,h=40,w=40,r=1,s=1"}) {
    check_on_each_isa(algorithm(), nchw16c(text, 2, 4), Tier::offset, {1, 2});
    if (HasFatalFailure()) return;
  }
  check_on_each_isa(algorithm(), nchw16c("n=1,h=40,w=40,r=21,s=21,pad=10", 2, 8), Tier::offset);
}

TEST(Nchw16cGroups, OtherGroupsAreRefusedWithTheirSizes) {
  const auto reason = [](const char* text, const Conv2dAlgorithm& asked = algorithm()) {
    Conv2dProblem problem = Conv2dProblem::parse(text);
    problem.layout = kNchw16c;
    return support_of(asked, problem, Direction::forward).reason;
  };
  const std::string expected = "expects groups of 2, 4 or 8 channels and as many kernels, got ";
  EXPECT_EQ(reason("c=24,h=5,w=5,k=24,groups=2"), expected + "2 groups of 12 and 12");
  EXPECT_EQ(reason("c=64,h=5,w=5,k=32,groups=2"), expected + "2 groups of 32 and 16");
  EXPECT_EQ(reason("c=8,h=5,w=5,k=16,groups=2"), expected + "2 groups of 4 and 8");
  EXPECT_EQ(reason("c=8,h=5,w=5,k=8,groups=8"), expected + "8 groups of 1 and 1");
  EXPECT_EQ(reason("c=8,h=5,w=5,k=8"), expected + "1 groups of 8 and 8");
  EXPECT_EQ(reason("c=8,h=5,w=5,k=8,groups=2"), "");
  const Conv2dAlgorithm& blocks = conv2d_algorithms(DeviceType::cpu).get("direct_nchw16c");
  EXPECT_EQ(
      reason("c=8,h=5,w=5,k=8,groups=2", blocks),
      "expects groups of a multiple of 16 channels in layout nchw16c, got 2 groups of 4 and 4");
  EXPECT_EQ(reason("c=64,h=5,w=5,k=32,groups=2", blocks), "");
}

// A NaN affects only its group, and lanes after the last channel stay 0.
TEST(Nchw16cGroups, NaNStaysInItsGroup) {
  const MachineScope scope;
  for (const std::int64_t channels : {2, 4, 8}) {
    const Conv2dProblem problem = nchw16c("n=1,h=6,w=15,r=3,s=3,pad=1", 3, channels);
    Conv2dProblem plain = problem;
    plain.layout = ActivationLayout::nchw;
    const Tensor images = testing::normal(plain.x_shape(), DType::f32, 1);
    images.data<float>()[channels * 90] = std::numeric_limits<float>::quiet_NaN();  // group 1
    images.data<float>()[channels * 90 + 40] = std::numeric_limits<float>::infinity();
    const Tensor stored = stored_images(images, kNchw16c);
    const Tensor w = testing::normal(plain.w_shape(), DType::f32, 2);
    for (int i = 0; i < kIsaCount; ++i) {
      if (!supports_isa(static_cast<Isa>(i))) continue;
      set_isa(static_cast<Isa>(i));
      for (const Direction direction : {Direction::forward, Direction::backward_data}) {
        const Tensor out = Tensor::empty(stored_shape(plain.y_shape(), kNchw16c));
        run_algorithm(algorithm(), problem, direction, {.in = {stored, w}, .out = {out}});
        EXPECT_TRUE(has_clean_lanes(out, plain.y_shape(), kNchw16c));
        const Tensor y = plain_images(out, plain.y_shape(), kNchw16c);
        for (std::int64_t k = 0; k < plain.k; ++k) {
          int odd = 0;
          for (int at = 0; at < 90; ++at) odd += std::isfinite(y.at(k * 90 + at)) ? 0 : 1;
          // 4 pixels of y read the corner of x, and 9 read the pixel in row 2, column 10.
          EXPECT_EQ(odd, k / channels == 1 ? 13 : 0) << channels << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace convscope

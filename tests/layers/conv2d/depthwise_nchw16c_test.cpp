// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c_test.cpp: tests the algorithm depthwise on NCHW16c images: sizes at which its
// tiles end, random problems, NaN, the epilogue of a forward pass, threads. algorithms_test.cpp
// checks the problems of experiments/shapes.
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

const Conv2dAlgorithm& algorithm() { return conv2d_algorithms(DeviceType::cpu).get("depthwise"); }

Conv2dProblem nchw16c(std::string_view text) {
  Conv2dProblem problem = Conv2dProblem::parse(text);
  problem.groups = problem.k = problem.c;
  problem.layout = kNchw16c;
  return problem;
}

// Rows have every width up to 45. The kernel divides a row into tiles, so the widths cover tiles at
// the left border of the image, at the right border, at both, and at neither.
TEST(DepthwiseNchw16c, AgreesOnRowsOfEveryWidth) {
  const MachineScope scope;
  for (const std::int64_t kernel : {3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (std::int64_t width = 1; width <= 45; ++width) {
        for (const std::int64_t pad : {kernel / 2, std::int64_t{0}}) {
          if (width + 2 * pad < kernel) continue;
          Conv2dProblem problem = nchw16c("n=1,c=3");
          problem.h = width % 6 + kernel;
          problem.w = width;
          problem.r = problem.s = kernel;
          problem.stride_h = problem.stride_w = stride;
          problem.pad_top = problem.pad_bottom = problem.pad_left = problem.pad_right = pad;
          check_on_each_isa(algorithm(), problem, Tier::exact);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(DepthwiseNchw16c, AgreesWhereBlocksImagesKernelsAndBordersEnd) {
  const char* const kTexts[] = {
      "n=2,c=1,h=5,w=6,r=3,s=3,pad=1",   // one channel
      "n=2,c=15,h=5,w=6,r=3,s=3,pad=1",  // the last block has 15, 16 and 1
      "n=3,c=16,h=4,w=7,r=5,s=5,pad=2",  //
      "n=2,c=33,h=7,w=7,r=7,s=7,pad=3",  //
      "n=2,c=17,h=1,w=1,r=3,s=3,pad=1",  // a single pixel, and padding around it
      "n=1,c=3,h=1,w=1,r=7,s=7,pad=3",   //
      "n=1,c=3,h=2,w=2,r=7,s=7,pad=6",   // rows of y that read only padding
      "n=1,c=3,h=2,w=3,r=3,s=3,pad=7,stride=2",
      "n=1,c=3,h=4,w=5,r=3,s=3,pad=3",  // pixels at the border that read only padding
      "n=1,c=3,h=4,w=9,r=5,s=5,pad=5,stride=2",
      "n=1,c=3,h=6,w=7,r=3,s=3,pad=0x1x2x3",
      "n=1,c=3,h=9,w=8,r=3,s=3,pad=0x1x0x1,stride=2",
      "n=1,c=3,h=9,w=8,r=5,s=5,pad=1x2x2x1,stride=2",
      "n=2,c=3,h=9,w=8,r=3,s=3,stride=2x1,pad=1",
      "n=2,c=3,h=9,w=8,r=3,s=3,stride=1x2,pad=1",
      "n=2,c=3,h=11,w=12,r=3,s=3,stride=3,pad=1",
      "n=2,c=3,h=11,w=12,r=3,s=3,stride=5x4,pad=1",  // pixels of dx that no output reads
      "n=2,c=3,h=12,w=14,r=3,s=3,pad=2,dilation=2",
      "n=2,c=3,h=12,w=14,r=3,s=3,pad=2,dilation=2,stride=2",
      "n=2,c=3,h=13,w=17,r=3,s=3,pad=3,dilation=3,stride=2",
      "n=2,c=3,h=13,w=17,r=3,s=4,pad=2,dilation=4x6,stride=6x4",
      "n=1,c=3,h=12,w=14,r=3,s=3,pad=2x1,dilation=2x1",
      "n=2,c=3,h=9,w=33,r=3,s=3,pad=2,dilation=2",
      "n=2,c=3,h=9,w=19,r=3,s=3,dilation=2",
      "n=1,c=3,h=4,w=6,r=3,s=3,pad=5,dilation=2",
      "n=1,c=3,h=12,w=14,r=5,s=5,pad=4,dilation=2",
      "n=1,c=3,h=9,w=10,r=1,s=1",
      "n=1,c=3,h=9,w=10,r=1,s=1,stride=2",
      "n=1,c=3,h=9,w=30,r=1,s=7,pad=0x3",
      "n=1,c=3,h=9,w=10,r=7,s=1,pad=3x0",
      "n=1,c=3,h=9,w=20,r=3,s=5,pad=1x2,stride=2",
      "n=1,c=3,h=9,w=20,r=4,s=6,pad=1x2",
      "n=1,c=3,h=8,w=40,r=3,s=12,pad=1x6",
      "n=1,c=2,h=30,w=30,r=25,s=25,pad=3",         // chains of whole rows
      "n=1,c=2,h=40,w=6,r=40,s=5,pad=1x2",         // 200 taps, as wide as an unrolled kernel
      "n=1,c=2,h=3,w=200,r=3,s=170,pad=1x9",       // a row of taps longer than a chain
      "n=1,c=2,h=3,w=1100,r=3,s=3,pad=1",          // dw: a row longer than a unit
      "n=40,c=3,h=5,w=6,r=3,s=3,pad=1",            // dw: units of several images, the last fewer
      "n=3,c=2,h=60,w=40,r=3,s=3,pad=1,stride=2",  // bands of backward_data
  };
  const MachineScope scope;
  for (const char* text : kTexts) {
    for (const Tier tier : {Tier::exact, Tier::bounded}) {
      check_on_each_isa(algorithm(), nchw16c(text), tier);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(DepthwiseNchw16c, AgreesOnRandomProblems) {
  const MachineScope scope;
  for (std::uint64_t i = 0; i < 150; ++i) {
    Conv2dProblem problem = testing::random_problem(77, i);
    problem.groups = problem.k = problem.c = 1 + static_cast<std::int64_t>(i) % 37;
    problem.layout = kNchw16c;
    check_on_each_isa(algorithm(), testing::shrunk(problem, 2e5),
                      testing::kRoundedTiers[i % testing::kRoundedTierCount]);
    if (HasFatalFailure()) return;
  }
}

// All terms of a sum have one sign, and some elements of dw are sums over more than 25,000 pixels.
TEST(DepthwiseNchw16c, HoldsItsBoundOnLongSums) {
  const MachineScope scope;
  for (const char* text :
       {"n=8,c=3,h=56,w=56,r=3,s=3,pad=1", "n=40,c=2,h=40,w=40,r=5,s=5,pad=2,stride=2",
        "n=300,c=2,h=14,w=14,r=7,s=7,pad=3", "n=20,c=2,h=56,w=40,r=2,s=2",
        "n=1,c=2,h=40,w=40,r=31,s=31,pad=15"}) {
    check_on_each_isa(algorithm(), nchw16c(text), Tier::offset);
    if (HasFatalFailure()) return;
  }
}

// The problems are large enough for several tasks per direction.
TEST(DepthwiseNchw16c, HasTheSameBitsForAnyNumberOfThreads) {
  const MachineScope scope;
  for (const char* text :
       {"n=1,c=3,h=60,w=70,r=3,s=3,pad=1", "n=5,c=20,h=30,w=30,r=5,s=5,pad=2,stride=2",
        "n=9,c=40,h=14,w=14,r=7,s=7,pad=3"}) {
    check_on_each_isa(algorithm(), nchw16c(text), Tier::bounded, {1, 2, 3, 5});
    if (HasFatalFailure()) return;
  }
}

TEST(DepthwiseNchw16c, SpreadsANaNExactlyWhereItIsRead) {
  const MachineScope scope;
  for (const char* text : {"n=1,c=18,h=6,w=9,r=3,s=3,pad=1", "n=1,c=18,h=7,w=9,r=5,s=5,pad=2",
                           "n=1,c=18,h=8,w=9,r=3,s=3,pad=1,stride=2", "n=1,c=18,h=6,w=9,r=2,s=4"}) {
    const Conv2dProblem problem = nchw16c(text);
    Conv2dProblem plain = problem;
    plain.layout = ActivationLayout::nchw;
    const Conv2dAlgorithm& reference = conv2d_algorithms(DeviceType::cpu).get("reference");
    for (const Direction direction : kDirections) {
      const OperandSpecs specs = problem.operands(direction);
      // Puts a NaN into the first operand (x or dy), and for dw also into the second operand (dy):
      // once in a corner, once inside the image.
      for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {
        if (at == 1 && direction != Direction::backward_weight) continue;
        for (const bool corner : {false, true}) {
          Operands right, got;
          std::size_t count = 0;
          for (const OperandSpec& spec : specs.inputs) {
            const Tensor numbers = testing::normal(spec.desc.shape, DType::f32, 3 + count);
            if (count == at) {
              const Shape& s = spec.desc.shape;
              const std::int64_t pixel = corner ? 0 : s[2] / 2 * s[3] + s[3] / 2;
              numbers.data<float>()[17 * s[2] * s[3] + pixel] = std::nanf("");
            }
            right.in[count] = numbers;
            got.in[count++] = stored_images(numbers, spec.desc.layout);
          }
          const Shape out = specs.outputs[0].desc.shape;
          const bool dw = direction == Direction::backward_weight;
          right.out[0] = Tensor::empty(out);
          got.out[0] = Tensor::empty(dw ? out : stored_shape(out, kNchw16c));
          run_algorithm(reference, plain, direction, right);
          run_algorithm(algorithm(), problem, direction, got);
          const Tensor& stored = got.out[0].values;
          const Tensor numbers = dw ? stored : plain_images(stored, out, kNchw16c);
          for (std::int64_t i = 0; i < numbers.numel(); ++i) {
            ASSERT_EQ(std::isnan(numbers.at(i)), std::isnan(right.out[0].values.at(i)))
                << problem.text() << " " << name_of(direction) << " " << at << " at " << i;
          }
        }
      }
    }
  }
}

// Checks that a fused epilogue has the same bits as a separate pass: NaN stays NaN, -0 becomes 0,
// and lanes after the last channel stay 0.
TEST(DepthwiseNchw16c, BiasResidualAndReluGiveTheBitsOfTheSeparatePass) {
  const MachineScope scope;
  for (const char* text :
       {"n=2,c=20,h=7,w=9,r=3,s=3,pad=1", "n=1,c=16,h=6,w=15,r=4,s=4,stride=3"}) {
    const Conv2dProblem problem = nchw16c(text);
    Conv2dProblem plain = problem;
    plain.layout = ActivationLayout::nchw;
    const Tensor x = stored_images(testing::normal(plain.x_shape(), DType::f32, 1), kNchw16c);
    const Tensor w = testing::normal(plain.w_shape(), DType::f32, 2);
    const Tensor b = testing::normal({plain.k}, DType::f32, 3);
    const Tensor beside = testing::normal(plain.y_shape(), DType::f32, 4);
    beside.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    const Tensor residual = stored_images(beside, kNchw16c);
    const auto run = [&](const Epilogue& behind) {
      const Tensor y = Tensor::empty(stored_shape(plain.y_shape(), kNchw16c));
      run_algorithm(algorithm(), problem, Direction::forward,
                    {.in = {x, w, b}, .out = {y}, .epilogue = behind});
      EXPECT_TRUE(has_clean_lanes(y, plain.y_shape(), kNchw16c));
      return plain_images(y, plain.y_shape(), kNchw16c);
    };
    const Tensor sums = run({});
    for (const bool adds : {false, true}) {
      for (const float most : {0.0f, 0.5f, INFINITY}) {  // 0: no relu
        const bool relu = most > 0;
        const Tensor got =
            run({.residual = adds ? residual.raw_data() : nullptr, .relu = relu, .most = most});
        const Tensor right = sums.clone();
        for (std::int64_t i = 0; i < right.numel(); ++i) {
          float& value = right.data<float>()[i];
          if (adds) value += beside.data<float>()[i];
          if (relu) value = value <= 0.0f ? 0.0f : value > most ? most : value;
        }
        EXPECT_TRUE(testing::same_bits(got, right)) << text << " " << adds << " " << most;
      }
    }
  }
}

TEST(DepthwiseNchw16c, RefusesAMultiplierAndGroupsOfSeveralChannels) {
  const auto reason = [](const char* text) {
    return support_of(algorithm(), Conv2dProblem::parse(text), Direction::forward).reason;
  };
  EXPECT_EQ(reason("c=16,h=8,w=8,k=32,r=3,s=3,groups=16,layout=nchw16c"),
            "expects one kernel for each channel in layout nchw16c, got a multiplier of 2");
  EXPECT_EQ(reason("c=16,h=8,w=8,k=16,r=3,s=3,groups=8,layout=nchw16c"),
            "expects one input channel for each group, got 2 in each of 8");
  EXPECT_EQ(reason("c=16,h=8,w=8,k=16,r=3,s=3,groups=16,layout=nchw16c"), "");
  EXPECT_EQ(reason("c=16,h=8,w=8,k=32,r=3,s=3,groups=16"), "");
}

// Prepared weights have the order [K/16,R,S,16], for y and for dx. The NCHW kernels read w without
// preparation.
TEST(DepthwiseNchw16c, PreparesWeightsForNchw16cOnly) {
  const Conv2dProblem problem = nchw16c("c=17,h=8,w=8,r=3,s=2");
  Conv2dProblem plain = problem;
  plain.layout = ActivationLayout::nchw;
  for (const Direction direction : {Direction::forward, Direction::backward_data}) {
    EXPECT_EQ(algorithm().prepared_size(plain, direction), 0u);
    ASSERT_EQ(algorithm().prepared_size(problem, direction), 32u * 6 * sizeof(float));
    const Tensor w = testing::normal(problem.w_shape(), DType::f32, 1);
    const Tensor prepared = Tensor::empty({2, 6, 16});
    algorithm().prepare_weights({problem, direction, w.raw_data(), prepared.raw_data(), nullptr});
    for (std::int64_t k = 0; k < 32; ++k) {
      for (std::int64_t tap = 0; tap < 6; ++tap) {
        EXPECT_EQ(prepared.at((k / 16 * 6 + tap) * 16 + k % 16), k < 17 ? w.at(k * 6 + tap) : 0);
      }
    }
  }
}

}  // namespace
}  // namespace convscope

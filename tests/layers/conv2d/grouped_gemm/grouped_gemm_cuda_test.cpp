// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_cuda_test.cpp: compares every kernel of grouped_gemm, in all of its types, with the
// reference in double. Cases: one or several groups per matrix product, different numbers of input
// and output channels, strides with phases, dilation, single octets of channels, partial tiles.
// Also tests which pixels taps read, epilogues, NaN, accumulated gradients, CUDA graphs and
// refusals.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_plan.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/recorded_algorithm.h"
#include "tests/support/stored_integers.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::floats_of;
using testing::integers;
using testing::nhwc_problem;
using testing::stored_integers;
using testing::Tier;

class GroupedGemmOnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("grouped_gemm");
}

const char* const kProblems[] = {
    "n=2,c=32,h=9,w=11,k=32,r=3,s=3,pad=1,groups=8",          // 4 channels, two groups a bundle
    "n=1,c=64,h=8,w=9,k=64,r=3,s=3,pad=1,groups=8",           // 8 channels
    "n=1,c=48,h=7,w=7,k=48,r=3,s=3,pad=1,groups=3",           // 16
    "n=4,c=128,h=14,w=14,k=128,r=3,s=3,pad=1,groups=8",       // the same, two bundles in a slice
    "n=1,c=48,h=6,w=7,k=48,r=3,s=3,pad=1,groups=2",           // 24
    "n=2,c=64,h=5,w=7,k=64,r=3,s=3,pad=1,groups=2",           // 32
    "n=1,c=128,h=4,w=5,k=128,r=3,s=3,pad=1,groups=2",         // 64
    "n=1,c=80,h=4,w=5,k=80,r=1,s=1,groups=2",                 // 40: octets of y one by one
    "n=1,c=32,h=9,w=8,k=32,r=3,s=3,stride=2,pad=1,groups=4",  // phases of dx
    "n=1,c=16,h=11,w=10,k=16,r=5,s=5,stride=2,pad=2,groups=4",
    "n=1,c=16,h=9,w=13,k=16,r=5,s=3,stride=3x2,pad=2x0x1x3,dilation=1x2,groups=2",
    "n=1,c=16,h=1,w=9,k=16,r=3,s=3,stride=2,pad=2,groups=2",  // taps that no phase uses
    "n=2,c=16,h=7,w=8,k=16,r=1,s=1,stride=2,groups=2",        // phases without a tap
    "n=2,c=12,h=6,w=5,k=12,r=3,s=3,pad=1,groups=3",           // a bundle that is not full
    "n=1,c=12,h=6,w=5,k=18,r=3,s=3,pad=1,groups=6",           // 2 in, 3 out
    "n=1,c=8,h=6,w=5,k=32,r=3,s=3,pad=1,groups=2",            // 4 in, 16 out
    "n=1,c=32,h=6,w=5,k=8,r=3,s=3,pad=1,groups=2",            // 16 in, 4 out
    "n=9,c=16,h=3,w=3,k=16,r=3,s=3,pad=1,groups=2",           // several images in a tile
    "n=1,c=72,h=10,w=40,k=72,r=3,s=3,pad=1,groups=9",         // rows cut; slices of unequal size
    "n=3,c=16,h=23,w=29,k=16,r=3,s=3,pad=1,groups=2",         // several tiles and parts
    "n=1,c=24,h=1,w=1,k=24,r=3,s=3,pad=1,groups=3",
    "n=1,c=16,h=3,w=2,k=16,r=7,s=7,pad=3,groups=4",
};

std::vector<Conv2dProblem> problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text : kProblems) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      out.push_back(nhwc_problem(text, dtype));
    }
  }
  return out;
}

// Which schedules the tests run: the cheapest one by the estimate (0), and others that exploration
// chooses, so that other estimates cannot hide a kernel from the tests.
constexpr std::uint64_t kSeeds[] = {0, 1, 2};

// On the eight SMs of the emulation.
TEST(GroupedGemm, EveryKernelIsChosen) {
  constexpr grouped_gemm::Machine kEmulated{.multiprocessors = 8};
  std::set<std::tuple<DType, int, int>> gathers;
  std::set<std::pair<DType, int>> weights;
  std::set<int> shares, phases;
  std::set<bool> one_part, several_images, unequal_slices, cut, chunks, one_slot;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Conv2dProblem& z : problems()) {
      for (const Direction direction : {Direction::forward, Direction::backward_data}) {
        const auto plan = grouped_gemm::plan_gather(z, direction, kEmulated);
        const grouped_gemm::GroupedGemmParams& s = plan.sizes;
        gathers.emplace(z.dtype, plan.at_once, plan.bundles_at_once);
        phases.insert(s.phases());
        several_images.insert(s.tile_images > 1);
        unequal_slices.insert(s.bundles % s.slice_bundles != 0);
        cut.insert(s.by_tiles_h.d * s.by_tiles_w.d > 1);
        one_slot.insert(s.steps() * grouped_gemm::slots_of_step(z) !=
                        s.tap_begin[s.phases()] * s.bundle_in);
      }
      const auto plan = grouped_gemm::plan_weight(z, kEmulated);
      weights.emplace(z.dtype, plan.at_once);
      shares.insert(plan.shares);
      one_part.insert(plan.parts == 1);
      chunks.insert(plan.chunks > 1);
    }
  }
  std::string missing;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& [octets, bundles] :
         {std::pair{1, 2}, {1, 4}, {2, 1}, {2, 2}, {3, 1}, {4, 1}}) {
      if (!gathers.contains({dtype, octets, bundles})) {
        missing += cat("gather ", name_of(dtype), " ", octets, " ", bundles, "; ");
      }
      if (!weights.contains({dtype, octets})) {
        missing += cat("weight ", name_of(dtype), " ", octets, "; ");
      }
    }
  }
  EXPECT_EQ(missing, "");
  EXPECT_EQ(shares, (std::set{1, 2, 4}));
  EXPECT_EQ(phases, (std::set{1, 2, 4, 6}));
  for (const auto& both : {one_part, several_images, unequal_slices, cut, chunks, one_slot}) {
    EXPECT_EQ(both.size(), 2u);
  }
}

// In every tiling, each tap reads the right pixel in shared memory.
TEST(GroupedGemm, TapsFindTheirPixels) {
  for (const Conv2dProblem& z : problems()) {
    for (const Direction direction : {Direction::forward, Direction::backward_data}) {
      int plans = 0;
      grouped_gemm::visit_gather_plans(z, direction, {.multiprocessors = 8}, [&](const auto& plan) {
        if (plans++ % 7 != 0) return;
        const grouped_gemm::GroupedGemmParams& s = plan.sizes;
        const int line = s.columns * s.step_w;
        for (int phase = 0; phase < s.phases(); ++phase) {
          for (int t = s.tap_begin[phase]; t < s.tap_begin[phase + 1]; ++t) {
            const auto r = s.tap_kernel[t] / z.s, q = s.tap_kernel[t] % z.s;
            // The last position of the tile, computed as in the kernel.
            const int i = s.tile_h - 1, j = s.tile_w - 1;
            const int place = i * s.step_h * line + j + s.tap_at[t];
            const int in_line = place % line;
            const int row = s.low_h + place / line;
            const int column = s.low_w + in_line % s.columns * s.step_w + in_line / s.columns;
            const int phase_h = phase / s.phases_w, phase_w = phase % s.phases_w;
            if (direction == Direction::forward) {
              ASSERT_EQ(row, i * z.stride_h - z.pad_top + r * z.dilation_h) << z.text();
              ASSERT_EQ(column, j * z.stride_w - z.pad_left + q * z.dilation_w) << z.text();
            } else {  // dx row h reads the dy row with h = row stride - pad + r dilation
              ASSERT_EQ(row * z.stride_h - z.pad_top + r * z.dilation_h, i * z.stride_h + phase_h)
                  << z.text();
              ASSERT_EQ(column * z.stride_w - z.pad_left + q * z.dilation_w,
                        j * z.stride_w + phase_w)
                  << z.text();
            }
            ASSERT_LT(place, s.patch_pixels()) << z.text();
          }
        }
      });
    }
  }
}

TEST_F(GroupedGemmOnCuda, AgreesWithTheReference) {
  std::size_t turn = 0;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Conv2dProblem& z : problems()) {
      if (!testing::takes_entry(turn++)) continue;
      ConvolutionCase exact(z, Tier::exact);
      ConvolutionCase bounded(z,
                              testing::kRoundedTiers[turn / 3 % std::size(testing::kRoundedTiers)]);
      for (const Direction direction : kDirections) {
        ASSERT_EQ(support_of(algorithm(), z, direction).reason, "") << z.text();
        EXPECT_EQ(exact.check(algorithm(), direction), "") << "seed " << seed;
        EXPECT_EQ(bounded.check(algorithm(), direction), "") << "seed " << seed;
      }
    }
  }
}

TEST_F(GroupedGemmOnCuda, AFusedEpilogueHasTheNumbersOfSeparateSteps) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const char* text : {"n=2,c=12,h=9,w=11,k=12,r=3,s=3,pad=1,groups=3",
                             "n=1,c=48,h=6,w=7,k=48,r=3,s=3,stride=2,pad=1,groups=2"}) {
      const Conv2dProblem z = nhwc_problem(text, dtype);
      Operands operands = random_operands(z.operands(Direction::forward), testing::cuda());
      operands.in[0].values = stored_integers(z.x_shape(), z.dtype, 1);
      operands.in[1].values = integers(z.w_shape(), DType::f32, 2);
      const auto run = [&](const Tensor& b, const Conv2dEpilogue& epilogue) {
        operands.in[2] = b.defined() ? Operand(b) : Operand();
        operands.epilogue = epilogue;
        operands.out[0].values = Tensor::full(stored_shape(z.y_shape(), z.layout),
                                              std::numeric_limits<float>::quiet_NaN(), z.dtype)
                                     .to(testing::cuda());
        run_algorithm(algorithm(), z, Direction::forward, operands);
        return floats_of(operands.out[0].values);
      };
      const Tensor b = integers({z.k}, DType::f32, 3);
      const Tensor residual = stored_integers(z.y_shape(), z.dtype, 4);
      const std::vector<float> sums = run({}, {}), added = floats_of(residual);
      const std::vector<float> bias = floats_of(b);
      const auto lanes = stored_shape(z.y_shape(), z.layout)[4];
      for (int parts = 0; parts < 8; ++parts) {
        const bool with_b = (parts & 1) != 0, add = (parts & 2) != 0, relu = (parts & 4) != 0;
        std::vector<float> expected = sums;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const auto channel = static_cast<std::int64_t>(i) % lanes;
          if (with_b && channel < z.k) expected[i] += bias[static_cast<std::size_t>(channel)];
          if (add) expected[i] += added[i];
          if (relu && expected[i] < 0) expected[i] = 0;
        }
        EXPECT_TRUE(run(with_b ? b : Tensor(), {.residual = add ? residual.raw_data() : nullptr,
                                                .relu = relu,
                                                .residual_type = z.dtype}) == expected)
            << z.text() << (with_b ? ", bias" : "") << (add ? ", residual" : "")
            << (relu ? ", relu" : "");
      }
    }
  }
}

// NaN and infinities must reach all sums of their group that read them, and no other sums, although
// operands are rounded to tf32 and padded with zeros. (If several groups share an octet of
// channels, they share products, and all are affected. Here each group has its own products.)
TEST_F(GroupedGemmOnCuda, SpreadsWhatIsNotFiniteWhereItIsRead) {
  const auto gpu_nan = std::bit_cast<float>(0x7fffffffu);  // the NaN of a GPU: the largest one
  for (const float value : {gpu_nan, std::numeric_limits<float>::infinity()}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Conv2dProblem z = nhwc_problem("n=2,c=24,h=9,w=12,k=24,r=3,s=3,pad=1,groups=3", dtype);
      Operands operands = random_operands(z.operands(Direction::forward), testing::cuda());
      Tensor x = Tensor::full(z.x_shape(), 1.0);
      x.data<float>()[((1 * 24 + 10) * 9 + 4) * 12 + 5] = value;
      operands.in[0].values =
          stored_images(x, ActivationLayout::nhwc).to(z.dtype).to(testing::cuda());
      operands.in[1].values = Tensor::full(z.w_shape(), 0.5).to(testing::cuda());
      operands.in[2] = Operand();
      run_algorithm(algorithm(), z, Direction::forward, operands);
      const std::vector<float> y = floats_of(operands.out[0].values);  // [2,1,9,12,24]
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto at = static_cast<int>(i);
        const int channel = at % 24, q = at / 24 % 12, p = at / 24 / 12 % 9, n = at / 24 / 12 / 9;
        const bool reads =
            n == 1 && channel / 8 == 1 && std::abs(p - 4) <= 1 && std::abs(q - 5) <= 1;
        ASSERT_EQ(std::isnan(y[i]), reads && std::isnan(value)) << name_of(dtype) << " at " << i;
        ASSERT_EQ(std::isinf(y[i]), reads && std::isinf(value)) << name_of(dtype) << " at " << i;
      }
    }
  }
}

TEST_F(GroupedGemmOnCuda, GradientsOfWeightsAreAddedToWhatWasThere) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const char* text : {"n=1,c=64,h=3,w=3,k=64,r=3,s=3,pad=1,groups=2",       // one part
                             "n=3,c=16,h=23,w=29,k=16,r=3,s=3,pad=1,groups=4"}) {  // several
      const Conv2dProblem z = nhwc_problem(text, dtype);
      Operands operands = random_operands(z.operands(Direction::backward_weight), testing::cuda());
      const auto run = [&](bool accumulate) {
        operands.accumulate = accumulate;
        run_algorithm(algorithm(), z, Direction::backward_weight, operands);
        return floats_of(operands.out[0].values);
      };
      operands.out[0].values.fill(std::numeric_limits<float>::quiet_NaN());
      const std::vector<float> once = run(false);
      std::vector<float> expected = once;
      for (float& value : expected) value *= 2;  // exact
      EXPECT_TRUE(run(true) == expected) << z.text();
      EXPECT_TRUE(run(false) == once) << z.text();
    }
  }
}

TEST_F(GroupedGemmOnCuda, CanBeRecordedAndReplayed) {
  std::size_t turn = 0;
  for (const Conv2dProblem& z : problems()) {
    if (turn++ % 5 != 0) continue;
    for (const Direction direction : kDirections) {
      testing::expect_replayed(algorithm(), z, direction);
    }
  }
}

TEST_F(GroupedGemmOnCuda, RefusesInASentence) {
  const auto reason = [](const char* text, Direction direction = Direction::forward) {
    return support_of(algorithm(), Conv2dProblem::parse(cat(text, ",layout=nhwc")), direction)
        .reason;
  };
  const std::string half_types = ",dtype=bf16,types=bf16:f32:f32:bf16";
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8,groups=2"),
            "expects fp16/bf16, or f32 with precision tf32, in NHWC and f32 weights, got "
            "f32:f32:f32:f32 with layout nhwc");
  EXPECT_EQ(reason(cat("n=1,c=8,h=8,w=8,k=8", half_types).c_str()),
            "expects several groups of at least 2 channels, because it is made for them, got 1 "
            "groups of 8 in and 8 out");
  EXPECT_EQ(reason("n=1,c=144,h=8,w=8,k=144,groups=2,precision=tf32"),
            "expects groups of at most 64 channels here, because the sums of a bundle of groups "
            "stay in registers, got 72 in and 72 out");
  EXPECT_EQ(reason("n=1,c=8,h=32,w=32,k=8,r=9,s=9,groups=2,precision=tf32"),
            "expects a kernel of at most 49 taps, because each is a parameter of the launch, got "
            "9x9");
  EXPECT_EQ(
      reason("n=1,c=8,h=32,w=32,k=8,stride=5,groups=2,precision=tf32", Direction::backward_data),
      "expects strides of at most 4 in backward_data, one phase each, got 5x5");
}

}  // namespace
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// few_pixels_cuda_test.cpp: compares every kernel of few_pixels, with every tiling of the pixels,
// with the reference in double. Cases: strides, dilation, padding, partial tiles, and matrix
// products that are not full. Also tests which pixels taps read, aligned copies, NaN, accumulated
// gradients, CUDA graphs and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/few_pixels/cuda/few_pixels_plan.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/recorded_algorithm.h"
#include "tests/support/stored_integers.h"

namespace convscope {
namespace {

using few_pixels::FewPixelsParams;
using few_pixels::FewPixelsTiling;
using testing::ConvolutionCase;
using testing::floats_of;
using testing::Tier;

class FewPixelsOnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& algorithm() { return conv2d_algorithms(DeviceType::cuda).get("few_pixels"); }

const char* const kProblems[] = {
    "n=1,c=64,h=14,w=14,k=64,r=3,s=3,pad=1",
    "n=1,c=40,h=7,w=7,k=48,r=3,s=3,pad=1",
    "n=1,c=256,h=7,w=7,k=256,r=3,s=3,pad=1",  // two rows of a warp
    "n=1,c=256,h=14,w=14,k=64",               // copies of 16 bytes
    "n=1,c=512,h=7,w=7,k=256",
    "n=2,c=17,h=13,w=13,k=40,r=3,s=3,stride=2,pad=1",  // tails of channels and rows
    "n=1,c=33,h=14,w=14,k=5,r=3,s=3,pad=2,dilation=2",
    "n=3,c=3,h=7,w=5,k=5,r=5,s=5,pad=2",
    "n=2,c=16,h=8,w=8,k=16,stride=2",    // rows and columns that no tap reads
    "n=2,c=16,h=9,w=9,k=16,stride=3x2",  // the same, different in each dimension
    "n=3,c=9,h=5,w=1,k=20,r=3,s=3,pad=1x0x2x3",
    "n=1,c=8,h=11,w=13,k=17,r=7,s=7,pad=3",
    "n=2,c=10,h=12,w=10,k=16,r=2,s=3,stride=2x3,dilation=3x1,pad=0x1x2x0",
    "n=5,c=24,h=4,w=4,k=32,r=3,s=3",
    "n=1,c=8,h=40,w=40,k=16,r=3,s=3,pad=1",  // chains that are cut
    "n=1,c=8,h=63,w=64,k=8,r=3,s=3,pad=1",   // more pieces than stages
    "n=16,c=16,h=8,w=8,k=16",                // several images in a piece
    "n=2,c=8,h=6,w=9,k=16,r=1,s=4,stride=3",
    "n=3,c=3,h=30,w=30,k=8,r=3,s=3,pad=1",             // two stages
    "n=3,c=72,h=23,w=23,k=20",                         // three
    "n=3,c=40,h=30,w=30,k=20,r=3,s=3,stride=2,pad=1",  // 32 rows and 9 fragments of a warp
    "n=1,c=1,h=1,w=1,k=1",
};

std::vector<Conv2dProblem> problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text : kProblems) out.push_back(Conv2dProblem::parse(text));
  return out;
}

constexpr few_pixels::Machine kEmulated{.multiprocessors = 8};

// Which schedules the tests run: the cheapest one by the estimate (0), and others that exploration
// chooses, so that other estimates cannot hide a kernel from the tests.
constexpr std::uint64_t kSeeds[] = {0, 1, 2};

TEST(FewPixels, EveryKernelIsChosen) {
  std::set<std::pair<int, int>> instances;
  std::set<int> stages;
  std::set<bool> several_images, parts, ring, shared_depth, tails;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Conv2dProblem& z : problems()) {
      const FewPixelsTiling plan = few_pixels::plan_weight(z, kEmulated);
      ASSERT_TRUE(plan.exists()) << z.text();
      const FewPixelsParams& s = plan.sizes;
      instances.emplace(plan.instance.row_tiles, plan.instance.fragments);
      stages.insert(s.stages);
      several_images.insert(s.piece_images > 1);
      parts.insert(s.pieces_of_image > 1);
      ring.insert(s.pieces > s.stages);
      shared_depth.insert(s.shares > 1);
      tails.insert(s.column_groups * plan.instance.fragments > s.fragments());
    }
  }
  EXPECT_EQ(instances, (std::set<std::pair<int, int>>{{1, 4}, {2, 4}, {1, 9}, {2, 9}}));
  EXPECT_EQ(stages, (std::set{1, 2, 3}));
  for (const auto& both : {several_images, parts, ring, shared_depth, tails}) {
    EXPECT_EQ(both.size(), 2u);
  }
}

// In every tiling, each tap reads the right pixel of the plane in shared memory.
TEST(FewPixels, TapsFindTheirPixels) {
  for (const Conv2dProblem& z : problems()) {
    int plans = 0;
    std::pair<int, int> last{};
    few_pixels::visit_plans(z, kEmulated, [&](const FewPixelsTiling& plan) {
      const FewPixelsParams& s = plan.sizes;
      if (std::pair{s.piece_images, s.piece_lines} == last) return;
      last = {s.piece_images, s.piece_lines};
      ++plans;
      for (int i = 0; i < s.piece_pixels(); ++i) {
        const int image = i / (s.piece_lines * s.out_width);
        const int p = i / s.out_width % s.piece_lines, q = i % s.out_width;
        for (int tap = 0; tap < s.taps; ++tap) {
          const auto r = tap / z.s, column = tap % z.s;
          const int place = s.window_at(i) + s.tap_at[tap];
          const int in_plane = place - image * s.plane_words;
          ASSERT_TRUE(in_plane >= 0 && in_plane < s.plane_words) << z.text();
          ASSERT_EQ(s.row_of(in_plane / s.line), p * z.stride_h - z.pad_top + r * z.dilation_h)
              << z.text();
          ASSERT_EQ(s.column_of(in_plane % s.line),
                    q * z.stride_w - z.pad_left + column * z.dilation_w)
              << z.text();
        }
      }
    });
    EXPECT_GE(plans, 1) << z.text();
  }
}

// Counts one tiling by hand: a block has all 16 rows and one octet, in one piece of 49 pixels,
// which are seven steps. One warp multiplies 16 x 8 pixels x 4 fragments; one of them is needed.
TEST(FewPixels, CountsAreThoseOfAllBlocks) {
  const Conv2dProblem z = Conv2dProblem::parse("n=1,c=16,h=7,w=7,k=16");
  int met = 0;
  few_pixels::visit_plans(z, kEmulated, [&](const FewPixelsTiling& plan) {
    const FewPixelsParams& s = plan.sizes;
    if (s.pieces > 1 || s.octets > 1 || s.warps() > 1 || plan.instance.row_tiles > 1 ||
        plan.instance.fragments > 4) {
      return;
    }
    ++met;
    EXPECT_STREQ(plan.cost.schedule, "1x4");
    EXPECT_EQ(plan.cost.blocks, 2);
    EXPECT_EQ(plan.cost.issued, 2 * 3 * (2 * 16 * 32 * 56));  // blocks, products of TF32
    EXPECT_EQ(plan.cost.chain, 7);
    EXPECT_EQ(plan.cost.cached, 2 * 4 * (8 * 49 + 16 * 56));
    EXPECT_EQ(plan.cost.stored, 2 * 16 * 8);
    EXPECT_EQ(plan.cost.launches, 1);
  });
  EXPECT_EQ(met, 1);
}

// Checks the assumptions of the kernel, in every plan.
TEST(FewPixels, PlansFitAndCutTheirChains) {
  for (const Conv2dProblem& z : problems()) {
    few_pixels::visit_plans(z, kEmulated, [&](const FewPixelsTiling& plan) {
      const FewPixelsParams& s = plan.sizes;
      ASSERT_LE(s.warps(), few_pixels::kMaxWarps);
      ASSERT_LE(s.stages, few_pixels::kMaxStages);
      ASSERT_LE(plan.shared_bytes, kEmulated.shared_bytes);
      ASSERT_GE(plan.shared_bytes, 4 * (s.table_at() + s.piece_pixels()));
      ASSERT_GE(plan.shared_bytes, 4 * s.shares * s.rows * s.sum_pitch);
      ASSERT_GE(s.dy_pitch, s.piece_steps() * few_pixels::kStepPixels);
      ASSERT_GE(s.plane_pitch, s.plane_piece());
      ASSERT_GE(s.column_groups * plan.instance.fragments, s.fragments());
      ASSERT_GE(s.row_blocks * s.rows, z.k);
      ASSERT_GE(s.channel_blocks() * s.octets * few_pixels::kOctet, z.c);
      ASSERT_EQ(s.dy_pitch % 8, 4);  // 32 lanes in 32 banks
      ASSERT_EQ(s.plane_pitch % 8, 4);
      ASSERT_GE(s.all_steps() * few_pixels::kStepPixels, z.n * z.p() * z.q());
      ASSERT_TRUE(plan.instance.cuts || s.all_steps() <= s.shares * few_pixels::kChainSteps)
          << z.text();
    });
  }
}

// Each word of each row is copied by exactly one thread.
TEST(FewPixels, CopiesCoverEachWordOnce) {
  for (const int threads : {32, 96, 256}) {
    for (const int positions : {1, 7, 49, 81, 196, 256, 324, 1000}) {
      for (const int rows : {1, 8, 40, 64}) {
        const few_pixels::Spread by = few_pixels::spread(positions, rows, threads);
        ASSERT_LE(by.groups * by.lanes, threads);
        std::vector<int> copied(static_cast<std::size_t>(positions * rows));
        for (int thread = 0; thread < threads; ++thread) {
          const int group = by.by_lanes.divide(thread);
          if (group >= by.groups) continue;
          for (int i = thread - group * by.lanes; i < by.positions; i += by.lanes) {
            for (int row = group; row < rows; row += by.groups) {
              ++copied[static_cast<std::size_t>(row * positions + i)];
            }
          }
        }
        EXPECT_EQ(copied, std::vector<int>(copied.size(), 1)) << positions << " " << rows;
      }
    }
  }
}

TEST_F(FewPixelsOnCuda, AgreesWithTheReference) {
  std::size_t turn = 0;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Conv2dProblem& z : problems()) {
      if (!testing::takes_entry(turn++)) continue;
      ASSERT_EQ(support_of(algorithm(), z, Direction::backward_weight).reason, "") << z.text();
      for (const Tier tier : {Tier::exact, Tier::bounded, Tier::offset, Tier::heavy}) {
        ConvolutionCase one(z, tier);
        EXPECT_EQ(one.check(algorithm(), Direction::backward_weight), "") << "seed " << seed;
      }
    }
  }
}

// The test of all algorithms uses unaligned pointers, so this test covers copies and stores of 16
// bytes. The operands are integers, so the bits must be those of the reference.
TEST_F(FewPixelsOnCuda, AlignedCopiesGiveTheSameNumbers) {
  const Conv2dAlgorithm& reference = conv2d_algorithms(DeviceType::cpu).get("reference");
  for (const Conv2dProblem& z : problems()) {
    const auto integers = [](const Shape& shape, int seed) {
      Tensor out = Tensor::empty(shape);
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        out.data<float>()[i] = static_cast<float>((i * 7 + i / 5 * 3 + seed) % 9 - 4);
      }
      return out;
    };
    const auto run = [&](const Conv2dAlgorithm& by, const Device& device) {
      Operands operands = random_operands(z.operands(Direction::backward_weight), device);
      operands.in[0].values = integers(z.x_shape(), 1).to(device);
      operands.in[1].values = integers(z.y_shape(), 2).to(device);
      operands.out[0].values.fill(std::numeric_limits<float>::quiet_NaN());
      run_algorithm(by, z, Direction::backward_weight, operands);
      return floats_of(operands.out[0].values);
    };
    EXPECT_TRUE(run(algorithm(), testing::cuda()) == run(reference, Device{})) << z.text();
  }
}

TEST_F(FewPixelsOnCuda, GradientsOfWeightsAreAddedToWhatWasThere) {
  for (const char* text :
       {"n=1,c=16,h=14,w=14,k=32,r=3,s=3,pad=1", "n=3,c=5,h=7,w=5,k=9,r=3,s=1"}) {
    const Conv2dProblem z = Conv2dProblem::parse(text);
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

// A NaN in x must affect only the taps of dw that read it. The last matrix product has one pixel
// and 7 unused rows. The NaN must reach neither these rows nor the other channels of the tile. With
// 63x63 pixels, the last piece of an image has fewer rows, so its buffer is partly unused.
TEST_F(FewPixelsOnCuda, SpreadsWhatIsNotFiniteWhereItIsRead) {
  for (const int side : {7, 63}) {
    const Conv2dProblem z =
        Conv2dProblem::parse(cat("n=1,c=12,h=", side, ",w=", side, ",k=20,r=3,s=3,pad=1"));
    const FewPixelsParams s = few_pixels::plan_weight(z, kEmulated).sizes;
    const int lines = (s.out_height - 1) % s.piece_lines + 1;  // of the last piece
    ASSERT_EQ(lines * s.out_width % few_pixels::kStepPixels, 1);
    ASSERT_EQ(lines < s.piece_lines, side == 63);
    const int last = side - 1;
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const auto& [h, w] : {std::pair{last, last}, {0, 0}, {last, 0}, {3, 4}}) {
        Operands operands =
            random_operands(z.operands(Direction::backward_weight), testing::cuda());
        Tensor x = Tensor::full(z.x_shape(), 1.0);
        x.data<float>()[(5 * side + h) * side + w] = value;
        operands.in[0].values = x.to(testing::cuda());
        operands.in[1].values = Tensor::full(z.y_shape(), 0.5).to(testing::cuda());
        run_algorithm(algorithm(), z, Direction::backward_weight, operands);
        const std::vector<float> dw = floats_of(operands.out[0].values);  // [20,12,3,3]
        for (std::size_t i = 0; i < dw.size(); ++i) {
          const auto at = static_cast<int>(i);
          const int p = h + 1 - at / 3 % 3, q = w + 1 - at % 3;
          const bool reads = at / 9 % 12 == 5 && p >= 0 && p < side && q >= 0 && q < side;
          ASSERT_EQ(!std::isfinite(dw[i]), reads)
              << value << " at " << h << ", " << w << " of " << side << ": " << i;
        }
      }
    }
  }
}

TEST_F(FewPixelsOnCuda, CanBeRecordedAndReplayed) {
  std::size_t turn = 0;
  for (const Conv2dProblem& z : problems()) {
    if (turn++ % 5 != 0) continue;
    testing::expect_replayed(algorithm(), z, Direction::backward_weight);
  }
}

TEST_F(FewPixelsOnCuda, RefusesInASentence) {
  const auto reason = [](const char* text, Direction direction = Direction::backward_weight) {
    return support_of(algorithm(), Conv2dProblem::parse(text), direction).reason;
  };
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8", Direction::forward), "does not compute forward");
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8,precision=tf32"),
            "expects f32 with precision f32, because its products have two parts of each factor, "
            "got f32 with precision tf32");
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8,dtype=bf16"),
            "expects f32 with precision f32, because its products have two parts of each factor, "
            "got bf16");
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8,groups=2"),
            "expects one group, because a block makes all pairs of its channels, got 2 groups");
  EXPECT_EQ(reason("n=1,c=8,h=12,w=12,k=8,r=8,s=7"),
            "expects a kernel of at most 49 taps, because each is a parameter of the launch, got "
            "8x7");
  EXPECT_EQ(reason("n=2,c=8,h=50,w=50,k=8"),
            "expects at most 4096 pixels of y in all images, because a block reads them all, got "
            "2 images of 50x50");
  EXPECT_EQ(reason("n=1,c=8,h=3,w=4000,k=8,r=3,s=3"),
            "expects 8 channels of the lines of x that a line of y reads to fit into shared memory "
            "with their gradients, got a kernel of 3x3 with dilation 1x1 on images of 3x4000");
}

}  // namespace
}  // namespace convscope

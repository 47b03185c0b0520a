// SPDX-License-Identifier: Apache-2.0
// block_sparse_test.cpp: tests the algorithm block_sparse on problems that are rare in the tests of
// all algorithms: many output channels, every block shape, sums that are computed in several parts,
// borders, strides and groups.
#include <gtest/gtest.h>

#include "tests/support/cases.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::MachineScope;
using testing::Tier;

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cpu).get("block_sparse");
}

// Checks every direction with each instruction set. One and two threads must compute the same bits.
// Problems with x in NCHW and y in NCHW16c (first layers) have only a forward pass.
void check(const Conv2dProblem& problem, Tier tier) {
  ConvolutionCase one(problem, tier);
  for (const Direction direction : kDirections) {
    const bool is_first = problem.layout == kNchwToNchw16c;
    if (is_first && direction != Direction::forward) continue;
    const Support support = support_of(algorithm(), problem, direction);
    ASSERT_TRUE(support.yes) << support.reason << ": " << problem.text();
    for (int isa = 0; isa < kIsaCount; ++isa) {
      if (!supports_isa(static_cast<Isa>(isa))) continue;
      set_isa(static_cast<Isa>(isa));
      std::vector<float> bits[2];
      for (int threads = 1; threads <= 2; ++threads) {
        set_num_threads(threads);
        ASSERT_EQ(one.check(algorithm(), direction, &bits[threads - 1]), "");
      }
      ASSERT_EQ(bits[0].size(), bits[1].size());
      ASSERT_TRUE(bits[0].empty() ||
                  std::memcmp(bits[0].data(), bits[1].data(), bits[0].size() * 4) == 0)
          << problem.text() << ": one and two threads gave different bits";
    }
  }
}

TEST(BlockSparse, AgreesWithTheReferenceOnManyChannels) {
  const char* const kTexts[] = {
      "n=2,c=64,h=14,w=14,k=64,r=3,s=3,pad=1",            // two rows of a tile, chunks
      "n=5,c=48,h=7,w=7,k=32,r=3,s=3,pad=1",              // four rows, of several images
      "n=1,c=40,h=7,w=7,k=48,r=3,s=3,pad=1",              // four rows of one image
      "n=1,c=16,h=6,w=61,k=32,r=3,s=3,pad=1",             // tiles of uneven width
      "n=2,c=32,h=15,w=29,k=32,r=3,s=3,pad=1,stride=2",   //
      "n=3,c=32,h=13,w=11,k=16,stride=2",                 //
      "n=2,c=24,h=9,w=31,k=16,r=3,s=3,pad=2,stride=3",    // pixels farther apart than two
      "n=1,c=200,h=3,w=5,k=16",                           // a chain and a part of one
      "n=2,c=20,h=12,w=12,k=16,r=5,s=5,pad=2",            // borders of two pixels
      "n=2,c=17,h=9,w=10,k=33,r=3,s=2,pad=1x0x2x1",       // lanes after the last channel
      "n=1,c=16,h=10,w=9,k=16,r=3,s=3,pad=2,dilation=2",  //
      "n=2,c=32,h=8,w=8,k=64,r=3,s=3,pad=1,groups=2",     //
      "n=2,c=8,h=2,w=2,k=16,r=3,s=3,pad=3",               // rows outside of all taps
      "n=1,c=1,h=28,w=28,k=1,r=3,s=3,pad=1",              //
  };
  const MachineScope scope;
  std::size_t turn = 0;
  for (const char* text : kTexts) {
    for (const Conv2dProblem& problem :
         testing::sparse_problems(Conv2dProblem::parse(text), turn, 4)) {
      check(problem, Tier::exact);
      check(problem, testing::kRoundedTiers[turn % testing::kRoundedTierCount]);
      ++turn;
      if (HasFailure()) return;
    }
  }
}

TEST(BlockSparse, AgreesWithTheReferenceOnRandomProblems) {
  const auto count = testing::number_from_environment("CONVSCOPE_TEST_RANDOM_PROBLEMS", 60);
  const MachineScope scope;
  for (std::int64_t i = 0; i < count; ++i) {
    Conv2dProblem dense = testing::random_problem(7, static_cast<std::uint64_t>(i));
    dense.k = 16 * (1 + i % 3);
    dense.groups = i % 7 == 0 ? 2 : 1;
    dense.c = dense.groups == 1 ? dense.c : 32;
    if (dense.groups == 2) dense.k = 32;
    dense.n = std::min<std::int64_t>(dense.n, 5);
    const auto turn = static_cast<std::size_t>(i);
    for (const Conv2dProblem& problem : testing::sparse_problems(dense, turn, 1)) {
      check(problem, testing::kRoundedTiers[turn % testing::kRoundedTierCount]);
    }
    if (HasFailure()) return;
  }
}

// x is read in NCHW, in place.
TEST(BlockSparse, AgreesWithTheReferenceOnFirstLayers) {
  const char* const kTexts[] = {
      "n=2,c=3,h=20,w=61,k=64,r=7,s=7,pad=3,stride=2",  // tiles of 16 pixels
      "n=2,c=1,h=28,w=28,k=16,r=5,s=5",                 //
      "n=3,c=3,h=9,w=7,k=24,r=3,s=3,pad=1",             // rows of several images
      "n=2,c=5,h=13,w=19,k=17,r=3,s=2,pad=1x0x2x1",     // lanes after the last channel
      "n=1,c=40,h=11,w=40,k=32,r=3,s=3,pad=1",          // more than one block of channels
      "n=1,c=4,h=30,w=33,k=16,r=5,s=5,pad=2,stride=3",  // pixels farther apart than two
      "n=2,c=6,h=10,w=12,k=16,r=3,s=3,dilation=2",      //
      "n=2,c=20,h=6,w=5,k=32",                          // planes without rows
  };
  const MachineScope scope;
  std::size_t turn = 0;
  for (const char* text : kTexts) {
    Conv2dProblem dense = Conv2dProblem::parse(text);
    dense.layout = kNchwToNchw16c;
    for (const Conv2dProblem& problem : testing::sparse_problems(dense, turn, 4)) {
      check(problem, Tier::exact);
      check(problem, testing::kRoundedTiers[turn % testing::kRoundedTierCount]);
      ++turn;
      if (HasFailure()) return;
    }
  }
}

// A linear layer: its images are the pixels of a row.
TEST(BlockSparse, AgreesWithTheReferenceOnImagesOfOnePixel) {
  const char* const kTexts[] = {
      "n=64,c=48,h=1,w=1,k=32",
      "n=1,c=40,h=1,w=1,k=16",
      "n=7,c=20,h=1,w=1,k=30",   // channels that do not fill a block
      "n=163,c=5,h=1,w=1,k=16",  // a prime number of images, more than a chain has
      "n=322,c=17,h=1,w=1,k=48,stride=2",
  };
  const MachineScope scope;
  std::size_t turn = 0;
  for (const char* text : kTexts) {
    for (const ActivationLayout layout : {ActivationLayout::nchw, ActivationLayout::nchw16c}) {
      Conv2dProblem dense = Conv2dProblem::parse(text);
      dense.layout = layout;
      for (const Conv2dProblem& problem : testing::sparse_problems(dense, turn, 3)) {
        check(problem, Tier::exact);
        check(problem, testing::kRoundedTiers[turn % testing::kRoundedTierCount]);
        ++turn;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(BlockSparse, RefusesWhatItDoesNotCompute) {
  const auto reason = [](const char* text) {
    return support_of(algorithm(), Conv2dProblem::parse(text), Direction::forward).reason;
  };
  EXPECT_EQ(reason("c=16,h=8,w=8,k=16"), "expects block-sparse weights, got dense");
  EXPECT_EQ(reason("c=16,h=8,w=8,k=16,groups=2,weights=blocks1x1:3"),
            "expects groups of a multiple of 16 channels, got 2 groups of 8 and 8");
  EXPECT_EQ(reason("c=16,h=8,w=8,k=16,dtype=f64,weights=blocks16x1:3"),
            "expects elements of type f32, got f64");
  EXPECT_EQ(reason("c=16,h=12000,w=12000,k=16,weights=blocks16x1:3"),
            "expects images of fewer than 2^31 numbers, got 16x12000x12000 and 16x12000x12000");
  EXPECT_EQ(reason("c=16,h=99,w=99,k=16,r=33,s=33,weights=blocks16x1:3"),
            "expects a kernel of at most 1024 taps, got 33x33");
  EXPECT_EQ(
      support_of(algorithm(),
                 Conv2dProblem::parse("c=3,h=9,w=9,k=16,weights=blocks16x1:3,layout=nchw:nchw16c"),
                 Direction::backward_weight)
          .reason,
      "expects x and dy in one layout for dw, got layout nchw:nchw16c");
}

// With small caches, the kernel divides the channels into chunks and the blocks of weights into
// groups.
TEST(BlockSparse, AgreesWithTheReferenceOnRowsOfManyImages) {
  const MachineScope scope;
  for (const char* text : {"n=20,c=16,h=4,w=4,k=16,r=3,s=3,pad=1,weights=blocks16x1:50",
                           "n=33,c=16,h=7,w=7,k=32,weights=blocks16x1:9"}) {
    check(Conv2dProblem::parse(text), Tier::bounded);
  }
}

}  // namespace
}  // namespace convscope

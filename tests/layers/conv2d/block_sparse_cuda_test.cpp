// SPDX-License-Identifier: Apache-2.0
// block_sparse_cuda_test.cpp: tests the algorithm block_sparse on CUDA: every block shape of the
// weights, every tile, borders, strides, and the epilogue.
#include <gtest/gtest.h>

#include <cstring>

#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/numerics.h"
#include "tests/support/random_share.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::Tier;

class BlockSparseOnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("block_sparse");
}

// `shift` makes the pointers unaligned. The kernel then stores y one element at a time. An aligned
// y with an even number of pixels per image is stored in pairs. The kernel reads one, two or four
// elements of dy at a time.
void check(const Conv2dProblem& problem, Tier tier, std::int64_t shift = 1) {
  ConvolutionCase one(problem, tier);
  one.set_shift(shift);
  for (const Direction direction : kDirections) {
    const Support support = support_of(algorithm(), problem, direction);
    ASSERT_TRUE(support.yes) << support.reason << ": " << problem.text();
    std::vector<float> bits[2];
    ASSERT_EQ(one.check(algorithm(), direction, &bits[0]), "");
    if (testing::is_emulated()) continue;
    ASSERT_EQ(one.check(algorithm(), direction, &bits[1]), "");
    ASSERT_TRUE(std::memcmp(bits[0].data(), bits[1].data(), bits[0].size() * sizeof(float)) == 0)
        << name_of(direction) << " of " << problem.text() << ": two runs gave different bits";
  }
}

TEST_F(BlockSparseOnCuda, AgreesWithTheReference) {
  const char* const kTexts[] = {
      "n=2,c=24,h=14,w=14,k=64,r=3,s=3,pad=1",           //
      "n=1,c=16,h=6,w=61,k=32,r=3,s=3,pad=1",            //
      "n=2,c=12,h=15,w=29,k=33,r=3,s=3,pad=1,stride=2",  // a list of one row
      "n=1,c=200,h=3,w=5,k=16",                          // few pixels, long lists
      "n=2,c=8,h=12,w=12,k=16,r=5,s=5,pad=2",            // borders of two pixels
      "n=2,c=17,h=9,w=10,k=80,r=3,s=2,pad=1x0x2x1",      //
      "n=1,c=16,h=10,w=9,k=16,r=3,s=3,pad=2,dilation=2",
      "n=2,c=8,h=2,w=2,k=16,r=3,s=3,pad=3",   // rows outside of all taps
      "n=1,c=1,h=28,w=28,k=1,r=3,s=3,pad=1",  //
      "n=3,c=5,h=9,w=9,k=20,r=8,s=8,pad=4",   // 64 taps
  };
  std::size_t turn = 0;
  for (const char* text : kTexts) {
    if (!testing::takes_entry(turn++)) continue;
    for (const Conv2dProblem& problem :
         testing::sparse_problems(Conv2dProblem::parse(text), turn, 3)) {
      for (const Tier tier : {Tier::exact, Tier::bounded, Tier::offset}) check(problem, tier);
      if (HasFailure()) return;
    }
  }
}

// The problems differ in pixels and channels, and each check explores another choice of tiles.
TEST_F(BlockSparseOnCuda, AgreesWithTheReferenceInEveryTile) {
  std::uint64_t seed = 0;
  for (const char* text : {
           "n=1,c=4,h=100,w=90,k=32,r=3,s=3,pad=1,weights=blocks16x1:20",
           "n=1,c=96,h=4,w=4,k=16,r=3,s=3,pad=1,weights=blocks16x1:200",
           "n=1,c=32,h=24,w=24,k=128,weights=blocks16x1:64",
           "n=2,c=32,h=40,w=40,k=16,weights=blocks4x1:50",
           "n=2,c=40,h=12,w=12,k=32,r=3,s=3,pad=1,weights=blocks16x1:200",
           "n=1,c=20,h=24,w=24,k=32,r=3,s=3,stride=2,pad=1,weights=blocks16x1:200",
           "n=8,c=40,h=20,w=20,k=16,r=3,s=3,pad=1,weights=blocks16x1:60",  // dx in several passes
           "n=1,c=9,h=12,w=12,k=16,r=7,s=7,pad=3,weights=blocks16x1:400",
           "n=1,c=320,h=3,w=3,k=16,r=7,s=7,pad=3,weights=blocks16x1:14000",  // 87 chunks of a piece
       }) {
    Conv2dProblem problem = Conv2dProblem::parse(text);
    for (const std::int64_t shift : {0, 1}) {
      const ExploreSchedules explore(++seed);
      check(problem, Tier::exact, shift);
    }
    const ExploreSchedules explore(++seed);
    problem.math = MathMode::tf32;
    check(problem, Tier::heavy);
  }
}

TEST_F(BlockSparseOnCuda, AgreesWithTheReferenceOnRandomProblems) {
  const auto count = testing::number_from_environment("CONVSCOPE_TEST_RANDOM_PROBLEMS",
                                                      testing::is_emulated() ? 16 : 100);
  const testing::RandomShare share = testing::random_share();
  int checks = 0;  // in all shares: types and numbers alternate
  for (std::int64_t i = 0; i < count; ++i) {
    Conv2dProblem dense = testing::random_problem(5, static_cast<std::uint64_t>(i));
    dense.groups = 1;
    dense = testing::shrunk(dense, 1e5);
    for (Conv2dProblem& problem : testing::sparse_problems(dense, static_cast<std::size_t>(i), 2)) {
      if (!support_of(algorithm(), problem, Direction::forward).yes) continue;
      const Tier tiers[] = {Tier::exact, Tier::bounded, Tier::offset, Tier::heavy};
      if (checks % 5 == 4) problem.math = MathMode::tf32;
      const Tier tier = tiers[checks++ % 4];
      if (share.has(i)) check(problem, tier, i % 2);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(checks, count / 2);
}

// The kernels read the lengths of the lists of blocks from device memory. So a recorded CUDA graph
// does not fix these lengths.
TEST_F(BlockSparseOnCuda, CanBeRecordedAndReplayed) {
  for (const char* text : {"n=2,c=20,h=9,w=10,k=40,r=3,s=3,pad=1,weights=blocks4x1:400",
                           "n=2,c=24,h=9,w=10,k=32,weights=blocks16x1:20"}) {
    const Conv2dProblem problem = Conv2dProblem::parse(text);
    for (const Direction direction : kDirections) {
      const Operands operands = random_operands(problem.operands(direction), testing::cuda());
      const Scratch<Conv2dProblem> scratch(algorithm(), problem, direction, testing::cuda());
      const auto run = [&] { run_algorithm(algorithm(), problem, direction, operands, scratch); };
      run();
      const std::vector<float> want = testing::values_of<float>(operands.out[0].values);
      const DeviceBackend& backend = backend_of(testing::cuda());
      backend.begin_recording(0);
      run();
      void* const recording = backend.end_recording(0);
      backend.fill_bytes(0, operands.out[0].values.raw_data(), 0xff,
                         static_cast<std::size_t>(operands.out[0].values.size_bytes()));
      backend.replay(0, recording);
      backend.synchronize(0);
      backend.free_recording(0, recording);
      EXPECT_EQ(testing::values_of<float>(operands.out[0].values), want) << name_of(direction);
    }
  }
}

TEST_F(BlockSparseOnCuda, RefusesWhatItCannotDo) {
  const auto reason = [](const char* text, Direction direction = Direction::forward) {
    return support_of(algorithm(), Conv2dProblem::parse(text), direction).reason;
  };
  EXPECT_NE(reason("c=16,h=9,w=9,k=16").find("block-sparse"), std::string::npos);
  EXPECT_NE(reason("c=16,h=19,w=19,k=16,r=9,s=9,weights=blocks16x1:3").find("64 taps"),
            std::string::npos);
  EXPECT_NE(reason("c=32,h=9,w=9,k=32,groups=2,weights=blocks16x1:3").find("one group"),
            std::string::npos);
  EXPECT_EQ(reason("c=16,h=9,w=9,k=16,weights=blocks16x1:3", Direction::backward_data), "");
}

}  // namespace
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// direct_cuda_test.cpp: tests each kernel of direct, direct_sample and direct_any on CUDA, with
// partial tiles in every dimension, and tests the tilings of direct.
#include <gtest/gtest.h>

#include "layers/conv2d/direct/cuda/direct_cuda_tiles.h"
#include "tests/support/cuda.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::Tier;
using DirectOnCuda = testing::CudaTest;

void expect_agreement(const char* text, const char* name = "direct") {
  const Conv2dProblem problem = Conv2dProblem::parse(text);
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cuda).get(name);
  for (const Tier tier : {Tier::exact, Tier::bounded}) {
    ConvolutionCase numbers(problem, tier);
    for (const std::int64_t shift : {0, 1}) {
      numbers.set_shift(shift);
      for (const Direction direction : kDirections) {
        EXPECT_EQ(numbers.check(algorithm, direction), "");
      }
    }
  }
}

TEST_F(DirectOnCuda, one_block_takes_a_sample_of_a_lenet) {
  expect_agreement("n=3,c=1,h=28,w=28,k=6,r=5,s=5", "direct_sample");
  expect_agreement("n=3,c=1,h=28,w=28,k=6,r=5,s=5");
  expect_agreement("n=2,c=6,h=12,w=12,k=16,r=5,s=5", "direct_sample");
  expect_agreement("n=2,c=6,h=12,w=12,k=16,r=5,s=5");
  expect_agreement("n=2,c=3,h=15,w=13,k=6,r=7,s=7,pad=3", "direct_sample");
  expect_agreement("n=2,c=3,h=15,w=13,k=6,r=7,s=7,pad=3");
}

TEST_F(DirectOnCuda, stems_of_three_channels_in_register_tiles) {
  expect_agreement("n=2,c=3,h=37,w=45,k=64,r=7,s=7,stride=2,pad=3");
  expect_agreement("n=1,c=3,h=36,w=40,k=33,r=3,s=3,pad=1");
  expect_agreement("n=2,c=3,h=33,w=35,k=9,r=3,s=3,stride=2,pad=1");
  expect_agreement("n=1,c=1,h=40,w=34,k=70,r=5,s=5,stride=2,pad=2x1x0x3");
}

TEST_F(DirectOnCuda, more_channels_come_in_chunks) {
  expect_agreement("n=1,c=70,h=9,w=11,k=20,r=3,s=3,pad=1");
  expect_agreement("n=1,c=20,h=9,w=11,k=70,r=5,s=5,stride=2,pad=2");
  expect_agreement("n=1,c=17,h=12,w=9,k=13,r=7,s=7,pad=3");
}

TEST_F(DirectOnCuda, everything_else_one_thread_for_each_output) {
  expect_agreement("n=2,c=6,h=9,w=8,k=4,r=3,s=2,stride=2x3,pad=1x2x0x3,dilation=2x1,groups=2",
                   "direct_any");
  expect_agreement("n=2,c=5,h=7,w=6,k=5,r=3,s=3,groups=5,pad=1", "direct_any");
  expect_agreement("n=1,c=3,h=5,w=5,k=2,r=1,s=1,stride=3", "direct_any");
}

TEST_F(DirectOnCuda, padding_beyond_the_kernel) {
  expect_agreement("n=1,c=2,h=6,w=5,k=3,r=3,s=3,pad=4");
  expect_agreement("n=1,c=5,h=6,w=5,k=3,r=3,s=3,pad=4,stride=2");
}

// For every tiling, threads read only inside of the buffers, and every output is computed by a
// thread.
TEST(DirectTiles, hold_what_threads_read_and_cover_the_outputs) {
  using namespace direct_cuda;
  for (const int r : {3, 5, 7}) {
    for (const int stride : {1, 2}) {
      for (const int size : {7, 8, 9, 31, 32, 33, 112, 224}) {
        for (const int k : {1, 6, 16, 17, 64, 100}) {
          const ForwardTiles f = forward_tiles(r, stride, 3, k, size, size + 1);
          EXPECT_LE(f.k_lanes * f.columns * f.rows, kBlockThreads);
          EXPECT_LE((f.columns - 1) * kPixels * stride + window_floats(r, stride), f.x_pitch);
          EXPECT_LE((f.columns * kPixels - 1) * stride + r, f.x_pitch);
          EXPECT_GE(f.tiles_p * f.rows, size);
          EXPECT_GE(f.tiles_q * f.columns * kPixels, size + 1);
          EXPECT_GE(f.tiles_k * f.k_tile(), k);
          EXPECT_GE(f.chunks * f.depth, 3);
          EXPECT_LE(f.floats() * 4, 200 * 1024);

          const DataTiles d = data_tiles(r, stride, k, size, size);
          EXPECT_EQ(d.columns * d.rows, 128);
          EXPECT_LE(d.dy_left + d.columns * kPixels / stride, d.dy_pitch);
          EXPECT_GE(d.chunks * d.depth, k);
          EXPECT_LE(2 * d.dy_floats * 4, 200 * 1024);

          const WeightTiles t = weight_tiles(r, stride, 3, k, size, size, 2);
          EXPECT_LE(t.items * t.splits, t.threads);
          EXPECT_LE(t.threads, kBlockThreads);
          EXPECT_GE(t.pieces * t.columns, size);
          EXPECT_LE((t.fours - 1) * 4 * stride + round_up(3 * stride + r, 4), t.x_pitch);
          EXPECT_LE(t.floats() * 4, 200 * 1024);
        }
      }
    }
  }
}

}  // namespace
}  // namespace convscope

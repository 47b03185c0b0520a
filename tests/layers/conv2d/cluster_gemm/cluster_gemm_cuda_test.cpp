// SPDX-License-Identifier: Apache-2.0
// cluster_gemm_cuda_test.cpp: compares the kernels of cluster_gemm, in all of their types, with the
// reference in double. Cases: clusters of one to eight blocks, a last chunk of channels that is not
// full, several warps that share a tile, several images in a tile. Other cases: strides (dx then
// has one phase for each remainder), dilation, odd channel counts. Also tests which pixels taps
// read, epilogues, NaN, unaligned weights, CUDA graphs and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/cluster_gemm/cuda/cluster_gemm_plan.h"
#include "layers/dispatch/half_problem.h"
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

class ClusterGemmOnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("cluster_gemm");
}

constexpr Direction kBoth[] = {Direction::forward, Direction::backward_data};

const char* const kProblems[] = {
    "n=1,c=64,h=9,w=11,k=40,r=3,s=3,pad=1",          // eight blocks, or two
    "n=1,c=200,h=5,w=5,k=64,r=3,s=3,pad=1",          // the last chunk is not full
    "n=1,c=512,h=2,w=3,k=16",                        // four blocks
    "n=2,c=96,h=10,w=40,k=130,r=3,s=3,pad=1",        // columns after the last
    "n=1,c=16,h=14,w=14,k=16,r=3,s=3,pad=1",         // one block
    "n=3,c=72,h=6,w=5,k=20",                         // all images one line
    "n=9,c=24,h=3,w=3,k=33,r=3,s=3,pad=1",           // several images in a tile; odd channels
    "n=2,c=13,h=9,w=8,k=21,r=3,s=3,stride=2,pad=1",  // unaligned weights; phases of dx
    "n=1,c=40,h=11,w=10,k=24,r=5,s=5,stride=2,pad=2",
    "n=1,c=8,h=9,w=13,k=16,r=5,s=3,stride=3x2,pad=2x0x1x3,dilation=1x2",
    "n=1,c=16,h=1,w=9,k=16,r=3,s=3,stride=2,pad=2",  // taps that no phase uses
    "n=2,c=16,h=7,w=8,k=16,r=1,s=1,stride=2",        // phases without a tap
    "n=1,c=24,h=1,w=1,k=24,r=3,s=3,pad=1",
    "n=1,c=3,h=20,w=21,k=16,r=7,s=7,stride=2,pad=3",
    "n=1,c=2056,h=1,w=2,k=256",  // a pixel of more pieces than threads
    "n=1,c=16,h=3,w=2,k=16,r=7,s=7,pad=3",
};

std::vector<Conv2dProblem> problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text : kProblems) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      out.push_back(nhwc_problem(text, dtype));
    }
  }
  out.push_back(nhwc_problem(kProblems[0], DType::f16));
  return out;
}

// Seeds 1 and 2 choose other tilings than the estimates favour, so that every kernel runs.
constexpr std::uint64_t kSeeds[] = {0, 1, 2};

// On the eight SMs of the emulation.
TEST(ClusterGemm, EveryKernelIsChosen) {
  std::set<std::tuple<int, int>> units;
  std::set<int> blocks, ways, phases;
  std::set<bool> several_images, full, cut;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Conv2dProblem& z : problems()) {
      for (const Direction direction : kBoth) {
        const auto plan = cluster_gemm::plan_of(z, direction, {.multiprocessors = 8});
        const cluster_gemm::ClusterGemmParams& s = plan.sizes;
        units.emplace(plan.row_tiles, plan.column_tiles);
        blocks.insert(s.blocks), ways.insert(s.ways()), phases.insert(s.phases());
        several_images.insert(s.tile_images > 1);
        full.insert(s.in_channels == s.chunk * s.blocks);
        cut.insert(s.by_tiles_h.d * s.by_tiles_w.d > 1);
      }
    }
  }
  EXPECT_EQ(units, (std::set<std::tuple<int, int>>{{1, 1}, {1, 2}, {2, 1}, {2, 2}}));
  EXPECT_EQ(blocks, (std::set{1, 2, 4, 8}));
  EXPECT_GE(ways.size(), 2u);
  EXPECT_EQ(phases, (std::set{1, 2, 4, 6}));
  for (const auto& both : {several_images, full, cut}) EXPECT_EQ(both.size(), 2u);
}

// In every tiling, each tap reads the right pixel in shared memory. The blocks of a cluster divide
// the input channels among them: together they cover all channels, and no block is without work.
TEST(ClusterGemm, TapsFindTheirPixelsAndChunksTheirChannels) {
  for (const Conv2dProblem& z : problems()) {
    for (const Direction direction : kBoth) {
      int plans = 0;
      cluster_gemm::visit_plans(z, direction, {.multiprocessors = 8}, [&](const auto& plan) {
        if (plans++ % 11 != 0) return;
        const cluster_gemm::ClusterGemmParams& s = plan.sizes;
        ASSERT_GE(s.chunk * s.blocks, s.in_channels) << z.text();
        ASSERT_LT(s.chunk * (s.blocks - 1), s.in_channels) << z.text();
        ASSERT_GE(s.columns * s.column_tiles, s.out_channels) << z.text();
        ASSERT_LE(s.pieces, cluster_gemm::kWarps * 32) << z.text();
        if (z.r * z.s == 1) return;  // a line has no rows and columns
        for (int phase = 0; phase < s.phases(); ++phase) {
          for (int t = s.tap_begin[phase]; t < s.tap_begin[phase + 1]; ++t) {
            const auto r = s.tap_kernel[t] / z.s, q = s.tap_kernel[t] % z.s;
            const int i = s.tile_h - 1, j = s.tile_w - 1;  // the last position of the tile
            const int place = (i * s.step_h * s.patch_w) + j * s.step_w + s.tap_at[t];
            const int row = s.low_h + place / s.patch_w, column = s.low_w + place % s.patch_w;
            const int phase_h = phase / s.phases_w, phase_w = phase % s.phases_w;
            ASSERT_LT(place, s.patch_pixels()) << z.text();
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
          }
        }
      });
    }
  }
}

// 64 -> 32 channels, 3x3, 4x4 pixels: 4 * 4 * 32 * 64 * 9 products.
TEST(ClusterGemm, CountsItsWork) {
  const Conv2dProblem z =
      with_nhwc(Conv2dProblem::parse("n=1,c=64,h=4,w=4,k=32,r=3,s=3,pad=1,dtype=bf16"));
  int whole = 0;
  cluster_gemm::visit_plans(z, Direction::forward, {.multiprocessors = 8}, [&](const auto& plan) {
    EXPECT_GE(plan.cost.issued, 2 * 4 * 4 * 32 * 64 * 9);
    EXPECT_EQ(plan.cost.blocks, number(plan.sizes.clusters() * plan.sizes.blocks));
    // A tile of all 16 pixels and all 32 columns has no padding.
    if (plan.sizes.positions != 16 || plan.sizes.columns != 32 || plan.sizes.rows != 16) return;
    ++whole;
    EXPECT_EQ(plan.cost.issued, 2 * 4 * 4 * 32 * 64 * 9);
    EXPECT_EQ(plan.cost.blocks, plan.sizes.blocks);
    EXPECT_EQ(plan.cost.stored, 16 * 32 * plan.sizes.blocks);
    // The patch has a margin of one pixel. Blocks share the 64 channels, of 2 bytes; w is f32.
    EXPECT_EQ(plan.cost.cached, 6 * 6 * 64 * 2 + 4 * 32 * 64 * 9);
  });
  EXPECT_GT(whole, 4);
}

TEST_F(ClusterGemmOnCuda, AgreesWithTheReference) {
  std::size_t turn = 0;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Conv2dProblem& z : problems()) {
      if (!testing::takes_entry(turn++)) continue;
      // The emulation is slow: with the other tilings, it runs a third of these problems. They run
      // the same kernels in f32 and bf16 as all of them.
      if (seed > 0 && !testing::takes_entry(turn / 3 + seed + 2)) continue;
      ConvolutionCase exact(z, Tier::exact);
      ConvolutionCase bounded(z,
                              testing::kRoundedTiers[turn / 3 % std::size(testing::kRoundedTiers)]);
      for (const Direction direction : kBoth) {
        ASSERT_EQ(support_of(algorithm(), z, direction).reason, "") << z.text();
        EXPECT_EQ(exact.check(algorithm(), direction), "") << "seed " << seed;
        EXPECT_EQ(bounded.check(algorithm(), direction), "") << "seed " << seed;
      }
    }
  }
}

TEST_F(ClusterGemmOnCuda, AFusedEpilogueHasTheNumbersOfSeparateSteps) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const char* text : {"n=2,c=13,h=9,w=11,k=21,r=3,s=3,pad=1", "n=1,c=256,h=6,w=7,k=40"}) {
      const Conv2dProblem z = nhwc_problem(text, dtype);
      Operands operands = random_operands(z.operands(Direction::forward), testing::cuda());
      operands.in[0].values = stored_integers(z.x_shape(), z.dtype, 1);
      operands.in[1].values = integers(z.w_shape(), DType::f32, 2);
      const auto run = [&](const Tensor& b, const Conv2dEpilogue& epilogue) {
        operands.in[2] = b.defined() ? Operand(b) : Operand();
        operands.epilogue = epilogue;
        operands.out[0].values.fill(std::numeric_limits<float>::quiet_NaN());
        run_algorithm(algorithm(), z, Direction::forward, operands);
        return floats_of(operands.out[0].values);
      };
      const Tensor b = integers({z.k}, DType::f32, 3);
      const Tensor residual = stored_integers(z.y_shape(), z.dtype, 4);
      const std::vector<float> sums = run({}, {}), added = floats_of(residual);
      const std::vector<float> bias = floats_of(b);
      const auto lanes = stored_shape(z.y_shape(), z.layout)[4];
      for (const bool relu : {false, true}) {
        std::vector<float> expected = sums;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const auto channel = static_cast<std::int64_t>(i) % lanes;
          if (channel < z.k) expected[i] += bias[static_cast<std::size_t>(channel)];
          expected[i] += added[i];
          if (relu && expected[i] < 0) expected[i] = 0;
        }
        EXPECT_TRUE(
            run(b, {.residual = residual.raw_data(), .relu = relu, .residual_type = z.dtype}) ==
            expected)
            << z.text() << (relu ? ", relu" : "");
      }
    }
  }
}

// A NaN or an infinity in x must reach exactly the elements of y that read it, although lanes after
// the last channel are 0 and operands are rounded to tf32.
TEST_F(ClusterGemmOnCuda, SpreadsWhatIsNotFiniteWhereItIsRead) {
  const auto gpu_nan = std::bit_cast<float>(0x7fffffffu);  // the NaN of a GPU: the largest one
  for (const float value : {gpu_nan, std::numeric_limits<float>::infinity()}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Conv2dProblem z = nhwc_problem("n=2,c=20,h=9,w=12,k=24,r=3,s=3,pad=1", dtype);
      Operands operands = random_operands(z.operands(Direction::forward), testing::cuda());
      Tensor x = Tensor::full(z.x_shape(), 1.0);
      x.data<float>()[((1 * 20 + 19) * 9 + 4) * 12 + 5] = value;
      operands.in[0].values =
          stored_images(x, ActivationLayout::nhwc).to(z.dtype).to(testing::cuda());
      operands.in[1].values = Tensor::full(z.w_shape(), 0.5).to(testing::cuda());
      operands.in[2] = Operand();
      run_algorithm(algorithm(), z, Direction::forward, operands);
      const std::vector<float> y = floats_of(operands.out[0].values);  // [2,1,9,12,24]
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto at = static_cast<int>(i);
        const int q = at / 24 % 12, p = at / 24 / 12 % 9, n = at / 24 / 12 / 9;
        const bool reads = n == 1 && std::abs(p - 4) <= 1 && std::abs(q - 5) <= 1;
        ASSERT_EQ(std::isnan(y[i]), reads && std::isnan(value)) << name_of(dtype) << " at " << i;
        ASSERT_EQ(std::isinf(y[i]), reads && std::isinf(value)) << name_of(dtype) << " at " << i;
      }
    }
  }
}

// TF32 keeps 10 bits after the leading one. A remainder of three quarters of the last kept bit must
// round up.
TEST_F(ClusterGemmOnCuda, RoundsTf32ToTheNearest) {
  const float between = 1 + 0.75f * 0x1p-10f, nearest = 1 + 0x1p-10f;
  const Conv2dProblem z = nhwc_problem("n=1,c=8,h=4,w=4,k=8", DType::f32);
  for (const bool in_image : {true, false}) {
    Operands operands = random_operands(z.operands(Direction::forward), testing::cuda());
    const Tensor x = Tensor::full(z.x_shape(), in_image ? between : 1.0);
    Tensor w = Tensor::full(z.w_shape(), 0.0);
    for (int k = 0; k < 8; ++k) w.data<float>()[k * 8 + k] = in_image ? 1.0f : between;
    operands.in[0].values = stored_images(x, ActivationLayout::nhwc).to(testing::cuda());
    operands.in[1].values = w.to(testing::cuda());
    operands.in[2] = Operand();
    run_algorithm(algorithm(), z, Direction::forward, operands);
    for (const float y : floats_of(operands.out[0].values)) ASSERT_EQ(y, nearest) << in_image;
  }
}

// Moves the weights by one float, so that no vector of four weights is aligned to 16 bytes.
TEST_F(ClusterGemmOnCuda, WeightsMayBeginAnywhere) {
  for (const char* text :
       {"n=1,c=64,h=7,w=7,k=32,r=3,s=3,pad=1", "n=1,c=32,h=6,w=5,k=16,r=3,s=3,stride=2,pad=1"}) {
    const Conv2dProblem z = nhwc_problem(text, DType::bf16);
    for (const Direction direction : kBoth) {
      Operands operands = random_operands(z.operands(direction), testing::cuda());
      Tensor more = Tensor::empty({z.w_shape().numel() + 1});
      const std::vector<float> w = floats_of(operands.in[1].values);
      std::copy(w.begin(), w.end(), more.data<float>() + 1);
      more.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      run_algorithm(algorithm(), z, direction, operands);
      const std::vector<float> expected = floats_of(operands.out[0].values);
      operands.in[1].values =
          more.to(testing::cuda()).slice_rows(1, z.w_shape().numel()).reshape(z.w_shape());
      operands.out[0].values.fill(7);
      run_algorithm(algorithm(), z, direction, operands);
      EXPECT_TRUE(floats_of(operands.out[0].values) == expected)
          << z.text() << ", " << name_of(direction);
    }
  }
}

TEST_F(ClusterGemmOnCuda, CanBeRecordedAndReplayed) {
  std::size_t turn = 0;
  for (const Conv2dProblem& z : problems()) {
    if (turn++ % 5 != 0) continue;
    for (const Direction direction : kBoth) {
      testing::expect_replayed(algorithm(), z, direction);
    }
  }
}

TEST_F(ClusterGemmOnCuda, RefusesInASentence) {
  const auto reason = [](const char* text, Direction direction = Direction::forward) {
    return support_of(algorithm(), Conv2dProblem::parse(cat(text, ",layout=nhwc")), direction)
        .reason;
  };
  const std::string tf32 = ",precision=tf32";
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8"),
            "expects fp16/bf16, or f32 with precision tf32, in NHWC and f32 weights, got "
            "f32:f32:f32:f32 with layout nhwc");
  EXPECT_EQ(reason(cat("n=1,c=16,h=8,w=8,k=16,groups=2", tf32).c_str()),
            "expects one group of channels, got 2");
  EXPECT_EQ(reason(cat("n=1,c=8,h=32,w=32,k=8,r=9,s=9", tf32).c_str()),
            "expects a kernel of at most 49 taps, because each is a parameter of the launch, got "
            "9x9");
  EXPECT_EQ(reason(cat("n=1,c=8,h=32,w=32,k=8,stride=5", tf32).c_str(), Direction::backward_data),
            "expects strides of at most 4 in backward_data, one phase each, got 5x5");
  EXPECT_EQ(reason(cat("n=1,c=8192,h=8,w=8,k=8,r=7,s=7,pad=3", tf32).c_str()),
            "expects an eighth of the input channels, with all taps, that fits into shared memory "
            "next to a patch of the image, got 8192 channels and a kernel of 7x7");
  EXPECT_EQ(reason(cat("n=1,c=8,h=8,w=8,k=8", tf32).c_str(), Direction::backward_weight),
            "does not compute backward_weight");
}

}  // namespace
}  // namespace convscope

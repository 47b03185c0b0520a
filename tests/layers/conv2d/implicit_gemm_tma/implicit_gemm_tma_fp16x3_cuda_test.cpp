// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_fp16x3_cuda_test.cpp: tests f32 convolution by three fp16 products with TMA.
// Compares every kernel, and each way in which blocks share loaded pixels, with the reference in
// double. Also tests epilogues and refusals.
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/favoured_kernel.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using namespace implicit_gemm_tma;  // NOLINT(google-build-using-namespace)
using testing::ConvolutionCase;
using testing::Tier;

class ImplicitGemmTmaFp16x3OnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("implicit_gemm_tma_fp16x3");
}

constexpr Direction kGathers[] = {Direction::forward, Direction::backward_data};

// Small problems with strides, dilation, odd channel counts, and sums longer than 256 terms. On the
// eight SMs of the emulation, each kernel, and each way in which blocks share loaded pixels, is
// chosen for one of them.
const char* const kProblems[] = {
    "n=2,c=20,h=9,w=8,k=17,r=3,s=3,pad=1",
    "n=1,c=72,h=6,w=7,k=24,r=3,s=3,stride=2,pad=1",
    "n=3,c=72,h=6,w=7,k=40,r=3,s=3,stride=3x2,pad=2x0x1x3,dilation=1x2",
    "n=1,c=3,h=3,w=23,k=24,r=5,s=5,pad=2",
    "n=2,c=96,h=9,w=9,k=32,r=5,s=5,pad=2",
    "n=2,c=9,h=30,w=30,k=9,r=15,s=13,pad=7",
    "n=2,c=20,h=9,w=8,k=17,r=4,s=4,stride=4",
    "n=1,c=130,h=5,w=6,k=100,r=1,s=3,pad=0x0x1x1",
    "n=6,c=40,h=24,w=12,k=24,r=2,s=2,pad=1",
    "n=3,c=12,h=24,w=4,k=100,r=3,s=3,pad=1",
    "n=3,c=12,h=9,w=12,k=8,r=2,s=2,stride=2,pad=1",
    "n=4,c=72,h=3,w=24,k=8,r=3,s=3,stride=2,pad=1",
    "n=4,c=9,h=8,w=24,k=8,r=3,s=3,stride=2,pad=1",
    "n=4,c=72,h=12,w=4,k=130,r=3,s=3,stride=2,pad=1",
    "n=8,c=40,h=17,w=9,k=130,r=2,s=2,stride=2,pad=1",
    "n=4,c=72,h=8,w=12,k=100,r=3,s=3,stride=2,pad=1",
    "n=6,c=40,h=17,w=16,k=40,r=3,s=3,stride=2,pad=1",
    "n=6,c=40,h=17,w=25,k=40,r=1,s=2,stride=3,pad=0x0x1x1",
    "n=4,c=256,h=24,w=8,k=72,r=1,s=2",
};

// backward_weight has separate kernels, and takes 1x1.
const char* const kOtherProblems[] = {
    "n=7,c=130,h=3,w=12,k=6,r=3,s=3,pad=1", "n=1,c=130,h=20,w=30,k=200",
    "n=2,c=72,h=20,w=19,k=40,stride=2",     "n=3,c=130,h=4,w=10,k=200,r=2,s=2,pad=1",
    "n=1,c=131,h=7,w=7,k=70,r=3,s=3,pad=1", "n=5,c=3,h=7,w=5,k=130,r=5,s=5",
};

std::vector<Conv2dProblem> problems_of(Direction direction) {
  std::vector<Conv2dProblem> out;
  for (const char* text : kProblems) out.push_back(Conv2dProblem::parse(text));
  if (direction == Direction::backward_weight) {
    for (const char* text : kOtherProblems) out.push_back(Conv2dProblem::parse(text));
  }
  return out;
}

// Which schedules the tests run: the cheapest one by the estimate (0), and others that exploration
// chooses, so that other estimates cannot hide a kernel from the tests.
constexpr std::uint64_t kSeeds[] = {0, 1, 2};

constexpr Machine kEmulated{.multiprocessors = 8};
constexpr Sharing kSharings[] = {Sharing::tap, Sharing::row, Sharing::patch};

// Favours each kernel in turn and explores its schedules. Calls run(z, direction) for the first
// problem of each kernel and sharing of patches. Returns kernels and sharings without a problem.
template <class Run>
std::string cover_kernels(const Run& run) {
  std::string missing;
  for (const Direction direction : kDirections) {
    const bool weight = direction == Direction::backward_weight;
    std::set<std::tuple<std::string, int, Sharing>> met;
    std::set<std::pair<int, Sharing>> met_shapes;
    std::set<std::string> names;
    const int shapes =
        weight ? static_cast<int>(std::size(kFp16x3WeightShapes)) : kFp16x3ShapeCount;
    for (int i = 0; i < shapes; ++i) {
      for (const bool second : {false, true}) {
        GatherPlan gather;
        gather.shape = i, gather.planes = 2;
        if (!weight) names.insert(schedule_of(gather, second));
        TmaWeightTiling tiling;
        tiling.shape = i, tiling.planes = 2, tiling.direct = second;
        for (const int taps : {1, 2}) {
          if (weight) names.insert(schedule_of(tiling, taps));
        }
      }
    }
    for (const std::string& name : names) {
      const testing::FavouredKernel favoured({"conv2d", "implicit_gemm_tma_fp16x3", direction},
                                             {name});
      for (const std::uint64_t seed : kSeeds) {
        const ExploreSchedules other(seed);
        for (const Conv2dProblem& z : problems_of(direction)) {
          int shape = 0;
          Sharing sharing = Sharing::tap;
          std::string schedule;
          if (weight) {
            const TmaWeightTiling plan = plan_weight_fp16x3(as_one_line(z), kEmulated);
            shape = plan.shape, sharing = plan.sharing, schedule = plan.cost.schedule;
          } else {
            const GatherPlan plan = plan_fp16x3(z, direction, kEmulated);
            EXPECT_EQ(plan.splits, 1);
            shape = plan.shape, sharing = plan.sharing, schedule = plan.cost.schedule;
          }
          met_shapes.emplace(shape, sharing);
          if (met.emplace(schedule, shape, sharing).second) run(z, direction);
        }
      }
    }
    for (int i = 0; i < shapes; ++i) {
      for (const Sharing sharing : kSharings) {
        if (met_shapes.contains({i, sharing})) continue;
        missing += cat(name_of(direction), " ", i, " ", static_cast<int>(sharing), "; ");
      }
    }
  }
  return missing;
}

TEST(ImplicitGemmTmaFp16x3, EveryPathIsChosen) {
  constexpr int kWholeDepths = 256;  // after so many terms accumulators are added to f32 sums
  std::set<bool> stay, zeros, split, apart, pieces, long_sums;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Direction direction : kGathers) {
      for (const Conv2dProblem& z : problems_of(direction)) {
        const GatherPlan plan = plan_fp16x3(z, direction, kEmulated);
        stay.insert(plan.weights_stay);
        zeros.insert(plan.zeros_behind);
      }
    }
    for (const Conv2dProblem& problem : problems_of(Direction::backward_weight)) {
      const TmaWeightTiling plan = plan_weight_fp16x3(as_one_line(problem), kEmulated);
      EXPECT_EQ(plan.planes, 2);
      split.insert(!plan.direct);
      if (plan.direct) pieces.insert(plan.tap_count < problem.r * problem.s);
      apart.insert(plan.columns_apart);
      long_sums.insert(plan.depth * plan.tiles_w * plan.tiles_h * plan.tiles_n / plan.splits >
                       kWholeDepths);
    }
  }
  for (const auto& both : {stay, zeros, split, apart, pieces, long_sums}) {
    EXPECT_EQ(both.size(), 2u);
  }
}

TEST_F(ImplicitGemmTmaFp16x3OnCuda, AgreesWithTheReferenceInEveryKernel) {
  std::size_t turn = 0;
  const auto run = [&](const Conv2dProblem& z, Direction direction) {
    ConvolutionCase exact(z, Tier::exact);
    ConvolutionCase bounded(z, testing::kRoundedTiers[turn++ % std::size(testing::kRoundedTiers)]);
    ASSERT_EQ(support_of(algorithm(), z, direction).reason, "") << z.text();
    EXPECT_EQ(exact.check(algorithm(), direction), "");
    EXPECT_EQ(bounded.check(algorithm(), direction), "");
  };
  EXPECT_EQ(cover_kernels(run), "");
  for (const Direction direction : kDirections) {
    for (const Conv2dProblem& z : problems_of(direction)) {
      if (testing::takes_entry(turn++)) run(z, direction);
    }
  }
}

// Cases: blocks write dw directly, as whole rows or as parts of rows; or blocks write partial sums,
// which another kernel adds.
TEST_F(ImplicitGemmTmaFp16x3OnCuda, GradientsOfWeightsAreAddedToWhatWasThere) {
  for (const char* text : {"n=1,c=131,h=7,w=7,k=70,r=3,s=3,pad=1", "n=5,c=3,h=7,w=5,k=130,r=5,s=5",
                           "n=2,c=20,h=9,w=8,k=17,r=3,s=3,pad=1"}) {
    const Conv2dProblem z = Conv2dProblem::parse(text);
    Operands operands = random_operands(z.operands(Direction::backward_weight), testing::cuda());
    const auto run = [&](bool accumulate) {
      operands.accumulate = accumulate;
      run_algorithm(algorithm(), z, Direction::backward_weight, operands);
      return testing::values_of<float>(operands.out[0].values.to(Device{}));
    };
    operands.out[0].values.fill(std::numeric_limits<float>::quiet_NaN());
    std::vector<float> expected = run(false);
    for (float& value : expected) value *= 2;
    EXPECT_TRUE(run(true) == expected) << text;
  }
}

std::vector<float> floats_of(const Tensor& tensor) {
  return testing::values_of<float>(tensor.to(Device{}));
}

TEST_F(ImplicitGemmTmaFp16x3OnCuda, AFusedEpilogueHasTheNumbersOfSeparateSteps) {
  for (const char* text :
       {"n=2,c=5,h=9,w=11,k=21,r=3,s=3,pad=1", "n=1,c=40,h=6,w=7,k=72,r=3,s=3,stride=2,pad=1"}) {
    const Conv2dProblem z = Conv2dProblem::parse(text);
    Operands operands = random_operands(z.operands(Direction::forward), testing::cuda());
    const auto run = [&](const Tensor& b, const Conv2dEpilogue& epilogue) {
      operands.in[2] = b.defined() ? Operand(b) : Operand();
      operands.epilogue = epilogue;
      operands.out[0].values.fill(std::numeric_limits<float>::quiet_NaN());
      run_algorithm(algorithm(), z, Direction::forward, operands);
      return floats_of(operands.out[0].values);
    };
    const Tensor b = testing::normal({z.k}, DType::f32, 3).to(testing::cuda());
    const Tensor residual = testing::normal(z.y_shape(), DType::f32, 4).to(testing::cuda());
    const std::vector<float> sums = run({}, {}), added = floats_of(residual), bias = floats_of(b);
    const auto area = static_cast<std::size_t>(z.p() * z.q());
    for (int parts = 0; parts < 8; ++parts) {
      const bool with_b = (parts & 1) != 0, add = (parts & 2) != 0, relu = (parts & 4) != 0;
      std::vector<float> expected = sums;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (with_b) expected[i] += bias[i / area % bias.size()];
        if (add) expected[i] += added[i];
        if (relu && expected[i] < 0) expected[i] = 0;
      }
      EXPECT_TRUE(run(with_b ? b : Tensor(),
                      {.residual = add ? residual.raw_data() : nullptr, .relu = relu}) == expected)
          << text << (with_b ? ", bias" : "") << (add ? ", residual" : "")
          << (relu ? ", relu" : "");
    }
  }
}

TEST_F(ImplicitGemmTmaFp16x3OnCuda, RefusesInASentence) {
  const auto reason = [](const char* text, Direction direction = Direction::forward) {
    return support_of(algorithm(), Conv2dProblem::parse(text), direction).reason;
  };
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8,r=3,s=3,dtype=bf16"),
            "expects f32 in full precision, because it splits each number into two fp16 numbers, "
            "got bf16");
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8"),
            "expects a kernel of at least 2 taps, which share a patch, and at most 15x15, got 1x1");
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8,r=3,s=3,groups=2"), "expects groups 1, got groups 2");
  EXPECT_EQ(reason("n=1,c=8,h=32,w=32,k=8,r=3,s=3,stride=5", Direction::backward_data),
            "expects strides of at most 4 in backward_data, got 5x5");
  EXPECT_EQ(reason("n=1,c=8,h=20,w=20,k=8,r=16,s=1,pad=8x8x0x0", Direction::backward_weight),
            "expects a kernel of at most 15x15, got 16x1");
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8", Direction::backward_weight), "");
}

}  // namespace
}  // namespace convscope

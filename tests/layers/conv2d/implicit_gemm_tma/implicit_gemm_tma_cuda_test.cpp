// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_cuda_test.cpp: compares every kernel of implicit_gemm_tma with the reference in
// double. Types: fp16 and bf16, with weights of the same type or of f32, and tf32. Also tests each
// way in which blocks share loaded pixels, epilogues, recorded calls and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <vector>

#include "framework/check.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"
#include "layers/dispatch/layout/half_operands.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/favoured_kernel.h"
#include "tests/support/numerics.h"
#include "tests/support/recorded_algorithm.h"

namespace convscope {
namespace {

using namespace implicit_gemm_tma;  // NOLINT(google-build-using-namespace)
using testing::ConvolutionCase;
using testing::Tier;

class ImplicitGemmTmaOnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("implicit_gemm_tma");
}

// Small problems for the eight SMs of the emulation. The test EveryKernelIsChosen checks that they
// use each kernel, and each way in which blocks share loaded pixels.
const char* const kProblems[] = {
    "n=1,c=3,h=3,w=23,k=24,r=5,s=5,pad=2",
    "n=3,c=40,h=15,w=22,k=24,r=1,s=1",
    "n=1,c=24,h=5,w=2,k=16,r=2,s=2,pad=1",
    "n=6,c=3,h=9,w=23,k=72,r=1,s=1",
    "n=1,c=40,h=17,w=8,k=130,r=2,s=2,pad=1",
    "n=6,c=3,h=8,w=16,k=130,r=1,s=1",
    "n=6,c=130,h=19,w=5,k=8,r=1,s=1",
    "n=6,c=130,h=1,w=8,k=24,r=2,s=2,pad=1",
    "n=2,c=3,h=1,w=4,k=40,r=2,s=2,pad=1",
    "n=1,c=3,h=3,w=3,k=300,r=2,s=2,pad=1",
    "n=5,c=40,h=17,w=4,k=6,r=2,s=2,pad=1",
    "n=2,c=24,h=6,w=1,k=130,r=2,s=2,pad=1",
    "n=6,c=8,h=1,w=21,k=300,r=2,s=2,pad=1",
    "n=6,c=40,h=15,w=12,k=72,r=1,s=1",
    "n=3,c=3,h=14,w=16,k=200,r=2,s=2,pad=1",
    "n=6,c=72,h=18,w=13,k=6,r=2,s=2,pad=1",
    "n=5,c=130,h=7,w=24,k=6,r=2,s=2,pad=1",
    "n=4,c=130,h=23,w=6,k=6,r=2,s=2,pad=1",
    "n=4,c=130,h=13,w=15,k=6,r=3,s=3,stride=2,pad=1",
    "n=6,c=3,h=22,w=10,k=72,r=3,s=3,pad=1",
    "n=5,c=40,h=12,w=17,k=72,r=2,s=2,pad=1",
    "n=5,c=72,h=15,w=14,k=40,r=2,s=2,pad=1",
    "n=6,c=40,h=20,w=12,k=72,r=2,s=2,pad=1",
    "n=3,c=72,h=6,w=7,k=40,r=3,s=3,stride=3x2,pad=2x0x1x3,dilation=1x2",
    "n=2,c=20,h=9,w=8,k=17,r=4,s=4,stride=4",
    "n=2,c=9,h=30,w=30,k=9,r=15,s=13,pad=7",
    "n=1,c=24,h=1,w=6,k=8,r=3,s=3,pad=1",
    "n=1,c=3,h=3,w=14,k=24,r=3,s=3,stride=2,pad=1",
    "n=1,c=72,h=1,w=1,k=72,r=5,s=5,stride=2,pad=2",
    "n=1,c=72,h=2,w=1,k=8,r=2,s=2,pad=1",
    "n=2,c=3,h=1,w=8,k=24,r=2,s=2,stride=2,pad=1",
    "n=5,c=3,h=10,w=4,k=130,r=2,s=2,pad=1",
    "n=6,c=3,h=2,w=22,k=130,r=1,s=1",
    "n=4,c=72,h=27,w=26,k=72,r=1,s=1,stride=2",
    "n=4,c=72,h=5,w=10,k=130,r=5,s=5",
    "n=2,c=3,h=5,w=4,k=6,r=5,s=5,stride=2,pad=2",
    "n=3,c=131,h=4,w=17,k=6,r=2,s=2,stride=2",
    "n=5,c=3,h=10,w=13,k=130,r=2,s=2",
    "n=1,c=3,h=5,w=4,k=200,r=5,s=5,stride=2,pad=1",
    "n=4,c=72,h=13,w=26,k=6,r=1,s=1,stride=2",
    "n=5,c=3,h=13,w=26,k=72,r=2,s=2",
    "n=1,c=24,h=1,w=2,k=130,r=3,s=3,pad=1",
    "n=3,c=3,h=5,w=14,k=24,r=5,s=5,stride=2",
    "n=3,c=72,h=7,w=7,k=72,r=3,s=3,pad=1",
    "n=2,c=131,h=3,w=3,k=130,r=3,s=3,pad=1",
    "n=1,c=520,h=2,w=3,k=300,r=1,s=1",
    // For kernels of f32 images.
    "n=6,c=9,h=24,w=16,k=40,r=5,s=5,stride=2,pad=2",
    "n=8,c=12,h=12,w=9,k=40,r=1,s=1",
    "n=3,c=24,h=24,w=12,k=8,r=1,s=1",
    "n=3,c=9,h=24,w=12,k=40,r=5,s=5,pad=2",
    "n=8,c=24,h=17,w=9,k=72,r=2,s=2,pad=1",
    "n=6,c=40,h=17,w=16,k=72,r=3,s=3,stride=2,pad=1",
    // These problems have many weights with many taps, a partial last block of channels, and an odd
    // number of channel blocks.
    "n=1,c=37,h=2,w=3,k=136,r=5,s=5,pad=2",
    "n=1,c=150,h=2,w=1,k=24,r=7,s=6,pad=3",
};

std::vector<Conv2dProblem> problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text : kProblems) {
    Conv2dProblem z = Conv2dProblem::parse(text);
    z.layout = ActivationLayout::nhwc;
    const std::size_t turn = out.size();
    z.dtype = turn % 2 == 0 ? DType::bf16 : DType::f16;
    if (turn / 2 % 2 == 0) {
      z.types =
          OperandTypes{.x = z.dtype, .w = DType::f32, .accumulator = DType::f32, .y = z.dtype};
    }
    out.push_back(z);
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
std::string cover_kernels(const std::vector<Conv2dProblem>& all, const Run& run) {
  std::string missing;
  for (const Direction direction : kDirections) {
    const bool weight = direction == Direction::backward_weight;
    std::set<std::tuple<std::string, int, Sharing>> met;
    std::set<std::pair<int, Sharing>> met_shapes;
    std::set<std::string> names;
    const int shapes = weight ? static_cast<int>(std::size(kWeightShapes)) : kGatherShapeCount;
    for (int i = 0; i < shapes; ++i) {
      GatherPlan gather;
      gather.shape = i;
      if (!weight) names.insert(schedule_of(gather, false));
      for (const bool direct : {true, false}) {
        TmaWeightTiling tiling;
        tiling.shape = i, tiling.direct = direct;
        for (const int taps : {1, 2}) {
          if (weight) names.insert(schedule_of(tiling, taps));
        }
      }
    }
    for (const std::string& name : names) {
      const testing::FavouredKernel favoured({"conv2d", "implicit_gemm_tma", direction}, {name});
      for (const std::uint64_t seed : kSeeds) {
        const ExploreSchedules other(seed);
        for (const Conv2dProblem& problem : all) {
          const Conv2dProblem z = as_one_line(problem);
          int shape = 0;
          Sharing sharing = Sharing::tap;
          std::string schedule;
          if (weight) {
            const TmaWeightTiling plan = plan_weight(z, kEmulated);
            shape = plan.shape, sharing = plan.sharing, schedule = plan.cost.schedule;
          } else {
            const GatherPlan plan = plan_gather(z, direction, kEmulated);
            shape = plan.shape, sharing = plan.sharing, schedule = plan.cost.schedule;
          }
          met_shapes.emplace(shape, sharing);
          if (met.emplace(schedule, shape, sharing).second) run(problem, direction);
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

// Does the same for kernels that read f32 images, which serve both directions. Their schedules are
// groups of kernels, so each term of the cost in turn decides which kernel is the cheapest.
template <class Run>
std::string cover_f32_kernels(const std::vector<Conv2dProblem>& all, const Run& run) {
  std::set<std::pair<int, Sharing>> met;
  for (const Direction direction : {Direction::forward, Direction::backward_data}) {
    for (const char* name : {"f32 wide", "f32 64 columns", "f32 16 columns"}) {
      for (int term = 0; term < 11; ++term) {  // waits and work of the blocks
        const testing::FavouredKernel favoured({"conv2d", "implicit_gemm_tma", direction}, {name},
                                               term);
        for (const std::uint64_t seed : kSeeds) {
          const ExploreSchedules other(seed);
          for (const Conv2dProblem& problem : all) {
            if (met.size() == std::size(kSharings) * kGatherShapeCount) return "";
            const GatherPlan plan = plan_gather(as_one_line(problem), direction, kEmulated, true);
            if (met.emplace(plan.shape, plan.sharing).second) run(problem, direction);
          }
        }
      }
    }
  }
  std::string missing;
  for (int i = 0; i < kGatherShapeCount; ++i) {
    for (const Sharing sharing : kSharings) {
      if (!met.contains({i, sharing})) missing += cat(i, " ", static_cast<int>(sharing), "; ");
    }
  }
  return missing;
}

std::vector<Conv2dProblem> tf32_problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text : kProblems) {
    out.push_back(Conv2dProblem::parse(text));
    out.back().layout = ActivationLayout::nhwc;
    out.back().math = MathMode::tf32;
  }
  return out;
}

TEST(ImplicitGemmTma, EveryKernelIsChosen) {
  std::set<bool> stay, split, apart, zeros, direct, pieces, few, many_taps;
  for (const std::uint64_t seed : kSeeds) {
    const ExploreSchedules other(seed);
    for (const Conv2dProblem& problem : problems()) {
      const Conv2dProblem z = as_one_line(problem);
      for (const Direction direction : {Direction::forward, Direction::backward_data}) {
        const GatherPlan plan = plan_gather(z, direction, kEmulated);
        stay.insert(plan.weights_stay);
        split.insert(plan.splits > 1);
        zeros.insert(plan.zeros_behind);
      }
      const TmaWeightTiling plan = plan_weight(z, kEmulated);
      apart.insert(plan.columns_apart);
      direct.insert(plan.direct);
      if (plan.direct) pieces.insert(plan.tap_count < z.r * z.s);
      few.insert(z.k * z.r * z.s * ((z.c + 7) / 8 * 8) < 1 << 17);  // kFewWeights
      if (z.k * z.r * z.s * ((z.c + 7) / 8 * 8) >= 1 << 17) {
        many_taps.insert(z.r * z.s >= 10);  // kManyTaps
      }
    }
  }
  EXPECT_EQ(stay.size(), 2u);
  EXPECT_EQ(split.size(), 2u);
  EXPECT_EQ(apart.size(), 2u);
  EXPECT_EQ(zeros.size(), 2u);
  EXPECT_EQ(direct.size(), 2u);
  EXPECT_EQ(pieces.size(), 2u);
  EXPECT_EQ(few.size(), 2u);
  EXPECT_EQ(many_taps.size(), 2u);
}

void expect_reference(const Conv2dProblem& z, Direction direction, std::size_t turn) {
  ASSERT_EQ(support_of(algorithm(), z, direction).reason, "") << z.text();
  ConvolutionCase exact(z, Tier::exact);
  ConvolutionCase bounded(z, testing::kRoundedTiers[turn / 3 % std::size(testing::kRoundedTiers)]);
  EXPECT_EQ(exact.check(algorithm(), direction), "");
  EXPECT_EQ(bounded.check(algorithm(), direction), "");
}

TEST_F(ImplicitGemmTmaOnCuda, AgreesWithTheReference) {
  std::size_t turn = 0;
  for (const auto& all : {problems(), tf32_problems()}) {
    for (const Conv2dProblem& z : all) {
      if (!testing::takes_entry(turn++)) continue;
      for (const Direction direction : kDirections) expect_reference(z, direction, turn);
    }
  }
}

TEST_F(ImplicitGemmTmaOnCuda, AgreesWithTheReferenceInEveryKernel) {
  std::size_t turn = 0;
  const auto run = [&](const Conv2dProblem& z, Direction direction) {
    expect_reference(z, direction, turn++);
  };
  EXPECT_EQ(cover_kernels(problems(), run), "");
  EXPECT_EQ(cover_f32_kernels(tf32_problems(), run), "");
}

// Returns integers so small that fp16 and bf16 represent every sum. So it does not matter whether a
// result is rounded once or twice.
Tensor integers(const Shape& shape, DType dtype, int seed) {
  Tensor out = Tensor::empty(shape);
  auto* const to = out.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    to[i] = static_cast<float>((i * 7 + i / 5 * 3 + seed) % 3 - 1);
  }
  return out.to(dtype).to(testing::cuda());
}

Tensor stored_integers(const Shape& images, DType dtype, int seed) {
  const Tensor plain = integers(images, DType::f32, seed).to(Device{});
  return stored_images(plain, ActivationLayout::nhwc).to(dtype).to(testing::cuda());
}

std::vector<float> floats_of(const Tensor& tensor) {
  return testing::values_of<float>(tensor.to(Device{}).to(DType::f32));
}

// A compiled step passes f32 images with given fp16 operands. The results must have the same bits
// as a call that reads f32. All numbers are small integers, which fp16 and tf32 represent exactly.
TEST_F(ImplicitGemmTmaOnCuda, GivenOperandsHaveTheBitsOfF32Images) {
  for (const char* text : kProblems) {
    Conv2dProblem z = Conv2dProblem::parse(text);
    z.layout = ActivationLayout::nhwc;
    z.math = MathMode::tf32;
    for (const Direction direction : {Direction::forward, Direction::backward_data}) {
      Operands operands = random_operands(z.operands(direction), testing::cuda());
      const Shape shape = direction == Direction::forward ? z.x_shape() : z.y_shape();
      operands.in[0].values = stored_integers(shape, DType::f32, 1);
      operands.in[1].values = integers(z.w_shape(), DType::f32, 2);
      run_algorithm(algorithm(), z, direction, operands);
      const std::vector<float> from_f32 = floats_of(operands.out[0].values);
      const Tensor image = operands.in[0].values;
      const auto bytes = static_cast<std::int64_t>(half_operands_bytes(image.numel()));
      const Tensor block = Tensor::full({bytes}, 0xab, DType::u8, testing::cuda());
      pack_half_operands_kernel.get(testing::cuda())(image, block.raw_data());
      operands.fp16[0] = half_operands_in(block.raw_data());
      operands.in[0].values = {};  // not read
      operands.out[0].values.fill(std::numeric_limits<float>::quiet_NaN());
      run_algorithm(algorithm(), z, direction, operands);
      EXPECT_TRUE(floats_of(operands.out[0].values) == from_f32)
          << text << ", " << name_of(direction);
    }
  }
}

TEST_F(ImplicitGemmTmaOnCuda, AFusedEpilogueHasTheNumbersOfSeparateSteps) {
  std::size_t turn = 0;
  for (const char* text : {"n=2,c=5,h=9,w=11,k=21,r=3,s=3,pad=1", "n=2,c=20,h=10,w=9,k=19",
                           "n=1,c=72,h=6,w=7,k=24,r=3,s=3,stride=2,pad=1"}) {
    Conv2dProblem z = Conv2dProblem::parse(text);
    z.layout = ActivationLayout::nhwc;
    z.dtype = turn++ % 2 == 0 ? DType::f16 : DType::bf16;
    z.types = OperandTypes{.x = z.dtype, .w = DType::f32, .accumulator = DType::f32, .y = z.dtype};
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
          << text << (with_b ? ", bias" : "") << (add ? ", residual" : "")
          << (relu ? ", relu" : "");
    }
  }
}

// If one block computes the whole sum of an element, it stores dw itself: as whole rows, unaligned
// rows, or parts of rows. In the last problem several blocks share each sum.
TEST_F(ImplicitGemmTmaOnCuda, GradientsOfWeightsAreAddedToWhatWasThere) {
  std::size_t turn = 0;
  for (const char* text :
       {"n=1,c=40,h=5,w=5,k=72,r=3,s=3,pad=1", "n=1,c=9,h=5,w=5,k=13,r=3,s=3,pad=1",
        "n=1,c=520,h=2,w=3,k=300", "n=2,c=24,h=20,w=20,k=24,r=3,s=3,pad=1"}) {
    for (const DType w : {DType::f32, DType::bf16}) {
      Conv2dProblem z = Conv2dProblem::parse(text);
      z.layout = ActivationLayout::nhwc;
      z.dtype = w != DType::f32 || turn++ % 2 == 0 ? DType::bf16 : DType::f16;
      z.types = OperandTypes{.x = z.dtype, .w = w, .accumulator = DType::f32, .y = z.dtype};
      Operands operands = random_operands(z.operands(Direction::backward_weight), testing::cuda());
      for (Operand& in : operands.in) {
        if (!in.values.defined()) continue;
        // Only every seventh element is 1, so that fp16 and bf16 represent every sum exactly.
        Tensor few = Tensor::zeros(in.values.shape());
        auto* const to = few.data<float>();
        for (std::int64_t i = 0; i < few.numel(); ++i) to[i] = i % 7 == 0 ? 1.0f : 0.0f;
        in.values = few.to(z.dtype).to(testing::cuda());
      }
      const auto run = [&](bool accumulate) {
        operands.accumulate = accumulate;
        run_algorithm(algorithm(), z, Direction::backward_weight, operands);
        return floats_of(operands.out[0].values);
      };
      operands.out[0].values.fill(std::numeric_limits<float>::quiet_NaN());
      const std::vector<float> once = run(false);
      std::vector<float> expected = once;
      for (float& value : expected) value *= 2;
      EXPECT_TRUE(run(true) == expected) << text << ", w of " << name_of(w);
      const std::vector<float> again = run(false);
      for (std::size_t i = 0; i < once.size(); ++i) {
        ASSERT_EQ(again[i], once[i]) << "element " << i << ", " << text << ", w of " << name_of(w);
      }
    }
  }
}

TEST_F(ImplicitGemmTmaOnCuda, CanBeRecordedAndReplayed) {
  std::size_t turn = 0;
  for (const Conv2dProblem& z : problems()) {
    if (turn++ % 5 != 0) continue;
    for (const Direction direction : kDirections) {
      testing::expect_replayed(algorithm(), z, direction);
    }
  }
}

TEST_F(ImplicitGemmTmaOnCuda, RefusesInASentence) {
  const auto reason = [](const char* text, Direction direction = Direction::forward) {
    return support_of(algorithm(), Conv2dProblem::parse(text), direction).reason;
  };
  const std::string last = ",layout=nhwc";
  EXPECT_EQ(reason("n=1,c=8,h=8,w=8,k=8,dtype=bf16"),
            "expects images in NHWC, because TMA copies whole rows of channels, got layout nchw");
  EXPECT_EQ(
      reason(cat("n=1,c=8,h=8,w=8,k=8", last).c_str()),
      "expects images of f16 or bf16, or of f32 with precision tf32, because the tensor cores "
      "multiply fp16/bf16, got f32");
  EXPECT_EQ(reason(cat("n=1,c=8,h=8,w=8,k=8,groups=2,dtype=f16", last).c_str()),
            "expects groups 1, got groups 2");
  EXPECT_EQ(reason(cat("n=1,c=8,h=32,w=32,k=8,r=16,s=16,dtype=f16", last).c_str()),
            "expects a kernel of at most 15x15, because all taps are parameters of one launch, got "
            "16x16");
  EXPECT_EQ(reason(cat("n=1,c=8,h=32,w=32,k=8,stride=5,dtype=f16", last).c_str(),
                   Direction::backward_data),
            "expects strides of at most 4 in backward_data, got 5x5");
}

}  // namespace
}  // namespace convscope

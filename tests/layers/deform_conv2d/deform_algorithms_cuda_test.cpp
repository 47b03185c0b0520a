// SPDX-License-Identifier: Apache-2.0
// deform_algorithms_cuda_test.cpp: compares every algorithm of deformable convolution on CUDA with
// the reference. Covers all directions and types, sampling positions outside the image, NaN,
// recorded calls, gradients that are not needed, and equal bits in two runs.
#include <set>

#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/execute.h"
#include "layers/dispatch/select.h"
#include "tests/layers/deform_conv2d/deform_case.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using matrix::Tier;
using Problem = DeformConv2dProblem;

const Registry<DeformConv2dAlgorithm>& algorithms() {
  return deform_conv2d_algorithms(DeviceType::cuda);
}

struct OperandKind {
  DType dtype;
  MathMode math;
};
constexpr OperandKind kOperandKinds[] = {{DType::f32, MathMode::f32},
                                         {DType::f32, MathMode::tf32},
                                         {DType::f16, MathMode::f32},
                                         {DType::bf16, MathMode::f32}};

Problem with(const Problem& problem, OperandKind operand_kind) {
  Problem out = problem;
  out.dtype = operand_kind.dtype;
  out.math = operand_kind.math;
  return out;
}

// On the emulation, a lesson algorithm takes a second for about ten million samples.
bool is_too_large(const Problem& z) {
  return is_emulated() && z.nominal_flops() > (is_sanitized() ? 1e5 : 1.2e7);
}

// On a GPU threads run in any order.
void expect_same_bits_twice(const DeformConv2dAlgorithm& algorithm, const Problem& z,
                            Direction direction, const DeformConv2dTensors& tensors) {
  Operands runs[2];
  for (Operands& run : runs) {
    run = deform_operands(z, direction, tensors);
    run_guarded(algorithm, z, direction, run);
  }
  for (std::size_t i = 0; i < z.operands(direction).outputs.size(); ++i) {
    EXPECT_TRUE(same_bits(runs[0].out[i].values, runs[1].out[i].values)) << "output " << i;
  }
}

class DeformOnCuda : public CudaTest, public ::testing::WithParamInterface<const char*> {};

// On a GPU, tests all kinds of numbers in all types. On the emulation, f32 runs with every third
// kind of numbers, and every other type runs with one kind. The kinds change from case to case.
TEST_P(DeformOnCuda, EachAlgorithmAgreesWithTheReference) {
  const Problem problem = Problem::parse(GetParam());
  if (is_too_large(problem)) GTEST_SKIP() << "too large for the emulation";
  int turn = 0, checks = 0;
  for (const Direction direction : kDirections) {
    for (const OperandKind& operand_kind : kOperandKinds) {
      const Problem z = with(problem, operand_kind);
      ++turn;
      for (int kind = 0; kind < static_cast<int>(matrix::kRoundedTierCount); ++kind) {
        const bool is_first = &operand_kind == &kOperandKinds[0];
        const bool in_turn = is_first ? kind % 3 == turn % 3 : kind == turn % 6;
        if (is_emulated() && !in_turn) continue;
        const Tier tier = matrix::kRoundedTiers[kind];
        DeformExpected expected(z, direction, deform_tensors(z, tier));
        expected.rounds_one_way = matrix::rounds_one_way(tier);
        // Each turn explores another choice of tiles and of parts of a reduction.
        const ExploreSchedules explore(static_cast<std::uint64_t>(turn * 8 + kind));
        for (const auto& [name, algorithm] : algorithms().entries()) {
          if (!support_of(algorithm, z, direction).yes) continue;
          SCOPED_TRACE(cat(name, " ", name_of(direction), " ", z.text(), ", ", name_of(tier)));
          expect_as_reference(algorithm, z, direction, expected, turn % 2);
          if (algorithm.deterministic && tier == Tier::bounded && !is_emulated()) {
            expect_same_bits_twice(algorithm, z, direction, expected.tensors);
          }
          ++checks;
        }
      }
    }
  }
  EXPECT_GT(checks, 0);
}

TEST_P(DeformOnCuda, GradientsOfWAreAddedUp) {
  const Problem problem = Problem::parse(GetParam());
  if (is_too_large(problem)) GTEST_SKIP() << "too large for the emulation";
  for (const OperandKind& operand_kind : kOperandKinds) {
    if (is_emulated() && operand_kind.math == MathMode::tf32) continue;
    const Problem z = with(problem, operand_kind);
    const DeformExpected expected(z, Direction::backward_weight, deform_tensors(z, Tier::bounded),
                                  /*accumulate=*/true);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      SCOPED_TRACE(cat(name, " ", z.text()));
      expect_as_reference(algorithm, z, Direction::backward_weight, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Deform, DeformOnCuda, ::testing::ValuesIn(kDeformProblems),
                         [](const auto& name) { return "problem" + std::to_string(name.index); });

// ---- small problems ----------------------------------------------------------------------------

const char* const kSmall[] = {"n=2,c=3,h=7,w=5,k=4,r=3,s=3,pad=1",
                              "n=1,c=32,h=9,w=11,k=32,r=3,s=3,pad=1,offset_groups=2",
                              "n=2,c=8,h=6,w=8,k=8,r=3,s=3,pad=1,groups=8,offset_groups=8"};
class SmallDeformOnCuda : public DeformOnCuda {};

// Every fifth sampling position is far outside the image, infinite or NaN. The same outputs as in
// the reference must be affected.
TEST_P(SmallDeformOnCuda, PlacesOutsideAndNaNAreThoseOfTheReference) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float far[] = {1e30f, -1e30f, 3e9f, -3e9f, kInfinity, -kInfinity, 1e19f, 60000.0f};
  for (const OperandKind& operand_kind : kOperandKinds) {
    for (const bool with_nan : {false, true}) {
      const Problem z = with(Problem::parse(GetParam()), operand_kind);
      DeformConv2dTensors t = as_type(deform_tensors(z, Tier::bounded), DType::f32);
      float* const offset = t.offset.data<float>();
      for (std::int64_t i = 0; i < t.offset.numel(); i += 5) offset[i] = far[i / 5 % 8];
      if (with_nan) {  // only a few: one NaN among the terms of a dx makes this dx NaN
        const std::int64_t pixels = z.p() * z.q();
        const float nan = std::numeric_limits<float>::quiet_NaN();
        offset[pixels / 2 + 1] = nan;  // v of the first tap of the first image
        offset[pixels + pixels / 2 + 1] = 0.25f;
        offset[t.offset.numel() - 3] = nan;  // u of the last tap of the last image
        offset[t.offset.numel() - 3 - pixels] = 0.25f;
      }
      t = as_type(t, z.dtype);
      for (const Direction direction : kDirections) {
        const DeformExpected expected(z, direction, t);
        for (const auto& [name, algorithm] : algorithms().entries()) {
          SCOPED_TRACE(cat(name, " ", name_of(direction), " ", z.text()));
          expect_as_reference(algorithm, z, direction, expected);
        }
      }
    }
  }
}

TEST_P(SmallDeformOnCuda, MasksOfNoNumberTouchWhatTheReferenceSays) {
  for (const auto& [name, algorithm] : algorithms().entries()) {
    expect_masks_of_no_number(algorithm, Problem::parse(GetParam()));
  }
}

TEST_P(SmallDeformOnCuda, OutsideOfTheImageIsTheBiasAlone) {
  const Problem z = Problem::parse(GetParam());
  for (const double offset : {1e30, -1e30, 3e9, std::numeric_limits<double>::infinity()}) {
    DeformConv2dTensors t = deform_tensors(z, Tier::bounded);
    t.offset = Tensor::full(z.offset_shape(), offset);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      for (const Direction direction : kDirections) {
        const Operands at = deform_operands(z, direction, t);
        run_guarded(algorithm, z, direction, at);
        for (std::size_t o = 0; o < z.operands(direction).outputs.size(); ++o) {
          const Tensor& out = at.out[o].values;
          for (std::int64_t i = 0; i < out.numel(); ++i) {
            const bool is_y = direction == Direction::forward;
            ASSERT_EQ(out.at(i), is_y ? t.b.at(i / (z.p() * z.q()) % z.k) : 0.0)
                << name << " " << name_of(direction) << ", output " << o << ", offset " << offset;
          }
        }
      }
    }
  }
}

TEST_P(SmallDeformOnCuda, GradientsThatNobodyAsksForChangeNoOther) {
  constexpr Direction kData = Direction::backward_data;
  for (const OperandKind& operand_kind : {kOperandKinds[0], kOperandKinds[2]}) {
    const Problem z = with(Problem::parse(GetParam()), operand_kind);
    const DeformConv2dTensors t = deform_tensors(z, Tier::bounded);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      if (!support_of(algorithm, z, kData).yes) continue;
      const Operands all = deform_operands(z, kData, t);
      run_guarded(algorithm, z, kData, all);
      for (int asked = 1; asked < 8; ++asked) {
        Operands some = deform_operands(z, kData, t);
        for (std::size_t i = 0; i < 3; ++i) {
          if ((asked >> i & 1) == 0) some.out[i] = {};
        }
        run_guarded(algorithm, z, kData, some);
        for (std::size_t i = 0; i < 3; ++i) {
          if ((asked >> i & 1) == 0) continue;
          const bool equal =
              algorithm.deterministic
                  ? same_bits(some.out[i].values, all.out[i].values)
                  : static_cast<bool>(near(some.out[i].values, all.out[i].values, 1e-5, 1e-3));
          EXPECT_TRUE(equal) << name << ", output " << i << " of " << asked;
        }
      }
    }
  }
}

// Each replay of a recorded CUDA graph must have the same bits as a direct call.
TEST_P(SmallDeformOnCuda, EachAlgorithmCanBeRecordedAndReplayed) {
  for (const OperandKind& operand_kind : kOperandKinds) {
    const Problem z = with(Problem::parse(GetParam()), operand_kind);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      for (const Direction direction : kDirections) {
        if (!support_of(algorithm, z, direction).yes) continue;
        Operands at = deform_operands(z, direction, deform_tensors(z, Tier::bounded));
        for (Operand& one : at.in) one = one.to(cuda());
        for (Operand& one : at.out) one = one.to(cuda());
        const Scratch<Problem> scratch(algorithm, z, direction, cuda());
        run_algorithm(algorithm, z, direction, at, scratch);  // also makes data that is made once
        std::vector<Tensor> first;
        for (const Operand& one : at.out) {
          first.push_back(one.defined() ? one.values.to(Device{}).clone() : Tensor());
        }
        const DeviceBackend& backend = backend_of(cuda());
        backend.begin_recording(0);
        run_algorithm(algorithm, z, direction, at, scratch);
        void* const recording = backend.end_recording(0);
        for (int replay = 0; replay < 2; ++replay) {
          for (const Operand& one : at.out) {
            if (one.defined()) one.values.zero();
          }
          backend.replay(0, recording);
          backend.synchronize(0);
          for (std::size_t i = 0; i < first.size(); ++i) {
            if (!first[i].defined()) continue;
            const Tensor now = at.out[i].values.to(Device{});
            EXPECT_TRUE(algorithm.deterministic
                            ? same_bits(now, first[i])
                            : static_cast<bool>(near(now, first[i], 1e-5, 1e-3)))
                << name << " " << name_of(direction) << ", output " << i << " of " << z.text();
          }
        }
        backend.free_recording(0, recording);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Deform, SmallDeformOnCuda, ::testing::ValuesIn(kSmall),
                         [](const auto& name) { return "problem" + std::to_string(name.index); });

// The partial sums of dw for all images exceed the workspace, because there are so many weights. So
// the algorithms process the images in chunks.
TEST_F(DeformOnCuda, SumsOfManyImagesAndWeightsAreAddedUp) {
  if (is_emulated() && is_sanitized()) GTEST_SKIP() << "too large for the sanitizers";
  const Problem z = Problem::parse("n=17,c=2048,h=1,w=1,k=2048");
  const DeformExpected expected(z, Direction::backward_weight, deform_tensors(z, Tier::bounded));
  for (const auto& [name, algorithm] : algorithms().entries()) {
    if (is_emulated() && name.ends_with("_lesson")) continue;  // a block for each weight
    SCOPED_TRACE(name);
    expect_as_reference(algorithm, z, Direction::backward_weight, expected);
  }
}

// ---- what layers/dispatch gives ----------------------------------------------------------------

TEST_F(DeformOnCuda, ABatchOfNoImagesReachesNoAlgorithm) {
  const Problem z = Problem::parse("n=0,c=2,h=4,w=5,k=3,r=3,s=3,pad=1");
  for (const auto& [name, algorithm] : algorithms().entries()) {
    for (const Direction direction : kDirections) {
      Operands at = deform_operands(z, direction, deform_tensors(z, Tier::bounded));
      for (Operand& one : at.in) one = one.to(cuda());
      for (Operand& one : at.out) one = one.to(cuda());
      run_algorithm(algorithm, z, direction, at);
      if (direction != Direction::backward_weight) continue;
      EXPECT_TRUE(near(at.out[0].values.to(Device{}), Tensor::zeros(z.w_shape()), 0, 0)) << name;
    }
  }
}

TEST_F(DeformOnCuda, HasTheAlgorithmsOfItsFiles) {
  std::set<std::string> names;
  for (const auto& [name, algorithm] : algorithms().entries()) names.insert(name);
  EXPECT_TRUE(names.contains("im2col_gemm"));
  EXPECT_TRUE(names.contains("fused_lesson"));
  // An algorithm whose bits differ between runs serves only for study: `auto` never chooses it.
  for (const auto& [name, algorithm] : algorithms().entries()) {
    EXPECT_TRUE(algorithm.deterministic || !algorithm.auto_ok) << name;
  }
  const Problem z = Problem::parse("n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1");
  for (const Direction direction : kDirections) {
    EXPECT_TRUE(select_algorithm("auto", z, direction, cuda()).algorithm->deterministic);
  }
}

TEST_F(DeformOnCuda, ACheckComparesTwoAlgorithms) {
  const Problem z = Problem::parse("n=2,c=16,h=9,w=11,k=16,r=3,s=3,pad=1");
  for (const Direction direction : kDirections) {
    Operands at = deform_operands(z, direction, deform_tensors(z, Tier::offset));
    for (Operand& one : at.in) one = one.to(cuda());
    for (Operand& one : at.out) one = one.to(cuda());
    forget_check_results();
    execute(select_algorithm("check:im2col_gemm,fused_lesson", z, direction, cuda()), z, direction,
            at);
    const std::vector<CheckResult> results = check_results();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_LE(results[0].worst.difference, results[0].worst.bound);
  }
  forget_check_results();
}

}  // namespace
}  // namespace convscope::testing

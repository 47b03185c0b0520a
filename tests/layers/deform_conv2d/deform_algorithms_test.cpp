// SPDX-License-Identifier: Apache-2.0
// deform_algorithms_test.cpp: compares every algorithm of deformable convolution with the
// reference.
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "tests/layers/deform_conv2d/deform_case.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using matrix::Tier;
using Problem = DeformConv2dProblem;

class Deform : public ::testing::TestWithParam<const char*> {};

TEST_P(Deform, AgreesWithTheReference) {
  const Problem z = Problem::parse(GetParam());
  std::size_t turn = static_cast<std::size_t>(z.c + z.k + z.h);  // three of six kinds of numbers
  for (const auto& [name, algorithm] : deform_conv2d_algorithms(DeviceType::cpu).entries()) {
    ++turn;
    for (const Direction direction : kDirections) {
      for (std::size_t i = turn % 2; i < matrix::kRoundedTierCount; i += 2) {
        expect_as_reference(algorithm, z, direction, matrix::kRoundedTiers[i]);
      }
    }
    expect_as_reference(algorithm, z, Direction::backward_weight, Tier::bounded, true);
  }
}

TEST_P(Deform, AgreesInBlocks) {
  Problem z = Problem::parse(GetParam());
  z.layout = ActivationLayout::nchw16c;
  for (const auto& [name, algorithm] : deform_conv2d_algorithms(DeviceType::cpu).entries()) {
    for (const Direction direction : kDirections) {
      expect_as_reference(algorithm, z, direction, Tier::offset);
    }
  }
}

TEST_P(Deform, AgreesOnEachInstructionSet) {
  const Problem z = Problem::parse(GetParam());
  const MachineScope scope;
  const DeformConv2dAlgorithm& algorithm = deform_conv2d_algorithms(DeviceType::cpu).get("fused");
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    for (const Direction direction : kDirections) {
      expect_as_reference(algorithm, z, direction, Tier::heavy);
    }
  }
}

TEST(DeformMasks, OfNoNumberTouchWhatTheReferenceSays) {
  for (const char* text : {"n=2,c=3,h=7,w=5,k=4,r=3,s=3,pad=1",
                           "n=1,c=32,h=9,w=11,k=32,r=3,s=3,pad=1,offset_groups=2"}) {
    for (const auto& [name, algorithm] : deform_conv2d_algorithms(DeviceType::cpu).entries()) {
      expect_masks_of_no_number(algorithm, DeformConv2dProblem::parse(text));
    }
  }
}

void expect_same_bits_with_any_threads(const DeformConv2dAlgorithm& algorithm, const Problem& z,
                                       Direction direction) {
  const DeformConv2dTensors tensors = deform_tensors(z, Tier::bounded);
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    const Operands operands = deform_operands(z, direction, tensors);
    run_guarded(algorithm, z, direction, operands);
    const std::vector<Tensor> now = deform_outputs(z, direction, operands);
    if (first.empty()) first = now;
    for (std::size_t i = 0; i < now.size(); ++i) {
      EXPECT_EQ(std::memcmp(now[i].raw_data(), first[i].raw_data(),
                            static_cast<std::size_t>(now[i].size_bytes())),
                0)
          << algorithm.name << " " << name_of(direction) << " output " << i << ", " << threads
          << " threads, " << z.text();
    }
  }
}

TEST_P(Deform, HasTheSameBitsWithAnyNumberOfThreads) {
  const MachineScope scope;
  Problem z = Problem::parse(GetParam());
  for (const auto& [name, algorithm] : deform_conv2d_algorithms(DeviceType::cpu).entries()) {
    if (!algorithm.deterministic) continue;
    for (z.layout = ActivationLayout::nchw;; z.layout = ActivationLayout::nchw16c) {
      for (const Direction direction : kDirections) {
        if (!support_of(algorithm, z, direction).yes) continue;
        expect_same_bits_with_any_threads(algorithm, z, direction);
      }
      if (z.layout == ActivationLayout::nchw16c) break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, Deform, ::testing::ValuesIn(kDeformProblems));

}  // namespace
}  // namespace convscope::testing

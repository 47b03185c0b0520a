// SPDX-License-Identifier: Apache-2.0
// deform_algorithms_test.cpp: every card of deformable convolution beside the reference.
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "tests/layers/deform_conv2d/deform_case.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using matrix::Tier;
using Problem = DeformConv2dProblem;

const char* const kProblems[] = {
    "n=1,c=1,h=1,w=1,k=1,r=1,s=1",
    "n=2,c=3,h=7,w=5,k=4,r=3,s=3,pad=1",
    "n=1,c=16,h=9,w=11,k=16,r=3,s=3,pad=1",
    "n=3,c=17,h=13,w=7,k=33,r=3,s=3,stride=2,pad=1",
    "n=2,c=24,h=10,w=9,k=20,r=3,s=3,pad=1,offset_groups=3",
    "n=2,c=32,h=8,w=8,k=48,r=3,s=3,pad=1,groups=2,offset_groups=4",
    "n=1,c=12,h=11,w=6,k=18,r=3,s=2,stride=2x1,pad=1x0,dilation=1x2,groups=3,offset_groups=2",
    "n=2,c=64,h=24,w=23,k=40,r=3,s=3,pad=1",
    "n=1,c=160,h=6,w=9,k=70,r=3,s=3,pad=1,offset_groups=2",
    "n=2,c=20,h=12,w=12,k=8,r=5,s=5,pad=2,mask=0",
    "n=1,c=32,h=31,w=29,k=16,r=1,s=1,mask=0",
    "n=1,c=48,h=5,w=5,k=32,r=5,s=5",
    "n=2,c=8,h=6,w=8,k=8,r=3,s=3,pad=1x2x0x3,groups=8,offset_groups=8",
};

class Deform : public ::testing::TestWithParam<const char*> {};

TEST_P(Deform, AgreesWithTheReference) {
  const Problem z = Problem::parse(GetParam());
  for (const auto& [name, card] : deform_conv2d_algorithms(DeviceType::cpu).entries()) {
    for (const Direction direction : kDirections) {
      for (const Tier tier : matrix::kRoundedTiers) expect_as_reference(card, z, direction, tier);
    }
    expect_as_reference(card, z, Direction::backward_weight, Tier::bounded, true);
  }
}

TEST_P(Deform, AgreesInBlocks) {
  Problem z = Problem::parse(GetParam());
  z.layout = ActivationLayout::blocked;
  for (const auto& [name, card] : deform_conv2d_algorithms(DeviceType::cpu).entries()) {
    for (const Direction direction : kDirections) {
      expect_as_reference(card, z, direction, Tier::offset);
    }
  }
}

TEST_P(Deform, AgreesOnEachInstructionSet) {
  const Problem z = Problem::parse(GetParam());
  const MachineScope scope;
  const DeformConv2dAlgorithm& card = deform_conv2d_algorithms(DeviceType::cpu).get("fused");
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    for (const Direction direction : kDirections) {
      expect_as_reference(card, z, direction, Tier::heavy);
    }
  }
}

TEST_P(Deform, HasTheSameBitsWithAnyNumberOfThreads) {
  const MachineScope scope;
  const Problem z = Problem::parse(GetParam());
  for (const auto& [name, card] : deform_conv2d_algorithms(DeviceType::cpu).entries()) {
    if (!card.deterministic) continue;
    for (const Direction direction : kDirections) {
      if (!support_of(card, z, direction).yes) continue;
      const DeformConv2dTensors tensors = deform_tensors(z, Tier::bounded);
      std::vector<Tensor> first;
      for (const int threads : {1, 2, 5}) {
        set_num_threads(threads);
        const Operands operands = deform_operands(z, direction, tensors);
        run_guarded(card, z, direction, operands);
        const std::vector<Tensor> now = deform_outputs(z, direction, operands);
        if (first.empty()) first = now;
        for (std::size_t i = 0; i < now.size(); ++i) {
          EXPECT_EQ(std::memcmp(now[i].raw_data(), first[i].raw_data(),
                                static_cast<std::size_t>(now[i].size_bytes())),
                    0)
              << card.name << " " << name_of(direction) << " output " << i << ", " << threads
              << " threads, " << z.text();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, Deform, ::testing::ValuesIn(kProblems));

}  // namespace
}  // namespace convscope::testing

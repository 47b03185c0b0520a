// SPDX-License-Identifier: Apache-2.0
// sparse_algorithms_cuda_test.cpp: compares every algorithm of sparse convolution on CUDA with sums
// over (output site, input site, tap) pairs that the test finds by coordinates. Covers all
// directions and types, exact integers, accumulated gradients, equal bits in two runs, and inputs
// without sites. Also tests the tables that a map of pairs is converted to.
#include <algorithm>

#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/select.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using Problem = SparseConvProblem;

const Registry<SparseConvAlgorithm>& algorithms() {
  return sparse_conv_algorithms(DeviceType::cuda);
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

// Large maps take seconds on the emulation. There the test runs f32 and one of the other types, in
// turn.
bool left_out(const Problem& z, const OperandKind& operand_kind) {
  constexpr std::int64_t kLarge = 10000;  // pairs
  if (!is_emulated() || z.map->pairs() < kLarge) return false;
  const auto at = &operand_kind - kOperandKinds;
  return at != 0 && at != 1 + z.k % 3;
}

enum class Numbers { normal, offset, tails };

Tensor numbers_of(const Shape& shape, Numbers kind, std::uint64_t stream, DType dtype) {
  Tensor out = sparse_numbers(shape, false, stream);
  Generator random(8, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    float& v = out.data<float>()[i];
    if (kind == Numbers::offset) v += 10;
    if (kind == Numbers::tails && random.below(64) == 0) v *= 300;
    if (dtype == DType::f16) v *= 1.0f / 16;  // f16 ends at 65504
  }
  return out.to(dtype);
}

SparseConvTensors tensors_of(const Problem& z, Numbers kind) {
  return {.x = numbers_of(z.x_shape(), kind, 1, z.dtype),
          .w = numbers_of(z.w_shape(), kind, 2, z.dtype),
          .b = numbers_of({z.k}, kind, 3, z.dtype),
          .dy = numbers_of(z.y_shape(), kind, 4, z.dtype)};
}

SparseConvTensors on_device(const SparseConvTensors& of) {
  const auto there = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.to(Device{DeviceType::cuda}) : tensor;
  };
  return {.x = there(of.x), .w = there(of.w), .b = there(of.b), .dy = there(of.dy)};
}

Tensor result_on_device(const SparseConvAlgorithm& algorithm, const Problem& z, Direction direction,
                        const SparseConvTensors& tensors) {
  Operands operands = sparse_conv_operands(direction, on_device(tensors));
  operands.out[0] = Tensor::full(z.operands(direction).outputs[0].desc.shape, NAN, z.dtype)
                        .to(Device{DeviceType::cuda});
  run_algorithm(algorithm, z, direction, operands);
  return operands.out[0].values.to(Device{});
}

class SparseOnCuda : public CudaTest, public ::testing::WithParamInterface<SparseCase> {};

TEST_P(SparseOnCuda, EachAlgorithmAgreesWithThePairs) {
  const Problem problem = problem_of(GetParam());
  int checks = 0;
  for (const OperandKind& operand_kind : kOperandKinds) {
    const Problem z = with(problem, operand_kind);
    if (left_out(z, operand_kind)) continue;
    for (const Numbers kind : {Numbers::normal, Numbers::offset, Numbers::tails}) {
      // On the emulation each type sees one kind of numbers.
      const auto turn = static_cast<std::size_t>(&operand_kind - kOperandKinds) + problem.c;
      if (is_emulated() && static_cast<std::size_t>(kind) != turn % 3) continue;
      const SparseConvTensors tensors = tensors_of(z, kind);
      for (const Direction direction : kDirections) {
        const std::vector<double> expected = from_pairs(z, direction, tensors);
        const std::vector<double> sizes = from_pairs(z, direction, tensors, true);
        const double largest = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
        // Each kind of numbers explores another choice of tiles.
        const ExploreSchedules explore(turn + static_cast<std::size_t>(kind));
        for (const auto& [name, algorithm] : algorithms().entries()) {
          if (!support_of(algorithm, z, direction).yes) continue;
          const Tensor got = result_on_device(algorithm, z, direction, tensors);
          const double terms = z.nominal_flops() / 2 / static_cast<double>(got.numel());
          const double bound = algorithm.growth(terms) * eps_of(z.dtype, z.math) * largest;
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(got.at(static_cast<std::int64_t>(i)), expected[i], bound)
                << name << " " << name_of(direction) << " element " << i << " of " << z.text()
                << ", numbers " << static_cast<int>(kind);
          }
          ++checks;
        }
      }
    }
  }
  EXPECT_GT(checks, 0);
}

TEST_P(SparseOnCuda, IsExactOnIntegersAndTheSameTwice) {
  const Problem problem = problem_of(GetParam());
  for (const OperandKind& operand_kind : kOperandKinds) {
    if (operand_kind.dtype == DType::bf16 || operand_kind.dtype == DType::f16)
      continue;  // rounded at the end
    const Problem z = with(problem, operand_kind);
    if (left_out(z, operand_kind)) continue;
    const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
    for (const Direction direction : kDirections) {
      const std::vector<double> expected = from_pairs(z, direction, tensors);
      for (const auto& [name, algorithm] : algorithms().entries()) {
        if (!support_of(algorithm, z, direction).yes || !algorithm.exact_on_integers) continue;
        const Tensor got = result_on_device(algorithm, z, direction, tensors);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(got.at(static_cast<std::int64_t>(i)), expected[i])
              << name << " " << name_of(direction) << " element " << i << " of " << z.text();
        }
        if (algorithm.deterministic) {
          EXPECT_TRUE(same_bits(result_on_device(algorithm, z, direction, tensors), got)) << name;
        }
      }
    }
  }
}

TEST_P(SparseOnCuda, AddsToWeightGradientsAndNeedsNoBias) {
  const Problem z = problem_of(GetParam());
  SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    if (!support_of(algorithm, z, Direction::backward_weight).yes) continue;
    Operands operands = sparse_conv_operands(Direction::backward_weight, on_device(tensors));
    operands.out[0] = Tensor::full(z.w_shape(), 3, z.dtype).to(Device{DeviceType::cuda});
    operands.accumulate = true;
    run_algorithm(algorithm, z, Direction::backward_weight, operands);
    const Tensor added = operands.out[0].values.to(Device{});
    const Tensor fresh = result_on_device(algorithm, z, Direction::backward_weight, tensors);
    for (std::int64_t i = 0; i < fresh.numel(); ++i)
      ASSERT_EQ(added.at(i), fresh.at(i) + 3) << name;
  }
  tensors.b = {};
  const std::vector<double> expected = from_pairs(z, Direction::forward, tensors);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    if (!support_of(algorithm, z, Direction::forward).yes) continue;
    const Tensor got = result_on_device(algorithm, z, Direction::forward, tensors);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(got.at(static_cast<std::int64_t>(i)), expected[i]) << name;
    }
  }
}

// For each type, every algorithm must issue at least as many FLOPs as the pairs of the map need,
// and report exactly those of the pairs. A product in TF32 is one in fp16, of twice the peak.
TEST_P(SparseOnCuda, ExecutesWhatCounts) {
  const Problem problem = problem_of(GetParam());
  for (const OperandKind& operand_kind : kOperandKinds) {
    const Problem z = with(problem, operand_kind);
    for (const Direction direction : kDirections) {
      for (const auto& [name, algorithm] : algorithms().entries()) {
        if (!support_of(algorithm, z, direction).yes) continue;
        const Cost cost = algorithm.cost(z, direction);
        const double least = z.nominal_flops() * (z.math == MathMode::tf32 ? 0.5 : 1);
        EXPECT_GE(cost.issued, least) << name << " " << z.text();
        EXPECT_EQ(cost.flops, z.nominal_flops()) << name << " " << z.text();
      }
    }
  }
}

// The device counts the pairs of its map. The count must equal the number of pairs that the host
// finds.
TEST_P(SparseOnCuda, MapsOfTheDeviceHaveThePairsOfTheHost) {
  const Problem z = problem_of(GetParam());
  const SparseConvAlgorithm& algorithm = algorithms().get("implicit_gemm");
  algorithm.cost(z, Direction::forward);
  EXPECT_EQ(z.map->pairs(), static_cast<std::int64_t>(all_pairs(z).size()));
}

INSTANTIATE_TEST_SUITE_P(Cases, SparseOnCuda, ::testing::ValuesIn(kSparseCases), case_name);

class SparseCloudsOnCuda : public CudaTest {};

TEST_F(SparseCloudsOnCuda, MayBeEmpty) {
  const SiteGrid grid{3, 1, {8, 8, 8}};
  const auto none = std::make_shared<const SparseSites>(Tensor::empty({0, 4}, DType::i32), grid);
  const Problem z{.map = SparseMap::submanifold(none, {.size = {3, 3, 3}}), .c = 8, .k = 16};
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    for (const Direction direction : kDirections) {
      const Tensor got = result_on_device(algorithm, z, direction, tensors);
      for (std::int64_t i = 0; i < got.numel(); ++i) ASSERT_EQ(got.at(i), 0) << name;
    }
  }
}

}  // namespace
}  // namespace convscope::testing

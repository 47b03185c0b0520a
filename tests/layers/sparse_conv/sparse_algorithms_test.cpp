// SPDX-License-Identifier: Apache-2.0
// sparse_algorithms_test.cpp: compares every algorithm of sparse convolution with sums over (output
// site, input site, tap) pairs that the test finds by coordinates.
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/numbers.h"
#include "tests/support/tiers.h"

namespace convscope::testing {
namespace {

using Problem = SparseConvProblem;

const Registry<SparseConvAlgorithm>& algorithms() {
  return sparse_conv_algorithms(DeviceType::cpu);
}

class SparseConv : public ::testing::TestWithParam<SparseCase> {};

TEST_P(SparseConv, IsExactOnIntegers) {
  const Problem z = problem_of(GetParam());
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
  for (const Direction direction : kDirections) {
    const std::vector<double> expected = from_pairs(z, direction, tensors);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      ASSERT_TRUE(algorithm.exact_on_integers);
      const Tensor got = sparse_result(algorithm, z, direction, tensors);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(got.at(static_cast<std::int64_t>(i)), expected[i])
            << name << " " << name_of(direction) << " element " << i << " of " << z.text();
      }
    }
  }
}

TEST_P(SparseConv, ErrsWithinItsBound) {
  const Problem z = problem_of(GetParam());
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/false);
  for (const Direction direction : kDirections) {
    const std::vector<double> expected = from_pairs(z, direction, tensors);
    double largest = 0;
    for (const double size : from_pairs(z, direction, tensors, true)) {
      largest = std::max(largest, size);
    }
    for (const auto& [name, algorithm] : algorithms().entries()) {
      const Tensor got = sparse_result(algorithm, z, direction, tensors);
      const double terms = z.nominal_flops() / 2 / static_cast<double>(got.numel());
      const double bound = algorithm.growth(terms) * eps_of(z.dtype, z.math) * largest;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(got.at(static_cast<std::int64_t>(i)), expected[i], bound)
            << name << " " << name_of(direction) << " element " << i << " of " << z.text();
      }
    }
  }
}

TEST_P(SparseConv, HoldsItsBoundWhereErrorsHaveOneDirection) {
  const Problem z = problem_of(GetParam());
  for (const Tier tier : {Tier::flat, Tier::alternating, Tier::one_large}) {
    const auto numbers = [&](const Shape& shape, std::uint64_t stream) {
      Tensor out = Tensor::empty(shape);
      TierNumbers from(tier, Generator(7, stream));
      for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = from.next();
      return out;
    };
    const SparseConvTensors tensors = {.x = numbers(z.x_shape(), 1),
                                       .w = numbers(z.w_shape(), 2),
                                       .b = numbers({z.k}, 3),
                                       .dy = numbers(z.y_shape(), 4)};
    for (const Direction direction : kDirections) {
      const std::vector<double> expected = from_pairs(z, direction, tensors);
      const std::vector<double> sizes = from_pairs(z, direction, tensors, true);
      const double largest = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
      for (const auto& [name, algorithm] : algorithms().entries()) {
        const Tensor got = sparse_result(algorithm, z, direction, tensors);
        const double growth = algorithm.worst_growth(static_cast<double>(z.sum_length(direction)));
        const double bound = growth * eps_of(z.dtype, z.math) * largest;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(got.at(static_cast<std::int64_t>(i)), expected[i], bound)
              << name << " " << name_of(direction) << " element " << i << " of " << z.text() << ", "
              << name_of(tier);
        }
      }
    }
  }
}

TEST_P(SparseConv, HasTheSameBitsWithAnyNumberOfThreads) {
  const MachineScope scope;
  const Problem z = problem_of(GetParam());
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/false);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    ASSERT_TRUE(algorithm.deterministic);
    for (const Direction direction : kDirections) {
      set_num_threads(1);
      const Tensor first = sparse_result(algorithm, z, direction, tensors);
      for (const int threads : {2, 5}) {
        set_num_threads(threads);
        EXPECT_TRUE(same_bits(sparse_result(algorithm, z, direction, tensors), first))
            << name << " " << name_of(direction) << " with " << threads << " threads";
      }
    }
  }
}

TEST_P(SparseConv, IsExactOnEachInstructionSet) {
  const MachineScope scope;
  const Problem z = problem_of(GetParam());
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
  for (const Direction direction : kDirections) {
    const Tensor expected = sparse_result(algorithms().get("reference"), z, direction, tensors);
    for (int i = 0; i < kIsaCount; ++i) {
      if (!supports_isa(static_cast<Isa>(i))) continue;
      set_isa(static_cast<Isa>(i));
      EXPECT_TRUE(near(sparse_result(algorithms().get("implicit_gemm"), z, direction, tensors),
                       expected, 0, 0))
          << name_of(direction) << " on " << name_of(static_cast<Isa>(i));
    }
  }
}

TEST_P(SparseConv, AddsToWeightGradients) {
  const Problem z = problem_of(GetParam());
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    Operands operands = sparse_conv_operands(Direction::backward_weight, tensors);
    operands.out[0] = Tensor::full(z.w_shape(), 3, z.dtype);
    operands.accumulate = true;
    run_algorithm(algorithm, z, Direction::backward_weight, operands);
    const Tensor fresh = sparse_result(algorithm, z, Direction::backward_weight, tensors);
    for (std::int64_t i = 0; i < fresh.numel(); ++i) {
      ASSERT_EQ(operands.out[0].values.at(i), fresh.at(i) + 3) << name;
    }
  }
}

TEST_P(SparseConv, NeedsNoBias) {
  const Problem z = problem_of(GetParam());
  SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
  tensors.b = {};
  const std::vector<double> expected = from_pairs(z, Direction::forward, tensors);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    const Tensor got = sparse_result(algorithm, z, Direction::forward, tensors);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(got.at(static_cast<std::int64_t>(i)), expected[i]) << name;
    }
  }
}

// Compares the gradients of sum(y dy) with finite differences in double, for some elements of x
// and w.
TEST_P(SparseConv, HasTheGradientsOfDifferences) {
  const Problem z = problem_of(GetParam(), DType::f64);
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/false);
  const SparseConvAlgorithm& algorithm = algorithms().get("reference");
  const auto loss = [&](const SparseConvTensors& t) {
    const Tensor y = sparse_result(algorithm, z, Direction::forward, t);
    double sum = 0;
    for (std::int64_t i = 0; i < y.numel(); ++i) sum += y.at(i) * tensors.dy.at(i);
    return sum;
  };
  const auto expect = [&](const Tensor& gradient, Tensor SparseConvTensors::*which) {
    constexpr double kStep = 1e-3;
    for (std::int64_t i = 0; i < gradient.numel(); i += 1 + gradient.numel() / 7) {
      SparseConvTensors moved = tensors;
      double ends[2];
      for (const int side : {0, 1}) {
        moved.*which = (tensors.*which).clone();
        (moved.*which).data<double>()[i] += side == 0 ? -kStep : kStep;
        ends[side] = loss(moved);
      }
      EXPECT_NEAR(gradient.at(i), (ends[1] - ends[0]) / (2 * kStep), 1e-7) << i;
    }
  };
  expect(sparse_result(algorithm, z, Direction::backward_data, tensors), &SparseConvTensors::x);
  expect(sparse_result(algorithm, z, Direction::backward_weight, tensors), &SparseConvTensors::w);
}

// Algorithm selection contains no code for sites: each problem carries the map of its sites.
TEST_P(SparseConv, IsChosenCheckedAndExplained) {
  const Problem z = problem_of(GetParam());
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/false);
  forget_check_results();
  for (const Direction direction : kDirections) {
    const auto choice = select_algorithm("check:implicit_gemm,native", z, direction, Device{});
    Operands operands = sparse_conv_operands(direction, tensors);
    operands.out[0] = Tensor::empty(z.operands(direction).outputs[0].desc.shape, z.dtype);
    execute(choice, z, direction, operands);
    EXPECT_TRUE(same_bits(operands.out[0].values,
                          sparse_result(algorithms().get("implicit_gemm"), z, direction, tensors)));
    EXPECT_EQ(explain("auto", z, direction, Device{}).size(), algorithms().entries().size());
    EXPECT_TRUE(select_algorithm("auto", z, direction, Device{}).algorithm->auto_ok);
  }
  EXPECT_EQ(check_results().size(), 3u);
  forget_check_results();
}

INSTANTIATE_TEST_SUITE_P(All, SparseConv, ::testing::ValuesIn(kSparseCases), case_name);

Problem without_sites(SparseKind kind) {
  const SparseCase none{"", {3, 1, {4, 4, 4}}, 1, kind, {.size = {3, 3, 3}}, 3, 4};
  const auto sites =
      std::make_shared<const SparseSites>(coordinates_of({}, none.grid.rank), none.grid);
  return {.map = map_of(none, sites), .c = 3, .k = 4};
}

TEST(SparseConvEmpty, IsLegalInEachDirection) {
  for (const SparseKind kind :
       {SparseKind::submanifold, SparseKind::strided, SparseKind::inverse}) {
    const Problem z = without_sites(kind);
    const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      EXPECT_EQ(sparse_result(algorithm, z, Direction::forward, tensors).shape(), Shape({0, 4}));
      EXPECT_EQ(sparse_result(algorithm, z, Direction::backward_data, tensors).shape(),
                Shape({0, 3}));
      const Tensor dw = sparse_result(algorithm, z, Direction::backward_weight, tensors);
      EXPECT_TRUE(same_bits(dw, Tensor::zeros(z.w_shape()))) << name;
    }
    EXPECT_NE(select_algorithm("auto", z, Direction::forward, Device{}).algorithm, nullptr);
    EXPECT_NE(select_algorithm("measure", z, Direction::forward, Device{}).algorithm, nullptr);
  }
}

// With a stride longer than the kernel, no window may contain a site. The inverse convolution of
// this empty result returns only the bias.
TEST(SparseConvEmpty, IsTheBiasWhereNoInputIs) {
  const SiteGrid grid{2, 1, {1, 4, 4}};
  const auto sites =
      std::make_shared<const SparseSites>(coordinates_of({{0, 0, 1, 1}, {0, 0, 3, 3}}, 2), grid);
  const SharedMap strided = SparseMap::strided(sites, {.size = {1, 1, 1}, .stride = {1, 2, 2}});
  Problem z{.map = SparseMap::inverse(strided), .c = 3, .k = 4};
  ASSERT_EQ(z.in_count(), 0);
  ASSERT_EQ(z.out_count(), 2);
  const SparseConvTensors tensors = sparse_tensors(z, /*integers=*/true);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    const Tensor y = sparse_result(algorithm, z, Direction::forward, tensors);
    for (std::int64_t i = 0; i < y.numel(); ++i) EXPECT_EQ(y.at(i), tensors.b.at(i % 4)) << name;
    EXPECT_EQ(sparse_result(algorithm, z, Direction::backward_data, tensors).numel(), 0);
    EXPECT_TRUE(same_bits(sparse_result(algorithm, z, Direction::backward_weight, tensors),
                          Tensor::zeros(z.w_shape())))
        << name;
  }
  z.map = strided;  // no output: dx is 0
  for (const auto& [name, algorithm] : algorithms().entries()) {
    EXPECT_TRUE(
        same_bits(sparse_result(algorithm, z, Direction::backward_data, sparse_tensors(z, true)),
                  Tensor::zeros(z.x_shape())))
        << name;
  }
}

}  // namespace
}  // namespace convscope::testing

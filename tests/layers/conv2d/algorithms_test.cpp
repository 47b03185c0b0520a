// SPDX-License-Identifier: Apache-2.0
// algorithms_test.cpp: compares every registered algorithm with the reference in double: all
// directions, all shapes files, random problems, each instruction set, one and two threads.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "experiments/bench/problem_list.h"
#include "experiments/check/matrix/algorithm_answers.h"
#include "layers/conv2d/select.h"
#include "layers/dispatch/execute.h"
#include "tests/support/cases.h"
#include "tests/support/empty_batch.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::MachineScope;
using testing::Tier;

const Registry<Conv2dAlgorithm>& algorithms() { return conv2d_algorithms(DeviceType::cpu); }

bool is_lesson(std::string_view name) { return name.ends_with("_lesson"); }

// Compares one algorithm with the reference on one case, with each instruction set. A deterministic
// algorithm must compute the same bits with one and with two threads, unless most_threads is 1.
std::string check_on_every_machine(ConvolutionCase& one, const Conv2dAlgorithm& algorithm,
                                   Direction direction, int most_threads = 2) {
  const bool lesson = is_lesson(algorithm.name);  // uses neither threads nor instruction sets
  matrix::Machines machines{.each_isa = !lesson && std::string_view(algorithm.name) != "reference"};
  if (lesson || most_threads == 1) machines.threads = {1};
  return one.check_everywhere(algorithm, direction, machines);
}

void check_all(const std::vector<Conv2dProblem>& problems) {
  const MachineScope scope;
  std::set<std::string> lessons_seen;
  std::size_t turn = 0;
  const auto check_algorithms = [&turn](const Conv2dProblem& problem, bool lessons) {
    ConvolutionCase exact(problem, Tier::exact);
    // One kind of rounded numbers for each problem; the kinds alternate.
    ConvolutionCase rounded(problem, testing::kRoundedTiers[turn++ % testing::kRoundedTierCount]);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      if (is_lesson(name) != lessons) continue;
      for (const Direction direction : kDirections) {
        if (!testing::takes_some_form(algorithm, problem, direction)) continue;
        EXPECT_EQ(check_on_every_machine(rounded, algorithm, direction), "");
        if (algorithm.exact_on_integers) {
          EXPECT_EQ(check_on_every_machine(exact, algorithm, direction), "");
        }
      }
    }
  };
  const auto check_formats = [&](const Conv2dProblem& problem, bool lessons) {
    check_algorithms(problem, lessons);
    if (!problem.weight_format.is_dense()) return;
    for (const Conv2dProblem& sparse : testing::sparse_problems(problem, turn, 1)) {
      check_algorithms(sparse, lessons);
    }
  };
  for (const Conv2dProblem& problem : problems) {
    if (problem.is_empty()) continue;  // no algorithm is called: Algorithm.TakesAnEmptyBatch
    check_formats(problem, false);
    // Lesson algorithms are slow, so they run smaller versions of the same problems.
    const Conv2dProblem small = testing::shrunk(problem, 1e5);
    if (lessons_seen.insert(small.text()).second) check_formats(small, true);
    if (::testing::Test::HasFailure()) return;  // one report is enough
  }
}

// Returns all files in experiments/shapes, so that a new file is tested automatically.
std::vector<std::string> shapes_files() {
  std::vector<std::string> out;
  for (const auto& file :
       std::filesystem::directory_iterator(CONVSCOPE_SOURCE_DIR "/experiments/shapes")) {
    const std::string name = file.path().stem().string();
    const bool is_list = file.path().extension() == ".txt";
    if (is_list && is_list_of(file.path().string())) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

class ShapesFile : public ::testing::TestWithParam<std::string> {};

TEST_P(ShapesFile, EveryAlgorithmAgreesWithTheReference) {
  std::vector<Conv2dProblem> problems;
  std::set<std::string> seen;  // two large problems may shrink to the same small one
  for (const Conv2dProblem& problem : testing::shapes_of(GetParam())) {
    const Conv2dProblem small = testing::shrunk(problem);
    if (seen.insert(small.text()).second) problems.push_back(small);
  }
  check_all(problems);
}
INSTANTIATE_TEST_SUITE_P(Conv2dAlgorithms, ShapesFile, ::testing::ValuesIn(shapes_files()),
                         [](const auto& name) { return name.param; });

TEST(Conv2dAlgorithms, AgreeWithTheReferenceOnRandomProblems) {
  const auto count = testing::number_from_environment("CONVSCOPE_TEST_RANDOM_PROBLEMS", 200);
  const auto seed = testing::number_from_environment("CONVSCOPE_TEST_SEED", 1);
  std::vector<Conv2dProblem> problems;
  for (std::int64_t i = 0; i < count; ++i) {
    problems.push_back(testing::shrunk(
        testing::random_problem(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(i)),
        2e5));
  }
  check_all(problems);
}

// In each direction, sums have hundreds to tens of thousands of terms of one sign. If one
// accumulator added all terms of such a sum in sequence, the error could be as large as 56 eps.
TEST(Conv2dAlgorithms, HoldTheirBoundOnLongSumsOfOneSign) {
  const MachineScope scope;
  for (const Conv2dProblem& dense : testing::long_sum_problems()) {
    Conv2dProblem all_blocks = dense;  // sparse in name: all blocks are kept
    all_blocks.weight_format = {.kind = WeightFormat::Kind::block_sparse,
                                .block_rows = dense.k,
                                .block_columns = 1,
                                .blocks = dense.c_per_group() * dense.r * dense.s};
    for (const Conv2dProblem& problem : {dense, all_blocks}) {
      ConvolutionCase one(problem, Tier::offset);
      for (const auto& [name, algorithm] : algorithms().entries()) {
        for (const Direction direction : kDirections) {
          if (is_lesson(name) || !testing::takes_some_form(algorithm, problem, direction)) {
            continue;
          }
          EXPECT_EQ(check_on_every_machine(one, algorithm, direction, 1), "");
        }
      }
    }
  }
}

// Many equal numbers are rounded in the same direction again and again. The bound must hold
// nevertheless, also for lessons.
TEST(Conv2dAlgorithms, HoldTheirBoundWhereAllErrorsHaveOneDirection) {
  for (const Conv2dProblem& problem : testing::one_way_problems()) {
    for (const Tier tier : {Tier::flat, Tier::alternating, Tier::one_large}) {
      ConvolutionCase one(problem, tier);
      for (const auto& [name, algorithm] : algorithms().entries()) {
        for (const Direction direction : kDirections) {
          if (!testing::takes_some_form(algorithm, problem, direction)) continue;
          EXPECT_EQ(one.check(algorithm, direction), "");
        }
      }
    }
  }
}

// The data of a bug report: a sum of 1936 equal terms, in which all roundings have the same
// direction.
TEST(Conv2dAlgorithms, AgreeWhereACheckSeesEqualNumbers) {
  const Conv2dProblem problem = Conv2dProblem::parse("c=16,h=12,w=12,k=4,r=11,s=11,pad=5");
  for (const Direction direction : kDirections) {
    Operands operands = random_operands(problem.operands(direction), Device{});
    for (std::size_t i = 0; i < 2; ++i) {
      const Tensor& values = operands.in[i].values;
      operands.in[i].values = Tensor::full(values.shape(), i == 0 ? 1.2215532 : 1.8066357);
    }
    for (const char* pair : {"check:direct,reference", "check:direct_lesson,im2col_gemm",
                             "check:fft,direct", "check:im2col_gemm_eigen,im2col_gemm"}) {
      EXPECT_NO_THROW(
          execute(select_conv2d(pair, problem, direction, {}), problem, direction, operands))
          << pair << " " << name_of(direction);
    }
  }
}

// Winograd multiplies transformed weights U. If U exceeds 4 MiB, and there are many tiles or only
// one call, the algorithm does not prepare U before the call. Instead each thread transforms its
// part of U during the call. The results must have the same bits as with a prepared U.
TEST(Conv2dAlgorithms, WinogradTransformsManyWeightsInTheCall) {
  const Conv2dAlgorithm& algorithm = algorithms().get("winograd_f4x3");
  const Conv2dProblem problem = Conv2dProblem::parse("c=176,h=17,w=17,k=176,r=3,s=3,pad=1");
  const Conv2dProblem few = Conv2dProblem::parse("c=176,h=16,w=16,k=176,r=3,s=3,pad=1");
  const MachineScope scope;
  for (const Direction direction : {Direction::forward, Direction::backward_data}) {
    EXPECT_EQ(algorithm.prepared_size(problem, direction), 0u);
    EXPECT_GT(algorithm.prepared_size(few, direction), std::size_t{4} << 20);
    EXPECT_EQ(algorithm.prepared_size(few, direction, WeightUse::once), 0u);
    ConvolutionCase one(problem, Tier::bounded);
    EXPECT_EQ(check_on_every_machine(one, algorithm, direction), "");
    const Operands operands = random_operands(few.operands(direction), Device{});
    std::vector<Tensor> y;
    for (const WeightUse use : {WeightUse::once, WeightUse::often}) {
      run_algorithm(algorithm, few, direction, operands,
                    Scratch<Conv2dProblem>(algorithm, few, direction, Device{}, use));
      y.push_back(operands.out[0].values.clone());
    }
    EXPECT_TRUE(testing::same_bits(y[0], y[1]));
  }
}

TEST(Conv2dAlgorithms, PassTheProblemOfTheEnvironment) {
  const char* text = std::getenv("CONVSCOPE_TEST_PROBLEM");
  if (text == nullptr) GTEST_SKIP() << "CONVSCOPE_TEST_PROBLEM names the problem";
  const char* only = std::getenv("CONVSCOPE_TEST_ALGORITHM");
  const MachineScope scope;
  const Conv2dProblem problem = Conv2dProblem::parse(text);
  for (const Tier tier : testing::kAllTiers) {
    ConvolutionCase one(problem, tier);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      if (only != nullptr && name != only) continue;
      if (tier == Tier::exact && !algorithm.exact_on_integers) continue;
      for (const Direction direction : kDirections) {
        if (!testing::takes_some_form(algorithm, problem, direction)) continue;
        EXPECT_EQ(check_on_every_machine(one, algorithm, direction), "");
      }
    }
  }
}

TEST(Conv2dAlgorithms, SpreadANaNExactlyWhereItIsRead) {
  for (const auto& [name, algorithm] : algorithms().entries()) {
    EXPECT_EQ(matrix::fault_of_nan(algorithm), "") << name;
  }
}

// ---- the check itself --------------------------------------------------------------------------

// im2col_gemm with one mistake.
enum class Mistake {
  none,
  one_sum,
  one_element,
  behind,
  in_front,
  workspace,
  unwritten,
  behind_prepared,
  prepared,
  reads_w,
  second_call
};
Mistake mistake = Mistake::none;

void wrong_forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& problem = args.problem;
  Conv2dAlgorithm right = algorithms().get("im2col_gemm");
  right.forward(args);
  auto* const y = static_cast<float*>(args.y);
  const std::int64_t count = problem.y_shape().numel();
  switch (mistake) {
    case Mistake::none:
      return;
    case Mistake::one_sum:  // lose the last product of the last sum; it uses the last element of w
      y[count - 1] -= static_cast<const float*>(args.x)[problem.x_shape().numel() - 1] *
                      static_cast<const float*>(args.prepared)[problem.w_shape().numel() - 1];
      return;
    case Mistake::one_element:
      y[count / 2] = y[count / 2 - 1];
      return;
    case Mistake::behind:
      y[count] = 0;
      return;
    case Mistake::in_front:
      y[-1] = 0;
      return;
    case Mistake::workspace: {
      const std::size_t bytes = right.workspace_bytes(problem, Direction::forward);
      static_cast<unsigned char*>(args.workspace)[bytes] = 0;
      return;
    }
    case Mistake::unwritten:
      y[count - 1] = std::nanf("");
      return;
    case Mistake::behind_prepared:  // wrong_preparation() does it
      return;
    case Mistake::prepared:
      *static_cast<float*>(const_cast<void*>(args.prepared)) += 1;
      return;
    case Mistake::reads_w:
      y[count - 1] += *static_cast<const float*>(args.w);
      return;
    case Mistake::second_call: {  // right, except for the last bit of each second call
      static bool second = false;
      if (second) y[0] = std::nextafter(y[0], 1e30f);
      second = !second;
      return;
    }
  }
}

void wrong_preparation(const Conv2dPrepareArgs& args) {
  const Conv2dAlgorithm right = algorithms().get("im2col_gemm");
  right.prepare_weights(args);
  if (mistake != Mistake::behind_prepared) return;
  static_cast<unsigned char*>(args.prepared)[right.prepared_size(args.problem, args.direction)] = 0;
}

TEST(Conv2dCheck, CatchesADeliberatelyWrongKernel) {
  Conv2dAlgorithm wrong = algorithms().get("im2col_gemm");
  wrong.name = "wrong";
  wrong.forward = wrong_forward;
  wrong.prepare_weights = wrong_preparation;
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=64,h=9,w=11,k=5,r=3,s=3");
  const std::pair<Mistake, const char*> kMistakes[] = {
      {Mistake::none, ""},
      {Mistake::one_sum, "first wrong element 629 of 630"},
      {Mistake::one_element, "first wrong element 315 of 630"},
      {Mistake::behind, "wrote past the end of the output"},
      {Mistake::in_front, "wrote before the start of the output"},
      {Mistake::workspace, "wrote past the end of the workspace"},
      {Mistake::unwritten, "got nan"},
      {Mistake::behind_prepared, "wrote past the end of the prepared weights"},
      {Mistake::prepared, "wrote to the prepared weights"},
      {Mistake::reads_w, "got nan"},
      {Mistake::second_call, "two calls with the same prepared weights"},
  };
  // With all numbers equal, exchanging two elements is not a mistake.
  for (const Tier tier : {Tier::exact, Tier::bounded, Tier::offset, Tier::heavy}) {
    ConvolutionCase one(problem, tier);
    for (const auto& [kind, sentence] : kMistakes) {
      mistake = kind;
      const std::string report = one.check(wrong, Direction::forward);
      if (kind == Mistake::none) {
        EXPECT_EQ(report, "");
        continue;
      }
      EXPECT_NE(report.find(sentence), std::string::npos) << "got: " << report;
      EXPECT_NE(report.find("wrong on cpu, forward of n=2,c=64,h=9,w=11"), std::string::npos);
      EXPECT_NE(report.find("CONVSCOPE_TEST_PROBLEM='n=2,c=64"), std::string::npos);
    }
  }
  mistake = Mistake::none;
}

// ---- the table ---------------------------------------------------------------------------------

TEST(Conv2dTable, HoldsAAlgorithmForEveryAlgorithmFile) {
  std::set<std::string> registered;
  for (const auto& [name, algorithm] : algorithms().entries()) {
    const std::string file = std::filesystem::path(algorithms().file_of(name)).filename().string();
    // winograd_cpu.cpp registers three tile sizes.
    EXPECT_TRUE(file == name + "_cpu.cpp" ||
                (file == "winograd_cpu.cpp" && name.starts_with("winograd_f")))
        << name << " is in " << file;
    registered.insert(file);
  }
  std::set<std::string> found;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(CONVSCOPE_SOURCE_DIR "/layers/conv2d")) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with("_cpu.cpp")) continue;
    std::ifstream source(entry.path());
    const std::string text((std::istreambuf_iterator<char>(source)), {});
    if (text.find("\nCONVSCOPE_CONV2D_ALGORITHM(") != std::string::npos) found.insert(file);
  }
  EXPECT_EQ(registered, found);
  EXPECT_TRUE(found.contains("reference_cpu.cpp"));
}

// ---- one algorithm ------------------------------------------------------------------------------

// Returns the algorithms for real numbers; int8_test.cpp checks those for integers.
std::vector<std::string> algorithms_of_real_numbers() {
  std::vector<std::string> out;
  for (const auto& [name, algorithm] : algorithms().entries()) {
    const bool real = std::ranges::any_of(testing::small_problems(3), [&](const auto& problem) {
      return std::ranges::any_of(kDirections, [&](Direction direction) {
        return support_of(algorithm, problem, direction).yes;
      });
    });
    if (real || !algorithm.takes_mixed_types) out.push_back(name);
  }
  return out;
}

// For authors of an algorithm: --gtest_filter='*/<its name>' selects it.
class Algorithm : public ::testing::TestWithParam<std::string> {
 protected:
  const Conv2dAlgorithm& algorithm() const { return algorithms().get(GetParam()); }
  // Calls check(problem, direction) for each small problem that the algorithm accepts, in the first
  // layout that it accepts. Fails if it accepts none.
  template <class Check>
  void on_small_problems(const Check& check) const {
    int taken = 0;
    std::vector<Conv2dProblem> problems = testing::small_problems(3);
    for (const Conv2dProblem& dense : testing::small_problems(3)) {
      for (const Conv2dProblem& sparse : testing::sparse_problems(dense, problems.size(), 20)) {
        problems.push_back(sparse);
      }
    }
    for (const Conv2dProblem& problem : problems) {
      for (const Direction direction : kDirections) {
        const auto forms = matrix::forms_of(problem);  // the first is the problem itself
        const auto form = std::ranges::find_if(forms, [&](const Conv2dProblem& one) {
          return support_of(algorithm(), one, direction).yes;
        });
        if (form == forms.end()) continue;
        ++taken;
        check(*form, direction);
      }
    }
    EXPECT_GT(taken, 0) << "it takes no problem of small_problems()";
  }
};
INSTANTIATE_TEST_SUITE_P(Conv2d, Algorithm, ::testing::ValuesIn(algorithms_of_real_numbers()),
                         [](const auto& name) { return name.param; });

TEST_P(Algorithm, IsComplete) {
  EXPECT_EQ(algorithm().name, GetParam());
  EXPECT_GT(std::string_view(algorithm().idea).size(), 10u);
  EXPECT_GT(std::string_view(algorithm().paper).size(), 10u);
  EXPECT_GT(algorithm().error_growth, 0.0);
  EXPECT_EQ(algorithm().prepared_bytes == nullptr, algorithm().prepare_weights == nullptr);
  on_small_problems([&](const Conv2dProblem& problem, Direction direction) {
    const Conv2dCost cost = algorithm().cost(problem, direction);
    EXPECT_GT(cost.flops, 0.0);
    EXPECT_GT(cost.bytes, 0.0);
    const DeviceType device = algorithm().device;
    const Coefficients seconds = seconds_per_coefficient(
        cost, device, machine_peaks(device), operand_type_of(problem), WeightUse::once, 0);
    for (std::size_t i = 0; i < cost_terms(device).size(); ++i) {
      EXPECT_GE(seconds[i], 0.0) << cost_terms(device)[i].name << " of " << problem.text();
      EXPECT_LT(seconds[i], 1e6) << cost_terms(device)[i].name << " of " << problem.text();
    }
    if (algorithm().prepared_size(problem, direction) == 0) {
      EXPECT_EQ(cost.prepared_bytes, 0.0);
    }
    EXPECT_GT(cost.issued, 0.0) << problem.text();
  });
}

TEST_P(Algorithm, TakesAnEmptyBatch) { EXPECT_EQ(testing::fault_with_no_images(algorithm()), ""); }

TEST_P(Algorithm, AgreesWithTheReferenceOnASmallProblem) {
  const MachineScope scope;
  on_small_problems([&](const Conv2dProblem& problem, Direction direction) {
    for (const Tier tier : testing::kRoundedTiers) {
      ConvolutionCase rounded(problem, tier);
      EXPECT_EQ(check_on_every_machine(rounded, algorithm(), direction), "");
    }
    if (!algorithm().exact_on_integers) return;
    ConvolutionCase exact(problem, Tier::exact);
    EXPECT_EQ(check_on_every_machine(exact, algorithm(), direction), "");
  });
}

}  // namespace
}  // namespace convscope

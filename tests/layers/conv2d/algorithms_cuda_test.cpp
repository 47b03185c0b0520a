// SPDX-License-Identifier: Apache-2.0
// algorithms_cuda_test.cpp: compares every convolution algorithm on CUDA with the reference in
// double: all directions and types, all shapes files, random problems. Also tests recorded calls,
// guards around buffers, alignment, and the table of algorithms.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "experiments/bench/problem_list.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/empty_batch.h"
#include "tests/support/numerics.h"
#include "tests/support/random_share.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::cuda;
using testing::Tier;

const Registry<Conv2dAlgorithm>& algorithms() { return conv2d_algorithms(DeviceType::cuda); }

class Conv2dOnCuda : public testing::CudaTest {};

// Returns the problem in f32, in f32 with TF32 math, in bf16 and in f16.
std::vector<Conv2dProblem> in_all_types(const Conv2dProblem& problem) {
  std::vector<Conv2dProblem> out(4, problem);
  out[1].math = MathMode::tf32;
  out[2].dtype = DType::bf16;
  out[3].dtype = DType::f16;
  return out;
}

// On a GPU, returns the problem in all types. The emulation is slow, so there the function returns
// the problem in f32 and in one other type, which `turn` selects.
std::vector<Conv2dProblem> in_some_types(const Conv2dProblem& problem, std::size_t turn) {
  const std::vector<Conv2dProblem> all = in_all_types(problem);
  if (!testing::is_emulated()) return all;
  return {all[0], all[1 + turn % 3]};
}

// Returns "" or an error report. On a GPU, where threads run in any order, a second run must have
// the same bits. The emulation is slow: there an algorithm that is exact on integers runs the case
// `exact`, and either `bounded` or `skewed`, alternating with `turn`.
std::string check_algorithm(ConvolutionCase& exact, ConvolutionCase& bounded,
                            ConvolutionCase& skewed, const Conv2dAlgorithm& algorithm,
                            Direction direction, int turn) {
  std::vector<float> bits[2];
  if (testing::is_emulated() && algorithm.exact_on_integers) {
    ConvolutionCase& other = turn % 2 == 0 ? bounded : skewed;
    other.set_shift(turn % 2);
    const std::string wrong = other.check(algorithm, direction);
    return wrong.empty() ? exact.check(algorithm, direction) : wrong;
  }
  bounded.set_shift(0);
  std::string wrong = bounded.check(algorithm, direction, &bits[0]);
  if (!wrong.empty()) return wrong;
  if (algorithm.deterministic && !testing::is_emulated()) {
    wrong = bounded.check(algorithm, direction, &bits[1]);
    if (!wrong.empty()) return wrong;
    if (!bits[0].empty() &&
        std::memcmp(bits[0].data(), bits[1].data(), bits[0].size() * sizeof(float)) != 0) {
      return cat(algorithm.name, ", ", name_of(direction), " of ", bounded.problem().text(),
                 ": two runs gave different bits");
    }
  }
  skewed.set_shift(1);
  wrong = skewed.check(algorithm, direction);
  if (!wrong.empty() || !algorithm.exact_on_integers) return wrong;
  return exact.check(algorithm, direction);
}

bool every_one(std::size_t) { return true; }

// Checks all algorithms that accept the problems, or only the algorithm `only`. Returns the number
// of checks. Reports only the first failure for each algorithm, direction and type. A problem i for
// which mine(i) is false belongs to another process: it is counted but not checked, so that a
// problem has the same number in every process.
int check_all(const std::vector<Conv2dProblem>& problems, const char* only = nullptr,
              const std::function<bool(std::size_t)>& mine = every_one) {
  int checks = 0;
  std::set<std::string> failed;
  std::map<std::string, int> turns;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const Conv2dProblem& problem = problems[i];
    if (problem.is_empty()) continue;  // no algorithm is called: EveryAlgorithmTakesAnEmptyBatch
    std::unique_ptr<ConvolutionCase> exact;
    std::unique_ptr<ConvolutionCase> bounded;
    std::unique_ptr<ConvolutionCase> skewed;
    for (const auto& [name, algorithm] : algorithms().entries()) {
      if (only != nullptr && name != only) continue;
      for (const Direction direction : kDirections) {
        const std::string key =
            cat(name, name_of(direction), name_of(problem.dtype), name_of(problem.math));
        if (failed.contains(key) || !testing::takes_some_form(algorithm, problem, direction))
          continue;
        if (!mine(i)) {
          ++checks;
          continue;
        }
        if (!exact) {
          exact = std::make_unique<ConvolutionCase>(problem, Tier::exact);
          bounded = std::make_unique<ConvolutionCase>(problem, Tier::bounded);
          constexpr Tier kSkewed[] = {Tier::offset, Tier::flat, Tier::heavy, Tier::alternating,
                                      Tier::one_large};
          skewed = std::make_unique<ConvolutionCase>(problem, kSkewed[checks % 5]);
        }
        ++checks;
        const std::string wrong =
            check_algorithm(*exact, *bounded, *skewed, algorithm, direction, turns[key]++);
        EXPECT_EQ(wrong, "");
        if (!wrong.empty()) failed.insert(key);
      }
    }
  }
  return checks;
}

// Returns the largest number of FLOPs that a problem may have. Problems with more FLOPs are shrunk.
double most_flops() {
  return static_cast<double>(testing::number_from_environment(
      "CONVSCOPE_TEST_FLOPS", testing::is_emulated() ? 30000 : 300000));
}

std::vector<std::string> shapes_files() {
  std::vector<std::string> out;
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(
           testing::source_folder() + "/experiments/shapes", none)) {
    const std::string name = file.path().stem().string();
    const bool is_list = file.path().extension() == ".txt";
    if (is_list && is_list_of(file.path().string())) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

class ShapesFileOnCuda : public Conv2dOnCuda, public ::testing::WithParamInterface<std::string> {};

TEST_P(ShapesFileOnCuda, EveryAlgorithmAgreesWithTheReference) {
  std::vector<Conv2dProblem> problems;
  std::set<std::string> seen;  // two large problems may shrink to the same small one
  for (const Conv2dProblem& problem : testing::shapes_of(GetParam())) {
    const Conv2dProblem first = testing::shrunk(problem, most_flops());
    if (first.nominal_flops() > 10 * most_flops()) continue;  // it cannot be shrunk
    // Each element of dw is a block of some kernels.
    if (testing::is_emulated() && first.w_shape().numel() > 4000) continue;
    if (!seen.insert(first.text()).second) continue;
    const auto types = GetParam() == "edge_cases" && testing::takes_all_entries()
                           ? in_all_types(first)
                           : in_some_types(first, seen.size());
    problems.insert(problems.end(), types.begin(), types.end());
  }
  EXPECT_GT(check_all(problems), 0);
}
INSTANTIATE_TEST_SUITE_P(Conv2dOnCuda, ShapesFileOnCuda, ::testing::ValuesIn(shapes_files()),
                         [](const auto& name) { return name.param; });

TEST_F(Conv2dOnCuda, AgreesWithTheReferenceOnRandomProblems) {
  const auto count = testing::number_from_environment("CONVSCOPE_TEST_RANDOM_PROBLEMS",
                                                      testing::is_emulated() ? 16 : 200);
  const auto seed = testing::number_from_environment("CONVSCOPE_TEST_SEED", 1);
  const testing::RandomShare share = testing::random_share();
  std::vector<Conv2dProblem> problems;
  std::vector<bool> mine;
  for (std::int64_t i = 0; i < count; ++i) {
    const Conv2dProblem problem = testing::shrunk(
        testing::random_problem(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(i)),
        1e5);
    // One type for each problem; the types alternate.
    problems.push_back(in_all_types(problem)[static_cast<std::size_t>(i % 4)]);
    if (i % 4 != 0) problems.push_back(problem);
    mine.resize(problems.size(), share.has(i));
  }
  EXPECT_GT(check_all(problems, nullptr, [&](std::size_t i) { return mine[i]; }), 0);
}

// The problems have more than one tile in each dimension, a partial last tile, and sums that
// several thread blocks share (split K).
TEST_F(Conv2dOnCuda, AgreesWithTheReferenceAcrossTheTilesOfItsKernels) {
  const char* const kTexts[] = {
      "n=2,c=20,h=13,w=13,k=136,r=3,s=3,pad=1",  // K beyond a tile of 128
      "n=1,c=136,h=9,w=9,k=20,r=3,s=3,pad=1",    // same for C
      "n=3,c=33,h=12,w=13,k=65,r=3,s=3,pad=1,stride=2",
      "n=1,c=72,h=44,w=44,k=8,r=3,s=3,stride=2,pad=1",  // dx larger than half of the emulated L2
      "n=2,c=70,h=12,w=12,k=130",                       // 1x1
      "n=2,c=3,h=30,w=67,k=9,r=5,s=5,pad=2",            // wide images, few channels
      "n=2,c=5,h=70,w=67,k=5,r=3,s=3,pad=1,groups=5",   // depthwise over several tiles
      "n=40,c=4,h=6,w=6,k=8,r=3,s=3,pad=1",             // more images than a block takes
  };
  std::vector<Conv2dProblem> problems;
  std::size_t turn = 0;
  for (const char* text : kTexts) {
    if (!testing::takes_entry(turn++)) continue;
    const auto types = in_some_types(Conv2dProblem::parse(text), turn);
    problems.insert(problems.end(), types.begin(), types.end());
  }
  EXPECT_GT(check_all(problems), 0);
}

TEST_F(Conv2dOnCuda, EveryAlgorithmTakesAnEmptyBatch) {
  for (const auto& [name, algorithm] : algorithms().entries()) {
    if (name.starts_with("int8")) continue;  // int8_cuda_test.cpp checks integer algorithms
    EXPECT_EQ(testing::fault_with_no_images(algorithm), "");
  }
}

TEST_F(Conv2dOnCuda, PassesTheProblemOfTheEnvironment) {
  const char* text = std::getenv("CONVSCOPE_TEST_PROBLEM");
  if (text == nullptr) GTEST_SKIP() << "CONVSCOPE_TEST_PROBLEM names the problem";
  const char* only = std::getenv("CONVSCOPE_TEST_ALGORITHM");
  EXPECT_GT(check_all({Conv2dProblem::parse(text)}, only), 0) << "no algorithm accepts it";
}

TEST_F(Conv2dOnCuda, SpreadsANaNExactlyWhereItIsRead) {
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=2,c=3,h=9,w=21,k=5,r=3,s=3,pad=1,stride=1x2");
  const Tensor x = Tensor::full(problem.x_shape(), 1.0);
  x.data<float>()[(3 + 1) * 9 * 21 + 4 * 21 + 10] = std::nanf("");  // n 1, c 1, h 4, w 10
  const Tensor x_there = x.to(cuda());
  const Tensor w = Tensor::full(problem.w_shape(), 0.5).to(cuda());
  for (const auto& [name, algorithm] : algorithms().entries()) {
    if (!support_of(algorithm, problem, Direction::forward).yes) continue;
    const Scratch<Conv2dProblem> scratch(algorithm, problem, Direction::forward, cuda());
    const Tensor y = Tensor::zeros(problem.y_shape(), DType::f32, cuda());
    algorithm.forward({problem,
                       x_there.raw_data(),
                       w.raw_data(),
                       nullptr,
                       y.raw_data(),
                       scratch.workspace(),
                       {},
                       scratch.prepare(w.raw_data())});
    const std::vector<float> values = testing::values_of<float>(y);
    for (std::int64_t i = 0; i < problem.y_shape().numel(); ++i) {
      const std::int64_t n = i / (problem.k * problem.p() * problem.q());
      const std::int64_t p = i / problem.q() % problem.p();
      const std::int64_t q = i % problem.q();
      const bool reads = n == 1 && std::abs(p - 4) <= 1 && std::abs(2 * q - 10) <= 1;
      ASSERT_EQ(std::isnan(values[static_cast<std::size_t>(i)]), reads) << name << " at " << i;
    }
  }
}

// ---- other ways of running an algorithm: each wraps `inner` -------------------------------------

const Conv2dAlgorithm* inner = nullptr;

template <class Run>
void record_and_replay(const Run& run) {
  const DeviceBackend& backend = backend_of(cuda());
  backend.begin_recording(0);
  run();
  void* recording = backend.end_recording(0);
  backend.replay(0, recording);
  backend.synchronize(0);
  backend.free_recording(0, recording);
}

TEST_F(Conv2dOnCuda, EveryAlgorithmCanBeRecordedAndReplayed) {
  for (const char* text : {"n=2,c=4,h=9,w=10,k=8,r=3,s=3,pad=1", "n=2,c=8,h=9,w=10,k=8",
                           "n=2,c=6,h=9,w=10,k=6,r=3,s=3,groups=6"}) {
    for (const Conv2dProblem& problem : in_all_types(Conv2dProblem::parse(text))) {
      ConvolutionCase one(problem, Tier::bounded);
      for (const auto& [name, algorithm] : algorithms().entries()) {
        Conv2dAlgorithm recorded = algorithm;
        recorded.forward = [](const Conv2dForwardArgs& args) {
          record_and_replay([&] { inner->forward(args); });
        };
        recorded.backward_data = [](const Conv2dBackwardDataArgs& args) {
          record_and_replay([&] { inner->backward_data(args); });
        };
        recorded.backward_weight = [](const Conv2dBackwardWeightArgs& args) {
          record_and_replay([&] { inner->backward_weight(args); });
        };
        inner = &algorithm;
        for (const Direction direction : kDirections) {
          if (!support_of(algorithm, problem, direction).yes) continue;
          std::vector<float> direct;
          std::vector<float> replayed;
          ASSERT_EQ(one.check(algorithm, direction, &direct), "");  // also makes cached data
          ASSERT_EQ(one.check(recorded, direction, &replayed), "") << "recorded";
          EXPECT_TRUE(direct == replayed) << name << ", " << name_of(direction) << " of "
                                          << problem.text() << ": other bits when recorded";
        }
      }
    }
  }
}

TEST_F(Conv2dOnCuda, AFusedEpilogueHasTheBitsOfTheSeparatePass) {
  for (const char* text : {"n=2,c=5,h=9,w=11,k=21,r=3,s=3,pad=1", "n=2,c=20,h=10,w=9,k=19",
                           "n=2,c=6,h=9,w=9,k=6,r=3,s=3,groups=6"}) {
    const Conv2dProblem problem = Conv2dProblem::parse(text);
    const auto random = [](const Shape& shape, std::uint64_t stream) {
      const testing::Numbers numbers(shape.numel(), Tier::bounded, stream, DType::f32);
      return Tensor::from(
                 std::span<const float>(numbers.data(), static_cast<std::size_t>(shape.numel())),
                 shape)
          .to(cuda());
    };
    const Tensor x = random(problem.x_shape(), 1);
    const Tensor w = random(problem.w_shape(), 2);
    const Tensor b = random({problem.k}, 3);
    const Tensor residual = random(problem.y_shape(), 4);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      if (!algorithm.fuses_epilogue || !support_of(algorithm, problem, Direction::forward).yes)
        continue;
      const auto run = [&](const Conv2dEpilogue& epilogue) {
        const Scratch<Conv2dProblem> scratch(algorithm, problem, Direction::forward, cuda());
        const Tensor y = Tensor::full(problem.y_shape(), 7.0).to(cuda());
        algorithm.forward({problem, x.raw_data(), w.raw_data(), b.raw_data(), y.raw_data(),
                           scratch.workspace(), epilogue, scratch.prepare(w.raw_data())});
        return testing::values_of<float>(y);
      };
      const std::vector<float> plain = run({});
      const std::vector<float> added = testing::values_of<float>(residual);
      for (const bool relu : {false, true}) {
        for (const bool add : {false, true}) {
          std::vector<float> expected = plain;
          for (std::size_t i = 0; i < expected.size(); ++i) {
            if (add) expected[i] += added[i];
            if (relu && expected[i] < 0) expected[i] = 0;
          }
          EXPECT_TRUE(run({add ? residual.raw_data() : nullptr, relu}) == expected)
              << name << " of " << text << (relu ? ", relu" : "") << (add ? ", residual" : "");
        }
      }
    }
  }
}

// ---- the check itself --------------------------------------------------------------------------

enum class Mistake { none, one_sum, one_element, behind, in_front, workspace, unwritten, input };
Mistake mistake = Mistake::none;

// Runs im2col_gemm and then makes one mistake in y. y is in device memory, so the wrong value is
// copied to the device.
void wrong_forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const Conv2dAlgorithm right = algorithms().get("im2col_gemm");
  right.forward(args);
  const DeviceBackend& backend = backend_of(cuda());
  auto* const y = static_cast<float*>(args.y);
  const std::int64_t count = problem.y_shape().numel();
  const auto put = [&](float* to, float value) {
    backend.copy_from_host(0, to, &value, sizeof(value));
  };
  const auto get = [&](const void* from, std::int64_t i) {
    float value = 0;
    backend.copy_to_host(0, &value, static_cast<const float*>(from) + i, sizeof(value));
    return value;
  };
  switch (mistake) {
    case Mistake::none:
      return;
    case Mistake::one_sum:  // the last product of the last sum is lost
      put(y + count - 1, get(y, count - 1) - get(args.x, problem.x_shape().numel() - 1) *
                                                 get(args.w, problem.w_shape().numel() - 1));
      return;
    case Mistake::one_element:
      put(y + count / 2, get(y, count / 2 - 1));
      return;
    case Mistake::behind:
      put(y + count, 0);
      return;
    case Mistake::in_front:
      put(y - 1, 0);
      return;
    case Mistake::workspace:
      backend.fill_bytes(0,
                         static_cast<unsigned char*>(args.workspace) +
                             right.workspace_bytes(problem, Direction::forward),
                         0, 1);
      return;
    case Mistake::unwritten:
      put(y + count - 1, std::nanf(""));
      return;
    case Mistake::input:
      put(const_cast<float*>(static_cast<const float*>(args.w)), 0.5f);
      return;
  }
}

TEST_F(Conv2dOnCuda, TheCheckCatchesADeliberatelyWrongKernel) {
  Conv2dAlgorithm wrong = algorithms().get("im2col_gemm");
  wrong.name = "wrong";
  wrong.forward = wrong_forward;
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=24,h=9,w=11,k=5,r=3,s=3");
  const std::pair<Mistake, const char*> kMistakes[] = {
      {Mistake::none, ""},
      {Mistake::one_sum, "first wrong element 629 of 630"},
      {Mistake::one_element, "first wrong element 315 of 630"},
      {Mistake::behind, "wrote past the end of the output"},
      {Mistake::in_front, "wrote before the start of the output"},
      {Mistake::workspace, "wrote past the end of the workspace"},
      {Mistake::unwritten, "got nan"},
      {Mistake::input, "wrote to an input"},
  };
  for (const Tier tier : {Tier::exact, Tier::bounded}) {
    ConvolutionCase one(problem, tier);
    for (const auto& [kind, sentence] : kMistakes) {
      mistake = kind;
      const std::string report = one.check(wrong, Direction::forward);
      if (kind == Mistake::none) {
        EXPECT_EQ(report, "");
        continue;
      }
      EXPECT_NE(report.find(sentence), std::string::npos) << "got: " << report;
      EXPECT_NE(report.find("wrong on cuda, forward of n=2,c=24,h=9,w=11"), std::string::npos);
      EXPECT_NE(report.find("test_cuda --gtest_filter=Conv2dOnCuda.Passes"), std::string::npos);
    }
  }
  mistake = Mistake::none;
}

// Computing f32 silently in TF32 exceeds the bounds of f32.
TEST_F(Conv2dOnCuda, TheCheckCatchesProductsInTf32ThatShouldBeF32) {
  Conv2dAlgorithm rounded = algorithms().get("im2col_gemm");
  rounded.forward = [](const Conv2dForwardArgs& args) {
    Conv2dProblem problem = args.problem;
    problem.math = MathMode::tf32;
    algorithms()
        .get("im2col_gemm")
        .forward({problem, args.x, args.w, args.b, args.y, args.workspace});
  };
  ConvolutionCase one(Conv2dProblem::parse("n=2,c=24,h=9,w=11,k=5,r=3,s=3"), Tier::bounded);
  EXPECT_NE(one.check(rounded, Direction::forward), "");
}

// Each problem belongs to exactly one share. An invalid value of CONVSCOPE_TEST_RANDOM_SHARE must
// be an error, not a selection of all shares.
TEST(RandomShare, HasEachProblemOnce) {
  constexpr const char* kName = "CONVSCOPE_TEST_RANDOM_SHARE";
  std::vector<int> taken(25, 0);
  for (const char* text : {"1/6", "2/6", "3/6", "4/6", "5/6", "6/6"}) {
    setenv(kName, text, 1);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      taken[i] += testing::random_share().has(static_cast<std::int64_t>(i)) ? 1 : 0;
    }
  }
  EXPECT_EQ(taken, std::vector<int>(25, 1));
  for (const char* text : {"0/6", "7/6", "2", "2/", "/6", "2/6x", "two"}) {
    setenv(kName, text, 1);
    EXPECT_THROW(testing::random_share(), Error) << text;
  }
  unsetenv(kName);
  EXPECT_TRUE(testing::random_share().has(7));
}

// ---- the table ---------------------------------------------------------------------------------

TEST_F(Conv2dOnCuda, HasAAlgorithmForEveryAlgorithmFile) {
  std::set<std::string> registered;
  for (const auto& [name, algorithm] : algorithms().entries()) {
    const std::string file = std::filesystem::path(algorithms().file_of(name)).filename().string();
    // winograd_cuda.cu registers two tile sizes.
    EXPECT_TRUE(file == name + "_cuda.cu" || (file == "winograd_cuda.cu" &&
                                              (name == "winograd_f2x3" || name == "winograd_f4x3")))
        << name << " is in " << file;
    registered.insert(file);
    EXPECT_EQ(algorithm.device, DeviceType::cuda) << name;
    EXPECT_GT(std::string_view(algorithm.idea).size(), 10u) << name;
    EXPECT_GT(std::string_view(algorithm.paper).size(), 10u) << name;
    EXPECT_GT(algorithm.error_growth, 0.0) << name;
  }
  std::set<std::string> found;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(testing::source_folder() + "/layers/conv2d")) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with("_cuda.cu")) continue;
    std::ifstream source(entry.path());
    const std::string text((std::istreambuf_iterator<char>(source)), {});
    if (text.find("\nCONVSCOPE_CONV2D_ALGORITHM(") != std::string::npos) found.insert(file);
  }
  EXPECT_EQ(registered, found);
}

}  // namespace
}  // namespace convscope

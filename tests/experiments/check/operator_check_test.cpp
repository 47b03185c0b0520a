// SPDX-License-Identifier: Apache-2.0
// operator_check_test.cpp: tests `convscope check` on the operators that are compared with their
// algorithm `reference`: the verdicts on right and on faulty algorithms, and on bad input.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/bench/sparse/cloud_problem.h"
#include "experiments/check/reference_check.h"
#include "layers/sparse_conv/algorithm.h"
#include "tests/support/call_program.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;

TEST(CheckOfOperators, EachAlgorithmAgreesWithTheReference) {
  // Some algorithms of conv_transpose2d take only one of its problems, in three directions with
  // three kinds of numbers.
  const std::pair<std::string, int> least_cases[] = {
      {"conv_transpose2d", 9}, {"deform_conv2d", 21}, {"sparse_conv", 21}};
  for (const auto& [operation, least] : least_cases) {
    const Called called = call_program("check " + operation + " --quick --json -");
    ASSERT_EQ(called.code, 0) << called.out << called.err;
    const Json marks = Json::parse(called.out);
    EXPECT_EQ(marks["settings"]["operation"], operation);
    EXPECT_EQ(marks["complete"], true);
    EXPECT_GT(marks["rows"].size(), 2u);
    for (const Json& row : marks["rows"]) {
      EXPECT_EQ(row["status"], "ok") << row;
      EXPECT_GE(row["cases"], least) << row;
      EXPECT_EQ(row["directions"].size(), 3u) << row;
      EXPECT_EQ(row["features"].size(), 4u) << row;
    }
  }
}

// ---- faulty algorithms ------------------------------------------------------------------------

using SparseAlgorithm = Algorithm<SparseConvProblem>;

const SparseAlgorithm& right() {
  return Operator<SparseConvProblem>::algorithms(DeviceType::cpu).get("implicit_gemm");
}

CheckedAlgorithm checked(const SparseAlgorithm& algorithm, const CheckSettings& settings = {}) {
  const MachineScope scope;
  const CheckNote note = [](const std::string&) {};
  return ReferenceCheck<SparseConvProblem>(algorithm, settings, note)
      .run({.texts = {"cloud=ink,sites=60,kernel=3x3,c=5,k=7"},
            .parse = [](const std::string& text) {
              const CloudProblem cloud = CloudProblem::parse(text);
              return cloud.on(cloud.map());
            }});
}

TEST(ReferenceCheck, PassesTheAlgorithmsOfTheProgram) {
  const CheckedAlgorithm found = checked(right());
  EXPECT_EQ(found.row.status, "ok") << found.row.cause << found.row.where;
  EXPECT_EQ(found.problem, "");
}

TEST(ReferenceCheck, NamesTheElementThatIsWrong) {
  SparseAlgorithm wrong = right();
  wrong.backward_weight = [](const SparseConvBackwardWeightArgs& args) {
    right().backward_weight(args);
    static_cast<float*>(args.dw)[13] += 1;
  };
  const CheckedAlgorithm found = checked(wrong);
  EXPECT_EQ(found.row.status, "wrong");
  EXPECT_EQ(found.row.cause,
            "dw differs from the result of the algorithm reference in 1 of 315 elements");
  EXPECT_TRUE(found.row.where.starts_with("dw[0,1,1,1]: got ")) << found.row.where;
  EXPECT_TRUE(found.row.first.starts_with("backward_weight of cloud=ink,")) << found.row.first;
  EXPECT_EQ(found.problem, "cloud=ink,sites=60,kernel=3x3,c=5,k=7");
}

TEST(ReferenceCheck, FindsALostBiasAndAnAssignedGradient) {
  SparseAlgorithm wrong = right();
  wrong.forward = [](const SparseConvForwardArgs& args) {
    SparseConvForwardArgs other = args;
    other.b = nullptr;
    right().forward(other);
  };
  EXPECT_NE(checked(wrong).row.first.find(", with a bias, integers"), std::string::npos);
  wrong = right();
  wrong.backward_weight = [](const SparseConvBackwardWeightArgs& args) {
    SparseConvBackwardWeightArgs other = args;
    other.accumulate = false;
    right().backward_weight(other);
  };
  EXPECT_NE(checked(wrong).row.first.find(", accumulating, integers"), std::string::npos);
}

TEST(ReferenceCheck, FindsElementsThatAreNotWrittenAndDamagedMemory) {
  SparseAlgorithm wrong = right();
  wrong.backward_data = [](const SparseConvBackwardDataArgs&) {};
  EXPECT_NE(checked(wrong).row.where.find("got nan"), std::string::npos);
  wrong = right();
  wrong.forward = [](const SparseConvForwardArgs& args) {
    right().forward(args);
    static_cast<float*>(args.workspace)[-1] = 0;
  };
  EXPECT_EQ(checked(wrong).row.cause, "it wrote before the start of the workspace");
}

TEST(ReferenceCheck, HoldsAAlgorithmToItsBoundAndToRequiredFeatures) {
  SparseAlgorithm wrong = right();
  wrong.exact_on_integers = false;
  wrong.forward = [](const SparseConvForwardArgs& args) {
    right().forward(args);
    for (std::int64_t i = 0; i < args.problem.y_shape().numel(); ++i) {
      static_cast<float*>(args.y)[i] *= 1.001f;
    }
  };
  EXPECT_TRUE(checked(wrong).row.cause.ends_with("by more than both error bounds allow"));
  wrong = right();
  wrong.backward_data = nullptr;
  const CheckedAlgorithm found = checked(wrong, {.require = {"backward", "forward"}});
  EXPECT_EQ(found.row.status, "unmet");
  EXPECT_NE(found.row.cause.find("backward: it does not compute backward_data"), std::string::npos);
  ASSERT_EQ(found.row.unmet.size(), 1u);
}

// ---- bad input --------------------------------------------------------------------------------

void expect_refusal(const std::string& words, int code, const std::string& sentence) {
  const Called called = call_program("check " + words);
  EXPECT_EQ(called.code, code) << words << called.out << called.err;
  EXPECT_NE(called.err.find(sentence), std::string::npos) << called.err;
}

TEST(CheckOfOperators, RefusesBadInputInASentence) {
  expect_refusal("", 2,
                 "expected an operator (conv2d, conv_transpose2d, deform_conv2d or "
                 "sparse_conv) or --plugin");
  expect_refusal("deform_conv", 2, "did you mean 'deform_conv2d'?");
  expect_refusal("deform_conv2d fussed", 5, "did you mean 'fused'?");
  expect_refusal("sparse_conv native --require stride", 2,
                 "expected --require to be all or some of forward,backward,");
  expect_refusal("sparse_conv native --problem n=1,c=2", 2, "cloud=shell");
  expect_refusal("deform_conv2d fused --problem c=4,h=9,w=9,k=4,groups=3", 2, "deform_conv2d");
  expect_refusal("sparse_conv --plugin missing.so", 2,
                 "expected conv2d with --plugin because plug-ins have algorithms of it");
}

}  // namespace
}  // namespace convscope::testing

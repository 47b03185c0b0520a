// SPDX-License-Identifier: Apache-2.0
// pipeline_test.cpp: the list of passes over the graph of a compiled step.
#include "layers/plan/pipeline.h"

#include <gtest/gtest.h>

#include <set>

#include "framework/ops/elementwise.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

// A pass that is in the list, but that no file defines, would be noticed only on its device.
TEST(Pipeline, DefinesEachPassOfTheList) {
  std::set<std::string_view> names;
  for (const Pass& pass : passes()) {
    EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
    EXPECT_TRUE(pass.on_cpu || pass.on_cuda) << pass.name;
    EXPECT_FALSE(pass.what.empty()) << pass.name;
    Graph graph({2, 3, 4, 4}, PlanMode::inference);
    graph.set_result(graph.value_of(relu(graph.variable(Graph::input()))));
    run_pass(pass.name, graph);
    EXPECT_EQ(graph.ops().size(), 1u) << pass.name;
  }
}

TEST(Pipeline, NamesAPassThatNoFileDefines) {
  Graph graph({2, 3}, PlanMode::inference);
  EXPECT_NE(testing::error_of([&] { run_pass("polish", graph); }).find("got 'polish'"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope

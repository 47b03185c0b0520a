// SPDX-License-Identifier: Apache-2.0
// kernel_runs_test.cpp: tests that each run of a kernel is counted under the name of its algorithm.
#include "layers/dispatch/kernel_runs.h"

#include <gtest/gtest.h>

#include "framework/tensor.h"
#include "layers/conv2d/select.h"
#include "layers/dispatch/algorithm_function.h"
#include "layers/dispatch/execute.h"

namespace convscope {
namespace {

struct TwiceArgs {
  const Conv2dProblem& problem;
  int* value;
};
void twice(const TwiceArgs& args) { *args.value *= 2; }

TEST(AlgorithmFunction, IsUsedLikeTheFunctionThatItHolds) {
  AlgorithmFunction<TwiceArgs> f;
  EXPECT_TRUE(f == nullptr);
  f = twice;
  ASSERT_TRUE(f != nullptr);
  const Conv2dProblem problem;
  int value = 3;
  f({problem, &value});
  EXPECT_EQ(value, 6);
  f = [](const TwiceArgs& args) { *args.value = 1; };
  f({problem, &value});
  EXPECT_EQ(value, 1);
  f = nullptr;
  EXPECT_TRUE(f == nullptr);
}

TEST(AlgorithmFunction, SaysItsNameAndLosesItWithItsFunction) {
  AlgorithmFunction<TwiceArgs> f = twice;
  const Conv2dProblem problem{.n = 2};
  int value = 1;
  const KernelCounter counter;
  f({problem, &value});  // no name: not registered
  EXPECT_TRUE(counter.runs().empty());
  f.set_name("twice", "forward");
  f({problem, &value});
  f({problem, &value});
  const std::map<KernelRun, std::int64_t> two{{{"twice", "forward", problem.text()}, 2}};
  EXPECT_EQ(counter.runs(), two);
  f = [](const TwiceArgs&) {};  // another function must not run under the old name
  f({problem, &value});
  EXPECT_EQ(counter.runs(), two);
}

TEST(KernelCounter, CountsOnlyWhileItLives) {
  const Conv2dProblem problem;
  kernel_ran("early", "forward", problem);
  {
    KernelCounter counter;
    EXPECT_TRUE(counter.runs().empty());
    kernel_ran("now", "forward", problem);
    EXPECT_EQ(counter.runs().size(), 1u);
    counter.forget();
    EXPECT_TRUE(counter.runs().empty());
    EXPECT_THROW(KernelCounter(), Error);
    kernel_ran("now", "forward", problem);  // the first one still counts
    EXPECT_EQ(counter.runs().size(), 1u);
  }
  const KernelCounter next;
  EXPECT_TRUE(next.runs().empty());
}

TEST(KernelCounter, SeesTheAlgorithmsOfTheTableInEveryDirection) {
  const Conv2dProblem z{.n = 2, .c = 3, .h = 6, .w = 6, .k = 4, .r = 3, .s = 3};
  const Tensor x = Tensor::zeros(z.x_shape());
  const Tensor w = Tensor::zeros(z.w_shape());
  const Tensor y = Tensor::zeros(z.y_shape());
  const Conv2dChoice choice = select_conv2d("im2col_gemm", z, Direction::forward, Device{});
  const Conv2dChoice checked = select_conv2d("check:direct,reference", z, Direction::forward, {});
  const KernelCounter counter;
  execute(choice, z, Direction::forward, {.in = {x, w}, .out = {y}});
  execute(choice, z, Direction::backward_data, {.in = {y, w}, .out = {x}});
  execute(choice, z, Direction::backward_weight, {.in = {x, y}, .out = {w}});
  const std::map<KernelRun, std::int64_t> three{{{"im2col_gemm", "forward", z.text()}, 1},
                                                {{"im2col_gemm", "backward_data", z.text()}, 1},
                                                {{"im2col_gemm", "backward_weight", z.text()}, 1}};
  EXPECT_EQ(counter.runs(), three);
  execute(checked, z, Direction::forward, {.in = {x, w}, .out = {y}});
  EXPECT_TRUE(counter.runs().contains({"direct", "forward", z.text()}));
  EXPECT_TRUE(counter.runs().contains({"reference", "forward", z.text()}));
}

}  // namespace
}  // namespace convscope

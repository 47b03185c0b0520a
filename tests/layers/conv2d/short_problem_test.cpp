// SPDX-License-Identifier: Apache-2.0
// short_problem_test.cpp: convolutions of a few microseconds wake no other thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

std::atomic<int> others{0};  // chunks that another thread took

void forward(const Conv2dForwardArgs&) {
  const std::thread::id here = std::this_thread::get_id();
  parallel_chunks(32, [&](std::int64_t, int) {
    if (std::this_thread::get_id() != here) ++others;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
}

int chunks_of_others(const char* text) {
  const Conv2dAlgorithm algorithm{
      .name = "sleeper",
      .workspace_bytes = [](const Conv2dProblem&, Direction) { return std::size_t{0}; },
      .forward = forward};
  const Conv2dProblem problem = Conv2dProblem::parse(text);
  const Tensor x = Tensor::zeros(problem.x_shape()), w = Tensor::zeros(problem.w_shape());
  others = 0;
  run_algorithm(algorithm, problem, Direction::forward,
                {.in = {x, w}, .out = {Tensor::zeros(problem.y_shape())}});
  return others;
}

TEST(ShortProblem, StaysInTheThreadThatCalls) {
  const testing::MachineScope scope;
  set_flops_worth_threads(kFlopsWorthThreads);
  set_num_threads(2);
  EXPECT_EQ(chunks_of_others("n=1,c=16,h=7,w=7,k=16,r=3,s=3,pad=1"), 0);    // 226 kFLOP
  EXPECT_GT(chunks_of_others("n=1,c=64,h=14,w=14,k=64,r=3,s=3,pad=1"), 0);  // 14 MFLOP
}

}  // namespace
}  // namespace convscope

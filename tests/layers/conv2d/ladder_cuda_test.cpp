// SPDX-License-Identifier: Apache-2.0
// ladder_cuda_test.cpp: tests the ladders of GPU algorithms. The algorithms are registered when the
// program opens the CUDA library.
#include "tests/support/cuda.h"
#include "tests/support/ladders.h"

namespace convscope {
namespace {

using Conv2dLadderOnCuda = testing::CudaTest;

TEST_F(Conv2dLadderOnCuda, EveryRungNamesAAlgorithmThatTakesTheLaddersProblem) {
  testing::check_rungs(DeviceType::cuda);
}

}  // namespace
}  // namespace convscope

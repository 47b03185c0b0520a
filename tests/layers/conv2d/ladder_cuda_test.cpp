// SPDX-License-Identifier: Apache-2.0
// ladder_cuda_test.cpp: the ladders of the GPU: their algorithms are registered when the CUDA
// library is opened.
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

// SPDX-License-Identifier: Apache-2.0
// activations_cuda_test.cpp: activations on `device cuda`, compared with the CPU.
#include "layers/activations/activations.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using ActivationsOnCuda = testing::CudaTest;

// exp of the GPU may differ from that of the CPU by a few units in the last place.
TEST_F(ActivationsOnCuda, HaveTheValuesAndGradientsOfTheCpu) {
  for (const char* name : {"silu", "hard_swish"}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const Shape& shape : {Shape{3, 5, 3}, Shape{1029}, Shape{0, 4}}) {
        SCOPED_TRACE(cat(name, " ", shape, " ", name_of(dtype)));
        testing::expect_gradients_like_cpu([&](const auto& v) { return activation(name, v[0]); },
                                           {testing::normal(shape, dtype, 1)},
                                           testing::few_ulp(dtype, 16));
      }
    }
  }
}

}  // namespace
}  // namespace convscope

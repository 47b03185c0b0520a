// SPDX-License-Identifier: Apache-2.0
// gelu_cuda_test.cpp: GELU on `device cuda`, compared with the CPU.
#include "layers/gelu.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using GeluOnCuda = testing::CudaTest;

// erf and exp of the GPU may differ from those of the CPU by a few units in the last place.
TEST_F(GeluOnCuda, HasTheValuesAndGradientsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{3, 5, 3}, Shape{1029}, Shape{0, 4}}) {
      SCOPED_TRACE(cat(shape, " ", name_of(dtype)));
      testing::expect_gradients_like_cpu([](const auto& v) { return gelu(v[0]); },
                                         {testing::normal(shape, dtype, 1)},
                                         testing::few_ulp(dtype, 16));
    }
  }
}

}  // namespace
}  // namespace convscope

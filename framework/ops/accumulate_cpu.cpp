// SPDX-License-Identifier: Apache-2.0
// accumulate_cpu.cpp: to += from on the CPU, in f32 and f64.
#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise_simd.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

void accumulate_cpu(const Tensor& to, const Tensor& from) {
  if (to.dtype() == DType::f64) {
    double* const a = to.data<double>();
    const double* const b = from.data<double>();
    for (std::int64_t i = 0; i < to.numel(); ++i) a[i] += b[i];
    return;
  }
  CONVSCOPE_CHECK(to.dtype() == DType::f32, "accumulate", "expected f32 or f64, got ", to.str());
  float* const a = to.data<float>();
  const float* const b = from.data<float>();
  const auto add_into = elementwise_kernels.get().add_into;
  parallel_for(to.numel(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    add_into(b + begin, a + begin, end - begin);
  });
}

}  // namespace
CONVSCOPE_KERNEL(accumulate_kernel, cpu, accumulate_cpu)
}  // namespace convscope

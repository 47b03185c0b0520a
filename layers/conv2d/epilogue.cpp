// SPDX-License-Identifier: Apache-2.0
// epilogue.cpp: computes y = relu(y + residual), on a finished part of y or on all of y.
#include "layers/conv2d/epilogue.h"

#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<EpilogueKernels> epilogue_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 15;  // as in elementwise_cpu.cpp

void apply_cpu(const Conv2dEpilogue& epilogue, const Tensor& y) {
  if (y.dtype() == DType::f64) {
    double* const to = y.data<double>();
    const auto* const residual = static_cast<const double*>(epilogue.residual);
    const double most = epilogue.most;
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      const double sum = residual == nullptr ? to[i] : to[i] + residual[i];
      to[i] = epilogue.relu && sum <= 0 ? 0 : epilogue.relu && sum > most ? most : sum;
    }
    return;
  }
  float* const to = y.data<float>();
  const auto* const residual = static_cast<const float*>(epilogue.residual);
  const auto apply = epilogue_kernels.get().apply;
  parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    apply(to + begin, residual == nullptr ? nullptr : residual + begin, epilogue.relu,
          epilogue.most, 1, end - begin, 0);
  });
}

}  // namespace

constinit KernelSlot<void(const Conv2dEpilogue&, const Tensor&)> conv2d_epilogue_kernel{"conv2d"};

CONVSCOPE_KERNEL(conv2d_epilogue_kernel, cpu, apply_cpu)
}  // namespace convscope

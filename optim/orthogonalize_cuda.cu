// SPDX-License-Identifier: Apache-2.0
// orthogonalize_cuda.cu: the normalised momentum of a matrix, from which Muon starts.
//
// Method    The first kernel computes u and a sum of squares per block. In the second kernel, each
//           block adds these sums in the same order and scales its part of u.
#include <algorithm>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/scratch.cuh"
#include "optim/orthogonalize.h"

namespace convscope {
namespace {

constexpr std::int64_t kMaxBlocks = 512;  // partial sums

template <class T>
__global__ void __launch_bounds__(kThreads) look_ahead(const DirectionArguments a, double* part) {
  __shared__ double scratch[32];
  const T* const dw = static_cast<const T*>(a.dw);
  const T* const m = static_cast<const T*>(a.m);
  T* const x = static_cast<T*>(a.x);
  const T q = static_cast<T>(a.look_ahead);
  double sum = 0;
  for (std::int64_t i = global_thread(); i < a.count; i += global_threads()) {
    const T u = dw[i] + q * (m[i] - dw[i]);
    x[i] = u;
    sum += static_cast<double>(u) * static_cast<double>(u);
  }
  const double total = block_sum(sum, scratch);
  if (threadIdx.x == 0) part[blockIdx.x] = total;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    normalise(const DirectionArguments a, const double* part, unsigned parts) {
  __shared__ double scratch[32];
  double sum = 0;
  for (unsigned i = threadIdx.x; i < parts; i += blockDim.x) sum += part[i];
  const double norm = ::sqrt(block_sum(sum, scratch));
  const T factor = static_cast<T>(1 / (norm > a.epsilon ? norm : a.epsilon));
  T* const x = static_cast<T*>(a.x);
  for (std::int64_t i = global_thread(); i < a.count; i += global_threads()) x[i] *= factor;
}

template <class T>
void direction(const DirectionArguments& a) {
  const std::int64_t blocks = std::min(kMaxBlocks, ceil_div(a.count, std::int64_t{4} * kThreads));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
  auto* const part = cuda_scratch_of<double>(static_cast<std::size_t>(blocks));
  launch(look_ahead<T>, shape, a, part);
  launch(normalise<T>, shape, a, part, static_cast<unsigned>(blocks));
}

void direction_cuda(Device, const DirectionArguments& a) {
  a.dtype == DType::f64 ? direction<double>(a) : direction<float>(a);
}

}  // namespace
CONVSCOPE_KERNEL(direction_kernel, cuda, direction_cuda)
}  // namespace convscope

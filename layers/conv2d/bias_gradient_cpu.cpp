// SPDX-License-Identifier: Apache-2.0
// bias_gradient_cpu.cpp: db on the CPU: the sum of dy over all axes except the channels.
#include <algorithm>

#include "framework/ops/reduce_simd.h"
#include "framework/parallel.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/dispatch/layout/block_slices.h"

namespace convscope {
namespace {

double row_sum(const float* x, std::int64_t count) {
  return reduce_kernels.get().row_sum(x, count);
}
double row_sum(const double* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i];
  return sum;
}

// Adds images in order, in double precision, so that the bits do not depend on the number of
// threads.
template <class T>
void sum_into(const Tensor& dy, const Tensor& db, bool accumulate) {
  const std::int64_t n_count = dy.dim(0);
  const std::int64_t k_count = dy.dim(1);
  const std::int64_t plane = dy.dim(2) * dy.dim(3);
  const T* const from = dy.data<T>();
  T* const to = db.data<T>();
  // A thread takes about 16 thousand elements; the split depends only on the sizes.
  const std::int64_t grain = 1 + 16384 / (1 + n_count * plane);
  parallel_for(k_count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      double sum = accumulate ? static_cast<double>(to[k]) : 0.0;
      for (std::int64_t n = 0; n < n_count; ++n) {
        sum += row_sum(from + (n * k_count + k) * plane, plane);
      }
      to[k] = static_cast<T>(sum);
    }
  });
}

// Sums dy [N,K/16,P,Q,16]: 16 channels at a time.
void sum_blocks_into(const Tensor& dy, const Tensor& db, bool accumulate) {
  constexpr float kFromZero[BlockSlices::kLanes] = {};
  const BlockSlices slices(dy.shape());
  const float* const from = dy.data<float>();
  float* const to = db.data<float>();
  const auto sums_of_16 = reduce_kernels.get().sums_of_16;
  slices.for_blocks([&](std::int64_t block) {
    double total[BlockSlices::kLanes];
    slices.sum<1>(block, total, [&](std::int64_t at, std::int64_t pixels, double* sums) {
      sums_of_16(from + at, pixels, kFromZero, sums);
    });
    const std::int64_t first = block * BlockSlices::kLanes;
    for (std::int64_t k = first; k < std::min(first + BlockSlices::kLanes, db.numel()); ++k) {
      const double before = accumulate ? static_cast<double>(to[k]) : 0.0;
      to[k] = static_cast<float>(before + total[k - first]);
    }
  });
}

void bias_gradient(const Tensor& dy, const Tensor& db, bool accumulate) {
  if (dy.rank() == 5) return sum_blocks_into(dy, db, accumulate);
  dy.dtype() == DType::f64 ? sum_into<double>(dy, db, accumulate)
                           : sum_into<float>(dy, db, accumulate);
}

}  // namespace

constinit KernelSlot<void(const Tensor&, const Tensor&, bool)> conv2d_bias_gradient_kernel{
    "conv2d"};

CONVSCOPE_KERNEL(conv2d_bias_gradient_kernel, cpu, bias_gradient)
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// dice_cuda.cu: the soft Dice loss on a GPU. A block sums one class over all rows; then each thread
// computes the gradient of a row.
#include "framework/cuda/launch.cuh"
#include "layers/losses/dice.h"

namespace convscope {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    dice_sums(const T* p, const std::int32_t* labels, std::int64_t rows, std::int64_t classes,
              T* factors, T* terms) {
  __shared__ double first[32], second[32];
  const std::int64_t k = blockIdx.x;
  double overlap = 0, sum = 0;
  for (std::int64_t r = threadIdx.x; r < rows; r += kThreads) {
    const auto value = static_cast<double>(p[r * classes + k]);
    const bool own = labels[r] == k;
    overlap += own ? value : 0.0;
    sum += own ? value + 1 : value;
  }
  overlap = block_sum(overlap, first);
  sum = block_sum(sum, second);
  if (threadIdx.x != 0) return;
  const double dice = (2 * overlap + 1) / (sum + 1);
  terms[k] = static_cast<T>(1 - dice);
  factors[2 * k] = static_cast<T>(-2 / (sum + 1));        // at the label
  factors[2 * k + 1] = static_cast<T>(dice / (sum + 1));  // at all classes
}

template <class T>
__global__ void dice_gradient(T* p, const std::int32_t* labels, std::int64_t rows,
                              std::int64_t classes, const T* factors) {
  for (std::int64_t r = global_thread(); r < rows; r += global_threads()) {
    T* const row = p + r * classes;
    const std::int64_t label = labels[r];
    double mean = 0;
    for (std::int64_t k = 0; k < classes; ++k) {
      const T g = factors[2 * k + 1] + (k == label ? factors[2 * k] : T{0});
      mean += static_cast<double>(row[k]) * static_cast<double>(g);
    }
    for (std::int64_t k = 0; k < classes; ++k) {
      const T g = factors[2 * k + 1] + (k == label ? factors[2 * k] : T{0});
      row[k] = static_cast<T>(static_cast<double>(row[k]) * (static_cast<double>(g) - mean));
    }
  }
}

template <class T>
void dice_typed(const Tensor& p, const Tensor& labels, const Tensor& scratch, const Tensor& terms) {
  const std::int64_t rows = p.dim(0), classes = p.dim(1);
  const std::int32_t* const label = labels.data<std::int32_t>();
  launch(dice_sums<T>, {.grid = dim3(static_cast<unsigned>(classes)), .block = dim3(kThreads)},
         p.data<T>(), label, rows, classes, scratch.data<T>(), terms.data<T>());
  launch(dice_gradient<T>, grid_for(rows), p.data<T>(), label, rows, classes, scratch.data<T>());
}

void dice_cuda(const Tensor& p, const Tensor& labels, const Tensor& scratch, const Tensor& terms) {
  if (p.dtype() == DType::f64) return dice_typed<double>(p, labels, scratch, terms);
  dice_typed<float>(p, labels, scratch, terms);
}

}  // namespace
CONVSCOPE_KERNEL(dice_kernel, cuda, dice_cuda)
}  // namespace convscope

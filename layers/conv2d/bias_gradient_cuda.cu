// SPDX-License-Identifier: Apache-2.0
// bias_gradient_cuda.cu: db on a GPU: the sum of dy over all axes except the channels, for f32
// planes and for NHWC images.
// Read next  bias_gradient_cpu.cpp; framework/cuda/reduce.cuh; framework/cuda/channel_sums.cuh
#include "framework/cuda/channel_sums.cuh"
#include "framework/cuda/reduce.cuh"
#include "framework/precision.h"
#include "layers/conv2d/bias_gradient.h"

namespace convscope {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    pixel_sums(const uint4* dy, WalkOf<T> walk, float* part) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  float sums[1][kLanesOf<T>] = {};
  walk.run([&](std::int64_t at) { return dy[at]; },
           [&](std::int64_t, const uint4& in) {
             float v[kLanesOf<T>];
             floats_of_piece<T>(in, v);
#pragma unroll
             for (int l = 0; l < kLanesOf<T>; ++l) sums[0][l] += v[l];
           });
  walk.put_part(sums, part);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    finish_sums(WalkOf<T> walk, const float* part, int channels, bool accumulate, float* db) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  double sums[1];
  walk.add_parts(part, sums);
  const int c = walk.channel();
  if (!walk.is_finisher() || c >= channels) return;
  const auto sum = static_cast<float>(sums[0]);
  db[c] = accumulate ? db[c] + sum : sum;
}

void nhwc_gradient(const Tensor& dy, const Tensor& db, bool accumulate) {
  with_stored_type(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const WalkOf<T> walk(dy.shape());
    auto* const part = cuda_scratch_of<float>(walk.part_floats(1));
    launch(pixel_sums<T>, walk.shape(), static_cast<const uint4*>(dy.raw_data()), walk, part);
    launch(finish_sums<T>, walk.finish_shape(), walk, part, static_cast<int>(db.numel()),
           accumulate, db.data<float>());
  });
}

void bias_gradient_cuda(const Tensor& dy, const Tensor& db, bool accumulate) {
  if (dy.rank() == 5) return nhwc_gradient(dy, db, accumulate);
  sum_on_cuda(dy, 0b1101u, db, accumulate);
}

}  // namespace
CONVSCOPE_KERNEL(conv2d_bias_gradient_kernel, cuda, bias_gradient_cuda)
}  // namespace convscope

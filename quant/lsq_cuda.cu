// SPDX-License-Identifier: Apache-2.0
// lsq_cuda.cu: learned step size quantisation. v_hat and dv have the bits of the CPU: both call
// code_of(). The gradient of the step is a sum in double over pieces of kPiece values, a block
// each, added in order by a second launch.
#include <algorithm>
#include <cmath>

#include "framework/cuda/map.cuh"
#include "framework/cuda/scratch.cuh"
#include "quant/lsq.h"
#include "quant/quantizer.h"

namespace convscope {
namespace {

// [rows, inner] values; a row shares a step. Block (row, piece).
struct Cut {
  std::int64_t rows, inner, piece_size;
  int pieces;

  Cut(const Tensor& v, const Tensor& step) : rows(step.numel()), inner(v.numel() / step.numel()) {
    const std::int64_t most = std::max<std::int64_t>(1, 2048 / rows);
    const std::int64_t wanted = std::min(ceil_div(inner, 4096), most);
    piece_size = ceil_div(ceil_div(inner, wanted), 4) * 4;
    pieces = static_cast<int>(ceil_div(inner, piece_size));
  }
  LaunchShape shape() const {
    return {.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(pieces)),
            .block = dim3(kThreads)};
  }
  // Calls body(place in v) for every kWidth values of this block.
  template <int kWidth, class Body>
  __device__ void run(const Body& body) const {
    const std::int64_t first = blockIdx.x * inner;
    const std::int64_t begin = blockIdx.y * piece_size;
    const std::int64_t end = begin + piece_size < inner ? begin + piece_size : inner;
#pragma unroll 2
    for (std::int64_t i = begin + threadIdx.x * kWidth; i < end; i += kThreads * kWidth) {
      body(first + i);
    }
  }
};

template <class T>
__device__ T step_of(const T* step, std::int64_t row, StepForm form) {
  if (form == StepForm::plain) return step[row];
  return static_cast<T>(::exp(static_cast<double>(step[row])));
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    lsq_forward(const T* v, const T* step, Cut cut, StepForm form, T low, T high, T* y) {
  const T s = step_of(step, blockIdx.x, form);
  cut.run<kWidth>([&](std::int64_t i) {
    auto p = *reinterpret_cast<const Pack<T, kWidth>*>(v + i);
#pragma unroll
    for (int l = 0; l < kWidth; ++l) p.v[l] = code_of(p.v[l], s, low, high) * s;
    *reinterpret_cast<Pack<T, kWidth>*>(y + i) = p;
  });
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    lsq_backward(const T* dy, const T* v, const T* step, Cut cut, StepForm form, T low, T high,
                 T* dv, double* part) {
  __shared__ double scratch[32];
  const T s = step_of(step, blockIdx.x, form);
  double total = 0;
  cut.run<kWidth>([&](std::int64_t i) {
    const auto pv = *reinterpret_cast<const Pack<T, kWidth>*>(v + i);
    auto g = *reinterpret_cast<const Pack<T, kWidth>*>(dy + i);
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      const T u = pv.v[l] / s;
      const T code = round_half_even(clip_to(u, low, high));
      const bool inside = u > low && u < high;
      total += static_cast<double>(g.v[l]) * static_cast<double>(inside ? code - u : code);
      if (!inside) g.v[l] = T{0};
    }
    if (dv != nullptr) *reinterpret_cast<Pack<T, kWidth>*>(dv + i) = g;
  });
  total = block_sum(total, scratch);
  if (threadIdx.x == 0)
    part[static_cast<std::int64_t>(blockIdx.x) * cut.pieces + blockIdx.y] = total;
}

template <class T>
__global__ void lsq_finish(const double* part, const T* step, Cut cut, StepForm form, double g,
                           bool log_rate, double* dstep) {
  const std::int64_t row = global_thread() / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  double sum = 0;
  if (row < cut.rows) {
    for (int p = lane; p < cut.pieces; p += 32) sum += part[row * cut.pieces + p];
  }
  sum = warp_sum(sum);
  if (log_rate) {  // the mean s^2 of all steps
    double squares = 0;
    for (std::int64_t i = lane; i < cut.rows; i += 32) {
      squares += ::exp(2 * static_cast<double>(step[i]));
    }
    squares = warp_sum(squares);
    g *= static_cast<double>(cut.rows) / (squares > 1e-30 ? squares : 1e-30);
  }
  if (row >= cut.rows || lane != 0) return;
  const double chain =
      form == StepForm::log ? static_cast<double>(step_of(step, row, form)) : 1.0;  // ds/dt
  dstep[row] = g * sum * chain;
}

template <class T>
bool packs(const Cut& cut, const Tensor& a, const Tensor& b, const Tensor& c) {
  return cut.inner % kPackWidth<T> == 0 && is_aligned(a.raw_data(), 16) &&
         is_aligned(b.raw_data(), 16) && (!c.defined() || is_aligned(c.raw_data(), 16));
}

template <class T>
void forward_typed(const Tensor& v, const Tensor& step, const LsqRule& rule, const Tensor& y) {
  const Cut cut(v, step);
  launch(packs<T>(cut, v, y, Tensor()) ? lsq_forward<kPackWidth<T>, T> : lsq_forward<1, T>,
         cut.shape(), v.data<T>(), step.data<T>(), cut, rule.form, static_cast<T>(-rule.grid.qn),
         static_cast<T>(rule.grid.qp), y.data<T>());
}

void forward_cuda(const Tensor& v, const Tensor& step, const LsqRule& rule, const Tensor& y) {
  if (v.dtype() == DType::f64) return forward_typed<double>(v, step, rule, y);
  forward_typed<float>(v, step, rule, y);
}

template <class T>
void backward_typed(const Tensor& dy, const Tensor& v, const Tensor& step, const LsqRule& rule,
                    const Tensor& dv, const Tensor& dstep) {
  const Cut cut(v, step);
  auto* const part = cuda_scratch_of<double>(static_cast<std::size_t>(cut.rows * cut.pieces));
  launch(packs<T>(cut, v, dy, dv) ? lsq_backward<kPackWidth<T>, T> : lsq_backward<1, T>,
         cut.shape(), dy.data<T>(), v.data<T>(), step.data<T>(), cut, rule.form,
         static_cast<T>(-rule.grid.qn), static_cast<T>(rule.grid.qp),
         dv.defined() ? dv.data<T>() : nullptr, part);
  launch(lsq_finish<T>,
         {.grid = dim3(static_cast<unsigned>(ceil_div(cut.rows * 32, kThreads))),
          .block = dim3(kThreads)},
         part, step.data<T>(), cut, rule.form, rule.g, rule.log_rate, dstep.data<double>());
}

void backward_cuda(const Tensor& dy, const Tensor& v, const Tensor& step, const LsqRule& rule,
                   const Tensor& dv, const Tensor& dstep) {
  if (v.dtype() == DType::f64) return backward_typed<double>(dy, v, step, rule, dv, dstep);
  backward_typed<float>(dy, v, step, rule, dv, dstep);
}

// ---- the bounds of a step ----

// NaN stays NaN, as on the CPU.
__device__ float bounded(float x, float low, float high) {
  const float above = x < low ? low : x;
  return high < above ? high : above;
}

__global__ void step_bounds(float* s, float* before, const float* s0, std::int64_t count,
                            bool is_log, float change, float floor, float ceiling) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    float now = s[i];
    if (is_log) {
      now = bounded(now, before[i] - change, before[i] + change);
      now = bounded(now, ::logf(s0[i] / floor), ::logf(s0[i] * ceiling));
    } else {
      now = bounded(now, s0[i] / floor, s0[i] * ceiling);
    }
    s[i] = now;
    before[i] = now;
  }
}

void step_bounds_cuda(const Tensor& step, const Tensor& last, const Tensor& first, StepForm form) {
  launch(step_bounds, grid_for(step.numel()), step.data<float>(), last.data<float>(),
         first.data<float>(), step.numel(), form == StepForm::log,
         std::log(static_cast<float>(Quantizer::kMaxChange)), static_cast<float>(Quantizer::kFloor),
         static_cast<float>(Quantizer::kCeiling));
}

}  // namespace
CONVSCOPE_KERNEL(lsq_kernel, cuda, forward_cuda)
CONVSCOPE_KERNEL(lsq_gradient_kernel, cuda, backward_cuda)
CONVSCOPE_KERNEL(step_bounds_kernel, cuda, step_bounds_cuda)
}  // namespace convscope

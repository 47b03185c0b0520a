// SPDX-License-Identifier: Apache-2.0
// lsq_cuda.cu: learned step size quantisation of several tensors in one kernel launch. A small
// network has a dozen quantisers, and a launch takes longer than the computation for one of them.
// v_hat and dv have the same bits as on the CPU, because both call code_of(). In the backward pass
// a thread block sums the gradient of a step size over one part of the values (a piece), in double.
// The last block to finish adds the sums of all pieces in a fixed order. It also stores the bounded
// step sizes, because by then all blocks have read the old ones. In the forward pass each block
// bounds the step size itself, because waiting for a last block would double the time on a small
// tensor.
//
// Small tensors are limited by latency. So a kernel may start before the previous kernel has ended,
// and issues its first loads before it computes exp(t). A thread has only four values, so that the
// work is spread over all SMs. The last block to finish processes all tensors in parallel.
#include <algorithm>
#include <cmath>

#include "framework/cuda/map.cuh"
#include "framework/cuda/scratch.cuh"
#include "quant/lsq.h"
#include "quant/quantizer.h"

namespace convscope {
namespace {

// Tensors of one launch.
constexpr int kMaxParts = 16;

// The bounds of a step size, as in put_into_bounds(). If `last` is null, there are no bounds.
struct Bounds {
  float* last;
  const float* first;
  bool is_log;
  float change, floor, ceiling;

  // NaN stays NaN, as on the CPU.
  static __device__ float bounded(float x, float low, float high) {
    const float above = x < low ? low : x;
    return high < above ? high : above;
  }
  __device__ float of(float s, std::int64_t i) const {
    if (last == nullptr) return s;
    if (!is_log) return bounded(s, first[i] / floor, first[i] * ceiling);
    s = bounded(s, last[i] - change, last[i] + change);
    return bounded(s, ::logf(first[i] / floor), ::logf(first[i] * ceiling));
  }
  __device__ double of(double s, std::int64_t) const { return s; }  // for checks, without bounds
};

Bounds bounds_of(const StepBounds& bounds, StepForm form) {
  const bool any = bounds.last.defined();
  return {.last = any ? bounds.last.data<float>() : nullptr,
          .first = any ? bounds.first.data<float>() : nullptr,
          .is_log = form == StepForm::log,
          .change = std::log(static_cast<float>(Quantizer::kMaxChange)),
          .floor = static_cast<float>(Quantizer::kFloor),
          .ceiling = static_cast<float>(Quantizer::kCeiling)};
}

// A step size as the kernels use it: the parameter (s or log s) after bounding, and s.
template <class T>
struct Step {
  T parameter;
  double s;
};

// One tensor as [rows, inner] values. The values of a row share a step size. A block processes one
// piece of one row.
template <class T>
struct Part {
  const T* v;
  const T* dy;
  T* y;  // or dv; null: not needed
  T* step;
  T* dstep;      // null: not needed
  double* sums;  // [rows][pieces]
  std::int64_t rows, inner, piece_size;
  int pieces;
  unsigned first_block;
  std::int64_t first_row;  // counted over all parts
  StepForm form;
  Bounds bounds;
  T low, high;
  double g;
  bool log_rate, packed;

  void cut() {
    const std::int64_t most = std::max<std::int64_t>(1, 2048 / rows);
    const std::int64_t wanted =
        std::clamp<std::int64_t>(ceil_div(inner, std::int64_t{4} * kThreads), 1, most);
    piece_size = std::max<std::int64_t>(4, ceil_div(ceil_div(inner, wanted), 4) * 4);
    pieces = std::max(1, static_cast<int>(ceil_div(inner, piece_size)));
  }
  unsigned blocks() const { return static_cast<unsigned>(rows * pieces); }
  __device__ Step<T> step_of(std::int64_t row) const {
    const T now = bounds.of(step[row], row);
    const auto t = static_cast<double>(now);
    return {now, form == StepForm::plain ? t : ::exp(t)};
  }
};

// The work of a thread: every blockDim.x-th pack from `begin` on.
struct Walk {
  std::int64_t row, begin, end;
  template <class T>
  __device__ Walk(const Part<T>& p, int width) {
    const unsigned block = blockIdx.x - p.first_block;
    row = block / static_cast<unsigned>(p.pieces);
    const std::int64_t from = block % static_cast<unsigned>(p.pieces) * p.piece_size;
    const std::int64_t to = from + p.piece_size < p.inner ? from + p.piece_size : p.inner;
    begin = row * p.inner + from + threadIdx.x * width;
    end = row * p.inner + to;
  }
  template <int kWidth, class T>
  __device__ Pack<T, kWidth> load(const T* from, std::int64_t i) const {
    return i < end ? *reinterpret_cast<const Pack<T, kWidth>*>(from + i) : Pack<T, kWidth>{};
  }
};

template <class T>
struct Parts {
  Part<T> part[kMaxParts];
  int count;
  std::int64_t rows;  // of all parts
  bool has_end;       // the last block has more to do
  __device__ const Part<T>& block_part() const {
    int i = 0;
    while (i + 1 < count && blockIdx.x >= part[i + 1].first_block) ++i;
    return part[i];
  }
  __device__ const Part<T>& row_part(std::int64_t row) const {
    int i = 0;
    while (i + 1 < count && row >= part[i + 1].first_row) ++i;
    return part[i];
  }
};

// Number of finished blocks; back at 0 when a launch ends.
__device__ unsigned blocks_done = 0;

// Returns true in the last block that calls this function. There, the earlier writes of the first
// thread of every other block are visible. Call the function after a barrier.
__device__ bool is_last_block() {
  if (gridDim.x == 1) return true;
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(&blocks_done, 1u) == gridDim.x - 1;
    if (is_last) blocks_done = 0;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

template <int kWidth, class T>
__device__ void forward_block(const Part<T>& p) {
  const Walk walk(p, kWidth);
  auto next = walk.template load<kWidth>(p.v, walk.begin);
  const T s = static_cast<T>(p.step_of(walk.row).s);
  const std::int64_t stride = std::int64_t{blockDim.x} * kWidth;
  for (std::int64_t i = walk.begin; i < walk.end; i += stride) {
    auto pack = next;
    next = walk.template load<kWidth>(p.v, i + stride);
#pragma unroll
    for (int l = 0; l < kWidth; ++l) pack.v[l] = code_of(pack.v[l], s, p.low, p.high) * s;
    *reinterpret_cast<Pack<T, kWidth>*>(p.y + i) = pack;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) lsq_forward(const __grid_constant__ Parts<T> parts) {
  const Part<T>& p = parts.block_part();
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (p.packed) {
    forward_block<kPackWidth<T>>(p);
  } else {
    forward_block<1>(p);
  }
}

template <int kWidth, class T>
__device__ double backward_block(const Part<T>& p, Step<T>& step) {
  const Walk walk(p, kWidth);
  auto next_v = walk.template load<kWidth>(p.v, walk.begin);
  auto next_dy = walk.template load<kWidth>(p.dy, walk.begin);
  step = p.step_of(walk.row);
  const T s = static_cast<T>(step.s);
  const std::int64_t stride = std::int64_t{blockDim.x} * kWidth;
  double total = 0;
  for (std::int64_t i = walk.begin; i < walk.end; i += stride) {
    const auto v = next_v;
    auto g = next_dy;
    next_v = walk.template load<kWidth>(p.v, i + stride);
    next_dy = walk.template load<kWidth>(p.dy, i + stride);
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      const T u = v.v[l] / s;
      const T code = round_half_even(clip_to(u, p.low, p.high));
      const bool inside = u > p.low && u < p.high;
      total += static_cast<double>(g.v[l]) * static_cast<double>(inside ? code - u : code);
      if (!inside) g.v[l] = T{0};
    }
    if (p.y != nullptr) *reinterpret_cast<Pack<T, kWidth>*>(p.y + i) = g;
  }
  return total;
}

// Computes the gradient of one step, by a warp.
template <class T>
__device__ void finish(const Part<T>& p, std::int64_t row, const Step<T>& step) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  double sum = 0;
  for (int i = lane; i < p.pieces; i += 32) sum += __ldcg(p.sums + row * p.pieces + i);
  sum = p.g * warp_sum(sum);
  if (p.log_rate) {  // divided by the mean s^2 of all steps
    double squares = step.s * step.s;
    if (p.rows > 1) {
      squares = 0;
      for (std::int64_t i = lane; i < p.rows; i += 32) {
        const double s = p.step_of(i).s;
        squares += s * s;
      }
      squares = warp_sum(squares);
    }
    sum *= static_cast<double>(p.rows) / (squares > 1e-30 ? squares : 1e-30);
  }
  if (p.form == StepForm::log) sum *= static_cast<double>(static_cast<T>(step.s));  // ds/dt
  if (lane == 0) p.dstep[row] = static_cast<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) lsq_backward(const __grid_constant__ Parts<T> parts) {
  __shared__ double scratch[32];
  const Part<T>& p = parts.block_part();
  wait_for_previous_kernel();
  let_next_kernel_start();
  Step<T> step;  // of this block
  double total = p.packed ? backward_block<kPackWidth<T>>(p, step) : backward_block<1>(p, step);
  total = block_sum(total, scratch);
  if (threadIdx.x == 0) p.sums[blockIdx.x - p.first_block] = total;
  if (!parts.has_end || !is_last_block()) return;
  for (std::int64_t r = threadIdx.x / 32; r < parts.rows; r += kThreads / 32) {
    const Part<T>& q = parts.row_part(r);
    const std::int64_t row = r - q.first_row;
    if (q.dstep != nullptr) finish(q, row, parts.rows == 1 ? step : q.step_of(row));
  }
  __syncthreads();
  for (std::int64_t r = threadIdx.x; r < parts.rows; r += kThreads) {
    const Part<T>& q = parts.row_part(r);
    if (q.bounds.last == nullptr) continue;
    const std::int64_t row = r - q.first_row;
    const T now = parts.rows == 1 ? step.parameter : q.bounds.of(q.step[row], row);
    q.step[row] = now;
    q.bounds.last[row] = static_cast<float>(now);
  }
}

template <class T>
bool packs(const Part<T>& p) {
  return p.inner % kPackWidth<T> == 0 && is_aligned(p.v, 16) && is_aligned(p.dy, 16) &&
         is_aligned(p.y, 16);
}

template <class T>
Part<T> part_of(const Tensor& v, const Tensor& step, const LsqRule& rule) {
  Part<T> p{};
  p.v = v.data<T>();
  p.step = step.data<T>();
  p.rows = step.numel();
  p.inner = v.numel() / p.rows;
  p.form = rule.form;
  p.low = static_cast<T>(-rule.grid.qn);
  p.high = static_cast<T>(rule.grid.qp);
  p.g = rule.g;
  p.log_rate = rule.log_rate;
  return p;
}

// Calls the kernel for all tensors, with up to kMaxParts tensors in each launch. fill(i) describes
// tensor i.
template <class T, class Fill>
void launch_parts(void (*kernel)(const Parts<T>), int count, const Fill& fill) {
  for (int begin = 0; begin < count; begin += kMaxParts) {
    Parts<T> parts{};
    parts.count = std::min(kMaxParts, count - begin);
    for (int i = 0; i < parts.count; ++i) parts.part[i] = fill(begin + i);
    unsigned blocks = 0;
    for (int i = 0; i < parts.count; ++i) {
      Part<T>& p = parts.part[i];
      p.cut();
      p.packed = packs(p);
      p.first_block = blocks;
      blocks += p.blocks();
      p.first_row = parts.rows;
      parts.rows += p.rows;
      parts.has_end = parts.has_end || p.bounds.last != nullptr || p.dstep != nullptr;
    }
    auto* sums = cuda_scratch_of<double>(blocks);
    for (int i = 0; i < parts.count; ++i) parts.part[i].sums = sums + parts.part[i].first_block;
    launch(kernel, {.grid = dim3(blocks), .block = dim3(kThreads), .overlaps_previous = true},
           parts);
  }
}

template <class T>
void forward_typed(const LsqForward* all, int count) {
  launch_parts<T>(lsq_forward<T>, count, [&](int i) {
    const LsqForward& a = all[i];
    Part<T> p = part_of<T>(a.v, a.step, a.rule);
    p.y = a.y.template data<T>();
    p.bounds = bounds_of(a.bounds, a.rule.form);
    return p;
  });
}

void forward_cuda(const LsqForward* all, int count) {
  if (all[0].v.dtype() == DType::f64) return forward_typed<double>(all, count);
  forward_typed<float>(all, count);
}

template <class T>
void backward_typed(const LsqBackward* all, int count) {
  launch_parts<T>(lsq_backward<T>, count, [&](int i) {
    const LsqBackward& a = all[i];
    Part<T> p = part_of<T>(a.v, a.step, a.rule);
    p.dy = a.dy.template data<T>();
    p.y = a.dv.defined() ? a.dv.template data<T>() : nullptr;
    p.bounds = bounds_of(a.bounds, a.rule.form);
    p.dstep = a.dstep.defined() ? a.dstep.template data<T>() : nullptr;
    return p;
  });
}

void backward_cuda(const LsqBackward* all, int count) {
  if (all[0].v.dtype() == DType::f64) return backward_typed<double>(all, count);
  backward_typed<float>(all, count);
}

}  // namespace
CONVSCOPE_KERNEL(lsq_kernel, cuda, forward_cuda)
CONVSCOPE_KERNEL(lsq_gradient_kernel, cuda, backward_cuda)
}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// depthwise_elements_cuda.cu: depthwise convolution of any shape on the GPU, with one thread for
// each element of the result, and the sum over slices that ends every weight gradient.
//
// Formula    y[n,k,p,q] = relu(b[k] + sum over r, s of w[k,0,r,s] x[n,k / M, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w] + residual[n,k,p,q]), M = K/C
// Textbook   for n, k, p, q:
//              y[n,k,p,q] = b[k]
//              for r, s: y[n,k,p,q] += w[k,0,r,s] * x[n,k/M,p*stride+r*dil-pad,q*stride+s*dil-pad]
// Method     Neighbouring threads compute neighbouring pixels of a row, so a warp's loads and
//            stores touch one or two lines. x is read R S times, mostly from L1. backward_data
//            gathers the taps whose distance to the pixel is a multiple of the stride. In
//            backward_weight a block has one (k, slice of N P Q) and computes one tap after another
// Shapes     x [N,C,H,W], w [K,1,R,S], y [N,K,P,Q], f32, f16 or bf16, row-major, any alignment;
//            sums in f32, rounded once
// Supports   all with C/G = 1: any kernel, stride, dilation, padding and multiplier
// Cost       FLOPs = 2 N K P Q R S; bytes from memory = the tensors once, from L1 R S times as
//            many. Three integer divisions for each element limit the speed
// Numerics   one rounding per FMA in the order r, s; slices and threads are added in a fixed order
// Backward   dx assigned; dw assigned or added to
// Choices    32-bit indices when no tensor has 2^31 elements, because 64-bit divisions cost ten
//            times more. Up to 16 slices are added by 8 lanes, more by a warp, as neighbours in
//            memory
// Source     as PyTorch's DepthwiseConv2d.cu (W. Luo et al. 2019)
// Read next  depthwise_forward_cuda.cu, which reads x once
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::depthwise {
namespace {

struct ElementWork {
  Conv2dProblem z = {};
  std::int64_t p = 0, q = 0;
  int slices = 1;
  const void* x = nullptr;
  const void* dy = nullptr;
  const void* w = nullptr;
  const void* b = nullptr;
  const void* residual = nullptr;
  bool relu = false;
  void* to = nullptr;  // y, dx, or f32 partial sums of dw
};

// The sizes as type Index, which holds all of them.
template <class Index>
struct ElementShape {
  Index n, c, h, w, k, r, s, p, q, multiplier;
  Index stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;

  __device__ explicit ElementShape(const ElementWork& work)
      : n(static_cast<Index>(work.z.n)),
        c(static_cast<Index>(work.z.c)),
        h(static_cast<Index>(work.z.h)),
        w(static_cast<Index>(work.z.w)),
        k(static_cast<Index>(work.z.k)),
        r(static_cast<Index>(work.z.r)),
        s(static_cast<Index>(work.z.s)),
        p(static_cast<Index>(work.p)),
        q(static_cast<Index>(work.q)),
        multiplier(k / c),
        stride_h(static_cast<Index>(work.z.stride_h)),
        stride_w(static_cast<Index>(work.z.stride_w)),
        pad_top(static_cast<Index>(work.z.pad_top)),
        pad_left(static_cast<Index>(work.z.pad_left)),
        dilation_h(static_cast<Index>(work.z.dilation_h)),
        dilation_w(static_cast<Index>(work.z.dilation_w)) {}
};

template <class T, class Index>
__global__ void depthwise_forward_elements_kernel(const __grid_constant__ ElementWork work) {
  const ElementShape<Index> z(work);
  const std::int64_t all = work.z.n * work.z.k * work.p * work.q;
  for (std::int64_t at = global_thread(); at < all; at += global_threads()) {
    const auto i = static_cast<Index>(at);
    const Index row = i / z.q;
    const Index q = i - row * z.q;
    const Index plane = row / z.p;  // n K + k = (n C + c) M + m
    const Index p = row - plane * z.p;
    const Index k = plane % z.k;
    const T* const x = static_cast<const T*>(work.x) + plane / z.multiplier * z.h * z.w;
    const T* const w = static_cast<const T*>(work.w) + k * z.r * z.s;
    float sum = work.b == nullptr ? 0.0f : to_float(static_cast<const T*>(work.b)[k]);
    for (Index r = 0; r < z.r; ++r) {
      const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
      if (h < 0 || h >= z.h) continue;
      for (Index s = 0; s < z.s; ++s) {
        const Index column = q * z.stride_w - z.pad_left + s * z.dilation_w;
        if (column < 0 || column >= z.w) continue;
        sum = fmaf(to_float(x[h * z.w + column]), to_float(w[r * z.s + s]), sum);
      }
    }
    // Rounds y to its type before the residual is added. A separate kernel for the addition would
    // also read the rounded y, so both give the same bits.
    const auto* const residual = static_cast<const T*>(work.residual);
    if (residual != nullptr) sum = to_float(from_float<T>(sum));
    static_cast<T*>(work.to)[i] = from_float<T>(finished(sum, residual, i, work.relu));
  }
}

template <class T, class Index>
__global__ void depthwise_data_elements_kernel(const __grid_constant__ ElementWork work) {
  const ElementShape<Index> z(work);
  const std::int64_t all = work.z.n * work.z.c * work.z.h * work.z.w;
  for (std::int64_t at = global_thread(); at < all; at += global_threads()) {
    const auto i = static_cast<Index>(at);
    const Index row = i / z.w;
    const Index column = i - row * z.w;
    const Index plane = row / z.h;  // n C + c
    const Index h = row - plane * z.h;
    float sum = 0;
    for (Index m = 0; m < z.multiplier; ++m) {
      const T* const dy = static_cast<const T*>(work.dy) + (plane * z.multiplier + m) * z.p * z.q;
      const T* const w =
          static_cast<const T*>(work.w) + (plane % z.c * z.multiplier + m) * z.r * z.s;
      for (Index r = 0; r < z.r; ++r) {
        const Index down = h + z.pad_top - r * z.dilation_h;
        if (down < 0 || down % z.stride_h != 0 || down / z.stride_h >= z.p) continue;
        for (Index s = 0; s < z.s; ++s) {
          const Index right = column + z.pad_left - s * z.dilation_w;
          if (right < 0 || right % z.stride_w != 0 || right / z.stride_w >= z.q) continue;
          sum = fmaf(to_float(dy[down / z.stride_h * z.q + right / z.stride_w]),
                     to_float(w[r * z.s + s]), sum);
        }
      }
    }
    static_cast<T*>(work.to)[i] = from_float<T>(sum);
  }
}

template <class T, class Index>
__global__ void depthwise_weight_elements_kernel(const __grid_constant__ ElementWork work) {
  __shared__ float scratch[32];
  const ElementShape<Index> z(work);
  const auto* const x = static_cast<const T*>(work.x);
  const auto* const dy = static_cast<const T*>(work.dy);
  const Index k = static_cast<Index>(blockIdx.x) % z.k;
  const Index slice = static_cast<Index>(blockIdx.x) / z.k;
  const std::int64_t all = work.z.n * work.p * work.q;
  const std::int64_t begin = all * slice / work.slices;
  const std::int64_t end = all * (slice + 1) / work.slices;
  for (Index r = 0; r < z.r; ++r) {
    for (Index s = 0; s < z.s; ++s) {
      float sum = 0;
      for (std::int64_t at = begin + threadIdx.x; at < end; at += blockDim.x) {
        const auto i = static_cast<Index>(at);
        const Index row = i / z.q;
        const Index q = i - row * z.q;
        const Index n = row / z.p;
        const Index p = row - n * z.p;
        const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
        const Index column = q * z.stride_w - z.pad_left + s * z.dilation_w;
        if (h < 0 || h >= z.h || column < 0 || column >= z.w) continue;
        sum = fmaf(to_float(x[((n * z.c + k / z.multiplier) * z.h + h) * z.w + column]),
                   to_float(dy[((n * z.k + k) * z.p + p) * z.q + q]), sum);
      }
      sum = block_sum(sum, scratch);
      if (threadIdx.x != 0) continue;
      static_cast<float*>(work.to)[((k * z.r + r) * z.s + s) * work.slices + slice] = sum;
    }
  }
}

// Sets dw[i], or with `accumulate` adds to it, the sum of partial[i][slices]. kLanes lanes of a
// warp share each sum.
template <class T, int kLanes>
__global__ void sum_slices_kernel(const float* partial, std::int64_t count, int slices,
                                  bool accumulate, T* dw) {
  wait_for_previous_kernel();
  const std::int64_t at = global_thread() / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0;
  if (at < count) {
    for (int i = lane; i < slices; i += kLanes) sum += partial[at * slices + i];
  }
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  if (lane == 0 && at < count) {
    dw[at] = from_float<T>(accumulate ? to_float(dw[at]) + sum : sum);
  }
}

// ---- launchers ---------------------------------------------------------------------------------

// Tells whether sums of indices and strides fit into 32 bits.
bool is_small(const Conv2dProblem& z) {
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  return z.n * z.c * z.h * z.w < kMax && z.n * z.k * z.p() * z.q() < kMax &&
         (z.p() + z.r) * (z.stride_h + z.dilation_h) < kMax &&
         (z.q() + z.s) * (z.stride_w + z.dilation_w) < kMax && z.r * z.s * z.k < kMax &&
         z.h + z.pad_top + z.pad_bottom < kMax && z.w + z.pad_left + z.pad_right < kMax;
}

template <class T, int kLanes>
void launch_sum(const Conv2dBackwardWeightArgs& args, std::int64_t count, int slices) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(count * kLanes, kThreads))),
                    .block = dim3(kThreads)};
  shape.overlaps_previous = true;
  launch(sum_slices_kernel<T, kLanes>, shape, static_cast<const float*>(args.workspace), count,
         slices, args.accumulate, static_cast<T*>(args.dw));
}

}  // namespace

void forward_by_elements(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const ElementWork work{.z = z,
                         .p = z.p(),
                         .q = z.q(),
                         .x = args.x,
                         .w = args.w,
                         .b = args.b,
                         .residual = args.epilogue.residual,
                         .relu = args.epilogue.relu,
                         .to = args.y};
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(is_small(z) ? depthwise_forward_elements_kernel<T, std::int32_t>
                       : depthwise_forward_elements_kernel<T, std::int64_t>,
           grid_for(z.n * z.k * z.p() * z.q()), work);
  });
}

void backward_data_by_elements(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const ElementWork work{.z = z, .p = z.p(), .q = z.q(), .dy = args.dy, .w = args.w, .to = args.dx};
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(is_small(z) ? depthwise_data_elements_kernel<T, std::int32_t>
                       : depthwise_data_elements_kernel<T, std::int64_t>,
           grid_for(z.n * z.c * z.h * z.w), work);
  });
}

int weight_slices_by_elements(const Conv2dProblem& z) {
  const std::int64_t wanted = std::int64_t{cuda_device_facts().multiprocessors} * 8;
  const std::int64_t most = ceil_div(z.n * z.p() * z.q(), kThreads);
  return static_cast<int>(
      std::max<std::int64_t>(1, std::min<std::int64_t>(ceil_div(wanted, z.k), most)));
}

void backward_weight_by_elements(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const int slices = weight_slices_by_elements(z);
  const ElementWork work{.z = z,
                         .p = z.p(),
                         .q = z.q(),
                         .slices = slices,
                         .x = args.x,
                         .dy = args.dy,
                         .to = args.workspace};
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(is_small(z) ? depthwise_weight_elements_kernel<T, std::int32_t>
                       : depthwise_weight_elements_kernel<T, std::int64_t>,
           {.grid = dim3(static_cast<unsigned>(z.k * slices)), .block = dim3(kThreads)}, work);
  });
  sum_slices(args, slices);
}

void sum_slices(const Conv2dBackwardWeightArgs& args, int slices) {
  const Conv2dProblem& z = args.problem;
  const std::int64_t count = z.k * z.r * z.s;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    slices > 16 ? launch_sum<T, 32>(args, count, slices) : launch_sum<T, 8>(args, count, slices);
  });
}

}  // namespace convscope::depthwise

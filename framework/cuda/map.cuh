// SPDX-License-Identifier: Apache-2.0
// map.cuh: y[i] = op(a[i], b[i], ...) for every element, at memory bandwidth.
//
//   struct Square { __device__ float operator()(const float* x) const { return x[0] * x[0]; } };
//   map<1>(Square{}, {{x}}, y, count);
//
// Method    A thread issues several 16-byte loads per operand before it uses the first. 2048
//           threads on an SM keep 64 KiB in flight. That is more than the SM's share of 4.3 TB/s x
//           0.7 us (bandwidth times latency), so memory is always busy. Operands that are not
//           aligned to 16 bytes are processed element by element. y may be one of the operands,
//           because the same thread reads an element before it writes it.
#pragma once

#include <cstdint>

#include "framework/cuda/launch.cuh"

namespace convscope {

// kWidth neighbouring elements, loaded or stored by one instruction.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Pack {
  T v[kWidth];
};
template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

inline bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

template <class T, int kInputs>
struct MapInputs {
  const T* p[kInputs];
};

template <int kInputs, int kWidth, class T, class Op>
__global__ void __launch_bounds__(kThreads)
    map_kernel(Op op, MapInputs<T, kInputs> in, T* y, std::int64_t count) {
  using P = Pack<T, kWidth>;
  constexpr int kUnroll = kInputs == 1 ? 4 : 2;
  const std::int64_t packs = count / kWidth;
  const std::int64_t step = global_threads();
  for (std::int64_t first = global_thread(); first < packs; first += step * kUnroll) {
    P a[kUnroll][kInputs];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kInputs; ++i) {
        if (first + u * step < packs) {
          a[u][i] = reinterpret_cast<const P*>(in.p[i])[first + u * step];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step >= packs) break;
      P out;
#pragma unroll
      for (int l = 0; l < kWidth; ++l) {
        T operands[kInputs];
#pragma unroll
        for (int i = 0; i < kInputs; ++i) operands[i] = a[u][i].v[l];
        out.v[l] = op(operands);
      }
      reinterpret_cast<P*>(y)[first + u * step] = out;
    }
  }
  const std::int64_t at = packs * kWidth + global_thread();  // the last, partly filled pack
  if (at < count) {
    T operands[kInputs];
#pragma unroll
    for (int i = 0; i < kInputs; ++i) operands[i] = in.p[i][at];
    y[at] = op(operands);
  }
}

// Returns a grid with one thread per pack (16 bytes of elements), but at most two waves of blocks.
inline LaunchShape grid_of_packs(std::int64_t packs) {
  const std::int64_t blocks = ceil_div(packs, kThreads);
  const std::int64_t most = std::int64_t{cuda_device_facts().multiprocessors} * 16;
  return {.grid = dim3(static_cast<unsigned>(blocks < most ? blocks : most)),
          .block = dim3(kThreads)};
}

template <int kInputs, class T, class Op>
void map(const Op& op, const MapInputs<T, kInputs>& in, T* y, std::int64_t count) {
  constexpr int kWidth = kPackWidth<T>;
  bool aligned = is_aligned(y, 16);
  for (const T* p : in.p) aligned = aligned && is_aligned(p, 16);
  if (aligned) {
    return launch(map_kernel<kInputs, kWidth, T, Op>, grid_of_packs(ceil_div(count, kWidth)), op,
                  in, y, count);
  }
  launch(map_kernel<kInputs, 1, T, Op>, grid_of_packs(count), op, in, y, count);
}

}  // namespace convscope

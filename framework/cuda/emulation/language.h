// SPDX-License-Identifier: Apache-2.0
// language.h: the keywords and vector types that CUDA adds to C++.
#pragma once

#include <cstddef>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// One block runs at a time, so one copy of a __shared__ variable is enough. The blocks of a cluster
// would share this copy, so cluster kernels use dynamic shared memory only (cluster.cuh).
#define __shared__ static

// The types have the size and alignment of CUDA's, so that the sanitizers detect misaligned
// accesses.
#define CONVSCOPE_VECTOR_TYPES(name, T)                                        \
  struct name##1 {                                                             \
    T x;                                                                       \
  };                                                                           \
  struct alignas(2 * sizeof(T)) name##2 {                                      \
    T x, y;                                                                    \
  };                                                                           \
  struct name##3 {                                                             \
    T x, y, z;                                                                 \
  };                                                                           \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 {            \
    T x, y, z, w;                                                              \
  };                                                                           \
  inline constexpr name##1 make_##name##1(T x) { return {x}; }                 \
  inline constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CONVSCOPE_VECTOR_TYPES(char, signed char)
CONVSCOPE_VECTOR_TYPES(uchar, unsigned char)
CONVSCOPE_VECTOR_TYPES(short, short)
CONVSCOPE_VECTOR_TYPES(ushort, unsigned short)
CONVSCOPE_VECTOR_TYPES(int, int)
CONVSCOPE_VECTOR_TYPES(uint, unsigned)
CONVSCOPE_VECTOR_TYPES(longlong, long long)
CONVSCOPE_VECTOR_TYPES(ulonglong, unsigned long long)
CONVSCOPE_VECTOR_TYPES(float, float)
CONVSCOPE_VECTOR_TYPES(double, double)
#undef CONVSCOPE_VECTOR_TYPES

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// Built-in variables of the running thread; set by threads.cpp.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

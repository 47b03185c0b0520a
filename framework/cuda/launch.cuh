// SPDX-License-Identifier: Apache-2.0
// launch.cuh: launches kernels, and provides the stream that all work uses.
//
//   __global__ void double_kernel(const float* x, float* y, std::int64_t count) {
//     for (std::int64_t i = global_thread(); i < count; i += global_threads()) y[i] = 2 * x[i];
//   }
//   launch(double_kernel, grid_for(count), x, y, count);
//
// launch() replaces <<< >>>, so that the emulation can compile the file as C++. It does nothing for
// a grid without blocks. A launch does not wait; launch errors are thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "framework/check.h"
#include "framework/cuda/runtime.cuh"
#include "framework/export.h"
#include "framework/int_math.h"

namespace convscope {

// Throws an Error of kind kRun when a call of the CUDA runtime fails. `what` names the call.
void check_cuda(cudaError_t status, const char* what);
#define CONVSCOPE_CUDA(call) ::convscope::check_cuda((call), #call)

// Returns the stream of the current device. All kernels, copies and library calls use this stream
// in order, so a block of memory may be reused as soon as its last use is queued.
cudaStream_t cuda_stream();

struct CudaDeviceFacts {
  int multiprocessors = 1;
  int shared_bytes_per_block = 48 * 1024;  // maximum per block
  int major = 0, minor = 0;                // compute capability
  std::size_t l2_bytes = 0;
};
const CudaDeviceFacts& cuda_device_facts();  // of the current device

struct LaunchShape {
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  std::size_t shared_bytes = 0;  // dynamic; see dynamic_shared()
  // Programmatic dependent launch: the kernel may start while its predecessor runs. Such a kernel
  // must call wait_for_previous_kernel() before it accesses memory that other kernels write.
  bool overlaps_previous = false;
  unsigned cluster = 1;  // blocks of a thread-block cluster, along x (sm_90)
};

constexpr unsigned kThreads = 256;

// Returns a grid with one thread per element, but at most about eight waves of blocks. So kernels
// loop over elements with global_thread() and global_threads().
inline LaunchShape grid_for(std::int64_t count, unsigned threads = kThreads) {
  const std::int64_t blocks = ceil_div(count, threads);
  const std::int64_t most = std::int64_t{cuda_device_facts().multiprocessors} * 64;
  return {.grid = dim3(static_cast<unsigned>(blocks < most ? blocks : most)),
          .block = dim3(threads)};
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, Arguments&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
#if defined(CONVSCOPE_CUDA_EMULATED)
  emulation::launch(kernel, shape.grid, shape.block, shape.shared_bytes, shape.cluster,
                    shape.overlaps_previous, static_cast<Parameters>(arguments)...);
#else
  // Without opting in, a block may use 48 KiB of shared memory, including the kernel's __shared__
  // variables. So opt in from 32 KiB of dynamic shared memory on.
  if (shape.shared_bytes > 32 * 1024) {
    CONVSCOPE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shape.shared_bytes)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = cuda_stream();
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (shape.overlaps_previous && cuda_device_facts().major >= 9) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim = {shape.cluster, 1, 1};
    ++count;
  }
  config.attrs = attributes;
  config.numAttrs = count;
  CONVSCOPE_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
#endif
}

// ---- inside kernels ----

__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t global_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// Returns the block's dynamic shared memory, 128-byte aligned.
template <class T>
__device__ inline T* dynamic_shared() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return static_cast<T*>(emulation::dynamic_shared());
#else
  extern __shared__ __align__(128) unsigned char convscope_dynamic_shared[];
  return reinterpret_cast<T*>(convscope_dynamic_shared);
#endif
}

// Waits for the end of the previous kernel if the launch has overlaps_previous set. Otherwise, and
// before sm_90, it returns at once.
__device__ inline void wait_for_previous_kernel() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  emulation::wait_for_previous();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Allows the next kernel to start early. That kernel's wait_for_previous_kernel() still waits for
// the end of this kernel.
__device__ inline void let_next_kernel_start() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  emulation::let_next_start();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

constexpr unsigned kAllLanes = 0xffffffffu;

// Sums over the 32 lanes of a warp in a fixed order: the same bits on each run, in every lane.
template <class T>
__device__ inline T warp_sum(T value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// Returns the sum over the block to every thread. `scratch` is shared memory for 32 values. All
// threads call the function, which begins and ends with a barrier.
template <class T>
__device__ inline T block_sum(T value, T* scratch) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const unsigned warps = (blockDim.x + 31) / 32;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  T sum{};
  for (unsigned i = 0; i < warps; ++i) sum += scratch[i];
  return sum;
}

}  // namespace convscope

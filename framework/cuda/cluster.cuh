// SPDX-License-Identifier: Apache-2.0
// cluster.cuh: thread-block clusters (sm_90). The blocks of a cluster run at the same time,
// synchronise, and read each other's shared memory. A cluster consists of adjacent blocks along x;
// LaunchShape::cluster is their number.
//
//   auto* const mine = dynamic_shared<float4>();
//   mine[threadIdx.x] = sums;                        // of this block
//   cluster_sync();                                  // all blocks have written theirs
//   for (unsigned rank = 0; rank < cluster_size(); ++rank) {
//     const float4 theirs = load_from_block(mine + threadIdx.x, rank);  ...
//   }
//   cluster_leave();                                 // no block reads mine any more
//
// - A block must not read another block's memory before the first barrier of the cluster, because
//   the other block may not have begun.
// - A block must not exit while others read its memory. So a kernel in which blocks read the memory
//   of other blocks ends with a barrier.
// - Work that needs no other block can be placed between cluster_arrive() and cluster_wait().
// - All threads of a warp call a cluster barrier together. Exited threads count as arrived.
// - Cluster kernels use dynamic shared memory only. In the emulation, all blocks share one copy of
//   a `__shared__` array. The blocks of a cluster take turns, so they would overwrite each other's
//   values.
// Source: PTX ISA, "barrier.cluster", "mapa" and "ld"; CUDA C++ Programming Guide, "Thread Block
// Clusters" and "Distributed Shared Memory"
#pragma once

#include "framework/cuda/launch.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CONVSCOPE_CLUSTERS 1
#endif

namespace convscope {

// Returns the index of this block in its cluster.
__device__ inline unsigned cluster_rank() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return emulation::cluster_rank();
#elif defined(CONVSCOPE_CLUSTERS)
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  __trap();
  return 0;
#endif
}

// Returns the number of blocks in the cluster: 1 where the launch requested no clusters.
__device__ inline unsigned cluster_size() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return emulation::cluster_size();
#elif defined(CONVSCOPE_CLUSTERS)
  unsigned size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
#else
  __trap();
  return 0;
#endif
}

// Signals arrival at the cluster barrier. Threads that wait at the barrier then see the earlier
// writes of this thread.
__device__ inline void cluster_arrive() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  emulation::cluster_arrive();
#elif defined(CONVSCOPE_CLUSTERS)
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// Waits until all threads of the cluster have arrived; call it once after each cluster_arrive().
__device__ inline void cluster_wait() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  emulation::cluster_wait();
#elif defined(CONVSCOPE_CLUSTERS)
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __trap();
#endif
}

__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// Waits at the last barrier of the kernel, which ensures that all threads have finished reading
// other blocks' memory. This barrier does not wait for writes, so the results may not have reached
// memory yet.
__device__ inline void cluster_leave() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  cluster_sync();
#elif defined(CONVSCOPE_CLUSTERS)
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
#else
  __trap();
#endif
}

// Reads from the dynamic shared memory of block `rank`, at the offset that `at` has in this block.
__device__ inline float4 load_from_block(const float4* at, unsigned rank) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return *static_cast<const float4*>(
      emulation::in_block("load_from_block", at, sizeof(float4), rank));
#elif defined(CONVSCOPE_CLUSTERS)
  float4 out;
  asm volatile(
      "{\n.reg .u32 place;\n"
      "mapa.shared::cluster.u32 place, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [place];\n}"
      : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(at))), "r"(rank)
      : "memory");
  return out;
#else
  __trap();
  return {};
#endif
}

}  // namespace convscope

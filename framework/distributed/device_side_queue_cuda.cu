// SPDX-License-Identifier: Apache-2.0
// device_side_queue_cuda.cu: a second CUDA stream, ordered relative to the first stream by events.
// If a CUDA graph is captured, the two streams become branches of the graph.
#include "framework/cuda/launch.cuh"
#include "framework/distributed/device_side_queue.h"

namespace convscope {
namespace {

#if defined(CONVSCOPE_CUDA_EMULATED)
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

// Makes the side queue with high priority: it has few kernels, and kernels of the first queue wait
// for them.
void* make(int) {
  int least = 0;
  int greatest = 0;
  CONVSCOPE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t made = nullptr;
  CONVSCOPE_CUDA(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest));
  return made;
}

// The result is ignored: at process exit, the driver may already be shut down.
void free(int, void* queue) { (void)cudaStreamDestroy(static_cast<cudaStream_t>(queue)); }

// One event is enough: a wait uses the state that the event has when the wait is queued.
void let_wait(cudaStream_t waiting, cudaStream_t awaited) {
  static const cudaEvent_t event = [] {
    cudaEvent_t made = nullptr;
    CONVSCOPE_CUDA(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    return made;
  }();
  CONVSCOPE_CUDA(cudaEventRecord(event, awaited));
  CONVSCOPE_CUDA(cudaStreamWaitEvent(waiting, event, 0));
}
void fork(int, void* queue) { let_wait(static_cast<cudaStream_t>(queue), cuda_stream()); }
void join(int, void* queue) { let_wait(cuda_stream(), static_cast<cudaStream_t>(queue)); }

const SideQueues& side_queues() {
  static constexpr SideQueues queues{
      .make = make, .free = free, .fork = fork, .join = join, .is_emulated = kEmulated};
  return queues;
}

}  // namespace
CONVSCOPE_KERNEL(side_queues_kernel, cuda, side_queues)
}  // namespace convscope

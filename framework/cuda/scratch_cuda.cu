// SPDX-License-Identifier: Apache-2.0
// scratch_cuda.cu: allocates the scratch memory that all kernels share (scratch.cuh).
#include <new>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/scratch.cuh"

namespace convscope {
namespace {

// The memory is never freed, because the driver may already be shut down when the process ends.
void* make_scratch() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return ::operator new(kScratchBytes, std::align_val_t{128});
#else
  void* made = nullptr;
  // The first call may happen during a recording. Recordings forbid allocations unless this mode is
  // set.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CONVSCOPE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  const cudaError_t status = cudaMalloc(&made, kScratchBytes);
  CONVSCOPE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  check_cuda(status, "cudaMalloc of the scratch memory");
  return made;
#endif
}

}  // namespace

void* cuda_scratch(std::size_t bytes) {
  CONVSCOPE_CHECK(bytes <= kScratchBytes, "cuda", "expected at most ", kScratchBytes,
                  " bytes of scratch memory, got ", bytes);
  static void* const memory = make_scratch();
  return memory;
}

}  // namespace convscope

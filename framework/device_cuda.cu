// SPDX-License-Identifier: Apache-2.0
// device_cuda.cu: the CUDA DeviceBackend: memory, copies, timing marks, recorded graphs.
//
// All work of a process goes to one stream that this file creates, because the legacy default
// stream cannot be captured. So the allocator may reuse a freed block at once: the kernel that uses
// the block next is queued after the kernel that used the block last.
#include <array>
#include <cstring>

#include "framework/cuda/launch.cuh"
#include "framework/device.h"

namespace convscope {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error; a broken device reports it again
  fail(ErrorKind::kRun, "cuda",
       cat(what, " failed: ", cudaGetErrorName(status), ", ", cudaGetErrorString(status)));
}

cudaStream_t cuda_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    CONVSCOPE_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

const CudaDeviceFacts& cuda_device_facts() {
  static const CudaDeviceFacts facts = [] {
    int device = 0;
    CONVSCOPE_CUDA(cudaGetDevice(&device));
    cudaDeviceProp properties{};
    CONVSCOPE_CUDA(cudaGetDeviceProperties(&properties, device));
    return CudaDeviceFacts{
        .multiprocessors = properties.multiProcessorCount,
        .shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin),
        .major = properties.major,
        .minor = properties.minor,
        .l2_bytes = static_cast<std::size_t>(properties.l2CacheSize)};
  }();
  return facts;
}

namespace {

void* system_allocate(int, std::size_t bytes) {
  void* out = nullptr;
  const cudaError_t status = cudaMalloc(&out, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  CONVSCOPE_CUDA(status);
  return out;
}
void system_free(int, void* pointer, std::size_t) {
  // The result is ignored: at process exit, the driver may already be shut down.
  (void)cudaFree(pointer);
}
void copy_to_host(int, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  CONVSCOPE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda_stream()));
  CONVSCOPE_CUDA(cudaStreamSynchronize(cuda_stream()));
}
void copy_from_host(int, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  // Returns when `from` has been read if it is pageable memory, and at once if it is pinned.
  CONVSCOPE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda_stream()));
}
void queue_copy_to_host(int, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  CONVSCOPE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda_stream()));
}
void copy_within(int, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  CONVSCOPE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream()));
}
void fill_bytes(int, void* to, int value, std::size_t bytes) {
  if (bytes == 0) return;
  CONVSCOPE_CUDA(cudaMemsetAsync(to, value, bytes, cuda_stream()));
}
void synchronize(int) { CONVSCOPE_CUDA(cudaStreamSynchronize(cuda_stream())); }

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  return count;
}

// ---- pinned host memory: the device reads it asynchronously ----
void* allocate_pinned(std::size_t bytes) {
  void* out = nullptr;
  CONVSCOPE_CUDA(cudaMallocHost(&out, bytes));
  return out;
}
void free_pinned(void* pointer) { (void)cudaFreeHost(pointer); }

// ---- marks in the queue of work ----
void* make_mark(int) {
  cudaEvent_t event = nullptr;
  CONVSCOPE_CUDA(cudaEventCreate(&event));
  return event;
}
void free_mark(int, void* mark) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(mark)); }
// Makes the mark an external event: in a recording, the event becomes a node of the graph, and each
// replay sets the event again. Without cudaEventRecordExternal, an event in a recording only orders
// the streams.
void set_mark(int, void* mark) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CONVSCOPE_CUDA(cudaStreamIsCapturing(cuda_stream(), &status));
  CONVSCOPE_CUDA(cudaEventRecordWithFlags(
      static_cast<cudaEvent_t>(mark), cuda_stream(),
      status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal));
}
double ms_between(int, void* from, void* to) {
  CONVSCOPE_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(to)));
  float ms = 0;
  CONVSCOPE_CUDA(
      cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)));
  return ms;
}
void wait_for_mark(int, void* mark) {
  CONVSCOPE_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(mark)));
}

// ---- recorded work ----
void begin_recording(int) {
  CONVSCOPE_CUDA(cudaStreamBeginCapture(cuda_stream(), cudaStreamCaptureModeThreadLocal));
}
void* end_recording(int) {
  cudaGraph_t graph = nullptr;
  CONVSCOPE_CUDA(cudaStreamEndCapture(cuda_stream(), &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check_cuda(status, "cudaGraphInstantiate");
  return executable;
}
void replay(int, void* recording) {
  CONVSCOPE_CUDA(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), cuda_stream()));
}
void free_recording(int, void* recording) {
  (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording));
}

DeviceFacts facts(int index) {
  cudaDeviceProp properties{};
  CONVSCOPE_CUDA(cudaGetDeviceProperties(&properties, index));
  DeviceFacts out;
  out.name = properties.name;
  out.compute_capability = cat(properties.major, ".", properties.minor);
  out.multiprocessors = properties.multiProcessorCount;
  out.l2_bytes = properties.l2CacheSize;
  int driver = 0;
  int runtime = 0;
  CONVSCOPE_CUDA(cudaDriverGetVersion(&driver));
  CONVSCOPE_CUDA(cudaRuntimeGetVersion(&runtime));
  out.driver_api = cat(driver / 1000, ".", driver % 1000 / 10);
  out.runtime = cat(runtime / 1000, ".", runtime % 1000 / 10);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  CONVSCOPE_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  out.total_bytes = static_cast<std::int64_t>(total_bytes);
  out.free_bytes = static_cast<std::int64_t>(free_bytes);
  return out;
}

const bool kRegistered = [] {
  register_device_backend(DeviceType::cuda, {.name = "cuda",
                                             .system_allocate = system_allocate,
                                             .system_free = system_free,
                                             .copy_to_host = copy_to_host,
                                             .copy_from_host = copy_from_host,
                                             .queue_copy_to_host = queue_copy_to_host,
                                             .copy_within = copy_within,
                                             .fill_bytes = fill_bytes,
                                             .synchronize = synchronize,
                                             .device_count = device_count,
                                             .allocate_pinned = allocate_pinned,
                                             .free_pinned = free_pinned,
                                             .make_mark = make_mark,
                                             .free_mark = free_mark,
                                             .set_mark = set_mark,
                                             .wait_for_mark = wait_for_mark,
                                             .ms_between = ms_between,
                                             .begin_recording = begin_recording,
                                             .end_recording = end_recording,
                                             .replay = replay,
                                             .free_recording = free_recording,
                                             .facts = facts});
  return true;
}();

}  // namespace
}  // namespace convscope

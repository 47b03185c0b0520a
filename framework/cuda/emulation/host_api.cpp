// SPDX-License-Identifier: Apache-2.0
// host_api.cpp: the host functions of the CUDA runtime: memory, copies, streams, events, captured
// graphs, device properties.
#include "framework/cuda/emulation/host_api.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/check.h"
#include "framework/cuda/emulation/overlap.h"
#include "framework/cuda/emulation/threads.h"

using Work = std::vector<std::function<void()>>;
struct CUstream_st {
  std::unique_ptr<Work> captured;  // during a capture
  bool broken = false;             // an operation that cannot be captured occurred
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
  bool recorded = false;
};
struct CUgraph_st {
  Work work;
};
struct CUgraphExec_st {
  Work work;
};

namespace {

thread_local cudaError_t last_error = cudaSuccess;
cudaError_t error(cudaError_t status) {
  last_error = status;
  return status;
}

// The stream that this thread captures. One variable is enough, because a thread captures at most
// one stream at a time.
thread_local cudaStream_t capturing = nullptr;

// Marks the capture of this thread as broken. Operations that are forbidden during a capture call
// this function, because CUDA invalidates a capture that contains one. Returns false when there is
// no capture.
bool breaks_capture() {
  if (capturing == nullptr) return false;
  capturing->broken = true;
  return true;
}

template <class Do>
cudaError_t enqueue(Do work) {
  if (capturing != nullptr) {
    capturing->captured->push_back(work);
  } else {
    work();
  }
  return cudaSuccess;
}

// ---- device memory ----
struct HeapBlock {
  std::size_t bytes = 0;
  std::uint64_t serial = 0;
};
struct Heap {
  std::mutex mutex;
  std::map<std::uintptr_t, HeapBlock> blocks;  // by address
  std::size_t used = 0;
  std::uint64_t serial = 0;
};
Heap& heap() {
  static Heap& made = *new Heap;  // never freed: tensors may outlive every static object
  return made;
}
// CONVSCOPE_EMULATION_MEMORY_MIB: memory of the emulated device.
std::size_t total_bytes() {
  static const std::size_t total = [] {
    const char* text = std::getenv("CONVSCOPE_EMULATION_MEMORY_MIB");
    const long mib = text == nullptr ? 4096 : std::strtol(text, nullptr, 10);
    return static_cast<std::size_t>(mib > 0 ? mib : 4096) << 20;
  }();
  return total;
}

// CONVSCOPE_EMULATION_MULTIPROCESSORS sets this number. The default is small, so that small grids
// need several waves.
int multiprocessors() {
  static const int count = [] {
    const char* text = std::getenv("CONVSCOPE_EMULATION_MULTIPROCESSORS");
    const long given = text == nullptr ? 8 : std::strtol(text, nullptr, 10);
    return static_cast<int>(given > 0 && given <= 1024 ? given : 8);
  }();
  return count;
}

bool is_device_range(const void* pointer, std::size_t bytes) {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto block = h.blocks.upper_bound(address);
  if (block == h.blocks.begin()) return false;
  --block;
  return address + bytes <= block->first + block->second.bytes;
}

bool ranges_fit(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (!to_device || is_device_range(to, bytes)) &&
         (!from_device || is_device_range(from, bytes));
}

}  // namespace

namespace emulation {
std::vector<DeviceBlock> device_blocks() {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  std::vector<DeviceBlock> out;
  for (const auto& [address, block] : h.blocks) {
    out.push_back({reinterpret_cast<std::byte*>(address), block.bytes, block.serial});
  }
  return out;
}
bool is_capturing() { return capturing != nullptr; }
void capture(std::function<void()> work) { capturing->captured->push_back(std::move(work)); }
}  // namespace emulation

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevicePointer:
      return "cudaErrorInvalidDevicePointer";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
  }
  return "an unknown error";
}
const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "reported by the emulation";
  }
}
cudaError_t cudaGetLastError() {
  const cudaError_t status = last_error;
  last_error = cudaSuccess;
  return status;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : error(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return error(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "emulated on the CPU");
  properties->totalGlobalMem = total_bytes();
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->regsPerBlock = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->multiProcessorCount = multiprocessors();
  properties->major = 9;
  properties->minor = 0;
  properties->l2CacheSize = multiprocessors() * (464 << 10);  // as an H200 has for each
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return last_error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return error(cudaErrorInvalidValue);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceSynchronize() {
  return breaks_capture() ? error(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (breaks_capture()) return error(cudaErrorStreamCaptureUnsupported);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  // Aligns to 256 bytes, as CUDA does; programs must not rely on more.
  if (bytes > total_bytes() - h.used || posix_memalign(pointer, 256, bytes) != 0) {
    *pointer = nullptr;
    return error(cudaErrorMemoryAllocation);
  }
  std::memset(*pointer, 0xff, bytes);  // NaN in every float type
  h.blocks[reinterpret_cast<std::uintptr_t>(*pointer)] = {bytes, ++h.serial};
  h.used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  if (breaks_capture()) return error(cudaErrorStreamCaptureUnsupported);
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  const auto block = h.blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (block == h.blocks.end()) return error(cudaErrorInvalidDevicePointer);
  h.used -= block->second.bytes;
  h.blocks.erase(block);
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  if (posix_memalign(pointer, 4096, bytes == 0 ? 1 : bytes) == 0) return cudaSuccess;
  *pointer = nullptr;
  return error(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* all_bytes) {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  *free_bytes = total_bytes() - h.used;
  *all_bytes = total_bytes();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  if (bytes == 0) return cudaSuccess;
  if (!ranges_fit(to, from, bytes, kind)) return error(cudaErrorInvalidValue);
  return enqueue([=] {
    emulation::overlap::settle();
    std::memmove(to, from, bytes);
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (breaks_capture()) return error(cudaErrorStreamCaptureUnsupported);
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width_bytes, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (width_bytes > to_pitch || width_bytes > from_pitch) return error(cudaErrorInvalidValue);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t status = cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                                               static_cast<const char*>(from) + row * from_pitch,
                                               width_bytes, kind, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  if (bytes == 0) return cudaSuccess;
  if (!is_device_range(to, bytes)) return error(cudaErrorInvalidValue);
  return enqueue([=] {
    emulation::overlap::settle();
    std::memset(to, value, bytes);
  });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*function)(void*), void* data) {
  return enqueue([=] { function(data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return enqueue([=] {
    event->at = std::chrono::steady_clock::now();
    event->recorded = true;
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->recorded || !to->recorded) return error(cudaErrorInvalidResourceHandle);
  *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (capturing != nullptr) return error(cudaErrorIllegalState);
  stream->captured = std::make_unique<Work>();
  stream->broken = false;
  capturing = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (capturing != stream) return error(cudaErrorIllegalState);
  capturing = nullptr;
  const std::unique_ptr<Work> work = std::move(stream->captured);
  if (stream->broken) return error(cudaErrorStreamCaptureUnsupported);
  *graph = new CUgraph_st{std::move(*work)};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = capturing == stream && stream != nullptr ? cudaStreamCaptureStatusActive
                                                     : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  if (capturing != nullptr) return error(cudaErrorStreamCaptureUnsupported);
  emulation::overlap::settle();
  for (const auto& work : executable->work) work();
  emulation::overlap::settle();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

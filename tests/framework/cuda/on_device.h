// SPDX-License-Identifier: Apache-2.0
// on_device.h: arrays in the memory of the emulated device, and recorded kernel launches, for tests
// of the emulation itself.
#pragma once

#include <cstddef>
#include <vector>

#include "framework/cuda/launch.cuh"

namespace convscope {

template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T> values) : count_(values.size()) {
    CONVSCOPE_CUDA(cudaMalloc(&data_, bytes()));
    CONVSCOPE_CUDA(
        cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyHostToDevice, cuda_stream()));
  }
  explicit OnDevice(std::size_t count) : OnDevice(std::vector<T>(count)) {}
  ~OnDevice() { (void)cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    CONVSCOPE_CUDA(
        cudaMemcpyAsync(out.data(), data_, bytes(), cudaMemcpyDeviceToHost, cuda_stream()));
    CONVSCOPE_CUDA(cudaStreamSynchronize(cuda_stream()));
    return out;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

// Records the launches of `body`; replay() launches them.
class Recording {
 public:
  template <class Body>
  explicit Recording(Body&& body) {
    CONVSCOPE_CUDA(cudaStreamBeginCapture(cuda_stream(), cudaStreamCaptureModeThreadLocal));
    body();
    cudaGraph_t graph = nullptr;
    CONVSCOPE_CUDA(cudaStreamEndCapture(cuda_stream(), &graph));
    CONVSCOPE_CUDA(cudaGraphInstantiate(&executable_, graph, 0));
    CONVSCOPE_CUDA(cudaGraphDestroy(graph));
  }
  ~Recording() { (void)cudaGraphExecDestroy(executable_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  void replay() const { CONVSCOPE_CUDA(cudaGraphLaunch(executable_, cuda_stream())); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace convscope

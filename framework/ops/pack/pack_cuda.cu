// SPDX-License-Identifier: Apache-2.0
// pack_cuda.cu: copies many small tensors into one tensor and back, up to 128 tensors in a launch.
//
// Formula    packed[begin_p + i] = part_p[i], or the reverse
// Textbook   for each part: cudaMemcpyAsync(packed + begin, part, bytes); each is a launch of 2 us
// Method     The table of tensors ("parts") is a kernel parameter, so a CUDA graph contains the
//            table. A row of the grid's blocks copies one part, and a thread copies one element at
//            a time.
// Shapes     parts f32, of any sizes; packed f32 [sum of the sizes]
// Supports   any number of parts
// Cost       bytes = 8 per element; launch-bound: ResNet-18 has 9600 elements
// Numerics   copies
// Backward   none
// Choices    kMaxParts = 128: 128 * 16 bytes are half of the 4 KiB limit of parameters.
//            kBlocks = 2 blocks of 256 threads per part: a statistic has up to 512 numbers
// Source     as update_cuda.cu, whose table holds parameters
// Read next  optim/update_cuda.cu
#include <algorithm>

#include "framework/cuda/launch.cuh"
#include "framework/ops/pack/pack.h"

namespace convscope {
namespace {

constexpr int kMaxParts = 128;
constexpr unsigned kBlocks = 2;

struct Part {
  float* data;
  std::int64_t count;
};
struct Parts {
  Part part[kMaxParts];
};

// Each block computes its part's offset by adding the sizes of the parts before it.
template <bool kInto>
__global__ void __launch_bounds__(kThreads) copy_parts(const Parts parts, float* packed) {
  for (unsigned i = 0; i < blockIdx.y; ++i) packed += parts.part[i].count;
  const Part part = parts.part[blockIdx.y];
  for (std::int64_t i = global_thread(); i < part.count; i += global_threads()) {
    if (kInto) {
      packed[i] = part.data[i];
    } else {
      part.data[i] = packed[i];
    }
  }
}

template <bool kInto>
void copy_cuda(const std::vector<Tensor>& parts, const Tensor& packed) {
  float* at = packed.data<float>();
  for (std::size_t first = 0; first < parts.size(); first += kMaxParts) {
    Parts table{};
    const std::size_t count = std::min(parts.size() - first, std::size_t{kMaxParts});
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor& part = parts[first + i];
      table.part[i] = {part.data<float>(), part.numel()};
      elements += part.numel();
    }
    // The launch does not set overlaps_previous, because the copy also reads the results of a side
    // queue (Reducer).
    launch(copy_parts<kInto>,
           {.grid = dim3(kBlocks, static_cast<unsigned>(count)), .block = dim3(kThreads)}, table,
           at);
    at += elements;
  }
}

void pack_cuda(const std::vector<Tensor>& parts, const Tensor& packed) {
  copy_cuda<true>(parts, packed);
}
void unpack_cuda(const std::vector<Tensor>& parts, const Tensor& packed) {
  copy_cuda<false>(parts, packed);
}

}  // namespace
CONVSCOPE_KERNEL(pack_kernel, cuda, pack_cuda)
CONVSCOPE_KERNEL(unpack_kernel, cuda, unpack_cuda)
}  // namespace convscope

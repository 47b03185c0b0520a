// SPDX-License-Identifier: Apache-2.0
// depthwise_slices.cuh: the two-stage sum of a weight gradient. A block owns the channels of a tile
// and a slice of the batch (images and bands). The block writes its sums to partial[c,r,s][slice],
// and sum_slices() (depthwise_elements_cuda.cu) adds the slices.
// Read next  depthwise_weight_cuda.cu, the kernel for small taps
#pragma once

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"

namespace convscope::depthwise {

struct Slices {
  int images = 0, channels = 1;
  int chunks = 1;  // of channels, each with the planes of a tile
  int slices = 1;
  float* partial = nullptr;  // [C, R S, slices]
};

// The jobs [begin, end) that a block computes for its channels. A job is one band of one image.
struct SlicePart {
  int slice = 0;
  int begin = 0, end = 0;
};

__device__ inline SlicePart slice_part(const DepthwiseTiling& t, const Slices& s) {
  const auto slice = static_cast<int>(blockIdx.y);
  const auto jobs = static_cast<std::int64_t>(s.images) * t.bands;
  return {.slice = slice,
          .begin = static_cast<int>(jobs * slice / s.slices),
          .end = static_cast<int>(jobs * (slice + 1) / s.slices)};
}

__device__ inline DepthwiseJob slice_job(const DepthwiseTiling& t, const Slices& s, int at) {
  const int image = at / t.bands;
  return depthwise_job(t, image, static_cast<int>(blockIdx.x), at - image * t.bands, s.channels);
}

// Adds the results of the threads of each channel, in a fixed order. `shared` has kTaps floats for
// each thread, which the function overwrites.
template <int kTaps>
__device__ inline void write_partial(const DepthwiseTiling& t, const Slices& s, int slice,
                                     const float (&sums)[kTaps], float* shared) {
  const int threads = static_cast<int>(blockDim.x);
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kTaps; ++i) shared[i * threads + me] = sums[i];
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * t.planes;
  const int channels = min(t.planes, s.channels - first);
  float* const to = s.partial + static_cast<std::int64_t>(first) * kTaps * s.slices + slice;
  if (t.planes == 1) {  // one warp for each tap
    for (int tap = me / 32; tap < kTaps; tap += threads / 32) {
      float sum = 0;
      for (int i = me % 32; i < threads; i += 32) sum += shared[tap * threads + i];
      sum = warp_sum(sum);
      if (me % 32 == 0) to[tap * s.slices] = sum;
    }
    return;
  }
  const int each = t.strips * t.groups;  // threads of a channel
  for (int i = me; i < channels * kTaps; i += threads) {
    const int channel = i / kTaps;
    const float* const from = shared + (i - channel * kTaps) * threads + channel * each;
    float sum = 0;
    for (int j = 0; j < each; ++j) sum += from[j];
    to[i * s.slices] = sum;
  }
}

// Returns the number of slices. 3x3 has 24 blocks for each SM, about 4 rounds of the blocks that
// run at a time, because the last round is rarely full. Larger kernels have fewer blocks, because
// each block must sum the R S accumulators of its threads. A block takes two jobs when there are
// still enough blocks for the device.
inline int slice_count(const DepthwiseTiling& t, const Conv2dProblem& z) {
  const std::int64_t chunks = ceil_div(z.c, std::int64_t{t.planes});
  const std::int64_t jobs = z.n * t.bands;
  const std::int64_t processors = cuda_device_facts().multiprocessors;
  const std::int64_t wanted = processors * (z.r == 3 ? 24 : z.r == 5 ? 12 : 8);
  std::int64_t slices =
      std::clamp<std::int64_t>(wanted / chunks, 1, std::min<std::int64_t>(jobs, 65535));
  if (z.r > 3 && jobs < 2 * slices) {
    slices = std::min(slices, std::max(processors * 4 / chunks, jobs / 2));
  }
  return static_cast<int>(std::max<std::int64_t>(slices, 1));
}

inline Slices slices_of(const DepthwiseTiling& t, const Conv2dProblem& z, int slices,
                        void* workspace) {
  return {.images = static_cast<int>(z.n),
          .channels = static_cast<int>(z.c),
          .chunks = static_cast<int>((z.c + t.planes - 1) / t.planes),
          .slices = slices,
          .partial = static_cast<float*>(workspace)};
}

inline LaunchShape shape_of(const DepthwiseTiling& t, const Slices& s, std::size_t shared_bytes) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(s.chunks), static_cast<unsigned>(s.slices)),
                    .block = dim3(static_cast<unsigned>(t.threads())),
                    .shared_bytes = shared_bytes};
  shape.overlaps_previous = true;
  return shape;
}

}  // namespace convscope::depthwise

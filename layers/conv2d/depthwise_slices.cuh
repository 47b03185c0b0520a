// SPDX-License-Identifier: Apache-2.0
// depthwise_slices.cuh: the two-stage sum of a weight gradient: a block owns the channels of a tile
// and a slice of the batch (images and bands), writes its sums as partial[c,r,s][slice], and
// sum_slices() (depthwise_elements_cuda.cu) adds the slices.
#pragma once

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise_launch.cuh"

namespace convscope::depthwise {

struct Slices {
  int images = 0, channels = 1;
  int chunks = 1;  // of channels: each the planes of a tile
  int slices = 1;
  float* partial = nullptr;  // [C, R S, slices]
};

// A block's part: channels and jobs [begin, end); a job is an image and a band of it.
struct SlicePart {
  int slice = 0;
  int first_channel = 0, channels = 0;
  int begin = 0, end = 0;
};

__device__ inline SlicePart slice_part(const DepthwiseTiling& t, const Slices& s) {
  SlicePart part;
  part.slice = static_cast<int>(blockIdx.x) / s.chunks;
  part.first_channel = (static_cast<int>(blockIdx.x) - part.slice * s.chunks) * t.planes;
  part.channels = min(t.planes, s.channels - part.first_channel);
  const auto jobs = static_cast<std::int64_t>(s.images) * t.bands;
  part.begin = static_cast<int>(jobs * part.slice / s.slices);
  part.end = static_cast<int>(jobs * (part.slice + 1) / s.slices);
  return part;
}

__device__ inline DepthwiseJob slice_job(const DepthwiseTiling& t, const Slices& s,
                                         const SlicePart& part, int at) {
  const int image = at / t.bands;
  const int band = at - image * t.bands;
  return {.plane = static_cast<std::int64_t>(image) * s.channels + part.first_channel,
          .planes = part.channels,
          .in_row = t.in_origin + band * t.in_band,
          .out_row = t.out_origin + band * t.out_band};
}

// Adds up the sums of the threads of each channel, in a fixed order. `shared`: kTaps floats for each
// thread, which nobody uses any more.
template <int kTaps>
__device__ inline void write_partial(const DepthwiseTiling& t, const Slices& s,
                                     const SlicePart& part, const float (&sums)[kTaps],
                                     float* shared) {
  const int threads = static_cast<int>(blockDim.x);
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kTaps; ++i) shared[i * threads + me] = sums[i];
  __syncthreads();
  float* const to =
      s.partial + static_cast<std::int64_t>(part.first_channel) * kTaps * s.slices + part.slice;
  if (t.planes == 1) {  // a warp for each tap
    for (int tap = me / 32; tap < kTaps; tap += threads / 32) {
      float sum = 0;
      for (int i = me % 32; i < threads; i += 32) sum += shared[tap * threads + i];
      sum = warp_sum(sum);
      if (me % 32 == 0) to[tap * s.slices] = sum;
    }
    return;
  }
  const int each = t.strips * t.groups;  // threads of a channel
  for (int i = me; i < part.channels * kTaps; i += threads) {
    const int channel = i / kTaps;
    const float* const from = shared + (i - channel * kTaps) * threads + channel * each;
    float sum = 0;
    for (int j = 0; j < each; ++j) sum += from[j];
    to[i * s.slices] = sum;
  }
}

// 8 blocks for each multiprocessor, so that few channels keep all busy.
inline int slice_count(const DepthwiseTiling& t, const Conv2dProblem& z) {
  const std::int64_t chunks = (z.c + t.planes - 1) / t.planes;
  const std::int64_t wanted = std::int64_t{cuda_device_facts().multiprocessors} * 8;
  return static_cast<int>(std::clamp<std::int64_t>(wanted / chunks, 1, z.n * t.bands));
}

inline Slices slices_of(const DepthwiseTiling& t, const Conv2dProblem& z, int slices,
                        void* workspace) {
  return {.images = static_cast<int>(z.n),
          .channels = static_cast<int>(z.c),
          .chunks = static_cast<int>((z.c + t.planes - 1) / t.planes),
          .slices = slices,
          .partial = static_cast<float*>(workspace)};
}

}  // namespace convscope::depthwise

// SPDX-License-Identifier: Apache-2.0
// depthwise_nhwc_3x3.cuh: device functions shared by the 3x3 kernels for fp16/bf16 in
// NHWC. They load two channels of a pixel and the nine taps as floats, and compute a thread's
// position.
// Read next  depthwise_nhwc_slide_cuda.cu, depthwise_nhwc_both_cuda.cu
#pragma once

#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_nhwc_3x3.h"

namespace convscope::depthwise {

constexpr int kLanes = Walk3x3::kLanes;
constexpr int kColumns = Walk3x3::kColumns;

template <class Half>
__device__ inline void floats_of(unsigned pair, float (&v)[kLanes]) {
  const float2 both = floats_from_pair<Half>(pair);
  v[0] = both.x, v[1] = both.y;
}

__device__ inline bool is_in(int at, int size) {
  return static_cast<unsigned>(at) < static_cast<unsigned>(size);
}

// Where a kernel reads the taps: from w [C][9] in f32, or from fp16/bf16 [9][pairs], which
// prepare_weights() wrote. Prepared taps may be rotated by 180 degrees.
struct Taps3x3 {
  const unsigned* prepared = nullptr;
  const float* w = nullptr;
  int channels = 0, pairs = 0;
  bool rotated = false;               // whether tap t is element 8 - t of w
  bool prepared_are_rotated = false;  // whether prepared taps are rotated
};

// Returns the source of the taps. dx of stride 1 needs rotated taps: with `rotated`, taps of w are
// read in reverse order. prepare_weights() has already reversed prepared taps.
inline Taps3x3 taps_3x3(const Conv2dProblem& z, const void* prepared, const void* w, bool rotated) {
  return {.prepared = static_cast<const unsigned*>(prepared),
          .w = static_cast<const float*>(w),
          .channels = static_cast<int>(z.c),
          .pairs = static_cast<int>(4 * ceil_div(z.c, std::int64_t{8})),
          .rotated = rotated};
}

// Loads the taps; f32 w is rounded to fp16/bf16.
template <class Half>
__device__ inline void load_taps(const Taps3x3& from, int pair, float (&taps)[9][kLanes]) {
#pragma unroll
  for (int t = 0; t < 9; ++t) {
    if (from.prepared != nullptr) {
      const int at = from.prepared_are_rotated ? 8 - t : t;
      floats_of<Half>(from.prepared[at * from.pairs + pair], taps[t]);
      continue;
    }
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      const int c = pair * kLanes + l;
      const float w = c < from.channels ? from.w[c * 9 + (from.rotated ? 8 - t : t)] : 0.0f;
      taps[t][l] = to_float(from_float<Half>(w));
    }
  }
}

struct Place3x3 {
  int pair = 0, strip = 0, band = 0, n = 0;
  bool is_idle = true;
};
// Returns the position of this thread. Grid: x = places (strips of bands), y = channel pairs.
__device__ inline Place3x3 place_of(const Walk3x3& walk) {
  const int me = static_cast<int>(threadIdx.x);
  const int pair = static_cast<int>(blockIdx.y) * walk.width() + (me & (walk.width() - 1));
  const std::int64_t at =
      static_cast<std::int64_t>(blockIdx.x) * (static_cast<int>(blockDim.x) >> walk.width_log2) +
      (me >> walk.width_log2);
  if (pair >= walk.pairs || at >= walk.places) return {.pair = pair};
  const int above = walk.by_strips.divide(static_cast<int>(at));
  const int n = walk.by_bands.divide(above);
  return {.pair = pair,
          .strip = static_cast<int>(at) - above * walk.strips,
          .band = above - n * walk.bands,
          .n = n,
          .is_idle = false};
}

// Loads to[j] = column first + j of a row of an image [rows, columns, pairs], 0 outside the image.
template <int kCount>
__device__ inline void load_row(const unsigned* image, int row, int rows, int first, int columns,
                                int pairs, unsigned (&to)[kCount]) {
  const bool inside = is_in(row, rows);
  const unsigned* from = image + (static_cast<std::int64_t>(row) * columns + first) * pairs;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    to[j] = inside && is_in(first + j, columns) ? *from : 0u;
    from += pairs;
  }
}

}  // namespace convscope::depthwise

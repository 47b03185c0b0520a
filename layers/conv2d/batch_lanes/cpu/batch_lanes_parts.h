// SPDX-License-Identifier: Apache-2.0
// batch_lanes_parts.h: declarations shared by the batch_lanes_*_simd.cpp files.
#pragma once

#include "framework/int_math.h"
#include "framework/simd/sum_chain.h"
#include "framework/simd/window_taps.h"
#include "layers/conv2d/batch_lanes/cpu/batch_lanes.h"

namespace convscope::CONVSCOPE_ISA {

using Index = std::int64_t;

// The number of channels of dx that backward_data computes at once. Weights are packed for this
// number as [block][K][R][channels][S].
inline constexpr int kGradientChannels = kManyRegisters ? 2 : 1;

// The vectors of the largest pixel, which has 16 samples.
inline constexpr int kPixelVectors = 16 / kWide;

// Tells whether both vectors of a pixel are processed together. The loads then alternate between
// the two halves of a cache line, which avoids conflicts between the banks of L1.
inline constexpr bool kPairs = kPixelVectors == 2;

// Splits `count` items into blocks of nearly equal size.
struct Blocks {
  Index count, blocks;
  CONVSCOPE_INLINE Blocks(Index all, Index largest) : count(all), blocks(ceil_div(all, largest)) {}
  CONVSCOPE_INLINE Index begin(Index block) const {
    const Index rest = count % blocks;
    return block * (count / blocks) + (block < rest ? block : rest);
  }
  CONVSCOPE_INLINE Index size(Index block) const { return begin(block + 1) - begin(block); }
};

CONVSCOPE_INLINE Index smaller(Index a, Index b) { return a < b ? a : b; }
CONVSCOPE_INLINE Index larger(Index a, Index b) { return a > b ? a : b; }
CONVSCOPE_INLINE void clear(float* to, Index count) {
  for (Index i = 0; i < count; ++i) to[i] = 0.0f;
}

// Copies x [C,H,W,L] to [C,padded_h,padded_w,L] with a border of zeros.
void pad_planes(const LanesConv& z, const float* x, float* padded);

// ---- a pass over one image ---------------------------------------------------------------------

// The arguments of a pass over an image [channels, rows, columns, L]. If the image is a padded
// copy, its border is zero.
struct ImagePass {
  Index channels, rows, columns;                       // of the image
  Index zero_top, zero_bottom, zero_left, zero_right;  // known zeros
  Index r, s, row_stride, column_stride, lanes;
  const float* x;
  Index kernels;
  const float* weights;  // blocks of kernels, each [channels, r, s, size]
  const float* bias;
  bool relu;
  Index p, q;  // rows and columns of the result before pooling
  float* y;
  std::uint8_t* winners;
};

// Runs one pass: forward, or backward_data as a pass over dz.
void run_pass(const ImagePass& z, bool pooled);
// Packs w as [blocks of `kernels`][channels][taps][block]. The weight of (kernel, channel, tap) is
// w[kernel * k_step + channel * c_step + tap]. `rotated` rotates the taps by 180 degrees.
void pack_blocks(const float* w, Index kernels, Index k_step, Index channels, Index c_step,
                 Index taps, bool rotated, float* to);

// ------------------------------------------------------------------------------------------------

// Declares functions of LanesKernels that are defined outside of batch_lanes_simd.cpp.
void output_gradient(const LanesConv& z, const float* dy, const float* y,
                     const std::uint8_t* winners, float* dz, float* sums);
void backward_weight(const LanesConv& z, const float* x, const float* dz, float* sums,
                     float* scratch);
void pack_weights_backward(const LanesConv& z, const float* w, float* packed);
void backward_data(const LanesConv& z, const float* dz, const float* packed, float* dx,
                   float* scratch);
void backward(const LanesConv& z, const float* x, const float* y, const std::uint8_t* winners,
              const float* dy, const float* packed_backward, float* dx, float* sums,
              float* scratch);
void reduce(const LanesConv& z, const float* sums, Index step, Index chunks, Index k_begin,
            Index k_end, float* dw, float* db, bool accumulate);
// Computes the 2x2 max-pool of planes [h,w,L]. With `relu`, ReLU is applied first.
void max_pool2x2(Index planes, Index h, Index w, int lanes, bool relu, const float* x, float* y,
                 std::uint8_t* winners);
// to_lanes and from_lanes are null if the instruction set has no special copy; batch_lanes.cpp then
// calls gemm's transpose.
#if defined(CONVSCOPE_HAS_MASKS)
void to_lanes(const float* from, Index samples, Index size, int lanes, float* to);
void from_lanes(const float* from, Index samples, Index size, int lanes, float* to);
#else
inline constexpr decltype(LanesKernels::to_lanes) to_lanes = nullptr;
inline constexpr decltype(LanesKernels::from_lanes) from_lanes = nullptr;
#endif

}  // namespace convscope::CONVSCOPE_ISA

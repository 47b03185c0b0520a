// SPDX-License-Identifier: Apache-2.0
// batch_lanes.h: convolution with SAMPLES IN THE VECTOR LANES, for networks of few channels
// (LeNet). Each function does one part of a training step, for one lane group, in the calling
// thread.
//
// Layout     A lane group holds L samples (4, 8 or 16): x [C,H,W,L], y [K,P,Q,L]; lanes without a
//            sample are 0. Vectors are full for any C and K. A row has W L floats, and the input of
//            tap s is s L floats after that of tap 0. With L = 16 an AVX-512 vector is one pixel of
//            16 samples; with L = 4 it is four neighbouring pixels of four samples, loaded
//            unaligned.
// A layer is convolution, bias, optional ReLU and optional 2x2 max-pool at stride 2, computed in
// one pass that writes only the pooled result. For each pooled element, forward also writes a
// winner byte: the index (0 1 / 2 3) of the maximum in its window (the first of equal values, the
// last NaN), or kNoWinner where ReLU returned 0. dz [K,conv_p,conv_q,L] is the gradient before ReLU
// and pool.
// Use        pack_weights, pack_weights_backward   once for each step, shared by all groups
//            forward                               for each group
//            backward                              for each group: dx, and sums for dw and db
//                                                  per lane in the caller's buffer (zeroed
//                                                  first), one buffer for each chunk of groups
//            reduce                                once for each step: adds lanes and chunks up, in
//                                                  order
//            backward replaces output_gradient, backward_data and backward_weight: one call
//            computes dz, dx and the sums. For some layers with a pool it is also faster.
// Counts     (AVX-512; one FMA, one vector load or two broadcasts a cycle, 32 registers)
//            forward          6 k x 2 rows x 2 columns = 24 accumulators: 4 loads + 6
//                             broadcasts for 24 FMAs
//            backward_data    2 c x 8 columns of dx = 16 accumulators: each dz is loaded once
//                             for its S taps of 2 channels; pairs (dz, tap) outside of the image
//                             are never computed
//            backward_weight  4 k x 5 taps = 20 accumulators: 4 dz + 5 x loads for 20 FMAs
//            backward, pooled 2 k x 5 taps: 12 x + 2 dy loads, 22 blends (two a cycle, in parallel
//                             to the FMAs) and 10 FMAs; backward_weight on dz would need 40 FMAs
//            AVX2, 16 registers: 3 k x 4, 1 c x 2 parts x 4 columns, 2 k x 5 taps x 2 parts
#pragma once

#include <cstdint>

#include "framework/export.h"
#include "framework/int_math.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/problem.h"

namespace convscope {

// The winner byte of a pooled element whose gradient is zero.
inline constexpr std::uint8_t kNoWinner = 4;

// The sizes of a layer whose samples are in vector lanes. All instruction sets use this struct.
struct CONVSCOPE_API LanesConv {
  LanesConv() = default;
  // Computes all sizes; problem.n is ignored. Throws when refusal() is not "".
  LanesConv(const Conv2dProblem& problem, int lanes, bool relu, bool pool2x2);
  // Returns why the problem is not supported, or "". Needs f32, groups 1, no dilation, and column
  // stride 1 unless lanes is 16.
  static const char* refusal(const Conv2dProblem& problem, int lanes);

  std::int64_t c = 1, h = 1, w = 1, k = 1, r = 1, s = 1;
  std::int64_t stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
  int lanes = 16;        // L: 4, 8 or 16
  bool relu = false;     // y = max(sums, 0)
  bool pool2x2 = false;  // y is the maximum of each 2x2; an odd last row or column is skipped
  bool padded = false;   // has padding
  std::int64_t conv_p = 1, conv_q = 1;  // rows and columns before pooling: even when pool2x2
  std::int64_t y_p = 1, y_q = 1;        // rows and columns of y
  // The region of the padded image that the convolution reads.
  std::int64_t padded_h = 1, padded_w = 1;
  std::int64_t split_floats = 0;  // floats of the even columns of a padded row

  // Buffer sizes for one lane group. Every buffer is aligned to 64 bytes.
  std::int64_t x_floats = 0;
  std::int64_t y_floats = 0;
  std::int64_t winner_bytes = 0;
  std::int64_t gradient_floats = 0;  // floats of dz
  std::int64_t weight_floats = 0;    // floats of w, and of either packed w
  // Number of floats in the buffer `sums`, the accumulators of backward_weight. Each weight and
  // each bias has 16 floats, one for each lane, with any instruction set.
  std::int64_t sums_floats = 0;
  std::int64_t forward_scratch_floats = 0;
  std::int64_t backward_data_scratch_floats = 0;
  std::int64_t backward_weight_scratch_floats = 0;
  std::int64_t backward_scratch_floats = 0;  // includes dz
};

// Kernels for one lane group; outputs are assigned unless stated otherwise. b, db: [K].
struct LanesKernels {
  void (*pack_weights)(const LanesConv& z, const float* w, float* packed) = nullptr;
  void (*pack_weights_backward)(const LanesConv& z, const float* w, float* packed) = nullptr;

  // b may be null; winners [K,y_p,y_q,L] when pool2x2, else null.
  void (*forward)(const LanesConv& z, const float* x, const float* packed, const float* b, float* y,
                  std::uint8_t* winners, float* scratch) = nullptr;

  // Computes dz from dy [K,y_p,y_q,L] and an output of forward: `winners` with a pool, `y` with
  // ReLU only. A layer without pool and ReLU has dz = dy; pass dz = null, and only db is computed.
  // db is added to its accumulators in `sums`, the buffer that backward_weight also uses. `sums` is
  // null when db is not needed.
  void (*output_gradient)(const LanesConv& z, const float* dy, const float* y,
                          const std::uint8_t* winners, float* dz, float* sums) = nullptr;
  void (*backward_data)(const LanesConv& z, const float* dz, const float* packed_backward,
                        float* dx, float* scratch) = nullptr;
  // Adds the products to the accumulators of dw in `sums`.
  void (*backward_weight)(const LanesConv& z, const float* x, const float* dz, float* sums,
                          float* scratch) = nullptr;
  // Adds up the lanes of `chunks` accumulator buffers into dw [K,C,R,S] and db (null: not needed).
  // The buffers start `step` floats apart. With `accumulate` the sums are added to dw and db,
  // otherwise assigned. The call processes the kernels [k_begin, k_end), so that threads can share
  // the work.
  void (*reduce)(const LanesConv& z, const float* sums, std::int64_t step, std::int64_t chunks,
                 std::int64_t k_begin, std::int64_t k_end, float* dw, float* db,
                 bool accumulate) = nullptr;

  // Computes all gradients of a layer from x, dy [K,y_p,y_q,L] and an output of forward: `winners`
  // with a pool, `y` with ReLU only, otherwise neither. dx is assigned (null: not needed). dw and
  // db are added to the accumulators in `sums` (null: not needed). In each 2x2 pool window only one
  // pixel has a gradient, and the fast kernels process only that pixel. `scratch` has
  // backward_scratch_floats.
  void (*backward)(const LanesConv& z, const float* x, const float* y, const std::uint8_t* winners,
                   const float* dy, const float* packed_backward, float* dx, float* sums,
                   float* scratch) = nullptr;

  // Versions of samples_to_lanes() and lanes_to_samples() below for one instruction set. If null,
  // gemm's transpose is used.
  void (*to_lanes)(const float* from, std::int64_t samples, std::int64_t size, int lanes,
                   float* to) = nullptr;
  void (*from_lanes)(const float* from, std::int64_t samples, std::int64_t size, int lanes,
                     float* to) = nullptr;
};

CONVSCOPE_API extern IsaTable<LanesKernels> lanes_kernels;

// Copies `samples` <= L samples of `size` elements from NCHW order to [size, L]. Lanes without a
// sample become 0. lanes_to_samples() copies back and skips such lanes.
CONVSCOPE_API void samples_to_lanes(const float* from, std::int64_t samples, std::int64_t size,
                                    int lanes, float* to);
CONVSCOPE_API void lanes_to_samples(const float* from, std::int64_t samples, std::int64_t size,
                                    int lanes, float* to);

// Returns 4, 8 or 16: the smallest number of lanes that holds a batch of n, at most 16.
constexpr int lanes_for_batch(std::int64_t n) { return n <= 4 ? 4 : n <= 8 ? 8 : 16; }
constexpr std::int64_t lane_groups(std::int64_t n, int lanes) { return ceil_div(n, lanes); }

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// depthwise_nhwc_3x3.h: launch functions of the 3x3 kernels for fp16/bf16 in NHWC, called
// by depthwise_nhwc_cuda.cu, and the tiling of an image for these kernels.
//
// A thread computes two channels of a pixel (a pair, 4 bytes) in four neighbouring columns (a
// strip), and loops down some rows of an image (a band).
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/int_math.h"
#include "layers/conv2d/algorithm.h"

namespace convscope::depthwise {

// Tells whether the problem has 3x3 taps, no dilation, equal strides of 1 or 2, and padding of at
// most 2.
bool fits_3x3(const Conv2dProblem& problem);

// Computes y = relu(b + x * w + residual).
void forward_3x3(const Conv2dForwardArgs& args);
void backward_data_3x3(const Conv2dBackwardDataArgs& args);
// Computes dx of stride 1 as a forward pass over dy.
void slide_back_3x3(const Conv2dBackwardDataArgs& args);
void backward_weight_3x3(const Conv2dBackwardWeightArgs& args);
std::size_t weight_bytes_3x3(const Conv2dProblem& problem);  // workspace in bytes
struct Walk3x3;
// Returns the work of a call, for costs: of forward_3x3() or slide_back_3x3(), and of the others.
Walk3x3 walk_of_slide_3x3(const Conv2dProblem& problem, bool backward);
Walk3x3 walk_of_both_3x3(const Conv2dProblem& problem);
// Computes dx and dw in one pass that reads x and dy once. Needs the workspace of dw.
void backward_3x3(const Conv2dBackwardDataArgs& data, const Conv2dBackwardWeightArgs& weight);

// The work of one launch. A place is one strip of one band. A block has `rows` neighbouring places
// of x and `width` pairs.
struct Walk3x3 {
  static constexpr int kLanes = 2;    // channels of a pair
  static constexpr int kColumns = 4;  // of a strip
  static constexpr int kMaxBand = 28;

  int pairs = 0;  // channel pairs of a pixel
  int width_log2 = 0;
  int strips = 1, bands = 1, band = 1;  // rows of a band; backward, stride 2: pairs of rows
  int blocks = 1;                       // blocks of threads along the places
  FastDivisor by_strips, by_bands;
  std::int64_t places = 0;  // strips x bands x images

  constexpr int width() const { return 1 << width_log2; }
  constexpr int blocks_of_pairs() const { return ceil_div(pairs, width()); }
};

// Returns the launch for n images of `rows` rows and `columns` columns, with `threads` threads in a
// block and `resident` blocks on an SM at a time. A band reads `frame` rows more than it computes.
constexpr Walk3x3 make_walk_3x3(std::int64_t n, int rows, int columns, int channels, int threads,
                                int resident, int frame) {
  Walk3x3 walk;
  walk.pairs = 4 * ceil_div(channels, 8);
  while (walk.width_log2 < 5 && walk.width() < walk.pairs) ++walk.width_log2;
  walk.strips = ceil_div(columns, Walk3x3::kColumns);
  const int side_by_side = threads >> walk.width_log2;
  const auto blocks_of = [&](int band) {
    const std::int64_t places = n * walk.strips * ceil_div(rows, band);
    return ceil_div(places, std::int64_t{side_by_side});
  };
  // Minimises the estimated time: the number of rounds of resident blocks, times the rows that a
  // block loads. It assumes that all blocks take equally long.
  std::int64_t least = INT64_MAX;
  for (int bands = ceil_div(rows, Walk3x3::kMaxBand); bands <= rows; ++bands) {
    const int band = ceil_div(rows, bands);
    if (ceil_div(rows, band) != bands) continue;
    const std::int64_t rounds =
        ceil_div(blocks_of(band) * walk.blocks_of_pairs(), std::int64_t{resident});
    // Smaller bands take more rounds, and the idle time in the last round is then a smaller share.
    const std::int64_t time = rounds * (band + frame + 1);
    if (time >= least) continue;
    least = time;
    walk.band = band;
    walk.bands = bands;
  }
  walk.places = n * walk.strips * walk.bands;
  walk.by_strips = FastDivisor(walk.strips);
  walk.by_bands = FastDivisor(walk.bands);
  walk.blocks = static_cast<int>(blocks_of(walk.band));
  return walk;
}

}  // namespace convscope::depthwise

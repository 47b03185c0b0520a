// SPDX-License-Identifier: Apache-2.0
// gather_lines.h: where the elements of an implicit matrix product on a GPU are read and stored. It
// needs no CUDA, so tests check it on the CPU.
//
// Convolutions of all directions read an image through a "line" for each of its two dimensions:
//   position i of the output, tap t  ->  element in_first + i in_step + t tap_step of the input.
// forward        in_first = -pad, in_step = stride, tap_step = dilation
// backward_data  one line for each remainder a of (h modulo stride), a phase. It has only taps r
//                with (a + pad - r dilation) divisible by the stride: no zero is multiplied;
//                in_step = 1, tap_step = -(taps' distance in the kernel) dilation / stride
//
// A piece is 16 bytes, adjacent channels of one pixel, which one asynchronous copy moves. A step of
// the reduction takes eight pieces, a row of 128 bytes
// (framework/cuda/tensor_cores/matrix_tile.cuh).
#pragma once

#include <cstdint>
#include <numeric>

#include "framework/int_math.h"

namespace convscope::gather {

inline constexpr int kBlockPieces = 8;    // pieces of a row that one step of the reduction takes
inline constexpr int kMaxTaps = 15;       // in each dimension: bits 0..14 and 16..30 of a mask
inline constexpr int kChannelPieces = 4;  // whose taps are consecutive, see piece_at()

// One dimension of one phase.
struct Line {
  int outputs = 0;                  // positions i
  int out_first = 0, out_step = 1;  // position i is this element of the output
  int in_size = 0;                  // elements outside are zero
  int in_first = 0, in_step = 1;    // see above
  int taps = 0, tap_step = 1;
  int kernel_first = 0, kernel_step = 1;          // tap t is this element of the kernel
  FastDivisor by_outputs = {}, by_tap_step = {};  // set by the two functions below

  constexpr int input(int i, int tap) const { return in_first + i * in_step + tap * tap_step; }
  constexpr int output(int i) const { return out_first + i * out_step; }
  constexpr int kernel(int tap) const { return kernel_first + tap * kernel_step; }
  // Returns a mask: bit t is set where tap t of position i is inside the input. There is no loop,
  // because the lanes of a warp would wait for the longest one.
  constexpr unsigned inside(int i) const {
    // Mirrors the input for a negative tap_step: then tap 0 is at `at`, and the taps go upwards.
    const int first = input(i, 0);
    const int at = tap_step < 0 ? in_size - 1 - first : first;
    if (at >= in_size) return 0;
    const int left_out = at < 0 ? by_tap_step.divide(-at + by_tap_step.d - 1) : 0;
    const int end = by_tap_step.divide(in_size - 1 - at) + 1;
    if (left_out >= taps || left_out >= end) return 0;
    const unsigned below_end = (1u << (end < taps ? end : taps)) - 1;
    return below_end & ~((1u << left_out) - 1);
  }
};

constexpr Line forward_line(int input, int output, int kernel, int stride, int pad, int dilation) {
  return {.outputs = output,
          .in_size = input,
          .in_first = -pad,
          .in_step = stride,
          .taps = kernel,
          .tap_step = dilation,
          .by_outputs = FastDivisor(output),
          .by_tap_step = FastDivisor(dilation)};
}

// Describes elements a, a + stride, ... of dx [input], summed from dy [output].
constexpr Line backward_line(int phase, int input, int output, int kernel, int stride, int pad,
                             int dilation) {
  Line line{.outputs = phase < input ? (input - phase - 1) / stride + 1 : 0,
            .out_first = phase,
            .out_step = stride,
            .in_size = output};
  line.by_outputs = FastDivisor(line.outputs);
  line.kernel_step = stride / std::gcd(stride, dilation);
  line.tap_step = -(line.kernel_step * dilation / stride);
  line.by_tap_step = FastDivisor(-line.tap_step);
  for (int r = 0; r < kernel && r < line.kernel_step; ++r) {
    if ((phase + pad - r * dilation) % stride != 0) continue;
    line.kernel_first = r;
    line.in_first = (phase + pad - r * dilation) / stride;
    line.taps = (kernel - r - 1) / line.kernel_step + 1;
    break;
  }
  return line;
}

// The order of the pieces in the reduction: four pieces of channels with all taps, then the next
// four. So the taps of one block of channels are consecutive and find their pixels in L1. The
// channels after the last full block form a smaller block.
struct Piece {
  int tap_h = 0, tap_w = 0;
  int channel = 0;  // piece of the channels
};
constexpr Piece piece_at(int index, int taps_h, int taps_w, int pieces) {
  const int taps = taps_h * taps_w;
  const int whole = pieces / kChannelPieces * kChannelPieces;
  int tap = 0;
  int channel = 0;
  if (index < whole * taps) {
    tap = index / kChannelPieces % taps;
    channel = index / (kChannelPieces * taps) * kChannelPieces + index % kChannelPieces;
  } else {
    const int rest = index - whole * taps;
    tap = rest / (pieces - whole);
    channel = whole + rest % (pieces - whole);
  }
  return {tap / taps_w, tap % taps_w, channel};
}
constexpr int blocks_of(int taps_h, int taps_w, int pieces) {
  return ceil_div(taps_h * taps_w * pieces, kBlockPieces);
}

// Returns the begin of part `index` of `count` parts of [0, total), whose sizes differ by at most
// one.
constexpr int part_begin(int total, int index, int count) {
  const int size = total / count;
  const int longer = total - size * count;
  return index * size + (index < longer ? index : longer);
}

}  // namespace convscope::gather

// SPDX-License-Identifier: Apache-2.0
// fft_spans.cuh: the tiling of one axis of a convolution for transforms, and the axes of the planes
// that are read and computed.
// Read next  fft_passes.cuh, the transforms; fft_cuda.cu and fft_depthwise_cuda.cu
#pragma once

#include <algorithm>

#include "layers/conv2d/fft/cuda/fft_passes.cuh"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/direction.h"

namespace convscope::fft {

inline constexpr int kLengths[] = {16, 32, 64};
inline constexpr Index kLargestKernel = 33;

// One axis of a convolution: `in` inputs, `out` outputs, and `taps` taps including dilation. `pad`
// positions of padding precede the first input. in_step - 1 zeros are between inputs (dx of a
// strided convolution), and only every out_step-th output is needed.
struct Span {
  Index in = 1, in_step = 1, out = 1, out_step = 1, taps = 1, pad = 0;

  // Returns the span from x to y, or from dy to dx.
  static Span of(Index in, Index out, Index stride, Index taps, Index pad, bool forward) {
    if (forward) return {in, 1, out, stride, taps, pad};
    return {out, stride, in, 1, taps, taps - 1 - pad};
  }
  static Span rows(const Conv2dProblem& z, bool forward) {
    return of(z.h, z.p(), z.stride_h, (z.r - 1) * z.dilation_h + 1, z.pad_top, forward);
  }
  static Span columns(const Conv2dProblem& z, bool forward) {
    return of(z.w, z.q(), z.stride_w, (z.s - 1) * z.dilation_w + 1, z.pad_left, forward);
  }
  Index virtual_out() const { return (out - 1) * out_step + 1; }
  Index virtual_in() const { return (in - 1) * in_step + 1; }

  // Returns how many outputs a tile has for transforms of this length, or 0 when the length is too
  // short. All outputs read the positions [0, window), and only [a, b) of them contain elements.
  // One tile has all outputs if only padding wraps around.
  Index outputs(Index transform) const {
    const Index all = virtual_out();
    const Index window = all + taps - 1;
    const Index a = std::clamp<Index>(pad, 0, window);
    const Index b = std::clamp<Index>(pad + virtual_in(), a, window);
    if (transform >= std::max({b, window - a, all, taps})) return all;
    const Index most = transform - taps + 1;
    if (most < transform / 4) return 0;
    const Index count = ceil_div(all, most);
    return ceil_div(all, count);
  }
  // Returns the axis that a transform reads, for tiles with `tile` outputs.
  Axis read(Index tile) const {
    return {int(in),   int(in_step),         int(-pad),
            int(tile), int(tile + taps - 1), int(ceil_div(virtual_out(), tile))};
  }
  Axis made(Index tile) const {
    return {int(out), int(out_step), 0, int(tile), int(tile), int(ceil_div(virtual_out(), tile))};
  }
};

// Returns the taps of `planes` kernels as a set of planes.
inline PlaneSet kernel_planes(const Conv2dProblem& z, Index planes) {
  const auto taps = [](Index size, Index dilation) {
    return Axis{int(size), int(dilation), 0, 0, int((size - 1) * dilation + 1), 1};
  };
  return {taps(z.r, z.dilation_h), taps(z.s, z.dilation_w), int(planes), planes};
}

// Calls body with the length as a compile-time constant.
template <class Body>
void with_length(int length, Body&& body) {
  if (length == 16) body(std::integral_constant<int, 16>{});
  if (length == 32) body(std::integral_constant<int, 32>{});
  if (length == 64) body(std::integral_constant<int, 64>{});
}

template <int L>
LaunchShape blocks_of(Index planes) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div(planes, Lines<L>::kPlanes))),
          .block = dim3(kBlockThreads),
          .shared_bytes = Lines<L>::kSharedBytes};
}

}  // namespace convscope::fft

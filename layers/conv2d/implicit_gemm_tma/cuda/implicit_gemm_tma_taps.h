// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_taps.h: which patch of the image each tap of the kernel reads, and at which row
// of the patch the tap begins. The file needs no CUDA, so tests check it on the CPU.
//
// A tile has width x height outputs of `images` images. For the tap (r, s), an output at (i, j)
// reads the pixel (i step + offset_r, j step + offset_s). Taps whose offsets differ by whole steps
// can share a patch: the patch is loaded once, and each tap begins `shift` pixels later in the
// patch. Outputs are then counted with the pitch of the patch, so the last outputs of each image
// row are not used.
//
//   one row of a patch (pitch 5):    a b c d e      tap s = 0 reads a b c, s = 1 reads b c d,
//                                    \-3-/            s = 2 reads c d e
// backward_data of stride 2 has four phases: outputs with even or odd rows and columns. Each phase
// reads dy at every pixel, with the taps that apply to it.
// Read next  implicit_gemm_tma_plan.h, which chooses tiles; implicit_gemm_tma_gather.cuh
#pragma once

#include <algorithm>
#include <cstdint>

#include "layers/conv2d/problem.h"
#include "layers/dispatch/direction.h"

namespace convscope::implicit_gemm_tma {

inline constexpr int kMaxTaps = 15;    // in each dimension
inline constexpr int kMaxPhases = 16;  // phases of backward_data: strides up to 4 x 4

// One dimension of the image, for one phase of the outputs.
struct Line {
  int outputs = 0;           // outputs of the phase
  int first = 0, every = 1;  // output i is pixel first + i every of the result
  int step = 1;              // it reads pixel i step + offset
  int taps = 0;
  int tap[kMaxTaps] = {};  // its index in the kernel
  int offset[kMaxTaps] = {};
};

inline Line forward_line(int outputs, int taps, int stride, int pad, int dilation) {
  Line line{.outputs = outputs, .step = stride, .taps = taps};
  for (int r = 0; r < taps; ++r) {
    line.tap[r] = r;
    line.offset[r] = r * dilation - pad;
  }
  return line;
}

// Describes dx[h] = sum over r of dy[(h + pad - r dilation) / stride] w[r]. The sum has only the
// taps r for which the quotient is an integer.
inline Line backward_line(int phase, int size, int taps, int stride, int pad, int dilation) {
  Line line{.outputs = size > phase ? (size - phase - 1) / stride + 1 : 0,
            .first = phase,
            .every = stride};
  for (int r = taps - 1; r >= 0; --r) {  // offsets grow
    const int at = phase + pad - r * dilation;
    if (at % stride != 0) continue;
    line.tap[line.taps] = r;
    line.offset[line.taps++] = at / stride;
  }
  return line;
}

enum class Sharing { tap, row, patch };  // which taps share a patch: none, a row of taps, all

struct Tap {
  std::uint16_t shift;        // rows from the beginning of its patch
  std::uint8_t index, group;  // r S + s; index of the patch
};
struct Group {                // taps that share a patch
  std::int16_t w, h;          // from the first output's pixel to the patch's first pixel
  std::uint16_t first, last;  // its taps
};
struct Phase {
  int outputs_w = 0, outputs_h = 0;
  int first_w = 0, first_h = 0;
  int groups_begin = 0, groups_end = 0;
  int first_tile = 0, tiles_w = 1, tiles_h = 1;
};
struct TapSets {
  int phases = 1, groups = 0, taps = 0;
  Phase phase[kMaxPhases] = {};
  Group group[kMaxTaps * kMaxTaps] = {};
  Tap tap[kMaxTaps * kMaxTaps] = {};
};

// Both dimensions of all phases.
struct Geometry {
  int phases_h = 1, phases_w = 1;
  Line high[4], wide[4];
  int kernel_w = 1;

  Geometry() = default;
  Geometry(const Conv2dProblem& z, Direction direction) : kernel_w(static_cast<int>(z.s)) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    if (direction != Direction::backward_data) {
      high[0] = forward_line(narrow(z.p()), narrow(z.r), narrow(z.stride_h), narrow(z.pad_top),
                             narrow(z.dilation_h));
      wide[0] = forward_line(narrow(z.q()), narrow(z.s), narrow(z.stride_w), narrow(z.pad_left),
                             narrow(z.dilation_w));
      return;
    }
    phases_h = narrow(z.stride_h);
    phases_w = narrow(z.stride_w);
    for (int i = 0; i < phases_h; ++i) {
      high[i] = backward_line(i, narrow(z.h), narrow(z.r), phases_h, narrow(z.pad_top),
                              narrow(z.dilation_h));
    }
    for (int i = 0; i < phases_w; ++i) {
      wide[i] = backward_line(i, narrow(z.w), narrow(z.s), phases_w, narrow(z.pad_left),
                              narrow(z.dilation_w));
    }
  }
  int outputs_h() const { return high[0].outputs; }  // the first phase has the most
  int outputs_w() const { return wide[0].outputs; }
};

// Returns the key of a tap: its offset or, if taps share patches, the offset modulo the step. Taps
// of a row that share a patch have equal keys.
inline int key_of(int offset, int step, bool shares) {
  return shares ? ((offset % step) + step) % step : offset;
}
// Returns the least offset that has this key.
inline int base_of(const Line& line, int key, bool shares) {
  int base = 1 << 20;
  for (int i = 0; i < line.taps; ++i) {
    if (key_of(line.offset[i], line.step, shares) == key) base = std::min(base, line.offset[i]);
  }
  return base;
}
// Returns how many pixels a patch has beyond one pixel for each output.
inline int extent_of(const Line& line, bool shares) {
  int extent = 0;
  for (int i = 0; i < line.taps; ++i) {
    const int key = key_of(line.offset[i], line.step, shares);
    extent = std::max(extent, (line.offset[i] - base_of(line, key, shares)) / line.step);
  }
  return extent;
}
struct Extents {
  int h = 0, w = 0;
};
inline Extents extents_of(const Geometry& g, Sharing sharing) {
  Extents out;
  for (int i = 0; i < g.phases_h; ++i) {
    out.h = std::max(out.h, extent_of(g.high[i], sharing == Sharing::patch));
  }
  for (int i = 0; i < g.phases_w; ++i) {
    out.w = std::max(out.w, extent_of(g.wide[i], sharing != Sharing::tap));
  }
  return out;
}

// Returns the pitch of a patch in one dimension. Horizontally that is the number of pixels from
// one patch row to the next, vertically the number of rows from one image to the next. A patch row
// has `length` outputs; `size` is the size of the image that is read. Where a patch holds whole
// rows, the zeros after a row also precede the next row. So 7 pixels with a zero on each side take
// 8 pixels of a row, not 9. The last row also needs zeros after it.
//   . a b c d e f g | . h i j k l m n | .        ('.' zeros)
inline int pitch_of(const Line& line, int phases, int size, int extent, int length) {
  if (extent == 0 || phases > 1 || line.step > 1 || length < line.outputs) return length + extent;
  int least = line.offset[0], most = line.offset[0];
  for (int i = 1; i < line.taps; ++i) {
    least = std::min(least, line.offset[i]);
    most = std::max(most, line.offset[i]);
  }
  return std::min(length + extent, std::max({size - least, length + most, length, extent + 1}));
}

// Returns the taps of all phases; the tiling fills in the tiles.
inline TapSets tap_sets(const Geometry& g, Sharing sharing, int pitch) {
  TapSets out;
  const bool rows_share = sharing == Sharing::patch;
  const bool columns_share = sharing != Sharing::tap;
  out.phases = 0;
  for (int i = 0; i < g.phases_h * g.phases_w; ++i) {
    const Line& high = g.high[i / g.phases_w];
    const Line& wide = g.wide[i % g.phases_w];
    Phase& phase = out.phase[out.phases++];
    phase = {.outputs_w = wide.outputs,
             .outputs_h = high.outputs,
             .first_w = wide.first,
             .first_h = high.first,
             .groups_begin = out.groups};
    // Taps with the same two keys form a group, which reads one patch. The loops find the first tap
    // of each group.
    for (int r = 0; r < high.taps; ++r) {
      const int key_h = key_of(high.offset[r], high.step, rows_share);
      const int base_h = base_of(high, key_h, rows_share);
      if (high.offset[r] != base_h) continue;
      for (int s = 0; s < wide.taps; ++s) {
        const int key_w = key_of(wide.offset[s], wide.step, columns_share);
        const int base_w = base_of(wide, key_w, columns_share);
        if (wide.offset[s] != base_w) continue;
        Group& group = out.group[out.groups++];
        group = {static_cast<std::int16_t>(base_w), static_cast<std::int16_t>(base_h),
                 static_cast<std::uint16_t>(out.taps), 0};
        for (int u = 0; u < high.taps; ++u) {
          if (key_of(high.offset[u], high.step, rows_share) != key_h) continue;
          for (int v = 0; v < wide.taps; ++v) {
            if (key_of(wide.offset[v], wide.step, columns_share) != key_w) continue;
            const int shift = (high.offset[u] - base_h) / high.step * pitch +
                              (wide.offset[v] - base_w) / wide.step;
            out.tap[out.taps++] = {
                static_cast<std::uint16_t>(shift),
                static_cast<std::uint8_t>(high.tap[u] * g.kernel_w + wide.tap[v]),
                static_cast<std::uint8_t>(out.groups - 1)};
          }
        }
        group.last = static_cast<std::uint16_t>(out.taps);
      }
    }
    phase.groups_end = out.groups;
  }
  return out;
}

}  // namespace convscope::implicit_gemm_tma

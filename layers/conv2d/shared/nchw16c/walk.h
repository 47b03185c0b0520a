// SPDX-License-Identifier: Apache-2.0
// walk.h: how a convolution walks over images in blocks of 16 channels, for any type of elements:
// its chunks of work, the taps of a line, and the tiles of a line.
//
// A line is a run of pixels of `out` in which neighbours read neighbours of `in`. It is a row of
// out, or in backward_data the columns of one residue modulo stride_w. If the kernel is 1x1, a line
// may cross rows. In a linear layer it has one pixel of each image. The caller computes the tiles.
#pragma once

#include <algorithm>
#include <array>

#include "framework/int_math.h"
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/problem.h"

namespace convscope::nchw16c {

using Index = std::int64_t;

inline constexpr Index kMaxTaps = 1024;  // of a kernel

struct Pixels {
  Index image, image_end, row, row_end;
};

// A chunk is some images with some rows each. `splits` chunks read the same pixels; each computes
// some blocks of output channels.
struct PassChunks {
  Index groups = 1, images = 1, rows = 0, blocks = 0;  // of the whole pass; blocks of a group
  Index images_at_once = 1, rows_at_once = 1, splits = 1;
  Index image_chunks = 1, row_chunks = 1;

  // Sets the sizes of a chunk: at most `fit` rows, and work for all threads, while a chunk has at
  // least `chunk_flops` of the `flops`. To keep all threads busy, blocks of channels are divided
  // first, then images and rows. The size of chunks does not change a sum, so it may depend on the
  // number of threads.
  void cut(Index fit, double flops, double chunk_flops) {
    const int threads = num_threads();
    const auto worth = std::max<Index>(1, static_cast<Index>(flops / chunk_flops));
    const Index wanted = std::min<Index>(threads == 1 ? 1 : std::max(8, 2 * threads), worth);
    const Index pixels_wanted = ceil_div(wanted, blocks * groups);
    rows_at_once = std::min(fit, rows);
    images_at_once = std::clamp<Index>(fit / rows, 1, images);
    if (images_at_once > 1) {
      images_at_once = std::max<Index>(1, std::min(images_at_once, images / pixels_wanted));
    }
    images_at_once = ceil_div(images, ceil_div(images, images_at_once));
    image_chunks = ceil_div(images, images_at_once);
    if (images_at_once == 1 && images < pixels_wanted) {
      rows_at_once = std::min(rows_at_once, ceil_div(rows, ceil_div(pixels_wanted, images)));
    }
    rows_at_once = ceil_div(rows, ceil_div(rows, rows_at_once));  // of nearly equal height
    row_chunks = ceil_div(rows, rows_at_once);
    splits = std::clamp<Index>(ceil_div(wanted, image_chunks * row_chunks * groups), 1, blocks);
    splits = ceil_div(blocks, blocks / splits);
  }

  // Calls body(pixels, group, block) for all chunks, in parallel, and all their blocks.
  template <class Body>
  void for_blocks(const Body& body) const {
    const Index pixels = image_chunks * row_chunks;
    parallel_chunks(groups * pixels * splits, [&](Index chunk, int) {
      const Index split = chunk % splits;
      const Index row = chunk / splits % row_chunks * rows_at_once;
      const Index image = chunk / splits / row_chunks % image_chunks * images_at_once;
      const Pixels here{.image = image,
                        .image_end = std::min(image + images_at_once, images),
                        .row = row,
                        .row_end = std::min(row + rows_at_once, rows)};
      const Index end = (split + 1) * blocks / splits;
      for (Index block = split * blocks / splits; block < end; ++block) {
        body(here, chunk / splits / pixels, block);
      }
    });
  }
};

// A tap of a line: offsets in `in` (of pixel 0) and in the packed weights, and the pixels of the
// line for which the tap is inside the image.
struct LineTap {
  Index in, w, first, end;
};
using LineTaps = std::array<LineTap, kMaxTaps>;

// Finds the taps of lines.
struct TapFinder {
  const Conv2dProblem& z;
  bool forward;
  bool whole;  // a tap is inside the image for all pixels of a line, or for none
  Index taps_s;
  Index pad_top, pad_left;
  Index in_h, in_w;
  Index pixel;  // elements from one pixel of `in` to the next

  // Finds the taps of `count` pixels of row `row` of out, columns `part`, part + stride_w, ... in
  // backward_data. A tap has `tap_weights` packed weights. Returns the number of taps.
  int find(Index row, Index part, Index count, Index tap_weights, LineTaps& taps) const {
    const Index steps = forward ? z.stride_w : 1;  // columns of `in` from pixel to pixel
    int found = 0;
    for (Index r = 0; r < z.r; ++r) {
      Index h = forward ? row * z.stride_h - pad_top + r * z.dilation_h
                        : row + pad_top - r * z.dilation_h;
      if (!forward) {
        if (h < 0 || h % z.stride_h != 0) continue;
        h /= z.stride_h;
      }
      if (h < 0 || h >= in_h) continue;
      for (Index s = 0; s < taps_s; ++s) {
        Index at = forward ? s * z.dilation_w - pad_left : part + pad_left - s * z.dilation_w;
        if (!forward) {
          if (floor_div(at, z.stride_w) * z.stride_w != at) continue;
          at = floor_div(at, z.stride_w);
        }
        Index first = 0, end = count;
        if (!whole) {
          first = at >= 0 ? 0 : ceil_div(-at, steps);
          end = std::min(count, floor_div(in_w - 1 - at, steps) + 1);
          if (first >= end) continue;
        } else if (at < 0 || at >= in_w) {
          continue;
        }
        taps[static_cast<std::size_t>(found++)] = {.in = (h * in_w + at) * pixel,
                                                   .w = (r * taps_s + s) * tap_weights,
                                                   .first = first,
                                                   .end = end};
      }
    }
    return found;
  }
};

// Copies to `to` those of the first `count` taps that pixels [begin, begin + pixels) of the line
// use. Returns their number. Tap is the type of the kernels.
template <class Tap>
int taps_of_tile(const LineTaps& taps, int count, Index begin, Index pixels, Tap* to) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const LineTap& tap = taps[static_cast<std::size_t>(i)];
    const Index first = std::clamp<Index>(tap.first - begin, 0, pixels);
    const Index end = std::clamp<Index>(tap.end - begin, 0, pixels);
    if (first >= end) continue;
    to[found++] = {.in = tap.in,
                   .w = static_cast<decltype(Tap::w)>(tap.w),
                   .first = static_cast<std::int16_t>(first),
                   .end = static_cast<std::int16_t>(end)};
  }
  return found;
}

// Calls body(begin, pixels, alike) for the tiles of a line of `count` pixels. Tiles have nearly
// equal lengths, at most `most`, and multiples of `unit` except for the last tile. From this tile
// on, `alike` tiles have the same length. The body returns how many of them it has computed.
template <class Body>
void for_tiles(Index count, Index most, Index unit, const Body& body) {
  const Index units = ceil_div(count, unit);
  const RowTiles cut(units, most / unit);
  // Same as cut.begin(t) and height(t), without their divisions in each tile.
  const Index height = units / cut.tiles, higher = units % cut.tiles;
  Index begin = 0;
  for (Index t = 0; t < cut.tiles;) {
    const Index pixels = std::min(unit * (height + (t < higher ? 1 : 0)), count - begin);
    const Index done = body(begin, pixels, t < higher ? higher - t : cut.tiles - t);
    begin += done * pixels;
    t += done;
  }
}

}  // namespace convscope::nchw16c

// SPDX-License-Identifier: Apache-2.0
// depthwise_tiling.h: the tiling of the planes of a depthwise convolution for the GPU. Host and
// device share this index arithmetic, so it is tested without a GPU.
//
// A tile is the work of one block of threads: a few whole planes when planes are small, else a band
// of rows of one plane. The tile is stored in shared memory with a border of zeros, so that the
// loops over taps need no border tests:
//
//     tile row 0   = source row in_origin + band in_band          (may be above the image)
//     tile column t = source column t - shift
//
// A thread computes a strip: 4 neighbouring columns of the target (a group) in out_strip rows.
// Source and target are x and y in forward, dy and dx in backward_data, and x and dy in
// backward_weight.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/int_math.h"

namespace convscope {

struct DepthwiseTiling {
  static constexpr int kThreads = 128;
  static constexpr int kGroup = 4;          // target columns of a thread: one 16-byte store
  static constexpr int kLeftMargin = 4;     // columns of an aligned tile left of the image
  static constexpr int kTileBytes = 32768;  // upper bound: 6 blocks for each SM

  int in_h = 0, in_w = 0, out_h = 0, out_w = 0;  // sizes of source and target planes
  int planes = 0;                                // in a tile; 0: does not fit into shared memory
  int bands = 1;                                 // tiles down a plane; 1 when planes > 1
  int strips = 1, groups = 1;                    // in a plane of a tile
  int rows = 0, pitch = 0;                       // of a plane of a tile; pitch in floats
  int unit = 4;                                  // elements of a copy to an aligned tile: 4 or 2
  int rows_at_once = 0;  // rows that all threads copy at a time, a unit each
  int shift = 0;
  int in_origin = 0, in_band = 0, in_strip = 0;     // source rows
  int out_origin = 0, out_band = 0, out_strip = 0;  // target rows
  FastDivisor by_groups, by_strips, by_rows, by_units, by_in_w, by_in_h;

  constexpr int items() const { return planes * strips * groups; }
  constexpr int threads() const { return std::min(kThreads, (items() + 31) / 32 * 32); }
  constexpr int tile_floats() const { return planes * rows * pitch; }
  // Returns the floats that a run of target rows takes in shared memory. There is room to give the
  // run the same alignment as in global memory, where it may begin up to 3 elements after an
  // aligned address.
  constexpr int staged_floats() const {
    const int rows_out = planes > 1 ? planes * out_h : std::min(out_h, strips * out_strip);
    return (rows_out * out_w + 3 + 3) / 4 * 4;
  }
  // Returns the number of tiles of an image, each with `planes` channels.
  constexpr int chunks(int channels) const { return ceil_div(channels, planes); }
};

// The requirements of a kernel, from which its tiling is computed.
struct DepthwiseTilingWish {
  int in_h = 0, in_w = 0, out_h = 0, out_w = 0;
  int shift = 0;
  int in_origin = 0, out_origin = 0;  // rows of the first band, as in DepthwiseTiling
  int in_strip = 0, out_strip = 0;    // rows from one strip to the next
  int in_extra = 0;                   // source rows that a strip reads beyond in_strip
  int group_step = 0;                 // tile columns from one group to the next
  int window = 0;                     // tile columns that a group reads
  int channels = 1;                   // neighbouring channels that may share a tile
  std::int64_t wanted_tiles = 0;      // minimum tiles of an image; smaller tiles give more
  int unit = 4;
  bool staged = false;   // whether the target run is in shared memory too
  int shared_bytes = 0;  // limit of a block
};

namespace depthwise_tiling_parts {

constexpr int floats_of(const DepthwiseTiling& t, bool staged) {
  return t.tile_floats() + (staged ? t.staged_floats() : 0);
}

constexpr void set_strips(DepthwiseTiling& t, const DepthwiseTilingWish& wish, int all_strips,
                          int strips) {
  t.bands = ceil_div(all_strips, strips);
  t.strips = ceil_div(all_strips, t.bands);
  t.rows = t.strips * wish.in_strip + wish.in_extra;
  t.in_band = t.strips * wish.in_strip;
  t.out_band = t.strips * wish.out_strip;
}

}  // namespace depthwise_tiling_parts

constexpr DepthwiseTiling make_depthwise_tiling(const DepthwiseTilingWish& wish) {
  namespace parts = depthwise_tiling_parts;
  DepthwiseTiling t;
  t.in_h = wish.in_h;
  t.in_w = wish.in_w;
  t.out_h = wish.out_h;
  t.out_w = wish.out_w;
  t.shift = wish.shift;
  t.in_origin = wish.in_origin;
  t.out_origin = wish.out_origin;
  t.in_strip = wish.in_strip;
  t.out_strip = wish.out_strip;
  t.groups = ceil_div(wish.out_w, DepthwiseTiling::kGroup);
  const int all_strips = ceil_div(wish.out_h - wish.out_origin, wish.out_strip);

  // Neighbouring lanes take neighbouring groups of a strip, then the groups of the next strip. The
  // pitch is increased by a few floats if the next strip then begins in the bank after the last
  // group.
  const int least = (wish.group_step * (t.groups - 1) + wish.window + 3) / 4 * 4;
  t.pitch = least;
  for (int extra = 0; extra <= least / 8; extra += 4) {
    if (((least + extra) * wish.in_strip - t.groups * wish.group_step) % 32 == 0) {
      t.pitch = least + extra;
      break;
    }
  }

  t.planes = 1;
  const int wanted = DepthwiseTiling::kThreads;
  parts::set_strips(t, wish, all_strips, std::clamp(wanted / t.groups, 1, std::max(1, all_strips)));
  while (t.strips > 1 && (parts::floats_of(t, wish.staged) * 4 > DepthwiseTiling::kTileBytes)) {
    parts::set_strips(t, wish, all_strips, t.strips - 1);
  }
  if (parts::floats_of(t, wish.staged) * 4 > wish.shared_bytes) t.planes = 0;
  if (t.planes == 1 && t.bands == 1) {
    const auto most = std::min(wanted, wish.channels);
    const auto may_have = [&](int planes) {
      DepthwiseTiling more = t;
      more.planes = planes;
      return planes <= most && more.items() <= wanted &&
             parts::floats_of(more, wish.staged) * 4 <= DepthwiseTiling::kTileBytes * 3 / 2;
    };
    while (may_have(t.planes + 1)) ++t.planes;
  }
  // If there are fewer tiles than wanted, each tile takes fewer planes, so that every SM gets
  // tiles.
  while (t.planes > 1 &&
         static_cast<std::int64_t>(t.chunks(wish.channels)) * t.bands < wish.wanted_tiles)
    --t.planes;
  while (t.planes == 1 && t.strips > 1 &&
         static_cast<std::int64_t>(t.chunks(wish.channels)) * t.bands < wish.wanted_tiles) {
    parts::set_strips(t, wish, all_strips, t.strips - 1);
  }

  t.unit = wish.unit;
  t.rows_at_once = t.threads() / (t.pitch / t.unit);
  t.by_groups = FastDivisor(t.groups);
  t.by_strips = FastDivisor(t.strips);
  t.by_rows = FastDivisor(t.rows);
  t.by_units = FastDivisor(t.pitch / t.unit);
  t.by_in_w = FastDivisor(std::max(1, t.in_w));
  t.by_in_h = FastDivisor(std::max(1, t.in_h));
  return t;
}

// The rows and planes of source and target that belong to a tile.
struct DepthwiseJob {
  int channel = 0;          // first channel
  std::uint32_t plane = 0;  // first plane: image C + channel
  int planes = 0;           // the last tile may have fewer
  int in_row = 0;           // source row of tile row 0; may be negative
  int out_row = 0;          // target row of strip 0; may be negative
};

constexpr DepthwiseJob depthwise_job(const DepthwiseTiling& t, int image, int chunk, int band,
                                     int channels) {
  const int channel = chunk * t.planes;
  const int left = channels - channel;
  return {.channel = channel,
          .plane = static_cast<std::uint32_t>(image) * static_cast<std::uint32_t>(channels) +
                   static_cast<std::uint32_t>(channel),
          .planes = left < t.planes ? left : t.planes,
          .in_row = t.in_origin + band * t.in_band,
          .out_row = t.out_origin + band * t.out_band};
}

// The strip that a thread computes in a tile.
struct DepthwiseItem {
  int plane = 0, strip = 0, group = 0;
};

constexpr DepthwiseItem depthwise_item(const DepthwiseTiling& t, int index) {
  const int above = t.by_groups.divide(index);
  const int plane = t.by_strips.divide(above);
  return {.plane = plane, .strip = above - plane * t.strips, .group = index - above * t.groups};
}

// Returns the first source row that is inside both the image and the tile.
constexpr int depthwise_first_row(const DepthwiseJob& job) {
  return job.in_row > 0 ? job.in_row : 0;
}
constexpr int depthwise_end_row(const DepthwiseTiling& t, const DepthwiseJob& job) {
  const int end = job.in_row + t.rows;
  return end < t.in_h ? end : t.in_h;
}

}  // namespace convscope

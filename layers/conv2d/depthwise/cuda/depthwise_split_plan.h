// SPDX-License-Identifier: Apache-2.0
// depthwise_split_plan.h: the tiling of depthwise_split_cuda.cu, for large kernels with strides or
// few planes. It is only index arithmetic, shared by host and device.
//
// A row of the target is split into groups of 4 elements. Each element is a sum over the rows of
// the kernel, which are split over `parts` threads. For row `o` of class `a` of the target, row `k`
// of the kernel uses
//
//     source row o row_step + rows.lines[a].start + k,     k = 0 ... rows.lines[a].taps - 1
//
// With strides, the rows of dx are split into residue classes. The rows of y are not split;
// row_step is the stride. Columns are split into `entries` classes, as in depthwise_large_plan.h.
// Read next  depthwise_large_plan.h, which explains Line and Axis; depthwise_split_cuda.cu
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/int_math.h"
#include "layers/conv2d/depthwise/cuda/depthwise_large_plan.h"

namespace convscope::depthwise {

struct SplitPlan {
  static constexpr int kGroup = 4;         // columns of a thread
  static constexpr int kMaxThreads = 256;  // of a block
  static constexpr int kMaxParts = 4;
  static constexpr int kTileBytes = 49152;  // upper bound: 4 blocks for each SM

  Axis rows, columns;
  int row_step = 1;
  int in_h = 0, in_w = 0, out_h = 0, out_w = 0;  // planes of source and target, in memory
  int classes = 1;                               // row classes of the target
  int entries = 1;                               // column classes
  bool separate = false;                         // whether each entry has separate results
  int groups = 1;                                // groups in a row of a class
  int bands = 1, band = 0;  // number of bands; rows of a class in a band, 0: does not fit
  int parts = 1;
  int tile_rows = 0, pitch = 0;  // of the source
  int tap_rows = 0, tap_pitch = 0;
  FastDivisor by_groups, by_band, by_classes, by_in_w;

  constexpr int items() const { return classes * band * groups; }
  constexpr int threads() const { return round_up(parts * items(), 32); }
  constexpr int sums() const { return kGroup * (separate ? entries : 1); }
  constexpr int tile_floats() const { return tile_rows * entries * pitch; }
  constexpr int tap_floats() const { return classes * tap_rows * entries * tap_pitch; }
  constexpr int shared_floats() const {
    return std::max(tile_floats() + tap_floats(), parts > 1 ? threads() * sums() : 0);
  }
  // Returns the source rows [first, end) of band `band_index`, clipped to the image.
  constexpr int first_row(int band_index) const {
    int least = rows.lines[0].start;
    for (int i = 1; i < classes; ++i) least = std::min(least, rows.lines[i].start);
    return std::clamp(band_index * band * row_step + least, 0, in_h);
  }
};

// Returns the tiling of forward and backward_data for strides of 1 and 2.
constexpr SplitPlan make_split_plan(const LargeSizes& z) {
  const bool back = z.direction == Direction::backward_data;
  SplitPlan t;
  t.columns = make_axis(z.direction, z.w, z.q, z.s, z.stride_w, z.pad_left);
  t.rows = make_axis(z.direction, z.h, z.p, z.r, back ? z.stride_h : 1, z.pad_top);
  if (!back) t.rows.lines[0].outs = z.p;
  t.row_step = back ? 1 : z.stride_h;
  t.in_h = back ? z.p : z.h;
  t.in_w = back ? z.q : z.w;
  t.out_h = back ? z.h : z.p;
  t.out_w = back ? z.w : z.q;
  t.classes = t.rows.count;
  t.entries = t.columns.count;
  t.separate = back && t.entries > 1;
  t.groups = ceil_div(t.columns.most_outs(), SplitPlan::kGroup);
  t.tap_rows = t.rows.most_taps();
  t.tap_pitch = round_up(t.columns.most_taps(), 4);
  // A group reads 8 elements of a row for each 4 taps. The pitch is an odd number of 4-element
  // units, so that neighbouring tile rows begin in different banks.
  t.pitch = round_up(SplitPlan::kGroup * t.groups + t.columns.most_taps() + 4, 4);
  if (t.pitch / 4 % 2 == 0) t.pitch += 4;

  const int outs = t.rows.most_outs();
  const int in_row = t.classes * t.groups;        // threads of a row
  if (in_row > SplitPlan::kMaxThreads) return t;  // band = 0
  const std::int64_t threads = std::int64_t{z.n} * z.c * in_row * outs;
  const std::int64_t parts =
      std::int64_t{z.multiprocessors} * 1024 / std::max(threads, std::int64_t{1});
  const int most_parts =
      std::min({SplitPlan::kMaxParts, ceil_div(t.tap_rows, 3), SplitPlan::kMaxThreads / in_row});
  t.parts = static_cast<int>(std::clamp<std::int64_t>(parts, 1, most_parts));
  const auto set_band = [&](int rows) {
    t.bands = ceil_div(outs, rows);
    t.band = ceil_div(outs, t.bands);
    // The first source rows of the classes differ by at most one row.
    const int most = (t.band - 1) * t.row_step + t.tap_rows + (t.classes > 1 ? 1 : 0);
    t.tile_rows = std::min(t.in_h, most);
  };
  set_band(std::clamp(SplitPlan::kMaxThreads / (in_row * t.parts), 1, outs));
  const auto bytes = [&] { return t.shared_floats() * 4; };
  while (t.band > 1 && bytes() > SplitPlan::kTileBytes) set_band(t.band - 1);
  if (bytes() > z.shared_bytes) t.band = 0;
  t.by_groups = FastDivisor(t.groups);
  t.by_band = FastDivisor(t.band);
  t.by_classes = FastDivisor(t.classes);
  t.by_in_w = FastDivisor(t.in_w);
  return t;
}

inline Cost counts_of(const SplitPlan& t, const LargeSizes& z) {
  double met = 0;  // kernel rows inside the source, summed over the target rows
  for (int a = 0; a < t.classes; ++a) {
    const Line& line = t.rows.lines[a];
    for (int o = 0; o < line.outs; ++o) {
      const int base = o * t.row_step + line.start;
      met += std::max(0, std::min(line.taps, t.in_h - base) - std::max(0, -base));
    }
  }
  const double planes = number(z.n) * z.c, blocks = planes * t.bands;
  const double chunks = t.entries * ceil_div(t.columns.most_taps(), 4);
  const double copied = static_cast<double>(t.tile_rows) * t.in_w + number(z.r) * z.s;
  const double target = number(t.out_h) * t.out_w;
  return {.flops = z.flops(),
          .bytes = z.bytes(),
          .issued = planes * met * t.groups * SplitPlan::kGroup * chunks * 4 * 2,
          .cached = blocks * copied * z.element,
          .schedule = "split",
          .blocks = blocks,
          .resident = number(std::max(
              1, std::min(z.shared_bytes / (4 * t.shared_floats() + 1024), 2048 / t.threads()))),
          .chain = ceil_div(t.tap_rows, t.parts) * chunks,
          .copies = std::ceil(copied / t.threads()),
          .waits = number(t.parts),  // copies, and sums of the other parts
          .listed_warps = (blocks * copied + planes * target) / 32,
          .stored = planes * target};
}

}  // namespace convscope::depthwise

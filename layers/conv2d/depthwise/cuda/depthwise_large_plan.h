// SPDX-License-Identifier: Apache-2.0
// depthwise_large_plan.h: the tiling of depthwise convolutions with large kernels for the GPU: only
// index arithmetic, shared by host and device.
//
// All directions and strides are reduced to one operation, the correlation of a source with taps at
// stride 1:
//
//     out[o][j] += source[start + o + p][... + j + q] * taps[p][q]
//
// where each axis is split into residue classes modulo the stride. A `Line` is one class of one
// axis:
//
//     forward          y is one class; class e of w's rows reads the class e - pad of x's rows
//     backward_data    class a of dx's rows reads all dy and the rows of w that reach it, rotated
//     backward_weight  class e of dw's rows reads the class e - pad of x's rows; the taps are dy
//
// An entry is a pair of a row class and a column class. With stride 1 there is one entry.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/int_math.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/direction.h"

namespace convscope::depthwise {

struct Line {
  int source_first = 0, source_size = 0;  // the class has elements source_first + i source_step
  int start = 0;                          // source element for output 0 and tap 0
  int taps = 0;                           // every tap_step-th tap of w; all of dy
  int outs = 0, out_first = 0;            // output i is element out_first + i out_step
  int tile_start = 0;                     // first source element of a tile, in band 0
  int left = 0;                           // of columns: index of source element 0 in a tile row
};

struct Axis {
  static constexpr int kMaxStride = 3;
  int count = 1;
  int source_step = 1, tap_step = 1, out_step = 1;
  bool rotated = false;  // whether taps are in reverse order
  Line lines[kMaxStride] = {};
  // The index of the residue class (in `lines`) of a source element and of a tap. The array index
  // is the remainder modulo the step.
  int line_of_source[kMaxStride] = {}, line_of_tap[kMaxStride] = {};
  FastDivisor by_source_step, by_tap_step;

  constexpr int most_taps() const {
    int most = 0;
    for (int i = 0; i < count; ++i) most = std::max(most, lines[i].taps);
    return most;
  }
  constexpr int most_outs() const {
    int most = 0;
    for (int i = 0; i < count; ++i) most = std::max(most, lines[i].outs);
    return most;
  }
};

// Returns one axis of the problem, with `in` elements of x, `out` of y and `taps` of w.
constexpr Axis make_axis(Direction direction, int in, int out, int taps, int stride, int pad) {
  Axis axis;
  axis.count = stride;
  for (int i = 0; i < stride; ++i) {
    Line& line = axis.lines[i];
    if (direction == Direction::backward_data) {
      const int e = (i + pad) % stride;
      line = {.source_size = out, .taps = e < taps ? ceil_div(taps - e, stride) : 0};
      line.start = (i + pad - e) / stride - (line.taps - 1);
      axis.line_of_tap[e] = i;
      line.out_first = i;
      line.outs = i < in ? ceil_div(in - i, stride) : 0;
      continue;
    }
    line.start = floor_div(i - pad, stride);
    line.source_first = i - pad - stride * line.start;
    line.source_size = line.source_first < in ? ceil_div(in - line.source_first, stride) : 0;
    const int own = i < taps ? ceil_div(taps - i, stride) : 0;
    axis.line_of_source[line.source_first] = i;
    axis.line_of_tap[i] = i;
    if (direction == Direction::forward) {
      line.taps = own, line.outs = out;
    } else {
      line.outs = own, line.out_first = i, line.taps = out;
    }
  }
  axis.source_step = direction == Direction::backward_data ? 1 : stride;
  axis.tap_step = direction == Direction::backward_weight ? 1 : stride;
  axis.rotated = direction == Direction::backward_data;
  axis.by_source_step = FastDivisor(axis.source_step);
  axis.by_tap_step = FastDivisor(axis.tap_step);
  axis.out_step = direction == Direction::forward ? 1 : stride;
  int least = axis.lines[0].start;
  for (int i = 1; i < stride; ++i) least = std::min(least, axis.lines[i].start);
  for (int i = 0; i < stride; ++i) {
    Line& line = axis.lines[i];
    line.tile_start = direction == Direction::backward_data ? least : line.start;
  }
  return axis;
}

// The rows and columns of results that a thread keeps in registers.
struct ThreadTile {
  int rows, columns;
  int unit;  // floats of a load from the source: 4, 2 or 1
};
inline constexpr ThreadTile kThreadTiles[] = {{4, 14, 2}, {4, 8, 4}, {4, 7, 1}, {3, 9, 1}};

struct LargePlan {
  static constexpr int kThreads = 128;     // preferred threads of a block
  static constexpr int kMaxThreads = 256;  // backward_weight, where threads keep results

  Axis rows, columns;
  int in_h = 0, in_w = 0, out_h = 0, out_w = 0;  // sizes in memory of source and output planes
  int tile = 0;                                  // index into kThreadTiles
  int entries = 1;
  int sources = 1;  // source classes in a tile: entries, or 1
  int slots = 1;    // planes that a block holds at a time
  int strips = 1, groups = 1;
  int segments = 1, segment = 0;  // backward_weight: segments of dy's rows; rows of one
  int bands = 1, band = 0;        // number of bands; rows of a class in a band, 0: does not fit
  int tile_rows = 0, pitch = 0;   // of the source
  int tap_rows = 0, tap_pitch = 0, tap_sets = 1;
  int run_rows = 0;  // rows in memory that are copied to a tile
  int staged = 0;    // floats of output rows of a band, for each plane
  int threads = kThreads;

  constexpr int items() const { return slots * segments * strips * groups; }
  constexpr int source_floats() const { return sources * tile_rows * pitch; }
  constexpr int run() const { return run_rows * in_w; }
  constexpr int tap_floats() const { return tap_rows * tap_pitch; }
};

namespace large_plan_parts {

// Returns the floats of a tile row: at least `least`, chosen for few bank conflicts.
constexpr int pitch_of(int least, int unit) {
  if (unit == 4) return (least + 3) / 4 % 2 == 0 ? (least + 3) / 4 * 4 + 4 : (least + 3) / 4 * 4;
  if (unit == 2) return (least + 1) / 2 % 2 == 0 ? (least + 1) / 2 * 2 + 2 : (least + 1) / 2 * 2;
  return least | 1;
}

// For each column class, sets the position of source element 0 in a tile row (`left`) so that the
// element for output 0 and tap 0 is aligned to a unit. Returns the floats of a tile row.
constexpr int place_columns(Axis& columns, int groups, const ThreadTile& tile, bool shared_source) {
  int least = 0;
  int shared_left = 0;
  for (int i = 0; i < columns.count; ++i) {
    shared_left = std::max(shared_left, -columns.lines[i].start);
  }
  for (int i = 0; i < columns.count; ++i) {
    Line& line = columns.lines[i];
    line.left = shared_source ? shared_left : std::max(0, -line.start);
    while ((line.left + line.start) % tile.unit != 0) ++line.left;
    const int read = line.left + line.start + groups * tile.columns + line.taps + 4;
    least = std::max({least, read, line.left + line.source_size});
  }
  return pitch_of(least, tile.unit);
}

// Returns the maximum rows of the source in a tile.
constexpr int tile_rows_of(const Axis& rows, int band, int other) {
  int most = 0;
  for (int i = 0; i < rows.count; ++i) {
    const Line& line = rows.lines[i];
    most =
        std::max(most, std::min(line.source_size, band + other - 1 + line.start - line.tile_start));
  }
  return std::max(1, most);
}

}  // namespace large_plan_parts

struct LargeSizes {
  bool operator==(const LargeSizes&) const = default;

  Direction direction = Direction::forward;
  int n = 1, c = 1, h = 1, w = 1, p = 1, q = 1, r = 1, s = 1;
  int stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
  int shared_bytes = 0, multiprocessors = 1;
  int element = 4;  // bytes

  double flops() const { return 2.0 * n * c * p * q * r * s; }
  double bytes() const {
    const double planes = number(n) * c;
    return element * (planes * (number(h) * w + number(p) * q) + number(c) * r * s);
  }
};

constexpr int shared_floats_of(const LargePlan& t, Direction direction) {
  const int taps = direction == Direction::backward_weight ? t.slots * t.tap_floats()
                                                           : t.tap_sets * t.tap_floats();
  const int tiles =
      round_up(t.pitch, 4) + round_up(t.slots * t.source_floats(), 4) + taps + t.slots * t.staged;
  const ThreadTile& tile = kThreadTiles[t.tile];
  const int sums = t.threads * (tile.rows * tile.columns | 1);
  return direction == Direction::backward_weight ? std::max(tiles, sums) : tiles;
}

// Returns the slices of the batch of backward_weight. Blocks of 6 rounds fill each SM evenly.
constexpr int weight_slices(const LargePlan& t, const LargeSizes& z) {
  const std::int64_t jobs = ceil_div(std::int64_t{z.n}, std::int64_t{t.slots}) * t.bands;
  const std::int64_t wanted = std::int64_t{z.multiprocessors} * 6;
  return static_cast<int>(std::clamp<std::int64_t>(ceil_div(wanted, std::int64_t{z.c}), 1,
                                                   std::min<std::int64_t>(jobs, 65535)));
}

inline Cost counts_of(const LargePlan& t, const LargeSizes& z) {
  constexpr const char* kNames[] = {"large 4x14", "large 4x8", "large 4x7", "large 3x9"};
  const bool weight = z.direction == Direction::backward_weight;
  const ThreadTile& tile = kThreadTiles[t.tile];
  // A thread walks down the rows of the source. It loads a row once for 4 taps.
  const double tap_rows = weight ? t.segment : t.rows.most_taps();
  const double chunks = ceil_div(t.columns.most_taps(), 4);
  const double loads = ceil_div(tile.columns + 4, tile.unit);
  const double entries = weight ? 1 : t.entries;
  const double rounds = ceil_div(t.items() * (weight ? t.entries : 1), t.threads);
  const double steps = rounds * entries * chunks * (tap_rows + tile.rows - 1);
  const double inside = weight ? 1 : std::min(1.0, static_cast<double>(t.in_h) / z.r);
  // Elements that a block copies to shared memory.
  const double source =
      static_cast<double>(t.slots) * std::min(t.in_h, t.rows.source_step * t.tile_rows) * t.in_w;
  const double taps = weight ? static_cast<double>(t.slots) * t.band * t.columns.most_taps()
                             : static_cast<double>(t.tap_sets) * z.r * z.s;
  const double outs = weight ? 0 : static_cast<double>(t.slots) * t.staged;
  const double jobs =
      weight ? number(z.c) * number(ceil_div(z.n, t.slots)) * t.bands
             : number(ceil_div(std::int64_t{z.n} * z.c, std::int64_t{t.slots})) * t.bands;
  const double blocks = weight ? number(z.c) * weight_slices(t, z) : jobs;
  const double each = std::ceil(jobs / blocks);  // jobs of a block
  const double partial = weight ? 4 * blocks * z.r * z.s : 0;
  const int registers = tile.columns == 14 ? 128 : 80;
  const int bytes = 4 * shared_floats_of(t, z.direction) + 1024;
  const double fma = chunks * 4 * tap_rows * tile.rows * tile.columns;
  return {.flops = z.flops(),
          .bytes = z.bytes(),
          .issued = jobs * t.threads * rounds * entries * inside * 2 * fma,
          .cached = jobs * (source + taps) * z.element,
          .schedule = kNames[t.tile],
          .blocks = blocks,
          .resident =
              number(std::max(1, std::min(z.shared_bytes / bytes, 65536 / registers / t.threads))),
          .chain = each * inside * steps,
          .copies = each * std::ceil((source + taps) / t.threads),
          .waits = each + (weight ? t.slots * t.segments : 0),
          .listed_warps =
              jobs * (t.threads / 32.0 * inside * steps * loads + (source + taps + outs) / 32),
          .stored = jobs * outs,
          .pass_bytes = 2 * partial,
          .launches = weight ? 2.0 : 1.0};
}

// Returns the tiling with the lowest estimated time. If no tiling fits into shared memory, its
// `band` is 0.
inline LargePlan make_large_plan(const LargeSizes& z) {
  namespace parts = large_plan_parts;
  const bool weight = z.direction == Direction::backward_weight;
  const bool back = z.direction == Direction::backward_data;
  Cheapest<LargePlan> search({"conv2d", "depthwise", z.direction}, DeviceType::cuda, DType::f32);
  for (int tile_index = 0; tile_index < 4; ++tile_index) {
    const ThreadTile& tile = kThreadTiles[tile_index];
    if (back && (z.stride_h > 1 || z.stride_w > 1) && tile.unit > 1) continue;
    LargePlan t;
    t.tile = tile_index;
    t.rows = make_axis(z.direction, z.h, z.p, z.r, z.stride_h, z.pad_top);
    t.columns = make_axis(z.direction, z.w, z.q, z.s, z.stride_w, z.pad_left);
    t.in_h = back ? z.p : z.h;
    t.in_w = back ? z.q : z.w;
    t.out_h = weight ? z.r : back ? z.h : z.p;
    t.out_w = weight ? z.s : back ? z.w : z.q;
    t.entries = t.rows.count * t.columns.count;
    t.sources = back ? 1 : t.entries;
    t.groups = ceil_div(t.columns.most_outs(), tile.columns);
    t.pitch = parts::place_columns(t.columns, t.groups, tile, back);
    t.tap_pitch = round_up(t.columns.most_taps(), 4);
    const int all_strips = ceil_div(t.rows.most_outs(), tile.rows);
    const auto consider = [&] {
      if (shared_floats_of(t, z.direction) * 4 > z.shared_bytes) return;
      search.offer(t, counts_of(t, z));
    };
    if (weight) {
      if (t.tap_pitch / 4 % 2 == 0) t.tap_pitch += 4;
      t.strips = all_strips;
      const int own = t.entries * t.strips * t.groups;  // threads of a segment of dy's rows
      if (own > LargePlan::kMaxThreads) continue;
      for (int bands = 1; bands <= z.p; bands *= 2) {
        t.band = ceil_div(z.p, bands);
        t.bands = ceil_div(z.p, t.band);
        t.tap_rows = t.band;
        t.tile_rows = parts::tile_rows_of(t.rows, t.band, t.rows.most_outs());
        for (const int segment : {3, 5, 7, 9, 15, 31, t.band}) {
          if (segment > t.band) continue;
          t.segment = segment;
          t.segments = ceil_div(t.band, segment);
          if (own * t.segments > LargePlan::kMaxThreads) continue;
          for (int slots = 1; slots <= z.n && slots * t.segments * own <= LargePlan::kMaxThreads;
               ++slots) {
            t.slots = slots;
            t.threads = round_up(slots * t.segments * own, 32);
            consider();
          }
        }
        if (bands >= 8 && t.band < 8) break;
      }
      continue;
    }
    t.tap_rows = t.entries * t.rows.most_taps();
    for (int bands = 1; bands <= std::min(all_strips, 64); ++bands) {
      t.strips = ceil_div(all_strips, bands);
      t.bands = ceil_div(all_strips, t.strips);
      if (t.bands != bands) continue;
      t.band = t.strips * tile.rows;
      t.tile_rows = parts::tile_rows_of(t.rows, t.band, t.rows.most_taps());
      t.staged = std::min(t.band * t.rows.out_step, t.out_h) * t.out_w;
      const int own = t.strips * t.groups;
      const std::int64_t planes = std::int64_t{z.n} * z.c;
      for (int slots = 1; slots <= planes && (slots == 1 || slots * own <= LargePlan::kThreads);
           ++slots) {
        t.slots = slots;
        t.threads = std::min(LargePlan::kThreads, round_up(slots * own, 32));
        t.tap_sets = slots == 1 ? 1 : std::min(slots, (slots - 2) / z.n + 2);
        consider();
      }
    }
  }
  LargePlan best = search.found();
  best.run_rows = std::min(best.in_h, best.rows.source_step * (best.tile_rows + 1));
  return best;
}

}  // namespace convscope::depthwise

// SPDX-License-Identifier: Apache-2.0
// direct_cuda_tiles.h: the tiling of direct_cuda.cu: the sizes of blocks and threads, computed on
// the host and passed to the kernels. Tests check the sizes on the CPU.
#pragma once

#include <cstdint>

#include "framework/int_math.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/cuda/direct_shape.h"

namespace convscope::direct_cuda {

constexpr int kBlockThreads = 256;
constexpr int kPixels = 8;               // of a row of y or dx, for one thread
constexpr int kChannels = 8;             // output channels of one thread, forward and dw
constexpr int kBlockBytes = 100 * 1024;  // of shared memory: two blocks on an SM

constexpr int least(int a, int b) { return a < b ? a : b; }
constexpr int most(int a, int b) { return a > b ? a : b; }
// Returns the floats of a row in shared memory: an odd multiple of four, so that neighbouring rows
// begin in different banks.
constexpr int row_pitch(int columns) {
  const int fours = ceil_div(columns, 4);
  return 4 * (fours % 2 == 0 ? fours + 1 : fours);
}

// Returns the floats of a row that kPixels outputs read, rounded up to groups of four.
constexpr int window_floats(int r, int stride) { return round_up((kPixels - 1) * stride + r, 4); }

// A patch of an image that is copied to shared memory. In each channel it has `rows` rows, `pitch`
// floats apart. A row has `columns` elements, or `columns` groups of four.
struct Patch {
  int rows = 1, pitch = 4;
  FastDivisor by_columns{}, by_rows{};
  Patch() = default;
  Patch(int rows_, int columns, int pitch_)
      : rows(rows_), pitch(pitch_), by_columns(columns), by_rows(rows_) {}
};

// forward: a block computes tile_p x tile_q pixels of one image, for k_lanes * kChannels channels.
struct ForwardTiles {
  int k_lanes = 1;            // threads along the output channels: 1, 2, 4, 8
  int columns = 1, rows = 1;  // of threads; a thread has kPixels columns
  int tiles_p = 1, tiles_q = 1, tiles_k = 1;
  int x_rows = 1, x_pitch = 4;     // of one channel in shared memory
  int w_pitch = 8;                 // floats for one (c, r, s)
  int depth = 1, chunks = 1;       // input channels of a chunk; number of chunks
  int x_floats = 0, w_floats = 0;  // of one buffer
  Patch x{};
  FastDivisor by_weights{};  // `depth` R R

  constexpr int k_tile() const { return k_lanes * kChannels; }
  constexpr int floats() const { return 2 * x_floats + (chunks > 1 ? 2 : 1) * w_floats; }
};
inline ForwardTiles forward_tiles(int r, int stride, int c, int k, int p, int q) {
  ForwardTiles t;
  while (t.k_lanes < 8 && t.k_lanes * kChannels < k) t.k_lanes *= 2;
  const int threads = kBlockThreads / t.k_lanes;
  // Chooses the tile size for which all tiles together read the fewest pixels of x.
  int fewest = 1 << 30;
  for (int columns = 1; columns <= threads; columns *= 2) {
    const int rows = threads / columns;
    const int tiles = ceil_div(p, rows) * ceil_div(q, columns * kPixels);
    const int halo = ((rows - 1) * stride + r) * ((columns * kPixels - 1) * stride + r);
    if (tiles * halo >= fewest) continue;
    fewest = tiles * halo;
    t.columns = columns;
    t.rows = rows;
  }
  t.rows = least(t.rows, p);
  t.tiles_p = ceil_div(p, t.rows);
  t.tiles_q = ceil_div(q, t.columns * kPixels);
  t.tiles_k = ceil_div(k, t.k_tile());
  t.x_rows = (t.rows - 1) * stride + r;
  t.x_pitch = row_pitch((t.columns - 1) * kPixels * stride + window_floats(r, stride));
  t.w_pitch = t.k_tile() + 4;
  // Shared memory holds all channels of w and two buffers of x. If these do not fit, it holds two
  // buffers of x and of w for some channels.
  const int x_channel = t.x_rows * t.x_pitch;
  const int w_channel = r * r * t.w_pitch;
  t.depth = c;
  if (static_cast<std::int64_t>(c) * (2 * x_channel + w_channel) * 4 > kBlockBytes) {
    t.depth = most(1, least(c - 1, kBlockBytes / 8 / (x_channel + w_channel)));
  }
  t.chunks = ceil_div(c, t.depth);
  t.depth = ceil_div(c, t.chunks);
  t.x = Patch(t.x_rows, (t.columns * kPixels - 1) * stride + r, t.x_pitch);
  t.x_floats = t.depth * t.x_rows * t.x_pitch;
  t.w_floats = t.depth * r * r * t.w_pitch;
  t.by_weights = FastDivisor(t.depth * r * r);
  return t;
}

// dx: a thread computes 2 x kPixels pixels of dx for up to four channels. dy is loaded in chunks of
// output channels. Coordinates are those of the padded image, so that tiles begin at multiples of
// the stride.
struct DataTiles {
  int columns = 1, rows = 1;  // of threads
  int tiles_h = 1, tiles_w = 1;
  int dy_rows = 1, dy_pitch = 4;
  int dy_left = 4;  // columns of dy before the tile
  int depth = 1, chunks = 1;
  int w_floats = 0;   // for one output channel: [R][S][4]
  int dy_floats = 0;  // floats of a buffer, including its weights
  Patch dy{}, dy_fours{};
};
inline DataTiles data_tiles(int r, int stride, int k, int h_padded, int w_padded) {
  DataTiles t;
  int fewest = 1 << 30;
  for (int columns = 1; columns <= 128; columns *= 2) {
    const int rows = 128 / columns;
    const int tiles = ceil_div(h_padded, rows * 2) * ceil_div(w_padded, columns * kPixels);
    const int halo = (rows * 2 + r) * (columns * kPixels + r);
    if (tiles * halo >= fewest) continue;
    fewest = tiles * halo;
    t.columns = columns;
    t.rows = rows;
  }
  t.tiles_h = ceil_div(h_padded, t.rows * 2);
  t.tiles_w = ceil_div(w_padded, t.columns * kPixels);
  const int before = (r - 1) / stride;  // rows and columns of dy before the tile
  t.dy_left = round_up(before, 4);
  t.dy_rows = t.rows * 2 / stride + before;
  t.dy_pitch = row_pitch(t.dy_left + t.columns * kPixels / stride);
  const int dy_columns = t.dy_left + t.columns * kPixels / stride;
  t.dy = Patch(t.dy_rows, dy_columns, t.dy_pitch);
  t.dy_fours = Patch(t.dy_rows, dy_columns / 4, t.dy_pitch);
  t.w_floats = r * r * 4;
  const int channel = t.dy_rows * t.dy_pitch + t.w_floats;
  t.depth = most(1, least(k, kBlockBytes / 2 / 8 / channel));
  t.chunks = ceil_div(k, t.depth);
  t.depth = ceil_div(k, t.chunks);
  t.dy_floats = t.depth * channel;
  return t;
}

// dw: a thread has kernel_rows x R accumulators for kChannels output channels of one input channel.
// A block has k_tile x c_tile channels and a slice of the rows of y; it processes one row at a
// time.
struct WeightTiles {
  int kernel_rows = 1;  // kernel rows of a thread
  int k_groups = 1, c_tile = 1, items = 1, splits = 1, threads = 32;
  int tiles_k = 1, tiles_c = 1;
  int x_pitch = 4, dy_pitch = 4;  // of a row in shared memory
  int fours = 1;                  // groups of four in a row of y
  int columns = 4;                // columns of y that are processed at a time
  int pieces = 1;                 // segments of a row of y
  int x_floats = 0, dy_floats = 0;
  int slices = 1;  // blocks that share the rows of y
  Patch x{};
  FastDivisor by_columns{}, by_fours{};

  constexpr int k_tile() const { return k_groups * kChannels; }
  // Returns the floats of shared memory: two buffers, which at the end hold the results of all
  // threads for one output channel.
  constexpr int floats() const { return most(2 * (x_floats + dy_floats), kBlockThreads * 9); }
};
inline WeightTiles weight_tiles(int r, int stride, int c, int k, int p, int q, std::int64_t n) {
  WeightTiles t;
  t.kernel_rows = r == 3 ? 3 : 1;
  t.k_groups = least(8, ceil_div(k, kChannels));
  t.c_tile = most(1, least(c, kBlockThreads / (t.k_groups * (r / t.kernel_rows))));
  t.tiles_c = ceil_div(c, t.c_tile);
  t.c_tile = ceil_div(c, t.tiles_c);
  t.tiles_k = ceil_div(k, t.k_tile());
  t.items = t.k_groups * t.c_tile * (r / t.kernel_rows);
  // Splits rows into the fewest segments that fit into a buffer.
  t.pieces = 0;
  do {
    ++t.pieces;
    t.columns = round_up(ceil_div(q, t.pieces), 4);
    t.dy_pitch = row_pitch(t.columns);
    t.x_pitch = row_pitch((t.columns - 4) * stride + round_up(3 * stride + r, 4));
    t.dy_floats = t.k_tile() * t.dy_pitch;
    t.x_floats = t.c_tile * r * t.x_pitch;
  } while ((t.x_floats + t.dy_floats) * 8 > kBlockBytes && t.columns > 4);
  t.pieces = ceil_div(q, t.columns);
  t.fours = t.columns / 4;
  t.x = Patch(r, t.x_pitch, t.x_pitch);
  t.by_columns = FastDivisor(t.columns);
  t.by_fours = FastDivisor(t.fours);
  t.splits = most(1, least(t.fours, kBlockThreads / t.items));
  t.threads = round_up(t.items * t.splits, 32);
  const std::int64_t rows = n * p;
  const int blocks = most(1, 396 / (t.tiles_k * t.tiles_c));
  t.slices = rows < blocks ? static_cast<int>(rows) : blocks;
  return t;
}

}  // namespace convscope::direct_cuda

// SPDX-License-Identifier: Apache-2.0
// cluster_gemm_plan.h: the tiling of cluster_gemm, that is, the work of a block and of a cluster of
// blocks, and its counts. It contains no CUDA, so tests check it on the CPU.
//
// Tile      the output positions of a block (some lines of an image, or whole images) and its
//           output channels, called columns
// Cluster   the blocks of one tile, each with a chunk of the input channels and all taps
// Patch     the pixels that a tile reads, with the channels of a chunk, in shared memory
// Step      32 bytes of the K dimension: 16 channels of fp16/bf16 or 8 of f32, for one tap
// Unit      the output of a warp: 16 or 32 positions, 16 or 32 columns
// Ways      warps that split the K dimension of a unit
// Read next  cluster_gemm_kernel.cuh
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/cuda/gather_lines.h"
#include "layers/dispatch/cost/choose.h"

namespace convscope::cluster_gemm {

inline constexpr int kOctet = 8;  // channels; a stored pixel has a multiple of 8 channels
inline constexpr int kStepBytes = 32;
inline constexpr int kTileRows = 16;     // positions of one tensor-core product
inline constexpr int kTileColumns = 16;  // columns of two products
inline constexpr int kWarps = 8;
inline constexpr int kMaxTaps = 49;   // of a kernel
inline constexpr int kMaxStride = 4;  // of backward_data, which has one phase for each residue
inline constexpr int kMaxPhases = kMaxStride * kMaxStride;
inline constexpr int kMaxBlocks = 8;  // of a cluster, on every GPU that supports clusters
inline constexpr int kMaxRows = 512;
inline constexpr int kMaxGrid = 65535;  // along y and z
inline constexpr int kSumGap = 8;       // floats after a row of results: eight rows use all banks

struct Machine {
  int multiprocessors = 132;
  int shared_bytes = 227 * 1024;  // limit of a block, which may use all of its SM's memory
};

// Arguments of a kernel.
struct ClusterGemmParams {
  int images, in_h, in_w, out_h, out_w;
  int in_octets, out_octets;      // octets of a stored pixel
  int in_channels, out_channels;  // without padding channels
  // A run of w is a range of consecutive floats. In forward it is one output channel k with the
  // chunk's input channels and all taps. In backward_data it is one output channel k, which is an
  // input of the pass, with the block's columns and all taps.
  int kernel_taps, run_apart;
  bool runs_are_columns;
  int phases_h, phases_w, out_step_h, out_step_w;
  int step_h, step_w;  // pixels between two positions
  int low_h, low_w;    // first row and column that position 0 reads
  // Taps of all phases in order.
  int most_taps;  // maximum of a phase
  short tap_begin[kMaxPhases + 1];
  short tap_kernel[kMaxTaps];  // r S + s
  int tap_at[kMaxTaps];        // offset in the patch, in pixels, from a position's pixel
  // The tile and its position.
  int tile_images, tile_h, tile_w, positions, rows;
  FastDivisor by_tile_h, by_tile_w, by_tiles_h, by_tiles_w;
  int patch_h, patch_w;
  FastDivisor by_patch_h, by_patch_w;
  int columns, column_tiles;
  FastDivisor by_phases, by_column_quads;
  // A block of the cluster.
  int blocks;           // of a cluster
  int chunk;            // input channels of a block
  int pieces, pitch;    // 16-byte segments of a pixel; bytes of a patch pixel
  int weight_pitch;     // bytes of one column of a tap
  int runs, run_quads;  // runs of w in a block; quads of four floats in a run
  FastDivisor by_pieces, by_run_quads, by_kernel_taps;
  int ways_log2;
  FastDivisor by_chunk_steps, by_unit_columns;

  constexpr int phases() const { return phases_h * phases_w; }
  constexpr int taps(int phase) const { return tap_begin[phase + 1] - tap_begin[phase]; }
  constexpr int chunk_steps() const { return pieces / 2; }
  constexpr int ways() const { return 1 << ways_log2; }
  constexpr int patch_pixels() const { return tile_images * patch_h * patch_w; }
  constexpr int patch_bytes() const { return patch_pixels() * pitch; }
  // Returns the bytes of a tap. 16 extra bytes put neighbouring taps of a run into different banks.
  constexpr int tap_bytes() const { return columns * weight_pitch + 16; }
  constexpr int sum_pitch() const { return columns + kSumGap; }
  constexpr int tiles() const {
    return ceil_div(images, tile_images) * by_tiles_h.d * by_tiles_w.d;
  }
  // Returns the second dimension of the grid. The three dimensions are: blocks of a cluster; tiles
  // of columns times phases; tiles of positions.
  constexpr int column_jobs() const { return column_tiles * phases(); }
  constexpr std::int64_t clusters() const { return std::int64_t{tiles()} * column_jobs(); }
};

// Rounds up to an odd number of 16-byte segments, so that the same segment of eight neighbouring
// rows uses all banks.
constexpr int odd_pieces(int bytes) { return (bytes / 16 | 1) * 16; }

inline int element_bytes(const Conv2dProblem& z) { return z.dtype == DType::f32 ? 4 : 2; }
inline int step_channels(const Conv2dProblem& z) { return kStepBytes / element_bytes(z); }

// Returns the sizes that do not depend on the tile.
inline ClusterGemmParams sizes_of(const Conv2dProblem& z, Direction direction) {
  using gather::Line;
  const auto narrow = [](std::int64_t size) { return static_cast<int>(size); };
  const bool back = direction == Direction::backward_data;
  const int r = narrow(z.r), s = narrow(z.s);
  ClusterGemmParams out{};
  out.images = narrow(z.n);
  int h = narrow(z.h), w = narrow(z.w), p = narrow(z.p()), q = narrow(z.q());
  // With 1x1 kernels and stride 1 no tap reads a neighbour, so all images form one line.
  if (r * s == 1 && h == p && w == q && z.stride_h == 1 && z.stride_w == 1 && z.pad_top == 0 &&
      z.pad_left == 0) {
    w = q = out.images * h * w;
    h = p = out.images = 1;
  }
  out.in_h = back ? p : h, out.in_w = back ? q : w;
  out.out_h = back ? h : p, out.out_w = back ? w : q;
  out.in_channels = narrow(back ? z.k : z.c), out.out_channels = narrow(back ? z.c : z.k);
  out.in_octets = ceil_div(out.in_channels, kOctet);
  out.out_octets = ceil_div(out.out_channels, kOctet);
  out.kernel_taps = r * s;
  out.by_kernel_taps = FastDivisor(r * s);
  out.run_apart = narrow(z.c) * r * s;
  out.runs_are_columns = !back;
  out.phases_h = back ? std::min(narrow(z.stride_h), h) : 1;
  out.phases_w = back ? std::min(narrow(z.stride_w), w) : 1;
  out.out_step_h = back ? narrow(z.stride_h) : 1;
  out.out_step_w = back ? narrow(z.stride_w) : 1;
  out.step_h = back ? 1 : narrow(z.stride_h);
  out.step_w = back ? 1 : narrow(z.stride_w);
  const auto line_of = [back](int phase, int in, int outputs, int kernel, std::int64_t stride,
                              std::int64_t pad, std::int64_t dilation) {
    const auto by = static_cast<int>(stride), before = static_cast<int>(pad),
               apart = static_cast<int>(dilation);
    return back ? gather::backward_line(phase, in, outputs, kernel, by, before, apart)
                : gather::forward_line(in, outputs, kernel, by, before, apart);
  };
  const auto line_h = [&](int phase) {
    return line_of(phase, h, p, r, z.stride_h, z.pad_top, z.dilation_h);
  };
  const auto line_w = [&](int phase) {
    return line_of(phase, w, q, s, z.stride_w, z.pad_left, z.dilation_w);
  };
  // The first and the last row (or column) that the taps of position 0 read, over all phases.
  struct Span {
    int low = std::numeric_limits<int>::max(), high = std::numeric_limits<int>::min();
    void add(const Line& line) {
      for (int t = 0; t < line.taps; ++t) {
        low = std::min(low, line.input(0, t)), high = std::max(high, line.input(0, t));
      }
    }
    void close() {
      if (low > high) low = high = 0;
    }
  } rows, columns;
  for (int i = 0; i < out.phases_h; ++i) rows.add(line_h(i));
  for (int i = 0; i < out.phases_w; ++i) columns.add(line_w(i));
  rows.close(), columns.close();
  out.low_h = rows.low, out.low_w = columns.low;
  out.patch_h = rows.high - rows.low + 1;  // of one position; see with_tile()
  out.patch_w = columns.high - columns.low + 1;
  int taps = 0;
  for (int i = 0; i < out.phases(); ++i) {
    const Line a = line_h(i / out.phases_w), b = line_w(i % out.phases_w);
    out.tap_begin[i] = static_cast<short>(taps);
    for (int t = 0; t < a.taps; ++t) {
      for (int u = 0; u < b.taps; ++u) {
        out.tap_kernel[taps] = static_cast<short>(a.kernel(t) * s + b.kernel(u));
        // Packs row and column, which with_tile() replaces by an offset.
        out.tap_at[taps++] = (a.input(0, t) - rows.low) << 16 | (b.input(0, u) - columns.low);
      }
    }
  }
  out.tap_begin[out.phases()] = static_cast<short>(taps);
  for (int i = 0; i < out.phases(); ++i) out.most_taps = std::max(out.most_taps, out.taps(i));
  out.by_phases = FastDivisor(out.phases());
  return out;
}

struct Tile {
  int images = 1, h = 1, w = 1;
};

inline ClusterGemmParams with_tile(ClusterGemmParams z, const Tile& tile) {
  z.tile_images = tile.images, z.tile_h = tile.h, z.tile_w = tile.w;
  z.positions = tile.images * tile.h * tile.w;
  z.by_tile_h = FastDivisor(tile.h), z.by_tile_w = FastDivisor(tile.w);
  z.by_tiles_h = FastDivisor(ceil_div(ceil_div(z.out_h, z.out_step_h), tile.h));
  z.by_tiles_w = FastDivisor(ceil_div(ceil_div(z.out_w, z.out_step_w), tile.w));
  z.patch_h += (tile.h - 1) * z.step_h;
  z.patch_w += (tile.w - 1) * z.step_w;
  z.by_patch_h = FastDivisor(z.patch_h), z.by_patch_w = FastDivisor(z.patch_w);
  for (int t = 0; t < z.tap_begin[z.phases()]; ++t) {
    z.tap_at[t] = (z.tap_at[t] >> 16) * z.patch_w + (z.tap_at[t] & 0xffff);
  }
  return z;
}

// Sets the columns of a block, and the number of blocks that split the K dimension.
inline ClusterGemmParams with_blocks(ClusterGemmParams z, int columns, int blocks, int chunk,
                                     int element) {
  z.columns = columns;
  z.column_tiles = ceil_div(z.out_octets * kOctet, columns);
  z.by_column_quads = FastDivisor(columns / 4);
  z.blocks = blocks;
  z.chunk = chunk;
  z.pieces = chunk * element / 16;
  z.pitch = z.weight_pitch = odd_pieces(chunk * element);
  z.runs = z.runs_are_columns ? columns : chunk;
  z.run_quads = (z.runs_are_columns ? chunk : columns) * z.kernel_taps / 4;
  z.by_pieces = FastDivisor(z.pieces);
  z.by_run_quads = FastDivisor(z.run_quads);
  z.by_chunk_steps = FastDivisor(z.chunk_steps());
  return z;
}

struct ClusterGemmTiling {
  ClusterGemmParams sizes = {};
  int row_tiles = 1, column_tiles = 1;  // of a unit: template parameters of the kernel
  int shared_bytes = 0;
  Cost cost = {};

  bool exists() const { return shared_bytes > 0; }
};

// Returns the bytes of shared memory of a block: patch, weights, results and three tables.
inline std::int64_t shared_bytes_of(const ClusterGemmParams& z) {
  const int steps = z.most_taps * z.chunk_steps();
  return std::int64_t{z.patch_bytes()} + std::int64_t{z.most_taps} * z.tap_bytes() +
         std::int64_t{4} * z.rows * z.sum_pitch() + 8 * z.rows + 8 * steps + 4 * z.kernel_taps;
}

inline constexpr int kResident = 2;  // blocks on an SM

// Returns the kernel: the operands' type, and the tiles of rows and columns of a unit.
inline const char* schedule_of(const ClusterGemmTiling& plan, const Conv2dProblem& z) {
  constexpr const char* kNames[2][2][2] = {{{"half 1x1", "half 1x2"}, {"half 2x1", "half 2x2"}},
                                           {{"tf32 1x1", "tf32 1x2"}, {"tf32 2x1", "tf32 2x2"}}};
  return kNames[z.dtype == DType::f32 ? 1 : 0][plan.row_tiles - 1][plan.column_tiles - 1];
}

// Counts the work of all blocks. A cluster adds up the results of its blocks: each takes an eighth.
inline Cost counts_of(const ClusterGemmTiling& plan, const Conv2dProblem& problem,
                      const Machine& machine) {
  const ClusterGemmParams& z = plan.sizes;
  const int threads = kWarps * 32;
  const double quads = static_cast<double>(z.runs) * z.run_quads;  // of weights
  const int units =
      z.rows / (kTileRows * plan.row_tiles) * (z.columns / (kTileColumns * plan.column_tiles));
  const int rounds = ceil_div(units * z.ways(), kWarps);
  const int steps = z.most_taps * z.chunk_steps();
  const double sums = static_cast<double>(z.rows) * z.columns;
  const double blocks = static_cast<double>(z.clusters()) * z.blocks;
  return {.flops = problem.nominal_flops(),
          .bytes = problem.nominal_bytes(),
          .issued = blocks * 2 * sums * steps * step_channels(problem),
          .cached = blocks * 16 * (static_cast<double>(z.patch_pixels()) * z.pieces + quads),
          .schedule = schedule_of(plan, problem),
          .blocks = blocks,
          .resident = static_cast<double>(
              std::clamp((machine.shared_bytes + 1024) / (plan.shared_bytes + 1024), 1, kResident)),
          .chain = static_cast<double>(rounds) * ceil_div(steps, z.ways()),
          .copies = ceil_div(z.patch_pixels(), std::max(threads / z.pieces, 1)) +
                    std::ceil(quads / (z.runs_are_columns ? threads : 2 * threads)),
          .waits = rounds * (z.ways() - 1) + (z.blocks > 1 ? z.blocks : 0) +
                   std::ceil(sums / 4 / (kMaxBlocks * threads)),
          .listed_warps =
              blocks * units * steps * static_cast<double>(plan.row_tiles + plan.column_tiles),
          .stored = blocks * sums,
          .tensor_cores = true};
}

// Calls visit(plan) for every possible tiling.
template <class Visit>
void visit_plans(const Conv2dProblem& z, Direction direction, const Machine& machine,
                 const Visit& visit) {
  const ClusterGemmParams whole = sizes_of(z, direction);
  const int element = element_bytes(z);
  const int step = step_channels(z);
  const int high = ceil_div(whole.out_h, whole.out_step_h);
  const int wide = ceil_div(whole.out_w, whole.out_step_w);
  const auto with = [&](const Tile& tile) {
    const ClusterGemmParams tiled = with_tile(whole, tile);
    for (const int columns : {16, 32, 64, 128}) {
      if (columns > 16 && columns >= 2 * round_up(whole.out_octets * kOctet, kTileColumns)) break;
      for (int blocks = 1; blocks <= kMaxBlocks; blocks *= 2) {
        const int chunk = round_up(ceil_div(whole.in_octets * kOctet, blocks), step);
        if (blocks > 1 && chunk * (blocks - 1) >= whole.in_channels) break;
        if (chunk * element / 16 > kWarps * 32) continue;  // a thread keeps its segment of a pixel
        ClusterGemmParams s = with_blocks(tiled, columns, blocks, chunk, element);
        for (int row_tiles = 1; row_tiles <= 2; ++row_tiles) {
          s.rows = round_up(s.positions, kTileRows * row_tiles);
          const std::int64_t shared = shared_bytes_of(s);
          if (shared > machine.shared_bytes || s.tiles() > kMaxGrid || s.column_jobs() > kMaxGrid) {
            continue;
          }
          for (int column_tiles = 1; column_tiles <= 2; ++column_tiles) {
            if (columns % (kTileColumns * column_tiles) != 0) continue;
            s.by_unit_columns = FastDivisor(columns / (kTileColumns * column_tiles));
            for (int log2 = 0; 1 << log2 <= kWarps; ++log2) {
              if (1 << log2 > s.most_taps * s.chunk_steps()) break;
              s.ways_log2 = log2;
              ClusterGemmTiling plan{.sizes = s,
                                     .row_tiles = row_tiles,
                                     .column_tiles = column_tiles,
                                     .shared_bytes = static_cast<int>(shared)};
              plan.cost = counts_of(plan, z, machine);
              visit(plan);
            }
          }
        }
      }
    }
  };
  for (int cuts_w = ceil_div(wide, kMaxRows);; cuts_w += 1 + cuts_w / 8) {
    const int tile_w = ceil_div(wide, cuts_w);
    if (cuts_w > 1 && tile_w < kTileRows) break;
    for (int cuts_h = ceil_div(high, kMaxRows / tile_w);; cuts_h += 1 + cuts_h / 8) {
      const int tile_h = ceil_div(high, cuts_h);
      const int most = cuts_w * cuts_h == 1 ? std::min(whole.images, 8) : 1;
      for (int images = 1; images <= most && images * tile_h * tile_w <= kMaxRows; images *= 2) {
        with(Tile{images, tile_h, tile_w});
      }
      if (tile_h == 1) break;
    }
    if (tile_w == 1) break;
  }
}

inline ClusterGemmTiling plan_of(const Conv2dProblem& z, Direction direction,
                                 const Machine& machine) {
  Cheapest<ClusterGemmTiling> best({"conv2d", "cluster_gemm", direction}, DeviceType::cuda,
                                   z.dtype);
  visit_plans(z, direction, machine,
              [&](const ClusterGemmTiling& plan) { best.offer(plan, plan.cost); });
  return best.found();
}

}  // namespace convscope::cluster_gemm

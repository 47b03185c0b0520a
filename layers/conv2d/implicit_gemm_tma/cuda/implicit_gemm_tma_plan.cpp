// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_plan.cpp: the search for tiles. It tries every kernel, every sharing of
// patches, and a few dozen boxes of pixels. The time model takes the longer of two times, that of
// the products and that of the bytes from L2. It counts the last wave of blocks as a full one.
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "framework/int_math.h"
#include "layers/conv2d/shared/cuda/seen_pixels.h"

namespace convscope::implicit_gemm_tma {
namespace {

// The constants are fitted to times of 134 plans of forward and 165 of backward_weight on one H200:
// every kernel and every sharing that the layers of shapes/gpu_dense.txt allow, N = 1 and 32.
constexpr double kClock = 1750;        // cycles per microsecond
constexpr double kBytesPerCycle = 49;  // from L2 to an SM
constexpr double kStepCycles = 130;    // of a pipeline step, in addition to its products
constexpr double kTileCycles = 1800;   // to begin a tile
constexpr double kStoreCycles = 0.1;   // per stored element
constexpr double kStoreCyclesF32 = 0.15;
// Returns the FLOPs per cycle of an SM's tensor cores. Narrow tiles read operands more often.
double flops_per_cycle(int columns) { return columns >= 128 ? 4500 : 4150; }
// Returns the cycles of loading one row: a pixel's channels in one chunk.
double row_cycles(int channels, int chunk, int element_bytes = 2) {
  const double whole = chunk * element_bytes / kBytesPerCycle;
  return channels % chunk == 0 ? std::max(whole, 2.0) : whole * 2;
}
// Returns the share of row_cycles() in the algorithm's cost, where only the last chunk is slow.
double last_chunk_part(int channels, int chunk) {
  if (channels % chunk == 0) return 1;
  return (channels / chunk + 2.0) / (2.0 * ceil_div(channels, chunk));
}
// Constants for f32 operands that are split into a high and a low fp16 plane.
constexpr double kThreeProducts = 3.2;    // time relative to one product; includes f32 additions
constexpr double kNarrowProducts = 1.17;  // factor for 32 columns: shared memory limits the speed
constexpr double kStoreCyclesPlanes = 0.5;
constexpr double kGatherLaunchUs = 1.2, kSumLaunchUs = 1.5;
// Microseconds added where many large blocks keep the next kernel from starting early.
constexpr double kAloneUs = 0.95;
constexpr double kMemoryBytesPerUs = 3.2e6;
// Constants of backward_weight. Cycles of a step, of a tile, and of each stored slot (a tap and its
// channels). Bytes of dw stored per cycle, by blocks with all taps and by blocks with some adjacent
// taps. Time of one launch, and of two, where the second one adds the parts.
constexpr double kWeightStepCycles = 530, kWeightTileCycles = 3100, kSlotCycles = 330;
constexpr double kStoreBytesPerCycle = 22, kPiecesBytesPerCycle = 10;
constexpr double kDirectLaunchUs = 2.2, kTwoLaunchesUs = 2.9;
// Time ratios of loading rows, indexed by Sharing: boxes of one tap load slowest.
constexpr double kSlowerRows[] = {1.3, 1.1, 0.6};
// Constants of backward_weight for two planes: the same ratios, cycles of each box, time ratio of
// products. Fitted to 176 times of one H200: every kernel and sharing of 13 layers, N = 1 and 32.
constexpr double kRowsOfTwo[] = {0.87, 0.87, 1.3};
constexpr double kBoxCycles = 73, kThreeOfWeight = 3.05;
// Two planes, some taps: bytes of dw stored per cycle are kFirstPiece + kMorePieces per tap.
constexpr double kFirstPiece = 1.35, kMorePieces = 0.65;

// Constants of the cost that is compared with other algorithms; fitted to 200 bf16 layers.
struct AlgorithmRates {
  // store_cycles: for 2-byte results. patch_cycles: a tile with a shared patch waits for boxes.
  double tile_cycles = 2000, store_cycles = 0.041, patch_cycles = 750;
  double launch_us = 0.35, split_us = 0.13;
  // pieces_us: time per element of dw in backward_weight where a block has only some taps.
  double weight_step = 230, weight_tile = 3700, two_launches_us = 0.45, direct_us = -0.35;
  double weight_bytes_per_us = 3.8e6, pieces_us = 4.7e-6;
};
constexpr AlgorithmRates kAlgorithm;
constexpr int kBox = 256;                   // longest side of a box
constexpr int kBarrierBytes = 1024 + 2048;  // alignment of the first stage, and barriers

int narrow(std::int64_t value) { return static_cast<int>(value); }

// Returns the lengths of tiles that cut `side` pixels: whole, a half, a third, ...
std::vector<int> cuts(int side, int most) {
  std::vector<int> out;
  int last = 0;
  for (int pieces = 1; pieces <= side && out.size() < 12; ++pieces) {
    const int length = ceil_div(side, pieces);
    if (length == last) continue;
    last = length;
    if (length <= most) out.push_back(length);
  }
  for (const int length : {256, 128, 64, 32, 16, 8, 4, 2, 1}) {
    if (length <= most && length < side && (out.empty() || length < out.back())) {
      out.push_back(length);
    }
  }
  return out;
}

struct GatherSearch {
  const Conv2dProblem& z;
  Direction direction;
  const Machine& machine;
  bool from_f32;  // operands are f32: rows hold half as many channels
  int planes;     // of operands; 2: high and low planes of f32
  Geometry geometry;
  int depth, columns;
  GatherPlan best;

  int element_bytes() const { return from_f32 ? 4 : 2; }
  int chunk_of(const GatherShape& shape) const { return shape.chunk * 2 / element_bytes(); }
  // Returns whether weights are read transposed, with the channels of the result innermost.
  bool is_across() const {
    return direction == Direction::backward_data && !from_f32 && planes == 1;
  }
  const GatherShape* shapes() const { return planes == 2 ? kFp16x3Shapes : kGatherShapes; }
  int shape_count() const { return planes == 2 ? kFp16x3ShapeCount : kGatherShapeCount; }

  // Returns the pixels from row to row of a patch.
  int pitch_of_lines(const Extents& extents, int width) const {
    const bool forward = direction == Direction::forward;
    return pitch_of(geometry.wide[0], geometry.phases_w, narrow(forward ? z.w : z.q()), extents.w,
                    width);
  }
  int lines_of_images(const Extents& extents, int height) const {
    const bool forward = direction == Direction::forward;
    return pitch_of(geometry.high[0], geometry.phases_h, narrow(forward ? z.h : z.p()), extents.h,
                    height);
  }

  void consider(int shape_index, Sharing sharing, const Extents& extents, int width, int height,
                int images) {
    const GatherShape& shape = shapes()[shape_index];
    const int step_h = geometry.high[0].step, step_w = geometry.wide[0].step;
    GatherPlan plan;
    plan.shape = shape_index;
    plan.planes = planes;
    plan.sharing = sharing;
    plan.from_f32 = from_f32;
    plan.width = width, plan.height = height, plan.images = images;
    plan.pitch = plan.patch_w = pitch_of_lines(extents, width);
    plan.lines = plan.patch_h = lines_of_images(extents, height);
    plan.zeros_behind = plan.pitch < width + extents.w || plan.lines < height + extents.h;
    if ((plan.patch_w - 1) * step_w >= kBox || (plan.patch_h - 1) * step_h >= kBox ||
        images > kBox) {
      return;
    }
    const int box_rows = plan.patch_w * plan.patch_h * images;
    const int rows =
        round_up(std::max(shape.rows + extents.h * plan.pitch + extents.w, box_rows), 8);
    plan.patch_stage_bytes = round_up(rows * shape.chunk * 2, 1024);
    const int patch_bytes = planes * plan.patch_stage_bytes;
    const int weight_bytes =
        planes * std::max(1024, is_across() ? ceil_div(shape.columns, 64) * 8192
                                            : shape.columns * shape.chunk * 2);
    // Shared memory of one block.
    const int budget = (shape.blocks == 1 ? machine.shared_bytes
                                          : (machine.shared_bytes + 1024) / shape.blocks - 1024) -
                       kBarrierBytes;
    const bool shares = sharing != Sharing::tap;
    plan.patch_stages = plan.weight_stages = 2;
    if (2 * (patch_bytes + weight_bytes) > budget) return;
    const auto left = [&] {
      return budget - plan.patch_stages * patch_bytes - plan.weight_stages * weight_bytes;
    };
    if (!shares) {
      while (plan.patch_stages < 8 && left() >= patch_bytes + weight_bytes) {
        ++plan.patch_stages, ++plan.weight_stages;
      }
    } else {
      while (plan.weight_stages < 4 && left() >= weight_bytes) ++plan.weight_stages;
      if (left() >= patch_bytes) ++plan.patch_stages;
      while (plan.weight_stages < 8 && left() >= weight_bytes) ++plan.weight_stages;
    }
    const int all_weights = narrow(z.r * z.s) * ceil_div(depth, chunk_of(shape));
    if (columns <= shape.columns && shape.blocks == 1 && all_weights <= kMaxStages &&
        3 * patch_bytes + all_weights * weight_bytes <= budget) {
      plan.weights_stay = true;
      plan.weight_stages = all_weights;
      plan.patch_stages = 2;
      while (plan.patch_stages < 6 && left() >= patch_bytes) ++plan.patch_stages;
    }
    plan.shared_bytes = static_cast<std::size_t>(plan.patch_stages * patch_bytes +
                                                 plan.weight_stages * weight_bytes + kBarrierBytes);

    // Sums over the tiles of all phases: their number, all cycles, and those of the longest tile.
    const int tiles_n = ceil_div(narrow(z.n), images);
    double cycles_all = 0, cycles_most = 0, algorithm_all = 0, algorithm_most = 0;
    int tiles = 0, fewest_patches = 1 << 30;
    const int chunks = ceil_div(depth, chunk_of(shape));
    const int depth_steps = ceil_div(depth, 32 / element_bytes());
    const bool f32 = z.dtype == DType::f32;  // results; operands are fp16 anyway
    const double tile_cycles = kTileCycles + (planes == 2 ? kStoreCyclesPlanes
                                              : f32       ? kStoreCyclesF32
                                                          : kStoreCycles) *
                                                 shape.rows * shape.columns;
    const double algorithm_tile_cycles = kAlgorithm.tile_cycles +
                                         kAlgorithm.store_cycles * shape.rows * shape.columns +
                                         (shares ? kAlgorithm.patch_cycles : 0);
    const double seen = direction == Direction::forward ? seen_part_of_x(z) : 1;
    plan.column_tiles = ceil_div(columns, shape.columns);
    for (int i = 0; i < geometry.phases_h * geometry.phases_w; ++i) {
      const Line& high = geometry.high[i / geometry.phases_w];
      const Line& wide = geometry.wide[i % geometry.phases_w];
      const int in_phase = ceil_div(high.outputs, height) * ceil_div(wide.outputs, width) * tiles_n;
      const int taps = high.taps * wide.taps;
      const int groups = count_groups(high, sharing == Sharing::patch) *
                         count_groups(wide, sharing != Sharing::tap);
      const double products =
          static_cast<double>(taps) * depth_steps * 32.0 * shape.rows *
          std::max(shape.columns, 32) / flops_per_cycle(shape.columns) *
          (planes == 1 ? 1 : kThreeProducts * (shape.columns < 64 ? kNarrowProducts : 1));
      const int weight_rows =
          is_across() ? ceil_div(shape.columns, 64) * shape.chunk : shape.columns;
      const double row = row_cycles(depth, chunk_of(shape), element_bytes());
      const double patch_rows = planes * chunks * groups * box_rows * row;
      const double weight_cycles = planes * chunks * (plan.weights_stay ? 0 : taps * weight_rows) *
                                   (is_across() ? row_cycles(columns, 64) : row);
      // A patch's memory is free when products of the next patch have begun. With two stages, the
      // copy of a third patch waits for these products. Only other taps' products hide the copy.
      const bool waits = planes == 2 && plan.patch_stages == 2 && taps > 0;
      const double hidden = waits ? products * (taps - groups) / taps : products;
      const auto cycles_with = [&](double rows_cycles) {
        return products + std::max(0.0, rows_cycles - hidden) +
               0.15 * std::min(products, rows_cycles) + taps * chunks * kStepCycles;
      };
      const double cycles = cycles_with(patch_rows + weight_cycles);
      const double last_part = last_chunk_part(depth, chunk_of(shape));
      const double algorithm_cycles =
          cycles_with(patch_rows * last_part +
                      weight_cycles * (is_across() ? last_chunk_part(columns, 64) : last_part));
      tiles += in_phase;
      cycles_all += cycles * in_phase;
      cycles_most = std::max(cycles_most, cycles);
      algorithm_all += algorithm_cycles * in_phase;
      algorithm_most = std::max(algorithm_most, algorithm_cycles);
      if (taps > 0) fewest_patches = std::min(fewest_patches, groups * chunks);
    }
    plan.row_tiles = tiles;
    const double all_tiles = static_cast<double>(tiles) * plan.column_tiles;
    const double out_count = static_cast<double>(z.n) *
                             (direction == Direction::forward ? static_cast<double>(z.p() * z.q())
                                                              : static_cast<double>(z.h * z.w)) *
                             columns;
    const double y_count = static_cast<double>(z.y_shape().numel());
    const auto memory_us = [&](double x_part) {
      return ((static_cast<double>(z.x_shape().numel()) * x_part + y_count) *
                  (planes == 2 ? 4 : element_bytes()) +
              (f32 && !from_f32 && planes == 1 ? 2 * out_count : 0)) /
             kMemoryBytesPerUs;
    };
    const double at_once = static_cast<double>(machine.multiprocessors) * shape.blocks;
    const int most_splits = planes == 2 ? 1 : std::min(16, std::max(1, fewest_patches));
    for (int splits = 1; splits <= most_splits; ++splits) {
      const double part_bytes = splits > 1 ? out_count * 4 * splits : 0;
      if (part_bytes > 100e6) break;
      const double blocks = all_tiles * splits;
      const bool alone = shape.blocks == 1 && blocks > machine.multiprocessors / 2;
      const double launch_us =
          kGatherLaunchUs + (splits > 1 ? kSumLaunchUs : 0) + (alone ? kAloneUs : 0);
      // Two blocks of an SM share its tensor cores.
      const double waves = std::ceil(blocks / at_once);
      const auto time_of = [&](double all, double longest, double around, double moved_us,
                               double split_us) {
        const double mean = all / std::max(1, tiles) / splits;
        double cycles = 0;
        if (shape.blocks == 1) {
          cycles = waves * mean + (waves > 1 ? 0 : longest / splits - mean) + around * waves;
        } else {
          const double each = std::ceil(blocks / machine.multiprocessors);
          cycles = each * mean + around * (0.55 * each + 0.45) +
                   (blocks <= machine.multiprocessors ? 0.85 * mean : 0);
        }
        const double sum_us = cycles / kClock;
        const double time = std::max(sum_us, moved_us) + launch_us +
                            (shape.blocks == 1 ? 0.15 : 0.1) * std::min(sum_us, moved_us);
        return splits == 1 ? time
                           : time + split_us * splits + part_bytes * 2 / kMemoryBytesPerUs / 1.55;
      };
      const double us = time_of(cycles_all, cycles_most, tile_cycles, memory_us(1), 0.2);
      if (us < best.us) {
        best = plan;
        best.splits = splits;
        best.us = us;
        best.launch_us = launch_us;
        best.algorithm_us =
            !f32 ? time_of(algorithm_all, algorithm_most, algorithm_tile_cycles, memory_us(seen),
                           kAlgorithm.split_us) +
                       kAlgorithm.launch_us
            : from_f32 ? time_of(algorithm_all, algorithm_most, tile_cycles, memory_us(seen), 0.2)
                       : time_of(cycles_all, cycles_most, tile_cycles, memory_us(seen), 0.2);
      }
    }
  }

  static int count_groups(const Line& line, bool shares) {
    int count = 0;
    for (int i = 0; i < line.taps; ++i) {
      const int key = key_of(line.offset[i], line.step, shares);
      count += line.offset[i] == base_of(line, key, shares) ? 1 : 0;
    }
    return count;
  }

  void run() {
    best.us = std::numeric_limits<double>::infinity();
    const int out_h = geometry.outputs_h(), out_w = geometry.outputs_w();
    for (const Sharing sharing : {Sharing::tap, Sharing::row, Sharing::patch}) {
      const Extents extents = extents_of(geometry, sharing);
      if (sharing == Sharing::row && extents.w == 0) continue;
      if (sharing == Sharing::patch && extents.h == 0) continue;

      for (int i = 0; i < shape_count(); ++i) {
        const GatherShape& shape = shapes()[i];
        if (shape.columns == 16 && columns > 16) continue;
        if (planes == 1 && shape.chunk < 64 && depth > chunk_of(shape)) continue;
        for (const int width : cuts(out_w, shape.rows)) {
          const int pitch = pitch_of_lines(extents, width);
          const int most_lines = (shape.rows - width) / pitch + 1;
          for (const int height : cuts(out_h, most_lines)) {
            int images = 1;
            if (height == out_h || height + extents.h <= most_lines) {
              images = std::min(narrow(z.n),
                                1 + (most_lines - height) / lines_of_images(extents, height));
            }
            consider(i, sharing, extents, width, height, images);
          }
        }
      }
    }
    finish();
  }

  void finish() {
    best.taps = tap_sets(geometry, best.sharing, best.pitch);
    int tile = 0;
    for (int i = 0; i < best.taps.phases; ++i) {
      Phase& phase = best.taps.phase[i];
      phase.first_tile = tile;
      phase.tiles_w = std::max(1, ceil_div(phase.outputs_w, best.width));
      phase.tiles_h = std::max(1, ceil_div(phase.outputs_h, best.height));
      if (phase.outputs_w > 0 && phase.outputs_h > 0) {
        tile += phase.tiles_w * phase.tiles_h * ceil_div(narrow(z.n), best.images);
      }
    }
    best.row_tiles = tile;
  }
};

// Returns the next larger number of parts for which each part is shorter.
int next_split(int steps, int splits) {
  const int most = ceil_div(steps, splits);
  return most == 1 ? steps + 1 : ceil_div(steps, most - 1);
}

struct WeightSearch {
  const Conv2dProblem& z;
  const Machine& machine;
  int planes;  // of operands; 2: high and low planes of f32
  Geometry geometry;
  int k_channels, c_channels;
  TmaWeightTiling best;

  int pitch_of_lines(const Extents& extents, int width) const {
    return pitch_of(geometry.wide[0], 1, narrow(z.w), extents.w, width);
  }
  int lines_of_images(const Extents& extents, int height) const {
    return pitch_of(geometry.high[0], 1, narrow(z.h), extents.h, height);
  }

  void consider(int shape_index, Sharing sharing, const Extents& extents, const TapSets& taps,
                int width, int height, int images, bool apart) {
    TmaWeightTiling plan;
    plan.shape = shape_index;
    plan.planes = planes;
    const WeightShape& shape = shape_of(plan);
    plan.sharing = sharing;
    plan.width = width, plan.height = height, plan.images = images;
    plan.columns_apart = apart;
    plan.pitch = plan.patch_w = plan.errors_w = pitch_of_lines(extents, width);
    plan.patch_h = lines_of_images(extents, height);
    plan.errors_h = images > 1 ? plan.patch_h : height;
    const int step_h = geometry.high[0].step, step_w = geometry.wide[0].step;
    if ((plan.patch_w - 1) * step_w >= kBox || (plan.patch_h - 1) * step_h >= kBox ||
        images > kBox) {
      return;
    }
    const int rows = plan.errors_w * plan.errors_h * images;
    plan.depth = round_up(rows, 16);
    const int shift = extents.h * plan.pitch + extents.w;
    const int box_rows = plan.patch_w * plan.patch_h * images;
    const int pixel_rows = round_up(std::max(plan.depth + shift, box_rows), 8);
    plan.pixels_stage_bytes = round_up(pixel_rows * shape.columns * 2, 1024);
    const int out_h = geometry.outputs_h(), out_w = geometry.outputs_w();
    plan.tiles_w = ceil_div(out_w, width);
    plan.tiles_h = ceil_div(out_h, height);
    plan.tiles_n = ceil_div(narrow(z.n), images);
    const int steps = plan.tiles_w * plan.tiles_h * plan.tiles_n;
    const int slots = shape.slots * 3, k_chunks = ceil_div(k_channels, 64),
              c_chunks = ceil_div(c_channels, shape.columns);
    for (int a = 1; a <= std::min(slots, k_chunks); ++a) {
      for (int b = 1; b <= std::min(slots / a, c_chunks); ++b) {
        plan.k_blocks = a, plan.c_blocks = b;
        const int most_taps = std::min(taps.taps, slots / (a * b));
        plan.tap_count = ceil_div(taps.taps, ceil_div(taps.taps, most_taps));
        int boxes = 0;  // patches of a tile
        int tap_tiles = 0;
        double all_boxes = 0;
        for (int t = 0; t < taps.taps; t += plan.tap_count) {
          const int last = std::min(taps.taps, t + plan.tap_count) - 1;
          const int here = taps.tap[last].group - taps.tap[t].group + 1;
          boxes = std::max(boxes, here);
          all_boxes += here;
          ++tap_tiles;
        }
        plan.stage_bytes =
            planes * (a * round_up(plan.depth * 128, 1024) + boxes * b * plan.pixels_stage_bytes);
        plan.stages = std::min(6, (machine.shared_bytes - kBarrierBytes) / plan.stage_bytes);
        if (plan.stages < 2) continue;
        // A block stores its part of dw in shared memory. The row pitch is 4 mod 32 floats, so that
        // four floats in each of eight rows use all 32 banks.
        const int row = std::min(b * shape.columns, narrow(z.c)) * plan.tap_count;
        plan.store_pitch = row + (36 - row % 32) % 32;
        const int store_bytes = a * 64 * plan.store_pitch * 4;
        const double store_rate = plan.tap_count == taps.taps ? kStoreBytesPerCycle
                                  : planes == 1               ? kPiecesBytesPerCycle
                                                : kFirstPiece + kMorePieces * plan.tap_count;
        const double tiles =
            static_cast<double>(ceil_div(k_chunks, a)) * ceil_div(c_chunks, b) * tap_tiles;
        const int used = ceil_div(a * b * plan.tap_count, 3) * 3;
        const double products =
            plan.depth / 16 * used * shape.cycles * (planes == 1 ? 1 : kThreeOfWeight);
        const double rows_of_dy = a * rows * row_cycles(k_channels, 64);
        const double rows_of_x =
            all_boxes / tap_tiles * b * box_rows * row_cycles(c_channels, shape.columns);
        // With few stages, copies wait for products.
        const double exposed = plan.stages == 2 ? 0.3 : 0.05;
        const auto step_with = [&](double moved_rows, double around) {
          const double rows_cycles =
              planes == 1 ? kSlowerRows[static_cast<int>(sharing)] * moved_rows
                          : planes * (kRowsOfTwo[static_cast<int>(sharing)] * moved_rows +
                                      kBoxCycles * (a + all_boxes / tap_tiles * b));
          return std::max(products, rows_cycles) + exposed * std::min(products, rows_cycles) +
                 around;
        };
        const double step_cycles = step_with(rows_of_dy + rows_of_x, kWeightStepCycles);
        // Skips shapes whose lower bound, all steps spread evenly, exceeds the best time so far.
        if (tiles * steps * step_cycles / machine.multiprocessors / kClock > best.us) continue;
        const double algorithm_step_cycles =
            step_with(rows_of_dy * last_chunk_part(k_channels, 64) +
                          rows_of_x * last_chunk_part(c_channels, shape.columns),
                      kAlgorithm.weight_step);
        const double part_count =
            static_cast<double>(k_channels) * c_channels * static_cast<double>(z.r * z.s);
        for (int splits = 1; splits <= std::min(steps, 264); splits = next_split(steps, splits)) {
          const double part_bytes = part_count * 4 * splits;
          if (splits > 1 && part_bytes > 200e6) break;
          const double blocks = tiles * splits;
          const double waves = std::ceil(blocks / machine.multiprocessors);
          const auto moved_us = [&](double x_part, double bytes_per_us) {
            return (static_cast<double>(z.x_shape().numel()) * x_part +
                    static_cast<double>(z.y_shape().numel())) *
                   2 * planes / bytes_per_us;
          };
          const bool direct = splits == 1 && store_bytes + kBarrierBytes <= machine.shared_bytes;
          const double stores =
              waves * (direct ? store_bytes / store_rate
                              : a * b * plan.tap_count * kSlotCycles * shape.columns / 64);
          const double launch_us =
              !direct ? kTwoLaunchesUs
                      : kDirectLaunchUs + (blocks > machine.multiprocessors / 2 ? kAloneUs : 0);
          const auto time_of = [&](double step, double around, double memory_us) {
            const double cycles =
                waves * (std::ceil(static_cast<double>(steps) / splits) * step + around);
            return std::max((cycles + stores) / kClock,
                            memory_us + (direct ? part_bytes / kMemoryBytesPerUs : 0)) +
                   launch_us + (direct ? 0 : 0.02 * splits + part_bytes * 2 / kMemoryBytesPerUs);
          };
          const double us = time_of(step_cycles, kWeightTileCycles, moved_us(1, kMemoryBytesPerUs));
          if (us < best.us) {
            best = plan;
            best.splits = splits;
            best.direct = direct;
            best.us = us;
            best.launch_us = launch_us;
            best.algorithm_us =
                time_of(algorithm_step_cycles, kAlgorithm.weight_tile,
                        moved_us(seen_part_of_x(z), kAlgorithm.weight_bytes_per_us)) +
                (direct ? kAlgorithm.direct_us : kAlgorithm.two_launches_us) +
                (plan.tap_count < taps.taps ? kAlgorithm.pieces_us * part_count : 0);
            best.barriers_at = std::max(plan.stages * plan.stage_bytes, direct ? store_bytes : 0);
            best.shared_bytes = static_cast<std::size_t>(best.barriers_at + kBarrierBytes);
          }
        }
      }
    }
  }

  void run() {
    best.us = std::numeric_limits<double>::infinity();
    const int out_h = geometry.outputs_h(), out_w = geometry.outputs_w();
    for (const Sharing sharing : {Sharing::tap, Sharing::row, Sharing::patch}) {
      const Extents extents = extents_of(geometry, sharing);
      if (sharing == Sharing::row && extents.w == 0) continue;
      if (sharing == Sharing::patch && extents.h == 0) continue;

      for (int i = 0; i < static_cast<int>(std::size(kWeightShapes)); ++i) {
        for (const int width : cuts(out_w, 256)) {
          const bool apart = extents.w > 0 && width < out_w;
          if (apart && out_w % width != 0) continue;  // the rest of a row would be counted twice
          const int pitch = pitch_of_lines(extents, width);
          const TapSets taps = tap_sets(geometry, sharing, pitch);
          for (const int height : cuts(out_h, std::max(1, 256 / pitch))) {
            int last = 0;
            for (const int most : {64, 128, 256}) {
              int images = 1;
              if (height == out_h || extents.h == 0) {
                images =
                    std::clamp(most / (pitch * lines_of_images(extents, height)), 1, narrow(z.n));
              }
              if (images == last) continue;
              last = images;
              // Zeros between dy's images come from outside the tensor, so boxes have whole images.
              if (images > 1 && extents.h > 0 && height != out_h) continue;
              consider(i, sharing, extents, taps, width, height, images, apart);
            }
          }
        }
      }
    }
    best.taps = tap_sets(geometry, best.sharing, best.pitch);
    // Takes the largest sum_width with enough blocks, and sums that fit in a block.
    for (const int width : {16, 32, 64, 128, 256}) {
      const std::int64_t blocks = z.k * ceil_div(c_channels, width);
      if (width / 4 * narrow(z.r * z.s) > kSumFours || blocks < machine.multiprocessors) break;
      best.sum_width = width;
    }
  }
};

}  // namespace

Conv2dProblem as_one_line(const Conv2dProblem& problem) {
  Conv2dProblem z = problem;
  const bool alone = z.r == 1 && z.s == 1 && z.stride_h == 1 && z.stride_w == 1;
  if (alone && z.p() == z.h && z.q() == z.w) {
    z.w *= z.n * z.h;
    z.n = z.h = 1;
  }
  return z;
}

namespace {

GatherPlan plan_of(const Conv2dProblem& z, Direction direction, const Machine& machine,
                   bool from_f32, int planes) {
  const bool forward = direction == Direction::forward;
  GatherSearch search{.z = z,
                      .direction = direction,
                      .machine = machine,
                      .from_f32 = from_f32,
                      .planes = planes,
                      .geometry = Geometry(z, direction),
                      .depth = narrow(round_up(forward ? z.c : z.k, 8)),
                      .columns = narrow(round_up(forward ? z.k : z.c, 8)),
                      .best = {}};
  search.run();
  return search.best;
}

}  // namespace

GatherPlan plan_gather(const Conv2dProblem& z, Direction direction, const Machine& machine,
                       bool from_f32) {
  return plan_of(z, direction, machine, from_f32, 1);
}

GatherPlan plan_fp16x3(const Conv2dProblem& z, Direction direction, const Machine& machine) {
  return plan_of(z, direction, machine, false, 2);
}

namespace {

TmaWeightTiling weight_plan_of(const Conv2dProblem& z, const Machine& machine, int planes) {
  WeightSearch search{.z = z,
                      .machine = machine,
                      .planes = planes,
                      .geometry = Geometry(z, Direction::backward_weight),
                      .k_channels = narrow(round_up(z.k, 8)),
                      .c_channels = narrow(round_up(z.c, 8)),
                      .best = {}};
  search.run();
  return search.best;
}

}  // namespace

TmaWeightTiling plan_weight(const Conv2dProblem& z, const Machine& machine) {
  return weight_plan_of(z, machine, 1);
}

TmaWeightTiling plan_weight_fp16x3(const Conv2dProblem& z, const Machine& machine) {
  return weight_plan_of(z, machine, 2);
}

}  // namespace convscope::implicit_gemm_tma

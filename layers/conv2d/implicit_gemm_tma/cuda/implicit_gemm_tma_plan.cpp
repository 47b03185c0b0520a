// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_plan.cpp: the search for tiles. It tries every kernel, every sharing of
// patches, and a few dozen boxes of pixels, and counts the work of each. The cost model estimates
// the counts (layers/dispatch/cost/choose.h).
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"

#include <cmath>
#include <iterator>
#include <vector>

#include "framework/int_math.h"
#include "layers/conv2d/shared/cuda/seen_pixels.h"

namespace convscope::implicit_gemm_tma {
namespace {

// Returns a count of rows, each the channels of a pixel in one chunk. TMA fills a row with zeros
// where the last chunk has fewer channels. Such a row counts twice: read and filled.
double counted_rows(double rows, int channels, int chunk) {
  return channels % chunk == 0 ? rows : rows * (1 + 1.0 / ceil_div(channels, chunk));
}
// Returns the FLOPs of an fp16 product in units of the peak that the problem's type has (cost.h).
double peak_share(const Conv2dProblem& z, bool from_f32, int planes) {
  return z.dtype != DType::f32 || from_f32 ? 1 : planes == 2 ? 1.5 : 0.5;
}
const char* name_of_algorithm(int planes) {
  return planes == 2 ? "implicit_gemm_tma_fp16x3" : "implicit_gemm_tma";
}
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
  Cheapest<GatherPlan> best;

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

    plan.column_tiles = ceil_div(columns, shape.columns);
    plan.cost = counts_of(plan, box_rows, all_weights);
    const double out_count =
        number(z.n) * columns * number(direction == Direction::forward ? z.p() * z.q() : z.h * z.w);
    const double patches = plan.cost.copies;  // of the tile with the most, before a split
    const double steps = plan.cost.chain, exposed = plan.cost.waits, tiles = plan.cost.blocks;
    const double stored = plan.cost.stored;
    const int most_splits = planes == 2 ? 1 : std::clamp(plan.most_splits, 1, 16);
    for (int splits = 1; splits <= most_splits; ++splits) {
      const double part_bytes = splits > 1 ? 2 * 4 * out_count * splits : 0;  // written and read
      if (part_bytes > 200e6) break;
      plan.splits = splits;
      plan.cost.blocks = tiles * splits;
      plan.cost.chain = std::ceil(steps / splits);
      plan.cost.copies = std::ceil(patches / splits);
      plan.cost.waits = std::ceil(exposed / splits);
      plan.cost.stored = stored * splits;
      plan.cost.pass_bytes = part_bytes;
      plan.cost.launches = splits > 1 ? 2 : 1;
      best.offer(plan, plan.cost);
    }
  }

  // Counts the work of a tiling whose reduction is not split. `box_rows` are the pixels of a patch,
  // `all_weights` the stages of all weights.
  Cost counts_of(GatherPlan& plan, int box_rows, int all_weights) const {
    const GatherShape& shape = shape_of(plan);
    const int chunk = chunk_of(shape), chunks = ceil_div(depth, chunk);
    const int depth_steps = ceil_div(depth, 32 / element_bytes());
    const int tiles_n = ceil_div(narrow(z.n), plan.images);
    const int weight_rows = is_across() ? ceil_div(shape.columns, 64) * shape.chunk : shape.columns;
    const int weight_row_bytes = is_across() ? 128 : shape.chunk * 2;
    const bool two_stages = plan.patch_stages == 2;
    Cost cost{.flops = z.nominal_flops(), .bytes = moved_bytes(), .tensor_cores = true};
    double products = 0, patch_rows = 0, weight_boxes = 0;  // of all row tiles
    plan.row_tiles = 0;
    plan.most_splits = 1 << 30;
    for (int i = 0; i < geometry.phases_h * geometry.phases_w; ++i) {
      const Line& high = geometry.high[i / geometry.phases_w];
      const Line& wide = geometry.wide[i % geometry.phases_w];
      const int in_phase =
          ceil_div(high.outputs, plan.height) * ceil_div(wide.outputs, plan.width) * tiles_n;
      const int taps = high.taps * wide.taps;
      const int groups = count_groups(high, plan.sharing == Sharing::patch) *
                         count_groups(wide, plan.sharing != Sharing::tap);
      plan.row_tiles += in_phase;
      if (taps == 0) continue;
      products += static_cast<double>(in_phase) * taps * depth_steps;
      patch_rows += static_cast<double>(in_phase) * planes * chunks * groups * box_rows;
      weight_boxes += static_cast<double>(in_phase) * planes * chunks * taps;
      plan.most_splits = std::min(plan.most_splits, groups * chunks);
      cost.chain = std::max(cost.chain, static_cast<double>(taps) * chunks);
      cost.copies = std::max(cost.copies, static_cast<double>(planes) * groups * chunks);
      // With two stages, the copy of a patch waits for products of the patch before the last one.
      cost.waits = std::max(cost.waits, two_stages ? static_cast<double>(groups) * chunks : 1.0);
    }
    const double tiles = static_cast<double>(plan.row_tiles) * plan.column_tiles;
    if (plan.weights_stay) {  // each block loads them once
      weight_boxes = static_cast<double>(planes) * all_weights *
                     std::min(tiles, static_cast<double>(machine.multiprocessors)) /
                     plan.column_tiles;
    }
    const double rows_of_weights = weight_boxes * weight_rows;
    cost.issued = peak_share(z, from_f32, planes) * products * plan.column_tiles * 2 *
                  (32 / element_bytes()) * shape.rows * shape.columns;
    cost.cached =
        plan.column_tiles * (patch_rows * shape.chunk * 2 + rows_of_weights * weight_row_bytes);
    cost.listed_warps =
        plan.column_tiles *
        (counted_rows(patch_rows, depth, chunk) +
         counted_rows(rows_of_weights, is_across() ? columns : depth, is_across() ? 64 : chunk));
    cost.stored = tiles * shape.rows * shape.columns;
    cost.blocks = tiles;
    cost.resident = shape.blocks;
    cost.schedule = schedule_of(plan, std::max(z.stride_h, z.stride_w) > 1);
    return cost;
  }

  // Returns the bytes that one call moves from and to memory: operands as the kernel reads them,
  // and without the pixels that a strided kernel skips.
  double moved_bytes() const {
    const bool forward = direction == Direction::forward;
    const double in = number(forward ? z.x_shape().numel() : z.y_shape().numel());
    const double out = number(forward ? z.y_shape().numel() : z.x_shape().numel());
    const double operand = planes == 2 ? 4 : element_bytes();
    return in * (forward ? seen_part_of_x(z) : 1) * operand +
           out * number(static_cast<std::int64_t>(size_of(z.dtype))) +
           number(z.w_shape().numel()) * operand;
  }

  static int count_groups(const Line& line, bool shares) {
    int count = 0;
    for (int i = 0; i < line.taps; ++i) {
      const int key = key_of(line.offset[i], line.step, shares);
      count += line.offset[i] == base_of(line, key, shares) ? 1 : 0;
    }
    return count;
  }

  GatherPlan run() {
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
    return with_taps(best.found());
  }

  GatherPlan with_taps(GatherPlan plan) const {
    plan.taps = tap_sets(geometry, plan.sharing, plan.pitch);
    int tile = 0;
    for (int i = 0; i < plan.taps.phases; ++i) {
      Phase& phase = plan.taps.phase[i];
      phase.first_tile = tile;
      phase.tiles_w = std::max(1, ceil_div(phase.outputs_w, plan.width));
      phase.tiles_h = std::max(1, ceil_div(phase.outputs_h, plan.height));
      if (phase.outputs_w > 0 && phase.outputs_h > 0) {
        tile += phase.tiles_w * phase.tiles_h * ceil_div(narrow(z.n), plan.images);
      }
    }
    plan.row_tiles = tile;
    return plan;
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
  Cheapest<TmaWeightTiling> best;

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
        const double tiles =
            static_cast<double>(ceil_div(k_chunks, a)) * ceil_div(c_chunks, b) * tap_tiles;
        const double step_boxes = all_boxes / tap_tiles * b;  // of x
        const double rows_of_dy = planes * a * rows, rows_of_x = planes * step_boxes * box_rows;
        const int used = ceil_div(a * b * plan.tap_count, 3) * 3;  // slots of three warp groups
        plan.cost = {.flops = z.nominal_flops(),
                     .bytes = moved_bytes(),
                     .issued = peak_share(z, false, planes) * tiles * steps * 2 * plan.depth *
                               used * 64 * shape.columns,
                     .cached = tiles * steps * 2 * (rows_of_dy * 64 + rows_of_x * shape.columns),
                     .listed_warps = tiles * steps *
                                     (counted_rows(rows_of_dy, k_channels, 64) +
                                      counted_rows(rows_of_x, c_channels, shape.columns)),
                     .tensor_cores = true};
        const double part_count = number(k_channels) * c_channels * number(z.r * z.s);
        const bool fits = store_bytes + kBarrierBytes <= machine.shared_bytes;
        const auto consider_split = [&](int splits) {
          const double part_bytes = 2 * 4 * part_count * splits;  // written and read
          if (splits > 1 && part_bytes > 400e6) return;
          plan.splits = splits;
          plan.direct = splits == 1 && fits;
          plan.barriers_at =
              std::max(plan.stages * plan.stage_bytes, plan.direct ? store_bytes : 0);
          plan.shared_bytes = static_cast<std::size_t>(plan.barriers_at + kBarrierBytes);
          Cost& cost = plan.cost;
          cost.schedule = schedule_of(plan, taps.taps);
          cost.blocks = tiles * splits;
          cost.chain = ceil_div(steps, splits);
          cost.copies = cost.chain * planes * (a + step_boxes);
          // Slots are stored one after another. With two stages, copies wait for products.
          cost.waits = a * b * plan.tap_count + (plan.stages == 2 ? cost.chain : 0);
          cost.stored = cost.blocks * a * 64 * b * shape.columns * plan.tap_count;
          cost.pass_bytes = plan.direct ? 0 : part_bytes;
          cost.launches = plan.direct ? 1 : 2;
          best.offer(plan, cost);
        };
        if (!may_win(plan, taps.taps, fits)) continue;
        for (int splits = 1; splits <= std::min(steps, 264);
             splits = next_split(steps, std::max(splits, splits * 3 / 2))) {
          consider_split(splits);
        }
        // The most parts whose blocks fill the SMs once, twice or three times.
        for (int waves = 1; waves <= 3; ++waves) {
          const int most = static_cast<int>(waves * machine.multiprocessors / tiles);
          if (most < 2 || most >= steps) continue;
          consider_split(ceil_div(steps, ceil_div(steps, most)));
        }
      }
    }
  }

  // Returns false if all work of `plan`, spread evenly over the SMs, takes longer than the best
  // tiling so far.
  bool may_win(TmaWeightTiling& plan, int taps, bool fits) {
    const auto lower_bound_wins = [&](bool direct) {
      plan.direct = direct;
      Cost least = plan.cost;
      least.schedule = schedule_of(plan, taps);
      return best.can_win(least);
    };
    return lower_bound_wins(false) || (fits && lower_bound_wins(true));
  }

  double moved_bytes() const {
    return 2 * planes *
               (number(z.x_shape().numel()) * seen_part_of_x(z) + number(z.y_shape().numel())) +
           number(z.w_shape().numel()) *
               number(static_cast<std::int64_t>(size_of(z.operand_types().w)));
  }

  TmaWeightTiling run() {
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
    TmaWeightTiling plan = best.found();
    plan.taps = tap_sets(geometry, plan.sharing, plan.pitch);
    // Takes the largest sum_width with enough blocks, and sums that fit in a block.
    for (const int width : {16, 32, 64, 128, 256}) {
      const std::int64_t blocks = z.k * ceil_div(c_channels, width);
      if (width / 4 * narrow(z.r * z.s) > kSumFours || blocks < machine.multiprocessors) break;
      plan.sum_width = width;
    }
    return plan;
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
  GatherSearch search{
      .z = z,
      .direction = direction,
      .machine = machine,
      .from_f32 = from_f32,
      .planes = planes,
      .geometry = Geometry(z, direction),
      .depth = narrow(round_up(forward ? z.c : z.k, 8)),
      .columns = narrow(round_up(forward ? z.k : z.c, 8)),
      .best = {{"conv2d", name_of_algorithm(planes), direction}, DeviceType::cuda, z.dtype}};
  return search.run();
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
                      .best = {{"conv2d", name_of_algorithm(planes), Direction::backward_weight},
                               DeviceType::cuda,
                               z.dtype}};
  return search.run();
}

}  // namespace

TmaWeightTiling plan_weight(const Conv2dProblem& z, const Machine& machine) {
  return weight_plan_of(z, machine, 1);
}

TmaWeightTiling plan_weight_fp16x3(const Conv2dProblem& z, const Machine& machine) {
  return weight_plan_of(z, machine, 2);
}

}  // namespace convscope::implicit_gemm_tma

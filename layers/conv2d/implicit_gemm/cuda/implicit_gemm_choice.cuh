// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_choice.cuh: the sizes of one call of implicit_gemm, its choice of a compiled tile
// and of a number of reduction parts, and the counts of the call.
// Read next  implicit_gemm_tiles.cuh; implicit_gemm_cuda.cu
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_pack.cuh"
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"
#include "layers/conv2d/shared/kept_plans.h"
#include "layers/conv2d/shared/cuda/seen_pixels.h"
#include "layers/dispatch/cost/choose.h"

namespace convscope::implicit_gemm {

inline constexpr int kFewestSteps = 4;  // least number of steps of one part
inline constexpr int kMaxParts = 256;
inline constexpr double kMaxPartBytes = 256e6;

inline int narrow(std::int64_t value) { return static_cast<int>(value); }

// A compiled tile, the number of parts of the reduction, and the counts of the whole call.
struct ImplicitGemmChoice {
  const Instance* instance = nullptr;
  int splits = 1;
  Cost cost = {};
};

class ImplicitGemmTiling {
 public:
  ImplicitGemmTiling(const Conv2dProblem& problem, Direction direction)
      : z(problem), direction_(direction) {
    const bool forward = direction == Direction::forward;
    rows = narrow(direction == Direction::backward_data ? z.c_per_group() : z.k_per_group());
    channels = narrow(direction == Direction::backward_data ? z.k_per_group() : z.c_per_group());
    pieces = pieces_of(channels);
    planes = z.dtype == DType::f32 && z.math == MathMode::f32 ? 2 : 1;
    const int h = narrow(z.h), w = narrow(z.w), p = narrow(z.p()), q = narrow(z.q());
    const int r = narrow(z.r), s = narrow(z.s);
    const int pad_h = narrow(z.pad_top), pad_w = narrow(z.pad_left);
    const int step_h = narrow(z.stride_h), step_w = narrow(z.stride_w);
    const int apart_h = narrow(z.dilation_h), apart_w = narrow(z.dilation_w);
    if (direction == Direction::backward_data) {
      phases_h = std::min(step_h, h);
      phases_w = std::min(step_w, w);
      for (int i = 0; i < phases_h; ++i) {
        high[i] = backward_line(i, h, p, r, step_h, pad_h, apart_h);
      }
      for (int i = 0; i < phases_w; ++i) {
        wide[i] = backward_line(i, w, q, s, step_w, pad_w, apart_w);
      }
    } else {
      high[0] = forward_line(h, p, r, step_h, pad_h, apart_h);
      wide[0] = forward_line(w, q, s, step_w, pad_w, apart_w);
    }
    for (int i = 0; i < phases_h * phases_w; ++i) {
      const Line& a = high[i / phases_w];
      const Line& b = wide[i % phases_w];
      most_blocks = std::max(most_blocks, blocks_of(a.taps, b.taps, pieces));
    }
    most_steps = direction == Direction::backward_weight
                     ? narrow(ceil_div(z.n * z.p() * z.q(), kBlockDepth))
                     : most_blocks;
    instances = z.dtype == DType::f16    ? f16_instances()
                : z.dtype == DType::bf16 ? bf16_instances()
                : planes == 2            ? f32_instances()
                                         : tf32_instances();
    const auto stored = [&](const Shape& images) { return stored_shape(images, z.layout).numel(); };
    out_count = forward                                 ? stored(z.y_shape())
                : direction == Direction::backward_data ? stored(z.x_shape())
                                                        : z.k * z.r * z.s * pieces * kPieceElements;
    static KeptPlans<ImplicitGemmChoice> kept;
    choice = *kept.get(problem, direction, [this] { return search(); });
  }

  std::int64_t pixel_pieces(int pieces_in_group, std::int64_t area) const {
    return z.n * area * z.groups * pieces_in_group;
  }
  bool is_last() const { return z.layout == ActivationLayout::nhwc; }
  // Returns true when the product reads pixels as they are stored, so that only weights are packed.
  bool is_packed() const { return is_last() && is_half(z.dtype); }
  std::int64_t weight_pieces() const {
    return std::int64_t{phases_h} * phases_w * z.groups * rows * depth_pieces();
  }
  int columns() const {  // for backward_weight
    return high[0].taps * wide[0].taps * pieces * kPieceElements;
  }
  int depth_pieces() const { return most_blocks * kBlockPieces; }
  int splits() const { return choice.splits; }
  // Returns whether x and dy are packed in one launch.
  bool packs_at_once() const {
    return z.dtype == DType::f32 && !is_last() &&
           pack_channels_log2(channels) == pack_channels_log2(rows);
  }
  std::int64_t part_floats() const {
    return sums_parts(splits()) ? splits() * out_count : 0;
  }

  const Conv2dProblem& z;
  int rows = 0, channels = 0, pieces = 0, planes = 1;  // sizes of a group; pieces of 16 bytes
  int phases_h = 1, phases_w = 1, most_blocks = 0, most_steps = 0;
  Line high[kMaxPhases] = {}, wide[kMaxPhases] = {};
  std::span<const Instance> instances;
  std::int64_t out_count = 0;  // elements of a part

  ImplicitGemmChoice choice;

 private:
  bool for_weight() const { return direction_ == Direction::backward_weight; }
  bool sums_parts(int parts) const { return for_weight() || parts > 1; }

  // The kernels differ by operands and tiles.
  const char* schedule_of(const Instance& candidate) const {
    const char* const operands =
        planes == 2 ? "three products " : is_packed() ? "nhwc " : "one product ";
    return schedule_name(cat(operands, candidate.rows, "x", candidate.columns));
  }

  // Returns the counts that all candidates share: those of the tensors and of the passes that pack.
  Cost common_counts() const {
    const bool forward = direction_ == Direction::forward;
    const auto element = number(static_cast<std::int64_t>(size_of(z.dtype)));
    const bool f32 = z.dtype == DType::f32;
    const double x = number(z.x_shape().numel()), y = number(z.y_shape().numel());
    const double w = number(z.w_shape().numel());
    Cost cost{.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .tensor_cores = true};
    if (is_packed()) {
      if (direction_ != Direction::backward_data) {
        cost.bytes -= (1 - seen_part_of_x(z)) * x * element;
      }
    } else {
      // An f32 image is read for its maximum, and again to be packed. Pieces of different groups
      // are written by different blocks, and one piece fills half of a sector of 32 bytes.
      const double packed = for_weight() ? x + y : forward ? x : y;
      const double written = 2 * planes * (z.groups > 1 && pieces == 1 ? 2 : 1);
      cost.pass_bytes = packed * ((f32 ? 2 : 1) * element + written);
      cost.bytes += packed * (2 * planes - element);  // the product reads what packing wrote
      cost.launches += (f32 ? 1 : 0) + (for_weight() && !packs_at_once() ? 2 : 1);
    }
    if (!for_weight()) {
      // The launch that finds the maximum of the image also finds that of the weights.
      const auto w_element = number(static_cast<std::int64_t>(size_of(z.operand_types().w)));
      cost.prepared_bytes =
          (f32 ? 2 : 1) * w * w_element + 16 * planes * number(weight_pieces());
      cost.prepare_launches = 1;
    }
    return cost;
  }

  // The tiles of a candidate. Phases of backward_data have tiles of different length.
  struct Grid {
    double tiles = 0, steps = 0;  // steps of all tiles together
    int longest = 0;              // steps of the longest tile
  };
  Grid grid_of(const Instance& candidate) const {
    const double row_tiles = ceil_div(rows, candidate.rows) * number(z.groups);
    Grid grid;
    if (for_weight()) {
      grid.tiles = row_tiles * ceil_div(columns(), candidate.columns);
      grid.steps = grid.tiles * most_steps;
      grid.longest = most_steps;
    } else {
      for (int i = 0; i < phases_h * phases_w; ++i) {
        const Line& a = high[i / phases_w];
        const Line& b = wide[i % phases_w];
        const double phase_tiles =
            row_tiles * ceil_div(narrow(z.n * a.outputs * b.outputs), candidate.columns);
        const int tile_steps = blocks_of(a.taps, b.taps, pieces);
        grid.tiles += phase_tiles;
        grid.steps += phase_tiles * tile_steps;
        if (phase_tiles > 0) grid.longest = std::max(grid.longest, tile_steps);
      }
    }
    if (grid.tiles == 0 || most_steps == 0) return {1, 1, 1};
    return grid;
  }

  // Returns the store instructions of one part's elements: pieces of eight channels, pairs of
  // pixels, or single elements.
  double stores() const {
    const bool pairs = phases_h * phases_w == 1 && out_count % (2 * z.n * z.groups * rows) == 0;
    return number(out_count) / (for_weight() ? 2 : is_last() ? kPieceElements : pairs ? 2 : 1);
  }

  ImplicitGemmChoice search() const {
    Cheapest<ImplicitGemmChoice> best({"conv2d", "implicit_gemm", direction_}, DeviceType::cuda,
                                      z.dtype);
    const Cost common = common_counts();
    const double stores_of_part = stores();
    // f32 is compared with the peak of TF32, which has half the rate of fp16.
    const double product = z.dtype != DType::f32 ? 1 : planes == 2 ? 1.5 : 0.5;
    const auto shared_most = static_cast<std::size_t>(cuda_device_facts().shared_bytes_per_block);
    for (const Instance& by : instances) {
      if (for_weight() && by.weight == nullptr) continue;
      if ((for_weight() ? by.weight_bytes() : by.shared_bytes) > shared_most) continue;
      const Grid grid = grid_of(by);
      const double loaded = number(by.rows + by.columns) * kBlockPieces * planes;  // pieces a step
      ImplicitGemmChoice choice{&by, 1, common};
      choice.cost.schedule = schedule_of(by);
      choice.cost.resident = by.blocks;
      choice.cost.issued =
          grid.steps * 2 * product * kBlockDepth * number(std::int64_t{by.rows} * by.columns);
      choice.cost.cached = grid.steps * loaded * 16;
      for (int parts = 1; parts <= kMaxParts; parts += 1 + parts / 8) {
        const double part_bytes = 4.0 * number(out_count) * parts;
        if (parts > 1 && (most_steps < parts * kFewestSteps || part_bytes > kMaxPartBytes)) break;
        Cost cost = choice.cost;
        cost.blocks = grid.tiles * parts;
        cost.chain = ceil_div(grid.longest, parts);
        cost.copies = cost.chain * loaded / by.threads;
        cost.stored = stores_of_part * parts;
        if (sums_parts(parts)) {
          cost.waits = ceil_div(parts, 16);  // of the pass that adds parts, 16 loads at once
          cost.pass_bytes += 2 * part_bytes;
          cost.launches += 1;
        }
        if (for_weight()) cost.stored += number(z.w_shape().numel());
        best.offer({&by, parts, cost}, cost);
      }
    }
    return best.found();
  }

  Direction direction_;
};

}  // namespace convscope::implicit_gemm

// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_choice.cuh: the sizes of one call of implicit_gemm, and its choice of a compiled
// tile and of a number of reduction parts: the pair with the lowest estimated time.
// Read next  implicit_gemm_tiles.cuh; implicit_gemm_cuda.cu
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {

inline constexpr int kFewestSteps = 4;  // least number of steps of one part
inline constexpr int kMaxParts = 256;
inline constexpr double kMaxPartBytes = 256e6;

inline int narrow(std::int64_t value) { return static_cast<int>(value); }

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
    choose();
  }

  // Chooses the kernels and the number of parts with the lowest estimated time.
  void choose() {
    us = std::numeric_limits<double>::infinity();
    for (const Instance& candidate : instances) {
      const bool weight = direction_ == Direction::backward_weight;
      if (weight && candidate.weight == nullptr) continue;
      const std::size_t shared = weight ? candidate.weight_bytes() : candidate.shared_bytes;
      if (shared > static_cast<std::size_t>(cuda_device_facts().shared_bytes_per_block)) continue;
      consider(candidate);
    }
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
  std::int64_t part_floats() const {
    return direction_ == Direction::backward_weight || splits > 1 ? splits * out_count : 0;
  }

  const Conv2dProblem& z;
  int rows = 0, channels = 0, pieces = 0, planes = 1;  // sizes of a group; pieces of 16 bytes
  int phases_h = 1, phases_w = 1, most_blocks = 0, most_steps = 0;
  Line high[kMaxPhases] = {}, wide[kMaxPhases] = {};
  std::span<const Instance> instances;
  std::int64_t out_count = 0;  // elements of a part

  const Instance* instance = nullptr;
  int splits = 1;
  double blocks = 1;
  double us = 0;  // estimated time of the product and of adding its parts

 private:
  void consider(const Instance& candidate) {
    const bool weight = direction_ == Direction::backward_weight;
    const TileTime& tile_time = weight ? candidate.weight_us : candidate.gather_us;
    const double alone = weight ? 1 : kAloneSteps[std::min(candidate.blocks, 3)];
    const double row_tiles = ceil_div(rows, candidate.rows) * static_cast<double>(z.groups);
    double tiles = 0, steps = 0;  // steps of all tiles together
    int longest = 0;              // steps of the longest tile
    if (weight) {
      tiles = row_tiles * ceil_div(columns(), candidate.columns);
      steps = tiles * (longest = most_steps);
    } else {
      for (int i = 0; i < phases_h * phases_w; ++i) {
        const Line& a = high[i / phases_w];
        const Line& b = wide[i % phases_w];
        const double phase_tiles =
            row_tiles * ceil_div(narrow(z.n * a.outputs * b.outputs), candidate.columns);
        tiles += phase_tiles;
        const int tile_steps = blocks_of(a.taps, b.taps, pieces);
        steps += phase_tiles * tile_steps;
        if (phase_tiles > 0) longest = std::max(longest, tile_steps);
      }
    }
    if (tiles == 0 || most_steps == 0) tiles = steps = longest = 1;
    const double store_us =
        weight ? static_cast<double>(out_count) / kWeightPerUs
               : stored_us(out_count, is_last() ? 1 : phases_h * phases_w,
                           is_last() || out_count % (2 * z.n * z.groups * rows) == 0);
    for (int parts = 1; parts <= kMaxParts; parts += 1 + parts / 8) {
      const double part_bytes = 4.0 * static_cast<double>(out_count) * parts;
      const bool summed = weight || parts > 1;
      if (parts > 1 && (most_steps < parts * kFewestSteps || part_bytes > kMaxPartBytes)) {
        break;
      }
      double time = store_us + grid_us(cuda_device_facts().multiprocessors, candidate.blocks,
                                       tile_time, alone, {tiles, steps, longest}, parts);
      if (summed) time += kPartsUs + 2 * part_bytes / kPartBytesPerUs;
      if (time < us) {
        us = time;
        instance = &candidate;
        splits = parts;
        blocks = tiles * parts;
      }
    }
  }

  Direction direction_;
};

}  // namespace convscope::implicit_gemm

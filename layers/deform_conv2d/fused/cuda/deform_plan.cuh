// SPDX-License-Identifier: Apache-2.0
// deform_plan.cuh: selects the tile of a product and the number of parts into which its K dimension
// is split; defines the layout of the workspace and of prepared weights.
// Read next  deform_fused_cuda.cu; deform_instances.cuh
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/memory/memory.h"
#include "layers/deform_conv2d/fused/cuda/deform_instances.cuh"
#include "layers/deform_conv2d/fused/cuda/deform_lists.cuh"

namespace convscope::deform_cuda {

using Problem = DeformConv2dProblem;

inline constexpr double kLaunchUs = 2;        // of one more pass
inline constexpr double kBytesPerUs = 2.5e6;  // of the passes
inline constexpr int kFewestStages = 4;       // of one part
inline constexpr int kMaxParts = 256;
inline constexpr double kMaxPartBytes = 256e6;

// ---- tiling ------------------------------------------------------------------------------------

enum class Product { y, dx, dw };

// Chooses the kernels and the number of parts with the lowest estimated time.
class DeformCudaTiling {
 public:
  DeformCudaTiling(const Problem& problem, Product product) : z(problem), s(problem) {
    const bool f32 = z.dtype == DType::f32;
    planes = f32 && z.math == MathMode::f32 ? 2 : 1;
    instances = z.dtype == DType::bf16 ? bf16_instances()
                : planes == 2          ? f32_instances()
                                       : f16_instances();
    switch (product) {
      case Product::y:
        rows = s.k;
        blocks = s.groups;
        pixels = s.out_pixels();
        out_count = z.y_shape().numel();
        steps = s.forward_depth() / kStepPieces;
        break;
      case Product::dx:
        rows = s.run;
        blocks = s.runs();
        pixels = s.in_pixels();
        out_count = z.x_shape().numel();
        steps = s.backward_depth() / kStepPieces;
        break;
      case Product::dw:
        rows = s.k;
        blocks = s.groups;
        pixels = columns() * kPieceNumbers;
        out_count = std::int64_t{s.groups} * s.k * pixels;
        steps = ceil_div(s.out_pixels(), kTileDepth);
        break;
    }
    for (const Instance& candidate : instances) {
      if (product == Product::y    ? candidate.y == nullptr
          : product == Product::dx ? candidate.dx == nullptr
                                   : candidate.dw == nullptr) {
        continue;
      }
      if (candidate.sampled_bytes >
          static_cast<std::size_t>(cuda_device_facts().shared_bytes_per_block)) {
        continue;
      }
      consider(candidate, product);
    }
  }

  int columns() const { return s.forward_depth(); }  // pieces, of dw
  int row_tiles() const { return ceil_div(rows, instance->rows); }

  const Problem& z;
  DeformShape s;
  int planes = 1;
  std::span<const Instance> instances;
  int rows = 0, blocks = 1, pixels = 0, steps = 0;
  std::int64_t out_count = 0;  // elements of a part

  const Instance* instance = nullptr;
  int splits = 1;
  double us = std::numeric_limits<double>::infinity();  // estimated

 private:
  void consider(const Instance& candidate, Product product) {
    const TileTime time_of = product == Product::y    ? candidate.y_us
                             : product == Product::dx ? candidate.dx_us
                                                      : candidate.dw_us;
    const int processors = cuda_device_facts().multiprocessors;
    const double tiles = static_cast<double>(ceil_div(rows, candidate.rows)) *
                         ceil_div(pixels, candidate.columns) * blocks;
    const int stages = ceil_div(steps, candidate.deep);
    for (int parts = 1; parts <= kMaxParts; parts += 1 + parts / 8) {
      const double part_bytes = 4.0 * static_cast<double>(out_count) * parts;
      if (parts > 1 && (stages < parts * kFewestStages || part_bytes > kMaxPartBytes)) break;
      const double each = std::ceil(static_cast<double>(stages) / parts) * time_of.stage;
      const double at_once = processors * static_cast<double>(candidate.blocks);
      const double waves = std::floor(tiles * parts / at_once);
      const double rest = tiles * parts - waves * at_once;
      double time = waves * (time_of.around + candidate.blocks * each);
      if (rest > 0) time += time_of.around + std::ceil(rest / processors) * each;
      if (product == Product::dw || parts > 1) time += kLaunchUs + 2 * part_bytes / kBytesPerUs;
      if (time < us) {
        us = time;
        instance = &candidate;
        splits = parts;
      }
    }
  }
};

// Returns whether f32 is multiplied as one fp16 plane, which needs a scale.
inline bool is_tf32(const Problem& z) { return z.dtype == DType::f32 && z.math == MathMode::tf32; }

// ---- memory ------------------------------------------------------------------------------------

// Cuts a block of memory into arrays. Without memory the object only counts the bytes.
class Pieces {
 public:
  explicit Pieces(const void* memory) : memory_(const_cast<void*>(memory)) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* const out = memory_ == nullptr
                          ? nullptr
                          : reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + used);
    used += ScratchArena::round_up(static_cast<std::size_t>(count) * sizeof(T));
    return out;
  }
  std::size_t used = 0;

 private:
  void* memory_;
};

// Prepared weights as one or two 16-bit planes in the order of the K dimension, and the largest
// magnitude of the weights.
struct PreparedLayout {
  PreparedLayout(const Problem& z, Direction direction, const void* memory) {
    const DeformShape s(z);
    const bool forward = direction == Direction::forward;
    rows = round_up(forward ? s.k : s.run, kWeightTileRows);
    blocks = forward ? s.groups : s.runs();
    pieces = forward ? s.group_pieces() : s.out_pieces;
    depth = forward ? s.forward_depth() : s.backward_depth();
    planes = z.dtype == DType::f32 && z.math == MathMode::f32 ? 2 : 1;
    Pieces block(memory);
    if (z.dtype == DType::f32) largest = block.take<unsigned>(4);
    plane = std::int64_t{blocks} * rows * depth;
    weights = block.take<uint4>(planes * plane);
    bytes = block.used;
  }
  int rows = 0, blocks = 1, pieces = 0, depth = 0, planes = 1;
  std::int64_t plane = 0;
  unsigned* largest = nullptr;
  uint4* weights = nullptr;
  std::size_t bytes = 0;
};

enum Word { kOfX, kOfDy, kOfMask, kLongestList, kWords };

inline std::int64_t row_numbers(const Problem& z) {  // 16-byte words in a packed piece
  return z.dtype == DType::f32 && z.math == MathMode::f32 ? 2 : 1;
}

// Packed pixels with one pixel of zeros after them.
struct Rows {
  Rows() = default;
  Rows(Pieces& block, const Problem& z, int pixels, int pieces) {
    pixel_pieces = std::int64_t{pieces} * row_numbers(z);
    zeros_at = pixel_pieces * pixels;
    at = block.take<uint4>(zeros_at + pixel_pieces);
  }
  uint4* at = nullptr;
  std::int64_t pixel_pieces = 0, zeros_at = 0;  // in pieces of 16 bytes
};

struct ForwardLayout {
  ForwardLayout(const DeformCudaTiling& plan, const void* memory) {
    Pieces block(memory);
    x_rows = Rows(block, plan.z, plan.s.in_pixels(), plan.s.x_pieces());
    words = block.take<unsigned>(kWords);  // after the zeros: cleared with them
    if (plan.splits > 1) parts = block.take<float>(plan.splits * plan.out_count);
    bytes = block.used;
  }
  Rows x_rows;
  unsigned* words = nullptr;
  float* parts = nullptr;
  std::size_t bytes = 0;
};

struct WeightLayout {
  WeightLayout(const DeformCudaTiling& plan, const void* memory) {
    const DeformShape& s = plan.s;
    Pieces block(memory);
    x_rows = Rows(block, plan.z, s.in_pixels(), s.x_pieces());
    words = block.take<unsigned>(kWords);
    plane = std::int64_t{s.out_pixels()} * s.y_pieces();
    errors = block.take<uint4>(plane * plan.planes);
    parts = block.take<float>(plan.splits * plan.out_count);
    bytes = block.used;
  }
  Rows x_rows;
  unsigned* words = nullptr;
  uint4* errors = nullptr;
  std::int64_t plane = 0;
  float* parts = nullptr;
  std::size_t bytes = 0;
};

// If `atomic` is set, dx is summed by atomic additions to packed f32 pixels, without lists.
struct DataLayout {
  DataLayout(const DeformCudaTiling& plan, bool atomic, const void* memory) {
    const DeformShape& s = plan.s;
    Pieces block(memory);
    words = block.take<unsigned>(kWords);
    x_rows = Rows(block, plan.z, s.in_pixels(), s.x_pieces());
    plane = std::int64_t{s.out_pixels()} * s.y_pieces();
    if (atomic) {
      dx_rows = block.take<float>(std::int64_t{s.in_pixels()} * s.x_pieces() * kPieceNumbers);
      errors = block.take<uint4>(plane * plan.planes);
      bytes = block.used;
      return;
    }
    count = round_up(std::int64_t{s.keys()} * s.cells() + 1, std::int64_t{4});
    const std::int64_t samples = std::int64_t{s.keys()} * s.out_pixels();
    begin = block.take<int>(count);
    entries = block.take<Entry>(samples);
    sums = block.take<int>(ceil_div(count, kScanBlock));
    // The temporary memory for building the lists is reused for packed dy.
    Pieces first(memory == nullptr ? nullptr : static_cast<const std::byte*>(memory) + block.used);
    place = first.take<int>(count);
    unordered = first.take<int>(samples);
    Pieces then(memory == nullptr ? nullptr : static_cast<const std::byte*>(memory) + block.used);
    if (plan.planes == 2) errors = then.take<uint4>(plane * 2);
    dy_rows = Rows(then, plan.z, s.out_pixels(), s.y_pieces());
    if (plan.planes == 1) errors = dy_rows.at;
    if (plan.splits > 1) parts = then.take<float>(plan.splits * plan.out_count);
    bytes = block.used + std::max(first.used, then.used);
  }
  unsigned* words = nullptr;
  Rows x_rows;
  uint4* errors = nullptr;  // dy in 16 bits
  Rows dy_rows;             // dy as the lists read it
  std::int64_t plane = 0;
  float* dx_rows = nullptr;
  int* begin = nullptr;
  Entry* entries = nullptr;
  int* sums = nullptr;
  int* place = nullptr;
  int* unordered = nullptr;
  std::int64_t count = 0;  // of lists
  float* parts = nullptr;
  std::size_t bytes = 0;
};

}  // namespace convscope::deform_cuda

// SPDX-License-Identifier: Apache-2.0
// operands.cuh: the operands of a product, as pieces of eight fp16/bf16 elements. Operands are
// packed into the workspace or read in place. f32 operands have a scale.
// Read next  row_pack.cuh
#pragma once

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/shared/cuda/half_pieces.h"
#include "layers/dispatch/direction.h"
#include "layers/sparse_conv/problem.h"

namespace convscope::sparse_cuda {

using Problem = SparseConvProblem;

inline bool is_tf32(const Problem& z) { return z.dtype == DType::f32 && z.math == MathMode::tf32; }
inline int planes_of(const Problem& z) { return z.dtype == DType::f32 && !is_tf32(z) ? 2 : 1; }

// Cuts memory into arrays, one after the other. Without a base the object only counts bytes.
class Memory {
 public:
  explicit Memory(void* base) : base_(static_cast<std::byte*>(base)) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* const out = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes);
    bytes += round_up(static_cast<std::size_t>(count) * sizeof(T), std::size_t{256});
    return out;
  }
  std::size_t bytes = 0;

 private:
  std::byte* base_;
};

// An operand as pieces, packed or in place.
struct Factor {
  std::int64_t rows = 0;
  int width = 0, pieces = 0;
  bool packed = false;
  uint4* memory = nullptr;

  Factor(const Problem& z, std::int64_t rows_, std::int64_t width_, bool weights, Memory& memory_)
      : rows(rows_),
        width(static_cast<int>(width_)),
        pieces(half_tiles::pieces_of(static_cast<int>(width_))),
        packed(weights || z.dtype == DType::f32 || width_ % half_tiles::kPieceElements != 0) {
    if (packed) memory = memory_.take<uint4>(planes_of(z) * plane());
  }
  std::int64_t plane() const { return rows * pieces; }
  const uint4* at(const void* plain) const {
    return packed ? memory : static_cast<const uint4*>(plain);
  }
};

inline constexpr int kMaximaOfFactor = 256;  // half_pack.cuh

struct Workspace {
  Memory memory;
  unsigned* maxima;
  float2* unscale;
  Factor first, second;
  float* parts = nullptr;

  Workspace(const Problem& z, void* base, std::int64_t first_rows, std::int64_t first_width,
            std::int64_t second_rows, std::int64_t second_width, bool weights)
      : memory(base),
        maxima(memory.take<unsigned>(2 * kMaximaOfFactor)),
        unscale(memory.take<float2>(1)),
        first(z, first_rows, first_width, false, memory),
        second(z, second_rows, second_width, weights, memory) {}
};

// The sizes of the product in forward and backward_data. The result has `sites` rows of `lanes`
// elements; it is computed from `there` rows of `depth` elements.
struct SumsSizes {
  std::int64_t there, sites, depth, lanes;
  SparseLook look;

  SumsSizes(const Problem& z, Direction direction) {
    const bool forward = direction == Direction::forward;
    there = forward ? z.in_count() : z.out_count();
    sites = forward ? z.out_count() : z.in_count();
    depth = forward ? z.c : z.k;
    lanes = forward ? z.k : z.c;
    look = forward ? z.map->look_by_output() : z.map->look_by_input();
  }
  // Returns the layout; `with_sums`: includes sums in f32.
  Workspace memory(const Problem& z, void* base, bool with_sums) const {
    Workspace out(z, base, there, depth, z.taps() * lanes, depth, true);
    if (with_sums) out.parts = out.memory.take<float>(sites * lanes);
    return out;
  }
};

inline LaunchShape overlapping(LaunchShape shape) {
  shape.overlaps_previous = true;
  return shape;
}

// Weights as tiles (row_pack.cuh).
struct WeightTiles {
  int columns = 0, step_taps = 1, depth = 0;
  bool mirrored = false;

  std::int64_t rows(std::int64_t taps, std::int64_t lanes) const {
    return ceil_div(lanes, std::int64_t{columns}) * ceil_div(taps, std::int64_t{step_taps}) *
           columns;
  }
};

// Packs both operands, unless they are read in place. The first operand is rows of features. The
// second operand is rows of features, too, or with second_is_weights the weights [K,C,taps], which
// are packed as `lanes` columns.
void pack_operands(const Problem& z, const Workspace& at, const void* first, const void* second,
                  bool second_is_weights, bool backward, std::int64_t lanes,
                  const WeightTiles& tiles = {});

}  // namespace convscope::sparse_cuda

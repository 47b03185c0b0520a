// SPDX-License-Identifier: Apache-2.0
// direct_small_groups_tiles.h: the interface of the register tiles of direct_small_groups, which
// are compiled for each instruction set and compute one block of 16 channels.
//
// A group has M channels. Each lane l takes M steps; in step d it adds channel source(l, d) of its
// group. If a vector contains several groups (M < lanes), source(l, d) = (l mod M) xor d: in each
// step one shuffle of the pixel exchanges the lanes within each group, and step 0 needs no shuffle.
// If a vector is within one group (M >= lanes), source(l, d) = d, and a load broadcasts channel d.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// How a tile reads the columns of one row of the kernel.
enum class GroupForm {
  single,         // one tap; pixels any number of columns apart
  pair,           // two taps on neighbouring columns, neighbouring pixels
  triple,         // three taps on neighbouring columns
  triple_by_two,  // three taps, pixels two columns apart
};
inline constexpr int kGroupForms = 4;
constexpr int taps_of(GroupForm form) {
  return form == GroupForm::single ? 1 : form == GroupForm::pair ? 2 : 3;
}
// Returns the distance of neighbouring pixels in columns of `in`; undefined for `single`.
constexpr int stride_of(GroupForm form) { return form == GroupForm::triple_by_two ? 2 : 1; }

// A row of the kernel whose row of `in` is inside the image: the offsets of these rows.
struct GroupRow {
  std::int64_t in, w;
};
// A run of taps: the offsets of its first column in `in` and of its first tap in w. The tile reads
// columns of which [first, end) are inside the image. With several taps, at most taps - 1 columns
// on either side may be outside. For a single tap, column j belongs to pixel j.
struct GroupRun {
  std::int64_t in, w;
  int first, end;
};

// Computes out[j * out_step + l] = start[l] + residual + sum for pixels j and lanes l < 16. With
// `relu` the result is clamped to [0, most]. The sum runs over rows, runs, steps d < channels and
// taps t, in one chain (framework/simd/sum_chain.h). Its terms are the products of
//   w[row.w + run.w + d * w_step + t * w_tap + l / lanes * w_vector + l mod lanes]
//   in[row.in + run.in + column + source(l, d)]
// With `adds` the sum is added to `out`, which holds the sums of the previous chains.
struct GroupTile {
  int pixels = 0;
  int channels = 0;  // of a group
  int rows = 0, runs = 0;
  const GroupRow* row = nullptr;
  const GroupRun* run = nullptr;
  const float* in = nullptr;
  std::int64_t in_step = 0;  // floats from pixel to pixel of a single tap
  const float* w = nullptr;
  std::int64_t w_step = 0, w_tap = 0, w_vector = 0;
  const float* start = nullptr;  // [16], or null: 0
  float* out = nullptr;
  std::int64_t out_step = 0;
  bool adds = false;
  const float* residual = nullptr;  // in the layout of `out`, or null
  bool relu = false;
  float most = 0;  // upper bound of relu; infinity: none
};

// Computes sums[d * sums_step + t * sums_tap + l] += sum over p < rows, q < columns of
//   in[p * in_row + q * in_step + 16 t + source(l, d)] * dy[p * dy_row + 16 q + l]
// for steps d < channels, taps t and lanes l of a vector. Columns of `in` outside [first, end) are
// skipped; with a single tap there are none. Tap 0 of pixel 0 reads column 0. in_step is 16 in
// `triple` and 32 in `triple_by_two`; `pair` is not used. in_ahead and dy_ahead are prefetch
// distances in floats (0: no prefetch).
struct GroupWeightTile {
  int channels = 0;
  std::int64_t rows = 0, columns = 0;
  const float* in = nullptr;
  std::int64_t in_row = 0, in_step = 0;
  std::int64_t first = 0, end = 0;
  const float* dy = nullptr;
  std::int64_t dy_row = 0;
  std::int64_t in_ahead = 0, dy_ahead = 0;
  float* sums = nullptr;
  std::int64_t sums_step = 0, sums_tap = 0;
};

struct GroupKernels {
  int lanes = 0;   // of a vector
  int pixels = 0;  // maximum pixels of a tile
  void (*tile)(const GroupTile& tile, GroupForm form) = nullptr;
};
struct GroupWeightKernels {
  int lanes = 0;
  void (*tile)(const GroupWeightTile& tile, GroupForm form) = nullptr;
};

extern IsaTable<GroupKernels> group_kernels;
extern IsaTable<GroupWeightKernels> group_weight_kernels;

}  // namespace convscope

// SPDX-License-Identifier: Apache-2.0
// deform_cuda_plan.h: the sizes that the kernels of deform_fused_cuda.cu work with, and the order
// in which they sum. The file has no CUDA code, so tests can check it on the CPU.
//
// A piece is eight neighbouring channels of a pixel. A run is a maximal range of channels that
// share a weight group and an offset group. A run is cut into units of four or eight pieces, and
// the last unit is padded with zeros. Packed images have the pieces of a pixel next to each other,
// [N][H W][runs][pieces of a run].
//
// The K dimension of y and the columns of dw list all taps of one unit before the next unit, so
// that the pixels of all taps stay in L1. A step of the K loop takes eight pieces, which are one or
// two units.
#pragma once

#include <cstdint>
#include <numeric>

#include "framework/int_math.h"
#include "layers/deform_conv2d/problem.h"

namespace convscope::deform_cuda {

inline constexpr int kPieceNumbers = 8;
inline constexpr int kStepPieces = 8;  // pieces of a row in one step of the K loop

// Shape of the problem as the kernels see them.
struct DeformShape {
  int images = 0, in_h = 0, in_w = 0, out_h = 0, out_w = 0;
  int taps = 0, kernel_w = 0;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  int groups = 1, offset_groups = 1;
  int c = 0, k = 0;     // of a group of weights
  int run = 0;          // channels of a run
  int group_runs = 0;   // of a group of weights
  int offset_runs = 0;  // of a group of offsets
  int unit = 8;         // pieces
  int run_units = 0, run_pieces = 0;
  int out_pieces = 0;  // of a group of y
  bool masked = false;
  FastDivisor by_in_area, by_in_w, by_out_area, by_out_w, by_kernel_w, by_taps, by_run_pieces,
      by_run_units, by_offset_runs, by_group_runs;

  DeformShape() = default;
  explicit DeformShape(const DeformConv2dProblem& z)
      : images(narrow(z.n)),
        in_h(narrow(z.h)),
        in_w(narrow(z.w)),
        out_h(narrow(z.p())),
        out_w(narrow(z.q())),
        taps(narrow(z.taps())),
        kernel_w(narrow(z.s)),
        stride_h(narrow(z.stride_h)),
        stride_w(narrow(z.stride_w)),
        pad_h(narrow(z.pad_top)),
        pad_w(narrow(z.pad_left)),
        dilation_h(narrow(z.dilation_h)),
        dilation_w(narrow(z.dilation_w)),
        groups(narrow(z.groups)),
        offset_groups(narrow(z.offset_groups)),
        c(narrow(z.c_per_group())),
        k(narrow(z.k_per_group())),
        run(std::gcd(c, narrow(z.c_per_offset_group()))),
        group_runs(c / run),
        offset_runs(narrow(z.c_per_offset_group()) / run),
        unit(run <= 4 * kPieceNumbers ? 4 : 8),
        run_units(ceil_div(run, unit * kPieceNumbers)),
        run_pieces(run_units * unit),
        out_pieces(ceil_div(k, kPieceNumbers)),
        masked(z.mask),
        by_in_area(in_h * in_w),
        by_in_w(in_w),
        by_out_area(out_h * out_w),
        by_out_w(out_w),
        by_kernel_w(kernel_w),
        by_taps(taps),
        by_run_pieces(run_pieces),
        by_run_units(run_units),
        by_offset_runs(offset_runs),
        by_group_runs(group_runs) {}

  constexpr int in_area() const { return in_h * in_w; }
  constexpr int out_area() const { return out_h * out_w; }
  constexpr int cells() const { return images * (in_h + 1) * (in_w + 1); }  // between pixels of x
  constexpr int in_pixels() const { return images * in_area(); }
  constexpr int out_pixels() const { return images * out_area(); }
  constexpr int runs() const { return groups * group_runs; }
  constexpr int group_pieces() const { return group_runs * run_pieces; }  // of x
  constexpr int x_pieces() const { return groups * group_pieces(); }      // of a pixel
  constexpr int y_pieces() const { return groups * out_pieces; }
  constexpr int group_units() const { return group_runs * run_units; }
  // Returns the number of pieces in the K dimension, rounded up to whole pairs of steps.
  constexpr int forward_depth() const {
    return round_up(group_units() * taps * unit, 2 * kStepPieces);
  }
  constexpr int backward_depth() const { return round_up(taps * out_pieces, 2 * kStepPieces); }
  constexpr int keys() const { return offset_groups * taps; }  // places of a pixel of y
  constexpr int offset_group_of_run(int r) const { return by_offset_runs.divide(r); }

 private:
  static int narrow(std::int64_t value) { return static_cast<int>(value); }
};

// The source of a piece of the forward K dimension.
struct ForwardPiece {
  int tap = 0;
  int run = 0;    // index in its group
  int piece = 0;  // index in its run
};
constexpr ForwardPiece forward_piece(const DeformShape& s, int index) {
  const int both = s.unit == 8 ? index / 8 : index / 4;  // unit and tap
  const int unit = s.by_taps.divide(both);
  const int run = s.by_run_units.divide(unit);
  return {both - unit * s.taps, run, (unit - run * s.run_units) * s.unit + (index & (s.unit - 1))};
}

// A position in the K dimension of dx, which lists all pieces of one tap before those of the next.
struct BackwardPiece {
  int tap = 0, piece = 0;

  constexpr void advance(int pieces) {  // by one step
    piece += kStepPieces;
    while (piece >= pieces) {
      piece -= pieces;
      ++tap;
    }
  }
};

// Prepared weights have the layout that the tensor cores read (tensor_cores/matrix_tile.cuh). A
// tile has 64 rows x 8 pieces, which are one step of the K dimension. The tiles of the same rows
// follow one another in the order of the steps. Missing rows are zeros.
inline constexpr int kWeightTileRows = 64;
inline constexpr int kWeightTilePieces = kWeightTileRows * kStepPieces;
// Returns the index of a piece in the prepared weights, counted in pieces. `steps` is the number of
// steps of the whole K dimension, `tiles` the number of row tiles of a block.
constexpr std::int64_t weight_at(int block, int row, int depth, int tiles, int steps) {
  const std::int64_t tile = std::int64_t{block} * tiles + row / kWeightTileRows;
  return (tile * steps + depth / kStepPieces) * kWeightTilePieces +
         row % kWeightTileRows * kStepPieces + ((depth ^ row) & (kStepPieces - 1));
}

// Computes exponents of powers of two that scale numbers into the range of fp16. Largest magnitudes
// are passed as the bits of an f32; 0 if there is no element.
constexpr int bound_exponent(unsigned bits) {  // the number is below 2^this
  return bits == 0 ? 0 : static_cast<int>(bits >> 23) - 126;
}
constexpr int count_exponent(unsigned count) {  // count <= 2^this
  int e = 0;
  while (e < 31 && (1u << e) < count) ++e;
  return e;
}
inline constexpr int kHalfExponent = 14;  // scaled numbers are below 2^14
constexpr int clamped_exponent(int e) { return e < -126 ? -126 : e > 126 ? 126 : e; }

}  // namespace convscope::deform_cuda

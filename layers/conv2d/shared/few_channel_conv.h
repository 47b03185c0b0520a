// SPDX-License-Identifier: Apache-2.0
// few_channel_conv.h: one or two consecutive convolutions of few channels on a GPU, each followed
// by bias, ReLU or tanh and 2x2 pooling, in one kernel for each direction. It has the sizes, the
// layout of tiles in shared memory, and the kernels. Used by the algorithm direct_sample and by
// a rewrite of compiled steps (fusions/few_channel_chain.cpp).
//
// All data of a sample are in the shared memory of one block. Global memory has only x, the pooled
// y, and four bits for each element of y. All sizes fit in int. The functions here are constexpr,
// so that kernels and the CPU's tests share them.
//
// With a half-precision `operand_type`, x, w and dy are rounded to it
// in shared memory before they are multiplied, unless their producer has rounded them. Global
// memory holds f32. Numbers that are only added (b, dy in db) are not rounded.
#pragma once

#include <cstdint>

#include "framework/int_math.h"
#include "framework/kernel_slot.h"
#include "layers/conv2d/problem.h"
#include "layers/plan/batch_gather.h"
#include "layers/plan/piece_sums.h"

namespace convscope {

enum class FewChannelActivation : std::uint8_t { none, relu, tanh };

// y = pool(activation(conv(x, w) + b)), stride 1, a square kernel of R = 3, 5 or 7.
struct FewChannelStage {
  int c = 1, h = 1, w = 1;  // x [N,C,H,W]
  int k = 1, r = 3;         // w [K,C,R,R]
  int pad_top = 0, pad_left = 0;
  int p = 1, q = 1;  // output size of the convolution
  FewChannelActivation activation = FewChannelActivation::none;
  bool max_pool = false;  // 2x2 at stride 2

  constexpr bool pools() const { return max_pool; }
  constexpr int out_h() const { return pools() ? p / 2 : p; }
  constexpr int out_w() const { return pools() ? q / 2 : q; }
  // Returns the rows of the convolution that are used: pooling drops an odd last row or column.
  constexpr int used_p() const { return pools() ? p / 2 * 2 : p; }
  constexpr int used_q() const { return pools() ? q / 2 * 2 : q; }
  constexpr int weights() const { return k * c * r * r; }
  constexpr int outputs() const { return k * out_h() * out_w(); }  // of one sample
};

// The name under which the kernels of the chain report that they ran, and the problem of one stage.
inline constexpr const char* kFewChannelChain = "few_channel_chain";
CONVSCOPE_API Conv2dProblem few_channel_problem(const FewChannelStage& stage, std::int64_t batch,
                                                DType operand_type = DType::f32);

namespace few_channel {

constexpr int kBlockThreads = 256;
constexpr int kTileRows = 2, kTileColumns = 4;  // outputs of a thread, for each channel
constexpr int kForwardChannels = 2;             // output channels of a thread
constexpr int kWeightChannels = 4;              // output channels of dw of a thread
constexpr int kMaxBlocks = 264;                 // two for each SM of a large GPU
constexpr int kMaxSamples = 4;                  // in a block at a time

constexpr int least(int a, int b) { return a < b ? a : b; }
constexpr int most(int a, int b) { return a > b ? a : b; }

// Returns the floats of a row of x that a tile of four columns reads: 4 + R - 1, rounded up to a
// multiple of four.
constexpr int row_floats(int r) { return round_up(kTileColumns + r - 1, 4); }
// Returns the floats of a row of weights in shared memory.
constexpr int weight_row(int r) { return round_up(r, 4); }
// Returns an odd multiple of four floats. So eight neighbouring rows start in eight different
// groups of banks, and loads of four floats from different rows do not conflict.
constexpr int row_pitch(int columns) {
  const int fours = ceil_div(columns, 4);
  return 4 * (fours % 2 == 0 ? fours + 1 : fours);
}

// x of one channel, with its border of zeros: row i, column j of the tile is x[i - top][j - left].
struct XTile {
  int rows = 0, pitch = 0;
  constexpr int plane() const { return rows * pitch; }
};
constexpr XTile x_tile(const FewChannelStage& z) {
  const int columns = round_up(z.used_q(), kTileColumns) - kTileColumns + row_floats(z.r);
  return {.rows = most(round_up(z.used_p(), kTileRows) + z.r - 1, z.h + z.pad_top),
          .pitch = row_pitch(most(columns, z.w + z.pad_left))};
}

// dy of one channel before the pooling, stored densely. Row i, column j is dy[i][j - left]. The
// gradient of x is a convolution with the flipped kernel. It reads zeros in columns around dy,
// which are stored, and zeros in `frame` rows above and below, which are not stored: the threads
// skip them. `left` is a multiple of four, so tiles of dx begin `shift` columns before a multiple
// of four.
struct DyTile {
  int frame = 0, left = 0, shift = 0;
  int rows = 0, pitch = 0;
  int tiles_h = 0, tiles_w = 0;  // of dx
  constexpr int plane() const { return rows * pitch; }
};
constexpr DyTile dy_tile(const FewChannelStage& z, bool wants_dx) {
  DyTile t;
  int columns = 0;
  if (wants_dx) {
    const int frame = z.r - 1 - z.pad_left;
    t.frame = z.r - 1 - z.pad_top;
    t.left = round_up(frame, 4);
    t.shift = t.left - frame;
    t.tiles_h = ceil_div(z.h, kTileRows);
    t.tiles_w = ceil_div(z.w + t.shift, kTileColumns);
    columns = (t.tiles_w - 1) * kTileColumns + row_floats(z.r);
  }
  t.rows = z.used_p();
  t.pitch = row_pitch(most(columns, t.left + round_up(z.used_q(), kTileColumns)));
  return t;
}

// Returns the strides of weights [K][C][R][weight_row]. Four extra floats put neighbouring kernels
// into other banks.
constexpr int weight_c(const FewChannelStage& z) { return z.r * weight_row(z.r); }
constexpr int weight_k(const FewChannelStage& z, int channels) {
  return channels * weight_c(z) + 4;
}
constexpr int weight_k(const FewChannelStage& z) { return weight_k(z, z.c); }

// How the outputs of a stage's convolution are distributed over threads. An item is one tile of one
// sample for a few channels. The item's sum over input channels is cut into `splits` parts when
// that keeps more threads busy.
struct Deal {
  int tiles_w = 0, tiles = 0, groups = 0, samples = 1, splits = 1;
  constexpr int each() const { return tiles * groups; }  // items in a sample
  constexpr int items() const { return each() * samples; }
};
// The divisions of a loop over items.
struct DealDivisors {
  FastDivisor items, each, tiles, tiles_w;
  constexpr DealDivisors() = default;
  constexpr explicit DealDivisors(const Deal& d)
      : items(d.items()), each(d.each()), tiles(d.tiles), tiles_w(d.tiles_w) {}
};
// Returns the number of parts of a sum with the shortest time. The time is the number of rounds of
// all threads times the length of a part.
constexpr int splits_for(int items, int depth) {
  int best = 1;
  int least_time = 1 << 30;
  for (int splits = 1; splits <= depth; ++splits) {
    const int length = ceil_div(depth, splits);
    if (splits > 1 && length == ceil_div(depth, splits - 1)) continue;
    // A split adds about a quarter of a channel to each part, for setup and for adding the parts.
    const int time = ceil_div(items * splits, kBlockThreads) * (4 * length + (splits > 1 ? 1 : 0));
    if (time < least_time) {
      least_time = time;
      best = splits;
    }
  }
  return best;
}
constexpr int forward_tile_rows(const FewChannelStage& z) {
  return ceil_div(z.used_p(), kTileRows);
}
constexpr Deal forward_deal(const FewChannelStage& z, int k_count, int tile_rows, int samples) {
  Deal d;
  d.tiles_w = ceil_div(z.used_q(), kTileColumns);
  d.tiles = tile_rows * d.tiles_w;
  d.groups = ceil_div(k_count, kForwardChannels);
  d.samples = samples;
  d.splits = splits_for(d.items(), z.c);
  return d;
}
constexpr Deal data_deal(const FewChannelStage& z, int c_count, int channels, int samples) {
  const DyTile t = dy_tile(z, true);
  Deal d;
  d.tiles_w = t.tiles_w;
  d.tiles = t.tiles_h * t.tiles_w;
  d.groups = ceil_div(c_count, channels);
  d.samples = samples;
  d.splits = splits_for(d.items(), z.k);
  return d;
}
// Divisors with which a thread finds its share of dw.
struct WeightDivisors {
  FastDivisor items, channels, fours;  // items and channels of the block; fours of a pixel row
};
// Returns how dw is distributed to threads. An item is (a few k, one c, one r), with S sums for
// each k. The pixels that an item adds, in groups of four, are divided into splits.
constexpr Deal weight_deal(const FewChannelStage& z, int k_count, int channels, int c_count) {
  Deal d;
  d.tiles_w = ceil_div(z.used_q(), kTileColumns);
  d.tiles = z.used_p() * d.tiles_w;
  d.groups = ceil_div(k_count, channels);
  const int items = d.groups * c_count * z.r;
  d.splits = most(1, least(d.tiles, kBlockThreads / most(items, 1)));
  return d;
}

}  // namespace few_channel

// `passes` has four bits for each pooled output: the pixels of its window that get its gradient, in
// the order (0,0) (0,1) (1,0) (1,1). For a maximum at most one bit is set.
struct FewChannelForward {
  int stages = 1;  // 1 or 2
  FewChannelStage stage[2];
  std::int64_t batch = 0;
  const float* x = nullptr;      // [N,C,H,W] of stage[0]
  const float* w[2] = {};        //
  const float* b[2] = {};        // may be null
  float* y[2] = {};              // pooled; y[0] of two stages may be null: not kept
  std::uint8_t* passes[2] = {};  // layout of y; null: not stored
  DType operand_type = DType::f32;
  bool w_is_rounded = false;     // already rounded to `operand_type`
  bool keeps_y_rounded[2] = {};  // when y is only read as an operand
  // True if the previous kernel, which may still run, writes neither weights nor biases.
  bool only_x_is_new = false;
  BatchGather gather;  // with images: x is gathered from them, few_channel_gathers()
};

// Returns whether x can be gathered four bytes at a time. The four pixels must be in one row.
constexpr bool few_channel_gathers(const FewChannelStage& first) { return first.w % 4 == 0; }

struct FewChannelBackward {
  int stages = 1;
  FewChannelStage stage[2];
  std::int64_t batch = 0;
  const float* x = nullptr;
  const float* w[2] = {};
  const float* y[2] = {};
  const std::uint8_t* passes[2] = {};
  const float* dy = nullptr;  // for the last stage, pooled
  float* dx = nullptr;        // for a single stage; null: not computed
  float* dw[2] = {};          // may be null if only dx of a single stage is needed
  float* db[2] = {};          // may be null
  bool accumulate[2] = {};
  float* sums = nullptr;  // few_channel_sums_floats()
  // True if the previous kernel, which may still run, writes dy, but no other input.
  bool only_dy_is_new = false;
  bool adds_pieces = true;  // false: the caller adds few_channel_sums()
  DType operand_type = DType::f32;
  bool all_is_rounded = false;  // to `operand_type`: x, w, and y[0] of two stages; never dy
};

// Parameters of the kernels in addition to the pointers: the distribution of work, and the offset
// of each array in shared memory, in floats.
struct FewChannelForwardPlan {
  FewChannelForward a;
  // `parts` blocks share a sample: each computes some output channels and tile rows of the last
  // stage.
  int parts = 1, slice = 1;
  int row_parts = 1, tile_rows = 0;
  int samples = 1;  // in a block at a time
  few_channel::XTile tile[2] = {};
  few_channel::Deal deal[2] = {};
  few_channel::DealDivisors by[2] = {};
  FastDivisor by_k_tiles[2] = {};  // tiles of all output channels of a sample
  FastDivisor by_w{}, by_image{};  // of x
  FastDivisor by_weights[2] = {};  // C R R
  int x_at[2] = {}, w_at[2] = {}, b_at[2] = {}, split_at = 0, floats = 0;
};
struct FewChannelBackwardPlan {
  FewChannelBackward a;
  int parts = 1, chunks = 1;  // blocks that share a sample; groups of samples
  int samples = 1;            // in a block at a time
  // number of channels of dx, and of the first stage's y, that a block computes and keeps
  int slice = 1;
  int channels = 1;             // of dx in a thread: 1, 2 or 3
  bool convolves_back = false;  // the last stage's dx is computed
  few_channel::XTile x_tile[2] = {};
  few_channel::DyTile dy_tile[2] = {};
  few_channel::Deal data = {};                                                  // of dx
  FastDivisor by_row_items{}, by_cut_items{}, by_sample_items{}, by_tiles_w{};  // for dx
  FastDivisor by_w[2] = {}, by_image[2] = {}, by_out_w{}, by_weights{};
  FastDivisor by_y_threads{}, by_x_threads{};  // threads that share a plane of y, of x
  few_channel::Deal weight[2] = {};            // of dw
  few_channel::WeightDivisors by_weight[2] = {};
  int x_at[2] = {}, dy_at[2] = {}, w_at = 0, passes_at = 0, split_at = 0, floats = 0;
  std::int64_t piece = 0;                     // floats of the sums of one chunk
  std::int64_t dw_at[2] = {}, db_at[2] = {};  // in a piece
};
CONVSCOPE_API FewChannelForwardPlan few_channel_plan(const FewChannelForward& a, int parts);
CONVSCOPE_API FewChannelBackwardPlan few_channel_plan(const FewChannelBackward& a, int parts);

// Returns the number of blocks for each sample, so that each of about 132 SMs has one block or two.
CONVSCOPE_API int few_channel_forward_parts(std::int64_t batch, const FewChannelStage& last,
                                            int blocks_each);
// Returns the number of blocks for each sample, or 0 if the registers cannot hold the accumulators
// of dw.
CONVSCOPE_API int few_channel_backward_parts(const FewChannelStage* stage, int stages,
                                             std::int64_t batch);

// Returns "", or why the kernels do not compute these stages.
CONVSCOPE_API const char* few_channel_refusal(const FewChannelStage* stage, int stages,
                                              bool wants_dx);

// Returns the number of partial sums of dw and db: one for each chunk of samples.
constexpr int few_channel_chunks(std::int64_t batch) {
  return batch < few_channel::kMaxBlocks ? static_cast<int>(batch) : few_channel::kMaxBlocks;
}
constexpr std::int64_t few_channel_piece_floats(const FewChannelStage* stage, int stages) {
  std::int64_t sum = 0;
  for (int i = 0; i < stages; ++i) sum += stage[i].weights() + stage[i].k;
  return sum;
}

// Describes how the gradients are added from the pieces in a.sums.
CONVSCOPE_API PieceSums few_channel_sums(const FewChannelBackwardPlan& plan);

extern CONVSCOPE_API KernelSlot<void(const FewChannelForward&)> few_channel_forward_kernel;
extern CONVSCOPE_API KernelSlot<void(const FewChannelBackward&)> few_channel_backward_kernel;

}  // namespace convscope

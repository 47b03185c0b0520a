// SPDX-License-Identifier: Apache-2.0
// direct_nchw16c_cpu.cpp: direct convolution of NCHW16c images. A tile of pixels x output channels
// stays in registers over the whole reduction, and reads blocks of 16 channels in place.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of w[k,c,r,s] x[n, g C/G + c,
//            p stride_h - pad_top + r dilation_h, q stride_w - pad_left + s dilation_w], or 0
// Textbook   for n, p, blocks of 14 pixels q, blocks of 32 channels k:
//              sums[14][32] = b[32]                                  # in registers
//              for blocks of 16 channels c, taps r, s:               # x [N,C/16,H,W,16]
//                for q, c of the block: sums[q][32] += x[n,C/16,p+r,q+s,c] * w[C/16,r,s,c][32]
//              y[n,K/16,p,q][16] = sums[q][16], twice
// Method     Schedule of direct: the loop nest of direct_lesson_cpu.cpp. The layout
//            (layers/dispatch/activation_layout.h) makes it fast: 16 channels of a pixel are one
//            vector, so no row is copied, padded or transposed, and only w is packed
//            (prepare_weights), in the order in which a tile reads it. A line is a row of out (of
//            one residue modulo stride_w in backward_data), or a run of pixels when the kernel is
//            1x1. Tiles walk along the line. A tile has a list of taps, each with the pixels for
//            which the tap is inside the image. The sum is cut into chains of at most kSumChain
//            products. A group of tiles computes one chain after another, so that the chain's
//            weights stay in L1. Threads take (images, rows, group, channels). A network's first
//            layer reads [N,C,H,W] and writes NCHW16c (stem.cpp). backward_weight is in
//            direct_nchw16c_weights.cpp.
// Shapes     x [N,C/16,H,W,16], or [N,C,H,W] in the forward pass and dw of a first layer;
//            y [N,K/16,P,Q,16]; w [K,C/G,R,S]; all f32, any alignment; f32 accumulators; lanes
//            after the last channel are 0
// Supports   f32 in layout nchw16c, also nchw:nchw16c except for dx; every stride, dilation and
//            padding; one group, or groups of a multiple of 16 channels; kernels up to 1024 taps
// Cost       FLOPs = 2 N K P Q (C/G) R S less the taps outside the image; bytes = the three
//            tensors, and the weights once for each chunk of pixels; direct_nchw16c_plan.h
//            describes repeated reads and their caches; workspace = sums of dw, or the padded rows
//            of a first layer
// Numerics   one rounding per FMA, in chains (framework/simd/sum_chain.h), block of channels by
//            block; same bits on each run and for any number of threads; exact on integers below
//            2^24
// Backward   dx assigned; dw assigned or added to
// Choices    kKeptFloats, kMaxTiles, kFlatTiles and the sizes of chunks: direct_nchw16c_plan.h
// Source     E. Georganas et al.: Anatomy of High-Performance Deep Learning Convolutions on SIMD
//            Architectures, SC 2018, arXiv 1808.05567; here without JIT
// Read next  ../../direct/direct_lesson_cpu.cpp, the loop nest; ../../shared/nchw16c/walk.h,
// chunks,            lines and taps;
//            ../../shared/nchw16c_tiles_simd.cpp, the tiles; direct_nchw16c_weights.cpp, dw;
//            ../../direct/cpu/direct_cpu.cpp, the same sums in NCHW
#include <array>

#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/direct_nchw16c/cpu/direct_nchw16c_plan.h"
#include "layers/conv2d/direct_nchw16c/cpu/direct_nchw16c_weight_plan.h"
#include "layers/conv2d/direct_nchw16c/cpu/direct_nchw16c_weights.h"
#include "layers/conv2d/direct_nchw16c/cpu/stem.h"
#include "layers/conv2d/shared/nchw16c/walk.h"
#include "layers/conv2d/shared/nchw16c_support.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {
namespace direct_nchw16c {
namespace {

// Packs w as [blocks, taps, tap_channels, width] for each group and each block of `width` channels,
// with zeros for missing channels.
void pack(const Nchw16cTiling& pass, const float* w, float* packed) {
  const GemmKernels& gemm = gemm_kernels.get();
  const Conv2dProblem& z = pass.z;
  const Index jobs = z.groups * pass.blocks * pass.depth;
  const Index grain = std::max<Index>(1, 65536 / (pass.tap_channels * pass.taps * pass.widest));
  parallel_for(jobs, grain, [&](Index begin, Index end) {
    for (Index job = begin; job < end; ++job) {
      const Index d = job % pass.depth;
      const Index first = job / pass.depth % pass.blocks * pass.widest;
      const Index g = job / pass.depth / pass.blocks;
      const Index width = pass.width_at(first);
      const Index count = std::clamp<Index>(pass.channels - first, 0, width);
      const Index depth = std::min(kChannelBlock, pass.in_channels - d * kChannelBlock);
      float* const to = packed + g * pass.group_weights() +
                        (first * pass.depth + d * width) * pass.taps * pass.tap_channels;
      if (count < width || depth < pass.tap_channels) {
        std::fill_n(to, pass.taps * pass.tap_channels * width, 0.0f);
      }
      const Index inner = d * kChannelBlock;
      // The weight of the first channels of `out` and `in`.
      const Index k = g * z.k_per_group() + (pass.forward ? first : inner);
      const float* const from =
          w + (k * z.c_per_group() + (pass.forward ? inner : first)) * pass.taps;
      const Index next_k = z.c_per_group() * pass.taps;
      if (pass.taps == 1 && pass.forward) {
        gemm.transpose(from, next_k, count, depth, to, width);
      } else if (pass.taps == 1) {
        for (Index c = 0; c < depth; ++c) std::copy_n(from + c * next_k, count, to + c * width);
      } else {  // rows: channels of `out`; columns: the taps of one channel of `in`
        const Index row = pass.forward ? next_k : pass.taps;
        const Index next = pass.forward ? pass.taps : next_k;
        for (Index c = 0; c < depth; ++c) {
          gemm.transpose(from + c * next, row, count, pass.taps, to + c * width,
                         pass.tap_channels * width);
        }
      }
    }
  });
}

// A group of tiles that have the same block of channels, and the taps of these tiles.
class TileGroup {
 public:
  TileGroup(const Nchw16cTiling& pass, const Nchw16cTiles& tiles, Index width)
      : pass_(pass),
        kernels_(nchw16c_kernels.get()),
        tiles_(tiles),
        width_(static_cast<int>(width)) {}

  // Starts a group whose tiles have at most `taps` taps. Tiles at the border have fewer taps.
  void start(Index taps) {
    const int most =
        static_cast<int>(kSumChain / (pass_.depth == 1 ? pass_.last_channels() : kChannelBlock));
    taps_ = static_cast<int>(std::min<Index>(taps, most));
    depth_ = pass_.depth * taps_ > most ? most / taps_ : pass_.depth;
    if (taps_ == 0) depth_ = pass_.depth;
  }
  // Returns the next tile, with space for `most` taps.
  Nchw16cTile& next(Index most) {
    if (count_ == pass_.tiles_at_once || listed_ + most > kMaxTaps) sum();
    Nchw16cTile& tile = tile_[static_cast<std::size_t>(count_++)];
    tile.tap = listed();
    return tile;
  }
  // Lists the taps of a tile that next() has returned.
  void list(Nchw16cTile& tile, const LineTaps& taps, int count, Index begin) {
    tile.taps = taps_of_tile(taps, count, begin, tile.pixels, listed());
    listed_ += tile.taps;
  }

  // Computes all tiles, chain by chain.
  void sum() {
    const Index floats = widest_tile();
    for (Index d = 0; d < pass_.depth; d += depth_) {
      int left = 1;  // tiles that have taps after this chain
      for (int t = 0; left > 0; t += taps_) {
        left = 0;
        for (int i = 0; i < count_; ++i) {
          const Nchw16cTile& tile = tile_[static_cast<std::size_t>(i)];
          const int end = std::min(t + taps_, tile.taps);
          if (t >= tile.taps && (t > 0 || (tile.taps == 0 && d > 0))) continue;
          const bool ends = end == tile.taps;
          if (!ends) ++left;
          const bool last = ends && (tile.taps == 0 || d + depth_ >= pass_.depth);
          kernels_.tile(tiles_, tile,
                        {.block = d,
                         .depth = tile.taps == 0 ? 0 : std::min(depth_, pass_.depth - d),
                         .tap = t,
                         .end = end,
                         .first = d == 0 && t == 0,
                         .last = last,
                         .ahead = ahead_of(i)},
                        kept_.data() + i * floats, width_);
        }
      }
    }
    count_ = listed_ = 0;
  }

 private:
  Nchw16cTap* listed() { return &tap_[static_cast<std::size_t>(listed_)]; }
  // Returns the distance from the weights that a tile reads to those that it prefetches. While a
  // group of tiles reads the weights of one chain, it prefetches those of the next chain, which
  // follow in memory. Tile i of the group prefetches cache line i of each channel.
  Index ahead_of(int tile) const {
    constexpr Index kLine = 16;
    if (tile >= width_ / kLine) return 0;
    return depth_ * taps_ * pass_.tap_channels * width_ + tile * kLine;
  }
  Index widest_tile() const {
    return width_ * (width_ > 2 * pass_.lanes ? kernels_.pixels / 2 : kernels_.pixels);
  }

  const Nchw16cTiling& pass_;
  const Nchw16cKernels kernels_;
  const Nchw16cTiles& tiles_;
  const int width_;
  int taps_ = 0;     // of a chain
  Index depth_ = 0;  // blocks in a chain
  int count_ = 0, listed_ = 0;
  std::array<Nchw16cTile, kMaxTiles> tile_;
  std::array<Nchw16cTap, kMaxTaps> tap_;
  alignas(64) std::array<float, kKeptFloats> kept_;
};

class Nchw16cPass {
 public:
  Nchw16cPass(const Nchw16cTiling& pass, const float* in, const float* packed, const float* b,
              const Conv2dEpilogue& epilogue, float* out)
      : pass_(pass),
        z_(pass.z),
        kernels_(nchw16c_kernels.get()),
        in_(in),
        packed_(packed),
        b_(b),
        residual_(static_cast<const float*>(epilogue.residual)),
        relu_(epilogue.relu),
        most_(epilogue.most),
        out_(out),
        taps_{.z = z_,
              .forward = pass.forward,
              .whole = pass.flat,
              .taps_s = z_.s,
              .pad_top = z_.pad_top,
              .pad_left = z_.pad_left,
              .in_h = pass.in_h,
              .in_w = pass.in_w,
              .pixel = kChannelBlock} {}

  void run() const {
    pass_.for_blocks(
        [&](const Pixels& pixels, Index g, Index block) { run_block(pixels, g, block); });
  }

 private:
  // Computes one block of output channels of some pixels.
  void run_block(const Pixels& pixels, Index g, Index block) const {
    const Index channel = block * pass_.widest;  // in the group
    const Index first = g * pass_.channels + channel;
    const Index width = pass_.width_at(channel);
    Nchw16cTiles tiles;
    tiles.depth = pass_.depth;
    tiles.in_block = pass_.in_plane();
    tiles.last = pass_.last_channels();
    tiles.in_step = kChannelBlock * (pass_.forward ? z_.stride_w : 1);
    tiles.w = packed_ + g * pass_.group_weights() +
              channel * pass_.depth * pass_.taps * pass_.tap_channels;
    tiles.w_block = pass_.taps * pass_.tap_channels * width;
    tiles.out_block = pass_.out_plane();
    tiles.out_step = kChannelBlock * pass_.parts;
    if (b_ != nullptr) {
      tiles.start = b_ + first;
      tiles.starts = static_cast<int>(std::clamp<Index>(pass_.channels - channel, 0, width));
    }
    tiles.relu = relu_;
    tiles.most = most_;
    TileGroup group(pass_, tiles, width);
    const auto place = [&](Index n, Index row, Index part) {
      const float* const in = in_ + pass_.in_group(n, g);
      float* const out = out_ +
                         (n * pass_.out_blocks() + first / kChannelBlock) * pass_.out_plane() +
                         first % kChannelBlock;
      place_line(in, out, row, part, tiles.in_step, width, group);
    };
    if (pass_.tiles_at_once == 1) {  // row after row, in the memory order of `out`
      for (Index n = pixels.image; n < pixels.image_end; ++n) {
        for (Index row = pixels.row; row < pixels.row_end; ++row) {
          for (Index part = 0; part < pass_.parts; ++part) {
            group.start(pass_.taps_of(row % pass_.row_parts, part));
            place(n, row, part);
            group.sum();
          }
        }
      }
      return;
    }
    // All tiles of a group must have chains of the same length. So rows with the same remainder
    // modulo the stride, which use the same taps, are computed one after another.
    for (Index row_part = 0; row_part < pass_.row_parts; ++row_part) {
      for (Index part = 0; part < pass_.parts; ++part) {
        group.start(pass_.taps_of(row_part, part));
        for (Index n = pixels.image; n < pixels.image_end; ++n) {
          const Index before = pixels.row % pass_.row_parts;
          Index row = pixels.row - before + row_part + (row_part < before ? pass_.row_parts : 0);
          for (; row < pixels.row_end; row += pass_.row_parts) place(n, row, part);
        }
        group.sum();
      }
    }
  }

  void place_line(const float* in, float* out, Index row, Index part, Index step, Index width,
                  TileGroup& group) const {
    const Index column = pass_.flat ? row * pass_.line : part;  // of out
    const Index count = pass_.flat ? std::min(pass_.line, pass_.out_w - column)
                                   : ceil_div(pass_.out_w - part, pass_.parts);
    if (count <= 0) return;
    if (pass_.flat) {
      row = 0;
      in += column * step;
    }
    LineTaps all;
    const int taps = taps_.find(row, part, count, pass_.tap_channels * width, all);
    float* const to = out + (row * pass_.out_w + column) * kChannelBlock;
    const Index most = width > 2 * pass_.lanes ? kernels_.pixels / 2 : kernels_.pixels;
    for_tiles(count, most, 1, [&](Index begin, Index pixels, Index) {
      Nchw16cTile& tile = group.next(taps);
      tile.pixels = static_cast<int>(pixels);
      group.list(tile, all, taps, begin);
      tile.in = in + begin * step;
      tile.out = to + begin * kChannelBlock * pass_.parts;
      tile.residual = residual_ == nullptr ? nullptr : residual_ + (tile.out - out_);
      return 1;
    });
  }

  const Nchw16cTiling& pass_;
  const Conv2dProblem& z_;
  const Nchw16cKernels kernels_;
  const float* const in_;
  const float* const packed_;
  const float* const b_;
  const float* const residual_;
  const bool relu_;
  const float most_;
  float* const out_;
  const TapFinder taps_;
};

// ---- algorithm ----------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  if (z.layout == ActivationLayout::nchw) {
    return Conv2dSupport::no(
        "expects images in layout nchw16c, got [N,C,H,W], which direct accepts");
  }
  if (z.r * z.s > kMaxTaps) {
    return Conv2dSupport::no(
        cat("expects a kernel of at most ", kMaxTaps, " taps, got ", z.r, "x", z.s));
  }
  return groups_of_blocks(z);
}

// Padded output channels count as work, too. Taps outside the image are skipped.
Conv2dCost pass_cost(const Conv2dProblem& z, Direction direction) {
  const Nchw16cTiling pass(z, direction);
  const double images = number(z.n * z.groups);
  // Pairs of a pixel and a tap: a line of a 1x1 kernel without padding holds pixels of many rows.
  const double pairs = pass.flat ? number(pass.out_w) : rows_inside(z) * columns_inside(z);
  const double lines = images * number(pass.rows * pass.parts);
  const Index most = nchw16c_kernels.get().pixels / (pass.widest > 2 * pass.lanes ? 2 : 1);
  const RowTiles line_tiles(pass.line, most);
  const double tiles_of_line = number(line_tiles.tiles);
  const Index accumulators = line_tiles.height(0) * std::min(pass.widest, pass.padded) / pass.lanes;
  const double line_taps = pass.flat ? number(pass.rows) : rows_inside(z) * number(z.s);
  const double tiles = lines * tiles_of_line * number(pass.blocks);
  const Index chain = std::max<Index>(1, kSumChain / pass.tap_channels);
  const double weights = number(z.groups * pass.group_weights());
  const double chunks = number(z.groups * pass.image_chunks * pass.row_chunks);
  Conv2dCost out{
      .flops = 2 * images * pairs * number(pass.in_channels * pass.channels),
      .bytes = z.nominal_bytes(),
      .issued = 2 * images * pairs * number(pass.in_channels * pass.padded) * slots(accumulators) /
                number(accumulators),
      .loads = images * line_taps * tiles_of_line * number(pass.in_channels) *
               number(pass.padded / pass.lanes),
      .tiles = tiles,
      // Sums of more than one chain are stored and loaded again.
      .copied = images * number(pass.out_h * pass.out_w * pass.padded) *
                number(ceil_div(pass.depth * pass.taps, chain * (pass.parts * pass.row_parts)) - 1),
      .listed = images * number(pass.blocks) * line_taps * (1 + tiles_of_line),
      .cached = chunks / number(z.groups) * weights * sizeof(float),
      .prepared = weights,
      .chunks = chunks * number(pass.splits)};
  if (is_stem(z, direction)) out.schedule = "first_layer";
  return out;
}

Conv2dCost weight_cost(const Conv2dProblem& z) {
  const Nchw16cWeightTiling plan(z);
  const double pixels =
      plan.flat ? number(plan.p) : rows_inside(z) * columns_inside(z) / number(plan.taps);
  const double lanes = number(plan.lane_blocks * plan.width);
  const double rows = number(plan.row_channels);
  const double blocks = number(plan.lane_blocks * plan.row_blocks);
  const double images = number(z.n * z.groups);
  const double sums = number(z.groups * plan.slices) * lanes * rows * number(plan.taps);
  return {.flops = 2 * images * pixels * number(z.w_shape().numel() / z.groups),
          .bytes = z.nominal_bytes(),
          .issued = 2 * images * pixels * lanes * rows * number(plan.taps),
          .loads = images * pixels * blocks * number(plan.taps * plan.width / plan.lanes),
          .tiles = number(z.groups * plan.units * plan.taps) * blocks,
          .copied = sums,
          .transposed = plan.lanes_are_inputs ? 0 : number(z.w_shape().numel()),
          .listed = images * number(plan.p * plan.taps) * blocks,
          // x is read for each part of the lanes, dy for each part of the rows.
          .cached = number(z.n) * sizeof(float) *
                    (number(plan.lane_parts() * z.c * plan.h * plan.w) +
                     number(plan.row_parts() * z.k * plan.p * plan.q)),
          .regions = 2,
          .chunks = number(plan.parts() * plan.slices)};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::backward_weight ? weight_cost(z) : pass_cost(z, direction);
}

std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction) {
  if (is_stem(problem, direction)) return stem_prepared_bytes(problem);
  const Nchw16cTiling pass(problem, direction);
  return static_cast<std::size_t>(piece_floats(problem.groups * pass.group_weights())) *
         sizeof(float);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  if (is_stem(args.problem, args.direction)) return stem_prepare_weights(args);
  pack(Nchw16cTiling(args.problem, args.direction), static_cast<const float*>(args.w),
       static_cast<float*>(args.prepared));
}

void forward(const Conv2dForwardArgs& args) {
  if (is_stem(args.problem, Direction::forward)) return stem_forward(args);
  const Nchw16cTiling pass(args.problem, Direction::forward);
  Nchw16cPass(pass, static_cast<const float*>(args.x), static_cast<const float*>(args.prepared),
              static_cast<const float*>(args.b), args.epilogue, static_cast<float*>(args.y))
      .run();
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Nchw16cTiling pass(args.problem, Direction::backward_data);
  Nchw16cPass(pass, static_cast<const float*>(args.dy), static_cast<const float*>(args.prepared),
              nullptr, {}, static_cast<float*>(args.dx))
      .run();
}

const Conv2dAlgorithm kAlgorithm{
    .name = "direct_nchw16c",
    .device = DeviceType::cpu,
    .idea =
        "direct convolution of NCHW16c images: a register tile reads blocks of 16 channels in "
        "place",
    .paper =
        "Georganas et al. 2018: Anatomy of High-Performance Deep Learning Convolutions on SIMD "
        "Architectures, arXiv 1808.05567",
    .supports = with_workspace_limit<supports, workspace_bytes>,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 8,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .takes_nchw_x = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace direct_nchw16c
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::direct_nchw16c::kAlgorithm)

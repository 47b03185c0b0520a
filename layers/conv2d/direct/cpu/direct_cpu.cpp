// SPDX-License-Identifier: Apache-2.0
// direct_cpu.cpp: direct convolution. It computes the textbook's products without a matrix of
// patches, and keeps a tile of outputs in registers over the whole reduction.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of w[k,c,r,s] x[n, g C/G + c,
//            p stride_h - pad_top + r dilation_h, q stride_w - pad_left + s dilation_w], or 0
// Textbook   for n, k, p, q: y[n,k,p,q] = b[k]
//              for c, r, s: y[n,k,p,q] += w[k,c,r,s] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     Rows of x are copied once into a panel with zeros left and right. With stride > 1 each
//            row is split by column parity, so that neighbouring outputs read neighbouring floats.
//            Then a tile of outputs stays in registers over all (c, r, s), in one of two shapes. A
//            channel tile has k in the lanes and broadcasts 14 pixels; it is transposed when
//            stored. It is used for many channels, because narrow images leave no lane empty. A
//            pixel tile has q in the lanes, broadcasts weights and is stored directly. It is used
//            for short reductions and few channels: first layers and their dx. Taps above and below
//            the image are skipped. The weights are packed before the call in the order in which a
//            tile reads them (prepare_weights). backward_data runs the same loops over dy. Row h of
//            dx takes the taps with r = h + pad_top mod stride_h, and each column parity takes
//            other taps s. At the end the parities are interleaved. In backward_weight, dy is
//            transposed to k in the lanes; 14 taps (c, s) of one r broadcast pixels of x; 28
//            accumulators stay in registers over whole rows. Threads take (image, rows, output
//            channels), or (output channels, slice of N) in backward_weight.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q], f32 row-major, any alignment; f32
//            accumulators
// Supports   f32; every stride, dilation, padding and number of groups; kernels up to 1024 taps
// Cost       FLOPs = 2 N K P Q (C/G) R S less the taps above and below the image; bytes = the three
//            tensors once; workspace = a panel for each thread (backward_weight: dw in lanes for
//            each slice); compute-bound once a channel tile's lanes are full
// Numerics   one rounding per FMA, in the order of (c, r, s); backward_weight in the order of
//            pixels, with slices added in order. All sums are in chains
//            (framework/simd/sum_chain.h). Same bits on each run and for any number of threads;
//            exact on integers below 2^24
// Backward   dx assigned; dw assigned or added to (its sums start from dw)
// Choices    kPanelFloats 64 Ki: a panel has 256 KiB, and shares L2 with one block of weights.
//            Lanes hold pixels where full vectors of pixels and no transposition are faster.
//            kSlices 16: enough work for the threads when there are few output channels
// Source     E. Georganas et al.: Anatomy of High-Performance Deep Learning Convolutions on SIMD
//            Architectures, SC 2018, arXiv 1808.05567; here without JIT and for NCHW images
// Read next  im2col_gemm_cpu.cpp, the same products as a matrix product; tiles_simd.cpp, the tiles;
//            direct_nchw16c_cpu.cpp, images in blocks of 16 channels
#include <algorithm>
#include <array>

#include "framework/machine/cache_sizes.h"
#include "framework/memory/memory.h"
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/direct/cpu/direct_plan.h"
#include "layers/conv2d/shared/data_pass.h"
#include "layers/conv2d/shared/kept_plans.h"
#include "layers/conv2d/shared/tiles.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {

namespace {

using namespace direct;

// ---- weights ------------------------------------------------------------------------------------

// The channels [k, k + count) of one tile, packed to `width` lanes.
struct Block {
  Index k, count, width;
};
Block block_at(const DirectTiling& pass, Index index) {
  if (pass.by_pixels) {
    const RowTiles tiles(pass.channels, tile_kernels.get().rows);
    return {tiles.begin(index), tiles.height(index), tiles.height(index)};
  }
  const Index k = index * pass.widest();
  const Index width = pass.width_at(k);
  return {k, std::min(width, pass.channels - k), width};
}

// Returns the offset of a block in the packed weights.
Index packed_at(const DirectTiling& pass, Index g, const Block& block) {
  return (g * pass.padded_channels() + block.k) * pass.depth * pass.taps;
}

// Packs each group and block as [depth, taps, width], so that a tile reads one cache line for each
// tap of a channel.
void pack_weights(const DirectTiling& pass, const float* w, float* packed) {
  const GemmKernels& gemm = gemm_kernels.get();
  const Index sums = pass.depth * pass.taps;
  parallel_for(pass.z.groups * pass.blocks, std::max<Index>(1, 65536 / (32 * sums)),
               [&](Index begin, Index end) {
                 for (Index job = begin; job < end; ++job) {
                   const Index g = job / pass.blocks;
                   const Block block = block_at(pass, job % pass.blocks);
                   float* const to = packed + packed_at(pass, g, block);
                   if (block.count < block.width) std::fill_n(to, sums * block.width, 0.0f);
                   if (pass.forward) {
                     gemm.transpose(w + (g * pass.channels + block.k) * sums, sums, block.count,
                                    sums, to, block.width);
                     continue;
                   }
                   for (Index k = 0; k < pass.depth; ++k) {
                     gemm.transpose(
                         w + ((g * pass.depth + k) * pass.channels + block.k) * pass.taps,
                         pass.taps, block.count, pass.taps, to + k * pass.taps * block.width,
                         block.width);
                   }
                 }
               });
}

std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction) {
  return static_cast<std::size_t>(DirectTiling(problem, direction).weight_floats()) * sizeof(float);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  pack_weights(DirectTiling(args.problem, args.direction), static_cast<const float*>(args.w),
               static_cast<float*>(args.prepared));
}

// ---- forward and backward_data: one pass from `in` to `out` -------------------------------------

class DirectPass {
 public:
  DirectPass(const DirectTiling& pass, const DataPass& data)
      : pass_(pass), z_(pass.z), kernels_(tile_kernels.get()), data_(data) {}

  void run() const {
    const Index per_image = pass_.row_blocks * pass_.splits;
    parallel_chunks(z_.n * z_.groups * per_image, [&](Index chunk, int thread) {
      const Index image = chunk / per_image;  // n G + g
      const Index rows = chunk / pass_.splits % pass_.row_blocks;
      const Index split = chunk % pass_.splits;
      run_rows(image, rows * pass_.row_count, split * pass_.blocks / pass_.splits,
               (split + 1) * pass_.blocks / pass_.splits,
               data_.workspace + thread * pass_.thread_floats());
    });
  }

 private:
  void run_rows(Index image, Index row, Index block_begin, Index block_end, float* panel) const {
    const Index row_end = std::min(row + pass_.row_count, pass_.out_h);
    const Index first = pass_.first_in_row(row);
    const Index last = std::max(first, pass_.last_in_row(row_end - 1));
    RowCopy copy;
    copy.channels = pass_.depth;
    copy.rows = last - first;
    copy.width = pass_.in_w;
    copy.from_step = pass_.in_h * pass_.in_w;
    copy.phases = pass_.phases;
    copy.left = pass_.left;
    copy.columns = pass_.columns;
    copy.to_step = pass_.channel_step;
    copy.to_row = pass_.row_step;
    copy.phase_step = pass_.columns;
    kernels_.copy(copy, data_.in + image * pass_.depth * copy.from_step + first * pass_.in_w,
                  panel);
    for (Index index = block_begin; index < block_end; ++index) {
      const Block block = block_at(pass_, index);
      for (Index o = row; o < row_end; ++o) {
        Ahead ahead;
        if (index + 1 < block_end) {
          ahead =
              weights_ahead(image % z_.groups, block_at(pass_, index + 1), o - row, row_end - row);
        }
        run_row(image, o, first, block, ahead, panel);
      }
      data_.epilogue.finish(out_at(image, block, row), block.count, (row_end - row) * pass_.out_w,
                            pass_.out_h * pass_.out_w);
    }
  }

  float* out_at(Index image, const Block& block, Index row) const {
    return data_.out + ((image * pass_.channels + block.k) * pass_.out_h + row) * pass_.out_w;
  }

  // While a block is computed, the weights of the next block are prefetched from memory. Each row
  // prefetches a share of them.
  struct Ahead {
    const float* weights = nullptr;
    Index step = 0;  // floats from one channel of `in` to the next
    int lines = 0;   // lines of each channel
  };
  Ahead weights_ahead(Index g, const Block& next, Index row, Index rows) const {
    const Index step = pass_.taps * next.width;
    const Index lines = step / kLineFloats;
    const Index begin = row * lines / rows;
    return {data_.prepared + packed_at(pass_, g, next) + begin * kLineFloats, step,
            static_cast<int>((row + 1) * lines / rows - begin)};
  }

  void run_row(Index image, Index o, Index first, const Block& block, const Ahead& ahead,
               float* panel) const {
    const Index g = image % z_.groups;
    std::array<std::int32_t, kMaxTaps> x_at, w_at;
    SumTile tile;
    tile.channels = static_cast<int>(block.count);
    tile.depth = pass_.depth;
    tile.x_at = x_at.data();
    tile.w_at = w_at.data();
    tile.x_step = pass_.channel_step;
    tile.w = data_.prepared + packed_at(pass_, g, block);
    tile.w_step = pass_.taps * block.width;
    tile.start = data_.b == nullptr ? nullptr : data_.b + g * pass_.channels + block.k;
    tile.ahead = ahead.weights;
    tile.ahead_step = ahead.step;
    tile.ahead_lines = ahead.lines;
    float* const out = out_at(image, block, o);
    float* const woven = panel + pass_.panel_floats();  // [count, classes, class_w]
    for (Index group = 0; group < pass_.classes; ++group) {
      tile.taps = list_taps(o, group, first, block.width, x_at, w_at);
      const Index count = ceil_div(pass_.out_w - group, pass_.classes);
      const bool direct = pass_.classes == 1;
      tile.out_row = direct ? pass_.out_h * pass_.out_w : pass_.classes * pass_.class_w;
      run_tiles(tile, count, panel, direct ? out : woven + group * pass_.class_w, block.width);
    }
    if (pass_.classes == 1) return;
    for (Index k = 0; k < block.count; ++k) {
      kernels_.weave(woven + k * pass_.classes * pass_.class_w, pass_.class_w, pass_.out_w,
                     pass_.classes, out + k * pass_.out_h * pass_.out_w);
    }
  }

  void run_tiles(SumTile& tile, Index count, const float* panel, float* out, Index width) const {
    if (pass_.by_pixels) {
      const Index most = (2 * tile.channels <= kernels_.rows ? 4 : 2) * pass_.lanes;
      for (Index q = 0; q < count; q += most) {
        tile.pixels = static_cast<int>(std::min(most, count - q));
        tile.x = panel + q;
        tile.out = out + q;
        kernels_.pixel_tile(tile);
      }
      return;
    }
    const RowTiles tiles(count, width > 2 * pass_.lanes ? kernels_.pixels / 2 : kernels_.pixels);
    for (Index t = 0; t < tiles.tiles; ++t) {
      tile.pixels = tiles.height(t);
      tile.x = panel + tiles.begin(t);
      tile.out = out + tiles.begin(t);
      kernels_.channel_tile(tile, static_cast<int>(width));
      tile.ahead_lines = 0;  // only once in a row
    }
  }

  // For row o of `out` and the columns of one class, lists the offsets of the pixels and weights
  // that the taps read. Returns the number of taps.
  int list_taps(Index o, Index group, Index first, Index width,
                std::array<std::int32_t, kMaxTaps>& x_at,
                std::array<std::int32_t, kMaxTaps>& w_at) const {
    int count = 0;
    for (Index r = 0; r < z_.r; ++r) {
      const Index row = pass_.in_row(o, r);
      if (row < 0) continue;
      for (Index s = 0; s < z_.s; ++s) {
        Index column = s * z_.dilation_w;
        if (pass_.forward) {
          column = column % pass_.phases * pass_.columns + column / pass_.phases;
        } else {
          column = group + z_.pad_left - column;
          if (floor_div(column, pass_.classes) * pass_.classes != column) continue;
          column = floor_div(column, pass_.classes) + pass_.left;
        }
        const auto at = static_cast<std::size_t>(count++);
        x_at[at] = static_cast<std::int32_t>((row - first) * pass_.row_step + column);
        w_at[at] = static_cast<std::int32_t>((r * z_.s + s) * width);
      }
    }
    return count;
  }

  const DirectTiling& pass_;
  const Conv2dProblem& z_;
  const TileKernels kernels_;
  const DataPass data_;
};

void forward(const Conv2dForwardArgs& args) {
  const DirectTiling pass(args.problem, Direction::forward);
  DirectPass(pass, DataPass(args)).run();
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const DirectTiling pass(args.problem, Direction::backward_data);
  DirectPass(pass, DataPass(args)).run();
}

// ---- backward_weight ----------------------------------------------------------------------------

class WeightGradient : WeightRuns<DirectWeightTiling> {
 public:
  using WeightRuns::WeightRuns;

  void run() const {
    run_slices([&](Index slice, Index block, float* sums, float* panel) {
      float* const dy = panel + plan_.panel_floats();  // [rows Q, width]
      const Index g = block / plan_.blocks;
      for (Index n = slice * z_.n / plan_.slices; n < (slice + 1) * z_.n / plan_.slices; ++n) {
        for (Index p = 0; p < plan_.p; p += plan_.rows) {
          const Index p_end = std::min(p + plan_.rows, plan_.p);
          dy_to_lanes(n, block, p * plan_.q, (p_end - p) * plan_.q, dy);
          for (Index c = 0; c < plan_.channels; c += plan_.channels_at_once) {
            const Index channels = std::min(plan_.channels_at_once, plan_.channels - c);
            sum_rows(n * z_.c + g * plan_.channels + c, channels, p, p_end, panel, dy,
                     sums + c * plan_.taps * plan_.width);
          }
        }
      }
    });
  }

 private:
  // Adds the products of `channels` planes of x; `plane` is the first of them.
  void sum_rows(Index plane, Index channels, Index p_begin, Index p_end, float* panel,
                const float* dy, float* sums) const {
    const Index first = std::clamp<Index>(p_begin * z_.stride_h - z_.pad_top, 0, z_.h);
    const Index last = std::clamp<Index>(
        (p_end - 1) * z_.stride_h - z_.pad_top + (z_.r - 1) * z_.dilation_h + 1, first, z_.h);
    const float* from = x_ + plane * z_.h * z_.w + first * z_.w;
    Index row_step = z_.w;
    Index channel_step = z_.h * z_.w;
    if (!plan_.in_place) {
      row_step = plan_.columns;
      channel_step = plan_.channel_step;
      RowCopy copy;
      copy.channels = channels;
      copy.rows = last - first;
      copy.width = z_.w;
      copy.from_step = z_.h * z_.w;
      copy.left = z_.pad_left;
      copy.columns = plan_.columns;
      copy.to_step = channel_step;
      copy.to_row = row_step;
      kernels_.copy(copy, from, panel);
      from = panel;
    }
    for (Index r = 0; r < z_.r; ++r) {
      // Rows p whose tap r is inside the image.
      const Index up = z_.pad_top - r * z_.dilation_h;
      const Index p = std::max(p_begin, up <= 0 ? 0 : ceil_div(up, z_.stride_h));
      const Index end = std::min(p_end, floor_div(z_.h - 1 + up, z_.stride_h) + 1);
      if (p >= end) continue;
      WeightTile tile;
      tile.rows = end - p;
      tile.columns = plan_.q;
      tile.x_row = z_.stride_h * row_step;
      tile.x_step = z_.stride_w;
      tile.dy = dy + (p - p_begin) * plan_.q * plan_.width;
      const float* const rows = from + (p * z_.stride_h - up - first) * row_step;
      Index c = 0, s = 0;
      run_tiles(tile, channels * z_.s, [&](const float*& x, float*& to) {
        x = rows + c * channel_step + s * z_.dilation_w;
        to = sums + ((c * z_.r + r) * z_.s + s) * plan_.width;
        if (++s == z_.s) {
          s = 0;
          ++c;
        }
      });
    }
  }
};

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const DirectWeightTiling plan(args.problem);
  WeightGradient(plan, args).run();
}

// ---- algorithm ----------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& problem, Direction) {
  if (problem.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(problem.dtype)));
  }
  if (problem.r * problem.s > kMaxTaps) {
    return Conv2dSupport::no(
        cat("expects a kernel of at most ", kMaxTaps, " taps, got ", problem.r, "x", problem.s));
  }
  return {};
}

// The widest blocks come first; the last block may be narrower (width_at()).
template <class Visit>
void for_each_width(const DirectTiling& pass, const Visit& visit) {
  for (Index k = 0; k < pass.channels; k += pass.widest()) visit(pass.width_at(k));
}

// Counts of the two kinds of tiles. A row of `out` that is divided into classes has as many columns
// as all classes together, and each class uses its share of the taps.
Conv2dCost data_cost(const Conv2dProblem& z, const DirectTiling& pass) {
  const TileKernels& kernels = tile_kernels.get();
  const double rows = number(z.n * z.groups * pass.out_h);
  const double sums = number(pass.depth * pass.taps) /
                      (pass.forward ? 1.0 : number(pass.z.stride_h * pass.z.stride_w));
  const double line = number(pass.classes * pass.class_w);
  Conv2dCost out{.flops = z.nominal_flops() * rows_inside(z) / number(z.p() * z.r),
                 .bytes = z.nominal_bytes(),
                 .copied = number(z.n * z.groups * pass.row_blocks * pass.splits * pass.depth *
                                  pass.in_rows(pass.row_count) * pass.row_step),
                 .listed = rows * number(pass.classes * pass.taps * pass.blocks),
                 .prepared = number(z.w_shape().numel()),
                 .chunks = number(z.n * z.groups * pass.row_blocks * pass.splits)};
  if (pass.by_pixels) {
    const double vectors = number(pass.classes * ceil_div(pass.class_w, pass.lanes));
    out.schedule = "pixel_tiles";
    const Index channels = ceil_div(pass.channels, pass.blocks);
    const Index at_once =
        std::min<Index>(ceil_div(pass.class_w, pass.lanes), 2 * channels <= kernels.rows ? 4 : 2);
    out.issued = 2 * rows * vectors / number(at_once) * slots(at_once * channels) *
                 number(pass.lanes * pass.blocks) * sums;
    out.loads = rows * vectors * number(pass.blocks) * sums;
    out.tiles = rows * vectors * number(pass.blocks);
  } else {
    for_each_width(pass, [&](Index width) {
      const Index most = width > 2 * pass.lanes ? kernels.pixels / 2 : kernels.pixels;
      const RowTiles line_tiles(pass.class_w, most);
      const double tiles = rows * number(pass.classes * line_tiles.tiles);
      out.issued +=
          2 * tiles * sums * number(pass.lanes) * slots(line_tiles.height(0) * width / pass.lanes);
      out.loads += tiles * sums * number(width / pass.lanes);
      out.tiles += tiles;
      // The weights of a block that do not fit into L1 arrive from L2 for each tile.
      const double block = number(pass.depth * pass.taps * width) * sizeof(float);
      if (block > static_cast<double>(cache_sizes().l1)) out.cached += tiles * block;
    });
    out.transposed = rows * line * number(pass.channels);
  }
  if (pass.classes > 1) out.transposed += rows * line * number(pass.channels);
  return out;
}

// A tile has up to `rows` taps (c, s) of one r, and loads dy once for each pixel.
Conv2dCost dw_cost(const Conv2dProblem& z) {
  const DirectWeightTiling plan(z);
  const double blocks = number(z.groups * plan.blocks);
  const RowTiles taps(plan.channels * z.s, tile_kernels.get().rows);
  const double tiles = blocks * number(z.r * taps.tiles);
  const double pixels = number(z.n * plan.p * plan.q);
  const double row_blocks = number(z.n * ceil_div(plan.p, plan.rows));
  const double sums = number(plan.slices * plan.width * plan.depth) * blocks;
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = 2 * pixels * tiles * number(plan.lanes) *
                    slots(taps.height(0) * plan.width / plan.lanes),
          .loads = pixels * tiles * number(plan.width / plan.lanes),
          .tiles = tiles * row_blocks,
          .copied = sums + (plan.in_place ? 0
                                          : row_blocks * blocks * number(plan.channels) *
                                                number(plan.in_rows(plan.rows) * plan.columns)),
          .transposed = pixels * number(z.k),
          .listed = tiles * number(z.n * plan.p),
          .regions = 2,
          .chunks = number(plan.slices) * blocks};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::backward_weight ? dw_cost(z)
                                                 : data_cost(z, DirectTiling(z, direction));
}

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  if (direction == Direction::backward_weight) {
    const DirectWeightTiling plan(problem);
    return static_cast<std::size_t>(plan.sums_floats() + num_threads() * plan.thread_floats()) *
           sizeof(float);
  }
  const DirectTiling pass(problem, direction);
  return static_cast<std::size_t>(num_threads() * pass.thread_floats()) * sizeof(float);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "direct",
    .device = DeviceType::cpu,
    .idea =
        "direct convolution: a tile of accumulators stays in registers over padded rows of x, and "
        "no matrix of patches is written",
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
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace

bool direct::has_pixels_in_lanes(const Conv2dProblem& z, Direction direction) {
  if (tile_kernels.get().lanes == 1) return false;
  static KeptPlans<bool> kept;
  return *kept.get(z, direction, [&] {
    Cheapest<bool> best({"conv2d", "direct", direction}, DeviceType::cpu, z.dtype);
    for (const bool pixels : {false, true}) {
      best.offer(pixels, data_cost(z, DirectTiling(z, direction, pixels)));
    }
    return best.found();
  });
}

}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)

// SPDX-License-Identifier: Apache-2.0
// stem.cpp: forward of a network's first layer, from [N,C,H,W] to NCHW16c. Rows of x are copied
// with zeros around them, and all tiles read the copy through one list of offsets.
//
// Read next  stem.h, the plan; stem_tiles_simd.cpp, the tiles
#include "layers/conv2d/direct_nchw16c/cpu/stem.h"

#include <algorithm>

#include "framework/machine/cache_sizes.h"
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/direct_nchw16c/cpu/stem_tiles.h"
#include "layers/conv2d/shared/tiles.h"
#include "layers/conv2d/shared/weight_sums.h"

namespace convscope {

constinit IsaTable<StemKernels> stem_kernels;

namespace direct_nchw16c {
namespace {

using Index = std::int64_t;

constexpr Index kChunks = 16;  // least number for the threads, with few images

struct StemPlan {
  explicit StemPlan(const Conv2dProblem& problem)
      : z(problem),
        p(z.p()),
        q(z.q()),
        channels(z.c_per_group()),
        kernels(z.k_per_group()),
        products(channels * z.r * z.s),
        width(std::min<Index>(2 * stem_kernels.get().lanes, round_up(kernels, kChannelBlock))),
        blocks(ceil_div(round_up(kernels, kChannelBlock), width)),
        step(z.stride_w <= 2 ? z.stride_w : 1),
        phases(z.stride_w <= 2 ? 1 : z.stride_w),
        columns((q - 1) * step + (z.s - 1) * z.dilation_w / phases + 1),
        row(phases * columns) {
    // The copy takes at most a quarter of L2.
    const auto cache = static_cast<Index>(cache_sizes().l2 / sizeof(float) / 4);
    const Index fit = (cache / (channels * row) - halo()) / z.stride_h + 1;
    lines = std::clamp<Index>(fit, 1, p);
    const Index images = z.n * z.groups;
    if (z.nominal_flops() > 1e6 * kChunks && images < kChunks) {
      lines = std::min(lines, ceil_div(p, ceil_div(kChunks, images)));
    }
    chunks = ceil_div(p, lines);
    lines = ceil_div(p, chunks);
  }

  Index halo() const { return (z.r - 1) * z.dilation_h + 1; }  // rows of x for a line
  Index rows() const { return (lines - 1) * z.stride_h + halo(); }
  Index copy_floats() const { return piece_floats(channels * rows() * row); }  // for a thread
  Index list_floats() const { return piece_floats(products); }
  Index packed_floats() const { return z.groups * blocks * products * width; }

  const Conv2dProblem& z;
  Index p, q;
  Index channels, kernels, products;  // sizes of a group
  Index width, blocks;                // output channels of a tile; tiles of a group
  // The copy of x is [channels, rows, phases, columns]. With a stride above 2, phase i holds the
  // columns whose index mod stride is i, so that neighbouring pixels of y read neighbouring
  // columns. With a stride of 1 or 2 there is one phase, and a tile reads every column or every
  // other one.
  Index step, phases, columns, row;
  Index lines = 1, chunks = 1;  // lines of y of a chunk, chunks of an image
};

class Stem {
 public:
  Stem(const StemPlan& plan, const Conv2dForwardArgs& args)
      : plan_(plan),
        z_(plan.z),
        kernels_(stem_kernels.get()),
        x_(static_cast<const float*>(args.x)),
        packed_(static_cast<const float*>(args.prepared)),
        b_(static_cast<const float*>(args.b)),
        epilogue_(args.epilogue),
        list_(static_cast<std::int32_t*>(args.workspace)),
        copies_(static_cast<float*>(args.workspace) + plan.list_floats()),
        y_(static_cast<float*>(args.y)) {}

  void run() const {
    list_products();
    parallel_chunks(z_.n * z_.groups * plan_.chunks, [&](Index chunk, int thread) {
      const Index image = chunk / plan_.chunks;  // n G + g
      const Index p = chunk % plan_.chunks * plan_.lines;
      float* const copy = copies_ + thread * plan_.copy_floats();
      copy_rows(image, p * z_.stride_h - z_.pad_top, copy);
      run_lines(image, p, std::min(p + plan_.lines, plan_.p), copy);
    });
  }

 private:
  void list_products() const {
    std::int32_t* at = list_;
    for (Index r = 0; r < z_.r; ++r) {
      for (Index s = 0; s < z_.s; ++s) {
        const Index column = s * z_.dilation_w;
        for (Index c = 0; c < plan_.channels; ++c) {
          *at++ = static_cast<std::int32_t>((c * plan_.rows() + r * z_.dilation_h) * plan_.row +
                                            column % plan_.phases * plan_.columns +
                                            column / plan_.phases);
        }
      }
    }
  }

  // Copies rows [top, top + rows) of x. Some of these rows may be outside the image.
  void copy_rows(Index image, Index top, float* to) const {
    const Index begin = std::clamp<Index>(-top, 0, plan_.rows());
    const Index end = std::clamp<Index>(z_.h - top, begin, plan_.rows());
    RowCopy copy;
    copy.channels = plan_.channels;
    copy.rows = end - begin;
    copy.width = z_.w;
    copy.from_step = z_.h * z_.w;
    copy.phases = plan_.phases;
    copy.left = z_.pad_left;
    copy.columns = plan_.columns;
    copy.to_step = plan_.rows() * plan_.row;
    copy.to_row = plan_.row;
    copy.phase_step = plan_.columns;
    if (begin < end) {
      tile_kernels.get().copy(copy,
                              x_ + image * plan_.channels * copy.from_step + (top + begin) * z_.w,
                              to + begin * plan_.row);
    }
    for (Index c = 0; c < plan_.channels; ++c) {
      float* const rows = to + c * copy.to_step;
      std::fill(rows, rows + begin * plan_.row, 0.0f);
      std::fill(rows + end * plan_.row, rows + copy.to_step, 0.0f);
    }
  }

  void run_lines(Index image, Index p_begin, Index p_end, const float* copy) const {
    const Index g = image % z_.groups, n = image / z_.groups;
    const Index plane = plan_.p * plan_.q * kChannelBlock;
    const auto* const residual = static_cast<const float*>(epilogue_.residual);
    const RowTiles tiles(plan_.q, kernels_.pixels);
    StemTile tile;
    tile.products = static_cast<int>(plan_.products);
    tile.at = list_;
    tile.out_block = plane;
    tile.relu = epilogue_.relu;
    tile.most = epilogue_.most;
    for (Index block = 0; block < plan_.blocks; ++block) {
      const Index channel = block * plan_.width;  // first channel, within the group
      const Index first = g * plan_.kernels + channel;
      tile.channels = static_cast<int>(std::clamp<Index>(plan_.kernels - channel, 0, plan_.width));
      tile.w = packed_ + (g * plan_.blocks + block) * plan_.products * plan_.width;
      tile.start = b_ == nullptr || tile.channels == 0 ? nullptr : b_ + first;
      const Index out = (n * ceil_div(z_.k, kChannelBlock) + first / kChannelBlock) * plane +
                        first % kChannelBlock;
      for (Index p = p_begin; p < p_end; ++p) {
        const float* const row = copy + (p - p_begin) * z_.stride_h * plan_.row;
        for (Index t = 0, q = 0; t < tiles.tiles; ++t, q += tile.pixels) {
          tile.pixels = tiles.height(t);
          tile.in = row + q * plan_.step;
          const Index at = out + (p * plan_.q + q) * kChannelBlock;
          tile.out = y_ + at;
          tile.residual = residual == nullptr ? nullptr : residual + at;
          kernels_.tile(tile, width_of(block), static_cast<int>(plan_.step));
        }
      }
    }
  }
  // Returns how many channels of a block are stored. A tile may have more channels than the last
  // block of y.
  int width_of(Index block) const {
    const Index rest = round_up(plan_.kernels, kChannelBlock) - block * plan_.width;
    return static_cast<int>(std::min(plan_.width, rest));
  }

  const StemPlan& plan_;
  const Conv2dProblem& z_;
  const StemKernels kernels_;
  const float* const x_;
  const float* const packed_;
  const float* const b_;
  const Conv2dEpilogue epilogue_;
  std::int32_t* const list_;
  float* const copies_;
  float* const y_;
};

}  // namespace

std::size_t stem_workspace_bytes(const Conv2dProblem& problem) {
  const StemPlan plan(problem);
  return static_cast<std::size_t>(plan.list_floats() + num_threads() * plan.copy_floats()) *
         sizeof(float);
}

std::size_t stem_prepared_bytes(const Conv2dProblem& problem) {
  return static_cast<std::size_t>(StemPlan(problem).packed_floats()) * sizeof(float);
}

// Packs [group, block, (r, s), c, channels of the block], with zeros for missing channels. The last
// block is as wide as its tile.
void stem_prepare_weights(const Conv2dPrepareArgs& args) {
  const StemPlan plan(args.problem);
  const Index taps = args.problem.r * args.problem.s;
  for (Index job = 0; job < plan.z.groups * plan.blocks; ++job) {
    const Index channel = job % plan.blocks * plan.width;
    const Index width = std::min(plan.width, round_up(plan.kernels, kChannelBlock) - channel);
    const Index count = std::clamp<Index>(plan.kernels - channel, 0, width);
    const float* const from = static_cast<const float*>(args.w) +
                              (job / plan.blocks * plan.kernels + channel) * plan.products;
    float* const to = static_cast<float*>(args.prepared) + job * plan.products * plan.width;
    if (count < width) std::fill_n(to, plan.products * width, 0.0f);
    for (Index c = 0; c < plan.channels && count > 0; ++c) {
      gemm_kernels.get().transpose(from + c * taps, plan.products, count, taps, to + c * width,
                                   plan.channels * width);
    }
  }
}

void stem_forward(const Conv2dForwardArgs& args) {
  const StemPlan plan(args.problem);
  Stem(plan, args).run();
}

}  // namespace direct_nchw16c
}  // namespace convscope

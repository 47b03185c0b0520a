// SPDX-License-Identifier: Apache-2.0
// blocked_pass.cpp: forward and backward_data in the blocked layout: a tile of pixels x output
// channels stays in registers over all of its sum, and reads whole blocks of 16 channels where they
// lie.
//
// Plan       A line is a row of out (of one residue modulo stride_w in backward_data; a run of
//            pixels when the kernel is 1x1). Tiles walk along it. A tile has a list of taps, each
//            with the pixels that find it inside the image. Threads take (image, group, lines,
//            output channels).
// Cost       No copy: what is moved is the three tensors, and the weights once for each chunk of
//            lines.
// Read next  blocked_tiles_simd.cpp, the tiles; blocked_weights.cpp, dw
#include "layers/conv2d/shared/blocked_pass.h"

#include <array>

#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/shared/blocked_plan.h"

namespace convscope {

constinit IsaTable<BlockedKernels> blocked_kernels;

namespace blocked {
namespace {

constexpr Index kMostTaps = 1024;

// For each group and block of `width` channels [depth, taps, tap_channels, width], zeros where no
// channel is.
void pack(const Pass& pass, const float* w, float* packed) {
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
      for (Index c = 0; c < depth; ++c) {
        const Index inner = d * kChannelBlock + c;
        // Rows: output channels of the pass; columns: the taps of one pair of channels.
        const Index k = pass.forward ? g * pass.channels + first : g * pass.in_channels + inner;
        const Index channel = pass.forward ? inner : first;
        const float* const from = w + (k * z.c_per_group() + channel) * pass.taps;
        const Index row = pass.forward ? z.c_per_group() * pass.taps : pass.taps;
        gemm.transpose(from, row, count, pass.taps, to + c * width, pass.tap_channels * width);
      }
    }
  });
}

class Convolution {
 public:
  Convolution(const Pass& pass, const float* in, const float* packed, const float* b,
              const Conv2dEpilogue& epilogue, float* out)
      : pass_(pass),
        z_(pass.z),
        kernels_(blocked_kernels.get()),
        in_(in),
        packed_(packed),
        b_(b),
        residual_(static_cast<const float*>(epilogue.residual)),
        relu_(epilogue.relu),
        most_(epilogue.most),
        out_(out) {}

  void run() const {
    const Index per_image = pass_.line_chunks * pass_.splits;
    parallel_chunks(z_.n * z_.groups * per_image, [&](Index chunk, int) {
      const Index image = chunk / per_image;  // n G + g
      const Index line = chunk / pass_.splits % pass_.line_chunks * pass_.lines_at_once;
      const Index split = chunk % pass_.splits;
      const Index block_end = (split + 1) * pass_.blocks / pass_.splits;
      for (Index block = split * pass_.blocks / pass_.splits; block < block_end; ++block) {
        run_block(image, block, line, std::min(line + pass_.lines_at_once, pass_.lines));
      }
    });
  }

 private:
  using Taps = std::array<BlockedTap, kMostTaps>;

  // One block of output channels of some lines.
  void run_block(Index image, Index block, Index line, Index line_end) const {
    const Index g = image % z_.groups;
    const Index n = image / z_.groups;
    const Index channel = block * pass_.widest;  // of the group
    const Index first = g * pass_.channels + channel;
    const Index width = pass_.width_at(channel);
    BlockedTile tile;
    tile.depth = pass_.depth;
    tile.in_block = pass_.in_plane();
    tile.last = pass_.last_channels();
    tile.in_channel = pass_.in_channel_step;
    tile.in_step = pass_.in_pixel * (pass_.forward ? z_.stride_w : 1);
    tile.w_block = pass_.taps * pass_.tap_channels * width;
    tile.out_block = pass_.out_plane();
    tile.out_step = kChannelBlock * pass_.classes;
    if (b_ != nullptr) {
      tile.start = b_ + first;
      tile.starts = static_cast<int>(std::clamp<Index>(pass_.channels - channel, 0, width));
    }
    tile.relu = relu_;
    tile.most = most_;
    const float* const in = in_ + pass_.in_group(n, g);
    const float* const w = packed_ + g * pass_.group_weights() +
                           channel * pass_.depth * pass_.taps * pass_.tap_channels;
    float* const out = out_ + (n * pass_.out_blocks() + first / kChannelBlock) * pass_.out_plane() +
                       first % kChannelBlock;
    Taps all, here;
    tile.tap = here.data();
    tile.w = w;
    for (; line < line_end; ++line) {
      const Index row = line / pass_.lines_of_row;
      const Index part = line % pass_.lines_of_row;
      const bool runs = pass_.classes == 1;  // parts are runs of pixels, else residues
      const Index count = runs ? std::min(pass_.line, pass_.out_w - part * pass_.line)
                               : ceil_div(pass_.out_w - part, pass_.classes);
      if (count <= 0) continue;
      const Index column = runs ? part * pass_.line : part;  // of out
      const int taps = list_taps(row, column, count, tile.in_step, width, all);
      float* const to = out + (row * pass_.out_w + column) * kChannelBlock;
      const RowTiles tiles(count, width > 2 * pass_.lanes ? kernels_.pixels / 2 : kernels_.pixels);
      // As tiles.begin(t) and height(t), without their divisions in each tile.
      const Index height = count / tiles.tiles;
      const Index higher = count % tiles.tiles;
      Index begin = 0;
      for (Index t = 0; t < tiles.tiles; ++t, begin += tile.pixels) {
        tile.pixels = static_cast<int>(height + (t < higher ? 1 : 0));
        tile.taps = 0;
        for (int i = 0; i < taps; ++i) {
          BlockedTap& tap = here[static_cast<std::size_t>(tile.taps)];
          tap = all[static_cast<std::size_t>(i)];
          tap.first = static_cast<int>(std::clamp<Index>(tap.first - begin, 0, tile.pixels));
          tap.end = static_cast<int>(std::clamp<Index>(tap.end - begin, 0, tile.pixels));
          if (tap.first < tap.end) ++tile.taps;
        }
        tile.in = in + begin * tile.in_step;
        tile.out = to + begin * tile.out_step;
        tile.residual = residual_ == nullptr ? nullptr : residual_ + (tile.out - out_);
        kernels_.tile(tile, static_cast<int>(width));
      }
    }
  }

  // The taps of `count` pixels of out from (row, column) on, each with the pixels that it serves.
  int list_taps(Index row, Index column, Index count, Index step, Index width, Taps& taps) const {
    const Index steps = step / pass_.in_pixel;  // columns of `in` from one pixel to the next
    int found = 0;
    for (Index r = 0; r < z_.r; ++r) {
      Index h = pass_.forward ? row * z_.stride_h - z_.pad_top + r * z_.dilation_h
                              : row + z_.pad_top - r * z_.dilation_h;
      if (!pass_.forward) {
        if (h < 0 || h % z_.stride_h != 0) continue;
        h /= z_.stride_h;
      }
      if (h < 0 || h >= pass_.in_h) continue;
      for (Index s = 0; s < z_.s; ++s) {
        Index at = pass_.forward ? column * z_.stride_w - z_.pad_left + s * z_.dilation_w
                                 : column + z_.pad_left - s * z_.dilation_w;
        if (!pass_.forward) {
          if (floor_div(at, z_.stride_w) * z_.stride_w != at) continue;
          at = floor_div(at, z_.stride_w);
        }
        const Index first = at >= 0 ? 0 : ceil_div(-at, steps);
        const Index end = std::min(count, floor_div(pass_.in_w - 1 - at, steps) + 1);
        if (first >= end) continue;
        taps[static_cast<std::size_t>(found++)] = {.in = (h * pass_.in_w + at) * pass_.in_pixel,
                                                   .w = (r * z_.s + s) * pass_.tap_channels * width,
                                                   .first = static_cast<int>(first),
                                                   .end = static_cast<int>(end)};
      }
    }
    return found;
  }

  const Pass& pass_;
  const Conv2dProblem& z_;
  const BlockedKernels kernels_;
  const float* const in_;
  const float* const packed_;
  const float* const b_;
  const float* const residual_;
  const bool relu_;
  const float most_;
  float* const out_;
};

}  // namespace

Conv2dSupport supports(const Conv2dProblem& z) {
  if (z.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  if (z.r * z.s > kMostTaps) {
    return Conv2dSupport::no(
        cat("expects a kernel of at most ", kMostTaps, " taps, got ", z.r, "x", z.s));
  }
  if (z.groups > 1 &&
      (z.c_per_group() % kChannelBlock != 0 || z.k_per_group() % kChannelBlock != 0)) {
    return Conv2dSupport::no(
        cat("expects groups of a multiple of 16 channels in the blocked layout, got ", z.groups,
            " groups of ", z.c_per_group(), " and ", z.k_per_group()));
  }
  return {};
}

// The share of the peak is that of full tiles; output channels of zeros are summed too. A tap of
// few channels pays for its loop.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  double share = 0.93;
  const auto filled = [](Index channels) {
    return static_cast<double>(channels) / static_cast<double>(round_up(channels, kChannelBlock));
  };
  if (direction == Direction::backward_weight) {
    share = 0.84 * filled(z.k_per_group());
  } else {
    const Pass pass(z, direction);
    const auto per_tap = static_cast<double>(pass.tap_channels);
    share *= filled(pass.channels) * per_tap / (per_tap + 0.3) * 16.3 / 16;
    const Index most = blocked_kernels.get().pixels / (pass.widest > 2 * pass.lanes ? 2 : 1);
    const RowTiles tiles(pass.line, most);
    const double height = static_cast<double>(pass.line) / static_cast<double>(tiles.tiles);
    share *= height / (height + 0.3);
  }
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .peak_share = share_beside(z.nominal_flops(), share, 500)};
}

std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction) {
  const Pass pass(problem, direction);
  return static_cast<std::size_t>(piece_floats(problem.groups * pass.group_weights())) *
         sizeof(float);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  pack(Pass(args.problem, args.direction), static_cast<const float*>(args.w),
       static_cast<float*>(args.prepared));
}

void forward(const Conv2dForwardArgs& args) {
  const Pass pass(args.problem, Direction::forward);
  Convolution(pass, static_cast<const float*>(args.x), static_cast<const float*>(args.prepared),
              static_cast<const float*>(args.b), args.epilogue, static_cast<float*>(args.y))
      .run();
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Pass pass(args.problem, Direction::backward_data);
  Convolution(pass, static_cast<const float*>(args.dy), static_cast<const float*>(args.prepared),
              nullptr, {}, static_cast<float*>(args.dx))
      .run();
}

}  // namespace blocked
}  // namespace convscope

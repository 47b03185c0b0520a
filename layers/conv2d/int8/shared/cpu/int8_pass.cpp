// SPDX-License-Identifier: Apache-2.0
// int8_pass.cpp: the steps of a convolution on int8 values: packing of the weights, conversion of x
// to bytes, and the loop over tiles.
#include "layers/conv2d/int8/shared/cpu/int8_pass.h"

#include <array>
#include <cstring>

#include "framework/ops/codes/codes_simd.h"
#include "framework/ops/gemm/gemm_kernels.h"

namespace convscope::int8 {

Conv2dSupport supports_shape(const Conv2dProblem& z) {
  if (z.r * z.s > kMaxTaps) {
    return Conv2dSupport::no(
        cat("expects a kernel of at most ", kMaxTaps, " taps, got ", z.r, "x", z.s));
  }
  if (z.groups > 1 &&
      (z.c_per_group() % kChannelBlock != 0 || z.k_per_group() % kChannelBlock != 0)) {
    return Conv2dSupport::no(cat("expects groups of a multiple of 16 channels, got ", z.groups,
                                 " groups of ", z.c_per_group(), " and ", z.k_per_group()));
  }
  return {};
}

// ---- weights ------------------------------------------------------------------------------------

bool place_of(const Int8Plan& plan, Index d, Index t, Index byte, WeightPlace& out) {
  const Conv2dProblem& z = plan.z;
  out.r = t / plan.x.taps_s;
  out.s = t % plan.x.taps_s;
  out.c = d * kChannelBlock + byte;
  if (plan.x.from == Int8Source::rows && plan.x.taps_s == 1) {  // a whole row of the kernel
    out.s = byte / z.c;
    out.c = byte % z.c;
    return out.s < z.s;
  }
  return out.c < z.c_per_group();
}

void put_weight(const Int8Plan& plan, Index k, Index i, std::int8_t weight, std::int8_t* to) {
  if (plan.weight_bytes == kQuad) {
    to[kQuad * k + i] = weight;
    return;
  }
  // Without VNNI, weights are spread to 16 bits: one vector has weights 0 and 2 of the quads of all
  // lanes, the next vector weights 1 and 3.
  const Index vector = k / plan.lanes, lane = k % plan.lanes;
  const Index place = ((2 * vector + i % 2) * plan.lanes + lane) * 2 + i / 2;
  const std::int16_t wide = weight;
  std::memcpy(to + 2 * place, &wide, sizeof(wide));
}

namespace {

std::size_t weights_bytes(const Int8Plan& plan) {
  return ScratchArena::round_up(static_cast<std::size_t>(plan.z.groups * plan.packed_group()));
}

}  // namespace

std::size_t packed_bytes(const Int8Plan& plan) {
  return weights_bytes(plan) + static_cast<std::size_t>(plan.channels()) * sizeof(std::int32_t);
}

void pack_weights(const Int8Plan& plan, const std::int8_t* w, std::int8_t* packed) {
  const Conv2dProblem& z = plan.z;
  const Index kernel = z.c_per_group() * z.r * z.s;
  auto* const totals = reinterpret_cast<std::int32_t*>(packed + weights_bytes(plan));
  std::fill_n(totals, plan.channels(), 0);
  parallel_for(z.groups * plan.blocks, 1, [&](Index at, Index) {
    const Index g = at / plan.blocks;
    const Index channel = at % plan.blocks * plan.widest;
    const Index width = plan.width_at(channel);
    std::int8_t* to = packed + g * plan.packed_group() + plan.packed(channel);
    for (Index d = 0; d < plan.x.depth; ++d) {
      const Index quads = plan.packed_tap(width) / (width * plan.weight_bytes);
      for (Index t = 0; t < plan.taps; ++t) {
        for (Index q = 0; q < quads; ++q, to += width * plan.weight_bytes) {
          for (Index k = 0; k < width; ++k) {
            for (Index i = 0; i < kQuad; ++i) {
              WeightPlace from;
              const bool exists =
                  place_of(plan, d, t, kQuad * q + i, from) && channel + k < z.k_per_group();
              const std::int8_t weight = exists ? w[(g * z.k_per_group() + channel + k) * kernel +
                                                    (from.c * z.r + from.r) * z.s + from.s]
                                                : std::int8_t{0};
              totals[g * plan.padded + channel + k] += weight;
              put_weight(plan, k, i, weight, to);
            }
          }
        }
      }
    }
  });
}

const std::int32_t* totals_of(const Int8Plan& plan, const std::int8_t* packed) {
  return reinterpret_cast<const std::int32_t*>(packed + weights_bytes(plan));
}

void make_starts(const Int8Plan& plan, const std::int32_t* totals, std::int32_t offset,
                 std::int32_t* starts) {
  for (Index k = 0; k < plan.channels(); ++k) starts[k] = -offset * totals[k];
}

// ---- x ------------------------------------------------------------------------------------------

void copy_images(const Int8Plan& plan, const Conv2dForwardArgs& args, std::uint8_t* copy) {
  const Conv2dProblem& z = plan.z;
  const auto offset = static_cast<std::uint8_t>(offset_of(args));
  const bool rows = plan.x.from == Int8Source::rows;
  const Index blocks = rows ? 1 : ceil_div(z.c, kChannelBlock);
  const CodeKernels codes = code_kernels.get();
  parallel_for(z.n * blocks * plan.x.h, 8, [&](Index begin, Index end) {
    for (Index at = begin; at < end; ++at) {
      const Index plane = at / plan.x.h, padded_row = at % plan.x.h;
      std::uint8_t* const to = copy + plane / blocks * plan.x.image +
                               plane % blocks * plan.x.block + padded_row * plan.x.row;
      const Index h = padded_row - z.pad_top;
      if (h < 0 || h >= z.h) {
        std::memset(to, offset, static_cast<std::size_t>(plan.x.row));
        continue;
      }
      const Index left = z.pad_left * plan.x.pixel, inside = z.w * plan.x.pixel;
      std::memset(to, offset, static_cast<std::size_t>(left));
      std::memset(to + left + inside, offset, static_cast<std::size_t>(plan.x.row - left - inside));
      if (!rows) {
        const auto* const from = static_cast<const std::uint8_t*>(args.x);
        codes.flip(from + (plane * z.h + h) * inside, inside, to + left);
        continue;
      }
      const auto* const from = static_cast<const float*>(args.x);
      codes.round({.channels = static_cast<int>(z.c),
                   .pixels = z.w,
                   .plane = z.h * z.w,
                   .from = from + (plane * z.c * z.h + h) * z.w,
                   .step = args.views.x.scale(0),
                   .low = args.views.x.low,
                   .high = args.views.x.high,
                   .offset = offset,
                   .pixel = z.c,
                   .to = to + left});
    }
  });
}

// ---- tiles --------------------------------------------------------------------------------------

namespace {

struct TileRun {
  const std::uint8_t* x;  // the copy, or the tensor itself
  const Int8Weights& weights;
  const std::int32_t* starts;
  const Int8Outputs& outputs;
  const void* residual;
  void* y;
};

class Int8Pass {
 public:
  Int8Pass(const Int8Plan& plan, const TileRun& run)
      : plan_(plan),
        z_(plan.z),
        kernels_(int8_kernels.get()),
        sparse_kernels_(int8_sparse_kernels.get()),
        run_(run),
        taps_{.z = z_,
              .forward = true,
              .whole = plan.flat || plan.by_image,
              .taps_s = plan.x.taps_s,
              .pad_top = plan.x.pad_top,
              .pad_left = plan.x.pad_left,
              .in_h = plan.x.h,
              .in_w = plan.x.w,
              .pixel = plan.x.pixel} {}

  void run() const {
    plan_.for_blocks(
        [&](const Pixels& pixels, Index g, Index block) { run_block(pixels, g, block); });
  }

 private:
  using Pixels = nchw16c::Pixels;
  struct Taps {
    nchw16c::LineTaps of_line;
    std::array<Int8Tap, kMaxTaps> of_tile;
  };

  // Computes one block of output channels of some pixels.
  void run_block(const Pixels& pixels, Index g, Index block) const {
    const Index channel = block * plan_.widest;  // first channel, within the group
    const Index width = plan_.width_at(channel);
    const Index first = g * z_.k_per_group() + channel;
    Int8Tiles tiles;
    tiles.depth = plan_.x.depth;
    tiles.quads = plan_.x.quads;
    tiles.last_quads = plan_.x.last_quads;
    tiles.in_block = plan_.x.block;
    tiles.in_step = plan_.by_image ? plan_.x.image
                    : plan_.flat   ? plan_.x.pixel
                                   : plan_.x.pixel * z_.stride_w;
    Int8Entries entries = run_.weights.entries;
    if (plan_.sparse) {
      entries.segment += (g * plan_.blocks + block) * plan_.taps;
    } else {
      tiles.w = run_.weights.packed + g * plan_.packed_group() + plan_.packed(channel);
      tiles.w_block = plan_.taps * plan_.packed_tap(width);
    }
    tiles.start = run_.starts + g * plan_.padded + channel;
    tiles.channel = g * plan_.padded + channel;
    tiles.out_block = plan_.out_plane();
    tiles.out_step = plan_.by_image ? plan_.out_image() : kChannelBlock;
    tiles.outputs = &run_.outputs;
    Taps taps;
    const Index in_group = g * z_.c_per_group() / kChannelBlock * plan_.x.block;
    const Index out_group = first / kChannelBlock * plan_.out_plane() + first % kChannelBlock;
    for (Index n = pixels.image; n < pixels.image_end; ++n) {
      const Index in = n * plan_.x.image + in_group;
      const Index out = n * plan_.out_image() + out_group;
      for (Index row = pixels.row; row < pixels.row_end; ++row) {
        run_line(tiles, entries, width, in, out, row, taps);
      }
    }
  }

  void run_line(const Int8Tiles& tiles, const Int8Entries& entries, Index width, Index in,
                Index out, Index row, Taps& taps) const {
    const bool run_of_all = plan_.flat || plan_.by_image;
    const Index column = run_of_all ? row * plan_.line : 0;
    const Index count = std::min(plan_.line, plan_.columns - column);
    const Index last = run_of_all ? 0 : row;
    const Index tap_weights = plan_.sparse ? 1 : plan_.packed_tap(width);
    const int found = taps_.find(last, 0, count, tap_weights, taps.of_line);
    in += column * tiles.in_step;
    out += (run_of_all ? 0 : row * z_.q() * kChannelBlock) + column * tiles.out_step;
    const Index bytes = run_.outputs.codes ? 1 : 4;
    const Index beside = run_.outputs.residual_type == Int8Outputs::Residual::floats ? 4 : 1;
    // All taps apply to pixels [all_begin, all_end).
    Index all_begin = 0, all_end = plan_.sparse ? 0 : count;
    for (int i = 0; i < found; ++i) {
      const nchw16c::LineTap& tap = taps.of_line[static_cast<std::size_t>(i)];
      all_begin = std::max(all_begin, tap.first);
      all_end = std::min(all_end, tap.end);
    }
    const Index most = plan_.most_pixels(width);
    nchw16c::for_tiles(count, most, plan_.unit, [&](Index begin, Index pixels, Index alike) {
      Int8Tile tile;
      tile.pixels = static_cast<int>(pixels);
      tile.repeat = begin < all_begin ? 1 : std::clamp<Index>((all_end - begin) / pixels, 1, alike);
      tile.taps = nchw16c::taps_of_tile(taps.of_line, found, begin, pixels, taps.of_tile.data());
      tile.tap = taps.of_tile.data();
      tile.in = run_.x + in + begin * tiles.in_step;
      const Index at = out + begin * tiles.out_step;
      tile.out = static_cast<std::uint8_t*>(run_.y) + at * bytes;
      tile.residual = run_.residual == nullptr
                          ? nullptr
                          : static_cast<const std::uint8_t*>(run_.residual) + at * beside;
      if (plan_.sparse) {
        sparse_kernels_.tile(tiles, tile, entries);
      } else {
        kernels_.tile(tiles, tile, static_cast<int>(width));
      }
      return tile.repeat;
    });
  }

  const Int8Plan& plan_;
  const Conv2dProblem& z_;
  const Int8Kernels kernels_;
  const Int8SparseKernels sparse_kernels_;
  const TileRun& run_;
  const nchw16c::TapFinder taps_;
};

// Layout of the workspace.
struct Memory {
  explicit Memory(const Int8Plan& plan)
      : copy(ScratchArena::round_up(plan.copy_bytes())),
        factors(ScratchArena::round_up(OutputFactors::bytes(plan.channels()))),
        starts(static_cast<std::size_t>(plan.channels()) * sizeof(std::int32_t)) {}
  std::size_t copy, factors, starts;
};

}  // namespace

std::size_t pass_bytes(const Int8Plan& plan) {
  const Memory memory(plan);
  return memory.copy + memory.factors + ScratchArena::round_up(memory.starts);
}

void run_pass(const Int8Plan& plan, const Conv2dForwardArgs& args, const Int8Weights& weights) {
  const Memory memory(plan);
  auto* const copy = static_cast<std::uint8_t*>(args.workspace);
  const OutputFactors factors(args, plan.padded, plan.channels(), copy + memory.copy);
  auto* const starts = reinterpret_cast<std::int32_t*>(copy + memory.copy + memory.factors);
  make_starts(plan, weights.totals, offset_of(args), starts);
  const bool in_place = plan.x.from == Int8Source::in_place;
  if (!in_place) copy_images(plan, args, copy);
  Int8Pass(plan, {.x = in_place ? static_cast<const std::uint8_t*>(args.x) : copy,
                  .weights = weights,
                  .starts = starts,
                  .outputs = factors.outputs(),
                  .residual = args.epilogue.residual,
                  .y = args.y})
      .run();
}

}  // namespace convscope::int8

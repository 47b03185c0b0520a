// SPDX-License-Identifier: Apache-2.0
// int8_chain_int8_simd.cpp: one convolution of a chain on int8 values with its 2x2 max-pool, for
// one image (int8_chain_stage.h describes what the lanes hold).
//
// Choices    columns: 2 rows x 2 vectors of columns x 6 channels = 24 accumulators + 4 registers of
//            x + 1 of weights, of 32 (AVX-512 with VNNI). 24 products need 4 loads of x, which
//            cross cache lines, and 6 of weights. With 16 registers a tile has 2 channels. Where x
//            and weights take two registers each, it has 4 and 1.
//            channels: 2 rows x 12 columns x 1 vector = 24 accumulators + 1 + 1 (2 x 6 with 16
//            registers): 24 broadcasts and one load for 24 products. An accumulator is ready again
//            after 5 cycles, so 10 of them suffice.
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
// Read next  int8_chain.cpp, tiling and packing
#include "layers/conv2d/int8/int8_chain/cpu/int8_chain_stage.h"
#include "layers/conv2d/int8/shared/cpu/int8_outputs.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kGroup = kManyRegisters ? (kSpread ? 4 : 6) : (kSpread ? 1 : 2);
// Pooled columns of y in a tile of channels.
constexpr int kPooled = kManyRegisters ? (kSpread ? 5 : 6) : (kSpread ? 2 : 3);
constexpr int kBlock = 16;

// ---- columns in the lanes -----------------------------------------------------------------------

void make_quads(const Int8Stage& z, const std::uint8_t* x, std::uint8_t* quads) {
  for (Index plane = 0; plane < z.planes; ++plane) {
    const Index* const from = z.plane_from + 4 * plane;
    for (Index h = 0; h < z.plane_rows; ++h) {
      const std::uint8_t* const row = x + h * z.w;
      for (Index w = 0; w < z.plane_pitch; w += kBlock, quads += 4 * kBlock) {
        const std::uint8_t* const rows[4] = {row + w + from[0], row + w + from[1],
                                             row + w + from[2], row + w + from[3]};
        weave_rows(rows, quads);
      }
    }
  }
}

// Rounds one vector of sums of channel k in double. Called where f32 is too close to a tie.
[[gnu::noinline]] void round_exactly(const Int8Outputs& o, Index k, Ints sums, std::uint8_t* to) {
  std::int32_t kept[kLanes];
  store_ints(kept, sums);
  for (int l = 0; l < kLanes; ++l) to[l] = exact_code(o, k, kept[l], 0);
}

CONVSCOPE_INLINE void round_channel(const Int8Outputs& o, Index k, Ints sums, std::uint8_t* to) {
  const Ints fixed =
      round_to_ints(fma(to_floats(sums), broadcast(o.scale[k]), broadcast(o.shift[k])));
  if (__builtin_expect(lanes_up_to(fixed, o.unsure) != 0, 0)) {
    return round_exactly(o, k, sums, to);
  }
  const Ints four[4] = {fixed, fixed, fixed, fixed};
  store_bytes(to, kLanes, CodeBytes(o)(four), 1);
}

// Computes the codes of kLanes columns of a row of y, for `Channels` channels from k on.
template <int Channels>
void run_columns(const Int8Stage& z, const std::uint8_t* quads, const std::int8_t* w, Index k,
                 std::uint8_t* line) {
  const Index row = 4 * z.plane_pitch;
  Ints sums[Channels][4];
#pragma GCC unroll 6
  for (int i = 0; i < Channels; ++i) {
    const Ints start = set_ints(z.start[k + i]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[i][j] = start;
  }
#pragma GCC unroll 1
  for (Index t = 0; t < z.taps; ++t, w += Channels * kWeightBytes) {
    const std::uint8_t* const from = quads + z.tap[t];
    const Quad x[4] = {load_quads(from), load_quads(from + 4 * kLanes), load_quads(from + row),
                       load_quads(from + row + 4 * kLanes)};
#pragma GCC unroll 6
    for (int i = 0; i < Channels; ++i) {
      const WeightQuad weights = broadcast_weights(w + i * kWeightBytes);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[i][j] = dot(sums[i][j], x[j], weights);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Channels; ++i) {
    const Ints fall = set_ints(z.falls == nullptr ? 0 : z.falls[k + i]);
    const Ints left = larger(sums[i][0] ^ fall, sums[i][2] ^ fall);
    const Ints right = larger(sums[i][1] ^ fall, sums[i][3] ^ fall);
    const Ints largest = larger(even_lanes(left, right), odd_lanes(left, right)) ^ fall;
    round_channel(*z.outputs, k + i, largest, line + i * z.line_pitch);
  }
}

using RunColumns = void (*)(const Int8Stage&, const std::uint8_t*, const std::int8_t*, Index,
                            std::uint8_t*);
template <int Channels>
constexpr RunColumns columns_of() {
  if constexpr (Channels <= kGroup) {
    return run_columns<Channels>;
  } else {
    return nullptr;
  }
}
constexpr RunColumns kRunColumns[6] = {columns_of<1>(), columns_of<2>(), columns_of<3>(),
                                       columns_of<4>(), columns_of<5>(), columns_of<6>()};

// Stores `count` channels of a row. A line holds the codes of one channel; they are transposed to
// pixels, `step` bytes apart.
void store_pixels(const Int8Stage& z, const std::uint8_t* line, Index count, Index step,
                  std::uint8_t* to) {
  std::uint8_t woven[4 * kBlock];
  for (Index k = 0; k < count; k += 4) {
    const std::uint8_t* const from = line + k * z.line_pitch;
    for (Index q = 0; q < z.q; q += kBlock) {
      const std::uint8_t* const rows[4] = {from + q, from + q + z.line_pitch,
                                           from + q + 2 * z.line_pitch,
                                           from + q + 3 * z.line_pitch};
      weave_rows(rows, woven);
      const Index end = z.q - q < kBlock ? z.q - q : kBlock;
      std::uint8_t* out = to + q * step + k;
      if (count - k >= 4) {
        for (Index j = 0; j < end; ++j, out += step) __builtin_memcpy(out, woven + 4 * j, 4);
      } else if (count - k == 2) {
        for (Index j = 0; j < end; ++j, out += step) __builtin_memcpy(out, woven + 4 * j, 2);
      } else {
        for (Index j = 0; j < end; ++j, out += step) {
          for (Index i = 0; i < count - k; ++i) out[i] = woven[4 * j + i];
        }
      }
    }
  }
}

void run_columns_of_image(const Int8Stage& z, const std::uint8_t* x, std::uint8_t* quads,
                          std::uint8_t* line, std::uint8_t* y) {
  make_quads(z, x, quads);
  for (Index p = 0; p < z.p; ++p, y += z.y_row) {
    const std::uint8_t* const rows = quads + 2 * p * 4 * z.plane_pitch;
    const std::int8_t* w = z.weights;
    for (Index k = 0; k < z.k; k += kGroup) {
      const int channels = z.k - k < kGroup ? static_cast<int>(z.k - k) : kGroup;
      for (Index q = 0; q < z.q; q += kLanes) {
        kRunColumns[channels - 1](z, rows + 2 * q * 4, w, k, line + k * z.line_pitch + q);
      }
      w += channels * z.taps * kWeightBytes;
    }
    if (z.y_form == Int8Stage::Form::planes) {
      for (Index k = 0; k < z.k; ++k) {
        __builtin_memcpy(y + k * z.y_plane, line + k * z.line_pitch,
                         static_cast<unsigned long>(z.q));
      }
    } else if (z.y_form == Int8Stage::Form::pixels) {
      store_pixels(z, line, z.k, z.k, y);
    } else {
      for (Index k = 0; k < z.k; k += kBlock) {
        store_pixels(z, line + k * z.line_pitch, kBlock, kBlock, y + k / kBlock * z.y_plane);
      }
    }
  }
}

// ---- channels in the lanes ----------------------------------------------------------------------

// Computes pooled pixels of kLanes channels, `out_step` bytes apart.
template <int Pooled>
void run_channels(const Int8Stage& z, const std::uint8_t* x, const std::int8_t* w, Index k,
                  std::uint8_t* out, Index out_step) {
  constexpr int kColumns = 2 * Pooled;
  const Index row = z.w * z.c, step = z.c;
  Ints sums[2][kColumns];
  const Ints start = load_ints(z.start + k);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kColumns; ++j) sums[i][j] = start;
  }
#pragma GCC unroll 1
  for (Index r = 0; r < z.r; ++r, x += row) {
    const std::uint8_t* in = x;
#pragma GCC unroll 1
    for (Index quad = 0; quad < z.row_quads; ++quad, in += 4, w += kLanes * kWeightBytes) {
      const WeightQuad weights = load_weights(w);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const std::uint8_t* base = in + i * row;
#pragma GCC unroll 12
        for (int j = 0; j < kColumns; ++j) {
          if (j > 0 && j % 3 == 0) base += 3 * step;
          sums[i][j] = dot(sums[i][j], broadcast_quad(base + j % 3 * step), weights);
        }
      }
    }
  }
  const Ints fall = z.falls == nullptr ? set_ints(0) : load_ints(z.falls + k);
  alignas(64) std::int32_t kept[Pooled * kLanes];
#pragma GCC unroll 6
  for (int j = 0; j < Pooled; ++j) {
    const Ints upper = larger(sums[0][2 * j] ^ fall, sums[0][2 * j + 1] ^ fall);
    const Ints lower = larger(sums[1][2 * j] ^ fall, sums[1][2 * j + 1] ^ fall);
    store_ints(kept + j * kLanes, larger(upper, lower) ^ fall);
  }
  const ChannelOutputs<OutputKind<true, Int8Outputs::Residual::none>> outputs(*z.outputs, k);
  outputs.store(kept, Pooled, nullptr, out, 0, out_step);
}

using RunChannels = void (*)(const Int8Stage&, const std::uint8_t*, const std::int8_t*, Index,
                             std::uint8_t*, Index);
template <int Pooled>
constexpr RunChannels channels_of() {
  if constexpr (Pooled <= kPooled) {
    return run_channels<Pooled>;
  } else {
    return nullptr;
  }
}
constexpr RunChannels kRunChannels[6] = {channels_of<1>(), channels_of<2>(), channels_of<3>(),
                                         channels_of<4>(), channels_of<5>(), channels_of<6>()};

void run_channels_of_image(const Int8Stage& z, const std::uint8_t* x, std::uint8_t* line,
                           std::uint8_t* y) {
  const bool packs = z.y_form == Int8Stage::Form::pixels;
  const Index vector = z.r * z.row_quads * kLanes * kWeightBytes;
  const Index tiles = (z.q + kPooled - 1) / kPooled;
  const Index padded = (z.k + kBlock - 1) / kBlock * kBlock;
  for (Index p = 0; p < z.p; ++p, y += z.y_row) {
    const std::uint8_t* const rows = x + 2 * p * z.w * z.c;
    const std::int8_t* w = z.weights;
    for (Index k = 0; k < padded; k += kLanes, w += vector) {
      std::uint8_t* const to = packs ? line + k % kBlock : y + k / kBlock * z.y_plane + k % kBlock;
      Index q = 0;
      for (Index t = 0; t < tiles; ++t) {  // of nearly equal width
        const int count = static_cast<int>(z.q / tiles + (t < z.q % tiles ? 1 : 0));
        kRunChannels[count - 1](z, rows + 2 * q * z.c, w, k, to + q * kBlock, kBlock);
        q += count;
      }
      if (!packs || (k + kLanes) % kBlock != 0) continue;  // a block is complete
      const Index block = k / kBlock * kBlock;
      const Index count = z.k - block < kBlock ? z.k - block : kBlock;
      for (Index j = 0; j < z.q; ++j) {
        __builtin_memcpy(y + j * z.k + block, line + j * kBlock, static_cast<unsigned long>(count));
      }
    }
  }
}

void run(const Int8Stage& z, const std::uint8_t* x, std::uint8_t* quads, std::uint8_t* line,
         std::uint8_t* y) {
  if (z.columns) {
    run_columns_of_image(z, x, quads, line, y);
  } else {
    run_channels_of_image(z, x, line, y);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(int8_chain_kernels,
                       (Int8ChainKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                         .weight_bytes = CONVSCOPE_ISA::kWeightBytes,
                                         .group = CONVSCOPE_ISA::kGroup,
                                         .run = CONVSCOPE_ISA::run}))

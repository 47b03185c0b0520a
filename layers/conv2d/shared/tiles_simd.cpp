// SPDX-License-Identifier: Apache-2.0
// tiles_simd.cpp: register tiles of convolution, and the copies that prepare their operands.
// direct_cpu.cpp and gemm_1x1_cpu.cpp say how they make up a convolution.
//
// Choices    AVX-512: 14 pixels x 2 vectors (or 7 x 4) = 28 sums + 2 (4) of the other operand of 32
//            registers, the broadcast is part of the FMA. AVX2: 6 x 2 = 12 + 2 + 1 of 16.
//            weight_tile takes two pixels at a time, so that each tap's pointer is fetched once for
//            four FMAs: 14 x 2 sums + 2 x 2 vectors of dy = 32 registers.
// GCC 12 keeps an array that an ordinary loop indexes on the stack: every loop over sums has an
// unroll pragma.
// Read next  tiles.h; direct_cpu.cpp and gemm_1x1_cpu.cpp, which use it
#include "framework/int_math.h"
#include "framework/simd/simd.h"
#include "framework/simd/transpose_16x16.h"
#include "layers/conv2d/shared/tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

#if defined(CONVSCOPE_ISA_IS_AVX512)
constexpr int kPixels = 14;
constexpr int kRows = 14;
#elif defined(CONVSCOPE_ISA_IS_AVX2)
constexpr int kPixels = 6;
constexpr int kRows = 6;
#else
constexpr int kPixels = 6;
constexpr int kRows = 6;
#endif

// ---- channels in the lanes ---------------------------------------------------------------------

#if defined(CONVSCOPE_ISA_IS_AVX512)

// out[k out_row + j] = tile[j width + k] for k < channels <= 16, j < Pixels.
template <int Pixels>
CONVSCOPE_INLINE void store_transposed(const float* tile, int width, int channels, float* out,
                                       Index out_row) {
  __m512 v[16];
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) v[j] = j < Pixels ? _mm512_load_ps(tile + j * width) : zero().v;
  transpose_16x16(v);
#pragma GCC unroll 16
  for (int k = 0; k < 16; ++k) {
    if (k < channels) store_first(out + k * out_row, Vec{v[k]}, Pixels);
  }
}

#else

template <int Pixels>
CONVSCOPE_INLINE void store_transposed(const float* tile, int width, int channels, float* out,
                                       Index out_row) {
  for (int k = 0; k < channels; ++k) {
#pragma GCC unroll 8
    for (int j = 0; j < Pixels; ++j) out[k * out_row + j] = tile[j * width + k];
  }
}

#endif

// Asks for the lines that the tile will be stored to; they come while the sums are made.
CONVSCOPE_INLINE void prefetch_rows(const SumTile& tile) {
  for (int i = 0; i < tile.channels; ++i) {
    const float* const row = tile.out + i * tile.out_row;
    for (int j = 0; j < tile.pixels; j += 16) __builtin_prefetch(row + j, 1);
    __builtin_prefetch(row + tile.pixels - 1, 1);
  }
}

template <int Pixels, int Vectors>
void channel_sums(const SumTile& tile) {
  constexpr int kWidth = Vectors * kLanes;
  prefetch_rows(tile);
  Vec sums[Pixels][Vectors];  // [Pixels, kWidth]
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    Vec start = zero();
    if (tile.start != nullptr && tile.channels > v * kLanes) {
      const int rest = tile.channels - v * kLanes;
      start = load_first(tile.start + v * kLanes, rest < kLanes ? rest : kLanes);
    }
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
  const float* x = tile.x;
  const float* w = tile.w;
  const float* ahead = tile.ahead;
  for (Index d = tile.depth; d > 0; --d, x += tile.x_step, w += tile.w_step) {
    for (int i = 0; i < tile.ahead_lines; ++i) __builtin_prefetch(ahead + i * kLineFloats, 0, 2);
    ahead += tile.ahead_step;
    for (int t = 0; t < tile.taps; ++t) {
      const float* const pixel = x + tile.x_at[t];
      const float* const weights = w + tile.w_at[t];
      __builtin_prefetch(pixel + tile.x_step);
      Vec lanes[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) lanes[v] = load(weights + v * kLanes);
#pragma GCC unroll 16
      for (int j = 0; j < Pixels; ++j) {
        const Vec value = broadcast(pixel[j]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[j][v] = fma(value, lanes[v], sums[j][v]);
      }
    }
  }
  alignas(64) float kept[Pixels * kWidth];
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(kept + j * kWidth + v * kLanes, sums[j][v]);
  }
  for (int v = 0; v < Vectors && tile.channels > v * kLanes; ++v) {
    const int rest = tile.channels - v * kLanes;
    store_transposed<Pixels>(kept + v * kLanes, kWidth, rest < kLanes ? rest : kLanes,
                             tile.out + v * kLanes * tile.out_row, tile.out_row);
  }
}

template <int Pixels>
void channel_pixels(const SumTile& tile, int width) {
  if constexpr (Pixels <= kPixels) {
    if (width == kLanes) return channel_sums<Pixels, 1>(tile);
    if (width == 2 * kLanes) return channel_sums<Pixels, 2>(tile);
    if constexpr (2 * Pixels <= kPixels) return channel_sums<Pixels, 4>(tile);
  }
}

void channel_tile(const SumTile& tile, int width) {
  switch (tile.pixels) {
    case 1:
      return channel_pixels<1>(tile, width);
    case 2:
      return channel_pixels<2>(tile, width);
    case 3:
      return channel_pixels<3>(tile, width);
    case 4:
      return channel_pixels<4>(tile, width);
    case 5:
      return channel_pixels<5>(tile, width);
    case 6:
      return channel_pixels<6>(tile, width);
    case 7:
      return channel_pixels<7>(tile, width);
    case 8:
      return channel_pixels<8>(tile, width);
    case 9:
      return channel_pixels<9>(tile, width);
    case 10:
      return channel_pixels<10>(tile, width);
    case 11:
      return channel_pixels<11>(tile, width);
    case 12:
      return channel_pixels<12>(tile, width);
    case 13:
      return channel_pixels<13>(tile, width);
    default:
      return channel_pixels<14>(tile, width);
  }
}

// ---- pixels in the lanes -----------------------------------------------------------------------

template <int Rows, int Vectors>
void pixel_sums(const SumTile& tile) {
  prefetch_rows(tile);
  const int last = tile.pixels - (Vectors - 1) * kLanes;
  Vec sums[Rows][Vectors];  // [Rows, Vectors * kLanes]
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    const Vec start = tile.start != nullptr ? broadcast(tile.start[i]) : zero();
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[i][v] = start;
  }
  const float* x = tile.x;
  const float* w = tile.w;
  for (Index d = tile.depth; d > 0; --d, x += tile.x_step, w += tile.w_step) {
    for (int t = 0; t < tile.taps; ++t) {
      const float* const pixel = x + tile.x_at[t];
      const float* const weights = w + tile.w_at[t];
      Vec lanes[Vectors];  // the copy of x has room behind each row: full vectors may be read
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) lanes[v] = load(pixel + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Vec value = broadcast(weights[i]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(value, lanes[v], sums[i][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* const to = tile.out + i * tile.out_row + v * kLanes;
      if (v < Vectors - 1 || last == kLanes) {
        store(to, sums[i][v]);
      } else {
        store_first(to, sums[i][v], last);
      }
    }
  }
}

template <int Rows>
void pixel_rows(const SumTile& tile) {
  if constexpr (Rows <= kRows) {
    const int vectors = ceil_div(tile.pixels, kLanes);
    if (vectors == 1) return pixel_sums<Rows, 1>(tile);
    if (vectors == 2) return pixel_sums<Rows, 2>(tile);
    if constexpr (Rows <= kRows / 2) {
      if (vectors == 3) return pixel_sums<Rows, 3>(tile);
      return pixel_sums<Rows, 4>(tile);
    }
  }
}

void pixel_tile(const SumTile& tile) {
  switch (tile.channels) {
    case 1:
      return pixel_rows<1>(tile);
    case 2:
      return pixel_rows<2>(tile);
    case 3:
      return pixel_rows<3>(tile);
    case 4:
      return pixel_rows<4>(tile);
    case 5:
      return pixel_rows<5>(tile);
    case 6:
      return pixel_rows<6>(tile);
    case 7:
      return pixel_rows<7>(tile);
    case 8:
      return pixel_rows<8>(tile);
    case 9:
      return pixel_rows<9>(tile);
    case 10:
      return pixel_rows<10>(tile);
    case 11:
      return pixel_rows<11>(tile);
    case 12:
      return pixel_rows<12>(tile);
    case 13:
      return pixel_rows<13>(tile);
    default:
      return pixel_rows<14>(tile);
  }
}

// ---- the gradient of the weights ---------------------------------------------------------------

template <int Taps, int Vectors>
void weight_sums(const WeightTile& tile) {
  constexpr int kWidth = Vectors * kLanes;
  Vec sums[Taps][Vectors];  // [Taps, kWidth]
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[t][v] = load(tile.sums[t] + v * kLanes);
  }
  const float* dy = tile.dy;
  const Index step = tile.x_step;
  for (Index p = 0; p < tile.rows; ++p) {
    Index at = p * tile.x_row;
    Index q = 0;
    for (; q + 2 <= tile.columns; q += 2, at += 2 * step, dy += 2 * kWidth) {
      Vec first[Vectors];
      Vec second[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        first[v] = load(dy + v * kLanes);
        second[v] = load(dy + kWidth + v * kLanes);
      }
#pragma GCC unroll 16
      for (int t = 0; t < Taps; ++t) {
        const float* const pixel = tile.x[t] + at;
        const Vec value = broadcast(pixel[0]);
        const Vec next = broadcast(pixel[step]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[t][v] = fma(value, first[v], sums[t][v]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[t][v] = fma(next, second[v], sums[t][v]);
      }
    }
    if (q < tile.columns) {
      Vec first[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) first[v] = load(dy + v * kLanes);
      dy += kWidth;
#pragma GCC unroll 16
      for (int t = 0; t < Taps; ++t) {
        const Vec value = broadcast(tile.x[t][at]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[t][v] = fma(value, first[v], sums[t][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(tile.sums[t] + v * kLanes, sums[t][v]);
  }
}

template <int Taps>
void weight_taps(const WeightTile& tile) {
  if constexpr (Taps <= kRows) {
    if (tile.width == kLanes) return weight_sums<Taps, 1>(tile);
    return weight_sums<Taps, 2>(tile);
  }
}

void weight_tile(const WeightTile& tile) {
  switch (tile.taps) {
    case 1:
      return weight_taps<1>(tile);
    case 2:
      return weight_taps<2>(tile);
    case 3:
      return weight_taps<3>(tile);
    case 4:
      return weight_taps<4>(tile);
    case 5:
      return weight_taps<5>(tile);
    case 6:
      return weight_taps<6>(tile);
    case 7:
      return weight_taps<7>(tile);
    case 8:
      return weight_taps<8>(tile);
    case 9:
      return weight_taps<9>(tile);
    case 10:
      return weight_taps<10>(tile);
    case 11:
      return weight_taps<11>(tile);
    case 12:
      return weight_taps<12>(tile);
    case 13:
      return weight_taps<13>(tile);
    default:
      return weight_taps<14>(tile);
  }
}

// ---- copies ------------------------------------------------------------------------------------

// to[i] = from[i * step] for i < count.
template <int Step>
CONVSCOPE_INLINE void copy_every(float* __restrict to, const float* __restrict from, Index count) {
  Index i = 0;
#if defined(CONVSCOPE_ISA_IS_AVX512)
  if constexpr (Step == 1) {
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    const auto rest = static_cast<int>(count - i);
    store_first(to + i, load_first(from + i, rest), rest);
    return;
  }
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  for (; i < count; i += kLanes) {  // the element behind the last one is not read
    const auto here = static_cast<int>(count - i < kLanes ? count - i : kLanes);
    const int floats = 2 * here - 1;
    const Vec low = load_first(from + 2 * i, floats < kLanes ? floats : kLanes);
    const Vec high = load_first(from + 2 * i + kLanes, floats < kLanes ? 0 : floats - kLanes);
    store_first(to + i, Vec{_mm512_permutex2var_ps(low.v, even, high.v)}, here);
  }
#else
  if constexpr (Step == 1) {
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  }
  for (; i < count; ++i) to[i] = from[i * Step];
#endif
}

CONVSCOPE_INLINE void clear(float* to, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) to[i] = 0.0f;
}

// One phase of a row: which columns of it lie in the image.
struct PhaseSpan {
  Index first, begin, end;  // `begin` reads column `first`
  CONVSCOPE_INLINE PhaseSpan(const RowCopy& z, Index phase) {
    const Index shift = phase - z.left;  // the column that i = 0 reads
    begin = shift >= 0 ? 0 : (-shift + z.phases - 1) / z.phases;
    if (begin > z.columns) begin = z.columns;
    end = shift >= z.width ? 0 : (z.width - 1 - shift) / z.phases + 1;
    if (end > z.columns) end = z.columns;
    if (end < begin) end = begin;
    first = begin * z.phases + shift;
  }
};

CONVSCOPE_INLINE void copy_phase(const RowCopy& z, const PhaseSpan& span, const float* row,
                                 float* out) {
  clear(out, 0, span.begin);
  if (z.phases == 1) {
    copy_every<1>(out + span.begin, row + span.first, span.end - span.begin);
  } else if (z.phases == 2) {
    copy_every<2>(out + span.begin, row + span.first, span.end - span.begin);
  } else {
    for (Index i = span.begin; i < span.end; ++i) {
      out[i] = row[span.first + (i - span.begin) * z.phases];
    }
  }
  clear(out, span.end, z.columns);
}

void copy(const RowCopy& z, const float* from, float* to) {
  const PhaseSpan even(z, 0);
  const PhaseSpan odd(z, z.phases > 1 ? 1 : 0);
  for (Index c = 0; c < z.channels; ++c) {
    for (Index h = 0; h < z.rows; ++h) {
      const float* const row = from + c * z.from_step + h * z.width;
      float* const out = to + c * z.to_step + h * z.to_row;
      copy_phase(z, even, row, out);
      if (z.phases > 1) copy_phase(z, odd, row, out + z.phase_step);
      for (Index phase = 2; phase < z.phases; ++phase) {
        copy_phase(z, PhaseSpan(z, phase), row, out + phase * z.phase_step);
      }
    }
  }
}

void copy_runs(const float* from, Index from_step, Index channels, const PixelRun* runs,
               Index count, Index step, float* to, Index to_step) {
  for (Index c = 0; c < channels; ++c, from += from_step, to += to_step) {
    for (Index i = 0; i < count; ++i) {
      const float* const first = from + runs[i].from;
      float* const out = to + runs[i].to;
      if (step == 1) {
        copy_every<1>(out, first, runs[i].count);
      } else if (step == 2) {
        copy_every<2>(out, first, runs[i].count);
      } else {
        for (Index j = 0; j < runs[i].count; ++j) out[j] = first[j * step];
      }
    }
  }
}

#if defined(CONVSCOPE_ISA_IS_AVX512)

void to_lanes(const float* from, Index from_row, Index channels, Index count, Index width,
              float* to) {
  for (Index k = 0; k < width; k += 16) {
    const Index rows = channels - k;
    for (Index j = 0; j < count; j += 16) {
      const auto pixels = static_cast<int>(count - j < 16 ? count - j : 16);
      __m512 v[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        v[i] = i < rows ? load_first(from + (k + i) * from_row + j, pixels).v : zero().v;
      }
      transpose_16x16(v);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        if (i < pixels) _mm512_store_ps(to + (j + i) * width + k, v[i]);
      }
    }
  }
}

#else

constexpr decltype(TileKernels::to_lanes) to_lanes = nullptr;

#endif

void weave(const float* from, Index from_step, Index width, Index step, float* to) {
  if (step == 2) {
    const float* const __restrict odd = from + from_step;
    Index i = 0;
#if defined(CONVSCOPE_ISA_IS_AVX512)
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    for (; i + kLanes <= width / 2; i += kLanes) {
      const __m512 a = load(from + i).v;
      const __m512 b = load(odd + i).v;
      store(to + 2 * i, Vec{_mm512_permutex2var_ps(a, low, b)});
      store(to + 2 * i + kLanes, Vec{_mm512_permutex2var_ps(a, high, b)});
    }
    if (i < width / 2) {
      const auto rest = static_cast<int>(width / 2 - i);
      const __m512 a = load_first(from + i, rest).v;
      const __m512 b = load_first(odd + i, rest).v;
      const int floats = 2 * rest;
      store_first(to + 2 * i, Vec{_mm512_permutex2var_ps(a, low, b)},
                  floats < kLanes ? floats : kLanes);
      store_first(to + 2 * i + kLanes, Vec{_mm512_permutex2var_ps(a, high, b)},
                  floats < kLanes ? 0 : floats - kLanes);
      i = width / 2;
    }
#endif
    for (; i < width / 2; ++i) {
      to[2 * i] = from[i];
      to[2 * i + 1] = odd[i];
    }
    if (width % 2 != 0) to[width - 1] = from[width / 2];
    return;
  }
  for (Index phase = 0; phase < step; ++phase) {
    const float* const row = from + phase * from_step;
    for (Index i = phase; i < width; i += step) to[i] = row[i / step];
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(tile_kernels, (TileKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                                  .pixels = CONVSCOPE_ISA::kPixels,
                                                  .rows = CONVSCOPE_ISA::kRows,
                                                  .channel_tile = CONVSCOPE_ISA::channel_tile,
                                                  .pixel_tile = CONVSCOPE_ISA::pixel_tile,
                                                  .weight_tile = CONVSCOPE_ISA::weight_tile,
                                                  .copy = CONVSCOPE_ISA::copy,
                                                  .copy_runs = CONVSCOPE_ISA::copy_runs,
                                                  .to_lanes = CONVSCOPE_ISA::to_lanes,
                                                  .weave = CONVSCOPE_ISA::weave}))

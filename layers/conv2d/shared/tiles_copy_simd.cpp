// SPDX-License-Identifier: Apache-2.0
// tiles_copy_simd.cpp: the copies that prepare the operands of register tiles: rows with zeros
// around them, runs of pixels, channels moved into the lanes. tiles.h describes each.
//
// Read next  tiles_simd.cpp, the tiles
#include "framework/simd/lane_transpose.h"
#include "framework/simd/simd.h"
#include "layers/conv2d/shared/tiles_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// Copies to[i] = from[i * step] for i < count.
template <int Step>
CONVSCOPE_INLINE void copy_every(float* __restrict to, const float* __restrict from, Index count) {
  Index i = 0;
  if constexpr (Step == 1) {
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    if constexpr (kMasksAreFree) {
      const auto rest = static_cast<int>(count - i);
      store_first(to + i, load_first(from + i, rest), rest);
      return;
    }
  } else if constexpr (kMasksAreFree) {
    for (; i < count; i += kLanes) {  // the element after the last one is not read
      const auto here = static_cast<int>(count - i < kLanes ? count - i : kLanes);
      const int floats = 2 * here - 1;
      const Vec low = load_first(from + 2 * i, floats < kLanes ? floats : kLanes);
      const Vec high = load_first(from + 2 * i + kLanes, floats < kLanes ? 0 : floats - kLanes);
      store_first(to + i, even_lanes(low, high), here);
    }
    return;
  }
  for (; i < count; ++i) to[i] = from[i * Step];
}

// Interleaves Step rows, as weave() does. The compiler turns the loop into permutations of vectors.
template <Index Step>
CONVSCOPE_INLINE void weave_rows(const float* __restrict from, Index from_step, Index width,
                                 float* __restrict to) {
  const Index whole = width / Step;
  for (Index i = 0; i < whole; ++i) {
    for (Index phase = 0; phase < Step; ++phase) to[i * Step + phase] = from[phase * from_step + i];
  }
  for (Index i = whole * Step; i < width; ++i) to[i] = from[i % Step * from_step + whole];
}

CONVSCOPE_INLINE void clear(float* to, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) to[i] = 0.0f;
}

// One phase of a row: its columns inside the image.
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

}  // namespace

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

#if defined(CONVSCOPE_HAS_MASKS)

void to_lanes(const float* from, Index from_row, Index channels, Index count, Index width,
              float* to) {
  for (Index k = 0; k < width; k += kLanes) {
    const Index rows = channels - k;
    for (Index j = 0; j < count; j += kLanes) {
      const auto pixels = static_cast<int>(count - j < kLanes ? count - j : kLanes);
      Vec v[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        v[i] = i < rows ? load_first(from + (k + i) * from_row + j, pixels) : zero();
      }
      transpose(v);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i < pixels) store(to + (j + i) * width + k, v[i]);
      }
    }
  }
}

#endif

void weave(const float* from, Index from_step, Index width, Index step, float* to) {
  if (step == 2) {
    const float* const __restrict odd = from + from_step;
    Index i = 0;
    if constexpr (kMasksAreFree) {  // otherwise the compiler vectorises the loop below
      for (; i + kLanes <= width / 2; i += kLanes) {
        const Vec a = load(from + i), b = load(odd + i);
        store(to + 2 * i, weave_low(a, b));
        store(to + 2 * i + kLanes, weave_high(a, b));
      }
      if (i < width / 2) {
        const auto rest = static_cast<int>(width / 2 - i);
        const Vec a = load_first(from + i, rest), b = load_first(odd + i, rest);
        const int floats = 2 * rest;
        store_first(to + 2 * i, weave_low(a, b), floats < kLanes ? floats : kLanes);
        store_first(to + 2 * i + kLanes, weave_high(a, b), floats < kLanes ? 0 : floats - kLanes);
        i = width / 2;
      }
    }
    for (; i < width / 2; ++i) {
      to[2 * i] = from[i];
      to[2 * i + 1] = odd[i];
    }
    if (width % 2 != 0) to[width - 1] = from[width / 2];
    return;
  }
  if (step == 3) return weave_rows<3>(from, from_step, width, to);
  if (step == 4) return weave_rows<4>(from, from_step, width, to);
  for (Index phase = 0; phase < step; ++phase) {
    const float* row = from + phase * from_step;
    for (Index i = phase; i < width; i += step) to[i] = *row++;
  }
}

}  // namespace convscope::CONVSCOPE_ISA

// SPDX-License-Identifier: Apache-2.0
// columns_simd.cpp: the loops over columns of inputs that touch every element: copy image rows into
// column panels (pack), sum columns back into the image (unpack), dot products along pixels (dot).
//
// Formula    pack    col[(c,r,s), (n,p,q)] = x[n, c, p stride_h - pad_top + r dilation_h, ...]
//            unpack  dx[c,h,w] = sum of col[(c,r,s), (p,q)] over all that read (h,w)
//            dot     sums[i,j] += sum over t of left[i,t] right[j,t]
// Textbook   for c, r, s: for p, q: col[..][p*Q+q] = inside ? x[..] : 0
//            for c, r, s: for p, q: if inside: dx[..] += col[..][p*Q+q]
//            for i, j: for t: sums[i][j] += left[i][t] * right[j][t]
// Plan       pack    a run of pixels in one output row is a run of x when stride_w is 1: vector
//                    copies, the parts over the border are zeroed.
//            unpack  stride_w 1: each vector of dx gathers its R S column vectors, so nothing is
//                    written twice and the border is a lane mask. Other strides scatter.
//            dot     Left x Right vector sums in registers over all pixels, added up across lanes
//                    only at the end.
// Shapes     all f32, accumulated in f32; no alignment needed
// Cost       pack and unpack: one load and one store (or add) for each column vector, bound by L1;
//            dot: Left Right FMAs for Left + Right loads
// Numerics   copies are exact; sums run over lanes, then across them: fixed order, same bits
// Choices    dot tile: AVX-512 6 x 4 = 24 sums + 4 + 1 of 32 registers; AVX2 3 x 3 = 9 + 3 + 1
// Source     K. Chellapilla, S. Puri, P. Simard: High Performance Convolutional Neural Networks for
//            Document Processing, 2006, hal inria-00112631
// Read next  im2col_gemm_cpu.cpp: who calls these.
#include "framework/simd.h"
#include "layers/conv2d/columns.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

CONVSCOPE_INLINE Index least(Index a, Index b) { return a < b ? a : b; }
CONVSCOPE_INLINE Index most(Index a, Index b) { return a > b ? a : b; }

// Never writes beyond to[count): panels are packed tight. The last vector overlaps the one before.
CONVSCOPE_INLINE void copy(float* to, const float* from, Index count) {
  if (count >= kLanes) {
    Index i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    if (i < count) store(to + count - kLanes, load(from + count - kLanes));
    return;
  }
#if defined(CONVSCOPE_ISA_IS_AVX512)
  const auto part = static_cast<int>(count);
  store_first(to, load_first(from, part), part);
#else
  for (Index i = 0; i < count; ++i) to[i] = from[i];
#endif
}

CONVSCOPE_INLINE void clear(float* to, Index count) {
  Index i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, zero());
  for (; i < count; ++i) to[i] = 0.0f;
}

// One row of columns for one run of pixels: to[j] = row[left + j stride], or 0 outside [0, W).
CONVSCOPE_INLINE void copy_run(float* to, const float* row, Index left, Index stride, Index w,
                               Index count) {
  if (stride == 1) {
    if (left >= 0 && left + count <= w) return copy(to, row + left, count);
    const Index begin = least(count, most(0, -left));
    const Index end = most(begin, least(count, w - left));
    clear(to, begin);
    copy(to + begin, row + left + begin, end - begin);
    clear(to + end, count - end);
    return;
  }
  Index j = 0;
  for (; j < count && left + j * stride < 0; ++j) to[j] = 0.0f;
  for (; j < count && left + j * stride < w; ++j) to[j] = row[left + j * stride];
  for (; j < count; ++j) to[j] = 0.0f;
}

void pack(const ColumnMap& map, const float* x, Index pixel, Index count, Index row_begin,
          Index row_end, float* to, Index to_step) {
  const Index plane = map.p * map.q;
  Index n = pixel / plane;
  Index p = pixel % plane / map.q;
  Index q = pixel % plane % map.q;
  for (Index done = 0; done < count;) {
    const Index run = least(map.q - q, count - done);  // pixels of one output row
    const Index left = q * map.stride_w - map.pad_left;
    const bool inside =
        map.stride_w == 1 && left >= 0 && left + (map.s - 1) * map.dilation_w + run <= map.w;
    Index c = row_begin / map.r;
    Index r = row_begin % map.r;
    float* out = to + done;
    for (Index row = row_begin; row < row_end; ++row) {
      const Index h = p * map.stride_h - map.pad_top + r * map.dilation_h;
      const float* image = x + n * map.sample_step + c * map.channel_step;  // [H,W]
      if (h < 0 || h >= map.h) {
        for (Index s = 0; s < map.s; ++s, out += to_step) clear(out, run);
      } else if (inside) {
        const float* from = image + h * map.w + left;
        for (Index s = 0; s < map.s; ++s, out += to_step, from += map.dilation_w) {
          copy(out, from, run);
        }
      } else {
        for (Index s = 0; s < map.s; ++s, out += to_step) {
          copy_run(out, image + h * map.w, left + s * map.dilation_w, map.stride_w, map.w, run);
        }
      }
      if (++r == map.r) {
        r = 0;
        ++c;
      }
    }
    done += run;
    q = 0;
    if (++p == map.p) {
      p = 0;
      ++n;
    }
  }
}

// Lanes [begin, end) of p[0 .. kLanes); the others are 0 and not read.
CONVSCOPE_INLINE Vec load_between(const float* p, int begin, int end) {
#if defined(CONVSCOPE_ISA_IS_AVX512)
  return {_mm512_maskz_loadu_ps(
      static_cast<__mmask16>(first_lanes(end) & ~static_cast<unsigned>(first_lanes(begin))), p)};
#elif defined(CONVSCOPE_ISA_IS_AVX2)
  return {_mm256_maskload_ps(p, _mm256_andnot_si256(first_lanes(begin), first_lanes(end)))};
#else
  return begin < end ? load(p) : zero();
#endif
}

void gather_row(const ColumnMap& map, const float* columns, Index from_step, Index h, float* out) {
  for (Index w = 0; w < map.w; w += kLanes) {
    const auto lanes = static_cast<int>(least(kLanes, map.w - w));
    Vec sum_of_row = zero();
    for (Index r = 0; r < map.r; ++r) {
      const Index down = h + map.pad_top - r * map.dilation_h;  // = p stride_h
      if (down < 0 || down % map.stride_h != 0 || down / map.stride_h >= map.p) continue;
      const float* from = columns + r * map.s * from_step + down / map.stride_h * map.q;
      Index q = w + map.pad_left;
      for (Index s = 0; s < map.s; ++s, q -= map.dilation_w, from += from_step) {
        if (q >= 0 && q + kLanes <= map.q) {
          sum_of_row = sum_of_row + load(from + q);
          continue;
        }
        const auto begin = static_cast<int>(least(kLanes, most(0, -q)));
        const auto end = static_cast<int>(most(begin, least(lanes, map.q - q)));
        if (begin < end) sum_of_row = sum_of_row + load_between(from + q, begin, end);
      }
    }
    if (lanes == kLanes) {
      store(out + w, sum_of_row);
    } else {
      store_first(out + w, sum_of_row, lanes);
    }
  }
}

void scatter_channel(const ColumnMap& map, const float* columns, Index from_step, float* image) {
  clear(image, map.h * map.w);
  for (Index r = 0; r < map.r; ++r) {
    for (Index s = 0; s < map.s; ++s) {
      const float* from = columns + (r * map.s + s) * from_step;
      const Index shift = s * map.dilation_w - map.pad_left;  // w of q = 0
      const Index q_begin = shift >= 0 ? 0 : (-shift + map.stride_w - 1) / map.stride_w;
      const Index q_end = shift >= map.w ? 0 : least(map.q, (map.w - 1 - shift) / map.stride_w + 1);
      for (Index p = 0; p < map.p; ++p) {
        const Index h = p * map.stride_h - map.pad_top + r * map.dilation_h;
        if (h < 0 || h >= map.h) continue;
        float* out = image + h * map.w + shift;
        for (Index q = q_begin; q < q_end; ++q) out[q * map.stride_w] += from[p * map.q + q];
      }
    }
  }
}

void unpack(const ColumnMap& map, const float* columns, Index from_step, Index channels,
            float* image) {
  for (Index c = 0; c < channels; ++c) {
    const float* from = columns + c * map.r * map.s * from_step;
    float* to = image + c * map.channel_step;
    if (map.stride_w == 1) {
      for (Index h = 0; h < map.h; ++h) gather_row(map, from, from_step, h, to + h * map.w);
    } else {
      scatter_channel(map, from, from_step, to);
    }
  }
}

#if defined(CONVSCOPE_ISA_IS_AVX512)
constexpr int kLeft = 6;
constexpr int kRight = 4;
#else
constexpr int kLeft = 3;
constexpr int kRight = 3;
#endif

template <int Left, int Right>
void dot_tile(const float* left, Index left_step, const float* right, Index right_step, Index count,
              float* sums, Index sums_step) {
  Vec acc[Left][Right];
#pragma GCC unroll 8
  for (int i = 0; i < Left; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Right; ++j) acc[i][j] = zero();
  }
  Index t = 0;
  for (; t + kLanes <= count; t += kLanes) {
    Vec row[Right];
#pragma GCC unroll 4
    for (int j = 0; j < Right; ++j) row[j] = load(right + j * right_step + t);
#pragma GCC unroll 8
    for (int i = 0; i < Left; ++i) {
      const Vec factor = load(left + i * left_step + t);
#pragma GCC unroll 4
      for (int j = 0; j < Right; ++j) acc[i][j] = fma(factor, row[j], acc[i][j]);
    }
  }
  if (t < count) {
    const auto rest = static_cast<int>(count - t);
    Vec row[Right];
#pragma GCC unroll 4
    for (int j = 0; j < Right; ++j) row[j] = load_first(right + j * right_step + t, rest);
#pragma GCC unroll 8
    for (int i = 0; i < Left; ++i) {
      const Vec factor = load_first(left + i * left_step + t, rest);
#pragma GCC unroll 4
      for (int j = 0; j < Right; ++j) acc[i][j] = fma(factor, row[j], acc[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Left; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Right; ++j) sums[i * sums_step + j] += sum(acc[i][j]);
  }
}

template <int Left>
void dot_left(const float* left, Index left_step, const float* right, Index right_step,
              Index right_rows, Index count, float* sums, Index sums_step) {
  if constexpr (Left <= kLeft) {
    Index j = 0;
    for (; j + kRight <= right_rows; j += kRight) {
      dot_tile<Left, kRight>(left, left_step, right + j * right_step, right_step, count, sums + j,
                             sums_step);
    }
    const float* last = right + j * right_step;
    switch (right_rows - j) {
      case 1:
        return dot_tile<Left, 1>(left, left_step, last, right_step, count, sums + j, sums_step);
      case 2:
        return dot_tile<Left, 2>(left, left_step, last, right_step, count, sums + j, sums_step);
      case 3:
        return dot_tile<Left, 3>(left, left_step, last, right_step, count, sums + j, sums_step);
      default:
        return;
    }
  }
}

void dot(const float* left, Index left_step, Index left_rows, const float* right, Index right_step,
         Index right_rows, Index count, float* sums, Index sums_step) {
  const Index tiles = (left_rows + kLeft - 1) / kLeft;  // of nearly equal height
  for (Index tile = 0, i = 0; tile < tiles; ++tile) {
    const Index height = (left_rows - i + tiles - tile - 1) / (tiles - tile);
    const float* from = left + i * left_step;
    float* to = sums + i * sums_step;
    i += height;
    switch (height) {
      case 1:
        dot_left<1>(from, left_step, right, right_step, right_rows, count, to, sums_step);
        break;
      case 2:
        dot_left<2>(from, left_step, right, right_step, right_rows, count, to, sums_step);
        break;
      case 3:
        dot_left<3>(from, left_step, right, right_step, right_rows, count, to, sums_step);
        break;
      case 4:
        dot_left<4>(from, left_step, right, right_step, right_rows, count, to, sums_step);
        break;
      case 5:
        dot_left<5>(from, left_step, right, right_step, right_rows, count, to, sums_step);
        break;
      default:
        dot_left<6>(from, left_step, right, right_step, right_rows, count, to, sums_step);
    }
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(column_kernels, (ColumnKernels{.pack = CONVSCOPE_ISA::pack,
                                                      .unpack = CONVSCOPE_ISA::unpack,
                                                      .dot = CONVSCOPE_ISA::dot}))

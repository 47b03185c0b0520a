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
// Method     pack    a run of pixels in one output row is a run of x when stride_w is 1: vector
//                    copies, the parts over the border are zeroed.
//            unpack  stride_w 1: each vector of dx gathers its R S column vectors, so nothing is
//                    written twice and the border is a lane mask. Other strides scatter.
//            dot     Left x Right vector accumulators over all pixels, added up across lanes
//                    only at the end.
// Shapes     all f32, accumulated in f32; no alignment needed
// Cost       pack and unpack: one load and one store (or add) for each column vector, bound by L1;
//            dot: Left Right FMAs for Left + Right loads
// Numerics   copies are exact; sums run over lanes, then across them: fixed order, same bits; in
//            chains (framework/simd/sum_chain.h), but for unpack with a stride
// Choices    dot tile: AVX-512 6 x 4 = 24 accumulators + 4 + 1 of 32 registers; AVX2 3 x 3 = 9 + 3
//            + 1
// Source     K. Chellapilla, S. Puri, P. Simard: High Performance Convolutional Neural Networks for
//            Document Processing, 2006, hal inria-00112631
// Read next  im2col_gemm_cpu.cpp, which calls these.
#include "framework/int_math.h"
#include "framework/simd/lane_sums.h"
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/columns.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

CONVSCOPE_INLINE Index least(Index a, Index b) { return a < b ? a : b; }
CONVSCOPE_INLINE Index most(Index a, Index b) { return a > b ? a : b; }

// Copies exactly `count` elements, because panels are packed without gaps. The last vector overlaps
// the previous one.
CONVSCOPE_INLINE void copy(float* to, const float* from, Index count) {
  if (count >= kLanes) {
    Index i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    if (i < count) store(to + count - kLanes, load(from + count - kLanes));
    return;
  }
  if constexpr (kMasksAreFree) {
    const auto part = static_cast<int>(count);
    store_first(to, load_first(from, part), part);
  } else {
    for (Index i = 0; i < count; ++i) to[i] = from[i];
  }
}

CONVSCOPE_INLINE void clear(float* to, Index count) {
  Index i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, zero());
  for (; i < count; ++i) to[i] = 0.0f;
}

// Copies one row of columns for one run of pixels: to[j] = row[left + j stride], or 0 outside [0,
// W). A function that is not inlined keeps the loops over rows with stride 1 short.
[[gnu::noinline]] void copy_strided(float* to, const float* row, Index left, Index stride, Index w,
                                    Index count) {
  Index j = 0;
  if (left >= 0 && left + (count - 1) * stride < w) {
    const float* const from = row + left;
#pragma GCC unroll 4
    for (; j < count; ++j) to[j] = from[j * stride];
    return;
  }
  for (; j < count && left + j * stride < 0; ++j) to[j] = 0.0f;
  for (; j < count && left + j * stride < w; ++j) to[j] = row[left + j * stride];
  for (; j < count; ++j) to[j] = 0.0f;
}

CONVSCOPE_INLINE void copy_run(float* to, const float* row, Index left, Index stride, Index w,
                               Index count) {
  if (stride != 1) return copy_strided(to, row, left, stride, w, count);
  if (left >= 0 && left + count <= w) return copy(to, row + left, count);
  const Index begin = least(count, most(0, -left));
  const Index end = most(begin, least(count, w - left));
  clear(to, begin);
  copy(to + begin, row + left + begin, end - begin);
  clear(to + end, count - end);
}

// Packs all rows of columns for one run of pixels inside the image. copy_one(to, from) copies the
// run. A caller that knows the length of the run passes straight-line code.
template <class CopyOne>
CONVSCOPE_INLINE void pack_inside(const ColumnMap& map, const float* x, Index p, Index left,
                                  Index row_begin, Index row_end, float* out, Index to_step,
                                  Index run, CopyOne copy_one) {
  Index c = row_begin / map.r;
  Index r = row_begin % map.r;
  for (Index row = row_begin; row < row_end; ++row) {
    const Index h = p * map.stride_h - map.pad_top + r * map.dilation_h;
    if (h < 0 || h >= map.h) {
      for (Index s = 0; s < map.s; ++s, out += to_step) clear(out, run);
    } else {
      const float* from = x + c * map.channel_step + h * map.w + left;
      for (Index s = 0; s < map.s; ++s, out += to_step, from += map.dilation_w) {
        copy_one(out, from);
      }
    }
    if (++r == map.r) {
      r = 0;
      ++c;
    }
  }
}

void pack_across(const ColumnMap& map, const float* x, Index p, Index left, Index row_begin,
                 Index row_end, float* out, Index to_step, Index run) {
  Index c = row_begin / map.r;
  Index r = row_begin % map.r;
  for (Index row = row_begin; row < row_end; ++row) {
    const Index h = p * map.stride_h - map.pad_top + r * map.dilation_h;
    const float* image_row = x + c * map.channel_step + h * map.w;
    for (Index s = 0; s < map.s; ++s, out += to_step) {
      if (h < 0 || h >= map.h) {
        clear(out, run);
      } else {
        copy_run(out, image_row, left + s * map.dilation_w, map.stride_w, map.w, run);
      }
    }
    if (++r == map.r) {
      r = 0;
      ++c;
    }
  }
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
    const float* image = x + n * map.sample_step;
    float* const out = to + done;
    const auto inside = [&](auto copy_one) __attribute__((always_inline)) {
      pack_inside(map, image, p, left, row_begin, row_end, out, to_step, run, copy_one);
    };
    if (map.stride_w != 1 || left < 0 || left + (map.s - 1) * map.dilation_w + run > map.w) {
      pack_across(map, image, p, left, row_begin, row_end, out, to_step, run);
    } else if (kLanes > 1 && run == 8) {
      inside([](float* a, const float* b) __attribute__((always_inline)) { copy_eight(a, b); });
    } else if (kMasksAreFree && run == kLanes + 8) {
      inside([](float* a, const float* b) __attribute__((always_inline)) {
        store(a, load(b));
        copy_eight(a + kLanes, b + kLanes);
      });
    } else if (kMasksAreFree && run <= kLanes) {
      const auto lanes = static_cast<int>(run);
      inside([lanes](float* a, const float* b)
                 __attribute__((always_inline)) { store_first(a, load_first(b, lanes), lanes); });
    } else if (kMasksAreFree && run <= 2 * kLanes) {
      const auto lanes = static_cast<int>(run) - kLanes;
      inside([lanes](float* a, const float* b) __attribute__((always_inline)) {
        store(a, load(b));
        store_first(a + kLanes, load_first(b + kLanes, lanes), lanes);
      });
    } else {
      inside([run](float* a, const float* b) __attribute__((always_inline)) { copy(a, b, run); });
    }
    done += run;
    q = 0;
    if (++p == map.p) {
      p = 0;
      ++n;
    }
  }
}

// Gathers one vector of pixels (w .. w + count) of every row of one channel.
void gather_vector(const ColumnMap& map, const float* columns, Index from_step, Index w,
                   float* image) {
  constexpr Index kKept = 16;  // taps with stored masks; wider kernels recompute them
  const auto count = static_cast<int>(least(kLanes, map.w - w));
  // The lanes of pixels w .. w + kLanes that read column q = w + shift, 0 <= q < Q.
  const auto lanes_of = [&](Index s) __attribute__((always_inline)) {
    const Index q = w + map.pad_left - s * map.dilation_w;
    const auto begin = static_cast<int>(least(kLanes, most(0, -q)));
    return lanes_between(begin, static_cast<int>(most(begin, least(count, map.q - q))));
  };
  Mask kept[kKept];
  for (Index s = 0; s < least(map.s, kKept); ++s) kept[s] = lanes_of(s);
  const Index rows = most(1, kSumChain / map.s);  // kernel rows in a chain
  for (Index h = 0; h < map.h; ++h) {
    Vec sum_of_all = zero();
    for (Index first = 0; first < map.r; first += rows) {
      Vec sums[2] = {zero(), zero()};  // separate sums of even and odd s halve the latency
      for (Index r = first; r < least(first + rows, map.r); ++r) {
        const Index down = h + map.pad_top - r * map.dilation_h;  // = p stride_h
        if (down < 0) break;
        const Index p = map.stride_h == 1 ? down : down / map.stride_h;
        if (p >= map.p || p * map.stride_h != down) continue;
        const float* from = columns + r * map.s * from_step + p * map.q + w + map.pad_left;
        const Index next = from_step - map.dilation_w;
        Index s = 0;
        for (; s + 2 <= least(map.s, kKept); s += 2, from += 2 * next) {
          sums[0] = sums[0] + load(from, kept[s]);
          sums[1] = sums[1] + load(from + next, kept[s + 1]);
        }
        for (; s < map.s; ++s, from += next) {
          sums[0] = sums[0] + load(from, s < kKept ? kept[s] : lanes_of(s));
        }
      }
      sum_of_all = sum_of_all + (sums[0] + sums[1]);
    }
    if (count == kLanes) {
      store(image + h * map.w + w, sum_of_all);
    } else {
      store_first(image + h * map.w + w, sum_of_all, count);
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
      for (Index w = 0; w < map.w; w += kLanes) gather_vector(map, from, from_step, w, to);
    } else {
      scatter_channel(map, from, from_step, to);
    }
  }
}

constexpr int kLeft = kManyRegisters ? 6 : 3;
constexpr int kRight = kManyRegisters ? 4 : 3;

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
    if constexpr (Right == 4) {
      add_sums(acc[i], sums + i * sums_step);
      continue;
    }
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

// Computes one chain in each lane.
void dot_chain(const float* left, Index left_step, Index left_rows, const float* right,
               Index right_step, Index right_rows, Index count, float* sums, Index sums_step) {
  const Index tiles = ceil_div(left_rows, kLeft);  // of nearly equal height
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

// Computes chains of at most kSumChain products a lane (framework/simd/sum_chain.h).
void dot(const float* left, Index left_step, Index left_rows, const float* right, Index right_step,
         Index right_rows, Index count, float* sums, Index sums_step) {
  constexpr Index kPixels = kSumChain * kLanes;
  for (Index t = 0; t < count; t += kPixels) {
    dot_chain(left + t, left_step, left_rows, right + t, right_step, right_rows,
              least(kPixels, count - t), sums, sums_step);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(column_kernels, (ColumnKernels{.pack = CONVSCOPE_ISA::pack,
                                                      .unpack = CONVSCOPE_ISA::unpack,
                                                      .dot = CONVSCOPE_ISA::dot}))

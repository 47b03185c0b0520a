// SPDX-License-Identifier: Apache-2.0
// points_simd.cpp: the products of transformed tiles, point by point, and the copies between planes
// and lanes before and after the transforms.
//
// Registers  product: AVX-512 holds 14 tiles x 2 vectors = 28 accumulators and 2 vectors of u in 32
//            registers; the broadcast of v is part of the FMA. AVX2 holds 6 x 2 = 12 accumulators,
//            2 of u and the broadcast in 16. sum: 8 channels x 3 vectors with AVX-512, 4 x 3 with
//            AVX2. In `sum` both operands are read as vectors, so three vectors of one operand
//            share a broadcast of the other operand.
// Sums are cut into chains of at most kSumChain products (framework/simd/sum_chain.h).
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
// Read next  points.h; winograd_simd.cpp and fft_simd.cpp, the transforms around it
#include "framework/simd/lane_transpose.h"
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/points.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kRows = kManyRegisters ? 14 : kLanes > 1 ? 6 : 4;
constexpr int kSumRows = kManyRegisters ? 8 : kLanes > 1 ? 4 : 1;
constexpr int kVectors = 2;
constexpr int kSumVectors = 3;

// ---- products ----------------------------------------------------------------------------------

// Computes one chain of products over blocks of channels, and moves u and block past the chain.
// With `add`, adds the sums to `out`.
template <int Rows, int Vectors>
CONVSCOPE_INLINE void product_chain(const PointProduct& z, const float*& u, const float*& block,
                                    Index depth, bool add) {
  Vec sums[Rows][Vectors];  // [tiles, Vectors * L]
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sums[i][v] = zero();
  }
  for (Index left = depth; left > 0; left -= kLanes, block += z.block_step) {
    const Index count = left < kLanes ? left : kLanes;
    for (Index c = 0; c < count; ++c, u += Vectors * kLanes) {
      __builtin_prefetch(block + z.block_step + c * kLanes);  // a tile of the next channels
      Vec lanes[Vectors];
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) lanes[v] = load(u + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Vec value = broadcast(block[c + i * kLanes]);
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(value, lanes[v], sums[i][v]);
      }
    }
  }
  if (add) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        sums[i][v] = load(z.out + v * z.out_step + i * kLanes) + sums[i][v];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) store(z.out + v * z.out_step + i * kLanes, sums[i][v]);
  }
}

template <int Rows, int Vectors>
void product_tile(const PointProduct& z) {
  static_assert(kSumChain % kLanes == 0, "a chain is whole blocks of channels");
  const float* u = z.u;
  const float* block = z.v;
  Index done = 0;
  do {
    const Index left = z.depth - done;
    product_chain<Rows, Vectors>(z, u, block, left < kSumChain ? left : kSumChain, done > 0);
    done += kSumChain;
  } while (done < z.depth);
}

template <int Rows>
void product_rows(const PointProduct& z) {
  if constexpr (Rows > 1) {
    if (z.rows < Rows) return product_rows<Rows - 1>(z);
  }
  if (z.vectors == 1) return product_tile<Rows, 1>(z);
  product_tile<Rows, 2>(z);
}

void product(const PointProduct& z) { product_rows<kRows>(z); }

// Computes one chain of products: tiles [first, end).
template <int Vectors>
CONVSCOPE_INLINE void sum_chain(const PointSum& z, Index first, Index end) {
  Vec sums[kSumRows][Vectors];  // [channels, Vectors * L]
#pragma GCC unroll 16
  for (int i = 0; i < kSumRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) sums[i][v] = zero();
  }
  const float* x = z.x + first * kLanes;
  const float* dy = z.dy + first * kLanes;
  for (Index t = first; t < end; ++t, x += kLanes, dy += kLanes) {
    Vec lanes[Vectors];
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) lanes[v] = load(dy + v * z.dy_step);
#pragma GCC unroll 16
    for (int i = 0; i < kSumRows; ++i) {
      const Vec value = broadcast(x[i]);
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(value, lanes[v], sums[i][v]);
    }
  }
  if (z.accumulate || first > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kSumRows; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) {
        sums[i][v] = load(z.out + v * z.out_step + i * kLanes) + sums[i][v];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSumRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) store(z.out + v * z.out_step + i * kLanes, sums[i][v]);
  }
}

template <int Vectors>
void sum_tile(const PointSum& z) {
  Index first = 0;
  do {
    const Index end = first + kSumChain;
    sum_chain<Vectors>(z, first, end < z.depth ? end : z.depth);
    first = end;
  } while (first < z.depth);
}

void channel_sums(const PointSum& z) {
  if (z.vectors == 1) return sum_tile<1>(z);
  if (z.vectors == 2) return sum_tile<2>(z);
  sum_tile<3>(z);
}

// ---- copies between planes and lanes -----------------------------------------------------------

void gather(const float* from, Index plane, Index count, int lanes, float* to) {
  for (Index i = 0; i < count; i += kLanes) {
    const int width = count - i < kLanes ? static_cast<int>(count - i) : kLanes;
    Vec v[kLanes];
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) {
      v[lane] = lane < lanes ? load_first(from + lane * plane + i, width) : zero();
    }
    transpose(v);
#pragma GCC unroll 16
    for (int pixel = 0; pixel < kLanes; ++pixel) {
      if (pixel < width) store(to + (i + pixel) * kLanes, v[pixel]);
    }
  }
}

void scatter(const float* from, Index count, int lanes, float* to, Index plane) {
  for (Index i = 0; i < count; i += kLanes) {
    const int width = count - i < kLanes ? static_cast<int>(count - i) : kLanes;
    Vec v[kLanes];
#pragma GCC unroll 16
    for (int pixel = 0; pixel < kLanes; ++pixel) {
      v[pixel] = pixel < width ? load(from + (i + pixel) * kLanes) : zero();
    }
    transpose(v);
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lane < lanes) store_first(to + lane * plane + i, v[lane], width);
    }
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(point_kernels, (PointKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                                    .rows = CONVSCOPE_ISA::kRows,
                                                    .vectors = CONVSCOPE_ISA::kVectors,
                                                    .sum_rows = CONVSCOPE_ISA::kSumRows,
                                                    .sum_vectors = CONVSCOPE_ISA::kSumVectors,
                                                    .product = CONVSCOPE_ISA::product,
                                                    .sum = CONVSCOPE_ISA::channel_sums,
                                                    .gather = CONVSCOPE_ISA::gather,
                                                    .scatter = CONVSCOPE_ISA::scatter}))

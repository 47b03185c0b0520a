// SPDX-License-Identifier: Apache-2.0
// gemm_simd.cpp: computes one tile of a matrix product in registers, and packs panels by a
// transposing copy.
//
// Formula    c[i,j] = start + sum over k of a[k,i] b[k,j]
// Textbook   for k: for i: for j: c[i][j] += a[k][i] * b[k][j]
// Method     c stays in Rows x Vectors registers over the whole k loop. Each k loads `Vectors`
//            vectors of b and broadcasts one element of a for each row: an outer product.
// Shapes     a: K x rows, step a_step (packed: rows); b: K x columns, step b_step
//            (packed: the full width); c: row-major. f32, accumulated in f32. No alignment needed.
// Cost       FLOPs = 2 K rows columns; per k: Vectors vector loads + rows broadcasts for
//            rows x Vectors FMAs, so loads never limit a full tile.
// Numerics   Each FMA rounds once. Products are added in the order of k, in chains of at most
//            kSumChain products whose totals are added up in c (framework/simd/sum_chain.h). The
//            bits are the same on each run.
// Choices    AVX-512: 14 x 2 vectors = 28 accumulators + 2 of b + 1 broadcast = 31 of 32 registers.
//            AVX2: 6 x 2 = 12 + 2 + 1 = 15 of 16. Both hide the FMA latency (4 cycles x 2 ports = 8
//            independent accumulators needed) down to a tile of 4 rows.
//            Every loop over the accumulators is unrolled by pragma: GCC 12 stores an array on the
//            stack if an ordinary loop indexes it, at a third of the speed.
// Source     K. Goto, R. van de Geijn: Anatomy of High-Performance Matrix Multiplication, ACM TOMS
//            34(3), 2008, doi 10.1145/1356052.1356053; F. Van Zee, R. van de Geijn: BLIS, ACM TOMS
//            41(3), 2015, doi 10.1145/2764454.
// Read next  gemm_cpu.cpp: how tiles form a whole product
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/simd/lane_transpose.h"
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kRows = kManyRegisters ? 14 : kLanes > 1 ? 6 : 3;
constexpr int kVectors = kLanes > 1 ? 2 : 4;

// Computes one chain of products (framework/simd/sum_chain.h), and advances a and b to the next
// chain. Stores the total in c, or with `add`, adds the total to c.
template <int Rows, int Vectors, bool Partial>
CONVSCOPE_INLINE void multiply_chain(const GemmTile& tile, const float*& a, const float*& b,
                                     std::int64_t depth, bool add) {
  // The number of used lanes of the last vector; all vectors before it are full.
  const int last = tile.columns - (Vectors - 1) * kLanes;
  Vec acc[Rows][Vectors];  // [Rows, Vectors * kLanes]
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    const Vec start = !add && tile.bias != nullptr ? broadcast(tile.bias[i]) : zero();
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) acc[i][v] = start;
  }
  for (std::int64_t k = depth; k > 0; --k) {
    Vec row[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      const float* p = b + v * kLanes;
      row[v] = Partial && v == Vectors - 1 ? load_first(p, last) : load(p);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec factor = broadcast(a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) acc[i][v] = fma(factor, row[v], acc[i][v]);
    }
    a += tile.a_step;
    b += tile.b_step;
  }
  if (add) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const float* p = tile.c + i * tile.c_row + v * kLanes;
        acc[i][v] = (Partial && v == Vectors - 1 ? load_first(p, last) : load(p)) + acc[i][v];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* p = tile.c + i * tile.c_row + v * kLanes;
      if (Partial && v == Vectors - 1) {
        store_first(p, acc[i][v], last);
      } else {
        store(p, acc[i][v]);
      }
    }
  }
}

template <int Rows, int Vectors, bool Partial>
void multiply(const GemmTile& tile) {
  const float* a = tile.a;
  const float* b = tile.b;
  bool add = tile.accumulate;
  for (std::int64_t left = tile.depth;; left -= kSumChain, add = true) {
    const std::int64_t depth = left < kSumChain ? left : kSumChain;
    multiply_chain<Rows, Vectors, Partial>(tile, a, b, depth, add);
    if (left <= kSumChain) return;
  }
}

template <int Rows>
void multiply_rows(const GemmTile& tile) {
  if constexpr (Rows <= kRows) {
    if (tile.columns == kVectors * kLanes) return multiply<Rows, kVectors, false>(tile);
    if constexpr (kVectors > 2) {  // scalar: one lane, so no vector is partial
      if (tile.columns == 1) return multiply<Rows, 1, false>(tile);
      if (tile.columns == 2) return multiply<Rows, 2, false>(tile);
      return multiply<Rows, 3, false>(tile);
    } else {
      if (tile.columns > kLanes) return multiply<Rows, 2, true>(tile);
      return multiply<Rows, 1, true>(tile);
    }
  }
}

void run_tile(const GemmTile& tile) {
  switch (tile.rows) {
    case 1:
      return multiply_rows<1>(tile);
    case 2:
      return multiply_rows<2>(tile);
    case 3:
      return multiply_rows<3>(tile);
    case 4:
      return multiply_rows<4>(tile);
    case 5:
      return multiply_rows<5>(tile);
    case 6:
      return multiply_rows<6>(tile);
    case 7:
      return multiply_rows<7>(tile);
    case 8:
      return multiply_rows<8>(tile);
    case 9:
      return multiply_rows<9>(tile);
    case 10:
      return multiply_rows<10>(tile);
    case 11:
      return multiply_rows<11>(tile);
    case 12:
      return multiply_rows<12>(tile);
    case 13:
      return multiply_rows<13>(tile);
    default:
      return multiply_rows<14>(tile);
  }
}

void transpose_panel(const float* from, std::int64_t from_row, std::int64_t rows,
                     std::int64_t depth, float* to, std::int64_t to_step) {
  std::int64_t k = 0;
  // The last block of 8 rows overlaps the block before it, so no partial block is needed.
  if (kTransposeBlock >= 8 && rows >= 8) {
    for (; k + 8 <= depth; k += 8) {
      for (std::int64_t i = 0; i < rows; i += 8) {
        const std::int64_t row = i + 8 <= rows ? i : rows - 8;
        copy_transposed_8x8(from + row * from_row + k, from_row, to + k * to_step + row, to_step);
      }
    }
  } else if (kTransposeBlock >= 4 && rows >= 4) {
    for (; k + 4 <= depth; k += 4) {
      for (std::int64_t i = 0; i < rows; i += 4) {
        const std::int64_t row = i + 4 <= rows ? i : rows - 4;
        copy_transposed_4x4(from + row * from_row + k, from_row, to + k * to_step + row, to_step);
      }
    }
  }
  for (; k < depth; ++k) {
    for (std::int64_t i = 0; i < rows; ++i) to[k * to_step + i] = from[i * from_row + k];
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(gemm_kernels,
                       (GemmKernels{.rows = CONVSCOPE_ISA::kRows,
                                    .columns = CONVSCOPE_ISA::kVectors * CONVSCOPE_ISA::kLanes,
                                    .tile = CONVSCOPE_ISA::run_tile,
                                    .transpose = CONVSCOPE_ISA::transpose_panel}))

// SPDX-License-Identifier: Apache-2.0
// sparse_implicit_gemm_simd.cpp: register tiles whose rows lie anywhere: one pointer for each site.
//
// Formula    out[i, lane] = start[lane] + sum over taps and depth of in[j(i,tap), depth]
//                w[tap][depth, lane];   to[c, lane] += sum over pairs of x[there, c] dy[here, lane]
// Plan       A tile is 8 sites (AVX2: 6) and up to 3 vectors of lanes (AVX2: 2): a vector of w is
//            loaded once for all sites, a number of x once for all lanes. A neighbour that is not
//            there is a row of zeros, and a tap that no site of the tile has is skipped. Of dw a
//            tile is 8 channels and up to 3 vectors of kernels; pairs follow each other.
// Numerics   a chain of sums has at most 160 terms (framework/simd/sum_chain.h), then it is added
//            to a total. Absent neighbours add 0 w: exact, unless w is infinite or NaN.
// Read next  sparse_implicit_gemm_cpu.cpp, which calls it
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/sparse_conv/implicit_gemm/cpu/sparse_kernels.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kRows = kRegisters == 32 || kLanes == 1 ? 8 : 6;
constexpr int kVectors = kLanes == 16 ? 3 : kLanes == 8 ? 2 : 1;

template <int kRun>
void spread(const SparseSpreadTask& task) {
  const int run = kRun == 0 ? task.run : kRun;
  for (int i = 0; i < task.count; ++i) {
    const std::uint32_t entry = task.entries[task.places == nullptr ? i : task.places[i]];
    std::int32_t at = static_cast<std::int32_t>(entry >> run);
    for (int j = 0; j < run; ++j) {
      const int s = task.descending ? run - 1 - j : j;
      const std::int32_t has = static_cast<std::int32_t>(entry >> s & 1);
      task.to[s * task.step + i] = at | (has - 1);  // -1 where it has none
      at += has;
    }
  }
}

void any_spread(const SparseSpreadTask& task) {
  switch (task.run) {
    case 1:
      return spread<1>(task);
    case 3:
      return spread<3>(task);
    case 5:
      return spread<5>(task);
    default:
      return spread<0>(task);
  }
}

template <int N>
CONVSCOPE_INLINE void add_rows(const float* const (&rows)[kRows], const float* w, Index depth,
                               Vec (&sums)[kRows][N]) {
  for (Index d = 0; d < depth; ++d) {
    Vec weights[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) weights[n] = load(w + (d * N + n) * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Vec x = broadcast(rows[m][d]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[m][n] = fma(x, weights[n], sums[m][n]);
    }
  }
}

template <int N>
void tile(const SparseTileTask& task) {
  Vec totals[kRows][N], sums[kRows][N];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      totals[m][n] = task.start == nullptr ? zero() : load(task.start + n * kLanes);
      sums[m][n] = zero();
    }
  }
  const Index depth = task.depth;
  Index terms = 0;
  for (int tap = 0; tap < task.taps; ++tap) {
    const std::int32_t* const sites = task.neighbours + tap * task.step;
    std::int32_t all = -1;
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) all &= sites[m];
    if (all < 0) continue;  // all are -1
    const float* w = task.w + tap * depth * N * kLanes;
    for (Index begin = 0; begin < depth;) {
      const Index count = depth - begin < kSumChain ? depth - begin : kSumChain;
      if (terms + count > kSumChain) {
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) {
            totals[m][n] = totals[m][n] + sums[m][n];
            sums[m][n] = zero();
          }
        }
        terms = 0;
      }
      const float* rows[kRows];
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        rows[m] = (sites[m] < 0 ? task.zeros : task.in + sites[m] * depth) + begin;
      }
      add_rows<N>(rows, w, count, sums);
      w += count * N * kLanes;
      begin += count;
      terms += count;
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    float* const out = task.out[m];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const Vec value = totals[m][n] + sums[m][n];
      const int left = task.lanes - n * kLanes;
      if (left >= kLanes) {
        store(out + n * kLanes, value);
      } else {
        store_first(out + n * kLanes, value, left);
      }
    }
  }
}

void any_tile(const SparseTileTask& task) {
  if constexpr (kVectors >= 3) {
    if (task.vectors == 3) return tile<3>(task);
  }
  if constexpr (kVectors >= 2) {
    if (task.vectors == 2) return tile<2>(task);
  }
  tile<1>(task);
}

// kWhole: all channels and lanes of the tile are there. Else a channel behind the last one is the
// last one again, and is not written.
template <int N, bool kWhole>
void weight_tile(const SparseWeightTask& task, Index channel, Index lane) {
  const Index channels = task.c - channel < kRows ? task.c - channel : kRows;
  const int lanes = static_cast<int>(task.k - lane < kLanes ? task.k - lane : kLanes);
  Index offset[kRows];
  for (int m = 0; m < kRows; ++m) offset[m] = m < channels ? m : channels - 1;
  for (int begin = 0; begin < task.pairs; begin += kSumChain) {
    const int end = task.pairs - begin < kSumChain ? task.pairs : begin + kSumChain;
    Vec sums[kRows][N];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[m][n] = zero();
    }
    for (int i = begin; i < end; ++i) {
      const float* const x = task.x + task.there[i] * task.c + channel;
      const float* const dy = task.dy + task.here[i] * task.k + lane;
      Vec gradient[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        gradient[n] = kWhole ? load(dy + n * kLanes) : load_first(dy, lanes);
      }
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const Vec value = broadcast(x[kWhole ? m : offset[m]]);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sums[m][n] = fma(value, gradient[n], sums[m][n]);
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      if (!kWhole && m >= channels) continue;
      float* const to = task.to + (channel + m) * task.to_step + lane;
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        store(to + n * kLanes, load(to + n * kLanes) + sums[m][n]);
      }
    }
  }
}

void weights(const SparseWeightTask& task) {
  for (Index channel = 0; channel < task.c; channel += kRows) {
    for (Index lane = 0; lane < task.k;) {
      const Index vectors = channel + kRows <= task.c ? (task.k - lane) / kLanes : 0;
      if (vectors == 0) {
        weight_tile<1, false>(task, channel, lane);
        lane += kLanes;
      } else if (vectors == 1 || kVectors == 1) {
        weight_tile<1, true>(task, channel, lane);
        lane += kLanes;
      } else if (kVectors == 2 || vectors == 2 || vectors == 4) {
        weight_tile<2, true>(task, channel, lane);
        lane += 2 * kLanes;
      } else {
        weight_tile<kVectors >= 3 ? 3 : 1, true>(task, channel, lane);
        lane += 3 * kLanes;
      }
    }
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(sparse_kernels, (SparseKernels{.rows = CONVSCOPE_ISA::kRows,
                                                      .vectors = CONVSCOPE_ISA::kVectors,
                                                      .lanes = CONVSCOPE_ISA::kLanes,
                                                      .spread = CONVSCOPE_ISA::any_spread,
                                                      .tile = CONVSCOPE_ISA::any_tile,
                                                      .weights = CONVSCOPE_ISA::weights}))

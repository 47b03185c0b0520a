// SPDX-License-Identifier: Apache-2.0
// sparse_implicit_gemm_simd.cpp: register tiles whose rows are at arbitrary addresses, with one
// pointer for each pair.
//
// Formula    of one tap: out[here, lane] += sum over d < depth of in[there, d] w[d, lane];
//            to[c, lane] += sum over pairs of x[there, c] dy[here, lane]
// Method     A tile is 8 pairs (AVX2: 6) and up to 3 vectors of lanes (AVX2: 2): a vector of w is
//            loaded once for all pairs, an element of x once for all lanes. The accumulators are
//            added to the rows of the outputs, which are in the cache. For dw a tile is 8 channels
//            and up to 3 vectors of kernels; pairs follow each other.
// Numerics   a chain of sums has at most 160 terms (framework/simd/sum_chain.h), then it is added
//            to a total.
// Read next  sparse_implicit_gemm_cpu.cpp, which calls it
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/sparse_conv/implicit_gemm/cpu/sparse_kernels.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kRows = kManyRegisters || kLanes == 1 ? 8 : 6;
constexpr int kVectors = kManyRegisters ? 3 : kLanes > 1 ? 2 : 1;

#if defined(CONVSCOPE_HAS_MASKS)

// Processes kLanes sites at a time, and stores only the sites that have a neighbour at the tap.
template <int kRun>
CONVSCOPE_INLINE void list(const SparseListTask& task) {
  const int run = kRun == 0 ? task.run : kRun;
  int pairs[kMaxRun] = {};
  const Ints one = set_ints(1);
  Ints site = set_ints(task.first_site) + lane_numbers();
  for (int i = 0; i < task.count; i += kLanes, site = site + set_ints(kLanes)) {
    const int left = task.count - i < kLanes ? task.count - i : kLanes;
    const Ints entry = load_first(task.entries + i, left);
    Ints next = shift_right(entry, run);  // the neighbour at the next tap whose bit is set
#pragma GCC unroll 7
    for (int j = 0; j < run; ++j) {
      const int s = task.descending ? run - 1 - j : j;
      const Mask has = any_bit(entry, set_ints(1 << s));
      const Index to = s * task.step + pairs[s];
      store_ints(task.here + to, compress(has, site));
      store_ints(task.there + to, compress(has, next));
      pairs[s] += count_lanes(has);
      next = add_where(has, next, one);
    }
  }
  for (int s = 0; s < run; ++s) task.pairs[s] = pairs[s];
}

#else

// Writes every pair, but advances only after a pair with a neighbour.
template <int kRun>
CONVSCOPE_INLINE void list(const SparseListTask& task) {
  const int run = kRun == 0 ? task.run : kRun;
  int pairs[kMaxRun] = {};
  for (int i = 0; i < task.count; ++i) {
    const std::uint32_t entry = task.entries[i];
    auto next = static_cast<std::int32_t>(entry >> run);  // neighbour at the next tap that has one
#pragma GCC unroll 7
    for (int j = 0; j < run; ++j) {
      const int s = task.descending ? run - 1 - j : j;
      const int has = static_cast<int>(entry >> s & 1);
      const Index to = s * task.step + pairs[s];
      task.here[to] = task.first_site + i;
      task.there[to] = next;
      pairs[s] += has;
      next += has;
    }
  }
  for (int s = 0; s < run; ++s) task.pairs[s] = pairs[s];
}

#endif

void any_list(const SparseListTask& task) {
  if (task.run == 3) return list<3>(task);
  task.run == 1 ? list<1>(task) : list<0>(task);
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
void pairs(const SparsePairsTask& task) {
  const bool whole = task.lanes == N * kLanes;
  for (int first = 0; first < task.pairs; first += kRows) {
    const int count = task.pairs - first < kRows ? task.pairs - first : kRows;
    for (Index begin = 0; begin < task.depth; begin += kSumChain) {
      const Index depth = task.depth - begin < kSumChain ? task.depth - begin : kSumChain;
      const float* rows[kRows];
      Vec sums[kRows][N];
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const int pair = first + (m < count ? m : 0);  // a missing row repeats the first pair
        rows[m] = task.in + task.there[pair] * task.depth + begin;
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sums[m][n] = zero();
      }
      add_rows<N>(rows, task.w + begin * N * kLanes, depth, sums);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        if (m >= count) continue;
        float* const out = task.out + task.here[first + m] * task.out_step;
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
          float* const at = out + n * kLanes;
          if (whole || n + 1 < N) {
            store(at, load(at) + sums[m][n]);
          } else {
            const int left = task.lanes - n * kLanes;
            store_first(at, load_first(at, left) + sums[m][n], left);
          }
        }
      }
    }
  }
}

void any_pairs(const SparsePairsTask& task) {
  if constexpr (kVectors >= 3) {
    if (task.vectors == 3) return pairs<3>(task);
  }
  if constexpr (kVectors >= 2) {
    if (task.vectors == 2) return pairs<2>(task);
  }
  pairs<1>(task);
}

// If kWhole is true, all channels and lanes of the tile exist. Otherwise the channels after the
// last one repeat the last one, and their results are not written.
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

CONVSCOPE_SIMD_KERNELS(sparse_kernels, (SparseKernels{.vectors = CONVSCOPE_ISA::kVectors,
                                                      .lanes = CONVSCOPE_ISA::kLanes,
                                                      .list = CONVSCOPE_ISA::any_list,
                                                      .pairs = CONVSCOPE_ISA::any_pairs,
                                                      .weights = CONVSCOPE_ISA::weights}))

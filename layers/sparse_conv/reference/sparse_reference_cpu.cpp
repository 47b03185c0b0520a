// SPDX-License-Identifier: Apache-2.0
// sparse_reference_cpu.cpp: sparse convolution as in its formula, with double sums. It is slow, and
// every test compares with it.
//
// Formula    y[i,k] = b[k] + sum over taps t with a neighbour j(i,t), and c < C, of
//                w[k,c,t] x[j(i,t),c]   (problem.h)
// Textbook   for i, k: y[i][k] = b[k]; for t, if j = neighbour(i, t) exists, for c:
//              y[i][k] += w[k][c][t] * x[j][c]
// Method     each element of the result is one sum. Threads divide sites (for dw: taps) among them.
// Shapes     x [n,C], w [K,C,taps], y [m,K], row-major, f32 or f64; sums in f64
// Supports   f32 and f64; every map
// Cost       FLOPs = 2 C K for each pair of neighbours; no workspace; bound by scalar arithmetic
// Numerics   sums in double, rounded once: an error of half a unit in the last place; same bits on
//            each run and with any number of threads; exact on integers below 2^24
// Backward   dx loops over the outputs that read each input; dw sums over the pairs of a tap
// Choices    none
// Source     B. Graham et al. 2018, arXiv 1711.10275
// Read next  sparse_implicit_gemm_lesson_cpu.cpp, the same with whole rows
#include "framework/parallel.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope {
namespace {

using Index = std::int64_t;
using Problem = SparseConvProblem;

template <class T>
void sum_neighbours(const SparseSums& z, const void* in_at, const void* w_at, const void* start_at,
                    void* out_at) {
  const auto* const in = static_cast<const T*>(in_at);
  const auto* const w = static_cast<const T*>(w_at);
  const auto* const start = static_cast<const T*>(start_at);
  auto* const out = static_cast<T*>(out_at);
  parallel_for(z.sites, 64, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      for (Index lane = 0; lane < z.lanes; ++lane) {
        double sum = start == nullptr ? 0.0 : static_cast<double>(start[lane]);
        for (Index tap = 0; tap < z.view.table->taps; ++tap) {
          const Index j = z.view.table->neighbour(tap, i);
          if (j < 0) continue;
          for (Index d = 0; d < z.depth; ++d) {
            sum += static_cast<double>(w[z.weight_at(tap, d, lane)]) *
                   static_cast<double>(in[j * z.depth + d]);
          }
        }
        out[i * z.lanes + lane] = static_cast<T>(sum);
      }
    }
  });
}

template <class T>
void sum_weights(const SparseConvBackwardWeightArgs& args) {
  const Problem& z = args.problem;
  const auto* const x = static_cast<const T*>(args.x);
  const auto* const dy = static_cast<const T*>(args.dy);
  auto* const dw = static_cast<T*>(args.dw);
  const SparseTable& table = *z.map->by_output().table;
  parallel_for(z.taps(), 1, [&](Index tap, Index) {
    for (Index k = 0; k < z.k; ++k) {
      for (Index c = 0; c < z.c; ++c) {
        T& to = dw[(k * z.c + c) * z.taps() + tap];
        double sum = args.accumulate ? static_cast<double>(to) : 0.0;
        for (Index i = 0; i < table.sites; ++i) {
          const Index j = table.neighbour(tap, i);
          if (j < 0) continue;
          sum += static_cast<double>(dy[i * z.k + k]) * static_cast<double>(x[j * z.c + c]);
        }
        to = static_cast<T>(sum);
      }
    }
  });
}

const SparseConvAlgorithm kAlgorithm{
    .name = "reference",
    .device = DeviceType::cpu,
    .idea = "the formula in plain loops with double sums; the oracle of the tests",
    .paper = "Graham et al. 2018: Submanifold Sparse Convolutional Networks, arXiv 1711.10275",
    .supports = [](const Problem& z, Direction) -> Support {
      if (z.dtype == DType::f32 || z.dtype == DType::f64) return {};
      return Support::no(cat("expects elements of type f32 or f64, got ", name_of(z.dtype)));
    },
    .cost = [](const Problem& z, Direction) -> Cost {
      return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .issued = z.nominal_flops()};
    },
    .workspace_bytes = [](const Problem&, Direction) -> std::size_t { return 0; },
    .error_growth = 1,
    .exact_on_integers = true,
    .auto_ok = false,
    .forward =
        [](const SparseConvForwardArgs& a) {
          const SparseSums z = sparse_sums(a.problem, Direction::forward);
          a.problem.dtype == DType::f64 ? sum_neighbours<double>(z, a.x, a.w, a.b, a.y)
                                        : sum_neighbours<float>(z, a.x, a.w, a.b, a.y);
        },
    .backward_data =
        [](const SparseConvBackwardDataArgs& a) {
          const SparseSums z = sparse_sums(a.problem, Direction::backward_data);
          a.problem.dtype == DType::f64 ? sum_neighbours<double>(z, a.dy, a.w, nullptr, a.dx)
                                        : sum_neighbours<float>(z, a.dy, a.w, nullptr, a.dx);
        },
    .backward_weight =
        [](const SparseConvBackwardWeightArgs& a) {
          a.problem.dtype == DType::f64 ? sum_weights<double>(a) : sum_weights<float>(a);
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_SPARSE_CONV_ALGORITHM(convscope::kAlgorithm)

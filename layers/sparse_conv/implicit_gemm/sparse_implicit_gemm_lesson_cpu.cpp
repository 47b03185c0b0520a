// SPDX-License-Identifier: Apache-2.0
// sparse_implicit_gemm_lesson_cpu.cpp: the lesson of sparse convolution. For each output site, the
// map returns the neighbours, and the product of each neighbour with its weights is added.
//
// Formula    y[i,k] = b[k] + sum over taps t with a neighbour j(i,t), and c < C, of
//                w[k,c,t] x[j(i,t),c]   (problem.h)
// Textbook   for each output site i:
//              y[i] = b
//              for each tap t: j = neighbour(t, i); if there is one: y[i] += x[j] w[t]
//            The convolution is a matrix product whose left matrix is never written to memory. Row
//            i of this matrix would be the rows of all neighbours of site i side by side, with
//            zeros for missing neighbours.
// Method     one output site at a time, so each element is written by one thread. dx is the same
//            sum over the outputs that an input reaches. dw sums over the pairs of each tap.
// Shapes     x [n,C], w [K,C,taps], y [m,K], row-major, f32, sums in f32
// Supports   f32; every map
// Cost       FLOPs = 2 C K for each pair of neighbours; no workspace; bound by scalar additions
//            and by w, which is read in steps of `taps`
// Numerics   one chain of additions for each number: its error grows with the square root of its
//            length; exact on integers below 2^24
// Backward   dx: the table by input; dw: assigned or added to
// Choices    none
// Source     B. Graham et al. 2018, arXiv 1711.10275; C. Choy et al. 2019, arXiv 1904.08755
// Read next  sparse_implicit_gemm_cpu.cpp: eight sites at a time in register tiles;
//            sparse_native_cpu.cpp: loops over taps instead
#include "layers/sparse_conv/algorithm.h"

namespace convscope {
namespace {

using Index = std::int64_t;
using Problem = SparseConvProblem;

void sum_neighbours(const SparseSums& z, const void* in_at, const void* w_at, const void* start_at,
                    void* out_at) {
  const auto* const in = static_cast<const float*>(in_at);
  const auto* const w = static_cast<const float*>(w_at);
  const auto* const start = static_cast<const float*>(start_at);
  for (Index i = 0; i < z.sites; ++i) {
    float* const out = static_cast<float*>(out_at) + i * z.lanes;
    for (Index lane = 0; lane < z.lanes; ++lane) out[lane] = start == nullptr ? 0.0f : start[lane];
    for (Index tap = 0; tap < z.view.table->taps; ++tap) {
      const Index j = z.view.table->neighbour(tap, i);
      if (j < 0) continue;
      for (Index d = 0; d < z.depth; ++d) {
        for (Index lane = 0; lane < z.lanes; ++lane) {
          out[lane] += in[j * z.depth + d] * w[z.weight_at(tap, d, lane)];
        }
      }
    }
  }
}

void backward_weight(const SparseConvBackwardWeightArgs& args) {
  const Problem& z = args.problem;
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const dy = static_cast<const float*>(args.dy);
  auto* const dw = static_cast<float*>(args.dw);
  if (!args.accumulate) std::fill_n(dw, z.w_shape().numel(), 0.0f);
  const SparseTable& table = *z.map->by_output().table;
  for (Index tap = 0; tap < table.taps; ++tap) {
    for (Index i = 0; i < table.sites; ++i) {
      const Index j = table.neighbour(tap, i);
      if (j < 0) continue;
      for (Index k = 0; k < z.k; ++k) {
        for (Index c = 0; c < z.c; ++c) {
          dw[(k * z.c + c) * table.taps + tap] += dy[i * z.k + k] * x[j * z.c + c];
        }
      }
    }
  }
}

const SparseConvAlgorithm kAlgorithm{
    .name = "implicit_gemm_lesson",
    .device = DeviceType::cpu,
    .idea = "lesson: one output site at a time; each neighbour's row times the weights of its tap",
    .paper = "Graham et al. 2018, arXiv 1711.10275; Choy et al. 2019, arXiv 1904.08755",
    .supports = [](const Problem& z, Direction) -> Support {
      if (z.dtype == DType::f32) return {};
      return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
    },
    .cost = [](const Problem& z, Direction) -> Cost {
      return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .issued = z.nominal_flops()};
    },
    .workspace_bytes = [](const Problem&, Direction) -> std::size_t { return 0; },
    .error_growth = 9,
    .one_chain = true,
    .exact_on_integers = true,
    .auto_ok = false,
    .forward =
        [](const SparseConvForwardArgs& a) {
          sum_neighbours(sparse_sums(a.problem, Direction::forward), a.x, a.w, a.b, a.y);
        },
    .backward_data =
        [](const SparseConvBackwardDataArgs& a) {
          sum_neighbours(sparse_sums(a.problem, Direction::backward_data), a.dy, a.w, nullptr,
                         a.dx);
        },
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_SPARSE_CONV_ALGORITHM(convscope::kAlgorithm)
